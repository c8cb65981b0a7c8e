"""Are the explanations of a changed model not inferior to those of the model it came from?"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heatcheck.api.result import Result
from heatcheck.core.spec import SpecError, suggest
from heatcheck.stats.cube import Cube
from heatcheck.stats.disagreement import map_agreement
from heatcheck.stats.estimates import Estimate, mean_estimate
from heatcheck.stats.facts import Facts
from heatcheck.stats.inferiority import NOT_INFERIOR, Inferiority, inferiority, overall_verdict

if TYPE_CHECKING:
    import polars as pl

    from heatcheck.run.reader import SectionReader


@dataclass(frozen=True)
class Gate:
    """The verdict on a candidate.

    Args:
        base: the base model's name, with its run where there are two.
        candidate: likewise.
        data: the data set's name.
        rows: what is known of each metric and method.
        agreement: per method, Spearman's correlation of both models' maps, over samples whose explained class is the
            same; and its lowest tenth.
        notes: what a reader must know.
        same: whether base and candidate are the same model.
    """

    base: str
    candidate: str
    data: str
    rows: tuple[tuple[str, str, Inferiority], ...]
    agreement: Mapping[str, tuple[Estimate, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    same: bool = False

    @property
    def verdict(self) -> str:
        """`not inferior` if every method is under every metric; `inferior` if one is; else `undecided`."""
        return overall_verdict([found.verdict for _, _, found in self.rows])

    @property
    def passed(self) -> bool:
        """Whether the candidate is not inferior."""
        return self.verdict == NOT_INFERIOR

    @cached_property
    def table(self) -> "pl.DataFrame":
        """A row per metric and method."""
        import polars as pl

        rows = []
        for metric, method, found in self.rows:
            alike, lowest = self.agreement.get(method, (Estimate(np.nan, np.nan, np.nan, 0), np.nan))
            maps = {"maps": alike.value, "maps_low": alike.low, "maps_high": alike.high, "maps_tenth": lowest}
            rows.append({"metric": metric, "method": method, **found.record(), **maps})
        return pl.DataFrame(rows, infer_schema_length=None).with_columns(pl.col(pl.Float64).fill_nan(None))

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "verdict": self.verdict,
            "passed": self.passed,
            "base": self.base,
            "candidate": self.candidate,
            "data": self.data,
            "same_model": self.same,
            "methods": self.table.to_dicts(),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Side:
    """One model of one run: where it is read, and its entry in the manifest."""

    result: Result
    section: "SectionReader"
    model: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The model's name."""
        return str(self.model["name"])

    @property
    def data(self) -> str:
        """The data set's own name; tables add what tells apart the studies of one folder."""
        return self.section.section.data

    @property
    def circular(self) -> set[tuple[str, str]]:
        """Methods and metrics, by their labels, of which the one asks the other's own questions."""
        return {(method, metric) for method, metric in self.model["circular"]}

    def component(self, kind: str, label: str) -> Any:
        """What a method or metric is on this model, whatever it is called; None where it was not run."""
        return next((u["identity"] for u in self.model[kind] if u["label"] == label), None)

    def metric(self, written: str) -> tuple[str, str]:
        """The label and the table's name of a metric that is written as either, or as its id.

        Raises:
            SpecError: it was not measured, or there are several of that id.
        """
        names = self.section.naming[self.name].names
        known = {m["label"]: names.get(m["label"], m["label"]) for m in self.section.manifest["metrics"]}
        ids = {m["label"]: m["id"] for m in self.section.manifest["metrics"]}
        found = [x for x in known if written in (x, known[x])] or [x for x in known if ids[x] == written]
        if not found:
            raise SpecError(f"metric {written!r} was not measured on {self.name}{suggest(written, known.values())}")
        if len(found) > 1:
            raise SpecError(f"metric {written!r}: {self.name} has {' and '.join(found)}; name one of them")
        return found[0], known[found[0]]


