"""ERASER's own scorers, written again in their shape, against our metrics with ERASER's choices."""

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch
from sklearn.metrics import auc, precision_recall_curve

from heatcheck.metrics.curves import tie_breakers
from heatcheck.metrics.rationale import span_f1, stretches

MUTANTS = (
    ("metrics/rationale.py", "OVERLAP = 0.5", "OVERLAP = 0.51", "test_known_spans"),
    (
        "metrics/rationale.py",
        "inside = [units_inside(own, units, row) for own in masks]",
        "inside = [units_inside(sum(masks).bool(), units, row)]",
        "test_iou_f1_is_erasers",
    ),
    ("metrics/rationale.py", "len(found) + len(marked)", "2 * len(found)", "test_iou_f1_is_erasers"),
    (
        "metrics/synscore.py",
        "before = torch.cat([precision.new_ones(1), precision[:-1]])",
        "before = precision",
        "test_auprc_is_erasers",
    ),
)
LENGTHS = (12, 9, 15, 7)


def eraser_f1(p, r):
    return 0.0 if p == 0 or r == 0 else 2 * p * r / (p + r)


def eraser_token_f1(truth, picked):
    """Instance-level F1 over sets of tokens."""
    truth, picked = ({t for a, b in spans for t in range(a, b)} for spans in (truth, picked))
    return eraser_f1(len(truth & picked) / len(picked), len(truth & picked) / len(truth))


def eraser_iou_f1(truth, picked, threshold=0.5):
    """F1 of predicted spans whose best intersection over union reaches the threshold."""
    best = []
    for p in set(picked):
        ious = [0.0]
        for t in set(truth):
            one, other = set(range(*p)), set(range(*t))
            ious.append(len(one & other) / len(one | other))
        best.append(max(ious))
    right = sum(iou >= threshold for iou in best)
    return eraser_f1(right / len(set(picked)), right / len(set(truth)))


def eraser_auprc(truth, soft):
    precision, recall, _ = precision_recall_curve([int(t) for t in truth], soft)
    return auc(recall, precision)


def eraser_aopc(instance, key):
    """The mean fall of the predicted class's probability over thresholds."""
    beta = instance["classification_scores"][instance["classification"]]
    falls = [beta - score[key][instance["classification"]] for score in instance["thresholded_scores"]]
    return float(np.average(falls))


def annotated(toys, seed=0):
    """Texts with human spans: some touch, one overlaps another, so that the mask alone would not do."""
    model = toys.words(bent=True)
    batch = toys.sentences(model, LENGTHS)
    rng = np.random.default_rng(seed)
    spans, references = [], []
    for i, n in enumerate(LENGTHS):
        starts = sorted(rng.choice(n - 3, size=2, replace=False).tolist())
        own = [
            (starts[0], starts[0] + 2),
            (starts[1], starts[1] + 3),
            *([(n - 3, n - 1), (n - 1, n)] if i == 0 else []),
        ]
        places = torch.nonzero(~batch.x["special"][i]).flatten()
        masks = []
        for a, b in own:
            mask = torch.zeros(batch.x["ids"].shape[1], dtype=torch.bool)
            mask[places[a:b]] = True
            masks.append(mask)
        spans.append(own)
        references.append({"mask": torch.stack(masks).any(0), "span_masks": tuple(masks)})
    return model, replace(batch, references=tuple(references)), spans


def tops(toys, model, batch, maps, share):
    """Per map and text, the stretches of its most relevant tokens: a share of all, or as many as are marked."""
    for j, a in enumerate(maps.items):
        for i, n in enumerate(LENGTHS):
            free = ~batch.x["special"][i]
            values = a.values[i][free]
            k = int(np.ceil(round(share * n, 9))) if share else int(batch.references[i]["mask"][free].sum())
            yield j, i, values, set(values.argsort(descending=True)[:k].tolist())


def runs(chosen):
    spans = []
    for t in sorted(chosen):
        if spans and spans[-1][1] == t:
            spans[-1] = (spans[-1][0], t + 1)
        else:
            spans.append((t, t + 1))
    return spans


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_iou_f1_is_erasers(toys, share):
    model, batch, spans = annotated(toys)
    maps = toys.random_maps(model, batch, 12)
    got = toys.score(f"rationale_iou_f1(top={share})", model, batch, maps).value
    for j, i, _, chosen in tops(toys, model, batch, maps, share):
        assert got[j, i] == pytest.approx(eraser_iou_f1(spans[i], runs(chosen)), abs=1e-9)
    assert 0 < float(got.mean()) < 1


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_token_f1_is_erasers(toys, share):
    model, batch, spans = annotated(toys)
    maps = toys.random_maps(model, batch, 6)
    got = toys.score(f"rationale_f1(top={share})", model, batch, maps).value
    for j, i, _, chosen in tops(toys, model, batch, maps, share):
        assert got[j, i] == pytest.approx(eraser_token_f1(spans[i], runs(chosen)), abs=1e-9)


