"""Model hubs without a network: asked once, quickly, instead of the client's half a minute of retries."""

import contextlib
import os
import socket
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from heatcheck.core.types import HeatcheckError

PATIENCE = 5.0
"""Seconds that a hub has to accept a connection."""


@contextlib.contextmanager
def hub_asked_once(what: str, instead: str) -> Iterator[None]:
    """Where the Hugging Face hub cannot be reached, its client uses what it has on disk and asks nobody.

    Args:
        what: what is loaded, for the message where it is not on disk either.
        instead: what a user can do about that.
    """
    from huggingface_hub import constants, errors

    said = bool(constants.HF_HUB_OFFLINE)
    host = urlsplit(constants.ENDPOINT).hostname or constants.ENDPOINT
    why = "HF_HUB_OFFLINE is set" if said else unreachable(host, urlsplit(constants.ENDPOINT).port or 443)
    constants.HF_HUB_OFFLINE = why is not None
    try:
        yield
    except Exception as problem:
        if why is None or not _caused_by(problem, (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled)):
            raise
        absent = why if said else f"{host} cannot be reached ({why})"
        raise HeatcheckError(f"could not get {what}: {absent}, and nothing was downloaded before; {instead}") from None
    finally:
        constants.HF_HUB_OFFLINE = said


def unreachable(host: str, port: int) -> str | None:
    """Why a host does not accept a connection; None if it does, or where a proxy would be asked instead."""
    if urllib.request.getproxies() or os.environ.get("ALL_PROXY"):
        return None
    answers: list[str | None] = []

    def ask() -> None:
        try:
            socket.create_connection((host, port), timeout=PATIENCE).close()
            answers.append(None)
        except OSError as problem:
            answers.append(problem.strerror or str(problem))

    asking = threading.Thread(target=ask, daemon=True)  # the look-up of a name cannot be given a time limit
    asking.start()
    asking.join(PATIENCE)
    return answers[0] if answers else f"no answer in {PATIENCE:.0f} seconds"


def _caused_by(problem: BaseException | None, kinds: tuple[type[Any], ...]) -> bool:
    while problem is not None:
        if isinstance(problem, kinds):
            return True
        problem = problem.__cause__ or problem.__context__
    return False
