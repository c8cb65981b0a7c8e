"""Trainings of one study: each in a folder of its own, several at a time in processes that can be killed.

A training is plain data. A worker process takes trainings as JSON lines and answers with JSON lines; it dies with the
process that started it. What is finished in a folder is not done again, and what was begun goes on.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import torch
from torch import Tensor, nn

from heatcheck.core.plugins import load_plugin
from heatcheck.core.progress import Progress, describe, stop
from heatcheck.core.types import HeatcheckError
from heatcheck.data.base import Dataset
from heatcheck.data.load import load_data
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.training_record import LAST, WEIGHTS
from heatcheck.models.weights import fill_network, load_weights
from heatcheck.probe.calls import threads
from heatcheck.run.executors.processes import how_it_ended
from heatcheck.run.executors.worker import die_with_parent
from heatcheck.training.loop import fit
from heatcheck.training.masks import TopMasks
from heatcheck.training.prepare import Prepared, prepare
from heatcheck.training.recipe import Recipe
from heatcheck.training.state import read_tensors, write_tensors
from heatcheck.training.task import Task

ANSWERED = "answers.safetensors"
"""What a finished network says about the held-out samples, in its training's folder."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A data set in words: a spec, and how many of its samples.

    Args:
        spec: of the source, split included.
        samples: how many; all if None.
        seed: which ones.
    """

    spec: str
    samples: int | None
    seed: int

    def load(self) -> Dataset:
        """The samples."""
        return load_data(self.spec, samples=self.samples, seed=self.seed)


@dataclass(frozen=True)
class Materials:
    """What all trainings of a study have in common.

    Args:
        network: what is trained, from new weights.
        learnt: the samples to learn from.
        held_out: the samples to judge by.
        preprocess: what is done to pictures, as before the explained model; None for what the network itself says.
        device: where it is computed, on the CPU with one thread.
    """

    network: Any
    learnt: Dataset | Chosen
    held_out: Dataset | Chosen
    preprocess: Preprocess | None
    device: str = "cpu"

    @property
    def portable(self) -> bool:
        """Whether another process can load it all."""
        return isinstance(self.network, str) and all(isinstance(d, Chosen) for d in (self.learnt, self.held_out))

    def loaded(self) -> "Materials":
        """The same with its samples read."""
        learnt, held_out = (d.load() if isinstance(d, Chosen) else d for d in (self.learnt, self.held_out))
        return Materials(self.network, learnt, held_out, self.preprocess, self.device)

    def to_json(self) -> str:
        """For another process."""
        preprocess = None if self.preprocess is None else self.preprocess.record()
        known = {"network": self.network, "preprocess": preprocess, "device": self.device}
        return json.dumps({**known, "learnt": asdict(self.learnt), "held_out": asdict(self.held_out)})

    @classmethod
    def from_json(cls, text: str) -> "Materials":
        """From another process."""
        known = json.loads(text)
        learnt, held_out = (Chosen(**known[name]) for name in ("learnt", "held_out"))
        preprocess = None if known["preprocess"] is None else Preprocess(**known["preprocess"])
        return cls(known["network"], learnt, held_out, preprocess, known["device"])


class Retraining(NamedTuple):
    """One training.

    Args:
        protocol: `roar`, `kar`, `masks` or `unmodified`.
        method: whose maps decide what is replaced; empty where nothing is.
        level: percent of each picture.
        seed: of weights, order and augmentation.
        recipe: the recipe's settings.
        masks: the folder of the masks; empty where there are none.
        folder: of the training.
    """

    protocol: str
    method: str
    level: float
    seed: int
    recipe: dict[str, Any]
    masks: str
    folder: str

    @property
    def done(self) -> bool:
        """Whether it is trained, and its answers are known."""
        return (Path(self.folder) / ANSWERED).exists()

    @property
    def name(self) -> str:
        """For messages."""
        what = f"{self.protocol} {self.method} at {self.level:g} %" if self.method else self.protocol
        return f"{what}, seed {self.seed}"


class HeldOutAnswers(NamedTuple):
    """What a network says about the held-out samples, in their order."""

    right: Tensor
    prob: Tensor
    answer: Tensor

    @classmethod
    def read(cls, job: Retraining) -> "HeldOutAnswers":
        """The answers of a training that is done."""
        return cls(**read_tensors(Path(job.folder) / ANSWERED)[0])


def ready(job: Retraining, materials: Materials) -> Prepared:
    """A training that can begin."""
    masks = TopMasks.open(Path(job.masks)) if job.masks else None
    return prepare(
        Recipe.model_validate(job.recipe),
        materials.network,
        materials.learnt,
        held_out=materials.held_out,
        preprocess=materials.preprocess,
        device=materials.device,
        threads=1,
        masks=masks,
    )


def train_one(job: Retraining, materials: Materials, progress: Progress) -> None:
    """Train a network, or go on with its training, and write down what it answers."""
    folder = Path(job.folder)
    begun = ready(job, materials)
    record = fit(begun.task, begun.network, begun.record, folder, progress=progress)
    fill_network(begun.network, load_weights(folder / WEIGHTS), str(folder / WEIGHTS))
    with threads(record.numerics["threads"]):
        found = answers_of(begun.task, begun.network, torch.device(record.numerics["device"]))
    (folder / LAST).unlink(missing_ok=True)  # nothing goes on from here; with its answers it is not looked at again
    write_tensors(folder / ANSWERED, found._asdict(), {"accuracy": float(found.right.float().mean())})


@torch.inference_mode()
def answers_of(task: Task, network: nn.Module, device: torch.device) -> HeldOutAnswers:
    """What a network says about each held-out sample: whether it is right, the probability of the label, and the class."""
    network.to(device).eval()
    parts = []
    for start in range(0, task.held_out, task.recipe.batch):
        shown = task.held_out_examples(range(start, min(start + task.recipe.batch, task.held_out))).to(device)
        scores = task.scores(network, shown.x).double()
        prob = scores.softmax(1).gather(1, shown.target[:, None])[:, 0]
        parts.append((task.right(scores, shown.target).to(torch.uint8), prob.float(), scores.argmax(1)))
    return HeldOutAnswers(*(torch.cat(column).cpu() for column in zip(*parts, strict=True)))


# -- several at a time -----------------------------------------------------------------------------------------------


def train_all(
    jobs: Sequence[Retraining],
    materials: Materials,
    *,
    workers: int,
    plugins: Sequence[str],
    progress: Progress,
    shown: int,
) -> None:
    """Train what is not done yet, several networks at a time; `shown` is about how many pictures one of them sees.

    Raises:
        HeatcheckError: a training failed; those that are done stay, and the others go on next time.
    """
    left = [job for job in jobs if not job.done]
    if not left:
        return
    progress.begin(_told(jobs), shown * len(jobs), shown * (len(jobs) - len(left)))
    try:
        if workers > 1 and materials.portable:
            with crew(min(workers, len(left)), materials, plugins) as hands:
                hands.share(left, lambda: describe(progress, _told(jobs)), progress)
        else:
            held = materials.loaded()
            for job in left:
                train_one(job, held, Ticks(progress.advance, progress.note))
                describe(progress, _told(jobs))
    except BaseException:
        stop(progress)
        raise
    progress.end()


def _told(jobs: Sequence[Retraining]) -> str:
    return f"retraining, {sum(job.done for job in jobs)} of {len(jobs)} networks done"


class Ticks:
    """Progress of one training among many: pictures count, and what goes wrong is told."""

    def __init__(self, advance: Callable[[int], None], note: Callable[[str], None]) -> None:
        self._advance, self._note = advance, note

    def begin(self, what: str, passes: int, done: int = 0) -> None:
        """Pictures that an earlier try has seen count, too."""
        if done:
            self._advance(done)

    def advance(self, passes: int) -> None:
        """Some pictures were seen."""
        self._advance(passes)

    def note(self, text: str) -> None:
        """Of every epoch's note, none is worth a line among many trainings; what memory has forced is."""
        if not text.startswith("epoch "):
            self._note(text)

    def end(self) -> None:
        """The training is over."""


