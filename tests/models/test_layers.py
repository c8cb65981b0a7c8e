"""Feature maps are found in networks of every build, and laid out right."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

from heatcheck.core.types import Inputs
from heatcheck.domain.image import ImageDomain
from heatcheck.models.layers import Layer
from heatcheck.models.torch_model import TorchModel
from heatcheck.models.vision_shim import load_timm, load_torchvision, load_transformers

SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": 32,
    "patch_size": 8,
}


def timm(name, **options):
    return lambda: load_timm().create_model(name, num_classes=3, **options)


def torchvision(name, **options):
    return lambda: getattr(load_torchvision().models, name)(num_classes=3, **options)


def hf(name, **options):
    def make():
        library = load_transformers()
        config = getattr(library, f"{name.removesuffix('WithTeacher')}Config")(**options)
        model = name.replace("WithTeacher", "") + "ForImageClassification"
        return getattr(library, model + ("WithTeacher" if name.endswith("WithTeacher") else ""))(config)

    return make


def timm_swin(**options):
    def make():
        load_timm()
        from timm.models.swin_transformer import SwinTransformer

        return SwinTransformer(patch_size=4, depths=(1, 1), num_heads=(1, 2), window_size=4, num_classes=3, **options)

    return make


def distilled():
    load_timm()
    from timm.models.deit import VisionTransformerDistilled

    return VisionTransformerDistilled(img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=3)


def torchvision_vit():
    net = load_torchvision().models.VisionTransformer(32, 8, 2, 2, 16, 24, num_classes=3)
    nn.init.normal_(net.heads.head.weight)
    return net


def vgg():
    """Like VGG, it brings its last feature map to one size whatever the picture's."""
    features = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2))
    head = OrderedDict(
        features=features, avgpool=nn.AdaptiveAvgPool2d(7), flatten=nn.Flatten(), classifier=nn.Linear(294, 3)
    )
    return nn.Sequential(head)


def torchvision_swin():
    return load_torchvision().models.swin_transformer.SwinTransformer([4, 4], 8, [1, 1], [1, 2], [4, 4], num_classes=3)


LAST = {
    "resnet": (timm("test_resnet"), (64, 96), Layer("layer4", 96, 2, 3)),
    "convnext": (timm("test_convnext"), (64, 96), Layer("stages", 64, 2, 3)),
    "efficientnet": (timm("test_efficientnet"), (64, 96), Layer("bn2", 256, 2, 3)),
    "mobilenet": (timm("mobilenetv3_small_050"), (64, 96), Layer("blocks", 288, 2, 3)),
    "nhwc": (timm("test_mambaout"), (64, 96), Layer("stages", 64, 2, 3, "channels_last")),
    "vgg": (vgg, (16, 24), Layer("features", 6, 8, 12)),
    "torchvision resnet": (torchvision("resnet18"), (64, 96), Layer("layer4", 512, 2, 3)),
    "torchvision mobilenet": (torchvision("mobilenet_v3_small"), (64, 96), Layer("features", 576, 2, 3)),
    "densenet": (torchvision("densenet121"), (64, 96), Layer("features", 1024, 2, 3)),
    "vit": (timm("test_vit", img_size=(32, 64)), (32, 64), Layer("blocks.5.norm1", 64, 2, 4, "tokens", 1)),
    "registers": (
        timm("test_vit", img_size=32, reg_tokens=4), (32, 32), Layer("blocks.5.norm1", 64, 2, 2, "tokens", 5),
    ),
    "pooled vit": (
        timm("test_vit", img_size=32, global_pool="avg"), (32, 32), Layer("blocks", 64, 2, 2, "tokens", 1),
    ),
    "distilled": (distilled, (32, 32), Layer("blocks.1.norm1", 32, 4, 4, "tokens", 2)),
    "class attention": (
        timm("cait_xxs24_224", img_size=64, depth=1), (64, 64),
        Layer("blocks_token_only.1.norm1", 192, 4, 4, "tokens", 1),
    ),
    "swin": (timm_swin(img_size=(32, 64), embed_dim=8), (32, 64), Layer("norm", 16, 4, 8, "channels_last")),
    "torchvision vit": (
        torchvision_vit, (32, 32), Layer("encoder.layers.encoder_layer_1.ln_1", 16, 4, 4, "tokens", 1),
    ),
    "torchvision swin": (torchvision_swin, (32, 64), Layer("permute", 16, 4, 8)),
    "hf vit": (hf("ViT", **SMALL), (32, 32), Layer("vit.layers.1.layernorm_before", 16, 4, 4, "tokens", 1)),
    "hf distilled": (
        hf("DeiTWithTeacher", **SMALL), (32, 32), Layer("deit.layers.1.layernorm_before", 16, 4, 4, "tokens", 2),
    ),
    "hf registers": (
        hf("Dinov2WithRegisters", **SMALL), (32, 32),
        Layer("dinov2_with_registers.layernorm", 16, 4, 4, "tokens", 5),
    ),
    "hf swin": (
        hf("Swin", image_size=64, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4),
        (64, 64), Layer("swin.layernorm", 16, 8, 8, "tokens", 0),
    ),
}  # fmt: skip


