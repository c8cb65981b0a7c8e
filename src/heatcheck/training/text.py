"""The embedded text default: MiniLM, trained on generated reviews whose decisive words are known."""

import tempfile
from pathlib import Path

from heatcheck.core.progress import Progress
from heatcheck.core.types import HeatcheckError, Modality
from heatcheck.data.base import Dataset
from heatcheck.data.sentiment import CLASSES, Split, corpus
from heatcheck.models.embedded import SENTIMENT_REVIEWS
from heatcheck.models.text_description import set_classes
from heatcheck.models.vision_shim import without_bars
from heatcheck.training.loop import fit
from heatcheck.training.prepare import prepare
from heatcheck.training.recipe import load_recipe

HELD_OUT = 400
ENOUGH = 0.95


def train_sentiment(backbone: Path, folder: Path, progress: str | Progress = "auto") -> float:
    """Train a sentiment classifier and save it with its tokenizer; about half a minute on one core.

    Recipe `text`, variant `embedded`: only the last two layers, the pooler and the head learn, in one pass over the
    corpus, without dropout. One thread and one seed: the same machine gives the same bits. The global random state is
    left alone.

    Args:
        backbone: folder of a BERT model with its tokenizer.
        folder: where the classifier is saved.
        progress: how to tell how far it is.

    Returns:
        The accuracy on held-out reviews.

    Raises:
        HeatcheckError: that accuracy is below 0.95.
    """
    ready = prepare(
        load_recipe("text", "embedded"),
        f"hf:{backbone}",
        _reviews(SENTIMENT_REVIEWS, "train"),
        held_out=_reviews(HELD_OUT, "test"),
        device="cpu",
        threads=1,
    )
    with tempfile.TemporaryDirectory(prefix="heatcheck-") as place:
        record = fit(ready.task, ready.network, ready.record, Path(place), progress=progress)
    accuracy = record.accuracy["chosen"]
    if accuracy < ENOUGH:
        raise HeatcheckError(
            f"the sentiment classifier got {accuracy:.1%} of held-out reviews right, below {ENOUGH:.0%}"
        )
    network = ready.network
    set_classes(network.config, CLASSES)
    with without_bars():
        network.save_pretrained(folder)  # type: ignore[operator]
        ready.task.model.tokenizer.save_pretrained(folder)  # type: ignore[attr-defined]
    return accuracy


def _reviews(n: int, split: Split) -> Dataset:
    return Dataset("reviews", Modality.TEXT, tuple(corpus(n, seed=0, split=split)), CLASSES)
