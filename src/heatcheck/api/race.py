"""A race: an ordinary run on growing parts of the samples, of which methods leave as soon as their place is certain.

Every look is a run of the same folder on the first samples of one seeded order, with the methods and metrics that are still
open. What is stored is not computed again, so a race that was killed comes to the same verdict when it is started again,
and a full run into the same folder goes on from it. The study of a look says that it is one: intervals that suppose a
number of samples fixed before are too short there.
"""

import hashlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heatcheck.api.benchmark import Benchmark, label_models, precise_label
from heatcheck.api.result import Result
from heatcheck.api.study import folder_name
from heatcheck.core import progress
from heatcheck.core.spec import SpecError
from heatcheck.core.types import HeatcheckError
from heatcheck.data.base import Dataset
from heatcheck.probe.asks import Shape, passes_of
from heatcheck.report.race import RaceCase, RaceReport
from heatcheck.run.forecast import forecast, shapes_of
from heatcheck.run.manifest import component_facts, model_record
from heatcheck.run.naming import naming
from heatcheck.run.raced import RACE
from heatcheck.run.runtime import Runtime
from heatcheck.run.setup import Part, Setup, place, prepare
from heatcheck.stats import Facts
from heatcheck.stats.race import Goal, Race, looks, score_matrix

if TYPE_CHECKING:
    import polars as pl

FLOOR = 0.5
"""A method with scores for a smaller share of the first samples does not race."""
_SEEN = 16  # samples whose passes are counted; the others are taken to need as many on average


def race(
    models: Any = None,
    data: Any = None,
    *,
    goal: str = "best",
    margin: float | None = None,
    out: str | Path | None = None,
    samples: int | None = None,
    runtime: Runtime | None = None,
    methods: Sequence[Any] | Mapping[str, Any] | None = None,
    metrics: Sequence[Any] | Mapping[str, Any] | None = None,
    profile: str = "default",
    preprocess: Any = None,
    output: str | int | None = None,
    target: Any = None,
    seed: int = 0,
    plugins: tuple[str, ...] = (),
    **options: Any,
) -> "RaceResult":
    """Find the best methods, or their order, with as few passes as the samples allow.

    >>> found = race(net, photos, goal="top=3", margin=0.03, metrics=["sds"])   # doctest: +SKIP
    >>> found.verdicts, found.share                                             # doctest: +SKIP

    Args:
        models: as for `Benchmark`.
        data: as for `Benchmark`.
        goal: `best`, `top=K` or `order`.
        margin: differences of scores that do not matter. Without one, equal methods need all samples.
        out: the run's folder; a race there goes on.
        samples: how many samples the benchmark has; all if None. Claims are about their mean.
        runtime: how it is computed.
        methods: as for `Benchmark`.
        metrics: as for `Benchmark`; each is a race of its own.
        profile: where parameters and lists that are not given come from.
        preprocess: as for `Benchmark`.
        output: as for `Benchmark`.
        target: as for `Benchmark`.
        seed: of every random stream, and of the order of the samples.
        plugins: Python files that declare methods, metrics or fills.
        **options: parts of the runtime by name, such as workers or budget.
    """
    bench = Benchmark(
        models=models,
        data=data,
        methods=methods,
        metrics=metrics,
        profile=profile,
        preprocess=preprocess,
        output=output,
        target=target,
        seed=seed,
        plugins=plugins,
    )
    return run_race(bench, out, goal=goal, margin=margin, samples=samples, runtime=runtime, **options)


def run_race(
    bench: Benchmark,
    out: str | Path | None = None,
    *,
    goal: str = "best",
    margin: float | None = None,
    samples: int | None = None,
    runtime: Runtime | None = None,
    **options: Any,
) -> "RaceResult":
    """The race of a benchmark's methods; see `race`.

    Raises:
        SpecError: a goal or margin that means nothing, or a shard.
        HeatcheckError: nobody can race.
    """
    try:
        wanted = Goal.parse(goal, margin)
    except ValueError as problem:
        raise SpecError(str(problem)) from problem
    how = Runtime.of(runtime, **options)
    if how.shard is not None:
        raise SpecError(f"shard={how.shard!r}: a race decides by the samples in order and cannot be cut into shards")
    engine = Engine.of(bench, out, wanted, samples, how)
    engine.announce()
    engine.run()
    return engine.result()


