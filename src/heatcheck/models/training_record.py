"""The record of a training: what made a model, in the folder beside its weights."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from heatcheck.core.files import as_json, read_patiently, write_atomically
from heatcheck.core.spec import suggest
from heatcheck.core.types import HeatcheckError
from heatcheck.models.catalogue import full_spec
from heatcheck.models.file_names import RECORD, TRAINED

WEIGHTS, LAST, KEPT = "weights.safetensors", "last.safetensors", "checkpoints"
"""A training's files beside its record: the chosen weights, the last state, the folder of weights kept along the way."""

CHOSEN = "chosen"
"""The checkpoint in `Model.trained` that stands for the chosen weights."""

ALL = "*"
"""The checkpoint in a spec that stands for all of them, each a model of its own."""

OF_NETWORK = "network/"
"""What the names of the network's tensors begin with in a file that holds the optimizer's, too."""


class Kept(BaseModel):
    """Weights that were kept along a training.

    Args:
        name: how they are named after `trained:FOLDER@`.
        step: steps of the optimizer before them.
        epoch: epochs before them, in parts.
        accuracy: on held-out samples, where known.
    """

    name: str
    step: int
    epoch: float
    accuracy: float | None = None


class Parent(BaseModel):
    """The model that a training began with.

    Args:
        spec: how to load it; empty for an object that only its program has.
        name: what tables called it.
        identity: the digest of its weights, architecture and preprocessing.
        architecture: the digest of its architecture, whatever its weights and its number of classes.
        modality: what it reads.
        preprocess: what was done to pictures, where the user said so.
        new_head: whether its last layer was replaced for other classes.
    """

    spec: str
    name: str
    identity: str
    architecture: str
    modality: Literal["image", "text"]
    preprocess: dict[str, Any] | None = None
    new_head: bool = False


class TrainingRecord(BaseModel):
    """What is known about a training; `training.json` in its folder.

    Args:
        recipe: its recipe.
        variant: which variant of it.
        settings: everything the recipe decides, as it was used.
        parent: the model that it began with.
        classes: class names.
        data: the spec of the samples that were learnt from.
        held_out: the spec of those that were not.
        samples: how many were learnt from.
        held_out_samples: how many were not.
        data_identity: digest of all of them.
        numerics: device, threads, precision and versions that decide its last bits.
        steps: steps of the optimizer in all.
        accuracy: on held-out samples: `before` training, at the `last` epoch, and of the `chosen` weights.
        chosen: the epoch whose weights were chosen, in parts.
        kept: weights that were kept along the way.
        marks: what a reader must know, such as a batch that had to be divided.
        finished: whether it is over.
    """

    model_config = ConfigDict(extra="allow")

    heatcheck: str
    recipe: str
    variant: str = ""
    settings: dict[str, Any]
    parent: Parent
    classes: list[str]
    data: str
    held_out: str
    samples: int = Field(ge=1)
    held_out_samples: int = Field(ge=0)
    data_identity: str
    numerics: dict[str, Any]
    steps: int = Field(ge=1)
    accuracy: dict[str, float] = Field(default_factory=dict)
    chosen: float | None = None
    kept: list[Kept] = Field(default_factory=list)
    marks: list[str] = Field(default_factory=list)
    finished: bool = False

    @property
    def aligned(self) -> Mapping[str, Any] | None:
        """Grid and fill of the single deletions that the model was trained to bear; None where it was not."""
        if not self.settings.get("delete"):
            return None
        return {"grid": self.settings["grid"], "fill": self.settings["fill"]}

    def write(self, folder: Path) -> None:
        """Keep it in the training's folder."""
        write_atomically(folder / RECORD, as_json(self.model_dump()))

    @classmethod
    def read(cls, folder: Path) -> "TrainingRecord":
        """The record of a training's folder.

        Raises:
            HeatcheckError: there is none, or it is damaged.
        """
        path = folder / RECORD
        try:
            return cls.model_validate(json.loads(read_patiently(path, Path.read_bytes)))
        except FileNotFoundError:
            near = suggest(folder.name, (p.name for p in folder.parent.iterdir())) if folder.parent.is_dir() else ""
            raise HeatcheckError(
                f"{str(folder)!r} holds no training: there is no {RECORD}{near if 'did you mean' in near else ''}"
            ) from None
        except (ValueError, ValidationError) as problem:
            raise HeatcheckError(f"{path} is damaged: {str(problem).splitlines()[0]}") from problem


def every_checkpoint(spec: str) -> list[str]:
    """The models that a spec stands for: all weights that a training kept, in order, for `trained:FOLDER@*`; else itself.

    Raises:
        HeatcheckError: the folder holds no training, or one that kept none.
    """
    folder, at, wanted = full_spec(spec).partition("@")
    if wanted != ALL or not folder.startswith(TRAINED):
        return [spec]
    record = TrainingRecord.read(Path(folder.removeprefix(TRAINED)).expanduser())
    if not record.kept:
        raise HeatcheckError(
            f"{spec}: the training kept no checkpoints; train into another folder with --keep 10, or write {folder} for "
            "its chosen weights"
        )
    return [f"{folder}{at}{kept.name}" for kept in sorted(record.kept, key=lambda kept: kept.step)]


def reached(trained: Mapping[str, Any]) -> dict[str, Any] | None:
    """Step, epoch and accuracy of weights that were kept along a training; None where a model has others.

    Args:
        trained: what `Model.trained` holds, or what a run's record keeps of it.
    """
    if "reached" in trained:
        return dict(trained["reached"]) if trained["reached"] else None
    found = (kept for kept in trained.get("kept", ()) if kept["name"] == trained.get("checkpoint"))
    return next(({name: kept[name] for name in ("step", "epoch", "accuracy")} for kept in found), None)


def _when(trained: Mapping[str, Any]) -> str:
    at = reached(trained)
    if at is None:
        return "along the way"
    known = "" if at["accuracy"] is None else f", with an accuracy of {at['accuracy']:.1%}"
    return f"after epoch {at['epoch']:.3g}{known}"


def told(trained: Mapping[str, Any]) -> list[str]:
    """How a model came about, in sentences: what `Model.trained` holds, or what a run's record keeps of it."""
    parent, accuracy = trained["parent"], trained["accuracy"]
    variant = f" ({trained['variant']})" if trained["variant"] else ""
    lines = [
        f"Trained from {parent['name']} (identity {parent['identity'][:12]}) by recipe {trained['recipe']}{variant} with "
        f"seed {trained['settings']['seed']}, on {trained['samples']:,} samples of {trained['data']}."
    ]
    settings = trained["settings"]
    if settings.get("delete"):
        lines.append(
            f"Of {settings['delete']:.0%} of the pictures it saw, one cell of grid({settings['grid']}) was replaced with "
            f"{settings['fill']}."
        )
    if "chosen" in accuracy:
        held_out = f"{trained['held_out_samples']:,} held-out samples of {trained['held_out']}"
        before = f", {accuracy['before']:.1%} before" if "before" in accuracy else ""
        lines.append(f"Accuracy on {held_out}: {accuracy['chosen']:.1%} after epoch {trained['chosen']:g}{before}.")
    if trained.get("checkpoint", CHOSEN) != CHOSEN:
        lines.append(f"These are its weights {trained['checkpoint']}, kept {_when(trained)}, not the chosen ones.")
    return [*lines, *trained["marks"]]
