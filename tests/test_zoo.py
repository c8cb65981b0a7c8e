"""Every method on every architecture: it works, or is refused for the reason that the documentation gives."""

from pathlib import Path

import pytest

from heatcheck.testing.zoo import page, table

PAGE = Path(__file__).parent.parent / "docs" / "architectures.md"
pytestmark = pytest.mark.filterwarnings("ignore")


def test_the_page_is_what_it_would_be_now():
    assert PAGE.read_text(encoding="utf-8") == page(table()), "run `make docs`"
