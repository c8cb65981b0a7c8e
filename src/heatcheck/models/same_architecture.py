"""Whether two models are of one architecture: the same network, whatever its weights and its classes."""

from heatcheck.core.identity import digest
from heatcheck.core.types import Inputs
from heatcheck.models.base import Model
from heatcheck.models.fingerprints import architecture
from heatcheck.models.retarget import without_width


def network_architecture(model: Model, x: Inputs | None = None) -> str:
    """A digest of the modules of a model's network, their settings and their code, without the number of classes.

    Args:
        model: a model around a torch network.
        x: an input of the model, where its preprocessing is not known.

    Raises:
        HeatcheckError: it is a function, or its last layer cannot be told from the others.
    """
    return digest(architecture(without_width(model, x)))


def same_architecture(a: Model, b: Model) -> bool:
    """Whether two models differ in nothing but their weights, their classes and how they read pictures."""
    return network_architecture(a) == network_architecture(b)
