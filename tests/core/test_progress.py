"""What is said about the time left: nothing until it can be known, then about the truth."""

import io
import re

import pytest

from heatcheck.core.progress import Lines, Silent, TimeLeft, stop

MUTANTS = [
    ("core/progress.py", "elapsed < self.QUIET or ", "", "test_nothing_is_said_in_the_first_seconds"),
    ("core/progress.py", "self.first = self.now()", "self.first = 0.0", "test_the_start_of_workers_does_not_count"),
    ("core/progress.py", "SHARE = 0.2", "SHARE = 0.0", "test_a_slow_start_does_not_predict_half_an_hour"),
    ("core/progress.py", "else self.SHARE / 10", "else self.SHARE", "test_a_long_run_says_something_after_minutes"),
]


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self):
        self.time = 0.0

    def __call__(self):
        return self.time


def told(run, total, done=0):
    """What a bar would say after each piece of work: a list of (seconds it took, passes), and the true time left."""
    clock = Clock()
    left = TimeLeft(clock)
    left.begin(total, done)
    whole, said = sum(seconds for seconds, _ in run), []
    for seconds, passes in run:
        clock.time += seconds
        left.advance(passes)
        said.append((clock.time, left.seconds(), whole - clock.time))
    return said


def test_nothing_is_said_in_the_first_seconds():
    said = told([(0.1, 10)] * 500, 5_000)
    assert all(guess is None for at, guess, _ in said if at < 20)
    assert all(guess == pytest.approx(truth, rel=0.01, abs=0.5) for at, guess, truth in said if at > 21)


def test_the_start_of_workers_does_not_count():
    """A minute passes before the first call of a model, then 200 seconds of even work."""
    said = told([(60, 10), *[(1, 10)] * 200], 2010)
    guesses = [(guess, truth) for _, guess, truth in said if guess is not None]
    assert guesses and all(guess == pytest.approx(truth, rel=0.02, abs=1) for guess, truth in guesses)


def test_a_slow_start_does_not_predict_half_an_hour():
    """Four minutes in all, in two chunks: each begins with gradients, and at first everything is slower still."""
    warming, gradients, forwards = [(4, 10)] * 6, [(0.8, 10)] * 75, [(0.2, 10)] * 200
    run = [*warming, *gradients, *forwards, *gradients, *forwards]
    said = told(run, sum(passes for _, passes in run))
    whole = said[-1][0]
    assert 3.5 * 60 < whole < 4.5 * 60
    guesses = [(at, guess, truth) for at, guess, truth in said if guess is not None]
    assert guesses[0][0] < whole / 2
    assert max(guess for _, guess, _ in guesses) < 2 * whole


def test_a_long_run_says_something_after_minutes():
    said = told([(1, 10)] * 36_000, 360_000)
    at, guess, truth = next(line for line in said if line[1] is not None)
    assert at < 15 * 60
    assert guess == pytest.approx(truth, rel=0.01)


def test_what_is_done_already_is_no_evidence_of_speed():
    said = told([(1, 10)] * 100, 10_000, done=9_000)
    assert next(guess for at, guess, _ in said if guess is not None) == pytest.approx(79, abs=2)


def test_more_passes_than_were_predicted_leave_nothing():
    assert told([(1, 10)] * 200, 1000)[-1][1] == 0


def test_what_is_broken_off_is_not_called_done():
    clock, stream = Clock(), io.StringIO()
    lines = Lines(stream, now=clock)
    lines.begin("6 samples × 1 model", 2400)
    clock.time += 22
    stop(lines)
    assert stream.getvalue().splitlines()[-1] == "6 samples × 1 model: stopped after 22 s"

    class Own(Silent):
        ended = False

        def end(self) -> None:
            self.ended = True

    own = Own()
    stop(own)
    assert own.ended


def test_lines_in_a_log():
    clock, stream = Clock(), io.StringIO()
    lines = Lines(stream, now=clock)
    lines.begin("8 samples × 1 model", 2400)
    clock.time = 30  # workers start
    for _ in range(240):
        clock.time += 1
        lines.advance(10)
    lines.end()
    first, *middle, last = stream.getvalue().splitlines()
    assert first == "8 samples × 1 model: about 2,400 passes"
    assert last == "8 samples × 1 model: done in 4 min"
    times = [re.fullmatch(r"8 samples × 1 model: (\d+) %, about (\d+) (min|s) left", line) for line in middle]
    assert len(times) in (12, 13, 14) and all(times)
    assert (int(times[0][1]), times[0][2], times[0][3]) == (20, "3", "min")
    assert [int(t[1]) for t in times] == sorted(int(t[1]) for t in times)
