"""Networks and texts that tests of models use too."""

from tests.models.conftest import bert_folder, net

__all__ = ["bert_folder", "net"]
