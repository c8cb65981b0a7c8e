"""From a recipe, a model and data to a task: everything is checked before anything is spent."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from heatcheck.core.types import HeatcheckError, Modality
from heatcheck.core.version import __version__
from heatcheck.data.base import Dataset
from heatcheck.data.load import load_data
from heatcheck.data.matching import match_labels
from heatcheck.data.splits import training_specs
from heatcheck.models.base import Model
from heatcheck.models.load import load_model
from heatcheck.models.networks import trainable_copy
from heatcheck.models.request import Trainer
from heatcheck.models.retarget import reinitialised, with_classes
from heatcheck.models.same_architecture import network_architecture
from heatcheck.models.torch_model import TorchModel
from heatcheck.models.training_record import Parent, TrainingRecord
from heatcheck.models.vision import VisionModel
from heatcheck.training.loop import numerics, steps_of
from heatcheck.training.recipe import Recipe
from heatcheck.training.task import Task
from heatcheck.training.tasks import TASKS


@dataclass(frozen=True)
class Prepared:
    """A training that can begin.

    Args:
        task: what is learnt.
        network: what learns it, as it begins.
        record: what is known before.
    """

    task: Task
    network: nn.Module
    record: TrainingRecord


def prepare(
    recipe: Recipe,
    model: Any,
    data: Any,
    *,
    held_out: Any = None,
    preprocess: Any = None,
    device: str = "auto",
    threads: int | None = None,
    trainers: Mapping[str, Trainer] | None = None,
    **also: Any,
) -> Prepared:
    """Load the model and the data of a training, and match them.

    Args:
        recipe: how it is trained.
        model: a spec, a module, or a loaded model.
        data: the samples to learn from; of a source with a training split, that split.
        held_out: the samples to judge it by; by default the source's other split, or a fifth of its samples.
        preprocess: what is done to pictures, where the model does not say it.
        device: where it is computed.
        threads: of the CPU.
        trainers: what trains a model on first use, by its id.
        **also: what some tasks need beside data, such as `roar`'s maps.

    Raises:
        HeatcheckError: something does not fit; says what.
    """
    kind = TASKS[recipe.task]
    given = load_model(model, preprocess=preprocess, guess=True, headless=True, trainers=trainers)
    base = kind.fitting(given)
    if not isinstance(base, TorchModel):
        raise HeatcheckError(f"{base.name} is a function: only networks can be trained")
    if base.domain.modality != kind.modality:
        raise HeatcheckError(
            f"recipe {recipe.id} is for {kind.modality}s, but {base.name} reads {base.domain.modality}s"
        )
    learnt, judged, specs = _data(recipe, kind, data, held_out)
    classes, new_head = _classes(recipe, kind, base, learnt)
    if not new_head and base.classes:
        learnt, judged = (match_labels(part, {base.name: base.classes}) for part in (learnt, judged))
    began = with_classes(base, classes, seed=recipe.seed) if new_head else trainable_copy(base.module())
    network = reinitialised(began, recipe.seed) if recipe.start == "scratch" else began
    learning = base.around(network)
    learning = learning.reading(multi_label=False) if base.multi_label else learning  # a sample has one label to learn
    learning.classes = tuple(classes)
    task = kind(learning, recipe, learnt, judged, classes, **also)
    record = TrainingRecord(
        heatcheck=__version__,
        recipe=recipe.id,
        variant=recipe.variant,
        settings=recipe.settings(),
        parent=_parent(model, given, base, new_head),
        classes=list(classes),
        data=specs[0],
        held_out=specs[1],
        samples=len(task),
        held_out_samples=task.held_out,
        data_identity=task.data_identity(),
        numerics=numerics(device, threads),
        steps=steps_of(task),
    )
    return Prepared(task, network, record)


def _data(recipe: Recipe, kind: type[Task], data: Any, held_out: Any) -> tuple[Dataset, Dataset, tuple[str, str]]:
    """What is learnt from, what is held out, and how both are written."""
    if isinstance(data, str):
        data, held_out = training_specs(data, held_out) if _is_spec(held_out) else (data, held_out)
    learnt = load_data(data, samples=recipe.samples or None, seed=recipe.seed)
    nothing = replace(learnt, samples=())
    held_out = None if held_out is None else kind.judged_on(held_out)
    judged = nothing if held_out is None else load_data(held_out, samples=recipe.judged or None, seed=recipe.seed)
    if learnt.modality != kind.modality:
        raise HeatcheckError(
            f"recipe {recipe.id} is for {kind.modality}s, but {learnt.name!r} holds {learnt.modality}s"
        )
    return learnt, judged, (_written(data, learnt), _written(held_out, judged) if len(judged) else "")


def _is_spec(held_out: Any) -> bool:
    return held_out is None or isinstance(held_out, str)


def _written(data: Any, loaded: Dataset) -> str:
    return data if isinstance(data, str) else loaded.name


def _classes(recipe: Recipe, kind: type[Task], model: Model, data: Dataset) -> tuple[tuple[str, ...], bool]:
    """The classes that are learnt, and whether the model needs a new last layer for them.

    Raises:
        HeatcheckError: labels are no classes, there is nothing to tell apart, or a recipe that goes on with a model's
            classes has others.
    """
    if data.fractional and not kind.own_classes:
        raise HeatcheckError(
            f"labels of {data.name!r} are numbers, such as {data.fractional}: a training needs classes; write one for each "
            "sample, such as low and high"
        )
    own = kind.own_classes or _named(data)
    if len(own) < 2:
        found = f"has one class, {own[0]!r}" if own else "has no labels"
        raise HeatcheckError(f"{data.name!r} {found}: there is nothing to learn")
    theirs = model.class_count(model.encode(data[0])) if data[0].problem is None else len(model.classes or ())
    fits = len(own) == theirs and (not model.classes or data.sorted_names is False or set(own) <= set(model.classes))
    if fits and recipe.start == "pretrained" and not kind.own_classes and not model.fresh_head:
        return model.classes or own, False
    if recipe.delete and recipe.start == "pretrained":
        raise HeatcheckError(
            f"recipe {recipe.id} goes on with the classes that {model.name} knows: it has {theirs}, and {data.name!r} "
            f"has {len(own)}; choose data with its classes, or train it on these first (recipe plain)"
        )
    return own, True


def _named(data: Dataset) -> tuple[str, ...]:
    """The names of a data set's classes, or their numbers."""
    if data.classes:
        return data.classes
    labels = [s.label for s in data if s.label is not None]
    return tuple(str(i) for i in range(max(labels, default=-1) + 1))


def _parent(spec: Any, given: Model, model: TorchModel, new_head: bool) -> Parent:
    """What a training began with: the model as it was given, and as it reads the task's samples."""
    preprocess = model._preprocess if isinstance(model, VisionModel) else None
    return Parent(
        spec=str(spec) if isinstance(spec, str | Path) else "",
        name=model.name,
        identity=given.identity,
        architecture=network_architecture(model),
        modality=str(Modality(model.domain.modality)),  # type: ignore[arg-type]
        preprocess=None if preprocess is None else preprocess.record(),
        new_head=new_head,
    )
