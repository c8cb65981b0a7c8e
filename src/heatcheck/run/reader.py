"""A run read back from its folder as tables, maps and facts; no model is needed."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from heatcheck.core import catalogue
from heatcheck.core.files import printable
from heatcheck.core.types import OK, HeatcheckError, Scores
from heatcheck.profiles import is_paper
from heatcheck.run import history, shard
from heatcheck.run.store import At, Store, map_row, score_row
from heatcheck.run.task import choose_target
from heatcheck.run.union import Section, union

if TYPE_CHECKING:
    import polars as pl

COLUMNS = (
    "run", "model", "data", "sample", "target", "method", "metric",
    "score", "status", "seconds", "forwards", "backwards",
)  # fmt: skip

MISSING = "missing: not computed yet"


class RunReader:
    """Scores, curves, maps and facts of the studies of one folder.

    Args:
        store: the folder.
        only: show the last study alone; else the union of all.
    """

    def __init__(self, store: Store, *, only: bool = False) -> None:
        self.store = store
        self.manifest = history.last_study(store)
        known = [self.manifest] if only else history.studies(store, self.manifest)
        found = union(known)
        self.lines = [*shard.told(self.manifest), *found.lines]
        self._only = len(known) == 1
        self.sections = [SectionReader(store, section) for section in found.sections]

    @classmethod
    def open(cls, path: str | Path, *, only: bool = False) -> Self:
        """Open a run folder: the union of its studies, or the last one only."""
        return cls(Store.open(path), only=only)

    def last(self) -> Self:
        """The last study alone."""
        return self if self._only else type(self)(self.store, only=True)

    @property
    def name(self) -> str:
        """The folder's name."""
        return printable(self.store.folder.resolve().name)

    def within(self, data: str) -> "SectionReader":
        """What was measured on one data set, by the name that tables show; of an unknown one, the last study's."""
        return next((s for s in self.sections if s.data == data), self.sections[0])

    # -- tables --------------------------------------------------------------------------------------------

    def scores(self) -> "pl.DataFrame":
        """One row per model, sample, method and metric; the score is null wherever the status is not ok."""
        return self._scores_table

    @cached_property
    def _scores_table(self) -> "pl.DataFrame":
        import polars as pl

        rows: dict[str, list[Any]] = {c: [] for c in COLUMNS}
        for cell in self._cells():
            for name, value in zip(COLUMNS, cell, strict=True):
                rows[name].append(value)
        text, number = pl.String, pl.Float64
        kinds = [text, text, text, text, pl.Int64, text, text, number, text, number, number, number]
        return pl.DataFrame(rows, schema=dict(zip(COLUMNS, kinds, strict=True)))

    def _cells(self) -> Iterator[tuple[Any, ...]]:
        for section in self.sections:
            for cell in section.cells():
                yield (self.name, *cell)

    def samples(self) -> "pl.DataFrame":
        """One row per model and sample: label, target, prediction and its probability, status."""
        import polars as pl

        return pl.concat([section.samples() for section in self.sections])

    # -- pictures ------------------------------------------------------------------------------------------

    def curves(self, model: str, metric: str) -> "pl.DataFrame":
        """The stored curve of every sample and method under a metric; of several data sets, in `within`."""
        return self._having(model).curves(model, metric)

    def map(self, model: str, sample: str, method: str) -> np.ndarray | None:
        """A stored map at its native resolution; of several data sets, in `within`."""
        return self._having(model, sample, method).map(model, sample, method)

    def display(self, model: str, sample: str) -> dict[str, Any] | None:
        """A stored picture or text, as people should see it."""
        return self._having(model, sample).display(model, sample)

    def gallery(self) -> list[tuple[str, str]]:
        """Models and samples whose maps and pictures are kept."""
        return list(dict.fromkeys(pair for section in self.sections for pair in section.gallery()))

    def _having(self, model: str, sample: str | None = None, method: str | None = None) -> "SectionReader":
        """The first section that has all of these; else the first that has the model."""
        known = [s for s in self.sections if any(m["name"] == model for m in s.manifest["models"])]
        if not known:
            names = dict.fromkeys(m["name"] for s in self.sections for m in s.manifest["models"])
            raise HeatcheckError(f"this run has no model {model!r}; it has {list(names)}")
        return next((s for s in known if s.has(sample, method)), known[0])

    # -- facts ---------------------------------------------------------------------------------------------

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What a reader should know about the run."""
        m = self.manifest
        study = m["study"]
        models = {x["name"]: x for s in reversed(self.sections) for x in s.manifest["models"]}
        return {
            "name": self.name,
            "created": m["created"],
            "heatcheck_version": m["heatcheck"],
            "profile": study.get("profile", "default"),
            "paper": is_paper(study.get("profile", "default")),
            "profile_note": study.get("profile_note", ""),
            "seed": m["seed"],
            "target": m["target"],
            "study": study,
            "environment": m["environment"],
            "preprocessing": {name: x["preprocessing"] for name, x in models.items() if x.get("preprocessing")},
            "notes": {name: x["notes"] for name, x in models.items() if x.get("notes")},
            "numerics": {name: x["numerics"] for name, x in models.items()},
            "models": [
                {
                    "name": name,
                    "identity": x["identity"],
                    "modality": x["modality"],
                    "classes_known": bool(x["classes"]),
                }
                for name, x in models.items()
            ],
            "data": self._data(),
            "methods": self._components("methods"),
            "metrics": self._components("metrics"),
            "circular": sorted({(a, b) for s in self.sections for x in s.manifest["models"] for a, b in x["circular"]}),
            "skipped": self._skips(),
            "multiverse": study.get("multiverse"),
            "passes": m["passes"],
            "peak_bytes": m.get("peak_bytes", 0),
            "finished": m["finished"],
            "union": self.lines,
        }

    def _data(self) -> dict[str, Any]:
        if len(self.sections) == 1:
            found: dict[str, Any] = self.sections[0].manifest["data"]
            return found
        each = [s.manifest["data"] for s in self.sections]
        names = dict.fromkeys(s.section.data for s in self.sections)
        samples = {sample["digest"] for s in self.sections for sample in s.manifest["samples"]}
        notes = list(dict.fromkeys(note for data in each for note in data["notes"]))
        return {"name": ", ".join(names), "n": len(samples), "notes": notes}

    def _components(self, kind: str) -> list[dict[str, Any]]:
        """Methods or metrics by the names that tables show; older studies' first, as they were run."""
        entries = {x["label"]: x for s in reversed(self.sections) for x in s.manifest[kind]}
        return [{**x, "name": label, "spec": x["name"]} for label, x in entries.items()]

    def _skips(self) -> list[dict[str, Any]]:
        found = []
        for section in self.sections:
            methods = {x["label"] for x in section.manifest["methods"]}
            for model in section.manifest["models"]:
                for label, reason in model["skipped"].items():
                    method, metric = (label, None) if label in methods else (None, label)
                    found.append({"model": model["name"], "method": method, "metric": metric, "reason": reason})
        return [skip for i, skip in enumerate(found) if skip not in found[:i]]


