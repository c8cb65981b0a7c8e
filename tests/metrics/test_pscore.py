"""Agreement with the other models, against the formula and against known answers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from heatcheck.core.spec import SpecError
from heatcheck.core.types import Inputs, NotApplicable, Streams
from heatcheck.metrics.pscore import cosine

MUTANTS = (
    ("metrics/pscore.py", "        if alike:\n", "        if not alike:\n", "test_what_is_compared_is_told"),
    ("metrics/pscore.py", "torch.cat([flat[:k], flat[k + 1 :]]).mean(0)", "flat.mean(0)", "test_known_answers"),
    (
        "metrics/pscore.py",
        "return [flat.mean(0)] * len(flat)",
        "return [flat.amax(0)] * len(flat)",
        "test_the_largest_maps_dominate_unless_they_are_normalised",
    ),
    (
        "metrics/pscore.py",
        '"l2": flat.square().sum(1, keepdim=True).sqrt()',
        '"l2": flat.abs().sum(1, keepdim=True)',
        "test_a_common_resolution_is_that_of_the_model_that_sees_the_most",
    ),
    (
        "metrics/pscore.py",
        "flat = flat - flat.amin(1, keepdim=True)",
        "flat = flat - flat.mean(1, keepdim=True)",
        "test_a_common_resolution_is_that_of_the_model_that_sees_the_most",
    ),
    (
        "metrics/pscore.py",
        "groups.setdefault((own.sites, size), [])",
        "groups.setdefault((size,), [])",
        "test_texts_are_compared_where_models_see_the_same_tokens",
    ),
    (
        "metrics/pscore.py",
        "max(maps, key=lambda own: own.size)",
        "min(maps, key=lambda own: own.size)",
        "test_a_common_resolution_is_that_of_the_model_that_sees_the_most",
    ),
    (
        "metrics/pscore.py",
        "scale = a.square().sum().sqrt() * b.square().sum().sqrt()",
        "scale = a.square().sum() * b.square().sum()",
        "test_one_map_is_its_own_average_which_is_why_it_gets_no_score",
    ),
    (
        "domain/text.py",
        "if common[u][1] <= read",
        "if common[u][0] <= read",
        "test_words_that_a_model_does_not_read_to_their_end_are_left_out_for_all",
    ),
    (
        "domain/text.py",
        "begin < common[-1][1]",
        "begin < common[-1][0]",
        "test_texts_with_other_tokens_are_compared_on_words",
    ),
    (
        "metrics/pscore.py",
        'UNITS_OF = {"words": "word", "sentences": "sentence"}',
        'UNITS_OF = {"words": "word", "sentences": "word"}',
        "test_texts_with_other_tokens_are_compared_on_sentences",
    ),
    (
        "domain/text.py",
        "for unit in x[kind][0].tolist()]",
        'for unit in x["word"][0].tolist()]',
        "test_texts_with_other_tokens_are_compared_on_sentences",
    ),
    (
        "metrics/pscore.py",
        "size = None if self.common_resolution else tuple(own.values.shape)",
        "size = None",
        "test_models_are_compared_with_those_of_their_own_resolution",
    ),
)


def normalised(map, how):
    flat = np.asarray(map, dtype=np.float64).ravel()
    if how == "l2":
        return flat / np.linalg.norm(flat)
    if how == "minmax":
        return (flat - flat.min()) / (flat.max() - flat.min())
    return flat


def slow_pscore(maps, own, *, leave_one_out=False, normalise="none"):
    """cos(mean of all, own), from the formula."""
    flat = [normalised(m, normalise) for m in maps]
    mean = np.mean([m for i, m in enumerate(flat) if i != own or not leave_one_out], axis=0)
    return mean @ flat[own] / np.linalg.norm(mean) / np.linalg.norm(flat[own])


def gather(toys, values):
    """`values[model][method]` are maps `[b, h, w]` of the same samples."""
    model = toys.bent()
    batch = toys.pictures(model, len(values[0][0]))
    names = [f"net {k}" for k in range(len(values))]
    maps = {n: toys.maps_of(model, batch, *own) for n, own in zip(names, values, strict=True)}
    return dict.fromkeys(names, batch), maps


def across(toys, spec, values):
    return toys.metric(spec).across(*gather(toys, values))


def draws(m, methods=2, b=3, seed=0, shape=(6, 6)):
    rng = torch.Generator().manual_seed(seed)
    return [[torch.randn(b, *shape, generator=rng, dtype=torch.float64) for _ in range(methods)] for _ in range(m)]


@pytest.mark.parametrize("loo", [False, True])
@pytest.mark.parametrize("normalise", ["none", "l2", "minmax"])
def test_agrees_with_the_formula(toys, loo, normalise):
    values = draws(4)
    got = across(toys, f"pscore(leave_one_out={loo}, normalise={normalise})", values)
    for k in range(4):
        for j in range(2):
            for i in range(3):
                maps = [values[g][j][i] for g in range(4)]
                expected = slow_pscore(maps, k, leave_one_out=loo, normalise=normalise)
                assert got[f"net {k}"].value[j, i] == pytest.approx(expected, abs=1e-12)


def test_known_answers(toys):
    """X4: all alike: 1. Orthogonal maps of equal norm: 1/√m with oneself, 0 without."""
    one = torch.rand(2, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    alike = across(toys, "pscore", [[one], [3 * one], [0.2 * one]])
    assert all(torch.allclose(s.value, torch.ones(1, 2, dtype=torch.float64)) for s in alike.values())
    basis = torch.eye(36, dtype=torch.float64).reshape(36, 6, 6)
    orthogonal = [[basis[k].expand(2, 6, 6)] for k in range(5)]
    for s in across(toys, "pscore", orthogonal).values():
        assert torch.allclose(s.value, torch.tensor(5**-0.5, dtype=torch.float64))
    for s in across(toys, "pscore(leave_one_out=true)", orthogonal).values():
        assert s.value.abs().max() == 0


@settings(max_examples=8, deadline=None)
@given(factors=st.lists(st.floats(0.01, 100), min_size=3, max_size=3))
def test_only_joint_scale_is_free_unless_maps_are_normalised(toys, factors):
    values = draws(3)
    scaled = [[c * a for a in own] for c, own in zip(factors, values, strict=True)]
    jointly = [[factors[0] * a for a in own] for own in values]
    plain, joint, free = (
        across(toys, s, v)["net 0"].value
        for s, v in (("pscore", values), ("pscore", jointly), ("pscore(normalise=l2)", scaled))
    )
    assert torch.allclose(plain, joint, atol=1e-12)
    assert torch.allclose(free, across(toys, "pscore(normalise=l2)", values)["net 0"].value, atol=1e-12)
    assert (plain.abs() <= 1).all()


def test_the_order_of_models_and_samples_changes_no_bit(toys):
    values = draws(4)
    batches, maps = gather(toys, values)
    forward = toys.metric("pscore").across(batches, maps)
    backward = toys.metric("pscore").across(dict(reversed(batches.items())), dict(reversed(maps.items())))
    for name in maps:
        assert torch.equal(forward[name].value, backward[name].value)
    model = toys.bent()
    rows = [2, 0, 1]
    turned = batches["net 1"].take(rows)
    mixed = {**maps, "net 1": toys.maps_of(model, turned, *(a.values[rows] for a in maps["net 1"].items))}
    got = toys.metric("pscore").across({**batches, "net 1": turned}, mixed)
    assert torch.equal(got["net 1"].value, forward["net 1"].value[:, rows])
    assert torch.equal(got["net 0"].value, forward["net 0"].value)


@settings(max_examples=10, deadline=None)
@given(m=st.integers(2, 5), seed=st.integers(0, 99), how=st.sampled_from(["none", "l2", "minmax"]), loo=st.booleans())
def test_bounds(toys, m, seed, how, loo):
    """X3: a cosine; never negative where no map is."""
    spec = f"pscore(normalise={how}, leave_one_out={str(loo).lower()})"
    values = draws(m, seed=seed)
    for s in across(toys, spec, values).values():
        assert (s.value.abs() <= 1).all()
    for s in across(toys, spec, [[a.abs() for a in own] for own in values]).values():
        assert (s.value >= 0).all()


def test_the_largest_maps_dominate_unless_they_are_normalised(toys):
    """Why l2 with leave-one-out is worth reporting beside the paper's own form."""
    values = draws(4, methods=1)
    values[0][0] *= 1e6
    loud = across(toys, "pscore", values)
    assert (loud["net 0"].value > 0.999999).all()
    fair = across(toys, "pscore(normalise=l2)", values)
    assert (fair["net 0"].value < 0.9).all()


