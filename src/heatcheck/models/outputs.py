"""What is taken from a network's output: class scores, or one number per input."""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from heatcheck.core.identity import digest
from heatcheck.core.plugins import load_plugin
from heatcheck.core.spec import SpecError
from heatcheck.core.types import HeatcheckError
from heatcheck.models.functions import facts_of
from heatcheck.models.targets import column_of, function_of

_OWN_NUMBER = "target=lambda output: … makes one number per input of it"


@dataclass(frozen=True)
class Number:
    """A number per input, made of a network's output, that is explained in the place of a class score.

    Args:
        name: what tables call it.
        written: how the target was written; for a function of this process, its name and digest.
        make: from the output to the number, `[n]` or `[n, 1]`.
        column: the column of the class scores that is taken, where nothing else is done.
        facts: what decides its values, as plain data; part of the model's identity.
    """

    name: str
    written: str
    make: Callable[[Any], Any]
    facts: Any
    column: int | None = None

    def __call__(self, out: Any, n: int) -> Float[Tensor, "n 1"]:
        """The number of each of `n` inputs."""
        found = self._made(out, n)
        if isinstance(found, Tensor) and found.is_floating_point() and _is_column(found, n):
            return found.reshape(-1, 1)
        shape = f"{found.dtype} {_shape(found, n)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
        raise HeatcheckError(
            f"target={self.written} gave {shape} for n inputs; it must give a floating point tensor [n], one number "
            f"for each; it got {described(out, n)}"
        )

    def _made(self, out: Any, n: int) -> Any:
        try:
            return self.make(out)
        except (HeatcheckError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as problem:
            raise HeatcheckError(
                f"target={self.written} raised {type(problem).__name__}: {problem}; it got {described(out, n)}"
            ) from problem


def as_number(target: Any) -> Number | None:
    """The number that a target makes of the output: a function, `column:N` or `FILE.py:FUNCTION`; None for a class."""
    if isinstance(target, Number):
        return target
    if (column := column_of(target)) is not None:
        return Number(f"column {column}", str(target), functools.partial(_column, column), {"column": column}, column)
    if (named := function_of(target)) is not None:
        file, name = named
        function = getattr(load_plugin(file), name, None)
        if not callable(function):
            raise SpecError(f"target {target!r}: there is no function {name!r} in {file!r}")
        return Number(name, str(target), function, {"function": facts_of(function)})
    if callable(target) and not isinstance(target, Tensor):
        facts = {"function": facts_of(target)}
        name = str(getattr(target, "__name__", type(target).__name__))
        written = f"function {name} ({digest(facts)[:6]})"
        return Number("target" if name == "<lambda>" else name, written, target, facts)
    return None


def _column(column: int, scores: Tensor) -> Tensor:
    if column >= scores.shape[1]:
        raise HeatcheckError(
            f"target=column:{column} is not in an output of {scores.shape[1]} columns, 0 to {scores.shape[1] - 1}"
        )
    return scores[:, column]


@dataclass(frozen=True)
class Readout:
    """What is taken from a network's output.

    Args:
        output: the key, attribute or position of the part that holds the class scores, nested ones joined by dots;
            None where the output says it itself.
        number: what is made of it; None where class scores are explained.
        multi_label: whether each score is a label of its own, which holds or not whatever the others.
    """

    output: str | int | None = None
    number: Number | None = None
    multi_label: bool = False

    def record(self) -> dict[str, Any]:
        """What decides the scores and what is read from them, as plain data; empty where nothing was said."""
        said: dict[str, Any] = {"output": None if self.output is None else str(self.output)}
        said["target"] = self.number.facts if self.number else None
        said["labels"] = "independent" if self.multi_label and self.number is None else None
        return {key: value for key, value in said.items() if value is not None}

    def scores(self, out: Any, n: int) -> tuple[Float[Tensor, "n c"], str | None]:
        """The scores of `n` inputs, and a sentence where they had to be chosen.

        Raises:
            HeatcheckError: it is not clear which part holds them; lists the parts with their shapes.
        """
        part = out if self.output is None else _part(out, str(self.output), n)
        if self.number is not None and self.number.column is None:
            return self.number(part, n), None
        found, note = _chosen(part, n)
        return (self.number(found, n) if self.number else found), note


def says_multi_label(network: Any) -> bool:
    """Whether a network of transformers states that several labels may hold at once."""
    return getattr(getattr(network, "config", None), "problem_type", None) == "multi_label_classification"


def _chosen(out: Any, n: int) -> tuple[Float[Tensor, "n c"], str | None]:
    if isinstance(out, Tensor):
        return _as_scores(out, n), None
    parts = dict(_leaves(out))
    if "logits" in parts and parts["logits"].ndim == 2:
        return _as_scores(parts["logits"], n), None
    real = {path: t for path, t in parts.items() if t.is_floating_point()}
    usable = {path: t for path, t in real.items() if t.ndim == 2 and len(t) == n}
    usable = usable or {path: t for path, t in real.items() if t.shape == (n,)}
    usable = usable or {path: t for path, t in real.items() if t.ndim in (1, 2) and _has_rows(t, n)}
    if len(usable) == 1:
        ((path, tensor),) = usable.items()
        note = f"of the outputs {described(out, n)}, {path!r} is taken" if len(parts) > 1 else None
        return _as_scores(tensor, n), note
    if not usable:
        raise HeatcheckError(f"the output holds no tensor [n, classes] or [n]: {described(out, n)}; {_OWN_NUMBER}")
    first = next(iter(usable))
    raise HeatcheckError(
        f"the output holds {len(usable)} tensors that could be class scores: {described(out, n)}; say which, such as "
        f"output={int(first) if first.isdigit() else first!r}"
    )


def _as_scores(out: Tensor, n: int) -> Float[Tensor, "n c"]:
    """Class scores `[n, c]`; one number per input, `[n]`, is a column."""
    if out.ndim == 1 and _has_rows(out, n):
        return out[:, None]
    if out.ndim != 2 or not _has_rows(out, n) or not out.shape[1]:
        raise HeatcheckError(
            f"the output is {list(out.shape)} for {n} input{'' if n == 1 else 's'}; class scores are a tensor "
            f"[n, classes], a regression gives [n] or [n, 1]; {_OWN_NUMBER}"
        )
    return out


def _is_column(t: Tensor, n: int) -> bool:
    return t.ndim in (1, 2) and t.numel() == len(t) and _has_rows(t, n)


def _has_rows(t: Tensor, n: int) -> bool:
    """Whether a tensor has a row per input, or several: DeepLIFT and Ablation-CAM run copies side by side."""
    return len(t) > 0 and len(t) % n == 0


def _part(out: Any, path: str, n: int) -> Any:
    """The part of an output at a path; keys may hold dots themselves."""
    children = _children(out)
    if path in children:
        return children[path]
    head, _, rest = path.partition(".")
    if rest and head in children:
        return _part(children[head], rest, n)
    raise HeatcheckError(f"output={path!r} is not in what the model returns: {described(out, n)}")


def _children(out: Any) -> dict[str, Any]:
    """What a container holds, by key, attribute or position; empty for anything else."""
    if isinstance(out, Mapping):
        return {str(key): value for key, value in out.items()}
    if hasattr(out, "_fields"):
        return dict(zip(out._fields, out, strict=True))
    if isinstance(out, tuple | list):
        return {str(i): value for i, value in enumerate(out)}
    if is_dataclass(out) and not isinstance(out, type):
        return {f.name: getattr(out, f.name) for f in fields(out)}
    if isinstance(out, Tensor | np.ndarray | str | int | float) or out is None:
        return {}
    return {key: value for key, value in getattr(out, "__dict__", {}).items() if not key.startswith("_")}


def _leaves(out: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor in an output, with its path."""
    if isinstance(out, Tensor | np.ndarray):
        yield path, out if isinstance(out, Tensor) else torch.as_tensor(out)
    else:
        for key, value in _children(out).items():
            yield from _leaves(value, f"{path}.{key}" if path else key)


def described(out: Any, n: int) -> str:
    """The tensors of an output for `n` inputs with their shapes, for a sentence."""
    if isinstance(out, Tensor):
        return f"a tensor {_shape(out, n)}"
    found = [f"{path!r} {_shape(tensor, n)}" for path, tensor in _leaves(out)]
    return ", ".join(found) if found else f"a {type(out).__name__} without tensors"


def _shape(tensor: Tensor, n: int) -> str:
    sides = ["n" if i == 0 and side == n else str(side) for i, side in enumerate(tensor.shape)]
    return f"[{', '.join(sides)}]"