@dataclass(frozen=True, kw_only=True)
class RacedBenchmark(Benchmark):
    """A benchmark whose study says that it is a look of a race, which a reader of its intervals must know.

    Args:
        looked: what the race is to find, and how many samples its benchmark has.
    """

    looked: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, bench: Benchmark, goal: Goal, samples: int) -> "RacedBenchmark":
        """A look of a race on `samples` samples."""
        known = {part.name: getattr(bench, part.name) for part in fields(bench)}
        return cls(**known, looked={"goal": str(goal), "margin": goal.margin or None, "of": samples})

    def setup(self, samples: int | None = None) -> Setup:
        """As that of a benchmark, with the race in the study's record."""
        found = super().setup(samples)
        return replace(found, record={**found.record, RACE: dict(self.looked)})


@dataclass
class Engine:
    """Runs the looks of a race.

    Args:
        bench: what is run, complete.
        setup: the whole of it.
        folder: where.
        goal: what is to be found.
        runtime: how it is computed.
        courses: one for each model.
        started: when.
        exhausted: whether the time was used up.
    """

    bench: Benchmark
    setup: Setup
    folder: Path
    goal: Goal
    runtime: Runtime
    courses: list["Course"]
    started: float = field(default_factory=time.monotonic)
    exhausted: bool = False

    @classmethod
    def of(
        cls, bench: Benchmark, out: str | Path | None, goal: Goal, samples: int | None, runtime: Runtime
    ) -> "Engine":
        """With everything loaded, and what does not apply found out."""
        bench = bench.complete(samples).with_random(samples)
        setup = bench.setup(samples)
        if isinstance(bench.data, Iterator):
            bench = replace(bench, data=setup.data)
        quiet = Runtime.of(runtime, progress="none", batch=runtime.batch or 1)
        placed, _ = place(setup, quiet, None)
        facts = facts_of(setup)
        courses = [Course.of(part, setup.data, facts, goal) for part in prepare(placed, quiet, None, calibrate=False)]
        if not any(course.open for course in courses):
            raise HeatcheckError(f"nobody can race: {'; '.join(why for c in courses for why in c.reasons())}")
        folder = Path(out or Path("runs", folder_name(setup.models, setup.data.name))).expanduser()
        return cls(bench, setup, folder, goal, runtime, courses)

    @property
    def shown(self) -> progress.Progress:
        """Where notes go."""
        return progress.choose(self.runtime.progress)

    def announce(self) -> None:
        """Say what it may cost, before anything is spent."""
        n, most = len(self.setup.data), sum(course.full for course in self.courses)
        for course in self.courses:
            for why in course.reasons():
                self.shown.note(why)
        bound = f"at most {most:,} passes, those of a full run on {n:,} samples"
        if self.goal.margin:
            self.shown.note(f"goal {self.goal}, differences up to {self.goal.margin:g} do not matter: {bound}")
        else:
            self.shown.note(
                f"goal {self.goal} without a margin may need all {n:,} samples, since equal methods are told apart by nothing "
                f"less: {bound}; --margin, in Python margin=, says which differences do not matter"
            )

    def run(self) -> None:
        """Look after look, model after model, until all is settled or the time is used up."""
        models = {precise_label(k, self.bench.precision): {k: v} for k, v in label_models(self.bench.models).items()}
        for course in self.courses:
            for n in looks(len(self.setup.data)):
                if self.exhausted or not course.open:
                    break
                self.look(course, models[course.part.label], n)
                while course.open and course.behind and not self.exhausted:
                    self.look(course, models[course.part.label], n)

    def look(self, course: "Course", model: Mapping[str, Any], n: int) -> None:
        """Compute what is open on the first `n` samples, and decide."""
        left = None if self.runtime.budget is None else self.runtime.budget + self.started - time.monotonic()
        if left is not None and left <= 0:
            self.exhausted = True
            return
        methods, metrics = course.racing(), course.open
        found = replace(
            RacedBenchmark.of(self.bench, self.goal, len(self.setup.data)),
            models=dict(model),
            methods={label: component for label, component in self.setup.methods if label in methods},
            metrics={label: component for label, component in self.setup.metrics if label in metrics},
        ).compute(self.folder, samples=n, runtime=Runtime.of(self.runtime, budget=left))
        if not found.manifest["finished"]:
            self.exhausted = True
            return
        course.after(found.last(), n, self.bench.seed)
        if news := course.news(n):
            self.shown.note(news)

    def result(self) -> "RaceResult":
        """What was found."""
        cases = tuple(case for course in self.courses for case in course.cases())
        passes = sum(course.passes for course in self.courses)
        full = sum(course.full for course in self.courses)
        finished = not any(course.open for course in self.courses)
        report = RaceReport(self.goal, len(self.setup.data), self.setup.data.name, cases, passes, full, finished)
        return RaceResult(self.folder, report)


