"""Every claim of the papers on tables with known truth: held, not held, not enough samples, not testable and why."""

import numpy as np
import polars as pl
import pytest

from heatcheck.core.papers import PAPERS
from heatcheck.stats import idsds_claims, idsds_model_claims, m4_claims, metarank_claims, perturbation_claims
from heatcheck.stats.claims import HELD, NOT_HELD, UNDECIDED, Verdict
from heatcheck.stats.estimates import Estimate
from heatcheck.stats.evidence import CLAIMS, NOT_TESTABLE, Claim, Evidence, NotTestable, leads, over_models

MUTANTS = (
    (
        "stats/evidence.py",
        "if all(e.low > 0 for e in each.values())",
        "if any(e.low > 0 for e in each.values())",
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
    (
        "stats/idsds_model_claims.py",
        "EQUAL - (means[a] - means[b])",
        "EQUAL + 1 - (means[a] - means[b])",
        "test_two_methods_lead_on_vits_and_are_alike",
    ),
    (
        "stats/idsds_model_claims.py",
        "order[-half:]",
        "order[:half]",
        "test_cams_are_best_where_scores_are_high",
    ),
    (
        "stats/idsds_model_claims.py",
        "e.value + KEPT, e.low + KEPT",
        "e.value + KEPT, e.low",
        "test_accuracy_is_kept_where_the_record_says_so",
    ),
    ("stats/idsds_model_claims.py", "= new - old", "= old - new", "test_alignment_helps_the_worst_deletion"),
    ("stats/m4_claims.py", "if all(e.low > 1", "if any(e.low > 1", "test_fast_methods_are_fast"),
    (
        "stats/evidence.py",
        'self._fills.get((model, str(metric["name"]))) or parse(written).id',
        "parse(written).id",
        "test_the_recorded_fill_says_what_auto_stands_for",
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


def evidence(
    means, *, n=60, noise=0.2, methods=(), metrics=("sds",), named=None, models=None, data="pics", seconds=None, **other
):
    """`means` maps (model, metric, method) to a mean, or to scores; `seconds` maps methods to those of each sample."""
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
                "seconds": seconds[method_name][i] if seconds else 1.0,
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


def spread(n, mean, deviation):
    """Numbers of exactly this mean and standard deviation."""
    values = np.random.default_rng(n).normal(size=n)
    return mean + deviation * (values - values.mean()) / values.std(ddof=1)


def verdict(module, name, found):
    return next(c for c in CLAIMS[module.PAPER] if c.id == name).judged(found)


ONE = {("net", "sds", "IG"): 0.3, ("net", "sds", "random"): 0.0}


def test_every_claim_is_named_once_cited_and_says_what_is_missing():
    every = [claim for claims in CLAIMS.values() for claim in claims]
    assert len({(c.paper, c.id) for c in every}) == len(every) == 43
    assert {c.paper for c in every} == {
        m.PAPER for m in (idsds_claims, m4_claims, metarank_claims, perturbation_claims)
    }
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


def trained(seed=0, **other):
    return {
        "parent": {"identity": "p", "name": "net"},
        "aligned": {"units": "grid(4)"},
        "settings": {"seed": seed},
    } | other


def of_seeds(rankings, noise=0.02):
    """A network, and what was aligned from it: a ranking of six methods each."""
    models = [{"name": "base", "identity": "p"}]
    models += [{"name": f"a{s}", "identity": f"a{s}", "trained": trained(s)} for s in range(len(rankings))]
    means = {("base", "sds", x): 0.1 * i for i, x in enumerate("abcdef")}
    means |= {(f"a{s}", "idsds", x): 0.1 * i for s, order in enumerate(rankings) for i, x in enumerate(order)}
    return evidence(means, metrics=[metric("sds"), metric("idsds", "sds")], models=models, noise=noise)


def test_networks_before_and_after_alignment_are_found_by_their_parent():
    found = of_seeds(["abcdef"] * 4)
    row = verdict(idsds_model_claims, "seeds_alike", found)
    assert (row["verdict"], row["value"]) == (HELD, pytest.approx(0.1))
    assert "lowest of 6 pairs: 1.000" in row["note"] and "over seeds and samples" in row["note"]
    row = verdict(idsds_model_claims, "sds_ranks_alike", found)
    assert (row["verdict"], row["value"]) == (HELD, pytest.approx(0.3))


def test_seeds_that_rank_otherwise_and_seeds_that_are_too_few():
    apart = verdict(idsds_model_claims, "seeds_alike", of_seeds(["abcdef", "fedcba", "cabfed", "efdbac", "bdface"]))
    assert apart["verdict"] == NOT_HELD
    two = verdict(idsds_model_claims, "seeds_alike", of_seeds(["abcdef"] * 2))
    assert (two["verdict"], two["value"], np.isnan(two["low"])) == (UNDECIDED, pytest.approx(0.1), True)
    assert "3 are needed" in two["note"] and len(two["parts"]) == 1
    one_strays = verdict(idsds_model_claims, "seeds_alike", of_seeds(["abcdef", "abcdef", "abcedf", "bacdef"]))
    assert one_strays["verdict"] == UNDECIDED  # the samples alone are sure: 0.94 of these four


def with_accuracy(n, before, after, **other):
    one = trained(accuracy={"before": before, "chosen": after, "last": after}, held_out_samples=n, **other)
    return evidence(ONE, models=[{"name": "net", "identity": "i", "trained": one}])


def test_accuracy_is_kept_where_the_record_says_so():
    def told(n, before, after, **other):
        return verdict(idsds_model_claims, "alignment_keeps_accuracy", with_accuracy(n, before, after, **other))

    gained = told(10_000, 0.76, 0.77)
    assert (gained["verdict"], gained["value"], gained["n"]) == (HELD, pytest.approx(0.02), 10_000)
    assert "+1.00 points on 10,000 held-out samples" in gained["note"]
    error = 1.96 * np.sqrt((0.76 * 0.24 + 0.77 * 0.23) / 10_000)
    assert (gained["low"], gained["high"]) == (
        pytest.approx(0.02 - error, abs=2e-4),
        pytest.approx(0.02 + error, abs=2e-4),
    )
    assert told(10_000, 0.76, 0.70)["verdict"] == NOT_HELD
    assert told(200, 0.76, 0.76)["verdict"] == UNDECIDED
    assert told(0, 0.76, 0.77)["verdict"] == NOT_TESTABLE
    assert told(10_000, 0.76, 0.77, checkpoint="step-10")["verdict"] == NOT_TESTABLE
    assert "heatcheck aligned" in told(10_000, 0.76, 0.77, aligned=None)["note"]


def test_alignment_helps_the_worst_deletion():
    models = [{"name": "base", "identity": "p"}, {"name": "new", "identity": "q", "trained": trained()}]
    rng = np.random.default_rng(3)
    right = (rng.uniform(size=80) < 0.4).astype(float)

    def told(after):
        means = {("base", "worst", "IG"): right, ("new", "worst", "IG"): after}
        worst = [metric("worst", "corrupted_accuracy")]
        return verdict(idsds_model_claims, "alignment_helps_the_worst", evidence(means, metrics=worst, models=models))[
            "verdict"
        ]

    assert told(np.maximum(right, rng.uniform(size=80) < 0.3)) == HELD
    assert told(right * (rng.uniform(size=80) < 0.5)) == NOT_HELD
    few = right.copy()
    few[[*np.flatnonzero(right == 0)[:3], *np.flatnonzero(right == 1)[:1]]] = [1, 1, 1, 0]
    assert told(few) == UNDECIDED


# -- what is best on which networks --------------------------------------------------------------------------


def test_two_methods_lead_on_vits_and_are_alike():
    def told(chefer, uniform, other):
        found = evidence(
            {
                ("ViT-B", "sds", m): v
                for m, v in zip(("CheferLRP", "IG-U", "IG"), (chefer, uniform, other), strict=True)
            },
            noise=0.05,
            n=100,
        )
        return verdict(idsds_model_claims, "chefer_and_ig_u_lead_on_vit", found)

    assert told(0.30, 0.31, 0.1)["verdict"] == HELD
    assert told(0.30, 0.31, 0.5)["verdict"] == NOT_HELD  # another is better
    assert told(0.45, 0.31, 0.1)["verdict"] == NOT_HELD  # one of them is
    assert told(0.30, 0.31, 0.295)["verdict"] == UNDECIDED  # another may be as good
    assert told(0.35, 0.30, 0.1)["verdict"] == UNDECIDED  # at the limit of what is equal
    row = told(0.30, 0.31, 0.1)
    assert len(row["parts"]) == 4 and row["note"].startswith("CheferLRP minus IG-U: -0.01")
    lacking = evidence({("resnet", "sds", m): 0.1 for m in ("CheferLRP", "IG-U", "IG")})
    assert "no model called ViT" in verdict(idsds_model_claims, "chefer_and_ig_u_lead_on_vit", lacking)["note"]
    alone = evidence({("vit", "sds", m): 0.1 for m in ("CheferLRP", "IG-U")})
    assert "nothing beside" in verdict(idsds_model_claims, "chefer_and_ig_u_lead_on_vit", alone)["note"]


def test_cams_are_best_where_scores_are_high():
    def told(high, low, noise=0.05):
        """Scores of Grad-CAM, IG-U and another on two models whose best is above the others', and on two below."""
        rows = {"m0": high, "m1": [v + 0.02 for v in high], "m2": low, "m3": [v - 0.02 for v in low]}
        means = {
            (m, "sds", x): v for m, row in rows.items() for x, v in zip(("Grad-CAM", "IG-U", "IG"), row, strict=True)
        }
        return verdict(idsds_model_claims, "best_method_by_level", evidence(means, noise=noise))

    held = told([0.8, 0.5, 0.3], [0.1, 0.3, 0.2])
    assert (held["verdict"], held["value"]) == (HELD, 1)
    assert told([0.5, 0.8, 0.3], [0.3, 0.1, 0.2])["verdict"] == NOT_HELD
    assert told([0.8, 0.5, 0.3], [0.3, 0.1, 0.2])["verdict"] == NOT_HELD
    assert told([0.8, 0.5, 0.3], [0.1, 0.21, 0.2], noise=0.2)["verdict"] == UNDECIDED
    three = evidence({(f"m{i}", "sds", x): 0.1 for i in range(3) for x in ("Grad-CAM", "IG-U")})
    assert "at least 4 models" in verdict(idsds_model_claims, "best_method_by_level", three)["note"]


def test_what_must_all_be_so_is_not_held_by_the_least_alone():
    """The smaller step is sure and the larger one is not, so that the order is not."""
    rng = np.random.default_rng(0)
    sure, unsure = rng.normal(0.1, 0.05, 40), spread(40, 0.4, 4.0)
    vit = np.zeros(40)
    means = {
        ("vgg", "sds", "IG"): vit + sure + unsure,
        ("resnet", "sds", "IG"): vit + unsure,
        ("vit", "sds", "IG"): vit,
    }
    found = evidence(means)
    steps = verdict(idsds_model_claims, "vgg_resnet_vit", found)["parts"]
    assert [part["low"] > 0 for part in steps] == [True, False]
    assert verdict(idsds_model_claims, "vgg_resnet_vit", found)["verdict"] == UNDECIDED


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


def test_the_recorded_fill_says_what_auto_stands_for():
    """By model: what is zero on pictures is padding on texts."""
    means = {(model, "morf", m): v for model in ("net", "bert") for m, v in (("a", 0.9), ("b", 0.1), ("random", 0.5))}
    written = evidence(means, metrics=[metric("morf", fill="auto")])
    assert "no curve was measured with the fill" in verdict(perturbation_claims, "mean_fails", written)["note"]
    fills = [{"model": m, "metric": "morf", "fill": f} for m, f in (("net", "zero"), ("bert", "pad"))]
    known = Evidence(written.scores, {**written.run, "fills": fills}, resamples=100)
    row = verdict(perturbation_claims, "mean_fails", known)
    assert (row["verdict"], row["note"]) == (HELD, "net under morf: so")


def test_a_curve_without_random_does_not_hide_one_with_it():
    two = [metric("morf", fill="migan"), metric("lerf", fill="migan")]
    means = {("net", "morf", "a"): 0.9, ("net", "lerf", "a"): 0.9}
    alone = evidence(means, metrics=two)
    assert (
        "lerf was not measured together with random"
        in verdict(perturbation_claims, "inpainting_separates", alone)["note"]
    )
    both = evidence({**means, ("net", "morf", "random"): 0.1}, metrics=two)
    row = verdict(perturbation_claims, "inpainting_separates", both)
    assert (row["verdict"], row["note"]) == (HELD, "net under morf: so")


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


def timed(**portions):
    """Sixty samples in as many portions as there are times."""
    seconds = {name: np.repeat(times, 60 // len(times)) for name, times in portions.items()}
    return evidence({("net", "abpc", m): 0.1 for m in portions}, metrics=FIVE, seconds=seconds)


def test_fast_methods_are_fast():
    held = verdict(m4_claims, "cams_are_fast", timed(GradCAM=[0.01] * 3 + [0.011], IG=[1.0, 1.1, 1.0, 1.05]))
    assert (held["verdict"], held["counted"], held["n"]) == (HELD, "portions timed", 2)
    assert held["low"] < held["value"] < held["high"] and held["value"] == pytest.approx(98, rel=0.1)
    slow = verdict(m4_claims, "cams_are_fast", timed(GradCAM=[2.0, 2.1, 2.2], IG=[1.0, 1.1, 1.05], SG=[9.0, 9.1, 9.2]))
    assert (slow["verdict"], slow["value"] < 0, len(slow["parts"])) == (NOT_HELD, True, 2)
    once = verdict(m4_claims, "cams_are_fast", timed(GradCAM=[0.01], IG=[1.0]))
    assert (once["verdict"], once["value"], np.isnan(once["low"])) == (UNDECIDED, pytest.approx(99), True)
    assert "1 of 1 pairs were timed once" in once["note"]
    unsure = verdict(m4_claims, "cams_are_fast", timed(GradCAM=[0.5, 2.0, 1.0], IG=[0.7, 1.8, 1.4]))
    assert unsure["verdict"] == UNDECIDED


def test_patches_show_in_all_maps_or_in_none():

    def told(**means):
        borders = {("vit", name): spread(40, mean, 0.02) for name, mean in means.items()}
        return verdict(m4_claims, "patches_show", evidence(ONE, borders=borders))

    assert told(IG=0.05, SG=0.02)["verdict"] == HELD
    assert told(IG=0.05, SG=-0.02)["verdict"] == NOT_HELD
    assert told(IG=0.05, SG=0.004)["verdict"] == UNDECIDED
    assert told(IG=0.05, SG=-0.02)["note"] == "SG on vit"
    assert "patches" in verdict(m4_claims, "patches_show", evidence(ONE))["note"]


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