class TrainingCrew:
    """Processes that train."""

    def __init__(self, number: int, materials: Materials, plugins: Sequence[str]) -> None:
        self.inbox: queue.Queue[tuple[int, Mapping[str, Any] | None]] = queue.Queue()
        first = json.dumps({"materials": materials.to_json(), "plugins": list(plugins)})
        self.processes = [self._start(first) for _ in range(number)]
        for i, process in enumerate(self.processes):
            threading.Thread(target=self._listen, args=(i, process), daemon=True).start()

    @staticmethod
    def _start(first: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "heatcheck.api.retraining"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        _say(process.stdin, first)
        return process

    def _listen(self, number: int, process: "subprocess.Popen[str]") -> None:
        if process.stdout is not None:
            for line in process.stdout:
                self.inbox.put((number, json.loads(line)))
        self.inbox.put((number, None))

    def share(self, jobs: Sequence[Retraining], tell: Callable[[], None], progress: Progress) -> None:
        """Give every process a training, and another one when it is done with it.

        Raises:
            HeatcheckError: a training failed, or its process ended.
        """
        left, doing = list(jobs), dict[int, Retraining]()
        for number in range(len(self.processes)):
            self._next(number, left, doing)
        while doing:
            number, message = self.inbox.get()
            if message is None and number in doing:
                how = how_it_ended(self.processes[number].wait())
                raise HeatcheckError(f"training {doing[number].name}: its process ended ({how}); run again to go on")
            if message is None:
                continue
            if "problem" in message:
                raise HeatcheckError(f"training {doing[number].name}: {message['problem']}")
            if "note" in message:
                progress.note(f"{doing[number].name}: {message['note']}")
            progress.advance(message.get("shown", 0))
            if message.get("done"):
                del doing[number]
                tell()
                self._next(number, left, doing)

    def _next(self, number: int, left: list[Retraining], doing: dict[int, Retraining]) -> None:
        if left:
            doing[number] = left.pop(0)
            _say(self.processes[number].stdin, json.dumps(doing[number]._asdict()))

    def close(self) -> None:
        """End all processes; a training that is under way goes on from its last state next time."""
        for process in self.processes:
            process.kill()
            process.wait()
            if process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()


@contextlib.contextmanager
def crew(number: int, materials: Materials, plugins: Sequence[str]) -> Iterator[TrainingCrew]:
    """Processes that train; they end with the block."""
    hands = TrainingCrew(number, materials, plugins)
    try:
        yield hands
    finally:
        hands.close()


def _say(stream: Any, line: str) -> None:
    with contextlib.suppress(OSError):  # a process that is gone is noticed by its silence
        stream.write(line + "\n")
        stream.flush()


def serve(inp: TextIO, out: TextIO) -> None:
    """Train what comes in until there is no more: first what all have in common, then a training per line."""

    def answer(message: Mapping[str, Any]) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    first = json.loads(inp.readline())
    for path in first["plugins"]:
        load_plugin(path)
    for line in inp:
        try:
            materials = _held(first["materials"])
            ticks = Ticks(lambda n: answer({"shown": n}), lambda text: answer({"note": text}))
            train_one(Retraining(**json.loads(line)), materials, ticks)
            answer({"done": True})
        except (HeatcheckError, OSError, RuntimeError, ValueError) as problem:
            answer({"problem": str(problem).splitlines()[0] if str(problem) else type(problem).__name__})


@lru_cache(maxsize=1)
def _held(materials: str) -> Materials:
    return Materials.from_json(materials).loaded()


if __name__ == "__main__":
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(sys.stdin, replies)
