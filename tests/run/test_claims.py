"""Leases and claims: one owner at a time, dead ones taken over, whatever the files say; no clock is trusted."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from heatcheck.run import claims as module
from heatcheck.run.claims import Claims, Turn, host, start_of

MUTANTS = (
    (
        "run/claims.py",
        "return self.now() - known[1] >= 2 * self.heartbeat",
        "return True",
        "test_a_lease_that_is_kept_alive_is_respected_however_late",
    ),
    (
        "run/claims.py",
        "if known is None or known[0] != beat:",
        "if known is None:",
        "test_a_lease_that_is_kept_alive_is_respected_however_late",
    ),
    (
        "run/claims.py",
        'found[0] not in "ZX" and found[1] == started',
        "True",
        "test_a_number_that_was_given_again_belongs_to_another_process",
    ),
    ("run/claims.py", "self.host == host() and", "", "test_another_machine_is_judged_by_its_heartbeat_alone"),
    ("run/claims.py", "if owner == self.token:", "if False:", "test_what_could_not_be_given_back_keeps_nobody_waiting"),
    (
        "run/claims.py",
        "{*self._held, *self._names()}",
        "list(self._held)",
        "test_what_could_not_be_given_back_keeps_nobody_waiting",
    ),
    ("run/claims.py", "void = before is not None and", "void = True or", "test_of_two_that_take_over_one_does"),
    (
        "run/claims.py",
        "if found is not None and found[0] == self.token.encode():",
        "if found is not None:",
        "test_what_was_taken_over_is_not_given_back_by_its_first_owner",
    ),
)


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def member(tmp_path, clock):
    """Makes processes that share the folder, as far as files can tell, with hearts that beat when told."""

    def make() -> Claims:
        made = Claims(tmp_path, heartbeat=10.0, now=clock)
        made._write_lease()
        return made

    return make


def beat(member: Claims, hours: float = 0.0) -> None:
    """A heartbeat by a clock that may be wrong."""
    lease = member._lease(member.token)
    before = lease.stat().st_mtime_ns
    os.utime(lease, ns=(before + 10**9 + int(hours * 3600e9),) * 2)


def forge(place: Path, token: str, **owner: object) -> None:
    place.mkdir(exist_ok=True)
    (place / f"{token}.lease").write_text(json.dumps(owner))


def test_only_one_process_gets_a_claim_until_it_gives_it_back(member):
    a, b = member(), member()
    assert a.claim("x") is Turn.MINE and a.claim("x") is Turn.MINE
    assert b.claim("x") is Turn.HELD and b.company
    assert b.holder("x") == f"process {os.getpid()} on {module.socket.gethostname()}"
    a.release("x")
    assert b.holder("x") is None and b.claim("x") is Turn.MINE and a.claim("x") is Turn.HELD


def test_many_threads_ask_and_one_gets_it(member):
    crowd = [member() for _ in range(8)]
    start, found = threading.Barrier(8), []

    def ask(one: Claims) -> None:
        start.wait()
        found.extend(one.claim(f"k{i}") for i in range(40))

    threads = [threading.Thread(target=ask, args=(one,)) for one in crowd]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.count(Turn.MINE) == 40 and found.count(Turn.HELD) == 280


@pytest.mark.parametrize("hours", [0.0, -1.0, 1.0])
def test_a_lease_that_is_kept_alive_is_respected_however_late(member, clock, hours):
    a, b = member(), member()
    a.claim("x")
    for _ in range(4):
        clock.time += 15
        beat(a, hours)
        assert b.claim("x") is Turn.HELD
    clock.time += 19
    assert b.claim("x") is Turn.HELD
    clock.time += 1
    assert b.claim("x") is Turn.TAKEN_OVER
    assert a.claim("y") is Turn.MINE  # a lease that others think dead keeps nobody from working


def test_a_process_that_is_gone_is_noticed_at_once(tmp_path, member):
    code = f"""
