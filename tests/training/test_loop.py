"""The training loop: against plain lines, and against kills, full disks, lost memory and losses that are no numbers."""

import errno
import json
import math

import pytest
import torch
import torch.nn.functional as F

from heatcheck.core.files import StorageError
from heatcheck.core.types import HeatcheckError
from heatcheck.models.networks import trainable_copy
from heatcheck.models.training_record import TrainingRecord
from heatcheck.models.weights import load_weights
from heatcheck.training import loop, state
from heatcheck.training.loop import read_log
from heatcheck.training.state import random_state

MUTANTS = (
    (
        "training/loop.py",
        "* (len(part) / len(examples))",
        "",
        "test_what_does_not_fit_into_memory_is_divided",
    ),
    (
        "training/loop.py",
        "restore_random_state(before)",
        "pass",
        "test_the_users_random_numbers_are_left_alone",
    ),
    (
        "training/state.py",
        "    restore_random_state(tensors)\n    return",
        "    return",
        "test_broken_off_anywhere_it_ends_with_the_same_bits",
    ),
    (
        "training/state.py",
        'optimizer.load_state_dict({"state": state,',
        'optimizer.load_state_dict({"state": {},',
        "test_broken_off_anywhere_it_ends_with_the_same_bits",
    ),
    (
        "training/loop.py",
        "self.task.batches(epoch)[self.position.batch :]",
        "self.task.batches(epoch)",
        "test_broken_off_anywhere_it_ends_with_the_same_bits",
    ),
    (
        "training/loop.py",
        'module.train(self.recipe.norm == "train")',
        "module.train(True)",
        "test_frozen_statistics_stay",
    ),
    ("training/loop.py", "if accuracy > self.position.best:", "if True:", "test_the_best_epoch_is_chosen"),
)


def plain_loop(task, network, *, rates, momentum=0.9, decay=1e-4):
    """What a textbook would do, with the task's examples: SGD with momentum and weight decay by hand."""
    velocity = {name: torch.zeros_like(p) for name, p in network.named_parameters()}
    step = 0
    for epoch in range(task.recipe.epochs):
        for rows in task.batches(epoch):
            examples = task.examples(rows, epoch)
            network.train()
            network.zero_grad()
            F.cross_entropy(network(examples.x["pixels"]), examples.target).backward()
            with torch.no_grad():
                for name, p in network.named_parameters():
                    gradient = p.grad + decay * p
                    first = step == 0
                    velocity[name] = gradient.clone() if first else momentum * velocity[name] + gradient
                    p -= rates(step) * velocity[name]
            step += 1
    return network.state_dict()


class Stop(Exception):
    """Somebody pulls the plug."""


