"""GradientSHAP and expected gradients: gradients at random points between random baselines and the input."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from heatcheck.core.types import Batch, Inputs, NotApplicable, Streams
from heatcheck.data.load import load_data
from heatcheck.methods.base import Method, method, repeat_rows
from heatcheck.methods.integrated_gradients import start_of
from heatcheck.methods.smoothing import require_deviation, size_of, standard_normal
from heatcheck.probe.asks import Shape
from heatcheck.probe.probe import Probe

BACKGROUND = 100
"""How many samples of a data set serve as background."""
Baselines = Callable[[Batch, slice], Tensor]
"""The baselines of some copies, given with their places among all copies."""


@dataclass(frozen=True, kw_only=True, repr=False)
class RandomPoints(Method):
    """The mean of difference × gradient over random draws of a baseline and a point between baseline and input.

    Each draw depends on the sample and the draw's number only, not on other samples or the number of draws.

    Args:
        samples: draws per input.
    """

    samples: int = 5

    @abstractmethod
    def baselines(self, probe: Probe, batch: Batch, streams: Streams) -> Baselines:
        """A function that gives some copies their baselines; `streams` are those of all copies."""

    def end(self, probe: Probe, copies: Batch) -> Float[Tensor, "n ..."]:
        """The end of each copy's line: the input itself."""
        return probe.domain.leaf(copies.x).detach()

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        domain = probe.domain
        total = torch.zeros(domain.leaf(batch.x).shape, dtype=torch.float64, device=batch.device)
        rows = repeat_rows(len(batch), self.samples, probe.device)
        numbers = [i for i in range(len(batch)) for _ in range(self.samples)]
        draws = [f"draw {k}" for _ in range(len(batch)) for k in range(self.samples)]
        streams = batch.streams.take(numbers).derive(*draws)
        fraction = streams.draw("path", lambda g: torch.rand(1, generator=g, dtype=torch.float64))
        baselines, size = self.baselines(probe, batch, streams), probe.numerics.backward
        for part in (slice(at, min(at + size, len(rows))) for at in range(0, len(rows), size)):
            copies = batch.take(numbers[part], rows[part])
            copies = replace(copies, streams=streams.take(range(part.start, part.stop)))
            start = baselines(copies, part)
            difference = self.end(probe, copies) - start
            point = start + fraction[part].reshape(-1, *[1] * (start.ndim - 1)).to(start.dtype) * difference
            x = domain.with_leaf(copies.x, point)
            for i, gradient in probe.gradients(copies, probe.rows(len(copies)), x.take, self.output):
                total.index_add_(0, rows[part][i], difference[i].double() * gradient)
        return total / self.samples

    def passes(self, shape: Shape) -> tuple[int, int]:
        return self.samples, self.samples


@method(
    "gradient_shap",
    family="gradient",
    uses=("gradient",),
    properties=("dummy", "implementation_invariant", "linear"),
)
@dataclass(frozen=True, kw_only=True, repr=False)
class GradientShap(RandomPoints):
    r"""The gradient at random points between a baseline and the noisy input, times their difference.

    $a = \frac{1}{n} \sum_k (x + \varepsilon_k - b_k) \odot
    \partial f_t(b_k + \alpha_k (x + \varepsilon_k - b_k)) / \partial x,
    \quad \alpha_k \sim U(0, 1), \; \varepsilon_k \sim \mathcal{N}(0, \sigma^2)$

    Sums to $f_t(x) - f_t(b)$ in expectation only. With a fixed baseline and no noise it is a Monte Carlo estimate of
    integrated gradients; random baselines (`noise`, `uniform`) are drawn anew each time.

    Args:
        samples: draws of a baseline, noise and a point.
        baseline: the fill that replaces the whole input.
        sigma: standard deviation of the noise on the input, as a fraction of each input's range.

    Paper: lundberg2017.  Differs: baselines come from a fill; with baselines from data it is `expected_gradients`.
    Cost per sample: `samples` gradients.
    """

    baseline: str = "zero"
    sigma: float = 0.0

    revised: ClassVar[Mapping[str, int]] = {"text": 2}

    def __post_init__(self) -> None:
        super().__post_init__()
        require_deviation(self.id, self.sigma)

    def baselines(self, probe: Probe, batch: Batch, streams: Streams) -> Baselines:
        return lambda copies, _: start_of(probe, copies, self.baseline)

    def end(self, probe: Probe, copies: Batch) -> Float[Tensor, "n ..."]:
        leaf = super().end(probe, copies)
        if self.sigma == 0:
            return leaf
        rngs = [copies.streams.generator(i, "noise") for i in range(len(copies))]
        noise = standard_normal(probe.domain, copies.x, rngs)
        return leaf + self.sigma * size_of(probe.domain, copies.x) * noise


@method(
    "expected_gradients",
    family="gradient",
    on=("image",),
    uses=("gradient",),
    properties=("dummy", "implementation_invariant", "linear"),
    elsewhere="the words of two texts do not stand in each other's places; try gradient_shap",
)
@dataclass(frozen=True, kw_only=True, repr=False)
class ExpectedGradients(RandomPoints):
    r"""The gradient at random points between other images and this one, times their difference.

    $a = \mathbb{E}_{b \sim D, \, \alpha \sim U(0, 1)} \big[
    (x - b) \odot \partial f_t(b + \alpha (x - b)) / \partial x \big]$

    Sums to $f_t(x) - \mathbb{E}_{b \sim D} f_t(b)$ in expectation. $D$ is a data set given by name, never the other
    samples of the run: a map must not depend on what else is explained. Up to a hundred of its images are used,
    preprocessed for the model; which ones does not depend on the seed.

    Args:
        samples: draws of an image and a point.
        background: the data set, by its spec: `images` (the embedded images), `folder:PATH` …; results are cached
            under this text, so a folder whose images change needs a new name.

    Paper: erion2021.  Differs: the paper draws from the training data.
    Cost per sample: `samples` gradients.
    """

    samples: int = 200
    background: str = "images"

    def baselines(self, probe: Probe, batch: Batch, streams: Streams) -> Baselines:
        others = background_of(probe, self.background, batch.x)
        pick = streams.draw("background", lambda g: torch.randint(len(others), (), generator=g))
        return lambda _, part: probe.domain.leaf(others.take(pick[part])).detach()


def background_of(probe: Probe, data: str, x: Inputs) -> Inputs:
    """A hundred samples of a data set, or all if it has fewer, encoded for the model once.

    Args:
        probe: the probe of the model that they are encoded for.
        data: the data set's spec, such as `images` or `folder:train`.
        x: inputs that the samples must match in shape.
    """
    model = probe.model

    def encode() -> Inputs:
        if model.preprocessing is None:
            raise NotApplicable(
                f"needs other pictures to compare with, but the preprocessing of {model.name} is not known: "
                "pass preprocess=hc.Preprocess(mean=…, std=…)"
            )
        good = [sample for sample in load_data(data, samples=BACKGROUND) if sample.problem is None]
        if not good:
            raise NotApplicable(f"none of the samples of {data!r} can be read")
        return Inputs.cat([model.encode(sample) for sample in good]).to(probe.device)

    found: Inputs = probe.cached_for_model(f"background {data}", encode)
    theirs, ours = (dict(inputs.shape_key()) for inputs in (found, probe.visible(x)))
    if theirs != ours:
        raise NotApplicable(
            f"the pictures of {data!r} reach {model.name} as {theirs}, but those explained are {ours}; explain pictures, "
            "or tensors of that shape"
        )
    return found
