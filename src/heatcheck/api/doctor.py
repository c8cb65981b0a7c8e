"""What will not work with a model, and why, before anything is run on it."""

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from heatcheck.core.types import HeatcheckError, Inputs, NotApplicable
from heatcheck.models.base import Model
from heatcheck.models.torch_model import TorchModel
from heatcheck.probe.answers import scalar
from heatcheck.probe.rules import Rules
from heatcheck.run.behaviour import look_like_probabilities, misbehaviours

Severity = Literal["note", "warning", "error"]

_ACTIVATIONS = (
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.ELU,
    nn.GELU,
    nn.SiLU,
    nn.Mish,
    nn.Hardswish,
    nn.Hardsigmoid,
    nn.Sigmoid,
    nn.Tanh,
    nn.Softplus,
)
_NAMES = "relu6?|gelu|silu|elu|leaky_relu|mish|hardswish|tanh|sigmoid|softplus"
_FUNCTIONAL = re.compile(rf"(?:\bF|functional|torch)\.(?:{_NAMES})_?\(|\.(?:relu|sigmoid|tanh)_?\(\)")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One fact about a model that changes what can be measured on it.

    Args:
        what: the fact.
        where: module paths or values that show it.
        consequence: what follows for methods and metrics.
        remedy: what to do about it; empty where nothing needs doing.
        severity: `note`, `warning` (something is skipped or may mislead) or `error` (nothing can be measured).
    """

    what: str
    where: str
    consequence: str
    remedy: str
    severity: Severity


def examine(model: Model, x: Inputs | None = None) -> list[Finding]:
    """Everything worth knowing about a model before a run.

    Args:
        model: who is examined; it is not changed.
        x: an input to try it on; without one, only what can be seen without running it is reported.
    """
    found = [*_preprocessing(model)]
    if isinstance(model, TorchModel):
        network = model.module()
        found += [*_as_given(model), *_in_place(network), *_functional(network), *_attention(model, network)]
    else:
        found += _black_box(model)
    return found if x is None else [*found, *_on_input(model, x.take(slice(0, 1)))]


def _on_input(model: Model, x: Inputs) -> Iterator[Finding]:
    try:
        with torch.inference_mode():
            logits = model.logits(x)
    except Exception as problem:  # whatever a foreign network raises is the finding
        failed = f"the model fails on an input: {type(problem).__name__}: {problem}"
        yield _finding(failed, str(dict(x.shape_key())), "nothing can be measured", "try the module on it", "error")
        return
    wrong = misbehaviours(model, [x])
    for m in wrong:
        yield _finding(m.what, model.name, "no number would mean anything: a run refuses the model", m.remedy, "error")
    if wrong:
        return
    yield from _chosen(model)
    yield from _outputs(logits)
    if isinstance(model, TorchModel):
        for look in (_reused, _operations, _spatial, _gradient):
            yield from look(model, x)


def _finding(what: str, where: str, consequence: str, remedy: str, severity: Severity = "warning") -> Finding:
    return Finding(what=what, where=where, consequence=consequence, remedy=remedy, severity=severity)


def _preprocessing(model: Model) -> Iterator[Finding]:
    if model.preprocessing is None:
        yield _finding(
            "no preprocessing is known",
            model.name,
            "only tensors that are ready for the model can be read; fills in pixel space (black, grey127) do not apply",
            'pass preprocess="imagenet" or hc.Preprocess(mean=…, std=…, size=…)',
        )


def _black_box(model: Model) -> Iterator[Finding]:
    yield _finding(
        "the model is a black box",
        model.name,
        "only methods that need nothing but outputs apply; its results are filed under its name, source and identity=",
        "pass the torch module for gradients, or identity= that changes whenever its answers do",
    )


def _as_given(model: TorchModel) -> Iterator[Finding]:
    given = model.as_given
    if given.training:
        yield _finding(
            "the module was in training mode",
            model.name,
            "a copy in evaluation mode is measured: no dropout, batch norm by its running statistics",
            "call .eval() before comparing with numbers of your own",
            "note",
        )
    if given.hooks:
        yield _finding(
            f"{given.hooks} hooks hang on the module",
            model.name,
            "the copy that is measured has none of them",
            "put what they compute into forward, if the answers depend on it",
        )


def _in_place(network: nn.Module) -> Iterator[Finding]:
    names = [n for n, m in network.named_modules() if getattr(m, "inplace", False) is True]
    if names:
        yield _finding(
            "activations work in place",
            _few(names),
            "nothing: methods that change the backward pass or look at a layer compute them out of place",
            "",
            "note",
        )


def _functional(network: nn.Module) -> Iterator[Finding]:
    """Modules without parts are left out: those that call a function are activations themselves."""
    holders = [(n, m) for n, m in network.named_modules() if any(True for _ in m.children())]
    names = [n or "the network" for n, m in holders if _calls_functional(type(m))]
    if names:
        yield _finding(
            "activations are called as functions",
            _few(names),
            "nothing: methods that change the backward pass see every operation, not modules",
            "",
            "note",
        )


def _calls_functional(cls: type) -> bool:
    if cls.__module__.startswith("torch."):
        return False
    try:
        return bool(_FUNCTIONAL.search(inspect.getsource(cls.forward)))  # type: ignore[attr-defined]
    except (OSError, TypeError, AttributeError):
        return False


def _attention(model: Model, network: nn.Module) -> Iterator[Finding]:
    fused = [path for path in model.attention_blocks() if _is_fused(network.get_submodule(path))]
    if fused:
        yield _finding(
            "attention is computed by a fused kernel",
            _few(fused),
            "methods that read attention compute it step by step, all others as the network does",
            "",
            "note",
        )


def _is_fused(block: nn.Module) -> bool:
    config: Any = getattr(block, "config", None)
    implementation = getattr(config, "_attn_implementation", None)
    return (
        isinstance(block, nn.MultiheadAttention)
        or bool(getattr(block, "fused_attn", False))
        or implementation not in (None, "eager")
    )


def _outputs(logits: Tensor) -> Iterator[Finding]:
    if not torch.isfinite(logits).all():
        bad = int((~torch.isfinite(logits)).sum())
        yield _finding(
            "outputs are not finite",
            f"{bad} of {logits.numel()} class scores",
            "samples with such outputs cannot be scored",
            "check weights, preprocessing and precision",
            "error",
        )
    elif look_like_probabilities(logits):
        yield _finding(
            "outputs look like probabilities",
            "they are not negative and add up to 1",
            "a softmax inside the model is taken for logits: output=prob applies a second one, gradients saturate",
            "return the scores before the softmax",
        )


def _chosen(model: Model) -> Iterator[Finding]:
    """What had to be guessed or chosen about the model, once it has answered."""
    for note in model.notes:
        yield _finding(
            note, model.name, "all numbers depend on it", "pass preprocess= or output= where it is wrong", "note"
        )


def _reused(model: TorchModel, x: Inputs) -> Iterator[Finding]:
    calls: Counter[str] = Counter()
    watched = [(n, m) for n, m in model.module().named_modules() if isinstance(m, _ACTIVATIONS)]
    handles = [m.register_forward_hook(lambda *_, name=n: calls.update([name])) for n, m in watched]
    try:
        with torch.inference_mode():
            model.logits(x)
    finally:
        for handle in handles:
            handle.remove()
    again = [f"{name} ({n} times)" for name, n in calls.items() if n > 1]
    if again:
        yield _finding(
            "an activation module is used more than once in a pass",
            _few(again),
            "nothing: every use is an operation of its own",
            "",
            "note",
        )


class _Inventory(Rules):
    """Notes the operations that have no rule, and activations that follow one another directly."""

    def __init__(self) -> None:
        super().__init__()
        self.without_rule: Counter[str] = Counter()
        self.adjacent: Counter[str] = Counter()
        self._last: tuple[str, Tensor] | None = None

    def unknown(self, name: str) -> None:
        self.without_rule[name] += 1

    def activation(self, name: str, x: Tensor, apply: Callable[[Tensor], Tensor]) -> Tensor:
        out = super().activation(name, x, apply)
        if self._last is not None and x is self._last[1]:
            self.adjacent[f"{self._last[0]}, {name}"] += 1
        self._last = name, out
        return out


def _operations(model: TorchModel, x: Inputs) -> Iterator[Finding]:
    """What the network does, operation by operation, and whether it can be followed at all."""
    leaf = model.domain.leaf(x).detach().requires_grad_()
    seen = _Inventory()
    with torch.enable_grad():
        plain = model.logits(model.domain.with_leaf(x, leaf)).detach()
        try:
            with seen:
                followed = model.logits(model.domain.with_leaf(x, leaf)).detach()
        except Exception as problem:  # whatever a foreign network raises is the finding
            yield _finding(
                "the network does not run operation by operation",
                str(problem).splitlines()[0],
                "guided backpropagation, DeepLIFT, FullGrad, relevance and attention methods are skipped",
                "",
            )
            return
    if not torch.allclose(plain, followed, rtol=1e-3, atol=1e-4):
        yield _finding(
            "a result is written in place and not returned",
            model.name,
            "guided backpropagation, DeepLIFT, FullGrad, relevance and attention methods are skipped",
            "use what in-place operations return",
        )
    if seen.without_rule:
        yield _finding(
            "operations without a rule of their own",
            _few([f"{name} ({n} times)" for name, n in seen.without_rule.items()]),
            "guided backpropagation, DeepLIFT, FullGrad and relevance methods are skipped",
            "",
        )
    if seen.adjacent:
        yield _finding(
            "activations follow one another directly",
            _few([f"{pair} ({n} times)" for pair, n in seen.adjacent.items()]),
            "nothing: each has a rule of its own",
            "",
            "note",
        )


def _spatial(model: TorchModel, x: Inputs) -> Iterator[Finding]:
    try:
        layers = model.layers(x)
    except NotApplicable as reason:
        yield _finding("there is no spatial layer", str(reason), "class activation maps are skipped", "", "note")
        return
    if not layers:
        yield _finding(
            "there is no spatial layer",
            model.name,
            "no module gives a feature map [channels, height, width]: class activation maps are skipped",
            "make the last feature map the output of a module",
        )


def _gradient(model: TorchModel, x: Inputs) -> Iterator[Finding]:
    leaf = model.domain.leaf(x).detach().requires_grad_()
    try:
        with torch.enable_grad():
            out = scalar(model.logits(model.domain.with_leaf(x, leaf)), torch.zeros(1, dtype=torch.long), "logit")
            (slope,) = torch.autograd.grad(out.sum(), leaf)
    except (RuntimeError, HeatcheckError) as problem:
        yield _finding(
            "gradients do not reach the input",
            str(problem).splitlines()[0],
            "gradient methods fail; those that need nothing but outputs apply",
            "remove detach(), no_grad() and operations without a derivative from forward",
        )
        return
    if not slope.any():
        yield _finding(
            "the gradient is zero everywhere",
            "class 0, first input",
            "gradient methods give empty maps",
            "look for saturated or rounded outputs",
        )


def _few(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
