"""Loading models, some of which are trained on first use."""

from typing import Any

from heatcheck.models import load
from heatcheck.models.base import Model
from heatcheck.training.text import train_sentiment

TRAINERS = {"minilm_sentiment": train_sentiment}
"""What trains a model on first use, by its id."""


def load_model(spec: Any, **options: Any) -> Model:
    """A classifier that methods and metrics can ask; see `heatcheck.models.load.load_model`.

    The embedded text classifier is trained on first use and kept in the cache.
    """
    return load.load_model(spec, trainers=TRAINERS, **options)
