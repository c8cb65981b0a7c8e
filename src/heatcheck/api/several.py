"""Several methods on the same inputs: what they ask is shared, and its cost is told before it is spent."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from heatcheck.api.explain import as_inputs, batches_of, merge
from heatcheck.core.types import Attribution, Batch, NotApplicable
from heatcheck.methods.base import Method
from heatcheck.models.base import Model
from heatcheck.probe.asks import CLEAN, Ask, Shape, passes_of
from heatcheck.probe.probe import Probe


@dataclass
class Explainer:
    """Explains the same inputs with one method after another.

    Args:
        model: whose answers are explained.
        x: the inputs, as `explain` takes them.
        target: the classes to explain; the predicted ones if None.
        threads: intra-op threads of a pass.
        seed: of random streams.
    """

    model: Model
    x: Any
    target: Any = None
    threads: int = 1
    seed: int = 0
    groups: list[tuple[list[int], Probe, Batch]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.groups = list(batches_of(self.model, as_inputs(self.model, self.x), self.target, None, self.seed))
        for _, probe, _ in self.groups:
            probe.numerics = replace(probe.numerics, threads=self.threads)

    def report_to(self, tick: Callable[[int], None]) -> None:
        """Tell somebody of passes as they are made."""
        for _, probe, _ in self.groups:
            probe.tick = tick

    def explain(self, method: Method) -> Attribution:
        """The maps of one method, in the order of the inputs.

        Raises:
            NotApplicable: the method cannot explain one of them.
        """
        parts = [method(probe, batch) for _, probe, batch in self.groups]
        return merge(parts, [row for rows, _, _ in self.groups for row in rows])

    def passes(self, methods: Mapping[str, Method]) -> tuple[int, int]:
        """Forward and backward passes that all methods together need; fewer where one turns out not to apply."""
        forwards = backwards = 0
        for _, _, batch in self.groups:
            for i in range(len(batch)):
                shape = Shape(self.model.domain, batch.x.take(slice(i, i + 1)), self.model)
                more = self._passes_of_sample(methods, shape)
                forwards, backwards = forwards + more[0], backwards + more[1]
        return forwards, backwards

    def _passes_of_sample(self, methods: Mapping[str, Method], shape: Shape) -> tuple[int, int]:
        asked: set[Ask] = {CLEAN}
        extra: dict[str, tuple[int, int]] = {}
        for method in methods.values():
            try:
                component = method.resolved_on(self.model.domain)
                asks, passes = component.asks(shape), component.passes(shape)
            except NotApplicable:
                continue
            asked |= asks
            extra[component.cache_key] = passes
        return passes_of(asked - {CLEAN}, (sum(f for f, _ in extra.values()), sum(b for _, b in extra.values())))

    def seconds(self, passes: tuple[int, int]) -> float:
        """How long so many forward and backward passes take, by the time of a few on the first input."""
        forwards, backwards = passes
        _, probe, batch = self.groups[0]
        trial = Probe(self.model, probe.numerics)
        one = replace(batch.take([0]), altered=True)
        rows = torch.zeros(trial.numerics.forward, dtype=torch.long)
        trial.logits(one.x)
        forward = _timed(lambda: trial.logits(one.x.take(rows))) / trial.numerics.forward
        if not backwards or not self.model.differentiable:
            return forwards * forward
        backward = _timed(lambda: trial.gradient(one, "logit")) / trial.numerics.backward
        return (forwards - backwards) * forward + backwards * backward


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
