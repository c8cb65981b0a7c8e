"""Texts: our methods beside bare passes and beside Captum, ferret and transformers-interpret; what a run pads.

    python benchmarks/text.py                                              # the embedded model and texts
    python benchmarks/text.py --methods "saliency, feature_ablation" --samples 8
    python benchmarks/text.py --padding --data eraser:movies.tar.gz:val --samples 40

Each repeat times bare passes, our method and its peers one after the other, in seconds of the processor. All get the same
texts, which have one length, so that every peer that takes batches gets one without padding of its own. `--padding` times
nothing: it counts what of a run's token-passes is padding, and what of its rows are fillers.
"""

import argparse
import copy
import importlib
import importlib.util
import json
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from common import Bare, Stage, attempt, clock, measure_bare, median, settle
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import heatcheck as hc
from heatcheck.core import catalogue
from heatcheck.core.spec import split
from heatcheck.core.types import OK, Batch, Inputs, Streams
from heatcheck.data.load import load_data
from heatcheck.methods.base import Method
from heatcheck.models.lengths import padding_share
from heatcheck.models.text import TextModel
from heatcheck.probe.asks import Shape, passes_of
from heatcheck.probe.calls import Spent
from heatcheck.probe.numerics import Numerics, measure
from heatcheck.probe.probe import Probe
from heatcheck.run.execution import chunks_of
from heatcheck.run.forecast import forecast
from heatcheck.run.grid import ModelGrid, resolve_components
from heatcheck.run.task import run_chunk

BAR, PEER_BAR, PADDING_BAR, MANY = 1.15, 1.10, 0.10, 16
"""Bars P2, P5 and P12, and the passes per sample from which P2 counts."""
METHODS = (
    "saliency",
    "input_x_gradient",
    "integrated_gradients(steps=20)",
    "feature_ablation",
    "kernel_shap(samples=64)",
    "lime(samples=64)",
)
COUNTED = ("saliency", "input_x_gradient", "integrated_gradients(steps=8)", "occlusion", "lime(samples=16)", "random")
"""Methods of the run whose padding is counted: a few with one gradient per text, and with many questions each."""
COUNTED_METRICS = ("sds", "morf(steps=8)", "infidelity(samples=8)")
Explain = Callable[[], object]


@dataclass(frozen=True)
class Task(Stage):
    """What is to be explained.

    Args:
        texts: the samples as people read them.
        component: our method, resolved, whose parameters peers follow.
        network: a copy of the network, as torch comes.
    """

    texts: tuple[str, ...] = ()
    component: Any = None
    network: Any = None

    @property
    def attention(self) -> Tensor:
        """Which tokens are read."""
        return self.batch.x["attention"]

    @property
    def pad(self) -> int:
        """What replaces a deleted token."""
        return int(self.model.tokenizer.pad_token_id)

    def by_ids(self, ids: Tensor, attention: Tensor) -> Tensor:
        """The network as its author calls it."""
        return self.network(input_ids=ids, attention_mask=attention).logits

    def by_embeds(self, embeds: Tensor, attention: Tensor) -> Tensor:
        """The network as a function of word embeddings."""
        return self.network(inputs_embeds=embeds, attention_mask=attention).logits

    def embeds(self) -> Tensor:
        """The word embeddings of the texts."""
        return self.network.get_input_embeddings()(self.batch.x["ids"]).detach()

    def features(self) -> Tensor:
        """Tokens by the unit that they are deleted with; special ones and padding are the first."""
        return self.model.domain.units(self.component.units, self.batch.x).index + 1


# -- peers -----------------------------------------------------------------------------------------------------


def captum_gradient(name: str, **options: object) -> Callable[[Task], Explain]:
    """A gradient by Captum, at the word embeddings of all texts."""

    def make(task: Task) -> Explain:
        import captum.attr

        call, more = getattr(captum.attr, name)(task.by_embeds).attribute, (task.attention,)
        return lambda: call(task.embeds(), target=task.batch.target, additional_forward_args=more, **options)

    return make


