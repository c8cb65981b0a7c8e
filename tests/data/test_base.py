"""Data sets: order, subsets, identity; and the catalogue."""

import subprocess
import sys
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch

from heatcheck.core.types import HeatcheckError, Modality, Sample, digest_of
from heatcheck.data import Dataset, load_data, sources


def dataset(n: int = 20, prefix: str = "s") -> Dataset:
    samples = tuple(Sample(f"{prefix}{i:02d}", digest_of(str(i)), f"text {i}", label=i % 3) for i in range(n))
    return Dataset("toy", Modality.TEXT, samples, ("a", "b", "c"))


def test_it_is_a_frozen_sequence() -> None:
    data = dataset()
    assert len(data) == 20 and data[3].name == "s03" and data[-1].name == "s19"
    assert [s.name for s in data[2:4]] == ["s02", "s03"] and data[2:4].classes == ("a", "b", "c")
    with pytest.raises(FrozenInstanceError):
        data.name = "other"


def test_names_must_differ() -> None:
    with pytest.raises(HeatcheckError, match="2 samples are called 's00'"):
        Dataset("toy", Modality.TEXT, (dataset()[0], dataset()[0]))


def test_take_without_a_seed_is_the_beginning() -> None:
    assert [s.name for s in dataset().take(3)] == ["s00", "s01", "s02"]
    assert len(dataset().take(99)) == 20


def test_take_with_a_seed_is_nested_ordered_and_repeatable() -> None:
    data = dataset()
    small, large = data.take(5, seed=1), data.take(9, seed=1)
    assert {s.name for s in small} < {s.name for s in large}
    assert [s.name for s in large] == sorted(s.name for s in large)
    assert [s.name for s in data.take(5, seed=1)] == [s.name for s in small]
    assert len({tuple(s.name for s in data.take(5, seed=k)) for k in range(10)}) > 5


@pytest.mark.parametrize("seed", [None, 0])
def test_take_nothing_is_refused(seed: int | None) -> None:
    with pytest.raises(HeatcheckError, match="samples=0"):
        dataset().take(0, seed)


def test_identity_is_of_contents_labels_and_references() -> None:
    data = dataset()
    other_names = replace(dataset(prefix="t"), name="other", classes=None)
    backwards = replace(data, samples=data.samples[::-1])
    assert data.identity() == other_names.identity() == backwards.identity()
    first = data[0]
    for changed in (
        replace(first, label=2),
        replace(first, label=None),
        replace(first, digest=digest_of("x")),
        replace(first, problem="bad"),
        replace(first, reference={"spans": [(0, 1)]}),
        replace(first, reference={"mask": np.ones((2, 2))}),
        replace(first, reference={"mask": torch.ones(2, 2)}),
    ):
        assert replace(data, samples=(changed, *data.samples[1:])).identity() != data.identity()


def test_identity_tells_masks_apart() -> None:
    def with_mask(mask: object) -> str:
        sample = replace(dataset()[0], reference={"parts": {"beak": mask}})
        return Dataset("toy", Modality.IMAGE, (sample,)).identity()

    assert with_mask(np.ones((2, 2))) == with_mask(np.ones((2, 2)))
    assert with_mask(np.ones((2, 2))) != with_mask(np.zeros((2, 2)))
    assert with_mask(torch.ones(2, 2)) != with_mask(torch.zeros(2, 2))


def test_a_dataset_passes_through() -> None:
    data = dataset()
    assert load_data(data) is data
    assert [s.name for s in load_data(data, samples=4, seed=3)] == [s.name for s in data.take(4, 3)]


def test_a_loaded_dataset_takes_no_labels() -> None:
    with pytest.raises(HeatcheckError, match="already loaded"):
        load_data(dataset(), labels=[0] * 20)


def test_the_catalogue_matches_the_loaders() -> None:
    for id, source in sources().items():
        assert callable(source.load()), id
        assert set(source.record()) == {"id", "form", "modality", "about", "licence"}
        assert all(source.record().values())
        assert source.has_spec or source.form.startswith("a "), id


def test_listing_imports_no_torch_and_none_of_the_packages() -> None:
    code = (
        "import sys; from heatcheck.data import sources; assert len(sources()) > 8; "
        "assert not {'torch', 'PIL', 'numpy', 'polars'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


def test_embedded_data_import_none_of_their_packages() -> None:
    code = (
        "import sys; from heatcheck.data import load_data; load_data('images'); load_data('texts'); "
        "assert not {'foolbox', 'skimage', 'sklearn', 'timm'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


def test_an_unknown_attribute_is_an_attribute_error() -> None:
    import heatcheck.data

    with pytest.raises(AttributeError, match="no attribute 'load_dta'"):
        heatcheck.data.load_dta  # noqa: B018
