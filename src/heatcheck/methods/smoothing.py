"""SmoothGrad, SmoothGrad² and VarGrad: any method, explained again under noise."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch
from heatcheck.domain.base import Domain
from heatcheck.methods.base import Method, method, repeat_rows
from heatcheck.probe.asks import Shape, passes_of
from heatcheck.probe.probe import Probe


@dataclass(frozen=True, kw_only=True, repr=False)
class Smoothed(Method):
    """Moments of another method's values under Gaussian noise on the leaf (pixels, word embeddings).

    The wrapper's `output`, `reduction` and `post` are the ones that count: the inner method explains the wrapper's
    output, and its values are averaged before they are reduced.

    Args:
        of: the method that is smoothed.
        samples: noisy copies of each input.
        sigma: the noise's deviation, as a share of each input's range.
        absolute: whether `sigma` is the deviation itself, as in Captum.
    """

    of: str = "saliency"
    samples: int = 25
    sigma: float = 0.15
    absolute: bool = False

    outer: ClassVar[tuple[str, ...]] = ("output", "reduction", "post")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sigma >= 0:
            raise SpecError(f"{self.id}: sigma={self.sigma!r} is a deviation and cannot be negative")

    @property
    def inner(self) -> Method:
        """The method that is smoothed, explaining this method's output."""
        component: Method = catalogue.build("method", self.of)
        for name in self.outer:
            if getattr(component, name) not in (type(component).parameters()[name], getattr(self, name)):
                raise SpecError(
                    f"{self.id}(of={component.name}): {name} belongs to the wrapper; "
                    f"write {self.id}(of={component.id}, {name}={getattr(component, name)})"
                )
        return dataclasses.replace(component, output=self.output)

    @property
    def uses(self) -> tuple[str, ...]:
        return self.inner.uses

    def resolve(self, domain: Domain) -> "Smoothed":
        return dataclasses.replace(self, of=self.inner.resolve(domain).name)

    def moments(self, probe: Probe, batch: Batch) -> tuple[Float[Tensor, "b ..."], Float[Tensor, "b ..."]]:
        """Mean and mean square of the inner method's values."""
        inner = self.inner
        sums: list[Tensor] = []
        for rows, part in self.noisy(probe, batch):
            values = inner.attribute(probe, part).detach().double()
            if not sums:
                sums = [torch.zeros(len(batch), *values.shape[1:], dtype=torch.float64) for _ in range(2)]
            sums[0].index_add_(0, rows, values)
            sums[1].index_add_(0, rows, values.square())
        return sums[0] / self.samples, sums[1] / self.samples

    def noisy(self, probe: Probe, batch: Batch) -> Iterator[tuple[Int[Tensor, " n"], Batch]]:
        """All noisy copies and the samples they are of, one sample after another, in batches that fill the calls."""
        domain = probe.domain
        leaf = domain.leaf(batch.x).detach()
        deviation = leaf.new_full((len(batch),), self.sigma)
        if not self.absolute:
            deviation = deviation * (leaf.flatten(1).amax(1) - leaf.flatten(1).amin(1))
        streams = [batch.streams.generator(i, "noise") for i in range(len(batch))]
        size = max(probe.numerics.forward, probe.numerics.backward)
        for rows in torch.split(repeat_rows(len(batch), self.samples), size):
            part = batch.take(rows.tolist())
            draws = [torch.randn(leaf.shape[1:], generator=streams[i], dtype=torch.float32) for i in rows.tolist()]
            noise = torch.stack(draws).to(leaf.dtype) * deviation[rows].reshape(-1, *[1] * (leaf.ndim - 1))
            yield rows, part.with_inputs(domain.with_leaf(part.x, leaf[rows] + noise))

    def passes(self, shape: Shape) -> tuple[int, int]:
        forwards, backwards = passes_of(self.inner.asks(shape), self.inner.passes(shape))
        return self.samples * forwards, self.samples * backwards


@method("smoothgrad", family="gradient", properties=("gradient_on_linear", "implementation_invariant", "linear"))
@dataclass(frozen=True, kw_only=True, repr=False)
class SmoothGrad(Smoothed):
    r"""The mean of another method's values over noisy copies of the input.

    $a = \frac{1}{n} \sum_k g(x + \varepsilon_k), \quad \varepsilon_k \sim \mathcal{N}(0, \sigma^2)$

    Paper: smilkov2017.
    Cost per sample: `samples` times the inner method's.
    """

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
