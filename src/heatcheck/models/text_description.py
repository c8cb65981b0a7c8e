"""What a text classifier is beside its weights: a folder with its configuration, class names and tokenizer."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from heatcheck.core.types import HeatcheckError
from heatcheck.models.hubs import class_names
from heatcheck.models.request import Request
from heatcheck.models.text import TextModel
from heatcheck.models.vision_shim import load_transformers
from heatcheck.models.weights import fill_network

DESCRIPTION = "hf"
"""The folder of a training that holds the description."""


def describe(network: Any, tokenizer: Any, classes: Sequence[str], folder: Path) -> None:
    """Write what `described` reads, in the files that transformers writes, without weights."""
    config = copy.deepcopy(network.config)
    set_classes(config, classes)
    config.architectures = [type(network).__name__]
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def set_classes(config: Any, classes: Sequence[str]) -> None:
    """Write class names into a configuration of transformers, of which one excludes the others."""
    config.problem_type = "single_label_classification"
    config.id2label = dict(enumerate(classes))
    config.label2id = {name: i for i, name in enumerate(classes)}


def described(folder: Path, weights: Mapping[str, Tensor], source: str, request: Request) -> TextModel:
    """The classifier that a folder describes, with weights from elsewhere.

    Args:
        folder: its description.
        weights: all its tensors by name.
        source: where these are, for messages.
        request: what a user says about the model.

    Raises:
        HeatcheckError: the description is missing or damaged, or the weights are of another network.
    """
    transformers = load_transformers(f"model {request.name}")
    here = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = transformers.AutoConfig.from_pretrained(folder, **here)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **here)
        network = transformers.AutoModelForSequenceClassification.from_config(config, attn_implementation="eager")
    except Exception as problem:
        why = str(problem).strip().partition("\n")[0]
        raise HeatcheckError(f"{folder} describes no text classifier: {type(problem).__name__}: {why}") from problem
    fill_network(network, weights, source)
    model = TextModel(
        network, tokenizer, request.name, classes=request.classes or class_names(config), tokens=request.tokens
    )
    model.check()
    return model
