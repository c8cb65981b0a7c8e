"""Labels that are names, and the classes of models."""

import pytest

from heatcheck.data import Dataset, load_data
from heatcheck.data.matching import match_labels

MUTANTS = (
    (
        "data/matching.py",
        "any(other.classes != first.classes for other in others)",
        "False",
        "test_models_that_disagree_have_no_labels",
    ),
    ("data/matching.py", 'name.split(",")', "[name]", "test_synonyms_and_spelling"),
    ("data/matching.py", "i if here[i] else", "", "test_a_name_that_two_classes_have_means_the_one_in_its_place"),
)


def named(*labels: str) -> Dataset:
    """Texts whose labels are words."""
    return load_data([(f"text {i}", label) for i, label in enumerate(labels)])


def given(*labels: int, classes: tuple[str, ...]) -> Dataset:
    """Texts whose labels are numbers of given classes."""
    return load_data([(f"text {i}", label) for i, label in enumerate(labels)], classes=classes)


def labels(data: Dataset) -> list[int | None]:
    return [s.label for s in data]


def test_words_are_numbered_as_the_model_numbers_them() -> None:
    found = match_labels(named("negative", "positive", "negative"), {"m": ("positive", "neutral", "negative")})
    assert labels(found) == [2, 0, 2] and found.classes == ("positive", "neutral", "negative")
    assert found.notes[-1] == "labels are names, numbered as m numbers its classes: negative = 2, positive = 0"


def test_synonyms_and_spelling() -> None:
    names = ("tabby, tabby cat", "crane, machine", "crane, bird", "Border_Collie", "cat")
    found = match_labels(named("Tabby Cat", "border-collie", "CRANE", "bird", "cat"), {"m": names})
    assert labels(found) == [0, 3, None, 2, 4]
    assert found.notes[-1] == "1 of 5 samples count as unlabelled: 1 × 'CRANE' is no class of m, such as '00002'"


def test_a_name_that_two_classes_have_means_the_one_in_its_place() -> None:
    names = ("crane", "heron", "crane")
    found = match_labels(given(0, 1, 2, classes=names), {"m": names})
    assert labels(found) == [0, 1, 2] and not found.notes


def test_words_that_are_no_class_are_no_label() -> None:
    found = match_labels(named("cats", "dogs", "cats"), {"m": tuple(f"class {i}" for i in range(9))})
    assert labels(found) == [None] * 3
    assert found.notes[-1] == (
        "3 of 3 samples count as unlabelled: 2 × 'cats' is no class of m, such as '00000'; "
        "1 × 'dogs' is no class of m, such as '00001'"
    )


def test_as_many_words_as_classes_are_a_guess_that_is_said() -> None:
    found = match_labels(named("good", "bad"), {"m": ("NEG", "POS")})
    assert labels(found) == [1, 0]
    assert found.notes[-1] == (
        "labels are names, numbered in sorted order: bad = 0, good = 1; a guess, since m calls its 2 classes NEG, POS"
    )


def test_a_model_without_names_leaves_the_sorted_order_and_that_is_said() -> None:
    found = match_labels(named("good", "bad"), {"m": None})
    assert labels(found) == [1, 0]
    assert found.notes[-1].endswith("bad = 0, good = 1; a guess, since the models name no classes")


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (("b", "a", "c"), [1, 0]),  # the same names in another order
        (("x", "y", "z"), [0, 1]),  # as many others
        (("a", "x", "y"), [0, 1]),  # as many, some of them others
        (("x", "y"), [None, None]),  # another number, and none of them
        (("x", "y", "b", "a"), [3, 2]),  # another number, with all that occur
        (("x", "y", "b", "z"), [0, 1]),  # another number, without some that occur
        (None, [0, 1]),
    ],
)
def test_classes_that_were_given_keep_their_order_unless_the_models_names_say_otherwise(
    classes: tuple[str, ...] | None, expected: list[int | None]
) -> None:
    found = match_labels(given(0, 1, classes=("a", "b", "c")), {"m": classes})
    assert labels(found) == expected
    assert len(found.notes) == (expected != [0, 1])


def test_models_that_disagree_have_no_labels() -> None:
    data = named("bad", "good")
    found = match_labels(data, {"m": ("bad", "good"), "k": ("good", "bad"), "nameless": None})
    assert labels(found) == [None, None]
    assert "m, k number the classes bad, good differently" in found.notes[-1]
    assert labels(match_labels(data, {"m": ("good", "bad"), "k": ("good", "bad")})) == [1, 0]


def test_numbers_and_unlabelled_samples_are_left_alone() -> None:
    for data in (load_data([("a", 1), ("b", 7)]), load_data(["a", "b"])):
        assert match_labels(data, {"m": ("x", "y")}) is data
