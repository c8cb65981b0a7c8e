"""SmoothGrad, SmoothGrad² and VarGrad: any method, averaged over noisy copies of the input."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch, Inputs
from heatcheck.domain.base import Domain
from heatcheck.methods.base import Method, method, repeat_rows
from heatcheck.probe.asks import Shape, passes_of
from heatcheck.probe.probe import Probe

SCALES = ("range", "mean", "one")
"""What the deviation of noise is a multiple of."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Smoothed(Method):
    """Moments of another method's values under Gaussian noise on the leaf (pixels, word embeddings).

    The wrapper's `output`, `reduction` and `post` apply: the inner method explains the wrapper's output, and its
    values are averaged before they are reduced.

    Args:
        of: the method that is smoothed.
        samples: noisy copies of each input.
        sigma: standard deviation of the noise, in units of `scale`.
        scale: each input's `range`, from its smallest to its largest value; its absolute `mean`; or `one`, as in Captum.
    """

    of: str = "saliency"
    samples: int = 25
    sigma: float = 0.15
    scale: str = "range"

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"scale": SCALES}
    outer: ClassVar[tuple[str, ...]] = ("output", "reduction", "post")
    revised: ClassVar[Mapping[str, int]] = {"text": 2}

    def __post_init__(self) -> None:
        super().__post_init__()
        require_deviation(self.id, self.sigma)

    @property
    def inner(self) -> Method:
        """The method that is smoothed, explaining this method's output."""
        component: Method = catalogue.build("method", self.of)
        for name in self.outer:
            if name == "reduction" and component.reduction == "sum":  # as `resolve` writes it
                continue
            if getattr(component, name) not in (type(component).parameters()[name], getattr(self, name)):
                raise SpecError(
                    f"{self.id}(of={component.name}): {name} belongs to the wrapper; "
                    f"write {self.id}(of={component.id}, {name}={getattr(component, name)})"
                )
        return dataclasses.replace(component, output=self.output)

    @property
    def uses(self) -> tuple[str, ...]:
        return self.inner.uses

    @property
    def plain_gradient(self) -> bool:
        return self.inner.plain_gradient

    def resolve(self, domain: Domain) -> "Smoothed":
        inner = dataclasses.replace(self.inner.resolve(domain), reduction="sum")  # the wrapper reduces
        return dataclasses.replace(self, of=inner.name, reduction=self.reduction_on(domain))

    def identity(self) -> dict[str, Any]:
        """As for every component; `range` and `one` keep the name they had before there was `mean`, with all results."""
        known = super().identity()
        if self.scale != "mean":
            known["params"]["absolute"] = known["params"].pop("scale") == "one"
        return known

    def moments(self, probe: Probe, batch: Batch) -> tuple[Float[Tensor, "b ..."], Float[Tensor, "b ..."]]:
        """Mean and mean square of the inner method's values."""
        inner = self.inner
        size = max(probe.numerics.forward, probe.numerics.backward)
        sums: list[Tensor] = []
        for rows, part in noisy_copies(probe, batch, self.samples, self.sigma, size, scale=self.scale):
            values = inner.attribute(probe, part).detach().double()
            if not sums:
                sums = [
                    torch.zeros(len(batch), *values.shape[1:], dtype=torch.float64, device=batch.device)
                    for _ in range(2)
                ]
            sums[0].index_add_(0, rows, values)
            sums[1].index_add_(0, rows, values.square())
        return sums[0] / self.samples, sums[1] / self.samples

    def passes(self, shape: Shape) -> tuple[int, int]:
        forwards, backwards = passes_of(self.inner.asks(shape), self.inner.passes(shape))
        return self.samples * forwards, self.samples * backwards