@pytest.mark.parametrize("ties", [False, True])
def test_auprc_is_erasers(toys, ties):
    model, batch, spans = annotated(toys)
    maps = toys.random_maps(model, batch, 6, ties=ties)
    got = toys.score("rationale_auprc(curve=trapezoid)", model, batch, maps).value
    for j, i, values, _ in tops(toys, model, batch, maps, 0.0):
        marked = set(chain.from_iterable(range(a, b) for a, b in spans[i]))
        truth = [t in marked for t in range(LENGTHS[i])]
        assert got[j, i] == pytest.approx(eraser_auprc(truth, values.numpy()), abs=1e-9)


@pytest.mark.parametrize(
    ("id", "key"),
    [
        ("comprehensiveness", "comprehensiveness_classification_scores"),
        ("sufficiency", "sufficiency_classification_scores"),
    ],
)
def test_aopc_is_erasers(toys, id, key):
    """Tokens are taken out of the text, as ERASER's pipelines do, at its five thresholds."""
    model, batch, _ = annotated(toys)
    maps = toys.random_maps(model, batch, 2)
    got = toys.score(f"{id}(fill=remove)", model, batch, maps).value

    def read(ids):
        attention = torch.ones(1, len(ids), dtype=torch.long)
        with torch.no_grad():
            logits = model.module()(model.module().emb(torch.tensor([ids])), attention)
        return dict(enumerate(logits.softmax(1)[0].tolist()))

    for j, a in enumerate(maps.items):
        for i, n in enumerate(LENGTHS):
            ids, free = batch.x["ids"][i], ~batch.x["special"][i]
            places = torch.nonzero(free).flatten().tolist()
            falling = sorted(places, key=lambda p: -float(a.values[i, p]))
            seen = [p for p in range(len(ids)) if batch.x["attention"][i, p]]
            instance = {"classification": int(batch.target[i]), "classification_scores": read(ids[seen].tolist())}
            instance["thresholded_scores"] = []
            for threshold in (0.01, 0.05, 0.1, 0.2, 0.5):
                top = set(falling[: int(np.ceil(threshold * n))])
                without = [int(ids[p]) for p in seen if p not in top]
                alone = [int(ids[p]) for p in seen if p in top or not free[p]]
                instance["thresholded_scores"].append(
                    {
                        "comprehensiveness_classification_scores": read(without),
                        "sufficiency_classification_scores": read(alone),
                    }
                )
            assert got[j, i] == pytest.approx(eraser_aopc(instance, key), abs=1e-9)


def test_known_spans(toys):
    """Half an overlap is enough; the marked spans themselves score 1, although two of them touch."""
    assert span_f1([(0, 1)], [(0, 2)]) == 1.0 and span_f1([(0, 2)], [(1, 4)]) == 0.0
    assert stretches(torch.zeros(3, dtype=torch.bool)) == []
    model, batch, _ = annotated(toys)
    right = torch.stack([r["mask"] for r in batch.references]).double()
    got = toys.score("rationale_iou_f1", model, batch, toys.maps_of(model, batch, right)).value[0]
    merged = [eraser_iou_f1(s, runs({t for a, b in s for t in range(a, b)})) for s in annotated(toys)[2]]
    assert got.tolist() == pytest.approx(merged, abs=1e-9)
    bare = replace(batch, references=tuple({"mask": r["mask"]} for r in batch.references))
    alone = toys.score("rationale_iou_f1", model, bare, toys.maps_of(model, bare, right)).value[0]
    assert alone.tolist() == [1.0] * 4


def test_a_constant_map_scores_as_a_random_choice(toys):
    """The choice belongs to the sample: two constant maps choose alike."""
    model, batch, spans = annotated(toys)
    flat = torch.ones(batch.x["ids"].shape, dtype=torch.float64)
    got = toys.score("rationale_iou_f1", model, batch, toys.maps_of(model, batch, flat, 3 * flat)).value
    order = tie_breakers(batch.streams, model.domain.units("token", batch.x), "random")
    for i in range(len(LENGTHS)):
        drawn = order[i, : int(batch.references[i]["mask"].sum())].tolist()
        assert got[0, i] == got[1, i] == pytest.approx(eraser_iou_f1(spans[i], runs(drawn)), abs=1e-12)
