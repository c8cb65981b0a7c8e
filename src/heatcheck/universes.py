"""One question asked in many ways: a metric expanded over fills, steps, units, outputs, dialects and signs.

A multiverse is one run whose metrics are all combinations of choices that papers make without a word. How far the
ranking of methods moves between them is what `heatcheck.stats.rankings` measures. Nothing heavy is imported here.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heatcheck import catalogue
from heatcheck.profiles import load_profile, names
from heatcheck.spec import Spec, SpecError, parse, suggest, write

if TYPE_CHECKING:
    import polars as pl

    from heatcheck.api import Benchmark
    from heatcheck.domain.base import Domain
    from heatcheck.engine.result import Result
    from heatcheck.stats import Rankings, Universe

SIGN, DIALECT = "sign", "dialect"
SIGNS = ("signed", "abs", "relu")
USUAL: dict[str, tuple[str, ...]] = {
    DIALECT: ("own", "output=logit", "output=prob", "area=trapezoid"),
    "fill": ("zero", "blur", "channel_mean"),
    "units": ("pixel", "grid(8)"),
    SIGN: ("signed", "abs"),
}
"""What varies where nothing is said, as far as the metric has it: what published comparisons differ in.

Steps, too: the metric's own and half as many, whose deletions are among them. Another output or area asks nothing more.
"""
USUAL_TEXT: dict[str, tuple[str, ...]] = {**USUAL, "fill": ("mask", "pad", "unk"), "units": ("token", "word")}
"""The same for texts."""
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


def usual(metric: str, profile: str = "default", modality: str = "image") -> dict[str, tuple[str, ...]]:
    """The factors that vary where nothing is said: the usual ones that the metric has, as far as they change it."""
    own = _spelt(metric, profile)
    table = USUAL_TEXT if modality == "text" else USUAL
    known = {name: levels for name, levels in table.items() if name in own.params}
    steps = own.params.get("steps", 0)
    if steps >= 2:
        known["steps"] = (str(steps // 2), str(steps))
    changes = [level for level in table[DIALECT] if _changes(own, level)]
    return {**({DIALECT: ("own", *changes)} if changes else {}), **known, SIGN: table[SIGN]}


def _changes(spec: Spec, dialect: str) -> bool:
    parameter, _, value = dialect.partition("=")
    return parameter in spec.params and write(spec.params[parameter]) != value


def expand(metric: str, factors: Mapping[str, Sequence[Any]], profile: str = "default") -> Expansion:
    """All combinations of the factors' levels.

    A factor is a parameter of the metric, `sign` (signed, abs, relu: what is done to maps that have a sign) or
    `dialect`: `own`, a profile (its parameters of this metric; where it has none, its metrics of the same family),
    a metric, or `parameter=value`. A dialect decides what the other factors leave open.

    Args:
        metric: the metric to expand, such as `morf` or `abpc(ties=index)`.
        factors: levels by factor; what is not named stays as it is.
        profile: where parameters come from that nobody names.

    Raises:
        SpecError: a factor or level that fits no way of asking.
    """
    base = str(parse(load_profile(profile).spec(metric)))
    if catalogue.find("metric", parse(base).id).facts["family"] == "composite":
        raise SpecError(f"{base} adds up other metrics; expand one of them")
    levels = {name: _levels(name, given) for name, given in factors.items()}
    dialects = _dialects(base, levels.get(DIALECT, ("own",)), profile)
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
    told = {DIALECT: tuple(dialects)} if DIALECT in levels else {}
    return Expansion(base, {**levels, **told}, metrics, tuple(universes), tuple(left_out))


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
    """A level as a parameter's value: a number, true or false, a word, or a unit."""
    return parse(f"x(n={text})").params["n"]


def _dialects(base: str, wanted: Sequence[str], profile: str) -> dict[str, Spec]:
    """Metrics with every parameter spelt out, by the dialect's name."""
    found: dict[str, Spec] = {}
    for name in wanted:
        for label, spec in _dialect(base, name, profile):
            taken = label in found and str(found[label]) != str(spec)
            found[name if taken else label] = spec
    return found


def _dialect(base: str, name: str, profile: str) -> list[tuple[str, Spec]]:
    id = parse(base).id
    if name == "own":
        return [(id, _spelt(base, profile))]
    parameter, equals, value = name.partition("=")
    if equals and "(" not in parameter:
        entry = catalogue.find("metric", id)
        if parameter.strip() not in entry.params:
            raise SpecError(f"dialect {name!r}: {id} has no parameter {parameter!r}{suggest(parameter, entry.params)}")
        spec = _spelt(base, profile)
        return [(value.strip(), Spec(id, {**spec.params, parameter.strip(): _value(value)}))]
    if name in names():
        if _has(name, id):
            return [(name, _spelt(base, name))]
        family = catalogue.find("metric", id).facts["family"]
        kin = _kin(name, family)
        if not kin:
            raise SpecError(f"dialect {name!r}: the profile has neither {id} nor another metric that asks by {family}")
        return [(f"{name} {m}", _spelt(m, name)) for m in kin]
    if parse(name).id not in catalogue.entries("metric"):
        near = suggest(parse(name).id, _fitting(id))
        raise SpecError(f"no dialect is called {name!r}: it is own, a profile, a metric or parameter=value{near}")
    return [(name, _spelt(name, profile))]


