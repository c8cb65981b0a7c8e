"""Every claim of the papers on tables with known truth: held, not held, not enough samples, not testable and why."""

import numpy as np
import polars as pl
import pytest

from heatcheck.core.papers import PAPERS
from heatcheck.stats import idsds_claims, idsds_model_claims, m4_claims, perturbation_claims
from heatcheck.stats.claims import HELD, NOT_HELD, UNDECIDED, Verdict
from heatcheck.stats.estimates import Estimate
from heatcheck.stats.evidence import CLAIMS, NOT_TESTABLE, Claim, Evidence, NotTestable, leads, over_models

MUTANTS = (
    (
        "stats/evidence.py",
        "all(e.low > 0 for e in each.values())",
        "any(e.low > 0 for e in each.values())",
        "test_leading_means_before_all_others",
    ),
    (
        "stats/evidence.py",
        "NOT_HELD if False in told",
        "HELD if False in told",
        "test_over_models_one_contradiction_is_enough",
    ),
    (
        "stats/perturbation_claims.py",
        "wanted if all_better else not wanted",
        "not wanted if all_better else wanted",
        "test_fills_that_separate_and_those_that_do_not",
    ),
    ("stats/m4_claims.py", "np.nanmin([pearson", "np.nanmax([pearson", "test_metrics_correlate"),
)
RNG = np.random.default_rng(0)


def metric(name, id=None, better="higher", family="deletion", spec=None, **params):
    return {"name": name, "id": id or name, "better": better, "family": family, "spec": spec or name, "params": params}


def method(name, spec=None, family="gradient", control=False):
    return {
        "name": name,
        "id": (spec or name).partition("(")[0],
        "spec": spec or name,
        "family": family,
        "control": control,
    }


def evidence(means, *, n=60, noise=0.2, methods=(), metrics=("sds",), named=None, models=None, data="pics", **other):
    """`means` maps (model, metric, method) to a mean, or to scores."""
    rng = np.random.default_rng(1)
    rows = []
    for (model, metric_name, method_name), value in means.items():
        scores = value + noise * rng.normal(size=n) if np.isscalar(value) else value
        rows += [
            {
                "run": "r",
                "model": model,
                "data": data,
                "sample": f"s{i:04d}",
                "target": 0,
                "method": method_name,
                "metric": metric_name,
                "score": float(score),
                "status": "ok",
                "seconds": {"GradCAM": 0.01}.get(method_name, 1.0),
                "forwards": 1,
                "backwards": 1,
            }
            for i, score in enumerate(scores)
        ]
    known = {m["name"]: m for m in (method(m) if isinstance(m, str) else m for m in methods)}
    for _, _, name in means:
        known.setdefault(name, method(name, control=name == "random"))
    facts = {
        "methods": list(known.values()),
        "metrics": [metric(m) if isinstance(m, str) else m for m in metrics],
        "models": models or [{"name": m, "identity": m} for m in dict.fromkeys(k[0] for k in means)],
    }
    return Evidence(pl.DataFrame(rows), facts, named or {name: name for name in known}, resamples=100, **other)


def verdict(module, name, found):
    return next(c for c in CLAIMS[module.PAPER] if c.id == name).judged(found)


ONE = {("net", "sds", "IG"): 0.3, ("net", "sds", "random"): 0.0}


def test_every_claim_is_named_once_cited_and_says_what_is_missing():
    every = [claim for claims in CLAIMS.values() for claim in claims]
    assert len({(c.paper, c.id) for c in every}) == len(every) == 40
    nothing = evidence(ONE)
    for claim in every:
        row = claim.judged(nothing)
        assert row["verdict"] == NOT_TESTABLE, claim.id
        assert row["note"] and row["says"].endswith(".") and claim.paper in PAPERS
        assert np.isnan(row["value"])