@dataclass
class Course:
    """The races of one model, one for each metric.

    Args:
        part: the model with the methods and metrics that apply.
        shapes: some of its inputs, for counting passes.
        samples: how many there are.
        facts: directions, ranges, controls and circular pairs.
        names: what tables call the metrics.
        goal: what is to be found.
        entrants: who may race, by metric.
        excluded: by metric, who does not race and why.
        refused: metrics that are not raced, and why.
        races: by metric, once scores are there.
        order: names of the samples that were looked at.
        explained: on how many samples each method was explained.
        passes: how many there were.
    """

    part: Part
    shapes: list[Shape]
    samples: int
    facts: Facts
    names: Mapping[str, str]
    goal: Goal
    entrants: dict[str, list[str]]
    excluded: dict[str, dict[str, str]]
    refused: dict[str, str]
    races: dict[str, Race] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    explained: dict[str, int] = field(default_factory=dict)
    passes: int = 0

    @classmethod
    def of(cls, part: Part, data: Dataset, facts: Facts, goal: Goal) -> "Course":
        """Who races under which metric."""
        contestants, excluded = {}, {}
        refused = {label: why for label, why in part.skipped.items() if label in facts.higher_is_better}
        circular = {tuple(pair) for pair in part.circular}
        for metric in (*part.grid.metrics, *part.across):
            if why := not_raced(metric.label, metric.component, facts):
                refused[metric.label] = why
                continue
            excluded[metric.label] = {
                m.label: "circular" for m in part.grid.methods if (m.label, metric.label) in circular
            }
            real = [m.label for m in part.grid.methods if not facts.is_control(m.label)]
            contestants[metric.label] = [m for m in real if m not in excluded[metric.label]]
        found = cls(
            part,
            shapes_of(part.grid.model, data[:_SEEN]),
            len(data),
            facts,
            naming(model_record(part)).names,
            goal,
            contestants,
            excluded,
            refused,
        )
        for label, methods in contestants.items():
            found.refuse_unless(label, methods)
        return found

    def refuse_unless(self, metric: str, methods: Sequence[str]) -> None:
        """Do not race a metric under which there is nothing to find."""
        try:
            Race(tuple(methods), self.goal, self.samples)
        except ValueError as problem:
            self.refused[metric] = str(problem)

    @property
    def open(self) -> list[str]:
        """The metrics that are asked further."""
        settled = {metric for metric, race in self.races.items() if race.settled}
        return [metric for metric in self.entrants if metric not in self.refused and metric not in settled]

    def racing(self) -> set[str]:
        """The methods that are explained further."""
        found: set[str] = set()
        for metric in self.open:
            found |= set(self.races[metric].racing if metric in self.races else [*self.entrants[metric], *self.control])
        return found

    @property
    def behind(self) -> bool:
        """Whether a method was woken that the samples so far must be made up for."""
        return any(self.races[metric].behind for metric in self.open if metric in self.races)

    @property
    def control(self) -> list[str]:
        """The random control, where it applies."""
        return [m.label for m in self.part.grid.methods if m.label == self.facts.random]

    @cached_property
    def full(self) -> int:
        """The passes of a full run: every method and metric on all samples."""
        return round(self.samples * self.each(None, None))

    def each(self, methods: set[str] | None, metrics: Sequence[str] | None) -> float:
        """The passes of one sample with some methods and metrics, on average."""
        grid = self.part.grid
        some = replace(
            grid,
            methods=tuple(m for m in grid.methods if methods is None or m.label in methods),
            metrics=tuple(m for m in grid.metrics if metrics is None or m.label in metrics),
        )
        found = [forecast(some, shape) for shape in self.shapes]
        return sum(f.forwards + f.backwards for f in found) / max(1, len(found))

    def after(self, result: Result, n: int, seed: int) -> None:
        """Decide by the scores of the first samples."""
        racing, asked = self.racing(), self.open
        missed = {m: len(self.order) - self.explained.get(m, len(self.order)) for m in racing}
        made_up = sum(k * (self.each({m}, asked) - self.each(set(), asked)) for m, k in missed.items() if k)
        self.passes += round((n - len(self.order)) * self.each(racing, asked) + made_up)
        self.explained |= dict.fromkeys(racing, n)
        fresh = {sample["name"] for sample in result.manifest["samples"]} - set(self.order)
        self.order += sorted(fresh, key=lambda name: _place(seed, name))
        scores = result.scores()
        for metric in self.open:
            if metric not in self.races:
                self.enter(metric, scores)
            if metric not in self.refused:
                self.decide(metric, scores)

    def decide(self, metric: str, scores: "pl.DataFrame") -> None:
        """Go on with a race.

        Raises:
            HeatcheckError: the metric gave scores beyond the range that it states.
        """
        race = self.races[metric]
        try:
            self.races[metric] = race.after(self.matrix(metric, race.rows, scores))
        except ValueError as problem:
            raise HeatcheckError(
                f"{self.names.get(metric, metric)} on {self.part.label}: {problem}, by the range that the metric states "
                "(`within`); state it wider, or leave it out"
            ) from problem

    def enter(self, metric: str, scores: "pl.DataFrame") -> None:
        """Begin a race with the methods that have scores."""
        x = self.matrix(metric, self.entrants[metric], scores)
        known = np.mean(~np.isnan(x), axis=1)
        for method, share in zip(self.entrants[metric], known.tolist(), strict=True):
            if share < FLOOR:
                self.excluded[metric][method] = f"has scores for only {share:.0%} of the first samples"
        methods = [m for m in self.entrants[metric] if m not in self.excluded[metric]]
        self.refuse_unless(metric, methods)
        if metric not in self.refused:
            low, high = self.facts.bounds(self.names.get(metric, metric))
            self.races[metric] = Race(
                tuple(methods),
                self.goal,
                self.samples,
                high - low if math.isfinite(high - low) else math.inf,
                self.control[0] if self.control else None,
            )

    def matrix(self, metric: str, methods: Sequence[str], scores: "pl.DataFrame") -> Any:
        """Scores of methods on the samples in order, higher is better."""
        shown = self.names.get(metric, metric)
        return self.facts.sign(shown) * score_matrix(scores, self.part.label, shown, methods, self.order)

    def reasons(self) -> list[str]:
        """Why metrics are not raced."""
        return [f"{self.part.label}: {metric} is not raced: {why}" for metric, why in self.refused.items()]

    def news(self, n: int) -> str:
        """What a look has decided, in a sentence; empty where it has decided nothing."""
        told = []
        for metric, race in self.races.items():
            gone = [m for m, at in zip(race.methods, race.decided, strict=False) if at == n == race.n]
            if race.settled and gone:
                told.append(f"{metric} is settled")
            elif gone:
                told.append(f"{metric} has placed {', '.join(gone)}")
        return f"{self.part.label} after {n:,} samples: {'; '.join(told)}" if told else ""

    def cases(self) -> Iterator[RaceCase]:
        """The races as they stand."""
        alone = {m.label: self.alone(m.component) for m in self.part.grid.methods}
        passes = {method: round(n * alone[method]) for method, n in self.explained.items()}
        for metric, race in self.races.items():
            shown = self.names.get(metric, metric)
            yield RaceCase(self.part.label, shown, race, dict(self.excluded[metric]), self.explained, passes)

    def alone(self, method: Any) -> float:
        """The passes that a method needs for a map, if nobody shares them."""
        found = [sum(passes_of(method.asks(shape), method.passes(shape))) for shape in self.shapes]
        return sum(found) / max(1, len(found))


