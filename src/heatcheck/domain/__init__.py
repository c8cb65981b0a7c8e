"""Pictures and texts, behind one interface."""

from heatcheck.domain.base import Domain, Units, Windows
from heatcheck.domain.image import ImageDomain
from heatcheck.domain.text import TextDomain

__all__ = ["Domain", "ImageDomain", "TextDomain", "Units", "Windows"]
