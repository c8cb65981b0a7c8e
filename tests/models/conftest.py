"""Tiny models, made on the spot: random weights, no downloads."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from heatcheck.core.types import Sample, digest_of
from heatcheck.models.vision_shim import load_transformers

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = (
    *SPECIAL,
    *".!?,abc",
    "good",
    "bad",
    "film",
    "the",
    "was",
    "short",
    "check",
    "##s",
    "##der",
    "plot",
    "it",
    "is",
)


class Net(nn.Module):
    """A small convolutional classifier, as a user would write one."""

    def __init__(self, classes=3, scale=1.0):
        super().__init__()
        self.scale = scale
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.act = nn.ReLU()
        self.head = nn.Linear(4, classes)

    def forward(self, x):
        return self.head(self.scale * self.act(self.conv(x)).mean((2, 3)))


@pytest.fixture
def net():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Net()


@pytest.fixture
def picture(tmp_path):
    """A sample of a smooth 60 × 45 picture, in a file without loss."""
    y, x = np.mgrid[0:45, 0:60]
    rgb = np.stack([x * 4, y * 5, (x + y) * 2], -1).astype(np.uint8)
    path = tmp_path / "picture.png"
    Image.fromarray(rgb).save(path)
    return Sample("picture.png", digest_of(path.read_bytes()), path)


def say(text, name="text", **facts):
    return Sample(name, digest_of(text), text, **facts)


def save_text_model(folder: Path, kind="Bert", seed=0, **config):
    """A tiny text classifier with a WordPiece tokenizer, saved as transformers saves them."""
    transformers = load_transformers()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"), do_lower_case=True, model_max_length=40)
    facts = {
        "vocab_size": len(WORDS),
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": 48,
        "pad_token_id": 0,
        "num_labels": 2,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = getattr(transformers, f"{kind}Config")(**{**facts, **config})
        network = getattr(transformers, f"{kind}ForSequenceClassification")(config).eval()
        for weight in network.parameters():
            weight.data.add_(0.3 * torch.randn(weight.shape))
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def bert_folder(tmp_path_factory):
    return save_text_model(tmp_path_factory.mktemp("bert"))
