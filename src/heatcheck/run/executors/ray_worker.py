"""A worker on a Ray cluster: computes the works it is given, and tells what it does when it is asked."""

import os
import platform
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import torch

from heatcheck.core import catalogue
from heatcheck.core.files import write_atomically
from heatcheck.probe.numerics import DeviceLostError, is_device_lost
from heatcheck.probe.tuning import tune_allocator
from heatcheck.run.executors.crew import Message
from heatcheck.run.executors.worker import LOST
from heatcheck.run.isolation import end_if_lost, first_line
from heatcheck.run.packing import SampleGroup, pack
from heatcheck.run.resources import Resources
from heatcheck.run.store import Store
from heatcheck.run.task import run_work
from heatcheck.run.watch import Watch
from heatcheck.run.work import Cell, FailedCell, Work

PATIENCE = 10.0
"""Seconds after which a driver that asks is told that there is nothing new."""
TICKS = 0.25
"""Seconds for which passes are counted before they are told, where nothing else happens."""
HEARD = 30.0
"""Seconds that a worker waits until it is known which cell it begins."""


class Outbox:
    """Messages on their way to the driver, kept until it confirms them: what a broken line swallows is sent again."""

    def __init__(self) -> None:
        self._messages: list[tuple[int, Message]] = []
        self._changed = threading.Condition()
        self._last = self._sent = self._confirmed = 0

    def put(self, message: Message) -> int:
        """Leave a message; work that was not told yet is added up. Its number."""
        with self._changed:
            self._last += 1
            if "tick" in message and self._messages and self._messages[-1][0] > self._sent:
                earlier = self._messages[-1][1]
                if "tick" in earlier:
                    self._messages.pop()
                    message = {"tick": earlier["tick"] + message["tick"]}
            self._messages.append((self._last, message))
            self._changed.notify_all()
            return self._last

    def put_and_wait(self, message: Message) -> None:
        """Leave a message, and go on when the driver has it: what ends this process must not take the message along."""
        number = self.put(message)
        with self._changed:
            self._changed.wait_for(lambda: self._confirmed >= number, HEARD)

    def fetch(self, confirmed: int) -> tuple[int, list[Message]]:
        """Every message after the last that was received, and the number of the last; waits for one."""
        with self._changed:
            self._confirmed = confirmed
            self._messages = [(n, message) for n, message in self._messages if n > confirmed]
            self._changed.notify_all()
            if self._changed.wait_for(lambda: bool(self._messages), PATIENCE):
                self._changed.wait_for(lambda: any("tick" not in message for _, message in self._messages), TICKS)
            self._sent = self._last
            return self._last, [message for _, message in self._messages]


class Returning(Store):
    """A store of its own whose new chunks travel to the driver, since the run's folder cannot be reached."""

    def __init__(self, folder: Path, answer: Callable[[Message], object]) -> None:
        super().__init__(folder)
        self._answer = answer

    def commit(self, groups: list[SampleGroup]) -> Path:
        self._answer({"chunk": pack(groups)})
        return self.chunks

    def learn(self, chunks: Mapping[str, bytes]) -> None:
        """Take chunks of the run that the next work builds on."""
        for name, data in chunks.items():
            write_atomically(self.chunks / name, data)
        self.refresh()


