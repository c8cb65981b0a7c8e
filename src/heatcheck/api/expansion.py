"""One question asked in many ways: a metric expanded over fills, steps, units, outputs, dialects and signs.

A multiverse is one run whose metrics are all combinations of choices that papers make without a word. How far the
ranking of methods moves between them is what `heatcheck.stats.rankings` measures. Nothing heavy is imported here.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from heatcheck.core import catalogue
from heatcheck.core.spec import Spec, SpecError, parse, suggest, write
from heatcheck.profiles import Profile, load_profile, names

SIGN, DIALECT = "sign", "dialect"
SIGNS = ("signed", "abs", "relu")
USUAL: dict[str, tuple[str, ...]] = {
    DIALECT: ("own", "output=logit", "output=prob", "area=trapezoid"),
    SIGN: ("signed", "abs"),
}
"""What varies where nothing is said, beside the fills and units that the domain names, as far as the metric has it.

Steps, too: the metric's own and half as many, whose deletions are among them. Another output or area asks nothing more.
"""
JOIN = " · "


@dataclass(frozen=True)
class Choice:
    """One universe before anything is run.

    Args:
        label: its name.
        metric: the name of its metric.
        levels: the choice that each factor has here.
    """

    label: str
    metric: str
    levels: Mapping[str, str]


@dataclass(frozen=True)
class Expansion:
    """A metric expanded over its factors.

    Args:
        base: the metric as it was written.
        factors: the levels of every factor that varies.
        metrics: specs by label, one per way to ask.
        universes: ways to ask × signs.
        left_out: combinations that are no universe, with the reason.
    """

    base: str
    factors: Mapping[str, tuple[str, ...]]
    metrics: Mapping[str, str]
    universes: tuple[Choice, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def signs(self) -> tuple[str, ...]:
        """What is done to the maps of methods that have a sign."""
        return self.factors.get(SIGN, SIGNS[:1])

    def without(self, reasons: Mapping[str, str]) -> "Expansion":
        """The same without some metrics or universes, which are left out with their reason."""
        return replace(
            self,
            metrics={label: spec for label, spec in self.metrics.items() if label not in reasons},
            universes=tuple(u for u in self.universes if u.label not in reasons and u.metric not in reasons),
            left_out=(*self.left_out, *reasons.items()),
        )

    def record(self) -> dict[str, Any]:
        """As plain data, for a run's own record."""
        return {
            "base": self.base,
            "factors": {name: list(levels) for name, levels in self.factors.items()},
            "universes": [{"label": u.label, "metric": u.metric, "levels": dict(u.levels)} for u in self.universes],
            "left_out": [{"label": label, "reason": reason} for label, reason in self.left_out],
        }


