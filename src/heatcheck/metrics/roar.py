"""ROAR and KAR: what networks answered that were retrained without the most relevant pixels, or with them alone.

Retraining is a study of its own (`heatcheck roar`). It leaves a table of right and wrong answers, per picture, method,
level and seed; these metrics read it, so that their scores are stored, ranked and exported as any other.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from heatcheck.core.files import sha256_of
from heatcheck.core.types import OK, Batch, HeatcheckError, NotApplicable, Scores
from heatcheck.domain.base import Domain
from heatcheck.metrics.base import Maps, Metric, metric
from heatcheck.probe.probe import Probe

ANSWERS, STUDY = "answers.parquet", "retraining.json"
"""What a study of retraining leaves in its folder: every answer, and what the study was."""
UNMODIFIED = "unmodified"
"""The protocol of the networks that learnt from whole pictures."""


@dataclass(frozen=True)
class Retrained:
    """What a study of retraining found under one protocol.

    Args:
        model: the identity of the model whose maps they are.
        share: the parts of the picture that were removed, from none on.
        right: how often the answer was right at each share, over seeds, by method and sample.
        targets: the class that was explained, by sample.
    """

    model: str
    share: tuple[float, ...]
    right: Mapping[tuple[str, str], np.ndarray]
    targets: Mapping[str, int]


def read_retrained(folder: Path, protocol: str) -> Retrained:
    """A study's answers under a protocol, averaged over seeds.

    Raises:
        HeatcheckError: the folder holds no finished study.
    """
    path = folder / ANSWERS
    if not path.is_file():
        raise HeatcheckError(
            f"study={str(folder)!r} holds no finished study of retraining: there is no {ANSWERS}; run `heatcheck roar` there"
        )
    found = path.stat()
    return _read(path, protocol, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=4)
def _read(path: Path, protocol: str, *_stamp: int) -> Retrained:
    import polars as pl

    facts = json.loads((path.parent / STUDY).read_text(encoding="utf-8"))
    table = pl.read_parquet(path)
    whole = table.filter(pl.col("protocol") == UNMODIFIED).group_by("digest").agg(pl.col("right").mean())
    means = (
        table.filter(pl.col("protocol") == protocol)
        .with_columns(gone=pl.col("level") if protocol == "roar" else 100 - pl.col("level"))
        .group_by("spec", "digest", "gone")
        .agg(pl.col("right").mean())
        .sort("spec", "digest", "gone")
    )
    at_first = dict(whole.iter_rows())
    levels = means["gone"].unique().sort().to_list()
    right = {
        (str(spec), str(digest)): np.array([at_first[digest], *part["right"].to_list()])
        for (spec, digest), part in means.group_by("spec", "digest", maintain_order=True)
    }
    targets = dict(table.select("digest", "target").unique().iter_rows())
    return Retrained(facts["model"]["identity"], (0.0, *(gone / 100 for gone in levels)), right, targets)


@lru_cache(maxsize=16)
def _digest(path: Path, *_stamp: int) -> str:
    return sha256_of(path)


@dataclass(frozen=True, kw_only=True, repr=False)
class RetrainingMetric(Metric):
    """The share of retrained networks that are right about a picture, over levels and seeds."""

    study: str = ""

    def resolve(self, domain: Domain) -> "RetrainingMetric":
        found = super().resolve(domain)
        if not self.study:
            raise NotApplicable(
                f"{self.id} retrains a network per method, level and seed: `heatcheck roar --model … --data … --methods … "
                f'--out FOLDER` does it and scores it; {self.id}(study="FOLDER") reads such a study into other runs'
            )
        return found

    def identity(self) -> dict[str, Any]:
        """Id, version and the study's answers, wherever they lie."""
        known = super().identity()
        path = Path(self.study).expanduser() / ANSWERS
        if self.study and path.is_file():
            stamp = path.stat()
            known["params"]["study"] = _digest(path, stamp.st_mtime_ns, stamp.st_size)
        return known

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        found = read_retrained(Path(self.study).expanduser(), self.id)
        if found.model != probe.model.identity:
            raise NotApplicable(
                f"the study in {self.study!r} retrained on maps of another model than {probe.model.name}"
            )
        explainers = maps.explainers or (None,) * len(maps)
        names = [getattr(e, "name", a.method) for e, a in zip(explainers, maps.items, strict=True)]
        cells = [[self._cell(found, name, i, batch) for i in range(len(batch))] for name in names]
        curve = torch.tensor(np.array([[values for values, _ in row] for row in cells]))
        status = tuple(tuple(why for _, why in row) for row in cells)
        return Scores(mean_over_levels(curve), status, curve=curve, share=found.share)

    def _cell(self, found: Retrained, method: str, row: int, batch: Batch) -> tuple[np.ndarray, str]:
        """How often the answers to a picture were right, or why that is not known."""
        sample = batch.streams.digests[row].partition("|")[0]
        known = found.right.get((method, sample))
        if known is None:
            return np.full(len(found.share), np.nan), f"skipped: the study has no answers for {method} on this sample"
        if found.targets[sample] != int(batch.target[row]):
            why = f"the study explained class {found.targets[sample]}, this run class {int(batch.target[row])}"
            return np.full(len(found.share), np.nan), f"skipped: {why}"
        return known, OK


def mean_over_levels(curve: Float[Tensor, "m b k"]) -> Float[Tensor, "m b"]:
    """The mean of a curve without its first point, the whole picture, which is the same for all methods.

    >>> mean_over_levels(torch.tensor([[[1.0, 0.5, 0.0]]])).tolist()
    [[0.25]]
    """
    return curve[..., 1:].mean(-1)


@metric("roar", family="imputation", better="lower", within=(0, 1), on=("image",), needs=("retraining",))
@dataclass(frozen=True, kw_only=True, repr=False)
class Roar(RetrainingMetric):
    r"""How often are networks still right that were retrained without the most relevant pixels?

    $\frac1{|T|\,|S|}\sum_{t \in T}\sum_{s \in S} \big[\arg\max f_{t,s}(x^{(t)}) = y\big]$, where the top t % of the pixels of
    every picture, to learn from and to be judged by, are replaced by the mean colour, and $f_{t,s}$ is a network trained
    on such pictures from scratch with seed s

    The stored curve holds the share of right answers by the part that was removed, from the whole picture on. The shape
    of what was removed may tell the class by itself: the report shows networks that saw the masks alone.

    Args:
        study: the folder of a study that `heatcheck roar` has finished.

    Paper: hooker2019.  Differs: whole pixels, not their scalars, unless the study was made so; one number per picture.
    Cost per sample: none here; the study trains a network per method, level and seed.
    """


@metric("kar", family="imputation", better="higher", within=(0, 1), on=("image",), needs=("retraining",))
@dataclass(frozen=True, kw_only=True, repr=False)
class Kar(RetrainingMetric):
    r"""How often are networks right that were retrained with the most relevant pixels alone?

    As `roar`, but the top t % of the pixels are kept and all others are replaced.

    Args:
        study: the folder of a study that `heatcheck roar --keep-top` has finished.

    Paper: hooker2019.  Differs: whole pixels, not their scalars, unless the study was made so; one number per picture.
    Cost per sample: none here; the study trains a network per method, level and seed.
    """
