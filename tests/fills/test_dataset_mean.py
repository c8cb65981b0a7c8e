"""The data set's mean colour."""

import pytest
import torch

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import NotApplicable
from heatcheck.domain.image import ImageDomain
from heatcheck.testing import additive, toy_batch

MUTANTS = (
    (
        "fills/dataset_mean.py",
        "low + colour * (high - low)",
        "colour * (high - low)",
        "test_other_normalisations_and_other_means",
    ),
    (
        "fills/dataset_mean.py",
        "(self.red, self.green, self.blue)",
        "(self.blue, self.green, self.red)",
        "test_other_normalisations_and_other_means",
    ),
)


def full(spec, domain, channels=3):
    return catalogue.build("fill", spec).full(domain, toy_batch(additive((channels, 8, 8)), 2))["pixels"]


def test_it_is_zero_for_models_that_subtract_it():
    domain = ImageDomain(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    torch.testing.assert_close(full("dataset_mean", domain), torch.zeros(2, 3, 8, 8, dtype=torch.float64))


def test_other_normalisations_and_other_means():
    domain = ImageDomain(mean=(0.5,) * 3, std=(0.25,) * 3)
    expected = torch.tensor([(0.485 - 0.5) / 0.25, (0.456 - 0.5) / 0.25, (0.406 - 0.5) / 0.25], dtype=torch.float64)
    torch.testing.assert_close(full("dataset_mean", domain), expected[:, None, None].expand(2, 3, 8, 8))
    own = full("dataset_mean(red=0.1, green=0.5, blue=1)", domain)[1, :, 3, 4]
    torch.testing.assert_close(own, torch.tensor([-1.6, 0.0, 2.0], dtype=torch.float64))


def test_what_it_cannot_do_is_said():
    with pytest.raises(SpecError, match=r"red=124.0 is not a colour from 0 to 1"):
        catalogue.build("fill", "dataset_mean(red=124)")
    with pytest.raises(NotApplicable, match=r"three channels, and these pictures have 1"):
        full("dataset_mean", ImageDomain(mean=(0.5,), std=(0.5,)), 1)
    with pytest.raises(NotApplicable, match=r"normalisation is not known"):
        full("dataset_mean", ImageDomain())
