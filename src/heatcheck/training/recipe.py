"""Recipes: how a network is trained, as data.

A recipe is a TOML file in `recipes/` with a paper's values. A variant in the same file changes some of them, and what a
user sets changes them last.
"""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from heatcheck.core import toml
from heatcheck.core.papers import references
from heatcheck.core.spec import SpecError, suggest

FOLDER = Path(__file__).parent / "recipes"
FACTS = ("about", "paper", "variant")
"""What a recipe's file says beside its settings."""


class Recipe(BaseModel):
    """How a network is trained; every field but the first four is a setting that `--set` can change.

    Args:
        id: its name everywhere.
        variant: which variant of it; empty for the paper's own values.
        about: what it is for, in a line.
        paper: where the values come from.
        task: what is taught: `labels`, `squares`, `birds`, `texts` or `masked` pictures.
        start: `pretrained` goes on from the model's weights, `scratch` draws them anew.
        epochs: passes over the samples.
        batch: samples per step of the optimizer.
        samples: how many samples to learn from, chosen by the seed; all if 0.
        judged: how many held-out samples to judge it by, likewise.
        seed: of weights, order and augmentation.
        optimizer: `sgd` (with momentum), `adam` or `adamw`.
        lr: the highest learning rate.
        momentum: of `sgd`.
        nesterov: whether `sgd` looks ahead.
        weight_decay: of weights.
        decay: `all` parameters, or `weights` alone: neither biases nor normalisation.
        schedule: `constant`, `step` (times `gamma` every `step` epochs), `linear` or `cosine` (down to 0).
        step: epochs between two steps.
        gamma: the factor of a step.
        warmup: the share of all steps in which the rate rises linearly.
        clip: the largest norm of the gradient; 0 for any.
        loss: `cross_entropy`, or `bce`: binary cross-entropy with one-hot labels.
        norm: batch statistics are learnt (`train`) or stay as they are (`frozen`), for batches too small to have any.
        layers: of a transformer, how many of the last ones learn, with what lies behind them; all if 0.
        dropout: whether dropout is on.
        augment: `none` (the model's own preprocessing), `resized_crop`, `crop` (of the scaled picture) or `pad_crop`
            (of the picture padded by an eighth).
        scale: the smallest share of the picture that `resized_crop` keeps.
        flip: whether half the pictures are mirrored.
        delete: the probability that one cell of the grid is deleted.
        grid: cells per side.
        fill: what replaces the cell.
        square: the probability that a picture carries a yellow square.
        remove: the probability that parts of a bird are removed.
        level: percent of each picture that is replaced.
        keep_top: whether the highest of a map is kept and the rest replaced, not the other way round.
        granularity: what is ranked and replaced: a `pixel` at a time, or each `scalar` of its three.
        masks_only: whether the network sees which pixels are left, and nothing of the picture.
        tokens: the longest text.
        choose: the weights of the `best` epoch on held-out samples, or of the `last`.
        precision: `fp32`, or mixed with `bf16` or `fp16`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    variant: str = ""
    about: str
    paper: str = ""
    task: Literal["labels", "squares", "birds", "texts", "masked"]
    start: Literal["pretrained", "scratch"]
    epochs: int = Field(ge=1)
    batch: int = Field(ge=1)
    samples: int = Field(default=0, ge=0)
    judged: int = Field(default=0, ge=0)
    seed: int = Field(default=0, ge=0)
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: float = Field(gt=0, allow_inf_nan=False)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    nesterov: bool = False
    weight_decay: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    decay: Literal["all", "weights"] = "all"
    schedule: Literal["constant", "step", "linear", "cosine"] = "constant"
    step: int = Field(default=10, ge=1)
    gamma: float = Field(default=0.1, gt=0)
    warmup: float = Field(default=0.0, ge=0, lt=1)
    clip: float = Field(default=0.0, ge=0)
    loss: Literal["cross_entropy", "bce"] = "cross_entropy"
    norm: Literal["train", "frozen"] = "train"
    layers: int = Field(default=0, ge=0)
    dropout: bool = True
    augment: Literal["none", "resized_crop", "crop", "pad_crop"] = "none"
    scale: float = Field(default=0.08, gt=0, le=1)
    flip: bool = False
    delete: float = Field(default=0.0, ge=0, le=1)
    grid: int = Field(default=4, ge=1)
    fill: str = "zero"
    square: float = Field(default=0.5, ge=0, le=1)
    remove: float = Field(default=0.0, ge=0, le=1)
    level: float = Field(default=0.0, ge=0, le=100)
    keep_top: bool = False
    granularity: Literal["pixel", "scalar"] = "pixel"
    masks_only: bool = False
    tokens: int = Field(default=512, ge=8)
    choose: Literal["best", "last"] = "best"
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"

    @property
    def name(self) -> str:
        """The recipe with its variant, as people write it."""
        return f"{self.id} ({self.variant})" if self.variant else self.id

    def settings(self) -> dict[str, Any]:
        """Everything that decides what is learnt, as plain data."""
        return {k: v for k, v in self.model_dump().items() if k not in ("id", "variant", "about", "paper")}

    def record(self) -> dict[str, Any]:
        """What `heatcheck list recipes` shows."""
        cited = references(self.paper) if self.paper else []
        return {**self.model_dump(), "paper": cited, "variants": sorted(_read(self.id).get("variant", {}))}


def recipes() -> list[str]:
    """The recipes there are."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def variants(id: str) -> list[str]:
    """The variants of a recipe."""
    return sorted(_read(id).get("variant", {}))


