"""Every shipped unit keeps every promise it makes; a new file is tested without touching this one."""

from dataclasses import dataclass, replace

import pytest
import torch

from heatcheck import catalogue
from heatcheck.methods.base import Method
from heatcheck.metrics.base import Metric, undefined
from heatcheck.testing import contract_cases
from heatcheck.testing import method_checks as of_methods
from heatcheck.testing import metric_checks as of_metrics
from heatcheck.types import NotApplicable, Scores


def shipped(kind):
    """Every unit with its defaults, but few samples where it draws a thousand."""
    units = [catalogue.build(kind, id) for id in sorted(catalogue.entries(kind))]
    return [replace(u, samples=100) if getattr(u, "samples", 0) > 100 else u for u in units]


@pytest.mark.parametrize(("method", "check"), contract_cases(*shipped("method")))
def test_method(method, check):
    check(method)


@pytest.mark.parametrize(("metric", "check"), contract_cases(*shipped("metric")))
def test_metric(metric, check):
    check(metric)