def _has(profile: str, id: str) -> bool:
    """Whether a profile says anything about a metric."""
    theirs = load_profile(profile)
    return id in {*theirs.params.get("metric", {}), *(parse(theirs.spec(m)).id for m in theirs.metrics)}


def _kin(profile: str, family: str) -> list[str]:
    """A profile's metrics of one family."""
    theirs = load_profile(profile)
    ids = {m: parse(theirs.spec(m)).id for m in theirs.metrics}
    return [m for m, id in ids.items() if catalogue.find("metric", id).facts["family"] == family]


def _fitting(id: str) -> list[str]:
    """The dialects that can stand beside a metric: profiles that have it or its kin, and metrics of its family."""
    family = catalogue.find("metric", id).facts["family"]
    profiles = [name for name in names() if _has(name, id) or _kin(name, family)]
    kin = [other for other, entry in catalogue.entries("metric").items() if entry.facts["family"] == family]
    return ["own", *profiles, *(other for other in kin if other not in (id, *profiles))]


def _spelt(written: str, profile: str) -> Spec:
    """A metric with a profile's parameters and every default spelt out, so that no other profile changes it."""
    spec = parse(load_profile(profile).apply("metric", written))
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


# -- with the engine ---------------------------------------------------------------------------------------------


def over(
    bench: "Benchmark", metric: str, factors: Mapping[str, Sequence[Any]] | None = None, samples: int | None = None
) -> "tuple[Benchmark, Expansion]":
    """The benchmark that asks a metric's question in every universe, and its universes.

    Args:
        bench: whom to ask, about which methods; its metrics are left aside.
        metric: the metric to expand.
        factors: levels by factor; the usual ones if None.
        samples: how many samples.

    Raises:
        SpecError: a factor or level that fits no way of asking, or fewer than two universes.
    """
    from heatcheck.api import name_units
    from heatcheck.plugins import load_plugin

    for path in bench.plugins:
        load_plugin(path)
    if factors:
        first = expand(metric, factors, bench.profile)  # a mistake is told before anything is loaded
        enough(first)
        _build_each(first.base, factors, bench.profile)
    methods = list(contestants(bench.profile) if bench.methods is None else bench.methods)
    named = name_units("method", methods, bench.profile)
    if not any(unit.id == "random" for _, unit in named):
        methods.append("random")
    setup = replace(bench, methods=methods, metrics=[metric]).setup(samples)
    made = expand(metric, factors or usual(metric, bench.profile, setup.data.modality), bench.profile)
    made = made.without(_unusable(made.metrics, [model.domain for model in setup.models.values()]))
    units, labels = twins(methods, made.signs, bench.profile)
    idle = [sign for sign in made.signs if not labels[sign]][1:]
    why = "no method's maps have a sign, so {} changes nothing"
    made = made.without({u.label: why.format(u.levels[SIGN]) for u in made.universes if u.levels.get(SIGN) in idle})
    enough(made)
    record = {**made.record(), "methods": labels}
    return replace(bench, methods=units, metrics=dict(made.metrics), multiverse=record), made


def contestants(profile: str) -> list[str]:
    """A profile's methods, and of its controls random alone: the others would only cost passes in every universe."""
    chosen = load_profile(profile)
    ids = {written: parse(chosen.spec(written)).id for written in chosen.methods}
    return [m for m, id in ids.items() if id == "random" or not catalogue.find("method", id).facts["control"]]


def _build_each(base: str, factors: Mapping[str, Sequence[Any]], profile: str) -> None:
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


def _unusable(metrics: Mapping[str, str], domains: "Sequence[Domain]") -> dict[str, str]:
    """Metrics that cannot be built, or that are another one under another name for every model; and why."""
    reasons: dict[str, str] = {}
    asked: dict[str, str] = {}
    for label, spec in metrics.items():
        try:
            unit = catalogue.build("metric", spec)
        except SpecError as problem:
            reasons[label] = str(problem)
            continue
        wrong = [_refusal(unit, domain) for domain in domains]
        if all(wrong):
            reasons[label] = str(wrong[0])
        if any(wrong):
            continue  # where it is some models only, the run says so
        identity = repr([unit.resolve(domain).identity() for domain in domains])
        if identity in asked:
            reasons[label] = f"the same as {asked[identity]}"
        asked.setdefault(identity, label)
    return reasons


def _refusal(unit: Any, domain: "Domain") -> str | None:
    """Why a metric does not exist on a domain; None if it does."""
    from heatcheck.types import NotApplicable

    try:
        resolved = unit.resolve(domain)
    except NotApplicable as reason:
        return str(reason)
    units = str(resolved.params().get("units", "")).partition("(")[0]
    if units in catalogue.UNITS and domain.modality not in catalogue.UNITS[units]["on"]:
        return f"units={units!r} do not exist for a {domain.modality}"
    return None


