"""RISE."""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch, Inputs, Streams
from heatcheck.methods.base import Method, eraser, method, repeat_rows
from heatcheck.probe.asks import Shape
from heatcheck.probe.probe import Probe


@method(
    "rise",
    family="perturbation",
    on=("image",),
    uses=(),
    properties=("implementation_invariant", "linear", "nonnegative"),
    elsewhere="its smooth masks need a spatial grid; try lime or occlusion",
)
@dataclass(frozen=True, kw_only=True, repr=False)
class Rise(Method):
    r"""The mean of random smooth masks, each weighted by the probability of the class in the masked picture.

    $A = \frac{1}{N p} \sum_n p_t\big(x \odot M_n + b \odot (1 - M_n)\big)\, M_n$

    Each mask is a grid of Bernoulli draws, enlarged bilinearly and cropped at a random shift. Every sample has its
    own masks, which are the same for every model, class and fill; with `fill=uniform` this is RISE-U.

    Args:
        output: the model output that is used; with `prob`, maps are not negative.
        samples: number of masks.
        grid: cells per side of a mask before it is enlarged.
        keep: the share p of cells that are kept.
        fill: what replaces masked pixels.
        shared: whether all samples have the same masks, drawn from the seed alone, as in the paper's code.

    Paper: petsiuk2018.  Differs: masks are drawn per sample, not once for all; 1000 of them.
    Cost per sample: `samples` forwards.
    """

    output: str = "prob"
    samples: int = 1000
    grid: int = 8
    keep: float = 0.5
    fill: str = "auto"
    shared: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.keep <= 1:
            raise SpecError(f"{self.id}: keep={self.keep!r} is a share above 0 and at most 1")

    @property
    def signed(self) -> bool:
        return self.output != "prob" and self.post == "none"

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        streams = replace(batch.streams, digests=("shared",) * len(batch)) if self.shared else batch.streams
        masks = SmoothMasks.draw(streams, self.samples, self.grid, self.keep, probe.domain.shape(batch.x))
        erase = eraser(probe, batch, self.fill)
        rows = repeat_rows(len(batch), self.samples, probe.device)
        made = torch.empty(0, device=batch.device)

        def masked(i: Int[Tensor, " n"]) -> Inputs:
            nonlocal made
            made = masks.sites(rows[i], i % self.samples)
            return erase(rows[i], made)

        total = torch.zeros(len(batch), masks.size, dtype=torch.float64, device=batch.device)
        for i, answers in probe.answers(batch, rows, masked):
            total.index_add_(0, rows[i], answers.read(self.output)[:, None] * made[: len(i)])
        return probe.domain.as_map(total / (self.samples * self.keep), batch.x)

    def passes(self, shape: Shape) -> tuple[int, int]:
        return self.samples, 0


@dataclass(frozen=True)
class SmoothMasks:
    """RISE's masks, stored as small grids and enlarged when they are used.

    Args:
        cells: the grid of each mask.
        shift: rows and columns by which it is cropped.
        shape: rows and columns of the site grid.
    """

    cells: Float[Tensor, "b k g g"]
    shift: Int[Tensor, "b k 2"]
    shape: tuple[int, int]

    @staticmethod
    def draw(streams: Streams, n: int, grid: int, keep: float, shape: tuple[int, int]) -> "SmoothMasks":
        """`n` masks for each sample."""
        reach = torch.tensor([-(-side // grid) for side in shape])

        def cells(g: torch.Generator) -> Tensor:
            return (torch.rand(n, grid, grid, generator=g, dtype=torch.float64) < keep).double()

        def shift(g: torch.Generator) -> Tensor:
            return (torch.rand(n, 2, generator=g, dtype=torch.float64) * reach).long()

        return SmoothMasks(streams.draw("rise-masks", cells), streams.draw("rise-shifts", shift), shape)

    @property
    def size(self) -> int:
        """Sites of a mask."""
        return self.shape[0] * self.shape[1]

    def sites(self, rows: Int[Tensor, " n"], which: Int[Tensor, " n"]) -> Float[Tensor, "n s"]:
        """How much of each site is kept by the mask `which[i]` of sample `rows[i]`."""
        grid = self.cells.shape[-1]
        h, w = self.shape
        large = ((grid + 1) * -(-h // grid), (grid + 1) * -(-w // grid))
        up = F.interpolate(self.cells[rows, which][:, None], large, mode="bilinear", align_corners=False)[:, 0]
        top, left = self.shift[rows, which].T
        y, x = (top[:, None] + torch.arange(h, device=up.device)), (left[:, None] + torch.arange(w, device=up.device))
        own = torch.arange(len(up), device=up.device)
        return up[own[:, None, None], y[:, :, None], x[:, None, :]].flatten(1)