def broken_off(monkeypatch, toy, folder, after, **options):
    """Train until so many steps were made, in this attempt."""
    made = 0
    step = loop._Training._step

    def counted(self, examples):
        nonlocal made
        if made == after:
            raise Stop
        made += 1
        step(self, examples)

    with monkeypatch.context() as patched:
        patched.setattr(loop._Training, "_step", counted)
        try:
            return toy.fit(folder, **options)
        except Stop:
            return None


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_plain_loop_gives_the_same_weights(toy, tmp_path):
    ours = toy("plain", schedule="step", step=1, gamma=0.5, network={"dropout": 0.0}, choose="last", weight_decay=1e-4)
    _, weights = ours.fit(tmp_path / "a")
    per_epoch = len(ours.task.batches(0))
    theirs = plain_loop(ours.task, trainable_copy(ours.network), rates=lambda s: 0.05 * 0.5 ** (s // per_epoch))
    for name in weights:
        assert torch.allclose(weights[name], theirs[name], rtol=1e-5, atol=1e-7), name
    assert any(not torch.equal(weights[n], ours.network.state_dict()[n]) for n in weights)


def test_torchs_own_optimizers_give_the_same_bits(toy, tmp_path):
    ours = toy(
        "plain", optimizer="adamw", schedule="constant", network={"dropout": 0.0}, choose="last", weight_decay=0.01
    )
    _, weights = ours.fit(tmp_path / "a")
    network = trainable_copy(ours.network)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.05, weight_decay=0.01)
    for epoch in range(2):
        for rows in ours.task.batches(epoch):
            examples = ours.task.examples(rows, epoch)
            optimizer.zero_grad()
            F.cross_entropy(network.train()(examples.x["pixels"]), examples.target).backward()
            optimizer.step()
    assert same(weights, network.state_dict())


@pytest.mark.parametrize("settings", [{"optimizer": "sgd"}, {"optimizer": "adamw", "clip": 0.5, "warmup": 0.5}])
def test_broken_off_anywhere_it_ends_with_the_same_bits(toy, tmp_path, monkeypatch, settings):
    whole = toy(**settings).fit(tmp_path / "whole")
    for after in range(1, 6):
        got = None
        attempts = 0
        while got is None:
            got = broken_off(monkeypatch, toy(**settings), tmp_path / f"{after}", after, saved_every=0.0)
            attempts += 1
            assert attempts < 20
        assert attempts > 1
        assert same(got[1], whole[1])
        assert got[0].accuracy == whole[0].accuracy
        assert [line["loss"] for line in read_log(tmp_path / f"{after}")] == pytest.approx(
            [line["loss"] for line in read_log(tmp_path / "whole")]
        )


def test_what_is_finished_is_not_trained_again(toy, tmp_path, monkeypatch):
    first = toy().fit(tmp_path / "a")
    monkeypatch.setattr(loop._Training, "_step", lambda *_: pytest.fail("trained again"))
    assert toy().fit(tmp_path / "a")[0] == first[0]


def test_another_training_in_the_folder_is_refused(toy, tmp_path):
    toy().fit(tmp_path / "a")
    with pytest.raises(
        HeatcheckError, match=r"holds another training: lr is 0.05 there, 0.1 here; choose another --out"
    ):
        toy(lr=0.1).fit(tmp_path / "a")
    with pytest.raises(HeatcheckError, match="the data's identity is"):
        toy(n=26).fit(tmp_path / "a")


def test_the_users_random_numbers_are_left_alone(toy, tmp_path):
    ready = toy()
    before = random_state()
    ready.fit(tmp_path / "a")
    assert same(random_state(), before)


def test_weights_are_kept_evenly_along_the_way(toy, tmp_path):
    record, weights = toy(epochs=4).fit(tmp_path / "a", keep=3)
    assert [k.name for k in record.kept] == ["01", "02", "03"]
    assert [k.step for k in record.kept] == [4, 8, 12]
    assert [k.epoch for k in record.kept] == pytest.approx([4 / 3, 8 / 3, 4])
    assert all(k.accuracy is not None for k in record.kept)
    last = load_weights(tmp_path / "a" / "checkpoints" / "03.safetensors")
    kept = {k: v for k, v in load_weights(tmp_path / "a" / "last.safetensors").items() if k.startswith("network/")}
    assert same(last, {k.removeprefix("network/"): v for k, v in kept.items()})
    undisturbed = toy(epochs=4).fit(tmp_path / "b")[1]
    assert same(weights, undisturbed)


def test_the_best_epoch_is_chosen(toy, tmp_path, monkeypatch):
    heights = iter([0.1, 0.5, 0.9, 0.7])
    monkeypatch.setattr(loop, "accuracy_of", lambda *_: next(heights))
    record, weights = toy(epochs=3).fit(tmp_path / "a")
    assert record.accuracy == {"before": 0.1, "last": 0.7, "chosen": 0.9}
    assert record.chosen == 2
    assert not (tmp_path / "a" / "best.safetensors").exists()
    assert same(load_weights(tmp_path / "a" / "weights.safetensors"), weights)
    monkeypatch.undo()
    toy(epochs=3, choose="last").fit(tmp_path / "b", keep=3)
    assert same(load_weights(tmp_path / "b" / "checkpoints" / "02.safetensors"), weights)


def test_frozen_statistics_stay(toy, tmp_path):
    before = toy().network.state_dict()
    _, learnt = toy(choose="last").fit(tmp_path / "a")
    assert not torch.equal(learnt["1.running_mean"], before["1.running_mean"])
    _, weights = toy(choose="last", norm="frozen").fit(tmp_path / "b")
    assert torch.equal(weights["1.running_mean"], before["1.running_mean"])
    assert not torch.equal(weights["0.weight"], before["0.weight"])


def test_what_does_not_fit_into_memory_is_divided(toy, tmp_path, monkeypatch):
    whole = toy(network={"norm": False, "dropout": 0.0}).fit(tmp_path / "whole")
    small = toy(network={"norm": False, "dropout": 0.0})
    scores = small.task.scores

    def limited(network, x):
        if len(x) > 3 and torch.is_grad_enabled():
            raise torch.OutOfMemoryError("CUDA out of memory")
        return scores(network, x)

    monkeypatch.setattr(small.task, "scores", limited)
    record, weights = small.fit(tmp_path / "small")
    assert "divided into parts of 2 for lack of memory" in record.marks[-1]
    for name in weights:
        assert torch.allclose(weights[name], whole[1][name], atol=1e-5), name


def test_a_batch_of_one_that_does_not_fit_is_an_error(toy, tmp_path, monkeypatch):
    small = toy()
    monkeypatch.setattr(
        small.task, "loss", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError("CUDA out of memory"))
    )
    with pytest.raises(torch.OutOfMemoryError):
        small.fit(tmp_path / "a")