class RayWorker:
    """One worker process on a Ray node; it loads what its works name, once.

    Args:
        where: the driver's working folder, for relative paths.
        out: the run's folder.
        token: the name and content of a file that the driver has just put there.
    """

    def __init__(self, where: str, out: str, token: tuple[str, str]) -> None:
        if Path(where).is_dir():
            os.chdir(where)
        tune_allocator()
        self._out, self._token = Path(out), token
        self._outbox = Outbox()
        self._works: SimpleQueue[tuple[str, dict[str, Any]] | None] = SimpleQueue()
        self._stopped = False
        self._resources = Resources()
        self._scratch = TemporaryDirectory(prefix="heatcheck-")
        self._reaches = reaches(self._out, token)
        self._store: Store | None = None
        self._declared = False
        self._outbox.put({"ready": self.facts()})
        threading.Thread(target=self._serve, daemon=True).start()

    def facts(self) -> dict[str, Any]:
        """What the driver wants to know about this process."""
        return {
            "reaches": self._reaches,
            "node": platform.node(),
            "torch": torch.__version__,
            "threads": os.environ.get("OMP_NUM_THREADS"),
        }

    def take(self, work: str, parcels: dict[str, Any]) -> None:
        """Take a work, with objects that cannot be loaded by name."""
        self._works.put((work, parcels))

    def fetch(self, confirmed: int) -> tuple[int, list[Message]]:
        """What this worker has to tell, after the message of this number; waits until there is something."""
        return self._outbox.fetch(confirmed)

    def stop(self) -> None:
        """End the work under way at its next pass; what is finished is saved."""
        self._stopped = True
        self._works.put(None)

    def _serve(self) -> None:
        while (task := self._works.get()) is not None:
            line, parcels = task
            try:
                self._outbox.put(self._computed(Work.from_json(line), parcels))
            except KeyboardInterrupt:
                break
            except DeviceLostError:
                self._end_lost()
            except Exception as problem:
                if is_device_lost(problem):
                    self._end_lost()
                self._outbox.put({"problem": first_line(problem)})
        self._scratch.cleanup()
        self._outbox.put({"stopped": True})

    def _end_lost(self) -> NoReturn:
        """End this process, whose GPU has failed, once the driver knows why: another actor does its work."""
        self._outbox.put_and_wait({"lost": True})
        os._exit(LOST)

    def _computed(self, work: Work, parcels: dict[str, Any]) -> Message:
        """Compute a work; what becomes of it, or which of its names mean nothing here."""
        torch.set_num_threads(work.numerics.threads)
        resources = self._resources
        self._unpack(work, parcels)
        loads: list[tuple[str, Callable[[Work], object]]] = [
            ("samples", resources.samples),
            ("components", resources.load_plugins),
            ("model", resources.model),
            ("components", resources.grid),
        ]
        for kind, load in loads:
            try:
                load(work)
            except Exception as problem:
                end_if_lost(problem)
                if kind in parcels:
                    raise
                return {"lacks": kind, "why": first_line(problem)}
        store = self._open(work, parcels.get("chunks", {}))
        return {"spent": asdict(run_work(work, resources, store, self._watch(work)))}

    def _unpack(self, work: Work, parcels: dict[str, Any]) -> None:
        """Take objects out of their parcels; those that are the same for all works, once."""
        from ray import cloudpickle, get

        if "samples" in parcels:
            self._resources.held = {sample.name: sample for sample in cloudpickle.loads(parcels["samples"])}
        if "components" in parcels and not self._declared:
            entries, components = cloudpickle.loads(get(parcels["components"]))
            for entry in entries:
                catalogue.register(entry)
            self._resources.components |= components
            self._declared = True
        if "model" in parcels and work.model not in self._resources.models:
            self._resources.hold(work, cloudpickle.loads(get(parcels["model"])))

    def _open(self, work: Work, chunks: Mapping[str, bytes]) -> Store:
        if self._store is None:
            if self._reaches:
                self._store = Store.open(self._out)
            else:
                self._store = Returning(Path(self._scratch.name), self._outbox.put)
        elif work.resumed:
            self._store.refresh()
        if isinstance(self._store, Returning):
            self._store.learn(chunks)
        return self._store

    def _watch(self, work: Work) -> Watch:
        """Tell what is done. The first cell is told for certain, and every one where they are computed alone."""
        certain = True

        def tick(work: int) -> None:
            self._heed()
            self._outbox.put({"tick": work})

        def begin(cell: Cell) -> None:
            nonlocal certain
            self._heed()
            put = self._outbox.put_and_wait if certain else self._outbox.put
            put({"begin": cell})
            certain = work.alone

        def failed(cell: FailedCell) -> None:
            self._outbox.put({"failed": cell})

        return Watch(tick, begin, failed)

    def _heed(self) -> None:
        if self._stopped:
            raise KeyboardInterrupt


def reaches(folder: Path, token: tuple[str, str]) -> bool:
    """Whether this process sees the folder that the driver sees, and may write there; an equal path is not enough."""
    name, content = token
    mine = folder / f"{name}-{os.getpid()}-{time.monotonic_ns()}"
    try:
        if (folder / name).read_text() != content:
            return False
        mine.touch(exist_ok=False)
        mine.unlink()
    except OSError:
        return False
    return True