def layers(net, size):
    rng = torch.Generator().manual_seed(0)
    model = TorchModel(net, "net", ImageDomain())
    return model.layers(Inputs({"pixels": torch.randn(2, 3, *size, generator=rng)}))


@pytest.mark.parametrize("name", LAST)
def test_the_last_feature_map_that_counts_is_found(name):
    make, size, want = LAST[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = make()
    assert layers(net, size)[-1] == want


def test_a_cube_is_read_as_others_of_its_class_are():
    net = timm_swin(img_size=64, embed_dim=16)()
    found = {layer.name: layer for layer in layers(net, (64, 64))}
    assert found["layers.0"].layout == "channels_last"
    assert found["layers.0.blocks.0"] == Layer("layers.0.blocks.0", 16, 16, 16, "channels_last")
    assert found["patch_embed.proj"].layout == "channels_first"


class ByPatches(nn.Module):
    """A transformer whose patches are cut out without a convolution."""

    def __init__(self, prefix, side=4):
        super().__init__()
        self.side = side
        self.embed = nn.Linear(3 * side * side, 8)
        self.prefix = nn.Parameter(torch.randn(1, prefix, 8))
        self.norm = nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        patches = nn.functional.unfold(x, self.side, stride=self.side).transpose(1, 2)
        tokens = torch.cat([self.prefix.expand(len(x), -1, -1), self.embed(patches)], 1)
        normed = self.norm(tokens)
        return self.head((tokens + self.attention(normed, normed, normed, need_weights=False)[0])[:, 0])


@pytest.mark.parametrize(("prefix", "size"), [(1, (12, 12)), (1, (8, 16)), (2, (16, 16))])
def test_without_a_convolution_the_grid_has_the_pictures_proportions(prefix, size):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        found = layers(ByPatches(prefix), size)[-1]
    assert found == Layer("norm", 8, size[0] // 4, size[1] // 4, "tokens", prefix)


def test_sequences_of_a_network_without_attention_are_no_grid():
    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Linear(24, 5), nn.Linear(5, 2)

        def forward(self, x):
            return self.head(self.embed(x.movedim(1, 2).flatten(2)).mean(1))

    assert layers(Rows(), (4, 8)) == []


def test_flattened_channels_are_no_tokens():
    net = nn.Sequential(nn.Conv2d(3, 6, 1), nn.Flatten(2), nn.Linear(4, 4), nn.Flatten(), nn.Linear(24, 2))
    assert [layer.name for layer in layers(net, (2, 2))] == ["0"]


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (Layer("l", 5, 2, 3), (4, 5, 2, 3)),
        (Layer("l", 5, 2, 3, "channels_last"), (4, 2, 3, 5)),
        (Layer("l", 5, 2, 3, "tokens", 2), (4, 8, 5)),
    ],
)
def test_maps_are_views_of_the_output(layer, shape):
    out = torch.arange(float(torch.tensor(shape).prod())).reshape(shape)
    maps = layer.maps(out)
    assert maps.shape == (4, 5, 2, 3)
    maps[1, 3, 1, 2] = -1
    where = {"channels_first": (1, 3, 1, 2), "channels_last": (1, 1, 2, 3), "tokens": (1, 7, 3)}[layer.layout]
    assert out[where] == -1 and (out == -1).sum() == 1


def test_networks_that_cannot_be_differentiated_show_their_layers():
    class Detached(ByPatches):
        def forward(self, x):
            return super().forward(x).detach()

    assert [layer.name for layer in layers(Detached(1), (8, 8))] == ["embed", "norm"]