def gate(
    base: Result | str | Path,
    candidate: Result | str | Path,
    *,
    margins: Mapping[str, float],
    methods: Sequence[str] | None = None,
    run: Result | str | Path | None = None,
    maps: bool = True,
    seed: int = 0,
) -> Gate:
    """Is a quantised, pruned, distilled or fine-tuned model explained as faithfully as the model it came from?

    >>> gate("runs/full", "runs/int8", margins={"sds": 0.05}).passed  # doctest: +SKIP

    Args:
        base: the run of the model that is there; or, with `run`, the model's name in it.
        candidate: likewise of the model that is to take its place.
        margins: by how much the mean score may be worse, for each metric that counts, in its own unit.
        methods: those that must pass; all that both have, without controls, if None. Methods that ask a metric's own questions
            (circular) are not judged by it, named or not.
        run: one run with both models.
        maps: whether stored maps are compared too.
        seed: of resamples.

    Raises:
        SpecError: a margin is not above zero; the two were not measured on the same samples, under the same metrics, with the
            same methods; or all methods are circular under a metric.
    """
    if not margins:
        raise SpecError("name at least one metric, with its margin: by how much may the mean score be worse?")
    for metric, margin in margins.items():
        if not (np.isfinite(margin) and margin > 0):
            raise SpecError(f"margin {margin:g} of {metric}: it must be a number above zero, in the metric's own unit")
    old, new = _sides(base, candidate, run)
    notes = list(_same_samples(old, new))
    same = _same_class(old, new)
    changed = [name for name, alike in same.items() if not alike]
    if changed:
        notes.append(
            f"on {len(changed)} of {len(same)} samples the models explain different classes; these are not compared"
        )
    rows: list[tuple[str, str, Inferiority]] = []
    judged: dict[str, None] = {}
    for written, margin in margins.items():
        names = _same_metric(old, new, written)
        chosen = _methods(old, new, methods)
        trivial = [m for m in chosen if (m, old.metric(written)[0]) in old.circular | new.circular]
        if trivial:
            asks = (
                f"{', '.join(trivial)} {'asks' if len(trivial) == 1 else 'ask'} the questions of {names[0]} (circular)"
            )
            notes.append(f"{asks}, and {'is' if len(trivial) == 1 else 'are'} not judged by it")
            chosen = [m for m in chosen if m not in trivial]
            if not chosen:
                raise SpecError(f"{asks}: name other methods, or another metric")
        judged |= dict.fromkeys(chosen)
        sign = Facts.of(old.result.facts).sign(names[0])
        first, second, samples = _paired(old, new, names, chosen)
        alike = np.array([same.get(name, True) for name in samples], dtype=bool)
        found = inferiority(first, second, margin, same=alike, sign=sign, seed=seed)
        rows += [(names[0], method, row) for method, row in zip(chosen, found, strict=True)]
    agreement = _agreement(old, new, list(judged), [name for name in same if same[name]], seed) if maps else {}
    same_model = old.model["identity"] == new.model["identity"]
    if not same_model and all(row.n and row.low == row.high == 0 for *_, row in rows):
        notes.append("every score of the candidate is that of the base: are they the same model?")
    several = old.result.store.folder != new.result.store.folder
    return Gate(
        base=f"{old.name} in {old.result.name}" if several else old.name,
        candidate=f"{new.name} in {new.result.name}" if several else new.name,
        data=old.section.data,
        rows=tuple(rows),
        agreement=agreement,
        notes=tuple(notes),
        same=same_model,
    )


def _sides(base: Any, candidate: Any, run: Any) -> tuple[Side, Side]:
    if run is None:
        return _only_model(base, "base"), _only_model(candidate, "candidate")
    result = run if isinstance(run, Result) else Result.open(run)
    if str(base) == str(candidate):
        raise SpecError(f"base and candidate are both {str(base)!r}: name two models of {result.name}")
    return _model(result, str(base)), _model(result, str(candidate))


def _only_model(run: Any, role: str) -> Side:
    result = run if isinstance(run, Result) else Result.open(run)
    names = list(dict.fromkeys(str(m["name"]) for m in result.facts["models"]))
    if len(names) > 1:
        raise SpecError(
            f"the {role} {result.name} has {len(names)} models, {', '.join(names)}: "
            f"name two of them, and the folder with --run"
        )
    return _model(result, names[0])


def _model(result: Result, name: str) -> Side:
    for section in result.sections:
        for model in section.manifest["models"]:
            if model["name"] == name:
                return Side(result, section, model)
    names = list(dict.fromkeys(str(m["name"]) for m in result.facts["models"]))
    raise SpecError(f"{result.name} has no model {name!r}{suggest(name, names)}")


