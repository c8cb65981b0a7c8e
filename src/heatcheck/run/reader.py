"""A run read back from its folder as tables, maps and facts; no model is needed."""

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from heatcheck.core import catalogue
from heatcheck.core.files import printable
from heatcheck.core.types import OK, HeatcheckError
from heatcheck.models.training_record import told
from heatcheck.profiles import is_paper
from heatcheck.run import history, shard
from heatcheck.run.lacking import choose_target
from heatcheck.run.lending import Candidate, Loan, lender, trained_by, why_nobody
from heatcheck.run.naming import Naming, naming
from heatcheck.run.packing import map_row, score_row
from heatcheck.run.planted import SYNSCORE, TRUTHS, about_planted, learnt, planted_in
from heatcheck.run.raced import races
from heatcheck.run.store import Store, StoredMap
from heatcheck.run.table import CellBlock, Vocabulary, curve_rows, joined
from heatcheck.run.union import Section, union

if TYPE_CHECKING:
    import polars as pl

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
        self.sections: list[SectionReader] = []
        self.sections += [SectionReader(store, section, self.sections) for section in found.sections]

    @classmethod
    def open(cls, path: str | Path, *, only: bool = False, verify: bool = False) -> Self:
        """Open a run folder: the union of its studies, or the last one only; reading every byte again if asked to."""
        return cls(Store.open(path, verify=verify), only=only)

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
        return self.store.steadily(self._table)

    def _table(self) -> "pl.DataFrame":
        statuses = Vocabulary((OK, MISSING))
        blocks = [block for section in self.sections for block in section.blocks(statuses)]
        return joined(self.name, blocks, statuses)

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
                    **({"trained": x["trained"], "training": told(x["trained"])} if x.get("trained") else {}),
                }
                for name, x in models.items()
            ],
            "data": self._data(),
            "methods": self._components("methods"),
            "metrics": self._components("metrics"),
            "circular": sorted({pair for section in self.sections for pair in section.circular()}),
            "skipped": self._skips(),
            "fills": self._fills(),
            "remarks": self._remarks(),
            "multiverse": study.get("multiverse"),
            "retraining": study.get("retraining"),
            "passes": m["passes"],
            "peak_bytes": m.get("peak_bytes", 0),
            "finished": m["finished"],
            "union": self.lines,
            "races": races(section.section for section in self.sections),
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
        entries = {
            name: x for s in reversed(self.sections) for x in s.manifest[kind] for name in s.shown(kind, x["label"])
        }
        return [{**x, "name": name, "spec": x["name"]} for name, x in entries.items()]

    def _fills(self) -> list[dict[str, str]]:
        """What each metric deletes with on each model."""
        found = {key: fill for section in reversed(self.sections) for key, fill in section.fills().items()}
        return [{"model": model, "metric": metric, "fill": fill} for (model, metric), fill in found.items()]

    def _remarks(self) -> list[dict[str, str]]:
        """What is to be said about a metric of a model on a data set."""
        return [
            {"model": model, "data": section.data, "metric": metric, "remark": remark}
            for section in reversed(self.sections)
            for (model, metric), remark in section.remarks().items()
        ]

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
    """Scores, curves and maps of studies with equal data, target, seed and samples.

    Args:
        store: the folder.
        section: the studies.
        beside: all that is read of the folder, from which sums may borrow.
    """

    def __init__(self, store: Store, section: Section, beside: Sequence["SectionReader"] = ()) -> None:
        self.store, self.section, self.beside = store, section, beside
        self.manifest = section.manifest

    @property
    def data(self) -> str:
        """The data set's name, as tables show it."""
        return str(self.manifest["data"]["name"])

    @cached_property
    def naming(self) -> dict[str, Naming]:
        """What tables call the metrics of each model. A multiverse has names of its own."""
        models = self.manifest["models"]
        own = bool(self.manifest["study"].get("multiverse"))
        return {model["name"]: Naming() if own else naming(model) for model in models}

    def shown(self, kind: str, label: str) -> list[str]:
        """The names that tables show for a label: metrics may be called otherwise on some models."""
        if kind != "metrics":
            return [label]
        asked = {model for model, _, metric in self.section.asked if metric == label}
        found = (named.names.get(label, label) for model, named in self.naming.items() if model in asked)
        return list(dict.fromkeys(found))

    def circular(self) -> Iterator[tuple[str, str]]:
        """Methods and metrics, by the names that tables show, of which the one asks the other's own questions."""
        for model in self.manifest["models"]:
            names = self.naming[model["name"]].names
            yield from ((method, names.get(metric, metric)) for method, metric in model["circular"])

    def fills(self) -> dict[tuple[str, str], str]:
        """The ids of fills by model and metric, as tables name them; `auto` is recorded as what it stands for there."""
        found = {}
        for model in self.manifest["models"]:
            names = self.naming[model["name"]].names
            for metric in model["metrics"]:
                fill = metric["identity"].get("params", {}).get("fill")
                if isinstance(fill, dict):
                    found[model["name"], names.get(metric["label"], metric["label"])] = str(fill["id"])
        return found

    def remarks(self) -> dict[tuple[str, str], str]:
        """What is to be said about a metric of a model, by the names that tables show."""
        found: dict[tuple[str, str], str] = {}
        for model in self.manifest["models"]:
            name = model["name"]
            found |= {(name, metric): remark for metric, remark in self.naming[name].remarks.items()}
            asked = [m for m in self.manifest["metrics"] if self._methods_of(name, m["label"])]
            compared = model.get("comparisons", {})
            found |= {
                (name, m["label"]): f"{m['label']}: {compared[m['label']]}" for m in asked if m["label"] in compared
            }
            for label in (m["label"] for m in asked if m["id"] == SYNSCORE and planted_in(self.manifest["study"])):
                found[name, label] = f"{label}: {self._about_planted(model)}"
            for label in (m["label"] for m in asked if m["label"] in self._composites):
                for loan in self._loans(model, label).values():
                    if loan.by:
                        found[name, label] = f"{label}: {loan.remark(self._methods_of(name, label))}"
        return found

    def _about_planted(self, model: dict[str, Any]) -> str:
        """How often a model that is judged by what was planted finds it."""
        records, study = self._records(model["identity"])[0], self.manifest["study"]
        kind = planted_in(study) or TRUTHS[model["modality"]]
        answers = [(r["label"], r["top"][0]) for r in records if r and r["top"]]
        return about_planted(kind, str(study.get("data", "")), model, answers)

    def _methods_of(self, model: str, metric: str) -> list[dict[str, Any]]:
        """The methods that a model is measured by under a metric."""
        return [m for m in self.manifest["methods"] if (model, m["label"], metric) in self.section.asked]

    def has(self, sample: str | None, method: str | None) -> bool:
        """Whether a sample and a method are in it; None is in everything."""
        names = {s["name"] for s in self.manifest["samples"]}
        labels = {m["label"] for m in self.manifest["methods"]}
        return (sample is None or sample in names) and (method is None or method in labels)

    def blocks(self, statuses: Vocabulary) -> Iterator[CellBlock]:
        """The table's rows, model by model: what some study asked for."""
        methods, metrics = ([entry["label"] for entry in self.manifest[kind]] for kind in ("methods", "metrics"))
        for model in self.manifest["models"]:
            asked = [
                (i, j)
                for i, method in enumerate(methods)
                for j, metric in enumerate(metrics)
                if (model["name"], method, metric) in self.section.asked
            ]
            block = self._block(model, methods, metrics, statuses)
            self._add_sums(model, block, statuses)
            names = self.naming[model["name"]].names
            block.metrics = [names.get(label, label) for label in metrics]
            yield block.only(asked)

    def _block(self, model: dict[str, Any], methods: list[str], metrics: list[str], statuses: Vocabulary) -> CellBlock:
        """A model's scores, statuses and costs of all samples, methods and metrics."""
        samples, seed = self.manifest["samples"], self.manifest["seed"]
        records, problems = self._records(model["identity"])
        filed = [{u["label"]: u["digest"] for u in model[kind]} for kind in ("methods", "metrics")]
        digests = [
            [known.get(label, label) for label in labels]
            for known, labels in zip(filed, (methods, metrics), strict=True)
        ]
        scored = [score_row(record) if record else "" for record in records]
        mapped = [map_row(record) if record else "" for record in records]
        block = CellBlock.of(
            self.store.index, model["identity"], seed, scored, mapped, digests[0], digests[1], statuses
        )
        missing = (block.status == statuses.add(MISSING)).any((1, 2))
        for row in np.flatnonzero(missing):
            why = problems[row] or self._problem(model["identity"], samples[row])
            if why:
                block.status[row][block.status[row] == statuses.add(MISSING)] = statuses.add(why)
        for label, reason in model["skipped"].items():
            for axis, labels in ((1, methods), (2, metrics)):
                block.skip(
                    axis, [i for i, other in enumerate(labels) if other == label], statuses.add(f"skipped: {reason}")
                )
        block.model, block.data = model["name"], self.data
        block.samples, block.methods, block.metrics = [s["name"] for s in samples], methods, metrics
        block.target = [record["target"] if record else None for record in records]
        return block

    def _problem(self, model: str, sample: dict[str, Any]) -> str | None:
        """Why a sample could not be used under this run's target."""
        return self.store.problem(model, sample["digest"], sample["context"], self.manifest["target"])

    def _add_sums(self, model: dict[str, Any], block: CellBlock, statuses: Vocabulary) -> None:
        """Fill in the metrics that add up others; of two parts the first."""
        for label, component in self._composites.items():
            methods = self._methods_of(model["name"], label)
            chosen = [block.methods.index(method["label"]) for method in methods]
            labels = self.section.parts[label]
            parts = {id: block.scores(chosen, block.metrics.index(labels[id]), statuses) for id in component.parts}
            parts |= {id: loan.given(parts[id], methods) for id, loan in self._loans(model, label).items()}
            sums = component.combine(parts, [not method["control"] for method in methods])
            block.fill(chosen, block.metrics.index(label), sums, statuses)

    def _loans(self, model: dict[str, Any], sum: str) -> dict[str, Loan]:
        """What other networks of the folder lend to a model's sum, by the part's id; none to one that could lend."""
        loans = {}
        for id, recipe in self._composites[sum].lent.items():
            label = self.section.parts[sum][id]
            candidates = [c for section in self.beside for c in section.candidates(label)]
            found = lender(model, recipe, candidates)
            if found is not None:
                loans[id] = found.lend()
            elif not trained_by(model, recipe):
                loans[id] = Loan(label, why=why_nobody(model, label, recipe, candidates))
        return loans

    def candidates(self, label: str) -> list[Candidate]:
        """The models of these studies, as those that may lend their means under a metric."""
        measured = {model for model, _, metric in self.section.asked if metric == label}
        return [
            Candidate(model, self.section.number, model["name"] in measured, partial(self._lend, model, label))
            for model in self.manifest["models"]
        ]

    def _lend(self, model: dict[str, Any], label: str) -> Loan:
        """A model's means over samples under a metric, for the sums of other models."""
        methods, statuses = [entry["label"] for entry in self.manifest["methods"]], Vocabulary((OK, MISSING))
        block = self._block(model, methods, [label], statuses)
        scores = block.scores(range(len(methods)), 0, statuses)
        about, kind = self._about_planted(model), learnt(model) or TRUTHS[model["modality"]]
        return Loan.of(label, model["name"], about, self.manifest["methods"], scores, kind)

    @cached_property
    def _composites(self) -> dict[str, Any]:
        """The run's metrics that add up others, by label; empty, and nothing built, where there are none."""
        known = {m["label"]: m["name"] for m in self.manifest["metrics"] if m.get("family") == "composite"}
        return {label: catalogue.build("metric", name) for label, name in known.items()}

    def _records(self, model: str) -> tuple[list[dict[str, Any] | None], list[str | None]]:
        """Every sample's record under this run's target; and, for those that have none, why."""
        known = self.store.index.samples_of(model)
        found = [self._record(model, sample, known.get(sample["digest"])) for sample in self.manifest["samples"]]
        return [record for record, _ in found], [problem for _, problem in found]

    def _record(
        self, model: str, sample: dict[str, Any], known: dict[str, Any] | None
    ) -> tuple[dict[str, Any] | None, str | None]:
        """A sample's record under this run's target, or why it has none."""
        if sample["problem"]:
            return None, f"failed: {sample['problem']}"
        if known is None:
            return None, self._problem(model, sample) or MISSING
        record = {**known, **sample}
        record["target"] = choose_target(self.manifest["target"], record)
        return record, None

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

            for sample, record, problem in zip(
                self.manifest["samples"], *self._records(model["identity"]), strict=True
            ):
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
        facts, names = self._model(model), self.naming[model].names
        digest = {names.get(m["label"], m["label"]): m["digest"] for m in facts["metrics"]}.get(metric)

        def read() -> "pl.DataFrame":
            records = self._records(facts["identity"])[0]
            samples = {s["name"]: score_row(r) for s, r in zip(self.manifest["samples"], records, strict=True) if r}
            methods = {m["label"]: m["digest"] for m in facts["methods"]}
            key = facts["identity"], self.manifest["seed"], digest
            return curve_rows(self.store, key, samples if digest else {}, methods)

        return self.store.steadily(read)

    def map(self, model: str, sample: str, method: str) -> np.ndarray | None:
        """A stored map at its native resolution."""
        facts = self._model(model)
        entry = next((s for s in self.manifest["samples"] if s["name"] == sample), None)
        digest = {m["label"]: m["digest"] for m in facts["methods"]}.get(method)
        if entry is None or digest is None:
            return None
        record, _ = self._record(facts["identity"], entry, self.store.sample(facts["identity"], entry["digest"]))
        found = self.store.map(facts["identity"], self.manifest["seed"], digest, record) if record else None
        if found is None or found.status != OK:
            return None
        values: np.ndarray = found.values.float().numpy()
        return values

    def maps(self, model: str, method: str) -> Iterator[tuple[dict[str, Any], StoredMap | None]]:
        """Every sample with its stored map at native resolution, one after the other; None where there is none."""
        facts = self._model(model)
        digest = {m["label"]: m["digest"] for m in facts["methods"]}.get(method, "")
        for sample, record in zip(self.manifest["samples"], self._records(facts["identity"])[0], strict=True):
            seed = self.manifest["seed"]
            yield sample, self.store.map(facts["identity"], seed, digest, record) if record else None

    def display(self, model: str, sample: str) -> dict[str, Any] | None:
        """A stored picture or text, as people should see it."""
        identity = self._model(model)["identity"]
        digest = next((s["digest"] for s in self.manifest["samples"] if s["name"] == sample), None)

        def read() -> dict[str, Any] | None:
            found = self._displays.get((identity, digest))
            if found is None:
                return None
            file, record = found
            shown = {k: v for k, v in record.items() if k not in ("tensor", "model", "sample")}
            if record["tensor"]:
                shown["rgb"] = self.store.chunk(file).tensor(record["tensor"]).to(torch.uint8).numpy()
            return shown

        return self.store.steadily(read)

    @property
    def _displays(self) -> dict[tuple[str, str | None], tuple[str, dict[str, Any]]]:
        return {(d["model"], d["sample"]): (file, d) for file, d in self.store.displays()}

    def gallery(self) -> list[tuple[str, str]]:
        """Models and samples whose maps and pictures are kept."""
        shown = self._displays
        return [
            (model["name"], sample["name"])
            for model in self.manifest["models"]
            for sample in self.manifest["samples"]
            if (model["identity"], sample["digest"]) in shown and sample["digest"] in model["gallery"]
        ]

    def _model(self, name: str) -> dict[str, Any]:
        for model in self.manifest["models"]:
            if model["name"] == name:
                found: dict[str, Any] = model
                return found
        raise HeatcheckError(f"this run has no model {name!r}; it has {[m['name'] for m in self.manifest['models']]}")
