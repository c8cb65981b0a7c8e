"""Training a model by a recipe."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from heatcheck.core.progress import Progress
from heatcheck.core.types import HeatcheckError
from heatcheck.models.base import Model
from heatcheck.models.training_record import TrainingRecord
from heatcheck.training.defaults import TRAINERS, load_model
from heatcheck.training.loop import SAVED_EVERY, fit, measure_step, resumed
from heatcheck.training.prepare import Prepared, prepare
from heatcheck.training.recipe import Recipe, load_recipe


@dataclass(frozen=True)
class Trained:
    """A finished training.

    Args:
        folder: where it is.
        record: recipe, data, seed, accuracy and parent.
    """

    folder: Path
    record: TrainingRecord

    @property
    def spec(self) -> str:
        """How its model is written wherever a model is asked for."""
        return f"trained:{self.folder}"

    @cached_property
    def model(self) -> Model:
        """The model with the chosen weights."""
        return load_model(self.spec)


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """What a training would cost.

    Args:
        samples: that are learnt from.
        epochs: how often.
        steps: of the optimizer.
        forwards: model passes, those on held-out samples included.
        backwards: likewise.
        seconds: about how long it takes, by a step that was tried; None where none was.
        disk_bytes: about what its folder takes.
    """

    samples: int
    epochs: int
    steps: int
    forwards: int
    backwards: int
    seconds: float | None
    disk_bytes: int

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return dict(vars(self))


def train(
    recipe: str | Recipe,
    *,
    model: Any,
    data: Any,
    out: str | Path,
    held_out: Any = None,
    variant: str = "",
    settings: Mapping[str, Any] | None = None,
    preprocess: Any = None,
    keep: int = 0,
    device: str = "auto",
    threads: int | None = None,
    saved_every: float = SAVED_EVERY,
    progress: str | Progress = "auto",
    **also: Any,
) -> Trained:
    """Train a model, or go on with its training; the folder then is a model: `trained:FOLDER`.

    >>> train("align", model="efficientnet_lite0", data="imagenet:val", out="runs/aligned")  # doctest: +SKIP

    Args:
        recipe: its name, or a recipe that was loaded.
        model: a spec, a module, or a loaded model; only what has a spec can be loaded again as `trained:FOLDER`.
        data: the samples to learn from; of a source with a training split, that split is taken.
        out: the training's folder; one that is there already is continued.
        held_out: the samples to judge it by; by default the source's other split, or a fifth of its samples.
        variant: of the recipe, such as `small`.
        settings: what to change in it, such as `{"lr": 0.01}`.
        preprocess: what is done to pictures, where the model does not say it.
        keep: how many times, evenly spread, weights are kept along the way; the last time at the end.
        device: `auto` for the best there is, `cpu`, `cuda` or `mps`.
        threads: of the CPU; by default one per processor.
        saved_every: seconds between two writings of the state.
        progress: `auto`, `bar`, `lines`, `none`, or an object that is told.
        **also: what some recipes need beside data.

    Raises:
        HeatcheckError: something does not fit, the folder holds another training, or the loss is not finite.
    """
    folder = Path(out).expanduser()
    ready = prepared(recipe, variant, settings, model, data, held_out, preprocess, device, threads, **also)
    record = fit(ready.task, ready.network, ready.record, folder, keep=keep, saved_every=saved_every, progress=progress)
    return Trained(folder, record)


def plan_training(
    recipe: str | Recipe,
    *,
    model: Any,
    data: Any,
    out: str | Path | None = None,
    held_out: Any = None,
    variant: str = "",
    settings: Mapping[str, Any] | None = None,
    preprocess: Any = None,
    keep: int = 0,
    device: str = "auto",
    threads: int | None = None,
    **also: Any,
) -> TrainingPlan:
    """What a training would cost, before anything is spent; arguments as for `train`."""
    ready = prepared(recipe, variant, settings, model, data, held_out, preprocess, device, threads, **also)
    if out is not None and Path(out).expanduser().exists():
        resumed(ready.record, Path(out).expanduser())
    return plan_of(ready, keep)


def plan_of(ready: Prepared, keep: int = 0, *, calibrate: bool = True) -> TrainingPlan:
    """What a training that can begin would cost."""
    task, epochs = ready.task, ready.task.recipe.epochs
    shown = sum(map(len, task.batches(0))) * epochs
    judged = task.held_out * (epochs + 1 + keep)
    bytes_ = sum(t.numel() * t.element_size() for t in ready.network.state_dict().values())
    seconds = None
    if calibrate:
        step, look = measure_step(task, copy.deepcopy(ready.network), ready.record.numerics)
        seconds = ready.record.steps * step + judged * look
    copies = {"sgd": 2}.get(task.recipe.optimizer, 3) + 2 + keep
    return TrainingPlan(
        samples=len(task),
        epochs=epochs,
        steps=ready.record.steps,
        forwards=shown + judged,
        backwards=shown,
        seconds=seconds,
        disk_bytes=bytes_ * copies,
    )


def prepared(
    recipe: str | Recipe,
    variant: str,
    settings: Mapping[str, Any] | None,
    model: Any,
    data: Any,
    held_out: Any,
    preprocess: Any,
    device: str,
    threads: int | None,
    **also: Any,
) -> Prepared:
    """A training that can begin."""
    if isinstance(recipe, Recipe):
        if variant or settings:
            raise HeatcheckError("variant and settings belong to a recipe's name; this one is loaded already")
        loaded = recipe
    else:
        loaded = load_recipe(recipe, variant, settings)
    return prepare(
        loaded,
        model,
        data,
        held_out=held_out,
        preprocess=preprocess,
        device=device,
        threads=threads,
        trainers=TRAINERS,
        **also,
    )