def load_recipe(id: str, variant: str = "", changes: Mapping[str, Any] | None = None) -> Recipe:
    """A recipe by name, with what a variant and then a user change.

    >>> load_recipe("align", changes={"lr": 0.01}).lr
    0.01

    Raises:
        SpecError: there is no such recipe, variant or setting, or a value is not possible.
    """
    if id not in recipes():
        raise SpecError(f"no recipe is called {id!r}{suggest(id, recipes())}")
    said = _read(id)
    known = said.pop("variant", {})
    if variant and variant not in known:
        raise SpecError(f"recipe {id} has no variant {variant!r}{suggest(variant, known) or ': it has none'}")
    chosen = known.get(variant, {})
    names = [name for name in Recipe.model_fields if name not in ("id", *FACTS)]
    for name in changes or {}:
        if name not in names:
            raise SpecError(f"recipe {id} has no setting {name!r}{suggest(name, names)}")
    try:
        return Recipe.model_validate({"id": id, "variant": variant, **said, **chosen, **(changes or {})})
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        why = f"{first['msg'][:1].lower()}{first['msg'][1:]}"
        raise SpecError(f"recipe {id}: {where} cannot be {first.get('input')!r}: {why}") from problem


def usual(setting: str) -> Any:
    """A setting's value where nobody says anything: what trainings of earlier releases had, which did not know it."""
    return Recipe.model_fields[setting].default


def parse_changes(written: Sequence[str]) -> dict[str, Any]:
    """Settings as users write them: `lr=0.01`, `fill=blur`.

    >>> parse_changes(["lr=0.01", "fill=blur", "flip=true"])
    {'lr': 0.01, 'fill': 'blur', 'flip': True}

    Raises:
        SpecError: one is not of that form, or given twice.
    """
    changes: dict[str, Any] = {}
    for text in written:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name or not value:
            raise SpecError(f"--set {text!r} is not of the form name=value, such as lr=0.01")
        if name in changes:
            raise SpecError(f"--set gives {name} twice")
        try:
            changes[name] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            changes[name] = value
    return changes


def _read(id: str) -> dict[str, Any]:
    return dict(toml.read(FOLDER / f"{id}.toml").values)
