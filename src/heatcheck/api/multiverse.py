"""One question asked in many ways, as one run: how far does the ranking of methods move?"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heatcheck.api.benchmark import Benchmark, label_components
from heatcheck.api.expansion import JOIN, SIGN, SIGNS, Expansion, check_each_level, contestants, enough, expand, usual
from heatcheck.api.result import Result
from heatcheck.core import catalogue
from heatcheck.core.plugins import load_plugin
from heatcheck.core.spec import Spec, SpecError, parse
from heatcheck.core.types import HeatcheckError, NotApplicable
from heatcheck.domain.base import Domain
from heatcheck.profiles import Profile
from heatcheck.stats import Rankings, rankings, rankings_missing, universes_of

if TYPE_CHECKING:
    import polars as pl


def multiverse(
    model: Any = None,
    data: Any = None,
    *,
    metric: str = "morf",
    factors: Mapping[str, Sequence[Any]] | None = None,
    methods: Sequence[Any] | None = None,
    profile: str = "default",
    preprocess: Any = None,
    output: str | int | None = None,
    target: Any = None,
    seed: int = 0,
    plugins: tuple[str, ...] = (),
    out: str | Path = "runs/multiverse",
    samples: int | None = None,
    **options: Any,
) -> "Multiverse":
    """Ask one question in many ways that are as defensible, and see how far the ranking of methods moves.

    >>> many = multiverse(net, photos, factors={"fill": ["zero", "blur"], "sign": ["signed", "abs"]})  # doctest: +SKIP
    >>> many.w, many.table(), many.factors()                                                           # doctest: +SKIP

    Args:
        model: a model, or several, as for `Benchmark`.
        data: as for `Benchmark`.
        metric: the question, such as `morf`, `sds` or `abpc(ties=index)`.
        factors: levels by factor: a parameter of the metric (fill, steps, units, output, ties, …), `sign` or `dialect`;
            see `heatcheck.api.expansion.expand`. The usual ones if None.
        methods: as for `Benchmark`; the profile's, with no control but random, if None. Random is added.
        profile: where parameters and lists that are not given come from.
        preprocess: as for `Benchmark`.
        output: as for `Benchmark`.
        target: as for `Benchmark`.
        seed: of every random stream.
        plugins: Python files that declare methods, metrics or fills.
        out: the run's folder; an existing one is resumed.
        samples: how many samples; all if None.
        **options: workers, on, threads, batch, compile, maps, budget, timeout and progress, as for `Benchmark.run`.
    """
    bench = Benchmark(
        models=model,
        data=data,
        preprocess=preprocess,
        output=output,
        methods=methods,
        profile=profile,
        target=target,
        seed=seed,
        plugins=plugins,
    )
    everywhere, _ = over(bench, metric, factors, samples)
    return Multiverse(everywhere.run(out, samples=samples, **options))


def over(
    bench: Benchmark, metric: str, factors: Mapping[str, Sequence[Any]] | None = None, samples: int | None = None
) -> tuple[Benchmark, Expansion]:
    """The benchmark that asks a metric's question in every universe, and its universes.

    Args:
        bench: the models, data and methods; its metrics are ignored.
        metric: the metric to expand.
        factors: levels by factor; the usual ones if None.
        samples: how many samples.

    Raises:
        SpecError: a factor or level that fits no way of asking, or fewer than two universes.
    """
    for path in bench.plugins:
        load_plugin(path)
    if factors:
        first = expand(metric, factors, bench.profile)  # fails before anything is loaded
        enough(first)
        check_each_level(first.base, factors, bench.profile)
    profile = bench.settings(samples)
    methods = list(contestants(profile) if bench.methods is None else bench.methods)
    named = label_components("method", methods, profile)
    if not any(component.id == "random" for _, component in named):
        methods.append("random")
    setup = replace(bench, methods=methods, metrics=[metric]).setup(samples)
    made = expand(
        metric,
        factors or usual(metric, bench.profile, next(iter(setup.models.values())).domain.usual_levels),
        bench.profile,
        setup.data.modality,
    )
    made = made.without(_unusable(made.metrics, [model.domain for model in setup.models.values()]))
    variants, labels = signed_variants(methods, made.signs, profile)
    idle = [sign for sign in made.signs if not labels[sign]][1:]
    why = "no method's maps have a sign, so {} changes nothing"
    made = made.without({u.label: why.format(u.levels[SIGN]) for u in made.universes if u.levels.get(SIGN) in idle})
    enough(made)
    record = {**made.record(), "methods": labels}
    return replace(bench, methods=variants, metrics=dict(made.metrics), multiverse=record), made


def _unusable(metrics: Mapping[str, str], domains: Sequence[Domain]) -> dict[str, str]:
    """Metrics that cannot be built, or that are another one under another name for every model; and why."""
    reasons: dict[str, str] = {}
    asked: dict[str, str] = {}
    for label, spec in metrics.items():
        try:
            component = catalogue.build("metric", spec)
        except SpecError as problem:
            reasons[label] = str(problem)
            continue
        wrong = [_refusal(component, domain) for domain in domains]
        if all(wrong):
            reasons[label] = str(wrong[0])
        if any(wrong):
            continue  # where it is some models only, the run says so
        identity = repr([component.resolve(domain).identity() for domain in domains])
        if identity in asked:
            reasons[label] = f"the same as {asked[identity]}"
        asked.setdefault(identity, label)
    return reasons


def _refusal(component: Any, domain: Domain) -> str | None:
    """Why a metric does not exist on a domain; None if it does."""
    try:
        component.resolve(domain)
    except NotApplicable as reason:
        return str(reason)
    return None


def signed_variants(
    methods: Iterable[Any], signs: Sequence[str], profile: Profile
) -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
    """Every method under every sign, by label, and per sign the labels of those that are not themselves there.

    A method whose maps have no sign, or that says itself what is done to them, is the same under all signs; so are
    controls.
    """
    given = list(methods)
    named = label_components("method", given, profile)
    variants: dict[str, Any] = {label: spec for (label, _), spec in zip(named, given, strict=True)}
    labels: dict[str, dict[str, str]] = {sign: {} for sign in signs}
    for sign in signs:
        if sign == SIGNS[0]:
            continue
        for (label, component), spec in zip(named, given, strict=True):
            if component.signed and not component.control:
                variant = f"{label}{JOIN}{sign}"
                if isinstance(spec, str):
                    whole = parse(profile.apply("method", spec))
                    variants[variant] = str(Spec(whole.id, {**whole.params, "post": sign}))
                else:
                    variants[variant] = replace(component, post=sign)
                labels[sign][label] = variant
    return variants, labels


@dataclass(frozen=True)
class Multiverse:
    """A run that asked one question in many ways.

    Args:
        result: the run.
    """

    result: Result

    @classmethod
    def open(cls, path: str | Path) -> "Multiverse":
        """Open the folder of a run that `multiverse` made."""
        return cls(Result.open(path, only=True))

    @property
    def record(self) -> Mapping[str, Any]:
        """What varied, as the run recorded it."""
        found: Mapping[str, Any] | None = self.result.facts.get("multiverse")
        if found is None:
            raise HeatcheckError(f"the run {self.result.name!r} is no multiverse; make one with hc.multiverse(…)")
        return found

    @cached_property
    def cases(self) -> list[Rankings]:
        """The rankings and their agreement, per model and data set."""
        return rankings(self.result.scores(), self.result.stats_facts, universes_of(self.record))

    @property
    def w(self) -> float | None:
        """Kendall's W over all universes: 1 where all rank alike, 0 where nothing is left of a ranking."""
        return self._only().w

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """The bootstrap interval of W over samples, 95 %."""
        return self._only().low, self._only().high

    def _only(self) -> Rankings:
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
        return rankings_missing(self.record, self.cases)

    def report(self, path: str | Path | None = None) -> Path:
        """Write the run's report, the multiverse included."""
        return self.result.report(path)

    def _frame(self, rows: list[dict[str, Any]]) -> "pl.DataFrame":
        import polars as pl

        return pl.DataFrame(rows, infer_schema_length=None)