def test_a_loss_that_is_no_number_ends_it_with_the_last_good_state(toy, tmp_path, monkeypatch):
    bad = toy()
    loss, calls = bad.task.loss, []

    def later(scores, target):
        calls.append(1)
        return loss(scores, target) * (math.nan if len(calls) > 4 else 1.0)

    monkeypatch.setattr(bad.task, "loss", later)
    with pytest.raises(
        HeatcheckError, match=r"the loss is nan at epoch 2, step 2 of 3: the last good state, after step 4"
    ):
        bad.fit(tmp_path / "a", saved_every=0.0)
    got = toy().fit(tmp_path / "a")
    assert same(got[1], toy().fit(tmp_path / "whole")[1])


def test_a_full_disk_ends_it_and_the_state_before_is_whole(toy, tmp_path, monkeypatch):
    write, calls = state.write_atomically, []

    def full(path, data):
        calls.append(path)
        if len(calls) > 3:
            raise StorageError(errno.ENOSPC, f"cannot write {path}: No space left on device; free some space")
        write(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(state, "write_atomically", full)
        with pytest.raises(StorageError, match="No space left on device"):
            toy().fit(tmp_path / "a", saved_every=0.0)
    assert same(toy().fit(tmp_path / "a")[1], toy().fit(tmp_path / "whole")[1])


def test_a_damaged_state_is_named(toy, tmp_path, monkeypatch):
    broken_off(monkeypatch, toy(), tmp_path / "a", 2, saved_every=0.0)
    (tmp_path / "a" / "last.safetensors").write_bytes(b"nothing")
    with pytest.raises(HeatcheckError, match=r"last\.safetensors is damaged .* remove it to begin anew"):
        toy().fit(tmp_path / "a")


def test_a_state_of_another_network_is_named(toy, tmp_path, monkeypatch):
    broken_off(monkeypatch, toy(), tmp_path / "a", 2, saved_every=0.0)
    other = toy(network={"norm": False})
    other.record = TrainingRecord.read(tmp_path / "a")
    with pytest.raises(HeatcheckError, match=r"last\.safetensors does not fit Sequential: unknown 1\."):
        other.fit(tmp_path / "a")


def test_the_log_has_a_line_per_epoch(toy, tmp_path):
    toy(epochs=3).fit(tmp_path / "a")
    lines = [json.loads(line) for line in (tmp_path / "a" / "log.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert lines[-1].keys() >= {"step", "loss", "accuracy", "held_out", "lr", "seconds"}


def test_without_held_out_samples_the_last_weights_are_taken(toy, tmp_path):
    record, _ = toy(held_out=0).fit(tmp_path / "a")
    assert record.accuracy == {}
    assert record.chosen == 2
    assert "its accuracy is not known" in record.marks[0]
