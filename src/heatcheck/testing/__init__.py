"""Toy models with known answers, and the checks that every method and metric passes, ours or yours.

>>> from heatcheck.testing import check_method, contract_tests
>>> check_method("saliency")
"""

from heatcheck.testing.contracts import (
    check_method,
    check_metric,
    checks_for,
    contract_cases,
    contract_tests,
    skipped_checks,
)
from heatcheck.testing.models import (
    TextToy,
    Toy,
    additive,
    additive_text,
    bag_of_words,
    bias_free_relu,
    constant,
    gap_linear,
    linear,
    one_head_attention,
)
from heatcheck.testing.pretend import pretend_device
from heatcheck.testing.scenes import probe_for, toy_batch, toy_maps

__all__ = [
    "TextToy",
    "Toy",
    "additive",
    "additive_text",
    "bag_of_words",
    "bias_free_relu",
    "check_method",
    "check_metric",
    "checks_for",
    "constant",
    "contract_cases",
    "contract_tests",
    "gap_linear",
    "linear",
    "one_head_attention",
    "pretend_device",
    "probe_for",
    "skipped_checks",
    "toy_batch",
    "toy_maps",
]