def twins(
    methods: Iterable[Any], signs: Sequence[str], profile: str
) -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
    """Every method under every sign, by label, and per sign the labels of those that are not themselves there.

    A method whose maps have no sign, or that says itself what is done to them, is the same under all signs; so are
    controls.
    """
    from heatcheck.api import name_units

    given = list(methods)
    named = name_units("method", given, profile)
    units: dict[str, Any] = {label: spec for (label, _), spec in zip(named, given, strict=True)}
    labels: dict[str, dict[str, str]] = {sign: {} for sign in signs}
    for sign in signs:
        if sign == SIGNS[0]:
            continue
        for (label, unit), spec in zip(named, given, strict=True):
            if unit.signed and not unit.control:
                twin = f"{label}{JOIN}{sign}"
                if isinstance(spec, str):
                    whole = parse(load_profile(profile).apply("method", spec))
                    units[twin] = str(Spec(whole.id, {**whole.params, "post": sign}))
                else:
                    units[twin] = replace(unit, post=sign)
                labels[sign][label] = twin
    return units, labels


def universes_of(record: Mapping[str, Any]) -> "list[Universe]":
    """The universes of a run, from its own record."""
    from heatcheck.stats import Universe

    signed = record["methods"]
    return [
        Universe(u["label"], u["metric"], u["levels"], signed.get(u["levels"].get(SIGN, ""), {}))
        for u in record["universes"]
    ]


@dataclass(frozen=True)
class Multiverse:
    """A run that asked one question in many ways.

    Args:
        result: the run.
    """

    result: "Result"

    @classmethod
    def open(cls, path: str | Path) -> "Multiverse":
        """Open the folder of a run that `multiverse` made."""
        from heatcheck.engine.result import Result

        return cls(Result.open(path))

    @property
    def record(self) -> Mapping[str, Any]:
        """What varied, as the run recorded it."""
        from heatcheck.types import HeatcheckError

        found: Mapping[str, Any] | None = self.result.facts.get("multiverse")
        if found is None:
            raise HeatcheckError(f"the run {self.result.name!r} is no multiverse; make one with hc.multiverse(…)")
        return found

    @cached_property
    def cases(self) -> "list[Rankings]":
        """The rankings and their agreement, per model and data set."""
        from heatcheck.report.source import stats_facts
        from heatcheck.stats import rankings

        facts = stats_facts(self.result.facts)
        return rankings(self.result.scores(), facts, universes_of(self.record))

    @property
    def w(self) -> float | None:
        """Kendall's W over all universes: 1 where all rank alike, 0 where nothing is left of a ranking."""
        return self._only().w

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """The bootstrap interval of W over samples, 95 %."""
        return self._only().low, self._only().high

    def _only(self) -> "Rankings":
        from heatcheck.types import HeatcheckError

        if len(self.cases) != 1:
            raise HeatcheckError(f"{len(self.cases)} models were measured; take one of `cases`")
        return self.cases[0]

    def table(self) -> "pl.DataFrame":
        """One row per method: mean, median, best and worst rank, times first, times not better than random."""
        return self._frame([{**c.key, **row} for c in self.cases for row in c.by_method()])

    def universes(self) -> "pl.DataFrame":
        """One row per universe: its choices, and the rank of every method."""
        return self._frame([{**c.key, **row} for c in self.cases for row in c.by_universe()])

    def factors(self) -> "pl.DataFrame":
        """One row per factor: how far it alone moves the ranking."""
        rows = [{**c.key, **row} for c in self.cases for row in c.by_factor()]
        return self._frame([{k: v for k, v in row.items() if k != "w"} for row in rows])

    def pairs(self) -> "pl.DataFrame":
        """One row per pair of methods: in what share of the universes one ranks before the other."""
        return self._frame([{**c.key, **row} for c in self.cases for row in c.by_pair()])

    def left_out(self) -> list[tuple[str, str]]:
        """Combinations that give no ranking, with the reason; per model where it depends on the model."""
        return gaps(self.record, self.cases)

    def report(self, path: str | Path | None = None) -> Path:
        """Write the run's report, the multiverse included."""
        return self.result.report(path)

    def _frame(self, rows: list[dict[str, Any]]) -> "pl.DataFrame":
        import polars as pl

        return pl.DataFrame(rows, infer_schema_length=None)


def gaps(record: Mapping[str, Any], cases: "Sequence[Rankings]") -> list[tuple[str, str]]:
    """Everything that was asked for and gives no ranking, with the reason."""
    told = [(g["label"], g["reason"]) for g in record["left_out"]]
    for case in cases:
        where = f"{case.model}: " if len(cases) > 1 else ""
        told += [(label, f"{where}{reason}") for label, reason in case.left_out]
    return told
