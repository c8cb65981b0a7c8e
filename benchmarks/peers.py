"""Other people's implementations of the same methods, with the same amount of work to do.

Each peer gets the network as torch comes: parameters that may be trained, no memory format of ours. The allocator's
tuning is the process's and helps it too. Where it takes a micro-batch it gets the one that is best for us, and where it
needs segments it gets ours.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

import heatcheck as hc
from heatcheck.core.types import Batch
from heatcheck.domain.image import superpixels
from heatcheck.methods.base import Method
from heatcheck.probe.numerics import Numerics

Explain = Callable[[], object]


@dataclass(frozen=True)
class Task:
    """What a peer is asked to do.

    Args:
        model: the model in our hands, for its domain and layers.
        network: a copy of its network, as torch comes.
        batch: the samples and their targets.
        component: our method, resolved, whose parameters the peer follows.
        numerics: the micro-batches that are best for us.
    """

    model: hc.Model
    network: nn.Module
    batch: Batch
    component: Method
    numerics: Numerics

    @property
    def x(self) -> Tensor:
        """The pictures."""
        return self.batch.x["pixels"]

    @property
    def target(self) -> Tensor:
        """The classes to explain."""
        return self.batch.target

    @property
    def layer(self) -> str:
        """The layer that our CAMs look at."""
        chosen = self.component.params().get("layer", "auto")
        return self.model.layers(self.batch.x)[-1].name if chosen == "auto" else chosen

    @property
    def at_once(self) -> int:
        """Perturbations of the whole batch that fit into one micro-batch."""
        return max(1, self.numerics.forward // len(self.batch))

    def segments(self) -> Tensor:
        """The component of each pixel, found anew."""
        units = self.model.domain.units(self.component.params()["units"], self.batch.x)
        return units.slot.reshape(len(self.x), 1, *self.x.shape[-2:])


def as_torch_comes(model: hc.Model) -> nn.Module:
    """A copy of the network without what we do for speed."""
    return copy.deepcopy(model.module()).to(memory_format=torch.contiguous_format).requires_grad_()


# -- Captum ----------------------------------------------------------------------------------------------------


def captum_gradient(name: str, **options: object) -> Callable[[Task], Explain]:
    """A Captum method that needs only inputs and targets."""

    def make(task: Task) -> Explain:
        import captum.attr

        explainer = getattr(captum.attr, name)(task.network)
        return lambda: explainer.attribute(task.x, target=task.target, **options)

    return make


def captum_ig(task: Task) -> Explain:
    from captum.attr import IntegratedGradients

    size = max(len(task.x), task.numerics.backward)
    call = IntegratedGradients(task.network).attribute
    return lambda: call(task.x, target=task.target, n_steps=task.component.steps, internal_batch_size=size)


def captum_noise(kind: str) -> Callable[[Task], Explain]:
    """Captum's noise tunnel around saliency."""

    def make(task: Task) -> Explain:
        from captum.attr import NoiseTunnel, Saliency

        call = NoiseTunnel(Saliency(task.network)).attribute
        size = max(1, task.numerics.backward // len(task.x))
        options = {"nt_samples": task.component.samples, "nt_samples_batch_size": size, "stdevs": 0.5}
        return lambda: call(task.x, nt_type=kind, target=task.target, abs=False, **options)

    return make


def captum_gradient_shap(task: Task) -> Explain:
    from captum.attr import GradientShap

    call, nothing = GradientShap(task.network).attribute, torch.zeros_like(task.x[:1])
    return lambda: call(task.x, baselines=nothing, target=task.target, n_samples=task.component.samples)


def captum_guided_grad_cam(task: Task) -> Explain:
    from captum.attr import GuidedGradCam

    call = GuidedGradCam(task.network, task.network.get_submodule(task.layer)).attribute
    return lambda: call(task.x, target=task.target)


def captum_grad_cam(task: Task) -> Explain:
    from captum.attr import LayerGradCam

    call = LayerGradCam(task.network, task.network.get_submodule(task.layer)).attribute
    return lambda: call(task.x, target=task.target, relu_attributions=True)


def captum_ablation(name: str, n_samples: Callable[[Task], int] | None = None) -> Callable[[Task], Explain]:
    """A Captum method over segments of a whole batch."""

    def make(task: Task) -> Explain:
        import captum.attr

        call = getattr(captum.attr, name)(task.network).attribute
        more = {} if n_samples is None else {"n_samples": n_samples(task)}
        return lambda: call(
            task.x,
            target=task.target,
            feature_mask=task.segments(),
            perturbations_per_eval=task.at_once,
            **more,
        )

    return make


def captum_surrogate(name: str) -> Callable[[Task], Explain]:
    """A Captum method that fits a surrogate, one picture at a time, as it must."""

    def make(task: Task) -> Explain:
        import captum.attr

        call = getattr(captum.attr, name)(task.network).attribute

        def run() -> None:
            for x, target, segments in zip(task.x, task.target, task.segments(), strict=True):
                call(
                    x[None],
                    target=int(target),
                    feature_mask=segments[None],
                    n_samples=task.component.samples,
                    perturbations_per_eval=task.numerics.forward,
                )

        return run

    return make


# -- torchcam --------------------------------------------------------------------------------------------------


def torchcam(name: str, **options: object) -> Callable[[Task], Explain]:
    """A torchcam method on the layer that ours looks at."""

    def make(task: Task) -> Explain:
        import torchcam.methods

        cls = getattr(torchcam.methods, name)
        if name == "ScoreCAM":
            options["batch_size"] = task.numerics.forward
        if name == "SmoothGradCAMpp":
            options.update(num_samples=task.component.samples, std=task.component.sigma)

        def run() -> None:
            with cls(task.network, target_layer=task.layer, **options) as cam:
                cam(task.target.tolist(), task.network(task.x))

        return run

    return make


# -- RISE and LIME as their authors have them ------------------------------------------------------------------


def rise(task: Task) -> Explain:
    """The authors' procedure: one set of masks for all pictures, made beforehand; every masked picture in memory."""
    from skimage.transform import resize

    component, (h, w) = task.component, task.x.shape[-2:]
    rng = np.random.default_rng(0)
    step = [-(-side // component.grid) for side in (h, w)]
    masks = np.empty((component.samples, 1, h, w), dtype=np.float32)
    for mask in masks:
        cells = (rng.random((component.grid, component.grid)) < component.keep).astype(np.float32)
        large = resize(cells, [(component.grid + 1) * s for s in step], order=1, mode="reflect", anti_aliasing=False)
        top, left = (int(rng.integers(0, s)) for s in step)
        mask[0] = large[top : top + h, left : left + w]
    all_masks = torch.from_numpy(masks)

    def run() -> list[Tensor]:
        maps = []
        with torch.no_grad():
            for x, target in zip(task.x, task.target, strict=True):
                seen = torch.split(all_masks * x, 100)
                p = torch.cat([task.network(part).softmax(1) for part in seen])
                every_class = p.T @ all_masks.flatten(1) / (component.samples * component.keep)
                maps.append(every_class[target].reshape(h, w))
        return maps

    return run


def lime(task: Task) -> Explain:
    """The `lime` package on our segments."""
    from lime import lime_image

    lime_image.tqdm = lambda rows, **_: rows  # no progress bars
    explainer = lime_image.LimeImageExplainer(random_state=0)
    kind, _, n = task.component.units.partition("(")
    segment = partial(superpixels, kind, int(n.rstrip(")") or 50))

    def predict(pictures: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            x = torch.from_numpy(np.asarray(pictures, dtype=np.float32)).permute(0, 3, 1, 2).contiguous()
            return task.network(x).softmax(1).numpy()

    def run() -> None:
        for x, rgb, target in zip(task.x, task.model.domain.to_rgb(task.batch.x), task.target, strict=True):
            explainer.explain_instance(
                x.permute(1, 2, 0).double().numpy(),
                predict,
                labels=(int(target),),
                top_labels=None,
                num_features=100_000,
                num_samples=task.component.samples,
                batch_size=task.numerics.forward,
                segmentation_fn=lambda _, rgb=rgb: segment(rgb).numpy(),
            )

    return run


PEERS: dict[str, dict[str, Callable[[Task], Explain]]] = {
    "saliency": {"captum": captum_gradient("Saliency", abs=False)},
    "input_x_gradient": {"captum": captum_gradient("InputXGradient")},
    "integrated_gradients": {"captum": captum_ig},
    "smoothgrad": {"captum": captum_noise("smoothgrad")},
    "smoothgrad_sq": {"captum": captum_noise("smoothgrad_sq")},
    "vargrad": {"captum": captum_noise("vargrad")},
    "guided_backprop": {"captum": captum_gradient("GuidedBackprop")},
    "deconvolution": {"captum": captum_gradient("Deconvolution")},
    "guided_grad_cam": {"captum": captum_guided_grad_cam},
    "deep_lift": {"captum": captum_gradient("DeepLift")},
    "gradient_shap": {"captum": captum_gradient_shap},
    "lrp": {"captum": captum_gradient("LRP")},
    "grad_cam": {"captum": captum_grad_cam, "torchcam": torchcam("GradCAM")},
    "grad_cam_pp": {"torchcam": torchcam("GradCAMpp")},
    "smooth_grad_cam_pp": {"torchcam": torchcam("SmoothGradCAMpp")},
    "xgrad_cam": {"torchcam": torchcam("XGradCAM")},
    "layer_cam": {"torchcam": torchcam("LayerCAM")},
    "score_cam": {"torchcam": torchcam("ScoreCAM")},
    "occlusion": {"captum": captum_ablation("FeatureAblation")},
    "feature_ablation": {"captum": captum_ablation("FeatureAblation")},
    "shapley_sampling": {"captum": captum_ablation("ShapleyValueSampling", lambda task: 2 * task.component.samples)},
    "kernel_shap": {"captum": captum_surrogate("KernelShap")},
    "lime": {"captum": captum_surrogate("Lime"), "lime": lime},
    "rise": {"RISE": rise},
}
"""Peers by the id of our method."""
