"""Processes that are there, and those that only seem to be."""

import os
import sys
import time

import pytest

from heatcheck.core.files import alive

MUTANTS = (("core/files.py", 'return state not in ("Z", "X")', "return True", "test_one_that_has_ended_is_not_alive"),)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")
def test_one_that_has_ended_is_not_alive():
    """Killed workers are nobody's children, and may stay as zombies for a while."""
    child = os.fork()
    if not child:
        os._exit(0)
    try:
        deadline = time.monotonic() + 10
        while alive(child) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not alive(child)
        os.kill(child, 0)  # it is still listed
    finally:
        os.waitpid(child, 0)
    assert not alive(child) and alive(os.getpid()) and alive(1)