def captum_ig(task: Task) -> Explain:
    """Captum's integrated gradients of the embedding layer, from padding to the texts."""
    from captum.attr import LayerIntegratedGradients

    ids, special = task.batch.x["ids"], task.batch.x["special"]
    nothing = torch.where(special, ids, task.pad)
    call = LayerIntegratedGradients(task.by_ids, task.network.get_input_embeddings()).attribute
    size = max(len(ids), task.numerics.backward)
    return lambda: call(
        ids,
        baselines=nothing,
        target=task.batch.target,
        additional_forward_args=(task.attention,),
        n_steps=task.component.steps,
        internal_batch_size=size,
    )


def captum_ablation(task: Task) -> Explain:
    """Captum's feature ablation of tokens, for all texts at once."""
    from captum.attr import FeatureAblation

    call = FeatureAblation(task.by_ids).attribute

    def run() -> None:
        with torch.no_grad():
            call(
                task.batch.x["ids"],
                baselines=task.pad,
                target=task.batch.target,
                additional_forward_args=(task.attention,),
                feature_mask=task.features(),
                perturbations_per_eval=max(1, task.numerics.forward // len(task.batch)),
            )

    return run


def captum_surrogate(name: str) -> Callable[[Task], Explain]:
    """A Captum method that fits a surrogate, one text at a time, as it must."""

    def make(task: Task) -> Explain:
        import captum.attr

        call = getattr(captum.attr, name)(task.by_ids).attribute

        def run() -> None:
            for i, features in enumerate(task.features()):
                call(
                    task.batch.x["ids"][i : i + 1],
                    baselines=task.pad,
                    target=int(task.batch.target[i]),
                    additional_forward_args=(task.attention[i : i + 1],),
                    feature_mask=features[None],
                    n_samples=task.component.samples,
                    perturbations_per_eval=task.numerics.forward,
                )

        return run

    return make


def ferret(module: str, name: str, settings: Callable[[Task], dict[str, object]]) -> Callable[[Task], Explain]:
    """An explainer of ferret, which takes one text at a time.

    Its package imports data sets and plots that want other versions of what we use: the explainers are imported alone.
    """

    def make(task: Task) -> Explain:
        found = importlib.util.find_spec("ferret")
        if found is None:
            raise ModuleNotFoundError("ferret is not there", name="ferret")
        if "ferret" not in sys.modules:
            bare = sys.modules["ferret"] = types.ModuleType("ferret")
            bare.__spec__, bare.__path__ = found, list(found.submodule_search_locations or ())
        explainer = getattr(importlib.import_module(f"ferret.explainers.{module}"), name)
        call = explainer(task.network, task.model.tokenizer)

        def run() -> None:
            for text, target in zip(task.texts, task.batch.target.tolist(), strict=True):
                call(text, target, call_args=settings(task))

        return run

    return make


def transformers_interpret(task: Task) -> Explain:
    """The explainer of transformers-interpret: Captum's layer-integrated gradients, one text at a time."""
    from transformers_interpret import SequenceClassificationExplainer

    call = SequenceClassificationExplainer(task.network, task.model.tokenizer)
    size, steps = task.numerics.backward, task.component.steps

    def run() -> None:
        for text, target in zip(task.texts, task.batch.target.tolist(), strict=True):
            call(text, index=target, n_steps=steps, internal_batch_size=size)

    return run


PEERS: dict[str, dict[str, Callable[[Task], Explain]]] = {
    "saliency": {"Captum": captum_gradient("Saliency", abs=False)},
    "input_x_gradient": {
        "Captum": captum_gradient("InputXGradient"),
        "ferret": ferret("gradient", "GradientExplainer", lambda task: {}),
    },
    "integrated_gradients": {
        "Captum": captum_ig,
        "ferret": ferret("gradient", "IntegratedGradientExplainer", lambda task: {"n_steps": task.component.steps}),
        "transformers-interpret": transformers_interpret,
    },
    "feature_ablation": {"Captum": captum_ablation},
    "kernel_shap": {"Captum": captum_surrogate("KernelShap")},
    "lime": {
        "Captum": captum_surrogate("Lime"),
        "ferret": ferret(
            "lime",
            "LIMEExplainer",
            lambda task: {"num_samples": task.component.samples, "batch_size": task.numerics.forward},
        ),
    },
}
"""Peers by the id of our method."""


# -- time ------------------------------------------------------------------------------------------------------


@dataclass
class Row:
    """One method: passes per text, ratios to bare passes and to peers."""

    method: str
    forwards: float = 0
    distinct: float = 0
    overheads: list[float] = field(default_factory=list)
    peers: dict[str, list[float]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """As plain data, with the bars that it passes; P2 counts from 16 passes per text on."""
        overhead, peers = median(self.overheads), {who: median(ratios) for who, ratios in self.peers.items()}
        return {
            "method": self.method,
            "forwards": self.forwards,
            "distinct": self.distinct,
            "overhead": overhead,
            "peers": peers,
            "reasons": self.reasons,
            "P1": self.forwards <= self.distinct,
            "P2": overhead <= BAR if overhead is not None and self.forwards >= MANY else None,
            "P5": all(r <= PEER_BAR for r in peers.values() if r is not None) if peers else None,
        }


def make_task(model: str, data: str, samples: int, tokens: int | None) -> Task:
    """The model, and texts of one length: the one that most of the first texts have. They fill a call, if there are so many."""
    explained = hc.load_model(model, preprocess=None if tokens is None else {"tokens": tokens})
    good = [s for s in load_data(data, samples=16 * samples, seed=0) if not s.problem and explained.size(s)]
    (size, _), *_ = Counter(explained.size(s) for s in good).most_common(1)
    alike = [s for s in good if explained.size(s) == size]
    numerics = measure(explained, explained.encode(alike[0]))
    some = alike[: max(samples, numerics.backward)]
    x = Inputs.cat([explained.encode(s) for s in some])
    with torch.no_grad():
        target = explained.logits(x).argmax(1)
    batch = Batch(x, target, target.clone(), Streams(0, tuple(s.digest for s in some)))
    network = copy.deepcopy(explained.module()).requires_grad_()
    texts = tuple(str(s.content) for s in some)
    return Task(explained, batch, numerics, texts, None, network)


def rate(task: Task, repeats: int) -> Row:
    """Measure one method and its peers."""
    row = Row(task.component.name)
    told = [
        passes_of(task.component.asks(s), task.component.passes(s)) for s in map(task.shape, range(len(task.batch)))
    ]
    row.distinct = sum(forwards for forwards, _ in told) / len(task.batch)
    ready = {who: attempt(lambda make=make: make(task), who, row.reasons) for who, make in peers_of(task)}
    for _ in range(repeats):
        bare: Bare = measure_bare(task.model, task.batch.x, task.numerics)
        took, spent = ours(task)
        row.forwards = spent.forwards / len(task.batch)
        row.overheads.append(took / bare.seconds(spent.forwards, spent.backwards))
        for who, explain in list(ready.items()):
            start = clock()
            if explain is None or attempt(lambda explain=explain: (explain(),), who, row.reasons) is None:
                del ready[who]
            else:
                row.peers.setdefault(who, []).append(took / (clock() - start))
    return row


def peers_of(task: Task) -> Iterator[tuple[str, Callable[[Task], Explain]]]:
    """Who else has the method."""
    yield from PEERS.get(task.component.id, {}).items()


def ours(task: Task) -> tuple[float, Spent]:
    """Processor seconds and passes of our method, with a probe that nobody has used."""
    probe, start = Probe(task.model, task.numerics), clock()
    got = task.component(probe, task.batch)
    took = clock() - start
    wrong = next((s for s in got.status if s != OK), None)
    if wrong:
        raise hc.HeatcheckError(wrong)
    return took, probe.spent


def show(rows: list[dict[str, Any]], title: str) -> Table:
    """The rows as people read them."""
    table = Table(title=title)
    for name in ("method", "passes (distinct)", "to bare passes", "to peers", "bars"):
        table.add_column(name)
    for row in rows:
        peers = [f"{who} {ratio:.2f}" for who, ratio in row["peers"].items() if ratio is not None]
        peers += [f"{who}: {why}" for who, why in row["reasons"].items()]
        bars = [f"{bar} {'pass' if row[bar] else 'FAIL'}" for bar in ("P1", "P2", "P5") if row[bar] is not None]
        told = f"{row['forwards']:g} ({row['distinct']:g})"
        table.add_row(row["method"], told, f"{row['overhead']:.2f}", "\n".join(peers), ", ".join(bars))
    return table


# -- padding ---------------------------------------------------------------------------------------------------


def counted(model: str, data: str, samples: int, tokens: int | None) -> dict[str, Any]:
    """What of a run's token-passes is padding (P12), and what of its rows are fillers.

    Asked of a network that costs nothing, with the model's own tokenizer: neither depends on what is answered.
    """
    real = hc.load_model(model, preprocess=None if tokens is None else {"tokens": tokens})
    bag = TextModel(Bag(len(real.tokenizer), real.longest), real.tokenizer, "bag", tokens=real.longest)
    good = [s for s in load_data(data, samples=samples, seed=0) if not s.problem and bag.size(s)]
    methods, _ = resolve_components([(m, catalogue.build("method", m)) for m in COUNTED], bag)
    metrics, _ = resolve_components([(m, catalogue.build("metric", m)) for m in COUNTED_METRICS], bag)
    calls = Numerics(forward=8, backward=8, rounding=bag.rounding)
    grid = ModelGrid(model=bag, numerics=calls, methods=methods, metrics=metrics)
    passes = [forecast(grid, Shape(bag.domain, bag.encode(s), bag)).forwards for s in good]
    lengths = [(bag.extent(s).tokens, bag.size(s)) for s in good]
    spent = [run_chunk(grid, chunk).spent for chunk in chunks_of(good, 1, bag.size)]
    fillers, rows = sum(s.padding for s in spent), sum(s.forwards for s in spent)
    share = padding_share(own for own, times in zip(lengths, passes, strict=True) for _ in range(times))
    return {
        "texts": len(good),
        "lengths": len({padded for _, padded in lengths}),
        "padding": round(share, 4),
        "fillers": round(fillers / (fillers + rows), 4),
        "cut": bag.unread(good),
        "P12": share <= PADDING_BAR,
    }


class Bag(nn.Module):
    """The mean of word embeddings of two numbers each: a network whose passes cost next to nothing."""

    def __init__(self, vocabulary: int, longest: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, 2)
        self.config = types.SimpleNamespace(max_position_embeddings=longest)

    def get_input_embeddings(self) -> nn.Module:
        """The word embeddings, where transformers has them."""
        return self.words

    def forward(self, inputs_embeds: Tensor, attention_mask: Tensor) -> Tensor:
        return (inputs_embeds * attention_mask[..., None]).mean(1)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", default="minilm_sentiment")
    options.add_argument("--data", default="texts")
    options.add_argument("--methods", help="specs, separated by commas")
    options.add_argument("--samples", type=int, default=8)
    options.add_argument("--tokens", type=int, help="cut texts to so many tokens")
    options.add_argument("--repeats", type=int, default=7)
    options.add_argument("--padding", action="store_true", help="count what a run pads, instead of timing")
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    settle()
    if given.padding:
        print(json.dumps(counted(given.model, given.data, given.samples, given.tokens), indent=2))
        return
    task, rows = make_task(given.model, given.data, given.samples, given.tokens), []
    progress = Console(stderr=True)
    for name in split(given.methods) if given.methods else METHODS:
        component: Method = catalogue.build("method", name).resolved_on(task.model.domain)
        rows.append(rate(replace(task, component=component), given.repeats).record())
        progress.print(f"{name}: {rows[-1]['overhead']} to bare passes; {rows[-1]['peers']}", style="dim")
    tokens, sizes = task.batch.x["ids"].shape[1], (task.numerics.forward, task.numerics.backward)
    if given.json:
        print(
            json.dumps(
                {"model": given.model, "tokens": tokens, "numerics": task.numerics.record(), "rows": rows}, indent=2
            )
        )
        return
    Console().print(
        show(rows, f"{given.model}, {len(task.batch)} texts of {tokens} tokens, calls of {sizes[0]} and {sizes[1]}")
    )


if __name__ == "__main__":
    main()
