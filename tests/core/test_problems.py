"""What the source tells about units without importing them: parameters, facts, and what is wrong with a spec."""

import dataclasses

import pytest
import torch

from heatcheck.core import catalogue
from heatcheck.core.types import HeatcheckError, Inputs
from heatcheck.domain.base import Domain
from heatcheck.domain.image import ImageDomain
from heatcheck.domain.text import TextDomain

SHIPPED = [(kind, id) for kind in catalogue.KINDS for id in catalogue._shipped(kind)]


@pytest.mark.parametrize(("kind", "id"), SHIPPED)
def test_source_and_class_agree(kind: str, id: str) -> None:
    entry, cls = catalogue.find(kind, id), catalogue.component_class(kind, id)
    assert {name: entry.default(name) for name in entry.params} == cls.parameters()
    assert list(entry.params) == list(cls.parameters())
    fields = {f.name: getattr(f.type, "__name__", str(f.type)) for f in dataclasses.fields(cls)}
    assert {n: t for n, t in entry.types.items() if t in ("int", "float", "bool", "str")} == {
        n: t for n, t in fields.items() if t in ("int", "float", "bool", "str")
    }
    facts = {k: v for k, v in entry.facts.items() if k != "version"}
    assert facts == cls.facts
    assert entry.facts["version"] == cls.version


@pytest.mark.parametrize(
    ("kind", "spec", "path", "message"),
    [
        ("metric", "sdss", (), "no metric is called 'sdss'; did you mean sds"),
        ("metric", "sds(", (), "the bracket is not closed"),
        ("metric", "sds(fil=zero)", ("fil",), "metric sds has no parameter 'fil'; did you mean fill"),
        ("metric", "sds(fill=zeroo)", ("fill",), "no fill is called 'zeroo'; did you mean zero"),
        ("metric", "sds(output=logits)", ("output",), "there is no output='logits'; did you mean logit"),
        ("metric", "sds(units=gird(4))", ("units",), "there are no units 'gird(4)'; did you mean grid"),
        ("metric", "morf(steps=2.5)", ("steps",), "morf: steps=2.5 is not a whole number"),
        ("metric", "morf(steps=true)", ("steps",), "morf: steps=True is not a whole number"),
        ("metric", "ids(update=1)", ("update",), "ids: update=1 is not true or false"),
        ("method", "rise(keep=half)", ("keep",), "rise: keep='half' is not a number"),
        ("method", "smoothgrad(of=rise(sample=3))", ("of", "sample"), "rise has no parameter 'sample'"),
    ],
)
def test_what_is_wrong_with_a_written_unit(kind: str, spec: str, path: tuple[str, ...], message: str) -> None:
    ((at, what),) = catalogue.problems(kind, spec)
    assert at == path
    assert message in what


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("metric", "sds(fill=auto, units=cell)"),
        ("metric", "sds(units=grid(8), fill=blur(kernel=3, sigma=2))"),
        ("method", "smoothgrad(of=smoothgrad(of=input_x_gradient(post=abs)), samples=3)"),
        ("method", "smoothgrad(of=saliency(post=none))"),
        ("method", "random(grid=4)"),
        ("method", "random(grid=none)"),
    ],
)
def test_what_is_right_has_no_problem_and_builds(kind: str, spec: str) -> None:
    assert list(catalogue.problems(kind, spec)) == []
    assert catalogue.build(kind, spec).id == spec.split("(")[0]


@pytest.mark.parametrize(
    ("domain", "x"),
    [
        (ImageDomain(), Inputs({"pixels": torch.zeros(1, 3, 8, 8)})),
        (TextDomain(embed=lambda ids: ids), Inputs({"ids": torch.zeros(1, 3), "special": torch.zeros(1, 3).bool()})),
    ],
)
def test_the_units_listed_are_those_of_the_domains(domain: Domain, x: Inputs) -> None:
    listed = [u["form"] for u in catalogue.units().values() if domain.modality in u["on"]]
    with pytest.raises(HeatcheckError) as caught:
        domain.units("nonsense", x)
    assert str(caught.value).split("it has ")[1].split(", ") == listed
    assert list(domain.roles) == list(catalogue.unit_roles())


def test_a_number_alone_in_brackets_stays_one() -> None:
    units = catalogue.build("metric", "sds(units=grid(2))").units
    assert units == "grid(2)"
    assert ImageDomain().units(units, Inputs({"pixels": torch.zeros(1, 3, 8, 8)})).width == 4
