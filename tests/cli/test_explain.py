"""What `explain` says about its own time."""

import pytest

from heatcheck.cli.explain import announced


class Fake:
    """Stands for an `Explainer` whose passes take a tenth of a second each."""

    def __init__(self, forwards: int, backwards: int) -> None:
        self.count = (forwards, backwards)
        self.tick = None

    def passes(self, methods: object) -> tuple[int, int]:
        return self.count

    def seconds(self, passes: tuple[int, int]) -> float:
        return sum(passes) / 10

    def report_to(self, tick: object) -> None:
        self.tick = tick


def test_long_work_is_announced_with_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    fakes = [Fake(1000, 200), Fake(1000, 200)]
    with announced(fakes, {"rise": None, "lime": None, "saliency": None}, quiet=False) as progress:
        progress.note("skipped rollout: it has no attention")
        assert all(fake.tick == progress.advance for fake in fakes)
    told = capsys.readouterr().err
    assert told.startswith("3 methods on 2 inputs: about 2,400 passes, about 4 min\n")
    assert "skipped rollout" in told


@pytest.mark.parametrize(("passes", "quiet"), [((10, 2), False), ((25, 0), False), ((1000, 200), True)])
def test_work_of_a_moment_and_quiet_work_are_not(
    passes: tuple[int, int], quiet: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with announced([Fake(*passes)], {"saliency": None}, quiet=quiet):
        pass
    assert capsys.readouterr().err == ""