def usual(
    metric: str, profile: str = "default", levels: Mapping[str, tuple[str, ...]] | None = None
) -> dict[str, tuple[str, ...]]:
    """The factors that vary where nothing is said: the usual ones that the metric has, as far as they change it.

    Args:
        metric: the metric to expand.
        profile: where parameters that are not written come from.
        levels: fills and units that are usual on the domain; see `Domain.usual_levels`.
    """
    own = _spelt(metric, profile)
    known = {name: given for name, given in (levels or {}).items() if name in own.params}
    steps = own.params.get("steps", 0)
    if steps >= 2:
        known["steps"] = (str(steps // 2), str(steps))
    changes = [level for level in USUAL[DIALECT] if _changes(own, level)]
    return {**({DIALECT: ("own", *changes)} if changes else {}), **known, SIGN: USUAL[SIGN]}


def _changes(spec: Spec, dialect: str) -> bool:
    parameter, _, value = dialect.partition("=")
    return parameter in spec.params and write(spec.params[parameter]) != value


def expand(
    metric: str, factors: Mapping[str, Sequence[Any]], profile: str = "default", modality: str = ""
) -> Expansion:
    """All combinations of the factors' levels.

    A factor is a parameter of the metric, `sign` (signed, abs, relu: what is done to maps that have a sign) or
    `dialect`: `own`, a profile (its parameters of this metric; where it has none, its metrics of the same family),
    a metric, or `parameter=value`. A dialect decides what the other factors leave open.

    Args:
        metric: the metric to expand, such as `morf` or `abpc(ties=index)`.
        factors: levels by factor; what is not named stays as it is.
        profile: where parameters that are not written come from.
        modality: of the data, where it is known: profiles may differ by it.

    Raises:
        SpecError: a factor or level that fits no way of asking.
    """
    base = str(parse(load_profile(profile).spec(metric)))
    if catalogue.find("metric", parse(base).id).facts["family"] == "composite":
        raise SpecError(f"{base} adds up other metrics; expand one of them")
    levels = {name: _levels(name, given) for name, given in factors.items()}
    dialects = _dialects(base, levels.get(DIALECT, ("own",)), profile, modality)
    varied = [name for name in levels if name not in (SIGN, DIALECT)]
    _check(base, dialects, {name: levels[name] for name in varied})
    metrics: dict[str, str] = {}
    universes: list[Choice] = []
    left_out: list[tuple[str, str]] = []
    same: dict[str, str] = {}
    for dialect, *chosen in product(dialects, *(levels[name] for name in varied)):
        spec = dialects[dialect]
        here = dict(zip(varied, chosen, strict=True))
        label = JOIN.join([dialect, *chosen])
        if DIALECT in levels:
            here = {DIALECT: dialect, **here}
        lacks = [name for name in varied if name not in catalogue.find("metric", spec.id).params]
        if lacks:
            left_out.append((label, f"{spec.id} has no {' and no '.join(lacks)}"))
            continue
        asked = str(Spec(spec.id, {**spec.params, **{name: _value(here[name]) for name in varied}}))
        if asked in same:
            left_out.append((label, f"the same as {same[asked]}"))
            continue
        same[asked] = label
        metrics[label] = asked
        for sign in levels.get(SIGN, ("",)):
            own = {**here, SIGN: sign} if sign else here
            universes.append(Choice(f"{label}{JOIN}{sign}" if sign else label, label, own))
    named = {DIALECT: tuple(dialects)} if DIALECT in levels else {}
    return Expansion(base, {**levels, **named}, metrics, tuple(universes), tuple(left_out))


def _levels(name: str, given: Any) -> tuple[str, ...]:
    """A factor's levels as text, each once."""
    many = given if isinstance(given, list | tuple) else (given,)
    found = tuple(dict.fromkeys(level.strip() if isinstance(level, str) else write(level) for level in many))
    if not found:
        raise SpecError(f"factor {name} has no level; name at least one")
    wrong = [level for level in found if name == SIGN and level not in SIGNS]
    if wrong:
        raise SpecError(f"there is no sign {wrong[0]!r}{suggest(wrong[0], SIGNS)}; it is one of {', '.join(SIGNS)}")
    return found


def _value(text: str) -> Any:
    """A level as a parameter's value: a number, true or false, a word, or a component."""
    return parse(f"x(n={text})").params["n"]


def _dialects(base: str, wanted: Sequence[str], profile: str, modality: str = "") -> dict[str, Spec]:
    """Metrics with every parameter spelt out, by the dialect's name."""
    found: dict[str, Spec] = {}
    for name in wanted:
        for label, spec in _dialect(base, name, profile, modality):
            taken = label in found and str(found[label]) != str(spec)
            found[name if taken else label] = spec
    return found


def _dialect(base: str, name: str, profile: str, modality: str) -> list[tuple[str, Spec]]:
    id = parse(base).id
    if name == "own":
        return [(id, _spelt(base, profile, modality))]
    parameter, equals, value = name.partition("=")
    if equals and "(" not in parameter:
        entry = catalogue.find("metric", id)
        if parameter.strip() not in entry.params:
            raise SpecError(f"dialect {name!r}: {id} has no parameter {parameter!r}{suggest(parameter, entry.params)}")
        spec = _spelt(base, profile, modality)
        return [(value.strip(), Spec(id, {**spec.params, parameter.strip(): _value(value)}))]
    if name in names():
        if _has(name, id):
            return [(name, _spelt(base, name, modality))]
        family = catalogue.find("metric", id).facts["family"]
        others = _of_family(name, family)
        if not others:
            raise SpecError(f"dialect {name!r}: the profile has neither {id} nor another metric that asks by {family}")
        return [(f"{name} {m}", _spelt(m, name, modality)) for m in others]
    if parse(name).id not in catalogue.entries("metric"):
        near = suggest(parse(name).id, _fitting(id))
        raise SpecError(f"no dialect is called {name!r}: it is own, a profile, a metric or parameter=value{near}")
    return [(name, _spelt(name, profile, modality))]


def _has(profile: str, id: str) -> bool:
    """Whether a profile says anything about a metric."""
    theirs = load_profile(profile)
    return id in {*theirs.params.get("metric", {}), *(parse(theirs.spec(m)).id for m in theirs.metrics)}


def _of_family(profile: str, family: str) -> list[str]:
    """A profile's metrics of one family."""
    theirs = load_profile(profile)
    ids = {m: parse(theirs.spec(m)).id for m in theirs.metrics}
    return [m for m, id in ids.items() if catalogue.find("metric", id).facts["family"] == family]


def _fitting(id: str) -> list[str]:
    """The dialects that can stand beside a metric: profiles that have it or its family, and metrics of its family."""
    family = catalogue.find("metric", id).facts["family"]
    profiles = [name for name in names() if _has(name, id) or _of_family(name, family)]
    others = [other for other, entry in catalogue.entries("metric").items() if entry.facts["family"] == family]
    return ["own", *profiles, *(other for other in others if other not in (id, *profiles))]


def _spelt(written: str, profile: str, modality: str = "") -> Spec:
    """A metric with a profile's parameters and every default spelt out, so that no other profile changes it."""
    spec = parse(load_profile(profile, modality).apply("metric", written))
    entry = catalogue.find("metric", spec.id)
    return Spec(spec.id, {**dict(_defaults(entry)), **spec.params})


def _defaults(entry: catalogue.Entry) -> Iterator[tuple[str, Any]]:
    """The defaults that are literals; the others stay where the source has them."""
    for name, source in entry.params.items():
        with suppress(ValueError, SyntaxError):
            yield name, ast.literal_eval(source)


def _check(base: str, dialects: Mapping[str, Spec], levels: Mapping[str, Sequence[str]]) -> None:
    """Refuse a factor that no dialect has, and a level that is wrong wherever its parameter exists."""
    for name, given in levels.items():
        having = [s for s in dialects.values() if name in catalogue.find("metric", s.id).params]
        if not having:
            known = [*catalogue.find("metric", parse(base).id).params, SIGN, DIALECT]
            raise SpecError(f"{parse(base).id} has no {name!r} to vary{suggest(name, known)}")
        for level in given:
            wrong = [p for s in having for _, p in catalogue.problems("metric", Spec(s.id, {name: _value(level)}))]
            if wrong:
                raise SpecError(wrong[0])
    for spec in dialects.values():
        for _, problem in catalogue.problems("metric", spec):
            raise SpecError(problem)


def enough(made: Expansion) -> None:
    """Refuse fewer than two universes: there would be nothing to compare.

    Raises:
        SpecError: what is left, what is left out and why, and what could vary.
    """
    if len(made.universes) > 1:
        return
    left = f"there is only one universe, {made.universes[0].label}" if made.universes else "there is no universe"
    reasons: dict[str, list[str]] = {}
    for label, why in made.left_out:
        reasons.setdefault(why, []).append(label)
    without = "; ".join(f"{', '.join(labels)}: {why}" for why, labels in reasons.items())
    params = catalogue.find("metric", parse(made.base).id).params
    known = [name for name in ("fill", "steps", "units", "output") if name in params]
    raise SpecError(
        f"{left}, and rankings are compared between two or more{f'; left out: {without}' if without else ''}; "
        f"vary something: name two levels that fit of {', '.join([*known, SIGN])} or {DIALECT}"
    )


def contestants(profile: Profile) -> list[str]:
    """A profile's methods, and of its controls random alone: the others would only cost passes in every universe."""
    ids = {written: parse(profile.spec(written)).id for written in profile.methods}
    return [m for m, id in ids.items() if id == "random" or not catalogue.find("method", id).facts["control"]]


def check_each_level(base: str, factors: Mapping[str, Sequence[Any]], profile: str) -> None:
    """Refuse a dialect, or a level, whose value is wrong by itself; levels that do not go together are left out."""
    dialects = _dialects(base, _levels(DIALECT, factors.get(DIALECT, "own")), profile)
    for spec in dialects.values():
        catalogue.build("metric", spec)
    for name, given in factors.items():
        having = [s for s in dialects.values() if name in catalogue.find("metric", s.id).params]
        for level in _levels(name, given) if having else ():
            problems = [_mistake(Spec(s.id, {**s.params, name: _value(level)})) for s in having]
            if all(problems):
                raise SpecError(str(problems[0]))


def _mistake(spec: Spec) -> str | None:
    try:
        catalogue.build("metric", spec)
    except SpecError as problem:
        return str(problem)
    return None
