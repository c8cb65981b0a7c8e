"""Other derivatives for a network's operations, whoever calls them.

Guided backpropagation, DeepLIFT and relevance propagation change what an operation passes back; attention methods
look at what passes between operations. Hooks on modules miss functional calls, sums and fused attention, and mix up
modules that are called twice. `Rules` sees every operation that torch runs, so none of that matters, and the network
itself is not touched.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from heatcheck.core.types import NotApplicable


def words(text: str) -> frozenset[str]:
    """The words of a text, as a set of names."""
    return frozenset(text.split())


ACTIVATIONS = words(
    "relu relu6 hardtanh leaky_relu prelu elu selu celu gelu silu mish hardswish hardsigmoid sigmoid logsigmoid tanh "
    "softplus softsign exp log sqrt rsqrt square pow reciprocal abs clamp clamp_min clamp_max erf sin cos threshold"
)
"""Operations on each number by itself."""

_RENAMED = {
    "iadd": "add",
    "radd": "add",
    "isub": "sub",
    "imul": "mul",
    "rmul": "mul",
    "multiply": "mul",
    "truediv": "div",
    "itruediv": "div",
    "divide": "div",
    "true_divide": "div",
    "rtruediv": "rdiv",
    "rdiv": "rdiv",
    "subtract": "sub",
    "ipow": "pow",
    "rmatmul": "rmatmul",
    "bmm": "matmul",
    "mm": "matmul",
    "special_softmax": "softmax",
    "linalg_vector_norm": "vector_norm",
}

_LINEAR = words(
    "flatten unflatten reshape view view_as reshape_as permute transpose swapaxes t movedim contiguous to type type_as "
    "float double half bfloat16 expand expand_as squeeze unsqueeze cat concat concatenate stack split chunk unbind "
    "tensor_split hsplit getitem narrow select index_select gather take_along_dim roll flip pad mean sum avg_pool1d "
    "avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d clone detach neg negative get "
    "unfold fold pixel_shuffle pixel_unshuffle interpolate upsample masked_fill where repeat repeat_interleave tile "
    "rot90 identity alias lift_fresh conj requires_grad register_hook retain_grad cumsum embedding "
    "zero_pad2d constant_pad_nd"
)
"""Operations that are linear in what depends on the input, or only move it: ordinary derivatives are right."""

_AFFINE = words("conv1d conv2d conv3d linear conv_transpose1d conv_transpose2d conv_transpose3d")
_BILINEAR = words("einsum inner dot mv tensordot")
"""Products of several tensors: linear where only one of them depends on the input."""
_SILENT = words("setitem copy index_put scatter index_add fill index_copy masked_scatter")
"""Operations that write into a tensor, unseen by whoever holds it."""


class Rules(TorchFunctionMode):
    """While inside, every operation on what depends on the input goes through one of the methods below.

    Here they all compute what torch computes; subclasses override those whose derivative they change, or which they
    watch. Operations never work in place. An operation that is not known raises `NotApplicable` unless `strict` is
    off: a rule that was not applied would give a wrong map.
    """

    strict = True
    graphs: ClassVar[int] = 1
    """How many graphs of a plain pass the graph of one input takes, about: calls have as many rows fewer."""

    # -- what a subclass may change -------------------------------------------------------------------------

    def affine(self, op: Callable[..., Tensor], x: Tensor, weight: Tensor, bias: Tensor | None, **how: Any) -> Tensor:
        """A convolution or linear layer: `op(x, weight, bias, **how)`."""
        return op(x, weight, bias, **how)

    def scaled(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """Fixed scales and shifts, shaped for `x`: batch norm by running statistics, the end of layer norm."""
        return torch.addcmul(shift, x, scale)

    def activation(self, name: str, x: Tensor, apply: Callable[[Tensor], Tensor]) -> Tensor:
        """A function of each number by itself."""
        return apply(x)

    def max_pool(self, x: Tensor, pool: Callable[[Tensor], Tensor]) -> Tensor:
        """A maximum over windows."""
        return pool(x)

    def add(self, a: Any, b: Any) -> Tensor:
        """A sum; residual joins are sums of two tensors that both depend on the input."""
        out: Tensor = a + b
        return out

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """A product, number by number, of two tensors that both depend on the input."""
        return torch.mul(a, b)

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """A matrix product of two tensors that both depend on the input."""
        return torch.matmul(a, b)

    def softmax(self, x: Tensor, dim: int) -> Tensor:
        """A softmax over one axis."""
        return torch.softmax(x, dim)

    def normalise(self, x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
        """Subtract the mean over `dims` and divide by the deviation; scale and shift are applied afterwards."""
        variance, mean = torch.var_mean(x, dims, correction=0, keepdim=True)
        return (x - mean) * torch.rsqrt(variance + eps)

    def length(self, x: Tensor, order: float, dims: tuple[int, ...], least: float) -> Tensor:
        """The norm of the vectors along `dims`, which stay as axes of length 1; shorter ones count as `least`."""
        out: Tensor = torch.linalg.vector_norm(x, order, dims, keepdim=True).clamp_min(least)
        return out

    def attention(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
        """Attention, step by step, so that the rules of its steps apply; called while the rules are on."""
        scores = torch.matmul(q * scale, k.transpose(-2, -1))
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
        return torch.matmul(scores.softmax(-1), v)

    def unknown(self, name: str) -> None:
        """An operation whose right rule is not known."""
        raise NotApplicable(
            f"has no rule for the operation {name!r} in this network; try integrated_gradients or input_x_gradient"
        )

    # -- the road of an operation to its method ---------------------------------------------------------------

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not _depend((args, kwargs)):
            return func(*args, **kwargs)
        name = operation(func)
        handler = _HANDLERS.get(name)
        if handler is not None:
            return handler(self, func, args, kwargs)
        if name in ACTIVATIONS:
            return _activation(self, name, func, args, kwargs)
        out = func(*args, **kwargs)
        if self.strict and name not in _LINEAR and (name in _SILENT or _depend(out)):
            self.unknown(name)
        return out


def operation(func: Any) -> str:
    """One name for all the ways to call an operation: method, function, operator, in place."""
    name = getattr(func, "__name__", type(func).__name__)
    bare: str = name.strip("_")
    return _RENAMED.get(bare, bare)


def depends(value: Any) -> bool:
    """Whether a value is a tensor that depends on the input."""
    return isinstance(value, Tensor) and value.requires_grad


def _depend(value: Any) -> bool:
    return any(v.requires_grad for v in _tensors(value))


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for part in value:
            yield from _tensors(part)


def _bound(names: str, args: Any, kwargs: Any, defaults: dict[str, Any]) -> dict[str, Any]:
    """Positional and named arguments under their names."""
    return {**defaults, **dict(zip(names.split(), args, strict=False)), **kwargs}


def _affine(rules: Rules, func: Any, args: Any, kwargs: Any) -> Tensor:
    names = "input weight bias" if operation(func) == "linear" else _CONV_ARGS[operation(func).startswith("conv_t")]
    given = _bound(names, args, kwargs, {"bias": None})
    x, weight, bias = given.pop("input"), given.pop("weight"), given.pop("bias")
    if depends(weight):
        rules.unknown(f"{operation(func)} with weights that depend on the input")
    return rules.affine(func, x, weight, bias, **given)


_CONV_ARGS = (
    "input weight bias stride padding dilation groups",
    "input weight bias stride padding output_padding groups dilation",
)


def _batch_norm(rules: Rules, func: Any, args: Any, kwargs: Any) -> Tensor:
    names = "input running_mean running_var weight bias training momentum eps"
    given = _bound(names, args, kwargs, {"weight": None, "bias": None, "training": False, "eps": 1e-5})
    if given["training"] or given["running_mean"] is None:
        rules.unknown("batch_norm by the statistics of the batch")
    x, mean = given["input"], given["running_mean"]
    scale = torch.rsqrt(given["running_var"] + given["eps"])
    if given["weight"] is not None:
        scale = scale * given["weight"]
    shift = -mean * scale if given["bias"] is None else given["bias"] - mean * scale
    shape = [1, -1, *[1] * (x.ndim - 2)]
    return rules.scaled(x, scale.reshape(shape), shift.reshape(shape))


def _activation(rules: Rules, name: str, func: Any, args: Any, kwargs: Any) -> Tensor:
    plain = _out_of_place(name, func)
    how = {k: v for k, v in kwargs.items() if k not in ("inplace", "input")}
    x, rest = (args[0], args[1:]) if args else (kwargs["input"], ())
    if name in ("relu", "relu6", "hardswish", "hardsigmoid", "silu", "mish", "selu"):
        rest = ()
    elif name in ("leaky_relu", "elu", "celu", "hardtanh"):
        rest = tuple(r for r in rest if not isinstance(r, bool))
    if _depend((rest, how)):
        rules.unknown(f"{name} with parameters that depend on the input")
    return rules.activation(name, x, lambda z: plain(z, *rest, **how))


def _out_of_place(name: str, func: Any) -> Callable[..., Tensor]:
    for home in (F, torch):
        if hasattr(home, name) and not (home is F and name in ("sigmoid", "tanh")):
            found: Callable[..., Tensor] = getattr(home, name)
            return found
    return func  # type: ignore[no-any-return]


def _add(rules: Rules, func: Any, args: Any, kwargs: Any) -> Tensor:
    given = _bound("input other", args, kwargs, {"alpha": 1})
    a, b = given["input"], given["other"]
    return rules.add(a, b if given["alpha"] == 1 else b * given["alpha"])


def _sub(rules: Rules, func: Any, args: Any, kwargs: Any) -> Tensor:
    given = _bound("input other", args, kwargs, {"alpha": 1})
    a, b = given["input"], given["other"] * given["alpha"]
    return rules.add(b, -a) if operation(func) == "rsub" else rules.add(a, -b)


def _mul(rules: Rules, func: Any, args: Any, kwargs: Any) -> Tensor:
    given = _bound("input other", args, kwargs, {})
    a, b = given["input"], given["other"]
    return rules.product(a, b) if depends(a) and depends(b) else a * b


def _quotient(rules: Rules, a: Any, b: Any) -> Tensor:
    if not depends(b):
        return a / b  # type: ignore[no-any-return]
    inverse = rules.activation("reciprocal", b, torch.reciprocal)
    return rules.product(a, inverse) if depends(a) else inverse * a


def _div(rules: Rules, func: Any, args: Any, kwargs: Any) -> Tensor:
    given = _bound("input other", args, kwargs, {})
    if given.get("rounding_mode"):
        rules.unknown("division with rounding")
    return _quotient(rules, given["input"], given["other"])


def _rdiv(rules: Rules, func: Any, args: Any, kwargs: Any) -> Tensor:
    return _quotient(rules, args[1], args[0])


def _matmul(rules: Rules, func: Any, args: Any, kwargs: Any) -> Tensor:
    given = _bound("input other", args, kwargs, {})
    a, b = given["input"], given["mat2"] if "mat2" in given else given["other"]
    if operation(func) == "rmatmul":
        a, b = b, a
    if depends(a) and depends(b):
        return rules.matmul(a, b)
    if depends(a) and b.ndim == 2:  # a linear layer, whoever wrote it
        return rules.affine(F.linear, a, b.mT, None)
    return torch.matmul(a, b)


def _addmm(rules: Rules, func: Any, args: Any, kwargs: Any) -> Tensor:
    """A linear layer with its bias first and its weights transposed, as GPT-2 writes them."""
    given = _bound("input mat1 mat2", args, kwargs, {"beta": 1, "alpha": 1})
    plain = given["beta"] == given["alpha"] == 1 and not depends(given["input"]) and given["input"].ndim == 1
    if not plain or depends(given["mat2"]):
        rules.unknown("addmm of more than an input, fixed weights and a bias")
        out: Tensor = func(*args, **kwargs)
        return out
    return rules.affine(F.linear, given["mat1"], given["mat2"].mT, given["input"])


def _softmax(rules: Rules, func: Any, args: Any, kwargs: Any) -> Tensor:
    given = _bound("input dim", args, {k: v for k, v in kwargs.items() if k not in ("_stacklevel",)}, {})
    x = given["input"] if given.get("dtype") is None else given["input"].to(given["dtype"])
    return rules.softmax(x, given["dim"])


def _max_pool(rules: Rules, func: Any, args: Any, kwargs: Any) -> Tensor:
    given = _bound("input", args[:1], kwargs, {})
    x = given.pop("input")
    return rules.max_pool(x, lambda z: func(z, *args[1:], **given))


def _dropout(rules: Rules, func: Any, args: Any, kwargs: Any) -> Tensor:
    given = _bound("input p training inplace", args, kwargs, {"training": True, "p": 0.5})
    if given["training"] and given["p"]:
        rules.unknown("dropout in training mode")
    out: Tensor = given["input"]
    return out


def _scaled(rules: Rules, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    fixed = weight if weight is not None else bias
    if fixed is None:
        return x
    scale = torch.ones_like(fixed) if weight is None else weight
    return rules.scaled(x, scale, torch.zeros_like(fixed) if bias is None else bias)


def _layer_norm(rules: Rules, func: Any, args: Any, kwargs: Any) -> Tensor:
    given = _bound("input shape weight bias eps", args, _renamed(kwargs), {"weight": None, "bias": None, "eps": 1e-5})
    dims = tuple(range(-len(tuple(given["shape"])), 0))
    return _scaled(rules, rules.normalise(given["input"], dims, given["eps"]), given["weight"], given["bias"])


def _renamed(kwargs: dict[str, Any]) -> dict[str, Any]:
    names = {"normalized_shape": "shape", "p": "order", "ord": "order", "A": "input", "x": "input"}
    return {names.get(k, k): v for k, v in kwargs.items()}


def _group_norm(rules: Rules, func: Any, args: Any, kwargs: Any) -> Tensor:
    given = _bound("input groups weight bias eps", args, kwargs, {"weight": None, "bias": None, "eps": 1e-5})
    x = given["input"]
    grouped = x.reshape(len(x), given.get("num_groups", given.get("groups")), -1)
    normal = rules.normalise(grouped, (-1,), given["eps"]).reshape(x.shape)
    shape = [1, -1, *[1] * (x.ndim - 2)]
    weight, bias = (None if v is None else v.reshape(shape) for v in (given["weight"], given["bias"]))
    return _scaled(rules, normal, weight, bias)


def _rms_norm(rules: Rules, func: Any, args: Any, kwargs: Any) -> Tensor:
    given = _bound("input shape weight eps", args, _renamed(kwargs), {"weight": None, "eps": None})
    x, eps = given["input"], given["eps"]
    dims = tuple(range(-len(tuple(given["shape"])), 0))
    with rules:
        normal = x * torch.rsqrt((x * x).mean(dims, keepdim=True) + (torch.finfo(x.dtype).eps if eps is None else eps))
    return _scaled(rules, normal, given["weight"], None)


def _length(rules: Rules, func: Any, args: Any, kwargs: Any) -> Tensor:
    """`torch.norm`, `torch.linalg.norm` and `torch.linalg.vector_norm`, where they are norms of vectors."""
    given = _bound("input order dim keepdim", args, _renamed(kwargs), {"order": None, "dim": None, "keepdim": False})
    x, order, dim = given["input"], given["order"], given["dim"]
    dims = tuple(range(x.ndim)) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    of_matrix = operation(func) == "linalg_norm" and len(dims) > 1 and order is not None
    if order == "nuc" or (of_matrix and order != "fro"):
        rules.unknown(f"norm of order {order} of a matrix")
    x = x if given.get("dtype") is None else x.to(given["dtype"])
    length = rules.length(x, 2.0 if order in (None, "fro") else float(order), dims, 0.0)
    return length if given["keepdim"] else length.squeeze(dims)


def _normalize(rules: Rules, func: Any, args: Any, kwargs: Any) -> Tensor:
    given = _bound("input p dim eps", args, kwargs, {"p": 2.0, "dim": 1, "eps": 1e-12})
    x, dim = given["input"], given["dim"]
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    return _quotient(rules, x, rules.length(x, float(given["p"]), dims, given["eps"]))


def _cosine_similarity(rules: Rules, func: Any, args: Any, kwargs: Any) -> Tensor:
    given = _bound("x1 x2 dim eps", args, kwargs, {"dim": 1, "eps": 1e-8})
    shape = torch.broadcast_shapes(given["x1"].shape, given["x2"].shape)  # type: ignore[no-untyped-call]
    with rules:
        a, b = (F.normalize(given[x].expand(shape), dim=given["dim"], eps=given["eps"]) for x in ("x1", "x2"))
        out: Tensor = (a * b).sum(given["dim"])
    return out


def _bilinear(rules: Rules, func: Any, args: Any, kwargs: Any) -> Tensor:
    if sum(depends(t) for t in _tensors((args, kwargs))) > 1:
        rules.unknown(operation(func))
    out: Tensor = func(*args, **kwargs)
    return out


def _attention(rules: Rules, func: Any, args: Any, kwargs: Any) -> Tensor:
    names = "query key value attn_mask dropout_p is_causal scale enable_gqa"
    given = _bound(names, args, kwargs, {"attn_mask": None, "is_causal": False, "scale": None, "enable_gqa": False})
    q, k, v, mask = given["query"], given["key"], given["value"], given["attn_mask"]
    if given["enable_gqa"]:
        rules.unknown("attention whose heads share keys")
    if given["is_causal"]:
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
    scale = given["scale"] if given["scale"] is not None else q.shape[-1] ** -0.5
    with rules:
        return rules.attention(q, k, v, mask, scale)


def _multi_head_attention(rules: Rules, func: Any, args: Any, kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """`nn.MultiheadAttention` over one batch of sequences (length first), as self-attention."""
    names = (
        "query key value embed_dim_to_check num_heads in_proj_weight in_proj_bias bias_k bias_v add_zero_attn "
        "dropout_p out_proj_weight out_proj_bias training key_padding_mask need_weights attn_mask"
    )
    given = _bound(names, args, kwargs, {"key_padding_mask": None, "attn_mask": None})
    special = ("bias_k", "bias_v", "add_zero_attn", "use_separate_proj_weight", "key_padding_mask", "static_k")
    if any(given.get(s) is not None and given.get(s) is not False for s in special):
        rules.unknown("multi-head attention with separate projections, extra keys or padding")
    query, heads = given["query"], given["num_heads"]
    if query.ndim != 3:
        rules.unknown("multi-head attention without a batch")
    weights = given["in_proj_weight"].chunk(3)
    biases = (None, None, None) if given["in_proj_bias"] is None else given["in_proj_bias"].chunk(3)
    with rules:
        q, k, v = (
            F.linear(t, w, b).reshape(*t.shape[:2], heads, -1).permute(1, 2, 0, 3)
            for t, w, b in zip((query, given["key"], given["value"]), weights, biases, strict=True)
        )
        mixed = rules.attention(q, k, v, given["attn_mask"], q.shape[-1] ** -0.5)
        out = F.linear(mixed.permute(2, 0, 1, 3).flatten(2), given["out_proj_weight"], given["out_proj_bias"])
    return out, None


_HANDLERS: dict[str, Callable[[Rules, Any, Any, Any], Any]] = {
    **dict.fromkeys(_AFFINE, _affine),
    "batch_norm": _batch_norm,
    "add": _add,
    "sub": _sub,
    "rsub": _sub,
    "mul": _mul,
    "div": _div,
    "rdiv": _rdiv,
    "matmul": _matmul,
    "rmatmul": _matmul,
    "addmm": _addmm,
    "softmax": _softmax,
    "max_pool1d": _max_pool,
    "max_pool2d": _max_pool,
    "max_pool3d": _max_pool,
    "adaptive_max_pool2d": _max_pool,
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "feature_dropout", "alpha_dropout"), _dropout),
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "rms_norm": _rms_norm,
    **dict.fromkeys(("norm", "linalg_norm", "vector_norm"), _length),
    "normalize": _normalize,
    "cosine_similarity": _cosine_similarity,
    **dict.fromkeys(_BILINEAR, _bilinear),
    "scaled_dot_product_attention": _attention,
    "multi_head_attention_forward": _multi_head_attention,
}