def test_one_map_is_its_own_average_which_is_why_it_gets_no_score(toys):
    """|M| = 1 gives a cosine of 1 whatever the map."""
    one = torch.rand(2, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert cosine(one[0].flatten(), one[0].flatten())[0] == pytest.approx(1.0, abs=1e-12)
    for spec in ("pscore", "pscore(leave_one_out=true)"):
        alone = across(toys, spec, [[one]])
        assert alone["net 0"].status == (("undefined: no other model has this map",) * 2,)


@pytest.mark.parametrize("loo", ["true", "false"])
def test_models_are_compared_with_those_of_their_own_resolution(toys, loo):
    large, small = draws(3, methods=1), draws(3, methods=1, seed=1, shape=(3, 3))
    spec = f"pscore(leave_one_out={loo})"
    both = across(toys, spec, [*large, *small])
    for k, alone in enumerate(across(toys, spec, large).values()):
        assert torch.equal(both[f"net {k}"].value, alone.value)
    for k, alone in enumerate(across(toys, spec, small).values()):
        assert torch.equal(both[f"net {3 + k}"].value, alone.value)
    odd = across(toys, spec, [*large, small[0]])
    assert odd["net 3"].status == (("undefined: no other model has this map at its resolution",) * 3,)
    assert odd["net 0"].status == (("ok",) * 3,)


@pytest.mark.parametrize("normalise", ["none", "l2", "minmax"])
def test_a_common_resolution_is_that_of_the_model_that_sees_the_most(toys, normalise):
    """Models of 6 × 6 and 8 × 8 pixels, with maps of 3 × 3, 6 × 6 and 8 × 8."""
    from torch.nn.functional import interpolate

    values = [draws(1, methods=1, seed=k, shape=shape)[0][0] for k, shape in enumerate([(3, 3), (6, 6), (8, 8)])]
    nets = [toys.bent(1, 6), toys.bent(1, 6), toys.bent(1, 8)]
    seen = [toys.pictures(net, 3, 1, size) for net, size in zip(nets, (6, 6, 8), strict=True)]
    batches = {f"net {k}": replace(b, streams=seen[0].streams, target=seen[0].target) for k, b in enumerate(seen)}
    maps = {
        name: toys.maps_of(net, batch, own)
        for net, own, (name, batch) in zip(nets, values, batches.items(), strict=True)
    }
    got = toys.metric(f"pscore(common_resolution=true, normalise={normalise})").across(batches, maps)
    wide = [interpolate(v[:, None], (8, 8), mode="bilinear", align_corners=False)[:, 0] for v in values]
    for k in range(3):
        for i in range(3):
            expected = slow_pscore([w[i] for w in wide], k, normalise=normalise)
            assert got[f"net {k}"].value[0, i] == pytest.approx(expected, abs=1e-9)


def test_a_common_resolution_changes_nothing_where_there_is_one(toys):
    values = draws(3, shape=(3, 3))
    plain, common = (across(toys, s, values) for s in ("pscore", "pscore(common_resolution=true)"))
    assert all(torch.equal(plain[name].value, common[name].value) for name in plain)


def test_texts_are_compared_where_models_see_the_same_tokens(toys):
    """Maps of equal length on other tokens are not maps of the same thing."""
    model = toys.words()
    batch = toys.sentences(model, (4, 4))
    other = batch.x["ids"].clone()
    other[1, 2] = 3 + (other[1, 2] - 2) % 27
    split = replace(batch, x=Inputs({**batch.x.tensors, "ids": other}))
    batches = {"p": batch, "q": batch, "r": split}
    maps = {n: toys.random_maps(model, b, 1, seed=k) for k, (n, b) in enumerate(batches.items())}
    got = toys.metric("pscore").across(batches, maps)
    free = ~batch.x["special"]
    first, second = (
        [maps[n].items[0].values[i][free[i]] for n in names] for i, names in enumerate([("p", "q", "r"), ("p", "q")])
    )
    assert got["p"].value[0].tolist() == pytest.approx([slow_pscore(first, 0), slow_pscore(second, 0)], abs=1e-9)
    assert got["r"].value[0, 0] == pytest.approx(slow_pscore(first, 2), abs=1e-9)
    assert got["r"].status == (("ok", "undefined: no other model has this map at its resolution"),)
    assert toys.metric("pscore(common_resolution=true)").across(batches, maps)["r"].status == got["r"].status


def placed(toys, model, tokens, limit=None):
    """A text as a tokenizer cuts it: `tokens` are (begin, end, word), then padding; special tokens at both ends."""
    tokens = tokens[:limit]
    batch = toys.sentences(model, (len(tokens),))
    spans = [(0, 0, -1), *tokens, (0, 0, -1)]
    own = {name: torch.tensor([[span[k] for span in spans]]) for k, name in enumerate(("begin", "end", "word"))}
    return replace(batch, x=batch.x.replace(**own), streams=Streams(0, ("one text",)), target=torch.tensor([0]))


# "I don't love films": two tokenizers disagree on words 1 to 3, and cut the last word in different places
WORDPIECE = [(0, 1, 0), (2, 5, 1), (5, 6, 2), (6, 7, 3), (8, 12, 4), (13, 17, 5), (17, 18, 5)]
BPE = [(0, 1, 0), (2, 5, 1), (5, 7, 2), (8, 12, 3), (13, 15, 4), (15, 18, 4)]


def on_two_tokenizers(toys, spec="pscore", limit=None):
    model = toys.words()
    batches = {"p": placed(toys, model, WORDPIECE), "q": placed(toys, model, BPE, limit)}
    maps = {n: toys.random_maps(model, b, 1, seed=k) for k, (n, b) in enumerate(batches.items())}
    p, q = (maps[n].items[0].values[0].tolist() for n in "pq")
    words = [
        [p[1], p[2], p[3] + p[4], p[5], p[6] + p[7]],
        [q[1], q[2], q[3], q[4], *([q[5] + q[6]] if limit is None else [])],
    ]
    return toys.metric(spec).across(batches, maps), words


@pytest.mark.parametrize("spec", ["pscore", "pscore(on=words)", "pscore(leave_one_out=true, normalise=l2)"])
def test_texts_with_other_tokens_are_compared_on_words(toys, spec):
    got, words = on_two_tokenizers(toys, spec)
    options = {"leave_one_out": True, "normalise": "l2"} if "l2" in spec else {}
    for k, name in enumerate("pq"):
        assert got[name].status == (("ok",),)
        assert float(got[name].value) == pytest.approx(slow_pscore(words, k, **options), abs=1e-12)


def test_words_that_a_model_does_not_read_to_their_end_are_left_out_for_all(toys):
    got, (p, q) = on_two_tokenizers(toys, limit=5)  # the second model reads half of the last word
    for k, name in enumerate("pq"):
        assert float(got[name].value) == pytest.approx(slow_pscore([p[:4], q[:4]], k), abs=1e-12)


def test_words_are_compared_only_where_that_is_asked_for_and_known(toys):
    same_tokens = on_two_tokenizers(toys, "pscore(on=sites)")[0]
    why = "undefined: no other model has this map at its resolution"
    assert same_tokens["p"].status == same_tokens["q"].status == ((why,),)
    model = toys.words()
    far = {"p": placed(toys, model, WORDPIECE[:1]), "q": placed(toys, model, [(20, 24, 0), (25, 30, 1)])}
    maps = {n: toys.random_maps(model, b, 1) for n, b in far.items()}
    got = toys.metric("pscore").across(far, maps)
    assert got["p"].status == (("undefined: the models read no word of the text in common",),)


def test_models_that_cut_alike_are_compared_on_tokens_unless_words_are_asked_for(toys):
    model = toys.words()
    batch = placed(toys, model, WORDPIECE)
    maps = {n: toys.random_maps(model, batch, 1, seed=k) for k, n in enumerate("pq")}
    p, q = (maps[n].items[0].values[0].tolist() for n in "pq")
    tokens, words = (
        float(toys.metric(spec).across(dict.fromkeys("pq", batch), maps)["p"].value)
        for spec in ("pscore", "pscore(on=words)")
    )
    assert tokens == pytest.approx(slow_pscore([p[1:8], q[1:8]], 0), abs=1e-12)
    joined = [[*m[1:6], m[6] + m[7]] for m in (p, q)]
    assert words == pytest.approx(slow_pscore(joined, 0), abs=1e-12)


# "I go. You stay. They don't.": two tokenizers, which agree on sentences and not on tokens
SENTENCES = [0, 0, 0, 1, 1, 1, 2, 2, 2]
ONE = [(0, 1), (2, 4), (4, 5), (6, 9), (10, 14), (14, 15), (16, 20), (21, 26), (26, 27)]
TWO = [(0, 1), (2, 5), (6, 9), (10, 12), (12, 15), (16, 20), (21, 24), (24, 27)]
TWOS = [0, 0, 1, 1, 1, 2, 2, 2]


def in_sentences(toys, model, tokens, numbers, limit=None):
    spans = [(*span, k) for k, span in enumerate(tokens)]
    batch = placed(toys, model, spans, limit)
    return replace(batch, x=batch.x.replace(sentence=torch.tensor([[-1, *numbers[:limit], -1]])))


@pytest.mark.parametrize("limit", [None, 7])
@pytest.mark.parametrize("options", [{}, {"leave_one_out": True, "normalise": "l2"}])
def test_texts_with_other_tokens_are_compared_on_sentences(toys, options, limit):
    """Where the second model reads seven tokens, it does not read the last sentence to its end: it is left out for all."""
    model = toys.words()
    batches = {"p": in_sentences(toys, model, ONE, SENTENCES), "q": in_sentences(toys, model, TWO, TWOS, limit)}
    maps = {n: toys.random_maps(model, b, 1, seed=k) for k, (n, b) in enumerate(batches.items())}
    spec = ", ".join(["on=sentences", *(f"{k}={str(v).lower()}" for k, v in options.items())])
    got = toys.metric(f"pscore({spec})").across(batches, maps)
    read = range(3 if limit is None else 2)
    summed = []
    for name, numbers in (("p", SENTENCES), ("q", TWOS)):
        heat = maps[name].items[0].values[0, 1:-1].tolist()
        summed.append([sum(v for v, s in zip(heat, numbers, strict=False) if s == own) for own in read])
    for k, name in enumerate("pq"):
        assert got[name].status == (("ok",),)
        assert float(got[name].value) == pytest.approx(slow_pscore(summed, k, **options), abs=1e-12)


def test_models_that_cut_alike_are_compared_on_sentences_where_that_is_asked_for(toys):
    model = toys.words()
    batch = in_sentences(toys, model, ONE, SENTENCES)
    maps = {n: toys.random_maps(model, batch, 1, seed=k) for k, n in enumerate("pq")}
    got = float(toys.metric("pscore(on=sentences)").across(dict.fromkeys("pq", batch), maps)["p"].value)
    p, q = (maps[n].items[0].values[0, 1:-1].reshape(3, 3).sum(1) for n in "pq")
    assert got == pytest.approx(slow_pscore([p, q], 0), abs=1e-12)


def test_sentences_of_one_word_are_words(toys):
    model = toys.words()
    batches = {"p": in_sentences(toys, model, ONE, range(9)), "q": in_sentences(toys, model, TWO, range(8))}
    maps = {n: toys.random_maps(model, b, 1, seed=k) for k, (n, b) in enumerate(batches.items())}
    words, sentences = (toys.metric(f"pscore(on={on})").across(batches, maps) for on in ("words", "sentences"))
    assert all(torch.equal(words[n].value, sentences[n].value) for n in "pq")


def test_without_a_sentence_in_common_there_is_no_score(toys):
    model = toys.words()
    batches = {"p": in_sentences(toys, model, ONE, SENTENCES), "q": in_sentences(toys, model, TWO, TWOS, 1)}
    maps = {n: toys.random_maps(model, b, 1) for n, b in batches.items()}
    got = toys.metric("pscore(on=sentences)").across(batches, maps)
    assert got["p"].status == (("undefined: the models read no sentence of the text in common",),)


@pytest.mark.parametrize("spec", ["pscore", "pscore(on=words)", "pscore(on=sentences)"])
def test_padding_changes_nothing(toys, spec):
    model = toys.words()
    blank = {"attention": 0, "special": True, "word": -1, "sentence": -1}
    found = []
    for more in (0, 500):
        batches, maps = {}, {}
        for k, (name, tokens) in enumerate({"p": WORDPIECE, "q": BPE}.items()):
            batch = placed(toys, model, tokens)
            heat = toys.random_maps(model, batch, 1, seed=k).items[0].values
            wide = {key: F.pad(v, (0, more), value=blank.get(key, 0)) for key, v in batch.x.tensors.items()}
            batches[name] = replace(batch, x=Inputs(wide))
            maps[name] = toys.maps_of(model, batches[name], F.pad(heat, (0, more), value=9.0))
        found.append([float(scores.value) for scores in toys.metric(spec).across(batches, maps).values()])
    assert found[0] == pytest.approx(found[1], abs=1e-9)


@pytest.mark.parametrize(
    ("spec", "cut", "on"),
    [
        ("pscore", "alike", "token by token"),
        ("pscore", "otherwise", "word by word where models have different tokens, else token by token"),
        ("pscore(on=words)", "alike", "word by word"),
        ("pscore(on=sentences)", "alike", "sentence by sentence"),
        ("pscore(on=sentences)", "otherwise", "sentence by sentence"),
        ("pscore(on=sites)", "otherwise", "token by token, among models that have the same tokens"),
    ],
)
def test_what_is_compared_is_told(toys, spec, cut, on):
    p, q = toys.words(), toys.words()
    q.preprocessing = {"alike": p.preprocessing, "otherwise": {"tokenizer": "another"}}[cut]
    assert toys.metric(spec).comparison({"p": p, "q": q}) == f"the cosine with the mean map of p, q, {on}"


def test_what_is_compared_of_pictures_is_told(toys):
    models = dict.fromkeys("pq", toys.linear())
    for spec, told in {
        "pscore": "the cosine with the mean map of p, q, among maps of one resolution",
        "pscore(common_resolution=true)": "the cosine with the mean map of p, q, all resized to the largest input",
        "pscore(leave_one_out=true)": "the cosine with the mean map of the others of p, q, among maps of one resolution",
    }.items():
        assert toys.metric(spec).comparison(models) == told


def test_a_method_that_only_some_models_have_is_compared_between_these(toys):
    values = draws(3)
    batches, maps = gather(toys, values)
    maps["net 2"] = maps["net 2"].only([1])
    got = toys.metric("pscore").across(batches, maps)
    for i in range(3):
        assert got["net 0"].value[0, i] == pytest.approx(slow_pscore([v[0][i] for v in values[:2]], 0), abs=1e-12)
        assert got["net 2"].value[0, i] == pytest.approx(slow_pscore([v[1][i] for v in values], 2), abs=1e-12)


@pytest.mark.parametrize("normalise", ["none", "l2", "minmax"])
def test_maps_without_any_direction_are_reasons(toys, normalise):
    one = torch.rand(2, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    spec = f"pscore(normalise={normalise})"
    zero = across(toys, spec, [[one], [0 * one]])
    assert zero["net 1"].status[0] == ("undefined: the map, or the average over models, is zero everywhere",) * 2
    assert zero["net 0"].status[0] == ("ok", "ok")
    flat = across(toys, spec, [[one], [torch.ones_like(one)]])
    assert (flat["net 1"].status[0][0] == "ok") == (normalise != "minmax")


def test_an_unknown_normalisation_is_refused(toys):
    with pytest.raises(SpecError, match=r"metric pscore: normalise='sum' is not one of none, l2, minmax"):
        toys.metric("pscore(normalise=sum)")


def test_a_failed_map_is_left_out_of_the_average(toys):
    values = draws(3, methods=1)
    values[1][0][2] = torch.nan
    got = across(toys, "pscore", values)
    assert got["net 1"].status[0] == ("ok", "ok", "failed: the map has NaN values")
    expected = slow_pscore([values[0][0][2], values[2][0][2]], 0)
    assert got["net 0"].value[0, 2] == pytest.approx(expected, abs=1e-12)


def test_one_model_is_not_enough(toys):
    model = toys.bent()
    batch = toys.pictures(model)
    with pytest.raises(NotApplicable, match="several models"):
        toys.score("pscore", model, batch, toys.random_maps(model, batch, 1))
    assert toys.metric("pscore").across_models


def test_special_tokens_do_not_count(toys):
    model = toys.words()
    batch = toys.sentences(model, (4, 4))
    a, b = (m.values for m in toys.random_maps(model, batch, 2).items)
    noisy = torch.where(batch.x["special"], 100.0, a)
    names = ("p", "q")
    plain, loud = (
        toys.metric("pscore").across(dict.fromkeys(names, batch), {"p": toys.maps_of(model, batch, v),
                                                                  "q": toys.maps_of(model, batch, b)})
        for v in (a, noisy)
    )  # fmt: skip
    assert torch.equal(plain["p"].value, loud["p"].value) and torch.equal(plain["q"].value, loud["q"].value)
