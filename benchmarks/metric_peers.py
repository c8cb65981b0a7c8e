"""Other people's implementations of the same metrics, on the same maps and with the same number of questions.

A peer gets the network as torch comes and is called once per method, as it must be: none of them takes the maps of
several methods at a time. Procedures that exist only as a paper's scripts are written out here the way those go about it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

import heatcheck as hc
from heatcheck.core.types import Batch
from heatcheck.metrics.base import Maps, Metric
from heatcheck.probe.numerics import Numerics

Rate = Callable[[], object]


@dataclass(frozen=True)
class Task:
    """What a peer is asked to do.

    Args:
        model: the model in our hands, for its domain.
        network: a copy of its network, as torch comes.
        batch: the samples and their targets.
        maps: the maps of all methods.
        component: our metric, resolved, whose parameters the peer follows.
        numerics: the micro-batches that are best for us.
    """

    model: hc.Model
    network: nn.Module
    batch: Batch
    maps: Maps
    component: Metric
    numerics: Numerics

    @property
    def x(self) -> Tensor:
        """The pictures."""
        return self.batch.x["pixels"]

    @property
    def heat(self) -> list[Tensor]:
        """One map per picture, for each method, on pixels."""
        return [site.reshape(len(self.x), *self.x.shape[-2:]).float() for site in self.maps.sites()]


# -- Quantus ---------------------------------------------------------------------------------------------------


def quantus(name: str, options: Callable[[Task], dict[str, object]] = lambda task: {}) -> Callable[[Task], Rate]:
    """A metric of Quantus, which ranks values per channel: each map is repeated over channels, as it does itself."""

    def make(task: Task) -> Rate:
        import quantus as peer

        given = {"disable_warnings": True, "display_progressbar": False, "normalise": False, "abs": False}
        rate = getattr(peer, name)(**{**given, **options(task)})
        x, y = task.x.numpy(), task.batch.target.numpy()
        heat = [h[:, None].numpy() for h in task.heat]
        masks = [np.asarray(r.get("mask", np.zeros(x.shape[-2:], bool))) for r in task.batch.references]
        more = {"s_batch": np.stack(masks)[:, None]} if masks and name in LOCALISE else {}

        def run() -> None:
            for a in heat:
                rate(model=task.network, x_batch=x, y_batch=y, a_batch=a, device="cpu", batch_size=len(x), **more)

        return run

    return make


LOCALISE = {"PointingGame", "RelevanceMassAccuracy", "RelevanceRankAccuracy", "AUC"}


def flipping(task: Task) -> dict[str, object]:
    sites = task.x[0, 0].numel()
    return {"features_in_step": max(1, sites // task.component.params()["steps"]), "perturb_baseline": "black"}


def subsets(task: Task) -> dict[str, object]:
    sites = task.x[0, 0].numel()
    return {"nr_runs": task.component.params()["samples"], "subset_size": sites // 10, "return_aggregate": False}


# -- Captum ----------------------------------------------------------------------------------------------------


def captum_infidelity(task: Task) -> Rate:
    from captum.metrics import infidelity

    windows = task.model.domain.windows(task.batch.x)
    n = min(task.component.params()["samples"] or windows.box.shape[1], windows.box.shape[1])
    size = max(len(task.x), task.numerics.forward)

    def perturb(inputs: Tensor) -> tuple[Tensor, Tensor]:
        rows = torch.arange(len(inputs)) % len(task.x)
        which = torch.randint(0, windows.box.shape[1], (len(inputs),))
        gone = ~windows.keep(rows, which).reshape(len(inputs), 1, *inputs.shape[-2:])
        return gone.float().expand_as(inputs), inputs.masked_fill(gone, 0.0)

    def run() -> None:
        for heat in task.heat:
            spread = heat[:, None].expand_as(task.x)
            infidelity(
                task.network,
                perturb,
                task.x,
                spread,
                target=task.batch.target,
                n_perturb_samples=n,
                max_examples_per_batch=size,
                normalize=True,
            )

    return run


# -- pytorch-grad-cam ------------------------------------------------------------------------------------------


def grad_cam_road(task: Task) -> Rate:
    from pytorch_grad_cam.metrics.road import ROADCombined
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputSoftmaxTarget

    rate = ROADCombined(percentiles=[10, 20, 30, 40, 50, 70, 90])
    targets = [ClassifierOutputSoftmaxTarget(int(t)) for t in task.batch.target]

    def run() -> None:
        for heat in task.heat:
            rate(task.x, heat.numpy(), targets, task.network)

    return run


# -- papers' own procedures ------------------------------------------------------------------------------------


def single_deletion(task: Task) -> Rate:
    """IDSDS's loop: for each method, each cell of the batch set to zero and asked."""
    units = task.model.domain.units(task.component.params()["units"], task.batch.x)
    where = units.index.reshape(len(task.x), 1, *task.x.shape[-2:])

    def run() -> None:
        for heat in task.heat:
            with torch.no_grad():
                clean = task.network(task.x).gather(1, task.batch.target[:, None])
                drops, shares = [], []
                for cell in range(units.width):
                    gone = where == cell
                    out = task.network(torch.where(gone, torch.zeros_like(task.x), task.x))
                    drops.append(clean - out.gather(1, task.batch.target[:, None]))
                    shares.append((heat[:, None] * gone).sum((1, 2, 3)))
            for own, share in zip(torch.cat(drops, 1), torch.stack(shares, 1), strict=True):
                stats.spearmanr(own.numpy(), share.numpy())

    return run


