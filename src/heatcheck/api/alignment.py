"""What alignment with single deletions has done to a network: accuracy before and after, and how alike both are."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from heatcheck.api.looks import Look, differences, joined, look
from heatcheck.core import catalogue, progress
from heatcheck.core.progress import Progress
from heatcheck.core.types import Batch, HeatcheckError, Inputs, Modality, NotApplicable, Sample, Streams
from heatcheck.data.base import Dataset, causes
from heatcheck.data.load import load_data
from heatcheck.data.matching import match_labels
from heatcheck.methods.base import Method
from heatcheck.metrics.base import Metric
from heatcheck.models.base import Layer, Model
from heatcheck.models.preprocess import Preprocess
from heatcheck.probe.calls import Spent
from heatcheck.probe.probe import Probe
from heatcheck.probe.tuning import for_tensors, give_back, settle, tune_allocator
from heatcheck.report.sheet import SheetRow, contact_sheet
from heatcheck.run.naming import aligned
from heatcheck.stats.estimates import Estimate, mean_estimate, share_estimate
from heatcheck.training.defaults import load_model

CHUNK = 16
"""Pictures that are held at a time."""
TOP = 9
"""Pictures that show what a channel responds to."""
CHANNELS = 3
"""Channels that are looked at where none are named."""


@dataclass(frozen=True, kw_only=True)
class BeforeAfter:
    """A share of pictures before and after alignment.

    Args:
        before: of the network that alignment began with.
        after: of the aligned one.
        change: after minus before, picture by picture.
    """

    before: Estimate
    after: Estimate
    change: Estimate

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Likeness:
    """How far two networks are apart on the same pictures.

    Args:
        probability: mean absolute difference of the label's probability.
        grad_cam: mean absolute difference of Grad-CAM maps of the label, each scaled from 0 to 1; None where a network
            has no feature map.
    """

    probability: Estimate
    grad_cam: Estimate | None

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Channel:
    """What one channel of the last feature map responds to, before and after.

    Args:
        number: of the channel.
        before: the pictures with the highest mean activation, highest first, by name.
        after: likewise.
    """

    number: int
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def common(self) -> float:
        """The share of pictures that are among the highest both times."""
        return len({*self.before} & {*self.after}) / max(len(self.before), 1)

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return {**asdict(self), "common": self.common}


@dataclass(frozen=True, kw_only=True)
class AlignmentComparison:
    """A network before and after it was aligned with single deletions.

    Args:
        before: its name.
        after: the aligned one's.
        data: the pictures' name.
        samples: how many were used.
        units: what was deleted, one at a time.
        fill: what replaced it.
        clean: accuracy on whole pictures.
        worst: the share of pictures that are right whichever single unit is deleted.
        likeness: between before and after.
        other: the name of another network; empty where there is none.
        yardstick: the likeness between `before` and the other network.
        layer: whose channels were looked at; empty where there are none.
        channels: what some of them respond to.
        chance: the share of pictures that two unrelated channels have in common on average.
        passes: forward and backward passes that were made.
        notes: what a reader must know.
        sheet: what the channels respond to, as rows of a contact sheet.
    """

    before: str
    after: str
    data: str
    samples: int
    units: str
    fill: str
    clean: BeforeAfter
    worst: BeforeAfter
    likeness: Likeness
    other: str = ""
    yardstick: Likeness | None = None
    layer: str = ""
    channels: tuple[Channel, ...] = ()
    chance: float = 0.0
    passes: tuple[int, int] = (0, 0)
    notes: tuple[str, ...] = ()
    sheet: tuple[SheetRow, ...] = field(default=(), repr=False)

    def record(self) -> dict[str, Any]:
        """As plain data, without pictures."""
        kept = {k: v for k, v in vars(self).items() if k != "sheet"}
        made = {k: v.record() for k, v in kept.items() if isinstance(v, BeforeAfter | Likeness)}
        forwards, backwards = self.passes
        return {
            **kept,
            **made,
            "channels": [c.record() for c in self.channels],
            "passes": {"forwards": forwards, "backwards": backwards},
            "notes": list(self.notes),
        }

    def save_sheet(self, path: str | Path) -> Path:
        """Write what the channels respond to as a picture, before and after below one another; common ones are framed.

        Raises:
            HeatcheckError: there are no channels to show, or the file's name is not that of a picture.
        """
        target = Path(path).expanduser()
        if not self.sheet:
            raise HeatcheckError(
                f"no contact sheet for {str(target)!r}: {' '.join(self.notes) or 'no channel was asked for'}"
            )
        if target.suffix.lower() not in (".png", ".jpg", ".jpeg"):
            raise HeatcheckError(f"{str(target)!r}: a contact sheet is a picture; name it .png or .jpg")
        target.parent.mkdir(parents=True, exist_ok=True)
        contact_sheet(self.sheet).save(target)
        return target


def compare_alignment(
    before: Any = None,
    after: Any = None,
    data: Any = None,
    *,
    samples: int | None = None,
    other: Any = None,
    units: str | None = None,
    fill: str | None = None,
    channels: int | Sequence[int] = CHANNELS,
    top: int = TOP,
    layer: str = "auto",
    preprocess: Any = None,
    seed: int = 0,
    device: str | None = None,
    threads: int = 1,
    progress: str | Progress = "auto",
) -> AlignmentComparison:
    """Compare a network before and after alignment: accuracy, accuracy under the worst deletion, and likeness.

    >>> compare_alignment(after="trained:runs/aligned").clean.change      # doctest: +SKIP

    Targets are labels throughout, as in the paper's Table 3 and Section B. An interval is of the pictures, not of other
    trainings.

    Args:
        before: the network that alignment began with; what the training's record says if None.
        after: the aligned network, such as `trained:FOLDER`.
        data: pictures with labels; those that the training held out if None.
        samples: how many, chosen by the seed; all if None.
        other: a network of another architecture, as a yardstick for how alike networks are.
        units: what is deleted, one at a time; the grid of the training if None, else `cell`.
        fill: what replaces it; that of the training if None.
        channels: how many channels of the last feature map, chosen by the seed, or which.
        top: how many pictures show what a channel responds to.
        layer: whose channels; the last feature map by default, on which Grad-CAM is made, too.
        preprocess: what is done to pictures, where the networks do not say it.
        seed: of samples, channels, fills and intervals.
        device: auto for the best there is, cpu, cuda, cuda:1 or mps.
        threads: of the CPU.
        progress: `auto`, `bar`, `lines`, `none`, or an object that is told.

    Cost per sample: units + 1 forwards and 1 gradient behind the layer, for both networks; 1 and 1 for the other.

    Raises:
        HeatcheckError: something is not there, or no picture has a label that all networks know.

    Paper: hesse2024.
    """
    tuned = load_model(_needed(after, "after"), preprocess=preprocess, guess=True, device=device)
    first = (
        _parent(tuned, preprocess, device)
        if before is None
        else load_model(before, preprocess=preprocess, guess=True, device=device)
    )
    yardstick = None if other is None else load_model(other, preprocess=preprocess, guess=True, device=device)
    networks = [first, tuned, *([yardstick] if yardstick else [])]
    for network in networks:
        if network.domain.modality != Modality.IMAGE:
            raise HeatcheckError(f"{network.name} reads {network.domain.modality}s: alignment is compared on pictures")
    known = aligned(tuned) or {}
    metric: Metric = catalogue.build(
        "metric",
        "corrupted_accuracy",
        units=units or known.get("units", "cell"),
        fill=fill or known.get("fill", "auto"),
    ).resolved_on(tuned.domain)
    loaded = load_data(_held_out(tuned) if data is None else data, samples=samples, seed=seed)
    pictures, notes = _labelled(loaded, networks)
    if before is not None and tuned.trained and tuned.trained["parent"]["identity"] != first.identity:
        notes.append(f"{first.name} is not the network that the training of {tuned.name} began with.")
    comparison = Comparison(first, tuned, yardstick, pictures, metric, layer, seed, threads)
    return comparison.made(loaded.name, channels, top, notes, progress)


def _needed(given: Any, name: str) -> Any:
    if given is None:
        raise HeatcheckError(f"{name}=None: name the aligned network, such as trained:FOLDER")
    return given


def _parent(tuned: Model, preprocess: Any, device: str | None) -> Model:
    """The network that a training began with.

    Raises:
        HeatcheckError: it is not known, or was an object.
    """
    parent = (tuned.trained or {}).get("parent")
    if parent is None or not parent["spec"]:
        why = "it was not trained by heatcheck" if parent is None else f"it began with an object, {parent['name']}"
        raise HeatcheckError(f"{tuned.name}: what it was before alignment is not known, since {why}; pass before=")
    said = preprocess or (Preprocess(**parent["preprocess"]) if parent["preprocess"] else None)
    return load_model(parent["spec"], preprocess=said, guess=True, device=device)


def _held_out(tuned: Model) -> str:
    """The spec of what a training held out.

    Raises:
        HeatcheckError: it held out nothing, or the network was not trained here.
    """
    spec = str((tuned.trained or {}).get("held_out", ""))
    if not spec:
        raise HeatcheckError(f"{tuned.name} does not say which samples its training held out; pass data=")
    return spec


@dataclass(frozen=True)
class Picture:
    """A sample with its label in the numbers of each network."""

    sample: Sample
    labels: tuple[int, ...]


def _labelled(data: Dataset, networks: Sequence[Model]) -> tuple[list[Picture], list[str]]:
    """The samples that can be read and have a label that every network knows; and what was left out.

    Raises:
        HeatcheckError: there are none.
    """
    matched = [match_labels(data, {network.name: network.classes}) for network in networks]
    found, lost = [], []
    for row in zip(data, *matched, strict=True):
        sample, labels = row[0], [own.label for own in row[1:]]
        nobody = [network.name for network, label in zip(networks, labels, strict=True) if label is None]
        if sample.problem:
            lost.append((sample.problem, sample.name))
        elif nobody:
            lost.append((f"no label that {nobody[0]} knows", sample.name))
        else:
            found.append(Picture(sample, tuple(label for label in labels if label is not None)))
    if not found:
        raise HeatcheckError(f"none of the {len(data)} samples of {data.name!r} can be used: {causes(lost)}")
    notes = list(dict.fromkeys(note for own in matched for note in own.notes))
    return found, [*notes, *([f"{len(lost)} of {len(data)} samples were left out: {causes(lost)}."] if lost else [])]


@dataclass
class Comparison:
    """Asks networks about the same pictures, some at a time, and adds up what they say.

    Args:
        before: the network that alignment began with.
        after: the aligned one.
        other: one of another architecture, if any.
        pictures: what they are asked about.
        metric: accuracy under the worst deletion, resolved.
        layer: for Grad-CAM, and whose channels are looked at.
        seed: of channels, fills and intervals.
        threads: of a pass.
    """

    before: Model
    after: Model
    other: Model | None
    pictures: Sequence[Picture]
    metric: Metric
    layer: str
    seed: int
    threads: int
    spent: Spent = field(default_factory=Spent)

    def made(
        self, data: str, channels: int | Sequence[int], top: int, notes: list[str], shown: str | Progress
    ) -> AlignmentComparison:
        """The whole comparison."""
        tune_allocator()
        first = self.before.encode(self.pictures[0].sample)
        cam, why = self._grad_cam()
        numbers = self._chosen(channels) if cam else ()
        if cam and not numbers and channels:
            notes.append(f"No channels: those of {self.before.name} and {self.after.name} do not correspond.")
        said = progress.choose(shown)
        sums = Sums()
        said.begin("comparing networks", self._passes(first, cam is not None))
        try:
            for some in _chunks(self.pictures):
                before, after, *rest = self._looks(some, cam, said)
                sums.add(before, after, rest, numbers)
        except BaseException:
            progress.stop(said)
            raise
        said.end()
        give_back()
        found = self._channels(sums, numbers, top)
        return AlignmentComparison(
            before=self.before.name,
            after=self.after.name,
            data=data,
            samples=len(self.pictures),
            units=str(self.metric.params()["units"]),
            fill=str(self.metric.params()["fill"]),
            clean=self._both(sums.right),
            worst=self._both(sums.worst),
            likeness=self._likeness(sums.apart),
            other=self.other.name if self.other else "",
            yardstick=self._likeness(sums.yardstick) if self.other else None,
            layer=self._place(self.before).name if numbers else "",
            channels=tuple(channel for channel, _ in found),
            chance=min(top, len(self.pictures)) / len(self.pictures),
            passes=(self.spent.forwards, self.spent.backwards),
            notes=(*notes, *([f"No Grad-CAM and no channels: {why}."] if why else [])),
            sheet=tuple(self._rows(found)),
        )

    def _grad_cam(self) -> tuple[Method | None, str]:
        """Grad-CAM, or why some network has none."""
        method: Method = catalogue.build("method", "grad_cam", layer=self.layer).resolved_on(self.before.domain)
        for network in self._networks():
            own = method if network is not self.other else replace(method, layer="auto")  # type: ignore[call-arg]
            try:
                self._look(network, self.pictures[:1], own, 0, worst=False, spent=Spent())
            except NotApplicable as reason:
                return None, str(reason)
        return method, ""

    def _networks(self) -> list[Model]:
        return [self.before, self.after, *([self.other] if self.other else [])]

    def _place(self, network: Model) -> Layer:
        """The layer whose channels are looked at."""
        x = network.encode(self.pictures[0].sample)
        return Probe(network, for_tensors(network, 1)).layer(self.layer, x)

    def _chosen(self, channels: int | Sequence[int]) -> tuple[int, ...]:
        """The channels to look at; none where they do not correspond.

        Raises:
            HeatcheckError: one is named that the layer does not have.
        """
        place = self._place(self.before)
        if place.channels != self._place(self.after).channels:
            return ()
        if isinstance(channels, int):
            drawn = np.random.default_rng(self.seed).permutation(place.channels)[:channels]
            return tuple(sorted(int(i) for i in drawn))
        for number in channels:
            if not 0 <= number < place.channels:
                raise HeatcheckError(
                    f"channel {number}: layer {place.name!r} of {self.before.name} has channels 0 to {place.channels - 1}"
                )
        return tuple(channels)

    def _passes(self, x: Inputs, cam: bool) -> int:
        cells = self.before.domain.units(str(self.metric.params()["units"]), x).width
        slope = 2 if cam else 0  # there and back
        each = 2 * (1 + cells + slope) + (1 + slope if self.other else 0)
        return each * len(self.pictures)

    def _looks(self, some: Sequence[Picture], cam: Method | None, shown: Progress) -> list[Look]:
        looks = [
            self._look(network, some, cam, i, worst=True, shown=shown)
            for i, network in enumerate((self.before, self.after))
        ]
        if self.other:
            own = replace(cam, layer="auto") if cam else None  # type: ignore[call-arg]
            looks.append(self._look(self.other, some, own, 2, worst=False, shown=shown))
        return looks

    def _look(
        self,
        network: Model,
        some: Sequence[Picture],
        cam: Method | None,
        number: int,
        *,
        worst: bool,
        spent: Spent | None = None,
        shown: Progress | None = None,
    ) -> Look:
        """What a network makes of pictures, which it may want in several shapes."""
        inputs = [network.encode(picture.sample) for picture in some]
        settle(network, inputs[0])
        shapes: dict[Any, list[int]] = {}
        for i, x in enumerate(inputs):
            shapes.setdefault(x.shape_key(), []).append(i)
        looks, order = [], []
        for rows in shapes.values():
            probe = Probe(
                network,
                replace(for_tensors(network, len(rows)), threads=self.threads),
                tick=shown.advance if shown else lambda n: None,
                spent=self.spent if spent is None else spent,
            )
            label = torch.tensor([some[i].labels[number] for i in rows])
            streams = Streams(self.seed, tuple(some[i].sample.digest for i in rows))
            batch = Batch(x=Inputs.cat([inputs[i] for i in rows]), target=label, label=label, streams=streams)
            looks.append(look(probe, batch, self.metric if worst else None, cam))
            order += rows
        return joined(looks, order)

    def _both(self, parts: Sequence[tuple[Tensor, Tensor]]) -> BeforeAfter:
        before, after = (torch.cat(side).numpy() for side in zip(*parts, strict=True))
        change = mean_estimate(after - before, seed=self.seed)
        return BeforeAfter(before=share_estimate(before > 0.5), after=share_estimate(after > 0.5), change=change)

    def _likeness(self, parts: Sequence[tuple[Tensor, Tensor | None]]) -> Likeness:
        probability = mean_estimate(torch.cat([p for p, _ in parts]).numpy(), seed=self.seed)
        maps = [c for _, c in parts if c is not None]
        return Likeness(
            probability=probability,
            grad_cam=mean_estimate(torch.cat(maps).numpy(), seed=self.seed) if maps else None,
        )

    def _channels(self, sums: "Sums", numbers: Sequence[int], top: int) -> list[tuple[Channel, list[list[int]]]]:
        """What each channel responds to, and the pictures' numbers."""
        if not numbers:
            return []
        sides = [torch.cat(side) for side in zip(*sums.features, strict=True)]
        found = []
        for column, number in enumerate(numbers):
            best = [side[:, column].sort(descending=True, stable=True).indices[:top].tolist() for side in sides]
            names = [tuple(self.pictures[i].sample.name for i in rows) for rows in best]
            found.append((Channel(number=number, before=names[0], after=names[1]), best))
        return found

    def _rows(self, found: Sequence[tuple[Channel, list[list[int]]]]) -> Iterator[SheetRow]:
        for channel, best in found:
            common = {*best[0]} & {*best[1]}
            for when, rows in zip(("before", "after"), best, strict=True):
                pictures = [self._rgb(i) for i in rows]
                title = f"channel {channel.number}, {when}" + (f": {len(common)} in common" if when == "after" else "")
                yield SheetRow(title, pictures, [i in common for i in rows])

    def _rgb(self, number: int) -> np.ndarray:
        sample = self.pictures[number].sample
        shown = self.before.display(sample, self.before.encode(sample))["rgb"]
        return np.asarray(shown, dtype=np.uint8)


@dataclass
class Sums:
    """What is kept of pictures once they have been looked at: a few numbers each, in their order.

    Args:
        right: before and after, whether the label is predicted.
        worst: likewise under the worst deletion.
        apart: differences of the probability and of Grad-CAM maps, before and after.
        yardstick: likewise between `before` and another network.
        features: before and after, mean activations of the chosen channels.
    """

    right: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    worst: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    apart: list[tuple[Tensor, Tensor | None]] = field(default_factory=list)
    yardstick: list[tuple[Tensor, Tensor | None]] = field(default_factory=list)
    features: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def add(self, before: Look, after: Look, rest: Sequence[Look], channels: Sequence[int]) -> None:
        """Add what networks make of some more pictures."""
        self.right.append((before.right, after.right))
        self.worst.append((before.worst, after.worst))
        self.apart.append(differences(before, after))
        self.yardstick += [differences(before, other) for other in rest]
        if before.features is not None and after.features is not None and channels:
            self.features.append((before.features[:, channels], after.features[:, channels]))


def _chunks(pictures: Sequence[Picture]) -> Iterator[Sequence[Picture]]:
    for start in range(0, len(pictures), CHUNK):
        yield pictures[start : start + CHUNK]