def test_an_error_of_ours_is_not_taken_for_a_verdict():
    def broken(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Claim("broken", "hesse2024", "", "It breaks.", broken).judged(evidence(ONE))


# -- helpers -------------------------------------------------------------------------------------------------


def test_leading_means_before_all_others():
    def lead(a, b, c):
        found = evidence({("net", "sds", m): v for m, v in zip("abc", (a, b, c), strict=True)})
        return leads(found, found.cube("sds", ["net"], ["a", "b", "c"]), "a", ["b", "c"], "lead").verdict

    assert lead(0.6, 0.3, 0.1) == HELD
    assert lead(0.3, 0.6, 0.1) == NOT_HELD
    assert lead(0.302, 0.3, 0.1) == UNDECIDED
    alone = evidence({("net", "sds", "a"): 0.1})
    cube = alone.cube("sds", ["net"], ["a"])
    with pytest.raises(NotTestable, match="nothing beside a"):
        leads(alone, cube, "a", [], "lead")


@pytest.mark.slow
def test_ties_are_seldom_called_a_lead_or_its_opposite():
    """Normal scores of four equal methods; of 200, at most 5 % of either error, and three standard errors."""
    held = not_held = 0
    for i in range(200):
        values = np.random.default_rng(i).normal(size=(4, 40)) * 0.3
        found = evidence({("net", "sds", m): row for m, row in zip("abcd", values, strict=True)}, seed=i)
        told = leads(found, found.cube("sds", ["net"], list("abcd")), "a", list("bcd"), "lead").verdict
        held, not_held = held + (told == HELD), not_held + (told == NOT_HELD)
    assert held <= 0.05 * 200 + 9
    assert not_held <= 0.05 * 200 + 9


def test_over_models_one_contradiction_is_enough():
    assert over_models({"a": True, "b": True}, "").verdict == HELD
    assert over_models({"a": True, "b": False, "c": None}, "").verdict == NOT_HELD
    assert over_models({"a": True, "b": None}, "").verdict == UNDECIDED
    with pytest.raises(NotTestable):
        over_models({}, "")


# -- IDSDS ---------------------------------------------------------------------------------------------------

IDSDS = [
    method("I×G", "input_x_gradient"),
    method("I×G abs.", "input_x_gradient(post=abs)"),
    method("I×G-SG", "smoothgrad(of=input_x_gradient)"),
    method("IG-U", "integrated_gradients(baseline=uniform)"),
    method("random", control=True),
]


def idsds(**means):
    names = {"raw": "I×G", "abs": "I×G abs.", "smooth": "I×G-SG", "uniform": "IG-U"}
    values = {("net", "sds", names[k]): v for k, v in means.items()} | {("net", "sds", "random"): 0.0}
    return evidence(values, methods=IDSDS)


def test_signs_smoothing_and_the_leader():
    good, bad = idsds(raw=0.4, abs=0.1, smooth=0.1, uniform=0.7), idsds(raw=0.2, abs=0.5, smooth=0.6, uniform=0.1)
    for name in ("sign_matters", "smoothgrad_hurts", "ig_u_leads"):
        assert verdict(idsds_claims, name, good)["verdict"] == HELD, name
        assert verdict(idsds_claims, name, bad)["verdict"] == NOT_HELD, name
    assert "no model of the run is aligned" in verdict(idsds_claims, "sign_matters", good)["note"]


def test_cams_agree_to_the_last_sample():
    same = RNG.normal(size=30)
    equal = evidence({("net", "sds", "Grad-CAM"): same, ("net", "sds", "XGrad-CAM"): same})
    assert verdict(idsds_claims, "cams_agree", equal)["verdict"] == HELD
    other = evidence({("net", "sds", "Grad-CAM"): same, ("net", "sds", "XGrad-CAM"): same[::-1]})
    assert verdict(idsds_claims, "cams_agree", other)["verdict"] == NOT_HELD


def test_intrinsic_maps_lead_from_their_own_network():
    means = {("bag", "sds", "BagNet-33"): 0.8, ("net", "sds", "IG"): 0.3, ("net", "sds", "I×G"): 0.1}
    own = [method("BagNet-33", family="intrinsic")]
    assert verdict(idsds_claims, "intrinsic_lead", evidence(means, methods=own))["verdict"] == HELD
    worse = means | {("bag", "sds", "BagNet-33"): 0.1}
    assert verdict(idsds_claims, "intrinsic_lead", evidence(worse, methods=own))["verdict"] == NOT_HELD


def test_softmax_pairs_are_compared():
    pair = [method("IG"), method("IG-p", "IG(output=prob)")]
    found = evidence({("net", "sds", "IG"): 0.5, ("net", "sds", "IG-p"): 0.2}, methods=pair)
    assert verdict(idsds_claims, "softmax_lowers", found)["verdict"] == HELD


def test_updates_raise_ids():
    two = [metric("ids", update=False), metric("ids-u", "ids", spec="ids(update=true)", update=False)]
    means = {("net", "ids", "IG"): 0.2, ("net", "ids-u", "IG"): 0.5}
    assert verdict(idsds_claims, "updating_helps_raw", evidence(means, metrics=two))["verdict"] == HELD


@pytest.mark.parametrize(
    ("factor", "name"),
    [
        ("depth", "deeper_is_lower"),
        ("width", "wider_is_lower"),
        ("normalisation", "normalisation_lowers"),
        ("bias", "bias_lowers"),
    ],
)
def test_models_fall_along_a_factor(factor, name):
    means = {(f"m{i}", "sds", "IG"): 0.6 - 0.2 * i for i in range(3)}
    values = {f"m{i}": float(i) for i in range(3)}
    assert verdict(idsds_model_claims, name, evidence(means, factors={factor: values}))["verdict"] == HELD
    turned = {f"m{i}": float(-i) for i in range(3)}
    assert verdict(idsds_model_claims, name, evidence(means, factors={factor: turned}))["verdict"] == NOT_HELD


def test_architectures_are_ordered():
    means = {("vgg16", "sds", "IG"): 0.7, ("resnet-50", "sds", "IG"): 0.5, ("vit_b", "sds", "IG"): 0.1}
    assert verdict(idsds_model_claims, "vgg_resnet_vit", evidence(means))["verdict"] == HELD
    turned = {(m, "sds", "IG"): -v for (m, _, _), v in means.items()}
    assert verdict(idsds_model_claims, "vgg_resnet_vit", evidence(turned))["verdict"] == NOT_HELD


def test_accuracy_falls_as_scores_rise():
    means = {(f"m{i}", "sds", "IG"): 0.2 * i for i in range(5)}
    right = {f"m{i}": (np.arange(200) < 200 - 35 * i).astype(float) for i in range(5)}
    row = verdict(idsds_model_claims, "accuracy_against", evidence(means, right=right))
    assert (row["verdict"], row["value"]) == (HELD, pytest.approx(1))
    risen = {f"m{4 - i}": right[f"m{i}"] for i in range(5)}
    assert verdict(idsds_model_claims, "accuracy_against", evidence(means, right=risen))["verdict"] == NOT_HELD


@pytest.mark.parametrize(("parameter", "name"), [("units", "patches_alike"), ("fill", "fills_alike")])
def test_settings_rank_alike(parameter, name):
    two = [metric("sds"), metric("sds2", "sds", spec=f"sds({parameter}=other)")]
    methods = "abcdef"
    means = {("net", "sds", m): 0.1 * i for i, m in enumerate(methods)}
    alike = means | {("net", "sds2", m): 0.1 * i for i, m in enumerate(methods)}
    row = verdict(idsds_model_claims, name, evidence(alike, metrics=two, noise=0.02))
    assert row["verdict"] == HELD
    turned = means | {("net", "sds2", m): -0.1 * i for i, m in enumerate(methods)}
    assert verdict(idsds_model_claims, name, evidence(turned, metrics=two, noise=0.02))["verdict"] == NOT_HELD


def test_networks_before_and_after_alignment_are_found_by_their_parent():
    def trained(seed):
        return {"parent": {"identity": "p"}, "aligned": {"units": "grid(4)"}, "settings": {"seed": seed}}

    models = [{"name": "base", "identity": "p"}]
    models += [{"name": f"a{s}", "identity": f"a{s}", "trained": trained(s)} for s in (0, 1)]
    means = {
        (m, k, x): 0.1 * i
        for m, k in (("base", "sds"), ("a0", "idsds"), ("a1", "idsds"))
        for i, x in enumerate("abcdef")
    }
    found = evidence(means, metrics=[metric("sds"), metric("idsds", "sds")], models=models, noise=0.02)
    assert verdict(idsds_model_claims, "seeds_alike", found)["verdict"] == HELD
    row = verdict(idsds_model_claims, "sds_ranks_alike", found)
    assert (row["verdict"], row["value"]) == (HELD, pytest.approx(0.3))


# -- the meaningful perturbation metric ----------------------------------------------------------------------


def test_maps_vary():
    assert (
        verdict(perturbation_claims, "maps_vary", evidence(ONE, disagreement={"net": np.full(20, 0.9)}))["verdict"]
        == HELD
    )
    alike = evidence(ONE, disagreement={"net": np.full(20, 0.9), "other": RNG.uniform(0, 0.2, 30)})
    assert verdict(perturbation_claims, "maps_vary", alike)["verdict"] == NOT_HELD


def test_random_lies_between_methods_under_the_violation_test():
    lower = [metric("violation", better="lower")]
    between = evidence(
        {("net", "violation", m): v for m, v in (("a", 0.1), ("b", 0.9), ("random", 0.5))}, metrics=lower
    )
    assert verdict(perturbation_claims, "violation_ranks_random_between", between)["verdict"] == HELD
    last = evidence({("net", "violation", m): v for m, v in (("a", 0.1), ("b", 0.2), ("random", 0.9))}, metrics=lower)
    assert verdict(perturbation_claims, "violation_ranks_random_between", last)["verdict"] == NOT_HELD


def test_the_saliency_metric_is_flat_where_methods_share_their_scores():
    flat = evidence({("net", "saliency_metric", m): 0.5 for m in "abc"}, metrics=["saliency_metric"], n=300)
    assert verdict(perturbation_claims, "saliency_metric_is_flat", flat)["verdict"] == HELD
    apart = evidence({("net", "saliency_metric", m): i for i, m in enumerate("abc")}, metrics=["saliency_metric"])
    assert verdict(perturbation_claims, "saliency_metric_is_flat", apart)["verdict"] == NOT_HELD


@pytest.mark.parametrize(
    ("name", "fill", "model"),
    [
        ("deleting_fails", "black", "net"),
        ("mean_fails", "channel_mean", "net"),
        ("blur_fails", "blur(sigma=3)", "AlexNet"),
    ],
)
def test_fills_that_separate_and_those_that_do_not(name, fill, model):
    curve = [metric("morf", fill=fill)]
    fails = evidence({(model, "morf", m): v for m, v in (("a", 0.9), ("b", 0.1), ("random", 0.5))}, metrics=curve)
    works = evidence({(model, "morf", m): v for m, v in (("a", 0.9), ("b", 0.8), ("random", 0.1))}, metrics=curve)
    assert verdict(perturbation_claims, name, fails)["verdict"] == HELD
    assert verdict(perturbation_claims, name, works)["verdict"] == NOT_HELD
    painted = [metric("morf", spec="morf(fill=migan)", fill="auto")]
    again = Evidence(works.scores, {**works.run, "metrics": painted}, resamples=100)
    assert verdict(perturbation_claims, "inpainting_separates", again)["verdict"] == HELD


# -- M4 ------------------------------------------------------------------------------------------------------

FIVE = [metric("abpc"), metric("pscore"), metric("infidelity", better="lower"), metric("synscore", kind="auc")]


def test_metrics_correlate():
    rows = [(f"m{i}", f"x{k}", 0.1 * (i + k)) for i in range(3) for k in range(3)]
    together = {
        (m, name, x): sign * v for m, x, v in rows for name, sign in (("abpc", 1), ("pscore", 1), ("infidelity", -1))
    }
    held = verdict(m4_claims, "metrics_correlate", evidence(together, metrics=FIVE, noise=0.05))
    assert held["verdict"] == HELD
    assert len(held["parts"]) == 3
    against = {(m, name, x): v for m, x, v in rows for name in ("abpc", "pscore", "infidelity")}
    assert verdict(m4_claims, "metrics_correlate", evidence(against, metrics=FIVE, noise=0.05))["verdict"] == NOT_HELD
    few = {k: v for k, v in together.items() if k[0] == "m0"}
    assert "3 rows" in verdict(m4_claims, "metrics_correlate", evidence(few, metrics=FIVE))["note"]


def test_fast_methods_are_fast():
    found = evidence({("net", "abpc", m): 0.1 for m in ("GradCAM", "IG")}, metrics=FIVE)
    row = verdict(m4_claims, "cams_are_fast", found)
    assert (row["verdict"], row["value"]) == (HELD, pytest.approx(100))


def test_squares_are_found_and_shown():
    found = evidence({("net", "synscore", "IG"): 0.9}, metrics=FIVE, right={"net": np.ones(300)})
    assert verdict(m4_claims, "synscore_above_chance", found)["verdict"] == HELD
    assert verdict(m4_claims, "squares_are_learnt", found)["verdict"] == HELD
    poor = evidence({("net", "synscore", "IG"): 0.3}, metrics=FIVE, right={"net": np.arange(300) % 2.0})
    assert verdict(m4_claims, "synscore_above_chance", poor)["verdict"] == NOT_HELD
    assert verdict(m4_claims, "squares_are_learnt", poor)["verdict"] == NOT_HELD


def test_a_row_has_all_that_the_page_shows():
    row = Claim("x", "li2023", "Table 9", "It is so.", lambda _: Verdict("e", Estimate(1, 0, 2, 3), HELD)).judged(
        evidence(ONE)
    )
    assert (row["effect"], row["value"], row["low"], row["high"], row["n"], row["parts"]) == ("e", 1, 0, 2, 3, [])
