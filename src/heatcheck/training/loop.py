"""The training loop: one for all recipes.

A kill at any moment loses at most a minute: the state is written whole, under its name only when it is complete, and a
training that is begun again in the same folder goes on from it, to the same bits. What an epoch shows depends on seed,
epoch and sample alone; what is drawn while it is shown (dropout) goes on where it was.
"""

import contextlib
import json
import math
import os
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from heatcheck.core.extras import require
from heatcheck.core.files import make_folder, sweep_temporaries, write_atomically
from heatcheck.core.progress import Progress, choose, describe, stop
from heatcheck.core.types import HeatcheckError
from heatcheck.models.devices import choose_device
from heatcheck.models.file_names import RECORD
from heatcheck.models.training_record import KEPT, LAST, WEIGHTS, Kept, TrainingRecord
from heatcheck.models.weights import load_weights
from heatcheck.probe.calls import threads
from heatcheck.probe.numerics import is_out_of_memory
from heatcheck.probe.tuning import tune_allocator
from heatcheck.training.dropout import QuickDropout
from heatcheck.training.recipe import usual
from heatcheck.training.schedule import learning_rate, optimizer_of
from heatcheck.training.state import (
    TrainingPosition,
    load_state,
    random_state,
    read_tensors,
    restore_random_state,
    save_state,
    save_weights,
)
from heatcheck.training.task import Examples, Task

BEST, LOG = "best.safetensors", "log.jsonl"
SAVED_EVERY = float(os.environ.get("HEATCHECK_SAVED_EVERY", "60"))
"""Seconds between two writings of the state."""
_MIXED = {"fp32": "no", "bf16": "bf16", "fp16": "fp16"}
_LOGGED_EVERY = 10.0
_TRIED = 3


def fit(
    task: Task,
    network: nn.Module,
    record: TrainingRecord,
    folder: Path,
    *,
    keep: int = 0,
    saved_every: float = SAVED_EVERY,
    progress: str | Progress = "auto",
) -> TrainingRecord:
    """Train a network, or go on with its training; the global random state is left alone.

    Args:
        task: what it learns.
        network: the network, whose weights change.
        record: what is known before; its numerics say on which device, with how many threads.
        folder: where everything is written; what is there already is continued.
        keep: how many times, evenly spread, weights are kept along the way; the last time at the end.
        saved_every: seconds between two writings of the state.
        progress: how to tell how far it is.

    Returns:
        The record of the finished training.

    Raises:
        HeatcheckError: the folder holds another training, or the loss is not finite.
        StorageError: the disk refuses; the state before is whole.
    """
    make_folder(folder)
    sweep_temporaries(folder)
    record = resumed(record, folder)
    if record.finished:
        return record
    tune_allocator()
    with _own_random_state(record.settings["seed"]), threads(record.numerics["threads"]), _repeatable():
        return _Training(task, network, record, folder, keep, saved_every, choose(progress)).run()


def resumed(record: TrainingRecord, folder: Path) -> TrainingRecord:
    """The record in the folder, if it is of the same training; else the one given, if there is none.

    Raises:
        HeatcheckError: the folder holds another training; says what differs.
    """
    if not (folder / RECORD).exists():
        return record
    found = TrainingRecord.read(folder)
    differing = [
        f"{name} is {theirs!r} there, {ours!r} here"
        for name, theirs, ours in (
            ("recipe", found.recipe, record.recipe),
            ("the model's identity", found.parent.identity[:12], record.parent.identity[:12]),
            ("the data's identity", found.data_identity[:12], record.data_identity[:12]),
            ("device", found.numerics["device"], record.numerics["device"]),
            *((key, found.settings.get(key, usual(key)), value) for key, value in record.settings.items()),
        )
        if theirs != ours
    ]
    if differing:
        raise HeatcheckError(
            f"{str(folder)!r} holds another training: {'; '.join(differing[:3])}; choose another --out, or remove it"
        )
    return found