def _same_samples(old: Side, new: Side) -> Iterator[str]:
    """What is to be said of samples and targets that differ in what may differ.

    Raises:
        SpecError: they differ in what may not.
    """
    for what, a, b in (("data", old.data, new.data), *_settings(old, new)):
        if a != b:
            raise SpecError(f"the runs cannot be paired: {what} is {a} for the base and {b} for the candidate")
    first, second = ({s["name"]: s["digest"] for s in side.section.manifest["samples"]} for side in (old, new))
    common = first.keys() & second.keys()
    changed = sorted(name for name in common if first[name] != second[name])
    if changed:
        raise SpecError(f"the runs cannot be paired: {len(changed)} samples have other content, such as {changed[0]}")
    if not common:
        raise SpecError("the runs cannot be paired: they have no sample in common")
    if len(common) < max(len(first), len(second)):
        yield f"paired on the {len(common)} samples that both runs have, of {len(first)} and {len(second)}"


def _settings(old: Side, new: Side) -> Iterator[tuple[str, Any, Any]]:
    yield "the explained class", old.section.manifest["target"], new.section.manifest["target"]
    yield "the seed", old.section.manifest["seed"], new.section.manifest["seed"]
    yield "the modality", old.model["modality"], new.model["modality"]


def _same_metric(old: Side, new: Side, written: str) -> tuple[str, str]:
    """The metric's name in both tables.

    Raises:
        SpecError: it is not the same metric.
    """
    (a, first), (b, second) = old.metric(written), new.metric(written)
    _demand_same("metric", written, old.component("metrics", a), new.component("metrics", b))
    return first, second


def _demand_same(kind: str, name: str, a: Any, b: Any) -> None:
    if a != b:
        told = " and ".join(str(_params(x)) for x in (a, b))
        raise SpecError(f"the runs cannot be paired: {kind} {name} is not the same in both ({told})")


def _params(identity: Any) -> Any:
    return identity.get("params", identity) if isinstance(identity, Mapping) else identity


def _methods(old: Side, new: Side, wanted: Sequence[str] | None) -> list[str]:
    """The methods that are asked: those named, or all that both have.

    Raises:
        SpecError: there is none, or one is not the same in both.
    """
    controls = {m["label"] for m in old.section.manifest["methods"] if m["control"]}
    first, second = ([u["label"] for u in side.model["methods"]] for side in (old, new))
    both = [label for label in first if label in second and label not in controls]
    for label in wanted or ():
        for side, known in ((old, first), (new, second)):
            if label not in known:
                raise SpecError(f"method {label!r} was not run on {side.name}{suggest(label, known)}")
    chosen = list(dict.fromkeys(wanted)) if wanted else both
    if not chosen:
        raise SpecError(
            f"no method was run on both: {', '.join(first)} on the base, {', '.join(second)} on the candidate"
        )
    for label in chosen:
        _demand_same("method", label, old.component("methods", label), new.component("methods", label))
    return chosen


def _paired(
    old: Side, new: Side, metric: tuple[str, str], methods: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Both models' scores of the same methods and samples, NaN where a method has none; and the samples' names."""
    import polars as pl

    tables = []
    for side, name in zip((old, new), metric, strict=True):
        scores = side.result.scores()
        here = scores.filter(pl.col("data").cast(pl.String) == side.section.data)
        tables.append(Cube.with_gaps(here, side.name, name, methods))
    common = sorted(set(tables[0].samples) & set(tables[1].samples))
    first, second = (table.at(common).values[0] for table in tables)
    return first, second, common


def _same_class(old: Side, new: Side) -> dict[str, bool]:
    """Of every sample that both models could be explained on, whether it is the same class that is explained."""
    import polars as pl

    first, second = (
        dict(side.section.samples().filter(pl.col("model") == side.name).select("sample", "target").iter_rows())
        for side in (old, new)
    )
    both = [s for s in first if first[s] is not None and second.get(s) is not None]
    return {s: first[s] == second[s] for s in both}


def _agreement(
    old: Side, new: Side, methods: Sequence[str], samples: Sequence[str], seed: int
) -> dict[str, tuple[Estimate, float]]:
    """How far both models' maps of some samples agree, per method: the mean, and what a tenth lies below."""
    found: dict[str, tuple[Estimate, float]] = {}
    for method in methods:
        values = []
        for sample in samples:
            a, b = (side.section.map(side.name, sample, method) for side in (old, new))
            if a is not None and b is not None and (a.shape == b.shape or a.ndim == b.ndim == 2):
                values.append(map_agreement(a, b))
        known = np.array([v for v in values if not np.isnan(v)])
        if len(known):
            found[method] = (mean_estimate(known, seed=seed), float(np.quantile(known, 0.1)))
    return found
