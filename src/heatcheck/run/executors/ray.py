"""Workers on a Ray cluster, on this machine or on many."""

import os
import secrets
import time
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from heatcheck.core.files import TEMPORARY, write_atomically
from heatcheck.core.types import HeatcheckError
from heatcheck.run.elsewhere import known_elsewhere
from heatcheck.run.executors.base import executor
from heatcheck.run.executors.cluster import address_of, connected, room
from heatcheck.run.executors.crew import GRACE, TRIES, Crew, Death, Message
from heatcheck.run.executors.parcels import components_parcel, model_parcel, samples_parcel
from heatcheck.run.executors.processes import how_it_ended
from heatcheck.run.executors.ray_worker import RayWorker
from heatcheck.run.executors.worker import LOST
from heatcheck.run.resources import Resources
from heatcheck.run.work import Work

LOOK = 0.5
"""Seconds after which signals and time limits are looked after, while workers say nothing."""
WAITING = 30.0
"""Seconds after which it is said that no worker has started."""
NAMES = {"samples": "the samples", "model": "the weights", "components": "methods and metrics"}
"""What travels where a worker cannot load it by name."""
PICKLES = "objects travel to Ray's workers as pickles: they can run any code there, and what comes back can here"


@executor("ray", workers=True)
class Ray(Crew):
    """One Ray actor per worker: it loads models once, and is asked what it has to tell until it dies.

    A chunk is written by the worker where it reaches the run's folder, else it comes back and is written here. What a
    worker cannot load by its name is sent to it: models and components once, through the object store, samples with
    their work.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        cuda = any(model.device.type == "cuda" for model in self.resources.models.values())
        self._gpus = (self.runtime.gpus or 1.0) if cuda else 0.0
        self._cpus = self.runtime.threads
        self._on = self.runtime.on or "ray"
        self._actors: dict[int, Any] = {}
        self._asked: dict[Any, int] = {}
        self._heard: dict[int, int] = {}
        self._mail: deque[tuple[int, Message | None]] = deque()
        self._deaths: dict[int, Death] = {}
        self._lost: set[int] = set()
        self._reaches: dict[int, bool] = {}
        self._lacks: defaultdict[int, set[str]] = defaultdict(set)
        self._parcels: dict[str, Any] = {}
        self._failed_starts = 0
        self._told: set[str] = set()
        self._begun = time.monotonic()
        self._leave = ExitStack()
        try:
            self._ray = self._leave.enter_context(connected(self._on, self.workers * self._cpus, self.note))
            self.workers = self.workers or room(self._ray, self._cpus, self._gpus)
            self._token = self._write_token()
        except BaseException:
            self._leave.close()
            raise

    def _write_token(self) -> tuple[str, str]:
        """A file by which workers find out whether they reach the run's folder; its name and content."""
        token = f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}", secrets.token_hex(16)
        path = self.store.folder / token[0]
        write_atomically(path, token[1].encode())
        self._leave.callback(path.unlink, missing_ok=True)
        return token

    # -- what a crew needs ----------------------------------------------------------------------------------------

    def start(self) -> int:
        number = len(self._actors)
        self._actors[number] = (
            self._ray.remote(RayWorker)
            .options(
                num_cpus=self._cpus,
                num_gpus=self._gpus,
                max_restarts=0,
                max_concurrency=4,
                scheduling_strategy="SPREAD",
                runtime_env=environment(self._on),
            )
            .remote(str(Path.cwd()), str(self.store.folder.resolve()), self._token)
        )
        self._ask(number)
        return number

    def send(self, number: int, work: Work) -> None:
        sources, lacks = work.sources, self._lacks[number]
        lacks |= nameless(work, self.resources)
        parcels: dict[str, Any] = {}
        if "samples" in lacks:
            parcels["samples"] = samples_parcel(self.resources, work)
            work = replace(work, following=())  # those that come next come with their work
        if "model" in lacks:
            parcels["model"] = self._once(f"model {work.model}", lambda: model_parcel(self.resources, work))
        if "components" in lacks:
            parcels["components"] = self._once("components", lambda: components_parcel(self.resources))
            work = replace(work, sources=replace(sources, plugins=()))
        if parcels:
            self._say(PICKLES)
        if not self._reaches[number]:
            parcels["chunks"] = self._known_about(work)
        self._actors[number].take.remote(work.to_json(), parcels)

    def receive(self, wait: float | None) -> tuple[int, Message | None] | None:
        limit = None if wait is None else time.monotonic() + wait
        while not self._mail:
            left = LOOK if limit is None else min(LOOK, limit - time.monotonic())
            if left <= 0:
                return None
            self._listen(left)
            if not self._reaches and time.monotonic() - self._begun > WAITING:
                self._say(
                    f"no worker has started yet: the cluster is slow, or has no room for {self._cpus} CPUs and {self._gpus:g} GPUs"
                )
        return self._mail.popleft()

    def kill(self, number: int) -> None:
        self._ray.kill(self._actors[number])

    def death(self, number: int) -> Death:
        return Death(how_it_ended(LOST)) if number in self._lost else self._deaths[number]

    def died_idle(self, number: int) -> None:
        if number in self._reaches:
            return
        self._failed_starts += 1
        if self._failed_starts >= TRIES:
            raise HeatcheckError(f"workers do not start on the Ray cluster: {self._deaths[number].how}")

    def other(self, number: int, message: Message) -> None:
        if "chunk" in message:
            self.store.keep(message["chunk"])
        if "lost" in message:
            self._lost.add(number)
        if "lacks" in message:
            kind = message["lacks"]
            self._lacks[number].add(kind)
            self._say(f"workers on Ray get {NAMES[kind]} from here: {message['why'][:160]}")
            self.send(number, self.busy[number].work)

    def close(self) -> None:
        """Let workers save what they have finished; those that do not end are killed."""
        try:
            ready = self.alive & self._reaches.keys()
            for number in ready:
                self._actors[number].stop.remote()
            limit = time.monotonic() + GRACE
            while ready and (found := self.receive(max(0.0, limit - time.monotonic()))) is not None:
                number, message = found
                if message is None or "stopped" in message:
                    ready.discard(number)
                elif "chunk" in message:
                    self.store.keep(message["chunk"])
        finally:
            for number in self.alive:
                with suppress(Exception):
                    self.kill(number)
            self._leave.close()

    # -- messages -------------------------------------------------------------------------------------------------

    def _ask(self, number: int) -> None:
        """Ask a worker what it has to tell; what it told before is confirmed."""
        self._asked[self._actors[number].fetch.remote(self._heard.get(number, 0))] = number

    def _listen(self, wait: float) -> None:
        """Put what a worker has answered into the mail; ask it again unless it is dead."""
        from ray import exceptions

        answered, _ = self._ray.wait(list(self._asked), num_returns=1, timeout=wait)
        for reference in answered:
            number = self._asked.pop(reference)
            try:
                last, messages = self._ray.get(reference)
            except exceptions.ActorUnavailableError:  # it may come back; if not, the next answer says why
                self._ask(number)
                continue
            except exceptions.RayActorError as problem:
                self._deaths[number] = death_of(problem)
                self._mail.append((number, None))
                continue
            self._heard[number] = last
            for message in messages:
                if "ready" in message:
                    self._meet(number, message["ready"])
                self._mail.append((number, message))
            self._ask(number)

    def _meet(self, number: int, facts: dict[str, Any]) -> None:
        """A worker has started."""
        self._reaches[number] = facts["reaches"]
        if not facts["reaches"]:
            self._say("workers on Ray do not reach the run's folder: chunks come back and are written here")
        if facts["torch"] != torch.__version__:
            self._say(
                f"{facts['node']} has torch {facts['torch']}, not {torch.__version__}: scores agree within rounding"
            )

    def _say(self, text: str) -> None:
        """A note, once."""
        if text not in self._told:
            self._told.add(text)
            self.note(text)

    # -- what travels ---------------------------------------------------------------------------------------------

    def _once(self, key: str, make: Callable[[], bytes]) -> Any:
        """Something that many workers get, in the object store."""
        if key not in self._parcels:
            self._parcels[key] = self._ray.put(make())
        return self._parcels[key]

    def _known_about(self, work: Work) -> dict[str, bytes]:
        """Chunks of the run that hold something about a work's samples."""
        return self.store.chunks_about(work.identity, [ref.digest for ref in work.samples])


def nameless(work: Work, resources: Resources) -> set[str]:
    """What of a work has no name by which any other process could load it."""
    lacks = set() if work.sources.data else {"samples"}
    if work.model not in work.sources.models:
        lacks.add("model")
    if not all(known_elsewhere(component, work.sources.plugins) for component in resources.components.values()):
        lacks.add("components")
    return lacks


def death_of(problem: Exception) -> Death:
    """How a worker on Ray ended."""
    text = str(problem)
    if "node" in text and "died" in text.partition("node")[2][:40]:
        return Death("its node was lost", blame=False)
    if "creation task" in text:
        return Death(text.strip().splitlines()[-1])
    if "memory" in text and "exit type: NODE_OUT_OF_MEMORY" in text:
        return Death("memory was short")
    return Death("its process died")


def environment(on: str) -> dict[str, Any]:
    """What workers need beside what a cluster elsewhere has: the place of a checkout of this package."""
    path = os.environ.get("PYTHONPATH")
    return {"env_vars": {"PYTHONPATH": path}} if path and address_of(on) else {}