class _Training:
    """A training under way."""

    def __init__(
        self,
        task: Task,
        network: nn.Module,
        record: TrainingRecord,
        folder: Path,
        keep: int,
        saved_every: float,
        progress: Progress,
    ) -> None:
        self.task, self.recipe, self.record, self.folder = task, task.recipe, record, folder
        self.saved_every, self.progress = saved_every, progress
        self.plain = network
        task.prepare(network)
        self.hand = accelerator(self.recipe.precision, record.numerics["device"])
        optimizer = optimizer_of(self.recipe, network)
        self.network, self.optimizer = self.hand.prepare(network, optimizer)
        self.device = self.hand.device
        self.steps_per_epoch = len(task.batches(0))
        self.steps = self.steps_per_epoch * self.recipe.epochs
        self.kept_at = {math.ceil(self.steps * (k + 1) / keep): f"{k + 1:02d}" for k in range(keep)}
        self.position = TrainingPosition()
        self.saved = self.logged = time.monotonic()
        self.started = time.monotonic()

    @property
    def writes(self) -> bool:
        """Whether this process, of several, is the one that writes."""
        return bool(self.hand.is_main_process)

    def run(self) -> TrainingRecord:
        """Train to the end."""
        if self.writes:
            self.task.accompany(self.folder)
        last = self.folder / LAST
        if last.exists() and self.record.accuracy:
            self.position = load_state(last, self.plain, self.optimizer)
            self._load_scaler()
            self._forget_log()
        else:
            self.record.accuracy["before"] = self._accuracy()
            self._save()
        examples = sum(map(len, self.task.batches(0))) * self.recipe.epochs
        done = self.position.step * examples // self.steps
        self.progress.begin(f"training {self.recipe.name}", examples, done)
        try:
            for epoch in range(self.position.epoch, self.recipe.epochs):
                self._epoch(epoch)
        except BaseException:
            stop(self.progress)
            raise
        self.progress.end()
        return self._finish()

    def _epoch(self, epoch: int) -> None:
        batches = self.task.batches(epoch)[self.position.batch :]
        ranked = [self._share(batch) for batch in batches]
        self._set_mode()
        for shown in ahead(self.task, ranked, epoch):
            self._step(shown.to(self.device))
            self.position.batch += 1
            self.position.step += 1
            self.progress.advance(len(shown) * self.hand.num_processes)
            self._between_steps()
        accuracy = self._accuracy()
        self._log(accuracy)
        self.record.accuracy["last"] = accuracy
        if accuracy > self.position.best:
            self.position.best = accuracy
            self.record.accuracy["chosen"], self.record.chosen = accuracy, epoch + 1.0
            if self.writes and self.recipe.choose == "best":
                save_weights(self.folder / BEST, self.plain, {"epoch": epoch + 1, "accuracy": accuracy})
        self.progress.note(
            f"epoch {epoch + 1} of {self.recipe.epochs}: loss {self._mean_loss():.4f}, "
            f"accuracy {self._training_accuracy():.1%}{f', held out {accuracy:.1%}' if self.task.held_out else ''}"
        )
        self.position.epoch, self.position.batch = epoch + 1, 0
        self.position.loss, self.position.right, self.position.seen = 0.0, 0, 0
        self._save()

    def _share(self, batch: Sequence[int]) -> Sequence[int]:
        """What this process, of several, sees of a batch."""
        return batch[self.hand.process_index :: self.hand.num_processes]

    def _set_mode(self) -> None:
        """Dropout and batch statistics on or off, as the recipe says."""
        self.network.train(self.recipe.dropout)
        for module in self.network.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.train(self.recipe.norm == "train")

    def _step(self, examples: Examples) -> None:
        """One step of the optimizer; a batch that does not fit into memory is divided."""
        size = self.position.micro_batch or len(examples)
        while True:
            try:
                self.optimizer.zero_grad()
                loss, right = self._backward(examples, size)
                break
            except (RuntimeError, MemoryError) as problem:
                if not is_out_of_memory(problem) or size == 1:
                    raise
                size = math.ceil(min(size, len(examples)) / 2)
                self._mark_divided(size)
        if not math.isfinite(loss):
            raise HeatcheckError(
                f"the loss is {loss} at epoch {self.position.epoch + 1}, step {self.position.batch + 1} of "
                f"{self.steps_per_epoch}: the last good state, after step {self._saved_step()}, is in {self.folder / LAST}; "
                f"a lower rate may help, such as --set lr={self.recipe.lr / 10:g} with another --out"
            )
        if self.recipe.clip:
            self.hand.clip_grad_norm_(self.network.parameters(), self.recipe.clip)
        rate = learning_rate(self.recipe, self.position.step, self.steps, self.steps_per_epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.position.loss += loss * len(examples)
        self.position.right += right
        self.position.seen += len(examples)

    def _backward(self, examples: Examples, size: int) -> tuple[float, int]:
        """Gradients of the mean loss, in parts of at most `size` samples; that loss, and how many answers are right."""
        total, right = 0.0, 0
        for start in range(0, len(examples), size):
            part = examples.take(slice(start, start + size))
            with self.hand.autocast(), QuickDropout():
                scores = self.task.scores(self.network, part.x)
                loss = self.task.loss(scores.float(), part.target) * (len(part) / len(examples))
            self.hand.backward(loss)
            total += loss.item()
            right += int(self.task.right(scores.detach(), part.target).sum())
        return total, right

    def _mark_divided(self, size: int) -> None:
        self.position.micro_batch = size
        mark = (
            f"from step {self.position.step + 1} on, batches were divided into parts of {size} for lack of memory: "
            "batch normalisation saw these, and another machine gives other bits"
        )
        self.record.marks.append(mark)
        self.progress.note(mark)

    def _between_steps(self) -> None:
        now = time.monotonic()
        if self.position.step in self.kept_at:
            self._keep(self.kept_at[self.position.step])
        if now - self.logged > _LOGGED_EVERY:
            describe(
                self.progress,
                f"training {self.recipe.name} · epoch {self.position.epoch + 1} of {self.recipe.epochs} "
                f"· loss {self._mean_loss():.3f} · accuracy {self._training_accuracy():.1%}",
            )
            self._log(None)
            self.logged = now
        if now - self.saved > self.saved_every:
            self._save()

    def _keep(self, name: str) -> None:
        """Keep the weights of this moment."""
        accuracy = self._accuracy()
        self._set_mode()
        if not self.writes:
            return
        epoch = self.position.step / self.steps_per_epoch
        save_weights(self.folder / KEPT / f"{name}.safetensors", self.plain, {"step": self.position.step})
        kept = Kept(name=name, step=self.position.step, epoch=epoch, accuracy=accuracy if self.task.held_out else None)
        self.record.kept = [*(k for k in self.record.kept if k.name != name), kept]
        self.record.write(self.folder)

    def _save(self) -> None:
        """Write the state, then the record."""
        self.saved = time.monotonic()
        if not self.writes:
            return
        self.position.scaler = {} if self.hand.scaler is None else self.hand.scaler.state_dict()
        save_state(self.folder / LAST, self.plain, self.optimizer, self.position)
        self.record.write(self.folder)
        self.saved = time.monotonic()

    def _load_scaler(self) -> None:
        if self.hand.scaler is not None and self.position.scaler:
            self.hand.scaler.load_state_dict(self.position.scaler)

    def _saved_step(self) -> int:
        path = self.folder / LAST
        if not path.exists():
            return 0
        return int(read_tensors(path)[1]["position"]["step"])

    def _finish(self) -> TrainingRecord:
        self.hand.wait_for_everyone()
        if self.recipe.choose == "best" and (self.folder / BEST).exists() and self.task.held_out:
            self.plain.load_state_dict(load_weights(self.folder / BEST))
        else:
            self.record.chosen = float(self.recipe.epochs)
            known = self.record.accuracy
            known["chosen"] = known["last"] if "last" in known else self._accuracy()
        if not self.task.held_out:
            self.record.accuracy.clear()
            self.record.marks.append("no samples were held out: its accuracy is not known")
        if self.writes:
            save_weights(self.folder / WEIGHTS, self.plain, {"epoch": self.record.chosen})
            self.record.finished = True
            self.record.write(self.folder)
            (self.folder / BEST).unlink(missing_ok=True)
        return self.record

    @torch.inference_mode()
    def _accuracy(self) -> float:
        """The share of held-out samples that are answered rightly; 0 where there are none."""
        return accuracy_of(self.task, self.network, self.hand)

    def _mean_loss(self) -> float:
        return self.position.loss / max(1, self.position.seen)

    def _training_accuracy(self) -> float:
        return self.position.right / max(1, self.position.seen)

    def _log(self, held_out: float | None) -> None:
        """A line in the log."""
        if not self.writes:
            return
        line = {
            "step": self.position.step,
            "epoch": round(self.position.step / self.steps_per_epoch, 4),
            "loss": self._mean_loss(),
            "accuracy": self._training_accuracy(),
            **({} if held_out is None else {"held_out": held_out}),
            "lr": self.optimizer.param_groups[0]["lr"],
            "seconds": round(time.monotonic() - self.started, 1),
        }
        with (self.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _forget_log(self) -> None:
        """Drop the log's lines behind the state that is continued: they are written anew."""
        lines = [line for line in read_log(self.folder) if line["step"] <= self.position.step]
        write_atomically(self.folder / LOG, "".join(json.dumps(line) + "\n" for line in lines).encode())


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The lines of a training's log; one that was cut off is left out."""
    lines: list[dict[str, Any]] = []
    path = folder / LOG
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):
            lines.append(json.loads(text))
    return lines


@torch.inference_mode()
def accuracy_of(task: Task, network: nn.Module, hand: Any = None) -> float:
    """The share of held-out samples that a network answers rightly; 0 where there are none."""
    network.eval()
    first, every = (hand.process_index, hand.num_processes) if hand is not None else (0, 1)
    device = hand.device if hand is not None else torch.device("cpu")
    rows = list(range(task.held_out))[first::every]
    right = torch.zeros((), dtype=torch.long, device=device)
    for part in _ahead_of(rows, task.recipe.batch, task.held_out_examples):
        shown = part.to(device)
        right += task.right(task.scores(network, shown.x), shown.target).sum()
    right = hand.reduce(right, "sum") if every > 1 else right
    return int(right) / max(1, task.held_out)


def ahead(task: Task, batches: Sequence[Sequence[int]], epoch: int) -> Iterator[Examples]:
    """The examples of batches, each made while the one before is learnt."""
    with ThreadPoolExecutor(1) as pool:
        coming = [pool.submit(task.examples, rows, epoch) for rows in batches[:1]]
        for following in [*batches[1:], None]:
            shown = coming.pop().result()
            if following is not None:
                coming.append(pool.submit(task.examples, following, epoch))
            yield shown


def _ahead_of(rows: Sequence[int], size: int, make: Any) -> Iterator[Examples]:
    for start in range(0, len(rows), size):
        yield make(rows[start : start + size])


def accelerator(precision: str, device: str) -> Any:
    """What moves networks to devices, mixes precisions and joins processes that `accelerate launch` started."""
    require("training", "accelerate", extra="training")
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, PartialState

    if "RANK" not in os.environ:  # else its processes have found each other already
        AcceleratorState._reset_state()
        PartialState._reset_state()
    return Accelerator(cpu=device == "cpu", mixed_precision=_MIXED[precision])


def chosen_threads() -> int:
    """One thread per processor that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def numerics(device: str, n: int | None) -> dict[str, Any]:
    """What decides the last bits of a training."""
    return {"device": choose_device(device), "threads": n or chosen_threads(), "torch": torch.__version__}


@contextlib.contextmanager
def _own_random_state(seed: int) -> Iterator[None]:
    """Random numbers of Python, NumPy and torch that begin with a seed; afterwards they go on where they were."""
    before = random_state()
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: TID251, NPY002 - restored below
    random.seed(seed)
    try:
        yield
    finally:
        restore_random_state(before)


@contextlib.contextmanager
def _repeatable() -> Iterator[None]:
    """Let CUDA choose the algorithms that give the same bits every time."""
    before = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = before


def measure_step(task: Task, network: nn.Module, how: dict[str, Any]) -> tuple[float, float]:
    """Seconds that a step takes, and a held-out sample, tried on a network that is thrown away."""
    with _own_random_state(task.recipe.seed), threads(how["threads"]):
        task.prepare(network)
        hand = accelerator(task.recipe.precision, how["device"])
        tried, optimizer = hand.prepare(network, optimizer_of(task.recipe, network))
        rows, took = task.batches(0)[0], []
        for _ in range(_TRIED):
            begin = time.monotonic()
            examples = task.examples(rows, 0).to(hand.device)
            with hand.autocast(), QuickDropout():
                loss = task.loss(task.scores(tried, examples.x).float(), examples.target)
            hand.backward(loss)
            loss.item()
            optimizer.zero_grad()
            took.append(time.monotonic() - begin)
        begin, few = time.monotonic(), list(range(min(task.held_out, task.recipe.batch)))
        if few:
            with torch.inference_mode():
                task.scores(tried.eval(), task.held_out_examples(few).x.to(hand.device)).sum().item()
        return min(took), (time.monotonic() - begin) / max(1, len(few))


def steps_of(task: Task) -> int:
    """Steps of the optimizer in all."""
    return len(task.batches(0)) * task.recipe.epochs
