"""The whole contract of a component, for a plain call or as pytest cases."""

from collections.abc import Callable, Sequence
from typing import Any

from heatcheck.api.benchmark import as_component
from heatcheck.core import catalogue
from heatcheck.core.plugins import line_of
from heatcheck.core.spec import parse
from heatcheck.core.types import HeatcheckError
from heatcheck.methods.base import Method
from heatcheck.metrics.base import Metric
from heatcheck.testing.method_checks import method_checks
from heatcheck.testing.metric_checks import metric_checks, metric_skips
from heatcheck.testing.models import Toy
from heatcheck.testing.scenes import toy_corpus


def check_method(method: Method | str | Callable[..., Any], models: Sequence[Toy] | None = None) -> None:
    """Run every check that a method's declaration calls for; the first broken promise raises AssertionError.

    Args:
        method: the method, its spec, or a function declared with `@hc.method`.
        models: toys to check it on; pictures and texts of our own if none are given.
    """
    _run(_built("method", method), models)


def check_metric(metric: Metric | str | Callable[..., Any], models: Sequence[Toy] | None = None) -> None:
    """Run every check that a metric's declaration calls for; the first broken promise raises AssertionError.

    Args:
        metric: the metric, its spec, or a function declared with `@hc.metric`.
        models: toys to check it on, whose contributions add up; pictures and texts of our own if none are given.
    """
    _run(_built("metric", metric), models)


def _built(kind: str, given: Any) -> Any:
    return staged(catalogue.build(kind, given) if isinstance(given, str) else as_component(kind, given))


def staged(component: Any) -> Any:
    """A component as it is checked: a method that looks at a run's data gets the toys' own."""
    return component.for_corpus(toy_corpus) if isinstance(component, Method) else component


def _run(component: Method | Metric, models: Sequence[Toy] | None) -> None:
    skips = skipped_checks(component)
    for check in checks_for(component):
        if check.__name__ in skips:
            continue
        try:
            check(component, models)
        except (AssertionError, HeatcheckError) as broken:
            raise AssertionError(f"{check.__name__}: {broken}") from None
        except Exception as problem:
            problem.add_note(f"{check.__name__} of {component.name}{line_of(problem)}")
            raise


def checks_for(component: Method | Metric) -> list[Callable[..., None]]:
    """The checks that a component's declaration calls for."""
    return method_checks(component) if isinstance(component, Method) else metric_checks(component)


def skipped_checks(component: Method | Metric) -> dict[str, str]:
    """Names of checks that say nothing about this component, each with the reason."""
    return {} if isinstance(component, Method) else metric_skips(component)


def contract_cases(*components: Method | Metric) -> list[Any]:
    """Components × checks as `pytest.param`s `(component, check)` with readable ids; skipped ones carry their reason."""
    import pytest

    return [
        pytest.param(
            component,
            check,
            id=f"{component.name}-{check.__name__.removeprefix('check_')}",
            marks=[pytest.mark.skip(reason=reason)]
            if (reason := skipped_checks(component).get(check.__name__))
            else [],
        )
        for component in map(staged, components)
        for check in checks_for(component)
    ]


def contract_tests(component: Method | Metric | str) -> Callable[..., None]:
    """A pytest test with one case per check of a component.

    >>> test_contract = contract_tests("saliency")

    A string is a spec of a method, or of a metric if no method has its id.
    """
    import pytest

    if isinstance(component, str):
        kind = "method" if parse(component).id in catalogue.entries("method") else "metric"
        built: Method | Metric = catalogue.build(kind, component)
    else:
        built = component

    def test_contract(component: Method | Metric, check: Callable[..., None]) -> None:
        check(component)

    cases = pytest.mark.parametrize(("component", "check"), contract_cases(built))
    decorated: Callable[..., None] = cases(test_contract)
    return decorated
