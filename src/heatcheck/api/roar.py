"""ROAR and KAR: a network retrained without the most relevant pixels, or with them alone, per method, level and seed."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heatcheck import stats
from heatcheck.api.benchmark import Benchmark, label_components, label_models
from heatcheck.api.retraining import Chosen, HeldOutAnswers, Materials, Retraining, ready, train_all
from heatcheck.api.retraining_result import RetrainingPlan, RetrainingResult
from heatcheck.api.train import plan_of
from heatcheck.core import catalogue
from heatcheck.core.files import as_json, make_folder, write_atomically, written_atomically
from heatcheck.core.identity import digest
from heatcheck.core.plugins import load_plugin
from heatcheck.core.progress import Progress, choose
from heatcheck.core.types import OK, HeatcheckError, Inputs
from heatcheck.data.base import Dataset
from heatcheck.data.load import load_data
from heatcheck.data.splits import training_specs
from heatcheck.methods.base import Method
from heatcheck.metrics.roar import ANSWERS, STUDY, UNMODIFIED
from heatcheck.models.base import Model
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.vision import VisionModel
from heatcheck.profiles import load_profile
from heatcheck.run.reader import SectionReader
from heatcheck.run.runtime import Runtime
from heatcheck.training.defaults import load_model
from heatcheck.training.masked import MaskedTask, mean_colour
from heatcheck.training.masks import CHANNELS, TopMasks, batched, read_facts, write_masks
from heatcheck.training.pictures import preprocess_of
from heatcheck.training.prepare import Prepared
from heatcheck.training.recipe import Recipe, load_recipe

LEVELS = (10, 30, 50, 70, 90)
PROTOCOLS = ("roar", "kar")
CONTROLS = ("random", "sobel")
"""Methods that every study has beside those that it is about."""
MASKS = "masks"
"""The protocol of the networks that saw masks and no pictures."""
OWN = ("level", "keep_top", "masks_only", "granularity", "start")
"""Settings of the recipe that a study decides itself."""
_BATCH = 64


def roar(
    model: Any,
    data: Any,
    *,
    methods: Sequence[Any] | Mapping[str, Any],
    out: str | Path,
    levels: Sequence[float] = LEVELS,
    seeds: int = 5,
    protocols: Sequence[str] = ("roar",),
    network: Any = None,
    held_out: Any = None,
    variant: str = "",
    settings: Mapping[str, Any] | None = None,
    granularity: str = "pixel",
    target: str | int | None = None,
    profile: str = "default",
    preprocess: Any = None,
    plugins: Sequence[str] = (),
    workers: int = 1,
    device: str = "auto",
    progress: str | Progress = "auto",
) -> RetrainingResult:
    """Retrain networks without the most relevant pixels of each method's maps (ROAR), or with them alone (KAR).

    The maps of all pictures, to learn from and to be judged by, are a run as any other. `random` and `sobel` are added
    to the methods, and networks that see the masks alone, which shows what their shape gives away. Killed and begun again
    with the same arguments it goes on: maps and trainings that are finished are not made again.

    >>> found = roar("timm:resnet50", "imagenet:DIR", methods=["saliency"], out="runs/roar")       # doctest: +SKIP
    >>> found.accuracies(), found.result.leaderboard()                                             # doctest: +SKIP

    Args:
        model: the model that is explained, a classifier of pictures.
        data: the pictures; a source with a training split, or one of which a fifth is held out.
        methods: as for `Benchmark`.
        out: the study's folder, which is a run's folder, too.
        levels: percents of each picture that are removed (ROAR) or kept (KAR).
        seeds: trainings of each.
        protocols: `roar`, `kar` or both.
        network: what is retrained; by default the model's own architecture.
        held_out: the pictures to judge by, where the data alone do not say it.
        variant: of the recipe `roar`, such as `small`.
        settings: what to change in it; `samples` and `judged` say how many pictures are used.
        granularity: `pixel`, or `scalar` as the authors' code: each channel of a pixel is ranked by its own magnitude.
        target: the class that is explained; the profile's if None.
        profile: where parameters of methods come from.
        preprocess: what is done to pictures, where the model does not say it.
        plugins: Python files that declare methods.
        workers: processes that train; one network each, on one core.
        device: where networks are trained and explained.
        progress: `auto`, `bar`, `lines`, `none`, or an object that is told.

    Raises:
        HeatcheckError: something does not fit, or a training failed.
    """
    study = RetrainingStudy(
        model=model,
        data=data,
        methods=methods,
        out=Path(out).expanduser(),
        levels=tuple(levels),
        seeds=seeds,
        protocols=tuple(protocols),
        network=network,
        held_out=held_out,
        variant=variant,
        settings=dict(settings or {}),
        granularity=granularity,
        target=target,
        profile=profile,
        preprocess=preprocess,
        plugins=tuple(plugins),
        workers=workers,
        device=device,
    )
    return study.run(progress)


@dataclass(frozen=True, kw_only=True)
class RetrainingStudy:
    """Maps of all pictures, masks of their top, and a training per method, level and seed; arguments as for `roar`."""

    model: Any
    data: Any
    methods: Sequence[Any] | Mapping[str, Any]
    out: Path
    levels: tuple[float, ...] = LEVELS
    seeds: int = 5
    protocols: tuple[str, ...] = ("roar",)
    network: Any = None
    held_out: Any = None
    variant: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    granularity: str = "pixel"
    target: str | int | None = None
    profile: str = "default"
    preprocess: Any = None
    plugins: tuple[str, ...] = ()
    workers: int = 1
    device: str = "auto"

    def __post_init__(self) -> None:
        levels = tuple(sorted({float(level) for level in self.levels}))
        if not levels or not all(0 < level < 100 for level in levels):
            raise HeatcheckError(f"levels={list(self.levels)} must be percents between 0 and 100, such as 10, 50, 90")
        if self.seeds < 1:
            raise HeatcheckError(f"seeds={self.seeds} must be at least 1")
        if not self.protocols or not set(self.protocols) <= set(PROTOCOLS):
            raise HeatcheckError(f"protocols={list(self.protocols)} must be roar, kar or both")
        if self.granularity not in ("pixel", "scalar"):
            raise HeatcheckError(f"granularity={self.granularity!r} is neither pixel nor scalar")
        if self.workers < 1:
            raise HeatcheckError(f"workers={self.workers} must be at least 1")
        for name in OWN:
            if name in self.settings:
                raise HeatcheckError(f"the setting {name} is decided by the study itself: leave it out")
        object.__setattr__(self, "levels", levels)

    # -- what it is made of ------------------------------------------------------------------------------------------

    @cached_property
    def recipe(self) -> Recipe:
        """How networks are trained, before levels and seeds."""
        return load_recipe("roar", self.variant, self.settings)

    @cached_property
    def contestants(self) -> dict[str, Method]:
        """The methods by label, with the controls; by scalars, each with the magnitude of its channels."""
        for path in self.plugins:
            load_plugin(path)
        found = label_components("method", self.methods, load_profile(self.profile))
        known = {component.id for _, component in found}
        found += label_components("method", [c for c in CONTROLS if c not in known], load_profile(self.profile))
        if self.granularity == "scalar":
            return {label: replace(component, reduction="none", post="abs") for label, component in found}
        return dict(found)

    @cached_property
    def base(self) -> VisionModel:
        """The model that is explained.

        Raises:
            HeatcheckError: it is no classifier of pictures.
        """
        found = load_model(self.model, name=self.label, preprocess=self.preprocess, guess=True)
        if not isinstance(found, VisionModel):
            raise HeatcheckError(f"{found.name} does not classify pictures: ROAR and KAR replace pixels")
        return found

    @property
    def label(self) -> str:
        """What tables call the model."""
        return next(iter(label_models(self.model)))

    @cached_property
    def seen(self) -> Preprocess:
        """What is done to pictures, before the model and the networks that are trained alike."""
        return preprocess_of(self.base)

    @cached_property
    def materials(self) -> Materials:
        """What all trainings have in common."""
        data, held_out, recipe = self.data, self.held_out, self.recipe
        if isinstance(data, str) and (held_out is None or isinstance(held_out, str)):
            data, held_out = training_specs(data, held_out)
        if held_out is None:
            raise HeatcheckError("held_out: say which pictures the networks are judged by")
        learnt, judged = (
            Chosen(spec=part, samples=n or None, seed=recipe.seed)
            if isinstance(part, str)
            else load_data(part, samples=n or None, seed=recipe.seed)
            for part, n in ((data, recipe.samples), (held_out, recipe.judged))
        )
        network = self.model if self.network is None else self.network
        if isinstance(network, Model):
            demand_same_view(self.seen, network)
            return Materials(network, learnt, judged, None, self.device)
        return Materials(network, learnt, judged, self.seen, self.device)

    @cached_property
    def pictures(self) -> tuple[Dataset, Dataset]:
        """The pictures to learn from, and those to judge by."""
        both = (self.materials.learnt, self.materials.held_out)
        learnt, held_out = (part.load() if isinstance(part, Chosen) else part for part in both)
        return learnt, held_out

    @property
    def folders(self) -> tuple[Path, Path]:
        """Where their maps are: those to learn from in a folder inside the study's."""
        return self.out / "learnt", self.out

    def benchmark(self, part: Dataset | Chosen, **also: Any) -> Benchmark:
        """A run over some of the pictures, with all methods."""
        spec, samples = (part.spec, part.samples) if isinstance(part, Chosen) else (part, None)
        return Benchmark(
            models={self.label: self.model if isinstance(self.model, str) else self.base},
            data=spec,
            samples=samples,
            preprocess=self.preprocess,
            methods=dict(self.contestants),
            metrics={} if "metrics" not in also else also.pop("metrics"),
            profile=self.profile,
            target=self.target,
            seed=self.recipe.seed,
            plugins=self.plugins,
            **also,
        )

    @property
    def runtime(self) -> Runtime:
        """How maps are computed."""
        return Runtime(workers=self.workers, device=None if self.device == "auto" else self.device)

    # -- maps and masks ----------------------------------------------------------------------------------------------

    def explained(self, progress: str | Progress) -> tuple[SectionReader, SectionReader]:
        """The maps of the pictures to learn from, and of those to judge by; made as far as they are missing.

        Raises:
            HeatcheckError: a method cannot explain the model.
        """
        found = []
        for part, folder in zip((self.materials.learnt, self.materials.held_out), self.folders, strict=True):
            result = self.benchmark(part).run(folder, runtime=Runtime.of(self.runtime, progress=progress)).last()
            section = result.sections[0]
            for label, reason in section.manifest["models"][0]["skipped"].items():
                raise HeatcheckError(f"method {label} cannot explain {self.label}: {reason}; leave it out")
            found.append(section)
        return found[0], found[1]

    @cached_property
    def masks(self) -> dict[tuple[str, float], Path]:
        """The folders of all masks, by method and level, named after everything that decides them."""
        target = load_profile(self.profile).target if self.target is None else self.target
        same = [self.base.identity, target, self.recipe.seed, self.shape, self.digests]
        found = {}
        for label, component in self.contestants.items():
            own = component.resolved_on(self.base.domain).identity()
            for level in self.levels:
                name = f"{slug(label)}-{level:g}-{digest([same, own, level])[:12]}"
                found[label, level] = self.out / "masks" / name
        return found

    def make_masks(self, sections: Sequence[SectionReader], progress: Progress) -> None:
        """Rank the pixels of all pictures by their stored maps, as far as that is not done."""
        for label in self.contestants:
            missing = {
                level: self.masks[label, level] for level in self.levels if not read_facts(self.masks[label, level])
            }
            if missing:
                progress.note(f"ranking the pixels of {len(self.digests):,} pictures by {label}")
                maps = self._values(sections, label)
                write_masks(missing, self.digests, maps, shape=self.shape, colour=self.colour, seed=self.recipe.seed)

    @cached_property
    def digests(self) -> list[str]:
        """All pictures, those to learn from first."""
        return [sample.digest for part in self.pictures for sample in part]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of a mask: height, width, and 3 where scalars are ranked, else 1."""
        height, width = self.seen.size
        return height, width, CHANNELS if self.granularity == "scalar" else 1

    def _values(self, sections: Sequence[SectionReader], label: str) -> Iterator[tuple[Tensor, list[bool]]]:
        """Batches of a method's maps on the pixels or scalars; all zero where there is no map."""
        height, width, channels = self.shape
        like = Inputs({"pixels": torch.empty(1, 3, height, width)})
        rows = chain.from_iterable(section.maps(self.label, label) for section in sections)
        for part in batched(zip(self.digests, rows, strict=True), _BATCH):
            values, there = [], []
            for wanted, (sample, found) in part:
                if sample["digest"] != wanted:
                    raise HeatcheckError(
                        f"{sample['name']!r}: the maps in {self.out} are of other pictures; use another --out"
                    )
                good = found is not None and found.status == OK
                there.append(good)
                if found is None or not good:
                    values.append(torch.zeros(height * width * channels))
                    continue
                own = found.values.float()
                each = own if own.ndim == 3 else own[None]
                laid = self.base.domain.layout(each, like, found.facts["interpolation"])
                values.append(laid.expand(channels, -1).T.flatten())
            yield torch.stack(values), there

    @cached_property
    def colour(self) -> tuple[int, int, int]:
        """The mean colour of the pictures to learn from; computed once."""
        learnt, _ = self.pictures
        path = self.out / "masks" / f"colour-{digest([learnt.identity(), self.seen.record()])[:12]}.json"
        if not path.exists():
            make_folder(path.parent)
            write_atomically(path, as_json(mean_colour(learnt.samples, self.seen)))
        red, green, blue = json.loads(path.read_text(encoding="utf-8"))
        return red, green, blue

    # -- trainings ---------------------------------------------------------------------------------------------------

    def trainings(self) -> list[Retraining]:
        """Every training: on whole pictures, per protocol, method, level and seed, and on masks alone.

        The masks of ROAR and KAR are negatives of each other, so that networks see one of them; one seed is enough to
        tell whether they give the class away.
        """
        jobs = [self.training(UNMODIFIED, "", 0.0, seed) for seed in range(self.seeds)]
        for seed in range(self.seeds):
            jobs += [
                self.training(protocol, label, level, seed)
                for protocol in self.protocols
                for label in self.contestants
                for level in self.levels
            ]
        return jobs + [self.training(MASKS, label, level, 0) for label in self.contestants for level in self.levels]

    def training(self, protocol: str, label: str, level: float, seed: int) -> Retraining:
        """One training; its folder is named after everything that decides it."""
        recipe = self.recipe.model_copy(
            update={
                "seed": self.recipe.seed + seed,
                "samples": 0,
                "judged": 0,
                "level": float(level),
                "keep_top": protocol == "kar",
                "masks_only": protocol == MASKS,
                "granularity": self.granularity,
            }
        )
        masks = self.masks[label, level] if label else None
        begun = self.plain.record
        same = [recipe.settings(), masks.name if masks else "", begun.parent.architecture, begun.data_identity]
        words = [protocol, *([slug(label), f"{level:g}"] if label else []), f"seed{seed}", digest(same)[:12]]
        folder = self.out / "trainings" / "-".join(words)
        where = str(masks) if masks else ""
        return Retraining(protocol, label, float(level), seed, recipe.model_dump(), where, str(folder))

    @cached_property
    def plain(self) -> Prepared:
        """A training on whole pictures that can begin: it shows that network and pictures fit."""
        recipe = self.recipe.model_copy(update={"samples": 0, "judged": 0})
        learnt, held_out = self.pictures
        given = replace(self.materials, learnt=learnt, held_out=held_out)
        return ready(Retraining(UNMODIFIED, "", 0.0, 0, recipe.model_dump(), "", ""), given)

    @property
    def task(self) -> MaskedTask:
        """What networks learn from whole pictures."""
        found = self.plain.task
        if not isinstance(found, MaskedTask):
            raise HeatcheckError(f"recipe {self.recipe.name} has the task {self.recipe.task}, not masked pictures")
        return found

    # -- the study ---------------------------------------------------------------------------------------------------

    def plan(self) -> RetrainingPlan:
        """What the study would cost, before anything is spent."""
        each = plan_of(self.plain)
        maps = [
            self.benchmark(part).plan(out=folder, runtime=Runtime.of(self.runtime, progress="none"))
            for part, folder in zip((self.materials.learnt, self.materials.held_out), self.folders, strict=True)
        ]
        jobs, task = self.trainings(), self.task
        done = sum(job.done for job in jobs)
        mask_bytes = len(self.digests) * len(self.masks) * math.prod(self.shape) // 8
        weights = sum(t.numel() * t.element_size() for t in self.plain.network.state_dict().values())
        seconds = each.seconds or 0.0
        return RetrainingPlan(
            trainings=len(jobs),
            done=done,
            samples=len(task),
            judged=task.held_out,
            epochs=each.epochs,
            map_forwards=sum(p.forwards for p in maps),
            map_backwards=sum(p.backwards for p in maps),
            forwards=len(jobs) * each.forwards,
            backwards=len(jobs) * each.backwards,
            training_seconds=seconds,
            seconds=sum(p.seconds or 0.0 for p in maps) + seconds * (len(jobs) - done) / self.workers,
            disk_bytes=sum(p.disk_bytes for p in maps) + len(jobs) * weights + mask_bytes,
        )

    def run(self, progress: str | Progress = "auto") -> RetrainingResult:
        """Make what is missing: maps, masks, trainings, scores."""
        shown, jobs = choose(progress), self.trainings()
        sections = self.explained(progress)
        self.make_masks(sections, shown)
        train_all(
            jobs,
            self.materials,
            workers=self.workers,
            plugins=self.plugins,
            progress=shown,
            shown=len(self.task) * self.recipe.epochs,
        )
        self.write_answers(jobs, sections[1])
        record = self.record(jobs)
        write_atomically(self.out / STUDY, as_json(record))
        metrics = {protocol: catalogue.build("metric", protocol, study=str(self.out)) for protocol in self.protocols}
        bench = self.benchmark(self.materials.held_out, metrics=metrics, retraining=record)
        result = bench.run(self.out, runtime=Runtime.of(self.runtime, workers=1, progress=progress))
        return RetrainingResult(self.out, result)

    def record(self, jobs: Sequence[Retraining]) -> dict[str, Any]:
        """The study as plain data, with the accuracy of every network."""
        import polars as pl

        task = self.task
        labels = Counter(sample.label for sample in task.judged)
        without = {label: TopMasks.open(folder).without_map for (label, _), folder in self.masks.items()}
        return {
            "model": {"name": self.label, "identity": self.base.identity},
            "network": self.plain.record.parent.name,
            "recipe": self.recipe.name,
            "settings": self.recipe.settings(),
            "data": self.plain.record.data,
            "held_out": self.plain.record.held_out,
            "samples": len(task),
            "judged": task.held_out,
            "chance": max(labels.values()) / max(1, task.held_out),
            "levels": list(self.levels),
            "seeds": self.seeds,
            "protocols": list(self.protocols),
            "granularity": self.granularity,
            "methods": {label: component.name for label, component in self.contestants.items()},
            "without_map": {label: n for label, n in without.items() if n},
            "cells": [
                {
                    "protocol": job.protocol,
                    "method": job.method,
                    "level": job.level,
                    "seed": job.seed,
                    "accuracy": float(HeldOutAnswers.read(job).right.double().mean()),
                }
                for job in jobs
            ],
            "population": stats.population_accuracies(pl.read_parquet(self.out / ANSWERS)).to_dicts(),
        }

    def write_answers(self, jobs: Sequence[Retraining], judged: SectionReader) -> None:
        """Write the table of all answers: a row per network and picture."""
        import polars as pl

        model = judged.manifest["models"][0]
        specs = {m["label"]: m["name"] for m in model["methods"]}
        targets = judged.samples()["target"].to_list()
        explained = {s["digest"]: target for s, target in zip(judged.manifest["samples"], targets, strict=True)}
        samples = self.task.judged
        pictures = pl.DataFrame(
            {
                "sample": [s.name for s in samples],
                "digest": [s.digest for s in samples],
                "label": [s.label for s in samples],
                "target": [explained[s.digest] for s in samples],
            }
        )
        tables = []
        for job in jobs:
            found = HeldOutAnswers.read(job)
            cell = {"protocol": job.protocol, "method": job.method, "spec": specs.get(job.method, "")}
            tables.append(
                pictures.with_columns(
                    *(pl.lit(text).alias(name) for name, text in cell.items()),
                    pl.lit(job.level).alias("level"),
                    pl.lit(job.seed, dtype=pl.Int64).alias("seed"),
                    answer=pl.Series(found.answer.numpy()),
                    right=pl.Series(found.right.bool().numpy()),
                    prob=pl.Series(found.prob.numpy()),
                ).select(
                    "protocol",
                    "method",
                    "spec",
                    "level",
                    "seed",
                    "sample",
                    "digest",
                    "label",
                    "target",
                    "answer",
                    "right",
                    "prob",
                )
            )
        with written_atomically(self.out / ANSWERS) as file:
            pl.concat(tables).write_parquet(file)


def demand_same_view(seen: Preprocess, network: Model) -> None:
    """Refuse a loaded network that sees another part of a picture than the model that is explained."""
    own = network._preprocess if isinstance(network, VisionModel) else None
    parts = ("size", "resize", "fit", "interpolation")
    if own is not None and any(getattr(own, part) != getattr(seen, part) for part in parts):
        raise HeatcheckError(
            f"network={network.name} sees pictures as {own}, but the model that is explained as {seen}"
        )


def slug(label: str) -> str:
    """A label as part of a folder's name.

    >>> slug("smoothgrad(of=saliency)")
    'smoothgrad-of-saliency'
    """
    return re.sub(r"[^\w.]+", "-", label).strip("-.")[:60]
