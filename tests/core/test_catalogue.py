"""What there is, without importing what it needs; and units that refuse what they cannot use."""

import dataclasses
import inspect
import subprocess
import sys

import pytest

from heatcheck.core import catalogue
from heatcheck.core.identity import digest
from heatcheck.core.spec import SpecError
from heatcheck.domain.component import Component
from heatcheck.methods.base import method
from heatcheck.metrics.base import Metric, SiteMetric, metric
from heatcheck.testing import bag_of_words, gap_linear

KINDS = ("method", "metric", "fill")
ALL = [(kind, id) for kind in KINDS for id in sorted(catalogue.entries(kind))]
FIELDS = [(kind, id, name) for kind, id in ALL for name in catalogue.component_class(kind, id).parameters()]


def test_listing_imports_neither_torch_nor_numpy():
    code = (
        "import sys, heatcheck.core.catalogue as c\n"
        "n = sum(len(c.entries(k)) for k in c.KINDS)\n"
        "[e.record() for k in c.KINDS for e in c.entries(k).values()]\n"
        "print(n, sorted({'torch', 'numpy', 'jaxtyping'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == f"{len(ALL)} []"


@pytest.mark.parametrize(("kind", "id"), ALL)
def test_the_source_and_the_class_say_the_same(kind, id):
    entry, cls = catalogue.find(kind, id), catalogue.component_class(kind, id)
    assert (cls.id, cls.kind, cls.__name__) == (id, kind, entry.name)
    assert issubclass(cls, Component)
    for name, value in entry.facts.items():
        if name != "version":
            assert cls.facts[name] == value
    assert set(entry.params) <= set(cls.parameters())
    assert entry.summary and entry.summary.endswith((".", "?")), "a docstring begins with a sentence"


@pytest.mark.parametrize(("kind", "id"), ALL)
def test_every_parameter_is_documented(kind, id):
    cls = catalogue.component_class(kind, id)
    docs = "\n".join(inspect.cleandoc(base.__doc__ or "") for base in cls.__mro__)
    for name in cls.parameters():
        assert f"\n    {name}:" in docs, f"{id}: parameter {name} is not documented under Args"


@pytest.mark.parametrize(("kind", "id"), ALL)
def test_units_are_frozen_hashable_and_keyword_only(kind, id):
    cls = catalogue.component_class(kind, id)
    unit = cls()
    assert unit == cls() and hash(unit) == hash(cls())
    assert unit.name == id
    for f in dataclasses.fields(cls):
        assert f.kw_only
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(unit, f.name, getattr(unit, f.name))


# -- every parameter counts --------------------------------------------------------------------------------------


def another_value(cls, name):
    """A value that the parameter accepts and that is not its default, found by its type and name."""
    kind = {f.name: f.type for f in dataclasses.fields(cls)}[name]
    default = cls.parameters()[name]
    nested = {"fill": ["black", "blur"], "method": ["input_x_gradient", "saliency"]}
    guesses = [
        *getattr(cls, "choices", {}).get(name, ()),
        *catalogue.CHOICES.get(name, ()),
        *(nested[catalogue.NESTED[name]] if name in catalogue.NESTED else ()),
        *(["grid(2)", "token"] if name == "units" else []),
        *([not default] if isinstance(default, bool) else []),
        *([default + 1, 2, 1, default * 2] if isinstance(default, int) and not isinstance(default, bool) else []),
        *([default * 0.7 + 0.013] if isinstance(default, float) else []),
        *([3] if default is None else []),
        "zero",
        "linspace_n",
        "layer4",
    ]
    for guess in guesses:
        if guess == default:
            continue
        try:
            cls(**needed(cls, name), **{name: guess})
        except (SpecError, ValueError, TypeError):
            continue
        return guess
    raise AssertionError(f"{cls.id}: no other value found for {name}; default {default!r}, type {kind}")


def needed(cls, name):
    """What else must be said for a parameter to have another value."""
    return {"baseline": "uniform"} if name == "baselines" else {}


@pytest.mark.parametrize(("kind", "id", "name"), FIELDS)
def test_every_parameter_is_part_of_the_identity_and_the_name(kind, id, name):
    cls = catalogue.component_class(kind, id)
    also = needed(cls, name)
    plain, changed = cls(**also), cls(**also, **{name: another_value(cls, name)})
    assert digest(changed.identity()) != digest(plain.identity())
    assert changed.name != plain.name
    assert catalogue.build(kind, changed.name) == changed


@pytest.mark.parametrize(("kind", "id"), ALL)
def test_identity_is_plain_data_with_the_version(kind, id):
    unit = catalogue.component_class(kind, id)()
    facts = unit.identity()
    assert facts["id"] == id and facts["version"] == unit.version
    older = {"scale": "absolute"} if id in ("smoothgrad", "smoothgrad_sq", "vargrad") else {}  # its results are kept
    at_sites = isinstance(unit, SiteMetric) and unit.units == "site"
    unsaid = {"units"} if at_sites else set()  # they had none once; their results on sites are kept
    assert set(facts["params"]) == {older.get(name, name) for name in unit.parameters()} - unsaid
    assert digest(facts) == digest(catalogue.build(kind, id).identity())


def test_a_nested_units_parameters_count():
    a = catalogue.build("method", "smoothgrad(of=integrated_gradients(steps=8))")
    b = catalogue.build("method", "smoothgrad(of=integrated_gradients(steps=9))")
    assert digest(a.identity()) != digest(b.identity())
    spelled = catalogue.build("method", "smoothgrad(of=integrated_gradients(steps=50))")
    short = catalogue.build("method", "smoothgrad(of=integrated_gradients)")
    assert digest(spelled.identity()) == digest(short.identity())


def test_a_whole_number_for_a_float_is_the_same_value():
    a, b = catalogue.build("fill", "blur(sigma=5)"), catalogue.build("fill", "blur(sigma=5.0)")
    assert a == b and a.name == b.name and digest(a.identity()) == digest(b.identity())


def test_roles_and_auto_fills_resolve_before_they_are_filed():
    on_images = catalogue.build("metric", "sds").resolve(gap_linear().domain)
    on_texts = catalogue.build("metric", "sds").resolve(bag_of_words().domain)
    assert (on_images.units, on_images.fill) == ("grid(4)", "zero")
    assert (on_texts.units, on_texts.fill) == ("token", "pad")
    assert on_images.resolve(gap_linear().domain) == on_images


# -- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "id", "name"), FIELDS)
def test_a_wrong_value_is_answered_with_the_parameters_name(kind, id, name):
    cls = catalogue.component_class(kind, id)
    field = {f.name: f for f in dataclasses.fields(cls)}[name]
    wrong = {int: "many", float: "wide", bool: "perhaps", str: 3.5}.get(field.type, object())
    if name in catalogue.NESTED:
        with pytest.raises(SpecError, match="nonesuch"):
            catalogue.build(kind, f"{id}({name}=nonesuch)").resolve(gap_linear().domain)
        return
    unit = object.__new__(cls)  # the types that tests check at every call would answer first
    for key, value in {**cls.parameters(), name: wrong}.items():
        object.__setattr__(unit, key, value)
    with pytest.raises(SpecError) as problem:
        unit.__post_init__()
    assert name in str(problem.value) and id in str(problem.value)


def test_counts_below_one_are_refused():
    with pytest.raises(SpecError, match=r"integrated_gradients: steps=0"):
        catalogue.build("method", "integrated_gradients(steps=0)")


def test_unknown_names_are_answered_with_near_ones():
    with pytest.raises(SpecError, match=r"'salency'; did you mean saliency\?"):
        catalogue.build("method", "salency")
    with pytest.raises(SpecError, match=r"sds has no parameter 'unit'; did you mean units\?"):
        catalogue.build("metric", "sds(unit=token)")
    with pytest.raises(SpecError, match=r"output='logits' is not one of logit, prob"):
        catalogue.build("metric", "sds(output=logits)")


# -- one's own ---------------------------------------------------------------------------------------------------


@pytest.fixture
def clean_registry(monkeypatch):
    monkeypatch.setattr(catalogue, "_own", {})


@pytest.mark.usefixtures("clean_registry")
def test_a_function_of_ones_own_becomes_a_method():
    @method("twice_the_slope", uses=("gradient",))
    def twice(model, x, target, *, factor: float = 2.0):
        """The gradient, doubled."""
        return factor * x

    entry = catalogue.entries("method")["twice_the_slope"]
    assert entry.summary == "The gradient, doubled."
    unit = catalogue.build("method", "twice_the_slope(factor=3)")
    assert unit.name == "twice_the_slope(factor=3.0)"
    assert twice.__name__ == "twice"


@pytest.mark.usefixtures("clean_registry")
def test_an_id_is_taken_once():
    with pytest.raises(SpecError, match="'saliency' already exists"):

        @method("saliency")
        def mine(model, x, target):
            """Mine."""

    @method("mine_alone")
    def first(model, x, target):
        """First."""

    first.__module__ = "elsewhere"
    with pytest.raises(SpecError, match="'mine_alone' is already defined"):
        method("mine_alone")(first)


@pytest.mark.usefixtures("clean_registry")
def test_a_metric_of_ones_own_joins_the_list():
    @metric("always_one", better="higher", within=(1, 1))
    @dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
    class AlwaysOne(Metric):
        """One."""

        def score(self, probe, batch, maps):
            raise AssertionError

    assert catalogue.build("metric", "always_one") == AlwaysOne()
    assert catalogue.entries("metric")["always_one"].record()["better"] == "higher"
    with pytest.raises(ValueError, match="upwards"):
        metric("x", better="upwards")


def test_build_passes_units_through_and_takes_defaults():
    unit = catalogue.build("method", "rise(samples=7)", grid=3)
    assert (unit.samples, unit.grid) == (7, 3)
    assert catalogue.build("method", unit) is unit
    assert catalogue.build("method", type(unit), samples=9).samples == 9


@pytest.mark.parametrize(("kind", "id"), ALL)
def test_words_are_read_from_the_source_as_the_class_has_them(kind, id):
    entry, cls = catalogue.find(kind, id), catalogue.component_class(kind, id)
    real = {**catalogue.CHOICES, **cls.choices}
    for name, words in entry.choices.items():
        assert words == tuple(real[name])
    assert {n for n in entry.params if n in catalogue.CHOICES} <= set(entry.choices)


def test_a_wrong_word_is_found_before_anything_is_imported():
    ((path, what),) = catalogue.problems("metric", "road(order=first)")
    assert path == ("order",) and "there is no order='first'" in what


def test_roles_are_those_of_every_domain():
    from heatcheck.domain.image import ImageDomain
    from heatcheck.domain.text import TextDomain

    for domain in (ImageDomain, TextDomain):
        assert set(domain.roles) == set(catalogue.unit_roles())
        for role, units in domain.roles.items():
            assert f"{units} on {domain.modality}s" in catalogue.unit_roles()[role]["summary"]
