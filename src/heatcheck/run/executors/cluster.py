"""Joining and leaving a Ray cluster: clear words where it is missing, and the process as it was before."""

import contextlib
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from heatcheck.core.extras import require
from heatcheck.core.types import HeatcheckError

ANSWER = 5.0
"""Seconds that a cluster's port has to answer."""
LARGEST, SMALLEST = 1 << 30, 80 << 20
"""Bytes of shared memory that a cluster on this machine takes for objects; Ray refuses less than 75 MB."""


def check_cluster(on: str) -> None:
    """Find out within seconds, before anything is loaded, whether a run could be computed there.

    Raises:
        HeatcheckError: Ray is not installed, or nothing answers at the address.
    """
    require(f"on={on!r}", "ray")
    address = address_of(on)
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER).close()
    except OSError as problem:
        said = "" if on.startswith("ray://") else " (from RAY_ADDRESS)"
        raise HeatcheckError(
            f"no Ray cluster answers at {address}{said}: {problem}; start one with `ray start --head`, which tells its address "
            "(ray://HOST:10001 from outside), or compute on='ray' without one"
        ) from problem


def address_of(on: str) -> str | None:
    """Where the cluster is; None if one is to be started on this machine."""
    return on if on.startswith("ray://") else os.environ.get("RAY_ADDRESS") or None


@contextlib.contextmanager
def connected(on: str, cpus: int, note: Callable[[str], None]) -> Iterator[Any]:
    """Ray, connected to a cluster; a connection that was there before is used and left as it is.

    Ray writes about dead workers on stdout, which belongs to results: it goes to stderr for so long.

    Args:
        on: ray, or the address of a cluster.
        cpus: how many CPUs a cluster on this machine should count, at least.
        note: called with what is worth a line on the terminal.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    with contextlib.redirect_stdout(sys.stderr):
        if ray.is_initialized():
            yield ray
            return
        try:
            with signals_kept():
                address = address_of(on)
                if address:
                    join(ray, address)
                else:
                    note("starting Ray on this machine")
                    start(ray, cpus)
            yield ray
        finally:
            with signals_kept():
                ray.shutdown()


def join(ray: Any, address: str) -> None:
    """Connect to a cluster.

    Raises:
        HeatcheckError: it cannot be done.
    """
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except Exception as problem:
        lines = [line.strip() for line in str(problem).splitlines() if line.strip()] or [type(problem).__name__]
        raise HeatcheckError(
            f"the Ray cluster at {address} cannot be joined: {' … '.join(dict.fromkeys((lines[0], lines[-1])))}; try again, and "
            "see that it has the same versions of Python and Ray as this process"
        ) from problem


def start(ray: Any, cpus: int) -> None:
    """Start a cluster on this machine, with a bounded share of its shared memory.

    Raises:
        HeatcheckError: it cannot be done.
    """
    try:
        free = shutil.disk_usage("/dev/shm").free  # noqa: S108 - only asked how large it is
    except OSError:
        free = LARGEST
    try:
        ray.init(
            address="local",
            num_cpus=max(cpus, os.cpu_count() or 1),
            object_store_memory=max(SMALLEST, min(LARGEST, free // 2)),
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
        )
    except Exception as problem:
        raise HeatcheckError(
            f"Ray could not be started on this machine: {problem}; on='processes' needs no Ray"
        ) from problem


@contextlib.contextmanager
def signals_kept() -> Iterator[None]:
    """Whatever happens to the handlers of SIGTERM and SIGINT inside, they are afterwards what they were."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


def room(ray: Any, cpus: int, gpus: float) -> int:
    """How many workers the cluster has room for.

    Raises:
        HeatcheckError: for none; says what there is.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    places = 0
    for node in nodes:
        places += min(int(node.get("CPU", 0) // cpus), int(node.get("GPU", 0) / gpus + 1e-9) if gpus else sys.maxsize)
    if places:
        return places
    there = ", ".join(f"{node.get('CPU', 0):g} CPUs and {node.get('GPU', 0):g} GPUs" for node in nodes)
    raise HeatcheckError(
        f"no node of the Ray cluster has room for a worker of {cpus} CPUs and {gpus:g} GPUs; it has {there or 'no nodes'}. Change "
        "threads or gpus, or give the number of workers, which then wait until the cluster has grown"
    )
