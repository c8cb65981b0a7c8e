"""Every shipped unit keeps every promise it makes; a new file is tested without touching this one."""

from dataclasses import replace

import pytest

from heatcheck import catalogue
from heatcheck.testing import contract_cases, method_checks, metric_checks

METHOD_VARIANTS = (
    "occlusion(units=segment)",
    "integrated_gradients(baseline=uniform)",
    "smoothgrad(of=occlusion, samples=3)",
    "saliency(output=prob, reduction=l2)",
)
METRIC_VARIANTS = ("sds(units=segment)", "morf(units=segment)", "ids(update=true, steps=5)", "abpc(ties=index)")
KNOWN = {"mprt-passes_predicted": "a plan does not know that a model has fewer layers than mprt stops at"}


def shipped(kind):
    """Every unit with its defaults, but few samples where it draws a thousand."""
    units = [catalogue.build(kind, id) for id in sorted(catalogue.entries(kind))]
    return cases(*(replace(u, samples=100) if getattr(u, "samples", 0) > 100 else u for u in units))


def variants(kind, *specs):
    """Units with other parameters must behave as well; what they claim to be, they claim for their defaults."""
    general = {*method_checks.GENERAL, *metric_checks.GENERAL}
    units = [catalogue.build(kind, spec) for spec in specs]
    return [case for case in cases(*units) if case.values[1] in general]


def cases(*units):
    """Known failures are listed with their reason, and must still fail."""
    for case in contract_cases(*units):
        known = [pytest.mark.xfail(reason=KNOWN[case.id])] if case.id in KNOWN else []
        yield pytest.param(*case.values, id=case.id, marks=[*case.marks, *known])


@pytest.mark.parametrize(("method", "check"), [*shipped("method"), *variants("method", *METHOD_VARIANTS)])
def test_method(method, check):
    check(method)


@pytest.mark.parametrize(("metric", "check"), [*shipped("metric"), *variants("metric", *METRIC_VARIANTS)])
def test_metric(metric, check):
    check(metric)
