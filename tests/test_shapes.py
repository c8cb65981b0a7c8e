"""Shapes in annotations are checked while testing: the checker checks."""

from dataclasses import dataclass
from types import ModuleType

import pytest
import torch
from jaxtyping import Float, TypeCheckError
from tests import shapes
from tests.shapes import check_shapes
from torch import Tensor

from heatcheck.core.types import Scores
from heatcheck.methods.integrated_gradients import IntegratedGradients
from heatcheck.metrics.curves import spearman


def doubled(x: Float[Tensor, "b n"]) -> Float[Tensor, "b n"]:
    return torch.cat([x, x], 1)


def plain(x: Tensor) -> Tensor:
    return x


@dataclass(frozen=True)
class Base:
    values: Float[Tensor, "b n"]

    @property
    def first(self) -> Float[Tensor, " n"]:
        return self.values

    @classmethod
    def of(cls, x: Float[Tensor, "b n"] | None) -> "Base":
        return cls(torch.zeros(1, 1) if x is None else x)

    @staticmethod
    def same(x: Float[Tensor, " n"]) -> Tensor:
        return x


@dataclass(frozen=True)
class Inherits(Base):
    name: str = ""


@pytest.fixture(scope="module")
def checked():
    """The definitions above, as a module whose shapes are checked."""
    module = ModuleType(__name__)
    vars(module).update({thing.__name__: thing for thing in (doubled, plain, Base, Inherits)})
    check_shapes(module)
    return module


WRONG = {
    "what a function takes": lambda m: m.doubled(torch.zeros(3)),
    "what it gives": lambda m: m.doubled(torch.zeros(2, 3)),
    "a field": lambda m: m.Base(torch.zeros(3)),
    "an inherited field": lambda m: m.Inherits(torch.zeros(3)),
    "a property": lambda m: m.Base(torch.zeros(2, 3)).first,
    "a class method": lambda m: m.Base.of(torch.zeros(3)),
    "a static method": lambda m: m.Base.same(torch.zeros(2, 3)),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_wrong_shape_is_an_error(checked, wrong):
    with pytest.raises(TypeCheckError):
        wrong(checked)


def test_right_shapes_pass(checked):
    assert checked.doubled(torch.zeros(2, 0)).shape == (2, 0)
    assert checked.Inherits(torch.zeros(2, 3), "a").name == "a"
    assert checked.Base.of(None).values.shape == (1, 1)


def test_of_many_calls_some_are_checked(checked):
    results = []
    for _ in range(3 * shapes.SELDOM):
        try:
            checked.doubled(torch.zeros(2, 3))
            results.append("unseen")
        except TypeCheckError:
            results.append("seen")
    assert results[: shapes.FIRST] == ["seen"] * shapes.FIRST
    assert [i for i, r in enumerate(results) if r == "seen" and i >= shapes.FIRST] == [shapes.SELDOM, 2 * shapes.SELDOM]
    shapes.begin_test()
    with pytest.raises(TypeCheckError):
        checked.doubled(torch.zeros(2, 3))


def test_what_names_no_shape_is_left_as_it_is(checked):
    assert checked.plain is plain
    assert not hasattr(plain, "__wrapped__")


def test_functions_of_the_package_are_checked():
    with pytest.raises(TypeCheckError):
        spearman(torch.zeros(2, 3), torch.zeros(2, 4))


def test_methods_of_components_are_checked():
    assert hasattr(IntegratedGradients.attribute, "__wrapped__")
    assert hasattr(Scores.__init__, "__wrapped__")
