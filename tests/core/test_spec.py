"""One way to write a unit, read back as it was written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heatcheck.core.spec import Spec, SpecError, parse, split, suggest, write

names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(lambda n: n not in ("true", "false", "none"))
plain = st.one_of(
    st.integers(-(10**9), 10**9), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.none(), names
)


def nested(values):
    params = st.dictionaries(names, values, min_size=1, max_size=3)
    return st.builds(lambda id, params: str(Spec(id, params)), names, params)


specs = st.builds(Spec, names, st.dictionaries(names, st.recursive(plain, nested, max_leaves=6), max_size=4))


@given(specs)
def test_what_is_written_is_read_back(spec):
    assert parse(str(spec)) == spec
    assert str(parse(str(spec))) == str(spec)


@given(specs)
def test_types_survive(spec):
    again = parse(str(spec)).params
    assert {k: type(v) for k, v in again.items()} == {k: type(v) for k, v in spec.params.items()}


@given(st.lists(specs, min_size=1, max_size=4))
def test_lists_are_cut_at_outer_commas_only(several):
    text = ", ".join(map(str, several))
    assert split(text) == [str(s) for s in several]


@given(specs)
def test_spaces_do_not_matter(spec):
    text = str(spec)
    loose = "".join(f" {c} " if c in "(),=" else c for c in text)
    assert parse(loose) == spec


@given(st.text(max_size=12))
def test_any_text_can_be_a_value_and_stands_in_quotes_where_it_must(text):
    inner = Spec("paint", {"prompt": text, "seed": 1})
    outer = Spec("score", {"fill": str(inner), "steps": 2})
    read = parse(str(outer))
    assert read == outer and split(f"{outer}, b") == [str(outer), "b"]
    prompt = parse(read.params["fill"]).params["prompt"]
    assert prompt == text or write(prompt) == text


def test_quotes_are_used_only_where_they_are_needed():
    written = [write(v) for v in ("tiger cat", "cat", "grid(4)", "4", "1.5", "true", "none", "", "a/b", 'say "x"')]
    assert written == [
        '"tiger cat"', "cat", "grid(4)", "4", '"1.5"', '"true"', "none", '""', '"a/b"', r'"say \"x\""',
    ]  # fmt: skip
    with pytest.raises(SpecError, match="cannot read"):
        parse(r'a(b="\q")')


def test_known_examples():
    assert parse("smoothgrad(of=integrated_gradients(steps=8), samples=4)").params == {
        "of": "integrated_gradients(steps=8)",
        "samples": 4,
    }
    assert parse("grid(4)") == Spec("grid", {"n": 4})
    assert str(Spec("grid", {"n": 4})) == "grid(4)"
    assert parse("sds(units=grid( 8 ))").params == {"units": "grid(8)"}
    assert parse("a(b=True, c=None, d=-1.5e-3)").params == {"b": True, "c": None, "d": -0.0015}
    assert [write(v) for v in (None, True, 1.0, 1, "x")] == ["none", "true", "1.0", "1", "x"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected an id"),
        ("(a=1)", "expected an id"),
        ("4", "expected an id"),
        ("a(b=1", "not closed"),
        ("a(b=", "value is missing"),
        ("a(b=)", "value is missing"),
        ("a(b=1))", "did not expect"),
        ("a b", "did not expect 'b'"),
        ("a(b=1 c=2)", "comma before 'c'"),
        ("a(4 5)", "comma before '5'"),
        ("a(b=1, b=2)", "b is given twice"),
        ("a(b=1.2.3)", "cannot read"),
        ("a(b='x')", "cannot read"),
        ("a; rm", "cannot read"),
    ],
)
def test_what_cannot_be_read_is_repeated_back(text, says):
    with pytest.raises(SpecError) as problem:
        parse(text)
    assert says in str(problem.value)
    assert repr(text) in str(problem.value)


def test_suggestions():
    assert suggest("salency", ["saliency", "rise"]) == "; did you mean saliency?"
    assert suggest("xyz", ["saliency", "rise"]) == "; known: rise, saliency"
    assert suggest("xyz", []) == ""
