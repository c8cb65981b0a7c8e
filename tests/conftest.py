"""One thread, repeatable properties, and the folder of shared facts."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=60, database=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with specifications, published tables and sample data."""
    given = os.environ.get("HEATCHECK_SHARED")
    folder = Path(given) if given else Path(__file__).parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip(f"no shared folder at {folder}; set HEATCHECK_SHARED")
    return folder
