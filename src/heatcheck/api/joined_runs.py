"""Several runs side by side as one table: the same methods and metrics, any models and data."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heatcheck import stats
from heatcheck.api.result import Result
from heatcheck.core.spec import SpecError, parse, suggest
from heatcheck.core.types import HeatcheckError
from heatcheck.run.reader import SectionReader

if TYPE_CHECKING:
    import polars as pl

NOT_RANKED = {"form": "it measures the form of maps", "sanity": "it is a sanity check", "composite": "it sums others"}
"""Families of metrics that make no case unless they are asked for, and why."""
ORDERS = ("morf", "lerf")
ACCURACY_AREAS = ("mean", "trapezoid", "left")
"""Rules under which a constant curve's area is its height, so that areas are per cent."""


@dataclass(frozen=True)
class CaseOrigin:
    """Where a case was measured: the section, its own names of model and metric, and methods' names for all runs by its own."""

    section: SectionReader
    model: str
    metric: str
    methods: Mapping[str, str]


@dataclass
class JoinedRuns:
    """Runs under one another.

    Args:
        names: of the runs.
        scores: the long table of all of them; models, data sets, methods and metrics by names that are the same for the
            same thing and different for different ones.
        facts: methods, metrics, circular pairs, models and what is known of them, as one run's facts have them.
        protocols: by the metric's name in the table.
        answers: whether each model is right on each whole sample; null where the label is not known.
        models: by run and own name, a model's name in the table.
        notes: what was renamed or left out.
        missing: how many cells are not computed, or failed.
        sources: the first of several data sets that share samples, for each of the others.
        origins: by model, data set and metric, where each case was measured.
    """

    names: list[str]
    scores: "pl.DataFrame"
    facts: dict[str, Any]
    protocols: dict[str, stats.CaseProtocol]
    answers: "pl.DataFrame" = field(repr=False)
    models: dict[tuple[str, str], str]
    notes: list[str] = field(default_factory=list)
    missing: int = 0
    sources: dict[str, str] = field(default_factory=dict)
    origins: dict[tuple[str, str, str], CaseOrigin] = field(default_factory=dict, repr=False)

    @property
    def stats_facts(self) -> stats.Facts:
        """What statistics need to know about methods and metrics."""
        return stats.Facts.of(self.facts)

    def case_table(self) -> stats.CaseTable:
        """The rankings of all cases; checkpoints of one training are known as such.

        Raises:
            ValueError: no case ranks two methods.
        """
        kept = {c.model: training.name for training in stats.trajectories(self.facts) for c in training.checkpoints}
        return stats.case_table(self.scores, self.stats_facts, self.protocols, trainings=kept, sources=self.sources)

    def accuracy_by_share(self, case: stats.MetaCase, *, seed: int = 0, resamples: int = 1000) -> "pl.DataFrame | None":
        """A case's accuracy at each share removed, for every method and control; None where it has no such curves."""
        import polars as pl

        if not case.protocol.accuracy:
            return None
        origin = self.origins[case.model, case.data, case.protocol.name]
        curves = origin.section.curves(origin.model, origin.metric)
        if curves.is_empty():
            return None
        named = curves.with_columns(pl.col("method").cast(pl.String).replace(dict(origin.methods)))
        answers = origin.section.samples().filter(pl.col("model") == origin.model)
        right = (answers["predicted"] == answers["label"]).cast(pl.Float64)
        clean = dict(zip(answers["sample"].cast(pl.String), right, strict=True))
        return stats.accuracy_by_share(named, clean, seed=seed, resamples=resamples)


