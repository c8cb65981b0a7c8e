"""Fine-tuning of the embedded text default: MiniLM on generated reviews whose decisive words are known."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heatcheck.core.progress import Progress, choose
from heatcheck.core.types import HeatcheckError, Sample
from heatcheck.data.sentiment import CLASSES, corpus
from heatcheck.models.embedded import SENTIMENT_REVIEWS
from heatcheck.models.vision_shim import load_transformers, without_bars
from heatcheck.models.weights import load_weights
from heatcheck.probe.calls import threads

HELD_OUT = 400
ENOUGH = 0.95
_LAYERS, _BATCH, _RATE, _WARM_UP, _SEED = 2, 16, 3e-4, 10, 0


def train_sentiment(backbone: Path, folder: Path, progress: str | Progress = "auto") -> float:
    """Train a sentiment classifier and save it with its tokenizer; about half a minute on one core.

    Only the last two layers, the pooler and the head learn, in one pass over the corpus, without dropout. One thread
    and one seed: the same machine gives the same bits. The global random state is left alone.

    Args:
        backbone: folder of a BERT model with its tokenizer.
        folder: where the classifier is saved.
        progress: how to tell how far it is.

    Returns:
        The accuracy on held-out reviews.

    Raises:
        HeatcheckError: that accuracy is below 0.95.
    """
    transformers = load_transformers()
    tokenizer = transformers.AutoTokenizer.from_pretrained(backbone, local_files_only=True)
    with torch.random.fork_rng(devices=[]), threads(1):
        torch.manual_seed(_SEED)
        network = _classifier(transformers, backbone)
        _fit(network, tokenizer, corpus(SENTIMENT_REVIEWS, seed=_SEED, split="train"), choose(progress))
        accuracy = measure_accuracy(network, tokenizer, corpus(HELD_OUT, seed=_SEED, split="test"))
    if accuracy < ENOUGH:
        raise HeatcheckError(
            f"the sentiment classifier got {accuracy:.1%} of held-out reviews right, below {ENOUGH:.0%}"
        )
    with without_bars():
        network.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return accuracy


def measure_accuracy(network: nn.Module, tokenizer: Any, samples: Sequence[Sample]) -> float:
    """The share of samples whose label the network predicts."""
    right = 0
    with torch.inference_mode():
        for start in range(0, len(samples), 2 * _BATCH):
            part = samples[start : start + 2 * _BATCH]
            right += int((_logits(network, tokenizer, part).argmax(1) == _labels(part)).sum())
    return right / len(samples)


def _classifier(transformers: Any, backbone: Path) -> Any:
    names = dict(enumerate(CLASSES))
    config = transformers.BertConfig.from_pretrained(
        backbone, id2label=names, label2id={v: k for k, v in names.items()}, local_files_only=True
    )
    config._attn_implementation = "eager"
    network = transformers.BertForSequenceClassification(config)
    state = load_weights(backbone / "model.safetensors")
    network.bert.load_state_dict({k: v for k, v in state.items() if k != "embeddings.position_ids"})
    return network.eval()


def _fit(network: Any, tokenizer: Any, samples: Sequence[Sample], progress: Progress) -> None:
    learning = [
        *network.bert.encoder.layer[-_LAYERS:].parameters(),
        *network.bert.pooler.parameters(),
        *network.classifier.parameters(),
    ]
    network.requires_grad_(False)
    for weight in learning:
        weight.requires_grad_(True)
    optimiser = torch.optim.AdamW(learning)
    batches = _batches(samples)
    progress.begin("training the text default", len(samples))
    for step, batch in enumerate(batches):
        for group in optimiser.param_groups:
            group["lr"] = _RATE * min(1.0, (step + 1) / _WARM_UP) * (1 - step / len(batches))
        loss = F.cross_entropy(_logits(network, tokenizer, batch), _labels(batch))
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        progress.advance(len(batch))
    progress.end()
    network.requires_grad_(True)


def _batches(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Samples in random order, in batches of similar length, the batches shuffled again."""
    rng = torch.Generator().manual_seed(_SEED)
    order = [samples[i] for i in torch.randperm(len(samples), generator=rng).tolist()]
    pool = 8 * _BATCH
    batches = []
    for start in range(0, len(order), pool):
        near = sorted(order[start : start + pool], key=lambda s: len(s.content))
        batches += [near[i : i + _BATCH] for i in range(0, len(near), _BATCH)]
    return [batches[i] for i in torch.randperm(len(batches), generator=rng).tolist()]


def _logits(network: nn.Module, tokenizer: Any, samples: Sequence[Sample]) -> Tensor:
    encoded = tokenizer([s.content for s in samples], padding=True, truncation=True, return_tensors="pt")
    logits: Tensor = network(**encoded).logits
    return logits


def _labels(samples: Sequence[Sample]) -> Tensor:
    return torch.tensor([s.label for s in samples])
