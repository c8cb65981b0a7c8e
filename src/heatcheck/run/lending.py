"""Parts of a sum that another network lends: the one of the same architecture that a recipe has trained.

M4 measures SynScore on a network that was trained to find squares, or trigger words, and the other four metrics on the
network itself.
Both are studies of one folder. Their samples differ, so that a mean over samples is lent, and not a score for each.
Design: design/training.md.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from heatcheck.core.types import OK, Scores
from heatcheck.run.planted import SYNTHETIC, TRUTHS, Planted, learnt

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Candidate:
    """A network that studies of the folder have measured.

    Args:
        model: its entry in their record.
        number: of the last of them, counted from the oldest.
        measured: whether they ask for the part.
        lend: reads what the network lends.
    """

    model: Entry
    number: int
    measured: bool
    lend: Callable[[], "Loan"]


def lender(model: Entry, recipe: str, candidates: Sequence[Candidate]) -> Candidate | None:
    """The network that lends a part to a model: of its architecture, and trained by the recipe.

    Of several, one whose training began with the model itself; of these, that of the latest study, and the last in it. A
    model that the recipe has trained needs none.
    """
    if trained_by(model, recipe):
        return None
    able = [c for c in candidates if c.measured and trained_by(c.model, recipe) and same_architecture(c.model, model)]
    able.sort(key=lambda c: (parent_of(c.model) == model["identity"], c.number))
    return able[-1] if able else None


def trained_by(model: Entry, recipe: str) -> bool:
    """Whether a recipe has trained a model, or one that plants in its data what `synthetic` plants in pictures."""
    if recipe == SYNTHETIC:
        return learnt(model) is not None
    return str((model.get("trained") or {}).get("recipe", "")) == recipe


def same_architecture(a: Entry, b: Entry) -> bool:
    """Whether two models are of one architecture, as far as their studies say so."""
    return bool(a.get("architecture")) and a.get("architecture") == b.get("architecture")


def parent_of(model: Entry) -> str:
    """The identity of the model that a training began with."""
    return str(((model.get("trained") or {}).get("parent") or {}).get("identity", ""))


def why_nobody(model: Entry, part: str, recipe: str, candidates: Sequence[Candidate]) -> str:
    """Why no network lends a part, and what to do."""
    if not model.get("architecture"):
        return f"no other network can lend it, since the record does not say of which architecture {model['name']} is"
    made = [c.model for c in candidates if trained_by(c.model, recipe)]
    same = [m["name"] for m in made if same_architecture(m, model)]
    if same:
        return f"{same[-1]} could lend it, but was not run with --metrics {part} into this folder"
    others = f" ({', '.join(dict.fromkeys(m['name'] for m in made))} has another)" if made else ""
    kind = TRUTHS[model["modality"]]
    return (
        f"this folder has no network of its architecture that was trained to find {kind.things}{others}: "
        f"{kind.taught} --model {model['name']} …, then run trained:FOLDER on {kind.source}:DATA into this folder"
    )


@dataclass(frozen=True)
class Loan:
    """What a network lends: its mean over samples under one metric, for each method.

    Args:
        part: the metric's label.
        by: the network's label; empty where nobody lends.
        about: how good the network is.
        why: why nobody does.
        methods: the lending study's methods, as its record has them.
        mean: by method's label, where there is a score.
        error: the standard error of the mean, where there are two or more.
        samples: how many samples have a score, under the method that has most.
        kind: what the network was trained to find.
    """

    part: str
    by: str = ""
    about: str = ""
    why: str = ""
    methods: Sequence[Entry] = ()
    mean: Mapping[str, float] = field(default_factory=dict)
    error: Mapping[str, float] = field(default_factory=dict)
    samples: int = 0
    kind: Planted = TRUTHS["image"]

    @classmethod
    def of(
        cls, part: str, by: str, about: str, methods: Sequence[Entry], scores: Scores, kind: Planted = TRUTHS["image"]
    ) -> "Loan":
        """From a network's scores."""
        mean: dict[str, float] = {}
        error: dict[str, float] = {}
        most = 0
        for method, row in zip(methods, scores.value, strict=True):
            own = row[~row.isnan()]
            most = max(most, len(own))
            if len(own) > 0:
                mean[method["label"]] = float(own.mean())
            if len(own) > 1:
                error[method["label"]] = float(own.std()) / len(own) ** 0.5
        return cls(part, by, about, "", methods, mean, error, most, kind)

    def given(self, own: Scores, methods: Sequence[Entry]) -> Scores:
        """The part as the sum takes it: the mean for every sample; the model's own scores where nobody lends.

        A method gets the mean of the same method in the lending study, or, where its settings are others there, that of
        the only one of its kind.

        Args:
            own: the model's own scores.
            methods: the methods that they belong to, as their study's record has them.
        """
        if not self.by:
            return own if bool((~own.value.isnan()).any()) else self._nobody(own)
        value = torch.full_like(own.value, torch.nan)
        status = []
        for row, method in zip(value, methods, strict=True):
            label = self.counterpart(method)
            row.fill_(self.mean.get(label, torch.nan))
            lacks = f"skipped: {self.by}, which lends {self.part}, has none under {method['label']}"
            status.append((OK if label in self.mean else lacks,) * len(row))
        return Scores(value, tuple(status))

    def _nobody(self, own: Scores) -> Scores:
        """The model's own statuses, with why nobody lends."""
        if not self.why:
            return own
        return Scores(own.value, tuple(tuple(f"{status}; {self.why}" for status in row) for row in own.status))

    def counterpart(self, method: Entry) -> str:
        """The label of a method in the lending study; empty where it has none like it."""
        if any(other["label"] == method["label"] for other in self.methods):
            return str(method["label"])
        kin = [str(other["label"]) for other in self.methods if other["id"] == method["id"]]
        return kin[0] if len(kin) == 1 else ""

    def remark(self, methods: Sequence[Entry]) -> str:
        """What a table of the sum says about the part.

        Args:
            methods: the sum's methods.
        """
        pairs = [(m["label"], self.counterpart(m)) for m in methods]
        errors = [self.error[theirs] for _, theirs in pairs if theirs in self.error]
        most = f", with standard errors of at most {max(errors):.3f}, which intervals leave out" if errors else ""
        others = [f"{mine} is {theirs} there" for mine, theirs in pairs if theirs not in ("", mine)]
        settings = f"; {', '.join(others)}" if others else ""
        return (
            f"{self.part} is from {self.by}, the network of the same architecture that was trained to find "
            f"{self.kind.things} ({self.about}): its mean over {self.samples} {self.kind.samples} is added to every sample{most}{settings}"
        )