from pathlib import Path
import os
from heatcheck.run.claims import Claims
claims = Claims(Path({str(tmp_path)!r}))
claims.join()
print(claims.claim("x").value, flush=True)
os.kill(os.getpid(), 9)
"""
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert child.stdout == "mine\n", child.stderr
    late = member()
    assert late.claim("x") is Turn.TAKEN_OVER
    late.sweep()
    assert sorted(p.name for p in late.place.iterdir()) == sorted(["x", f"{late.token}.lease"])


@pytest.mark.skipif(start_of(os.getpid()) is None, reason="needs a kernel that tells when processes started")
def test_a_number_that_was_given_again_belongs_to_another_process(tmp_path, member):
    forge(tmp_path / "claims", "a" * 16, host=host(), pid=os.getpid(), started=1, name="here")
    (tmp_path / "claims" / "x").write_text("a" * 16)
    assert member().claim("x") is Turn.TAKEN_OVER


def test_another_machine_is_judged_by_its_heartbeat_alone(tmp_path, member, clock):
    forge(tmp_path / "claims", "a" * 16, host="elsewhere", pid=2**22 - 1, started=1, name="far")
    (tmp_path / "claims" / "x").write_text("a" * 16)
    one = member()
    assert one.claim("x") is Turn.HELD and one.holder("x") == f"process {2**22 - 1} on far"
    clock.time += 20
    assert one.claim("x") is Turn.TAKEN_OVER


GARBAGE = {
    "an empty claim": lambda place: (place / "x").write_bytes(b""),
    "a claim of noise": lambda place: (place / "x").write_bytes(os.urandom(64)),
    "a claim that names another file": lambda place: (place / "x").write_text("../../run.json"),
    "a claim without a lease": lambda place: (place / "x").write_text("b" * 16),
    "a lease of noise": lambda place: (
        (place / "x").write_text("b" * 16),
        (place / f"{'b' * 16}.lease").write_bytes(b"\xff\x00{"),
    ),
    "a lease with wrong kinds": lambda place: (
        (place / "x").write_text("b" * 16),
        forge(place, "b" * 16, host=3, pid="1", started=[], name=None),
    ),
    "a lease of this very process": lambda place: (
        (place / "x").write_text("b" * 16),
        forge(place, "b" * 16, host=host(), pid=os.getpid(), started=None, name="me"),
    ),
    "a lease with an impossible number": lambda place: (
        (place / "x").write_text("b" * 16),
        forge(place, "b" * 16, host=host(), pid=10**30, started=None, name="me"),
    ),
    "a folder": lambda place: (place / "x").mkdir(),
    "a link to nowhere": lambda place: (place / "x").symlink_to("/nonexistent"),
    "a pipe": lambda place: os.mkfifo(place / "x"),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_keeps_nobody_from_working_for_longer_than_two_heartbeats(tmp_path, member, clock, kind):
    one = member()
    GARBAGE[kind](tmp_path / "claims")
    first = one.claim("x")
    clock.time += 20
    assert first is Turn.TAKEN_OVER or one.claim("x") is Turn.TAKEN_OVER
    one.sweep()
    clock.time += 20
    one.sweep()
    assert sorted(p.name for p in one.place.iterdir()) == sorted(["x", f"{one.token}.lease"])


def test_of_two_that_take_over_one_does(tmp_path, member, monkeypatch):
    a, b = member(), member()
    (tmp_path / "claims" / "x").write_text("b" * 16)
    assert a._owner_of("x") is None
    read = Claims._read

    def overtaken(self, path):  # b takes the claim over between a's look and a's move
        found = read(self, path)
        if path.name == "x" and self is a:
            monkeypatch.setattr(Claims, "_read", read)
            assert b.claim("x") is Turn.TAKEN_OVER
        return found

    monkeypatch.setattr(Claims, "_read", overtaken)
    assert a._take_away("x") is False
    assert a.claim("x") is Turn.HELD
    assert (tmp_path / "claims" / "x").read_text() == b.token


def test_what_was_taken_over_is_not_given_back_by_its_first_owner(member, clock):
    a, b = member(), member()
    a.claim("x")
    assert b.claim("x") is Turn.HELD
    clock.time += 20
    assert b.claim("x") is Turn.TAKEN_OVER
    a.release("x")
    assert member().claim("x") is Turn.HELD


def test_what_could_not_be_given_back_keeps_nobody_waiting(tmp_path, monkeypatch):
    refused, unlink = iter([True]), Path.unlink

    def failing(path: Path, missing_ok: bool = False) -> None:
        if next(refused, False):
            raise OSError(5, "Input/output error")
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", failing)
    with Claims(tmp_path) as mine:
        assert mine.claim("record") is Turn.MINE
        mine.release("record")
        assert (mine.place / "record").exists() and not mine.holds("record")
        assert mine.claim("record") is Turn.MINE and not mine.company
        refused = iter([True])
        mine.release("record")
    assert not mine.place.exists()


def test_the_last_one_leaves_nothing_behind(tmp_path):
    with Claims(tmp_path) as a, Claims(tmp_path) as b:
        assert a.claim("x") is Turn.MINE and b.claim("x") is Turn.HELD
    assert list(tmp_path.iterdir()) == []


def test_a_lease_that_was_removed_is_written_again(tmp_path):
    with Claims(tmp_path, heartbeat=0.02) as a:
        lease = a._lease(a.token)
        lease.unlink()
        for _ in range(200):
            if lease.exists():
                break
            threading.Event().wait(0.02)
        assert lease.exists()


def test_one_at_a_time_and_whoever_waits_is_told_for_whom(member):
    a, b = member(), member()
    told, order = [], []

    def second() -> None:
        with b.alone("turn", told.append):
            order.append("b")

    with a.alone("turn"):
        thread = threading.Thread(target=second)
        thread.start()
        while not told:
            threading.Event().wait(0.01)
        order.append("a")
    thread.join()
    assert order == ["a", "b"] and told == [f"process {os.getpid()} on {module.socket.gethostname()}"]


def test_a_folder_that_refuses_claims_stops_nobody(tmp_path):
    (tmp_path / "claims").write_text("a file")
    with Claims(tmp_path) as a:
        assert a.claim("x") is Turn.MINE and a.broken
        with a.alone("turn"):
            pass
    assert (tmp_path / "claims").read_text() == "a file"
