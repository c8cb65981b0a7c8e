"""A source in two parts."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from heatcheck.core.types import HeatcheckError
from heatcheck.data import load_data
from heatcheck.data.base import SourceOptions
from heatcheck.data.load import listing_of
from heatcheck.data.parts import held_out

MUTANTS = (
    (
        "data/parts.py",
        "(at * count + start) % n + count >= n",
        "(at * count + start) % n + count > n",
        "test_the_share_is_exact_and_every_class_has_its_own",
    ),
    (
        "data/parts.py",
        "(-1 if (c := classes[i]) is None else c, _hash",
        "(0 if (c := classes[i]) is None else c, _hash",
        "test_the_share_is_exact_and_every_class_has_its_own",
    ),
    ("data/parts.py", 'f"part|{seed}|{name}"', 'f"part|{name}"', "test_another_seed_holds_out_others"),
    ("data/parts.py", '_hash(seed, "")', '_hash(0, "")', "test_another_seed_holds_out_other_classes"),
    ("data/parts.py", "label(positions[i])", "label(i)", "test_labels_and_samples_of_a_part"),
    (
        "data/parts.py",
        "whole if options.classes is None else",
        "whole if True else",
        "test_classes_that_a_user_names_do_not_change_the_parts",
    ),
)

CLASSES = st.lists(st.one_of(st.none(), st.integers(0, 4)), max_size=80)


def picture(path: Path, colour: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (16, 16), (colour % 256, colour // 256, 0)).save(path)
    return path


@given(CLASSES, st.integers(0, 9), st.floats(0.01, 0.99))
def test_the_share_is_exact_and_every_class_has_its_own(classes: list[int | None], seed: int, share: float) -> None:
    n = len(classes)
    held = held_out([f"s{i}" for i in range(n)], classes, seed, share)
    assert held == sorted(set(held)) and len(held) == round(share * n)
    taken = Counter(classes[i] for i in held)
    for kind, count in Counter(classes).items():
        assert abs(taken[kind] - count * len(held) / n) < 1


@given(CLASSES, st.integers(0, 9), st.randoms(use_true_random=False))
def test_the_order_of_the_samples_has_no_influence(classes: list[int | None], seed: int, random: object) -> None:
    names = [f"s{i}" for i in range(len(classes))]
    pairs = list(zip(names, classes, strict=True))
    random.shuffle(pairs)  # type: ignore[attr-defined]
    mixed = held_out([name for name, _ in pairs], [kind for _, kind in pairs], seed, 0.3)
    assert {pairs[i][0] for i in mixed} == {names[i] for i in held_out(names, classes, seed, 0.3)}


def test_two_pictures_of_each_of_a_thousand_classes() -> None:
    names, classes = [f"{i}.png" for i in range(2000)], [i // 2 for i in range(2000)]
    held = held_out(names, classes, 0, 0.2)
    assert len(held) == 400 and max(Counter(classes[i] for i in held).values()) == 1


def test_another_seed_holds_out_others() -> None:
    names, classes = [f"{i}" for i in range(100)], [i % 2 for i in range(100)]
    first, second = (set(held_out(names, classes, seed, 0.5)) for seed in (0, 1))
    assert 10 < len(first & second) < 40


def test_another_seed_holds_out_other_classes() -> None:
    names, classes = [f"{i}" for i in range(100)], list(range(100))
    assert len({tuple(held_out(names, classes, seed, 0.2)) for seed in range(8)}) > 2


@given(st.integers(2, 40), st.integers(0, 5), st.sampled_from(["", "share=0.3", "share=0.5"]))
def test_the_parts_are_disjoint_and_together_everything(
    tmp_path_factory: pytest.TempPathFactory, n: int, seed: int, share: str
) -> None:
    table = tmp_path_factory.mktemp("table") / "reviews.csv"
    table.write_text("text,label\n" + "".join(f"review {i},{('good', 'bad', '')[i % 3]}\n" for i in range(n)))
    params = f"seed={seed}" + (f", {share}" if share else "")
    whole = listing_of(table, SourceOptions())
    count = round((float(share.partition("=")[2]) if share else 0.2) * n)
    parts = {}
    for id, size in (("train_part", n - count), ("test_part", count)):
        if size:
            parts[id] = listing_of(f"{id}({params}):{table}", SourceOptions()).names
            assert len(parts[id]) == size
    assert sorted(name for part in parts.values() for name in part) == sorted(whole.names)


def test_labels_and_samples_of_a_part(tmp_path: Path) -> None:
    for i in range(20):
        picture(tmp_path / f"{'cat' if i < 10 else 'dog'}" / f"{i:02d}.png", i)
    whole = load_data(tmp_path)
    by_name = {s.name: s for s in whole}
    train, test = load_data(f"train_part:{tmp_path}"), load_data(f"test_part:folder:{tmp_path}")
    assert test.name == f"test_part-{tmp_path.name}" and train.classes == test.classes == ("cat", "dog")
    assert Counter(s.label for s in test) == {0: 2, 1: 2} and Counter(s.label for s in train) == {0: 8, 1: 8}
    for sample in (*train, *test):
        assert (sample.digest, sample.label) == (by_name[sample.name].digest, by_name[sample.name].label)
    assert f"4 of the 20 samples of folder:{tmp_path}, chosen by seed 0 from each class" in test.notes
    listing = listing_of(f"test_part:{tmp_path}", SourceOptions())
    assert [listing.class_at(i) for i in range(4)] == [s.label for s in test]


def test_no_picture_is_read_to_make_the_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(10):
        picture(tmp_path / f"{i % 2}" / f"{i}.png", i)
    (tmp_path / "list.txt").write_text("".join(f"{i % 2}/{i}.png\t{i % 2}\n" for i in range(10)))
    opened: list[str] = []
    real = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *a, **k: opened.append(self.name) or real(self, *a, **k))
    for spec in (f"{tmp_path}", f"files:{tmp_path}/list.txt", f"squares:{tmp_path}", "images"):
        listing_of(f"train_part:{spec}", SourceOptions())
    assert [name for name in opened if name.endswith((".png", ".jpg"))] == []
    data = load_data(f"test_part:{tmp_path}")
    assert {name for name in opened if name.endswith(".png")} == {Path(s.name).name for s in data}


def test_an_unreadable_picture_stays_a_sample_of_its_part(tmp_path: Path) -> None:
    for i in range(10):
        picture(tmp_path / f"{i}.png", i)
    broken = load_data(f"test_part:{tmp_path}")[0].name
    (tmp_path / broken).write_bytes(b"broken")
    data = load_data(f"test_part:{tmp_path}")
    assert data[0].name == broken and data[0].problem and data[1].problem is None and len(data) == 2


def test_classes_that_a_user_names_do_not_change_the_parts(tmp_path: Path) -> None:
    for i in range(23):
        picture(tmp_path / "abc"[i % 3] / f"{i}.png", i)
    plain = load_data(f"test_part:{tmp_path}")
    named = load_data(f"test_part:{tmp_path}", classes=["c", "a"])
    assert [s.name for s in plain] == [s.name for s in named]
    assert [s.label for s in named] == [(1, None, 0)["abc".index(s.name[0])] for s in plain]


def test_columns_reach_the_table(tmp_path: Path) -> None:
    rows = "".join(f"{i},story {i},{'xy'[i % 2]}\n" for i in range(10))
    (tmp_path / "t.csv").write_text("one,two,three\n" + rows)
    data = load_data(f"test_part:csv:{tmp_path}/t.csv", text_column="two", label_column="three")
    assert Counter(s.label for s in data) == {0: 1, 1: 1}


def test_parts_of_parts_and_of_squares(tmp_path: Path) -> None:
    for i in range(20):
        picture(tmp_path / f"{i}.png", i)
    inner = listing_of(f"test_part(share=0.5):train_part(share=0.5):{tmp_path}", SourceOptions())
    assert len(inner.names) == 5
    data = load_data(f"train_part:squares:{tmp_path}")
    assert Counter(s.label for s in data) == {0: 8, 1: 8}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("test_part(share=1):images", r"share=1: give a number between 0 and 1"),
        ("test_part(share=half):images", r"share='half': give a number"),
        ("test_part(seed=0.5):images", r"seed=0.5: give an integer"),
        (
            "test_part(sed=1):images",
            r"data='test_part\(sed=1\):images': no parameter is called 'sed'; did you mean seed",
        ),
        ("test_part(3):images", r"no parameter is called 'n'; known: seed, share"),
        ("squares(seed=3):images", r"no parameter is called 'seed'; squares has none"),
        ("test_part(seed=3:images", r"the bracket is not closed"),
        ("test_part(share=0.001):images", r"test_part of 'images' is empty: a share of 0.001 of 28 samples is 0"),
        ("train_part(share=0.999):images", r"train_part of 'images' is empty: .* is 28; give another share"),
        ("test_part:nowhere", "data='nowhere' is neither"),
        ("test_prt:images", "did you mean test_part"),
    ],
)
def test_errors(spec: str, message: str) -> None:
    with pytest.raises(HeatcheckError, match=message):
        load_data(spec)


def test_real_imagenet_pictures_are_parted_without_being_read(shared: Path) -> None:
    where = shared / "data/imagenet-val-2000"
    if not where.is_dir():
        pytest.skip(f"no {where}")
    train, test = (listing_of(f"{id}:{where}", SourceOptions()) for id in ("train_part", "test_part"))
    assert (len(train.names), len(test.names)) == (1600, 400)
    assert not set(train.names) & set(test.names)
    assert max(Counter(test.class_at(i) for i in range(400)).values()) == 1
