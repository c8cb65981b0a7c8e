"""Which works a process computes, where several compute one study into one folder.

A work is claimed sample by sample when it is about to begin. What another process has claimed is put aside; what others have
finished meanwhile is dropped; at the end, what is still theirs is waited for, and taken over if they die.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from heatcheck.core.identity import digest
from heatcheck.core.types import Sample
from heatcheck.run.claims import Claims, Turn, growing_pauses
from heatcheck.run.grid import ModelGrid
from heatcheck.run.lacking import done, tried
from heatcheck.run.store import Store
from heatcheck.run.work import SampleRef, Work

Place = tuple[str, SampleRef]


@dataclass
class Sharing:
    """Decides about every work when it is about to begin.

    Args:
        claims: who computes what.
        store: the run's folder.
        grids: models with what applies to them, by label.
        samples: the samples of the study, by name and digest.
        failed: samples of which something had failed when this process began: they are tried again.
        elsewhere: told what others have finished.
        aside: works that others are computing.
        finished: works that others have finished.
    """

    claims: Claims
    store: Store
    grids: Mapping[str, ModelGrid]
    samples: Mapping[tuple[str, str], Sample]
    failed: set[Place] = field(default_factory=set)
    elsewhere: Callable[[Work], object] = lambda work: None
    aside: list[Work] = field(default_factory=list)
    finished: list[Work] = field(default_factory=list)
    _others: set[Place] = field(default_factory=set)
    _scopes: dict[str, str] = field(default_factory=dict)

    def admit(self, work: Work) -> Work | None:
        """What of a work to compute now: what nobody else has and nobody has finished. None if there is nothing."""
        if all(self.claims.holds(self.key(work, ref)) for ref in work.samples):
            return work  # its worker died
        turns = {ref: self.claims.claim(self.key(work, ref)) for ref in work.samples}
        theirs = tuple(ref for ref, turn in turns.items() if turn is Turn.HELD)
        mine = [ref for ref, turn in turns.items() if turn is not Turn.HELD]
        if theirs:
            self.aside.append(replace(work, samples=theirs))
            self._others |= {(work.model, ref) for ref in theirs}
        self.claims.look_around()
        if mine and self.claims.company:
            self.store.refresh()  # after the claim: whoever had it before has written what it finished
            settled = [ref for ref in mine if self.settled((work.model, ref), turns[ref])]
            mine = [ref for ref in mine if ref not in settled]
            if settled:
                self.finished.append(replace(work, samples=tuple(settled)))
                self.release(self.finished[-1])
                self.elsewhere(self.finished[-1])
        if not mine:
            return None
        resumed = any(turns[ref] is Turn.TAKEN_OVER for ref in mine)
        return replace(work, samples=tuple(mine), resumed=work.resumed or resumed)

    def settled(self, place: Place, turn: Turn) -> bool:
        """Whether another process has computed a sample, or tried to, since this one began."""
        model, ref = place
        sample, grid = self.samples[ref.name, ref.digest], self.grids[model]
        if done(self.store, sample, grid):
            return True
        if turn is Turn.TAKEN_OVER or not tried(self.store, sample, grid):
            return False
        return place in self._others or place not in self.failed

    def release(self, work: Work) -> None:
        """Give back the claims of a work."""
        for ref in work.samples:
            self.claims.release(self.key(work, ref))

    def wait(self, note: Callable[[str], object], enough: Callable[[], bool]) -> list[Work]:
        """Works that were put aside and whose owners have finished or died; empty where there are no more.

        Args:
            note: told who is waited for.
            enough: whether waiting must end.
        """
        pauses, told = growing_pauses(), 0
        while self.aside and not enough():
            holders = [{self.claims.holder(self.key(work, ref)) for ref in work.samples} for work in self.aside]
            free = [None in who for who in holders]
            if any(free):
                ready = [work for work, now in zip(self.aside, free, strict=True) if now]
                self.aside = [work for work, now in zip(self.aside, free, strict=True) if not now]
                return ready
            if len(self.aside) != told:
                told = len(self.aside)
                who = ", ".join(sorted({name for some in holders for name in some if name}))
                chunks = "1 chunk" if told == 1 else f"{told} chunks"
                note(f"waiting for {chunks} under way elsewhere ({who})")
            time.sleep(next(pauses))
        return []

    def key(self, work: Work, ref: SampleRef) -> str:
        """What a sample is claimed under: one model, the same methods, metrics, target and seed."""
        if work.model not in self._scopes:
            decides = {"model": work.identity, "target": work.target, "seed": work.seed}
            components = [component.digest for component in (*work.methods, *work.metrics)]
            self._scopes[work.model] = digest({**decides, "components": components})[:16]
        return f"{self._scopes[work.model]}-{ref.digest[:24]}"