def not_raced(label: str, metric: Any, facts: Facts) -> str | None:
    """Why a metric ranks no methods sample by sample; None where it does."""
    if label in facts.of_model:
        return "it measures the model, not the map"
    if metric.composite:
        return "it is a sum of other metrics, made when a run is read"
    return "it compares models" if metric.across_models else None


def facts_of(setup: Setup) -> Facts:
    """What statistics must know of a benchmark's methods and metrics, by label."""

    def entries(components: Sequence[tuple[str, Any]]) -> list[dict[str, Any]]:
        made = [component_facts(label, component) for label, component in components]
        return [{**entry, "spec": entry["name"], "name": entry["label"]} for entry in made]

    return Facts.of({"methods": entries(setup.methods), "metrics": entries(setup.metrics)})


def _place(seed: int, name: str) -> bytes:
    """Where a sample stands in the order of a seed."""
    return hashlib.sha256(f"{seed}|{name}".encode(errors="surrogatepass")).digest()


@dataclass(frozen=True)
class RaceResult:
    """What a race has found.

    Args:
        folder: the run's folder.
        report: verdicts and tables.
    """

    folder: Path
    report: RaceReport

    @property
    def verdicts(self) -> list[str]:
        """One verdict in words for each model and metric."""
        return self.report.verdicts()

    @property
    def share(self) -> float:
        """The share of a full run's passes that it took."""
        return self.report.share

    @property
    def finished(self) -> bool:
        """Whether the goal is reached everywhere."""
        return self.report.finished

    def table(self) -> "pl.DataFrame":
        """One row per model, metric and method: state, when it was decided, difference with interval, passes."""
        return self.report.table()

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return {"run": str(self.folder), **self.report.record()}