class SectionReader:
    """Scores, curves and maps of studies with equal data, target, seed and samples."""

    def __init__(self, store: Store, section: Section) -> None:
        self.store, self.section = store, section
        self.manifest = section.manifest
        self._tensors: dict[tuple[Path, str], Any] = {}

    @property
    def data(self) -> str:
        """The data set's name, as tables show it."""
        return str(self.manifest["data"]["name"])

    def has(self, sample: str | None, method: str | None) -> bool:
        """Whether a sample and a method are in it; None is in everything."""
        names = {s["name"] for s in self.manifest["samples"]}
        labels = {m["label"] for m in self.manifest["methods"]}
        return (sample is None or sample in names) and (method is None or method in labels)

    def cells(self) -> Iterator[tuple[Any, ...]]:
        """A table's rows, without the run's name: what some study asked for."""
        seed = self.manifest["seed"]
        for model in self.manifest["models"]:
            methods, _ = self._digests[model["name"]]
            sums = self._sums(model)
            for row, sample in enumerate(self.manifest["samples"]):
                record, _ = self._record(model["identity"], sample)
                for method in (m["label"] for m in self.manifest["methods"]):
                    cost = self.store.costs.get((model["identity"], seed, methods.get(method, "")), {})
                    price = cost.get(map_row(record), {}) if record else {}
                    for metric in (m["label"] for m in self.manifest["metrics"]):
                        if (model["name"], method, metric) not in self.section.asked:
                            continue
                        if (metric, method) in sums:
                            score, status = sums[metric, method][row]
                        else:
                            score, status = self._cell(model, sample, method, metric)
                        yield (
                            model["name"], self.data, sample["name"], record["target"] if record else None,
                            method, metric, score, status,
                            price.get("seconds"), price.get("forwards"), price.get("backwards"),
                        )  # fmt: skip

    def _cell(
        self, model: dict[str, Any], sample: dict[str, Any], method: str, metric: str
    ) -> tuple[float | None, str]:
        """One score, or why there is none."""
        record, problem = self._record(model["identity"], sample)
        reason = model["skipped"].get(method) or model["skipped"].get(metric)
        if reason or problem:
            return None, f"skipped: {reason}" if reason else str(problem)
        methods, metrics = self._digests[model["name"]]
        key = (model["identity"], self.manifest["seed"], methods[method], metrics[metric])
        score, status = self._score(key, record)
        if status == MISSING:
            status = self._problem(model["identity"], sample) or MISSING
        return score, status

    def _problem(self, model: str, sample: dict[str, Any]) -> str | None:
        """Why a sample could not be used under this run's target."""
        return self.store.problem(model, sample["digest"], sample["context"], self.manifest["target"])

    @cached_property
    def _digests(self) -> dict[str, tuple[dict[str, str], dict[str, str]]]:
        """What each model's methods and metrics are filed under, by their labels."""
        return {
            model["name"]: (
                {u["label"]: u["digest"] for u in model["methods"]},
                {u["label"]: u["digest"] for u in model["metrics"]},
            )
            for model in self.manifest["models"]
        }

    def _sums(self, model: dict[str, Any]) -> dict[tuple[str, str], list[tuple[float | None, str]]]:
        """A model's scores under the metrics that add up others, per metric and method; of two parts the first."""
        found = {}
        for label, component in self._composites.items():
            methods = [m for m in self.manifest["methods"] if (model["name"], m["label"], label) in self.section.asked]
            labels = self.section.parts[label]
            parts = {id: self._scores(model, methods, labels[id]) for id in component.parts}
            sums = component.combine(parts, [not m["control"] for m in methods])
            for method, values, statuses in zip(methods, sums.value.tolist(), sums.status, strict=True):
                found[label, method["label"]] = [
                    (value if status == OK else None, status) for value, status in zip(values, statuses, strict=True)
                ]
        return found

    def _scores(self, model: dict[str, Any], methods: list[dict[str, Any]], metric: str) -> Scores:
        cells = [
            [self._cell(model, sample, method["label"], metric) for sample in self.manifest["samples"]]
            for method in methods
        ]
        value = torch.tensor(
            [[torch.nan if v is None else v for v, _ in row] for row in cells], dtype=torch.float64
        ).reshape(len(cells), len(self.manifest["samples"]))
        return Scores(value, tuple(tuple(status for _, status in row) for row in cells))

    @cached_property
    def _composites(self) -> dict[str, Any]:
        """The run's metrics that add up others, by label; empty, and nothing built, where there are none."""
        known = {m["label"]: m["name"] for m in self.manifest["metrics"] if m.get("family") == "composite"}
        return {label: catalogue.build("metric", name) for label, name in known.items()}

    def _record(self, model: str, sample: dict[str, Any]) -> tuple[dict[str, Any] | None, str | None]:
        """A sample's record under this run's target, or why it has none."""
        if sample["problem"]:
            return None, f"failed: {sample['problem']}"
        known = self.store.samples.get((model, sample["digest"]))
        if known is None:
            return None, self._problem(model, sample) or MISSING
        record = {**known, **sample}
        record["target"] = choose_target(self.manifest["target"], record)
        return record, None

    def _score(self, key: tuple[str, int, str, str], record: dict[str, Any] | None) -> tuple[float | None, str]:
        at = self.store.scores.get(key, {}).get(score_row(record or {}))
        if at is None:
            return None, MISSING
        status = self.store.status(at)
        if status != OK:
            return None, status
        return float(self._tensor(at.file, self.store.record(at, "scores")["tensor"])[at.row]), OK

    def _tensor(self, file: Path, name: str) -> Any:
        if (file, name) not in self._tensors:
            self._tensors[file, name] = self.store.tensor(file, name)
        return self._tensors[file, name]

    def samples(self) -> "pl.DataFrame":
        """One row per model and sample: label, target, prediction and its probability, status."""
        import polars as pl

        rows = []
        for model in self.manifest["models"]:
            names = model["classes"]

            def called(index: int | None, names: list[str] | None = names) -> str | None:
                if index is None:
                    return None
                return names[index] if names and 0 <= index < len(names) else str(index)

            for sample in self.manifest["samples"]:
                record, problem = self._record(model["identity"], sample)
                top = record["top"] if record else []
                rows.append(
                    {
                        "model": model["name"],
                        "sample": sample["name"],
                        "label": sample["label"],
                        "label_name": called(sample["label"]),
                        "target": record["target"] if record else None,
                        "target_name": called(record["target"]) if record else None,
                        "predicted": top[0] if top else None,
                        "predicted_name": called(top[0]) if top else None,
                        "prob": record["prob"][0] if record and record["prob"] else None,
                        "status": problem or OK,
                    }
                )
        return pl.DataFrame(
            rows,
            schema={
                "model": pl.String,
                "sample": pl.String,
                "label": pl.Int64,
                "label_name": pl.String,
                "target": pl.Int64,
                "target_name": pl.String,
                "predicted": pl.Int64,
                "predicted_name": pl.String,
                "prob": pl.Float64,
                "status": pl.String,
            },
        )

    # -- pictures ------------------------------------------------------------------------------------------

    def curves(self, model: str, metric: str) -> "pl.DataFrame":
        """The stored curve of every sample and method under a metric."""
        import polars as pl

        rows = []
        facts = self._model(model)
        digest = {m["label"]: m["digest"] for m in facts["metrics"]}.get(metric)
        for sample in self.manifest["samples"]:
            record, _ = self._record(facts["identity"], sample)
            if record is None or digest is None:
                continue
            for method in facts["methods"]:
                key = (facts["identity"], self.manifest["seed"], method["digest"], digest)
                at = self.store.scores.get(key, {}).get(score_row(record))
                stored = self.store.record(at, "scores") if at else None
                if at is None or stored is None or not stored["curve"] or self.store.status(at) != OK:
                    continue
                curve = self._tensor(at.file, stored["curve"])[at.row].tolist()
                rows.append((sample["name"], method["label"], stored["share"], curve))
        numbers = pl.List(pl.Float64)
        schema: Any = {"sample": pl.String, "method": pl.String, "share": numbers, "curve": numbers}
        return pl.DataFrame(rows, schema=schema, orient="row")

    def map(self, model: str, sample: str, method: str) -> np.ndarray | None:
        """A stored map at its native resolution."""
        facts = self._model(model)
        entry = next((s for s in self.manifest["samples"] if s["name"] == sample), None)
        digest = {m["label"]: m["digest"] for m in facts["methods"]}.get(method)
        record = self._record(facts["identity"], entry)[0] if entry else None
        if record is None or digest is None:
            return None
        at: At | None = self.store.maps.get((facts["identity"], self.manifest["seed"], digest), {}).get(map_row(record))
        if at is None or self.store.record(at, "maps")["status"].get(str(at.row), OK) != OK:
            return None
        values: np.ndarray = self.store.tensor(at.file, self.store.record(at, "maps")["tensor"])[at.row].float().numpy()
        return values

    def display(self, model: str, sample: str) -> dict[str, Any] | None:
        """A stored picture or text, as people should see it."""
        identity = self._model(model)["identity"]
        digest = next((s["digest"] for s in self.manifest["samples"] if s["name"] == sample), None)
        found = self._displays.get((identity, digest))
        if found is None:
            return None
        path, record = found
        shown = {k: v for k, v in record.items() if k not in ("tensor", "model", "sample")}
        if record["tensor"]:
            shown["rgb"] = self.store.tensor(path, record["tensor"]).to(torch.uint8).numpy()
        return shown

    @cached_property
    def _displays(self) -> dict[tuple[str, str | None], tuple[Path, dict[str, Any]]]:
        return {(d["model"], d["sample"]): (path, d) for path, _, _, d in self.store.displays()}

    def gallery(self) -> list[tuple[str, str]]:
        """Models and samples whose maps and pictures are kept."""
        return [
            (model["name"], sample["name"])
            for model in self.manifest["models"]
            for sample in self.manifest["samples"]
            if sample["digest"] in model["gallery"] and (model["identity"], sample["digest"]) in self._displays
        ]

    def _model(self, name: str) -> dict[str, Any]:
        for model in self.manifest["models"]:
            if model["name"] == name:
                found: dict[str, Any] = model
                return found
        raise HeatcheckError(f"this run has no model {name!r}; it has {[m['name'] for m in self.manifest['models']]}")