def join_runs(
    runs: Iterable[str | Path | Result],
    *,
    metrics: Sequence[str] | None = None,
    only: bool = False,
    side_by_side: bool = False,
) -> JoinedRuns:
    """Read runs and put them under one another.

    Args:
        runs: folders, or results.
        metrics: those that make cases, by name or id; all that measure faithfulness if None.
        only: of each folder, the last study alone.
        side_by_side: whether runs may differ in what a label stands for, and repeat cases: a label then has the run's name
            behind it where it stands for something else, the first run's case counts, all metrics are taken, and scores
            stay as they are.

    Raises:
        HeatcheckError: there is no run; or, unless they are side by side, one label stands for different components, or
            two runs have the same case.
    """
    if isinstance(metrics, str):
        raise HeatcheckError(f"metrics={metrics!r}: expected a list of names, such as [{metrics!r}]")
    given = [runs] if isinstance(runs, str | Path | Result) else list(runs)
    if not given:
        raise HeatcheckError("rank needs the folders of the runs that it compares, and got none")
    results = [run if isinstance(run, Result) else Result.open(Path(run).expanduser(), only=only) for run in given]
    return _Joining(results, side_by_side).join(metrics)


@dataclass
class _Joining:
    """What is known while runs are joined."""

    results: list[Result]
    side_by_side: bool = False
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.runs = _run_names(self.results)
        self.sections = [(run, s) for run, result in zip(self.runs, self.results, strict=True) for s in result.sections]
        self.methods = self._components("methods")
        self.metrics = self._components("metrics")
        self.models = self._model_names()
        self.data = self._data_names()
        self.targets = {str(s.manifest["target"]) for _, s in self.sections}
        self.origins: dict[tuple[str, str, str], CaseOrigin] = {}

    def join(self, wanted: Sequence[str] | None) -> JoinedRuns:
        import polars as pl

        entries = {name: entry for name, entry, _ in self.metrics.values()}
        chosen = list(entries) if self.side_by_side else self._chosen(entries, wanted)
        protocols: dict[str, stats.CaseProtocol] = {}
        tables, answers = [], []
        by: dict[tuple[str, str, str], str] = {}
        for (run, section), result in zip(self.sections, self._result_of_sections(), strict=True):
            part, renamed = self._renamed(run, section, result)
            for name, metric in renamed.items():
                entry = entries[metric]
                if metric in chosen:
                    protocols[name] = _protocol(name, entry, areas=not self.side_by_side)
            part = part.filter(pl.col("metric").is_in(list(protocols)))
            for key in part.select("model", "data", "metric").unique().sort("model", "data", "metric").iter_rows():
                try:
                    self._demand_apart(key, run, by)
                except HeatcheckError:
                    if not self.side_by_side:
                        raise
                    model, data, metric = key
                    self._note(f"{model} under {metric} on {data} is in several runs: {run}'s does not count")
                    part = part.filter(~((pl.col("model") == model) & (pl.col("metric") == metric)))
                else:
                    by[key] = run
                    self.origins[key] = self._origin(run, section, key[0], renamed[key[2]])
            tables.append(part)
            answers.append(self._answers(run, section))
        scores = pl.concat(tables)
        if scores.is_empty():
            raise HeatcheckError(
                f"{', '.join(self.runs)}: there is no score to rank by {', '.join(chosen) or 'any metric'}"
            )
        areas = [name for name, p in protocols.items() if p.unit == "%"]
        if areas:
            scores = stats.accuracy_areas(scores, pl.concat(answers), areas)
        return JoinedRuns(
            self.runs,
            scores,
            self._facts(protocols, entries),
            protocols,
            pl.concat(answers).unique(["model", "data", "sample"], keep="first", maintain_order=True),
            self.models,
            self.notes,
            sum(r.failed for r in self.results),
            self.sources,
            self.origins,
        )

    def _origin(self, run: str, section: SectionReader, model: str, metric: str) -> CaseOrigin:
        """Where a case was measured, of which the names for all runs are known."""
        here = {str(m["name"]) for m in section.manifest["models"]}
        own = next(old for (r, old), new in self.models.items() if r == run and new == model and old in here)
        asked = next(old for (r, old), (new, _, _) in self.metrics.items() if r == run and new == metric)
        methods = {old: new for (r, old), (new, _, _) in self.methods.items() if r == run}
        return CaseOrigin(section, own, asked, methods)

    def _result_of_sections(self) -> list[Result]:
        return [result for result in self.results for _ in result.sections]

    def _demand_apart(self, key: tuple[str, str, str], run: str, by: Mapping[tuple[str, str, str], str]) -> None:
        """Samples that two runs of a model under a metric share would count twice.

        Raises:
            HeatcheckError: there are such samples.
        """
        if key in by:
            both = f"{run} has the case {' · '.join(key)} twice; rank its last study with `only`"
            if by[key] != run:
                both = f"{by[key]} and {run} both have the case {' · '.join(key)}; leave one of them out, or join "
                both += "them into one run with `heatcheck merge`"
            raise HeatcheckError(both)
        model, data, metric = key
        for (other_model, other_data, other_metric), other in by.items():
            shared = self.samples[data] & self.samples[other_data]
            if (model, metric) == (other_model, other_metric) and shared:
                raise HeatcheckError(
                    f"{other} and {run} both have {model} under {metric}, on {len(self.samples[other_data])} and "
                    f"{len(self.samples[data])} samples of which {len(shared)} are the same; leave one of them out, or join "
                    "them into one run with `heatcheck merge`"
                )

    # -- names -------------------------------------------------------------------------------------------------------

    def _components(self, kind: str) -> dict[tuple[str, str], tuple[str, dict[str, Any], str]]:
        """By run and own name: a component's name for all runs, its facts, and where it was first seen."""
        by_name: dict[str, tuple[str, dict[str, Any], str]] = {}
        by_identity: dict[str, str] = {}
        found = {}
        for run, result in zip(self.runs, self.results, strict=True):
            for entry in result.facts[kind]:
                identity = _identity(entry)
                own = str(entry["name"])
                labelled = entry.get("label", own) == own  # else the model's training gives the metric its name
                name = by_identity.setdefault(identity, own) if labelled else own
                if name != own:
                    self._note(f"{own} in {run} is the same {kind[:-1]} as {name}, and goes by that name")
                before = by_name.setdefault(name, (identity, entry, run))
                if before[0] != identity and self.side_by_side:
                    name = f"{own} ({run})"
                    by_identity[identity] = name
                    self._note(
                        f"{own} is {_told(before[1])} in {before[2]} and {_told(entry)} in {run}: here it is {name}"
                    )
                    before = by_name.setdefault(name, (identity, entry, run))
                elif before[0] != identity:
                    raise HeatcheckError(
                        f"the {kind[:-1]} {name!r} is {_told(before[1])} in {before[2]} and {_told(entry)} in {run}; "
                        f"rank compares the same components only: run one of them again, or give it another label"
                    )
                found[run, own] = name, before[1], before[2]
        return found

    def _model_names(self) -> dict[tuple[str, str], str]:
        """By run and own name, a model's name for all runs: one for each network."""
        by_identity: dict[str, str] = {}
        taken: dict[str, str] = {}
        found = {}
        for run, result in zip(self.runs, self.results, strict=True):
            for model in result.facts["models"]:
                own, identity = str(model["name"]), str(model["identity"])
                if identity not in by_identity:
                    name = own if own not in taken else f"{own} ({run})"
                    if name != own:
                        self._note(f"{own} in {run} is another network than in {taken[own]}: here it is {name}")
                    by_identity[identity] = name
                    taken.setdefault(name, run)
                name = by_identity[identity]
                if name not in (own, f"{own} ({run})"):
                    self._note(f"{own} in {run} is the same network as {name}, and goes by that name")
                found[run, own] = name
        return found

    def _data_names(self) -> dict[tuple[str, str], str]:
        """By run and own name, a data set's name for all runs: one for each choice of samples."""
        by_samples: dict[tuple[str, frozenset[str]], str] = {}
        taken: dict[str, str] = {}
        found = {}
        self.samples: dict[str, frozenset[str]] = {}
        self.sources: dict[str, str] = {}
        for run, section in self.sections:
            own = section.data
            plain = str(section.section.data)
            key = plain, frozenset(str(s["digest"]) for s in section.manifest["samples"])
            if key not in by_samples:
                name = plain if plain not in taken else f"{plain} ({len(key[1])} samples, {run})"
                if name != plain:
                    self._note(f"{plain} in {run} has other samples than in {taken[plain]}: here it is {name}")
                by_samples[key] = name
                first = next((other for other, known in self.samples.items() if known & key[1]), None)
                if first is not None:
                    self.sources[name] = self.sources.get(first, first)
                self.samples[name] = key[1]
                taken.setdefault(name, run)
            found[run, own] = by_samples[key]
        return found

    def _note(self, line: str) -> None:
        if line not in self.notes:
            self.notes.append(line)

    # -- tables ------------------------------------------------------------------------------------------------------

    def _renamed(self, run: str, section: SectionReader, result: Result) -> tuple["pl.DataFrame", dict[str, str]]:
        """The scores of one section under the names of all runs; and its metrics, each with what it is called."""
        import polars as pl

        part = result.scores().filter(pl.col("data").cast(pl.String) == section.data)
        target = f", target={section.manifest['target']}" if len(self.targets) > 1 else ""
        own = part["metric"].cast(pl.String).unique().sort().to_list()
        metrics = {name: self.metrics[run, name][0] for name in own}
        maps = {
            "model": {old: new for (r, old), new in self.models.items() if r == run},
            "data": {section.data: self.data[run, section.data]},
            "method": {old: new for (r, old), (new, _, _) in self.methods.items() if r == run},
            "metric": {old: f"{new}{target}" for old, new in metrics.items()},
        }
        named = [pl.col(column).cast(pl.String).replace(names) for column, names in maps.items()]
        whole = part.with_columns(*named, pl.col("run", "sample", "status").cast(pl.String))
        return whole, {f"{name}{target}": name for name in metrics.values()}

    def _answers(self, run: str, section: SectionReader) -> "pl.DataFrame":
        """Whether each model is right on each whole sample."""
        import polars as pl

        names = {old: new for (r, old), new in self.models.items() if r == run}
        return section.samples().select(
            model=pl.col("model").replace(names),
            data=pl.lit(self.data[run, section.data]),
            sample="sample",
            correct=pl.col("predicted") == pl.col("label"),
        )

    def _chosen(self, entries: Mapping[str, Mapping[str, Any]], wanted: Sequence[str] | None) -> list[str]:
        """The metrics that make cases."""
        if wanted is not None:
            chosen = [name for name, entry in entries.items() if name in wanted or entry.get("id") in wanted]
            known = {*entries, *(str(entry.get("id")) for entry in entries.values())}
            for name in wanted:
                if name not in known:
                    raise HeatcheckError(f"no run has the metric {name!r}{suggest(name, sorted(known))}")
            return chosen
        families = {name: str(entry.get("family")) for name, entry in entries.items()}
        counted = [name for name, family in families.items() if family not in NOT_RANKED]
        if not counted:
            return list(entries)
        for name, family in families.items():
            if family in NOT_RANKED:
                self._note(f"{name} makes no case: {NOT_RANKED[family]}; name it under metrics to rank by it")
        return counted

    def _facts(
        self, protocols: Mapping[str, stats.CaseProtocol], entries: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        """The facts of all runs as those of one."""
        methods = {name: {**entry, "name": name} for name, entry, _ in self.methods.values()}
        metrics = []
        for name, protocol in protocols.items():
            entry = entries[name.partition(", target=")[0]]
            lower = protocol.unit == "%" and (entry["better"] == "higher")
            better = "lower" if lower else "higher" if protocol.unit == "%" else entry["better"]
            metrics.append({**entry, "name": name, "better": better, "unit": protocol.unit})
        known = set(protocols)
        circular = {
            (self.methods[run, method][0], name)
            for run, result in zip(self.runs, self.results, strict=True)
            for method, metric in result.facts["circular"]
            for name in known
            if name.partition(", target=")[0] == self.metrics[run, metric][0]
        }
        models: dict[str, dict[str, Any]] = {}
        for run, result in zip(self.runs, self.results, strict=True):
            for model in result.facts["models"]:
                name = self.models[run, str(model["name"])]
                models.setdefault(name, {**model, "name": name})
        return {
            "methods": list(methods.values()),
            "metrics": metrics,
            "circular": sorted(circular),
            "models": list(models.values()),
            **self._known_of_models(protocols),
        }

    def _known_of_models(self, protocols: Iterable[str]) -> dict[str, Any]:
        """What was skipped, what metrics delete with, how models were called, and the memory of their runs."""
        several: dict[str, list[str]] = {}
        for name in protocols:
            several.setdefault(name.partition(", target=")[0], []).append(name)
        skipped, fills = [], []
        numerics: dict[str, Any] = {}
        peaks: dict[str, int] = {}
        for run, result in zip(self.runs, self.results, strict=True):
            facts = result.facts
            for skip in facts["skipped"]:
                model = self.models[run, skip["model"]]
                if skip["metric"] is None:
                    skipped.append({**skip, "model": model, "method": self.methods[run, skip["method"]][0]})
                elif (run, skip["metric"]) in self.metrics:
                    names = several.get(self.metrics[run, skip["metric"]][0], [])
                    skipped += [{**skip, "model": model, "metric": name} for name in names]
            for fill in (f for f in facts["fills"] if (run, f["metric"]) in self.metrics):
                names = several.get(self.metrics[run, fill["metric"]][0], [])
                fills += [{**fill, "model": self.models[run, fill["model"]], "metric": name} for name in names]
            for own, shape in facts["numerics"].items():
                numerics.setdefault(self.models[run, own], shape)
                peaks.setdefault(self.models[run, own], facts["peak_bytes"])
        return {"skipped": skipped, "fills": fills, "numerics": numerics, "peaks": peaks}


def _run_names(results: Sequence[Result]) -> list[str]:
    """A name for each run: its folder's, with as many of its parents as tell them apart."""
    folders = [result.store.folder.resolve() for result in results]
    repeated = [str(folder) for i, folder in enumerate(folders) if folder in folders[:i]]
    if repeated:
        raise HeatcheckError(f"{repeated[0]} is given twice")
    for depth in range(1, max(len(folder.parts) for folder in folders) + 1):
        names = ["/".join(folder.parts[-depth:]) for folder in folders]
        if len(set(names)) == len(names):
            break
    return names


def _identity(entry: Mapping[str, Any]) -> str:
    """What decides a component: its id, version and parameters."""
    return json.dumps([entry.get("id"), entry.get("version"), _parameters(entry)], sort_keys=True, default=str)


def _parameters(entry: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters: the defaults, and what the run says."""
    try:
        written = dict(parse(str(entry["spec"])).params)
    except SpecError:
        written = {"spec": str(entry["spec"])}
    return {**entry.get("params", {}), **written}


def _told(entry: Mapping[str, Any]) -> str:
    version = entry.get("version", 1)
    return str(entry["spec"]) + (f" (version {version})" if version != 1 else "")


def _protocol(name: str, entry: Mapping[str, Any], *, areas: bool = True) -> stats.CaseProtocol:
    """A metric as a protocol: which order it removes in, what differs in the order alone, and whether areas are in %."""
    params, id = _parameters(entry), str(entry.get("id"))
    order = id if id in ORDERS else str(params.get("order", ""))
    rest = {k: v for k, v in params.items() if k != "order"}
    settings = json.dumps(["curve" if id in ORDERS else id, rest], sort_keys=True, default=str)
    accuracy = params.get("output") == "accuracy"
    areas = areas and id in ORDERS and accuracy and params.get("area") in ACCURACY_AREAS
    if order not in ORDERS:
        return stats.CaseProtocol(name, id)
    target = name.partition(", target=")[2]
    return stats.CaseProtocol(name, id, order, f"{settings} {target}", "%" if areas else "", accuracy)