@method("smoothgrad", family="gradient", properties=("gradient_on_linear", "implementation_invariant", "linear"))
@dataclass(frozen=True, kw_only=True, repr=False)
class SmoothGrad(Smoothed):
    r"""The mean of another method's values over noisy copies of the input.

    $a = \frac{1}{n} \sum_k g(x + \varepsilon_k), \quad \varepsilon_k \sim \mathcal{N}(0, \sigma^2)$

    Args:
        reduction: how channels or embedding coordinates become one number per site. `auto` sums them, but takes the
            Euclidean norm (`l2`) of a word embedding's mean gradient, whose sum is zero where a LayerNorm comes next.
        of: the method that is smoothed.
        samples: noisy copies of each input.
        sigma: standard deviation of the noise, in units of `scale`.
        scale: each input's `range`, from its smallest to its largest value; its absolute `mean`; or `one`, as in Captum.
            `mean` is a slip in M4's code for texts (0.1, 50 samples): the mean of word embeddings is close to zero, and
            so is the noise. It is here to repeat M4's numbers.

    Paper: smilkov2017.
    Cost per sample: `samples` times the inner method's.
    """

    reduction: str = "auto"

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        return self.moments(probe, batch)[0]


@method("smoothgrad_sq", family="gradient", properties=("implementation_invariant", "nonnegative"))
@dataclass(frozen=True, kw_only=True, repr=False)
class SmoothGradSquared(Smoothed):
    r"""The mean square of another method's values over noisy copies of the input.

    $a = \frac{1}{n} \sum_k g(x + \varepsilon_k)^2$

    Paper: hooker2019.
    Cost per sample: `samples` times the inner method's.
    """

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        return self.moments(probe, batch)[1]


@method("vargrad", family="gradient", properties=("implementation_invariant", "nonnegative"))
@dataclass(frozen=True, kw_only=True, repr=False)
class VarGrad(Smoothed):
    r"""The variance of another method's values over noisy copies of the input.

    $a = \frac{1}{n} \sum_k g(x + \varepsilon_k)^2 - \big(\frac{1}{n} \sum_k g(x + \varepsilon_k)\big)^2$

    Paper: adebayo2018.
    Cost per sample: `samples` times the inner method's.
    """

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        mean, mean_square = self.moments(probe, batch)
        return (mean_square - mean.square()).clamp_min(0)


def noisy_copies(
    probe: Probe, batch: Batch, samples: int, sigma: float, size: int, *, scale: str
) -> Iterator[tuple[Int[Tensor, " n"], Batch]]:
    """Noisy copies of each sample's leaf, one sample after another, with the rows of the samples they are copies of.

    Args:
        probe: the model's probe.
        batch: the samples.
        samples: copies of each.
        sigma: standard deviation of the noise, in units of `scale`.
        size: the most copies in one batch.
        scale: each sample's `range` or absolute `mean`, or `one`.
    """
    leaf = probe.domain.leaf(batch.x).detach()
    deviation = sigma * size_of(probe.domain, batch.x, scale)
    streams = [batch.streams.generator(i, "noise") for i in range(len(batch))]
    for first, rows in enumerate(torch.split(repeat_rows(len(batch), samples, probe.device), size)):
        numbers = [(first * size + k) // samples for k in range(len(rows))]
        part = batch.take(numbers, rows)
        noise = standard_normal(probe.domain, part.x, [streams[i] for i in numbers])
        yield rows, part.with_inputs(probe.domain.with_leaf(part.x, leaf[rows] + deviation[rows] * noise))


def standard_normal(domain: Domain, x: Inputs, rngs: Sequence[torch.Generator]) -> Float[Tensor, "b ..."]:
    """Noise for each sample's leaf, drawn in single precision whatever the model's precision; padding gets none."""

    def draw(row: int, shape: Sequence[int]) -> Tensor:
        return torch.randn(tuple(shape), generator=rngs[row], dtype=torch.float32)

    return domain.leaf_noise(x, draw).to(domain.leaf(x).dtype)


def size_of(domain: Domain, x: Inputs, scale: str = "range") -> Float[Tensor, "b ..."]:
    """Each sample's range or absolute mean, or one, in a shape that multiplies the leaf."""
    reach = domain.leaf_range(x)
    size = {"range": lambda: reach, "mean": lambda: domain.leaf_mean(x).abs(), "one": lambda: torch.ones_like(reach)}
    return size[scale]().reshape(-1, *[1] * (domain.leaf(x).ndim - 1))


def require_deviation(id: str, sigma: float) -> None:
    """Refuse a negative `sigma`."""
    if not sigma >= 0:
        raise SpecError(f"{id}: sigma={sigma!r} is a deviation and cannot be negative")
