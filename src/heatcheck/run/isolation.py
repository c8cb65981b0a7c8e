"""What fails, fails alone: a batch that raises is tried sample by sample, then method by method."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from heatcheck.core.plugins import line_of
from heatcheck.core.types import OK, Attribution, Batch, HeatcheckError, Inputs, NotApplicable, Scores
from heatcheck.methods.base import Method
from heatcheck.metrics.base import Maps, Metric
from heatcheck.probe.numerics import DeviceLostError, is_device_lost
from heatcheck.probe.probe import Probe


def first_line(problem: BaseException) -> str:
    """An exception as one line, with the line of the user's own file that raised it; our own errors speak for themselves."""
    text = str(problem).strip().splitlines()
    kind = "" if isinstance(problem, HeatcheckError) and text else f"{type(problem).__name__}: "
    return f"{kind}{text[0] if text else ''}".rstrip(": ") + line_of(problem)


def end_if_lost(problem: BaseException) -> None:
    """Raise what no sample is to blame for: a GPU that has failed answers nothing more in this process."""
    if is_device_lost(problem):
        raise DeviceLostError(first_line(problem)) from problem


def isolated_logits(probe: Probe, x: Inputs) -> list[Tensor | str]:
    """The clean outputs of each input; where the model raises, `failed: …`."""
    try:
        with probe.undone_on_failure():
            return list(probe.logits(x))
    except Exception as problem:
        end_if_lost(problem)
        if len(x) == 1:
            return [f"failed: {first_line(problem)}"]
    return [found for i in range(len(x)) for found in isolated_logits(probe, x.take(torch.tensor([i])))]


def isolated(method: Method, probe: Probe, batch: Batch) -> Attribution:
    """Explain a batch; if that fails, each sample alone, so that only those fail that must."""
    try:
        with probe.undone_on_failure():
            return method(probe, batch)
    except NotApplicable as reason:
        return no_maps(probe, batch, f"skipped: {reason}")
    except Exception as problem:
        end_if_lost(problem)
        if len(batch) == 1:
            return no_maps(probe, batch, f"failed: {first_line(problem)}")
    return join_maps([isolated(method, probe, batch.take([i])) for i in range(len(batch))])


def no_maps(probe: Probe, batch: Batch, status: str) -> Attribution:
    """Placeholders for maps that do not exist."""
    values = torch.zeros(len(batch), *(1 for _ in probe.domain.leaf(batch.x).shape[2:]))
    return Attribution(values, batch.target, status=(status,) * len(batch), interpolation="nearest")


def join_maps(parts: Sequence[Attribution]) -> Attribution:
    """Maps of parts, one after another; placeholders take the size of the others."""
    good = next((p for p in parts if OK in p.status), parts[0])
    size = good.values.shape[1:]
    values = [p.values if p.values.shape[1:] == size else good.values.new_zeros(len(p.values), *size) for p in parts]
    targets = [p.target for p in parts if p.target is not None]
    return replace(
        good,
        values=torch.cat(values),
        target=torch.cat(targets) if targets else None,
        status=tuple(s for p in parts for s in p.status),
    )


def isolated_score(metric: Metric, probe: Probe, maps: Maps) -> Scores:
    """Score a batch; on failure each sample alone, then each method alone, so that only those fail that must."""
    try:
        with probe.undone_on_failure():
            return metric(probe, maps.batch, maps)
    except NotApplicable as reason:
        return all_scores(len(maps), len(maps.batch), f"skipped: {reason}")
    except Exception as problem:
        end_if_lost(problem)
        if len(maps.batch) == 1 and len(maps) == 1:
            return all_scores(1, 1, f"failed: {first_line(problem)}")
    if len(maps.batch) > 1:
        return join([isolated_score(metric, probe, maps.sample(i)) for i in range(len(maps.batch))], dim=1)
    return join([isolated_score(metric, probe, maps.only([m])) for m in range(len(maps))], dim=0)


def all_scores(m: int, b: int, status: str) -> Scores:
    """No score anywhere, for one reason."""
    return Scores(torch.full((m, b), torch.nan, dtype=torch.float64), ((status,) * b,) * m)


def join(parts: Sequence[Scores], dim: int) -> Scores:
    """Scores of parts, side by side; curves of a part that has none are NaN."""
    value = torch.cat([p.value for p in parts], dim)
    if dim == 0:
        status = tuple(row for p in parts for row in p.status)
    else:
        status = tuple(tuple(s for p in parts for s in p.status[m]) for m in range(len(parts[0].status)))
    good = next((p for p in parts if p.curve is not None), None)
    if good is None or good.curve is None:
        return Scores(value, status)
    k = good.curve.shape[-1]
    blank = torch.nan * torch.ones(k, dtype=good.curve.dtype)
    curves = [p.curve if p.curve is not None else blank.expand(*p.value.shape, k) for p in parts]
    return Scores(value, status, torch.cat(curves, dim), good.share)