def incremental_deletion(task: Task) -> Rate:
    """IDSDS's loop: the map is sorted again at every step, and the batch asked."""
    steps, n = task.component.params()["steps"], task.x[0, 0].numel()

    def run() -> None:
        for heat in task.heat:
            for k in range(steps):
                order = torch.sort(heat.flatten(1), dim=1).indices[:, : n * k // steps]
                keep = torch.ones(len(task.x), n).scatter_(1, order, 0.0).reshape(len(task.x), 1, *task.x.shape[-2:])
                with torch.no_grad():
                    task.network(task.x * keep).softmax(1).gather(1, task.batch.target[:, None])

    return run


def causal_metric(task: Task) -> Rate:
    """RISE's loop: one picture after another, a few more of its pixels exchanged before each question."""
    steps, n = task.component.params()["steps"], task.x[0, 0].numel()

    def run() -> None:
        for heat in task.heat:
            for x, own, target in zip(task.x, heat, task.batch.target, strict=True):
                order = np.flip(np.argsort(own.flatten().numpy())).copy()
                now, curve = x.clone(), []
                for k in range(steps + 1):
                    with torch.no_grad():
                        curve.append(float(task.network(now[None]).softmax(1)[0, target]))
                    now.flatten(1)[:, order[n * k // steps : n * (k + 1) // steps]] = 0.0

    return run


PEERS: dict[str, dict[str, Callable[[Task], Rate]]] = {
    "morf": {"Quantus": quantus("PixelFlipping", flipping)},
    "deletion": {"Quantus": quantus("PixelFlipping", flipping), "RISE": causal_metric},
    "ids": {"IDSDS": incremental_deletion},
    "sds": {"IDSDS": single_deletion},
    "infidelity": {"Captum": captum_infidelity},
    "faithfulness_correlation": {"Quantus": quantus("FaithfulnessCorrelation", subsets)},
    "irof": {"Quantus": quantus("IROF", lambda task: {"return_aggregate": False})},
    "road": {"grad-cam": grad_cam_road},
    "sparseness": {"Quantus": quantus("Sparseness")},
    "complexity": {"Quantus": quantus("Complexity")},
    "pointing_game": {"Quantus": quantus("PointingGame")},
    "relevance_mass": {"Quantus": quantus("RelevanceMassAccuracy")},
    "relevance_rank": {"Quantus": quantus("RelevanceRankAccuracy")},
}
"""By our metric's id: who else computes it."""
