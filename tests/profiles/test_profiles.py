"""Profiles: what they say exists, and the laws of applying them."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heatcheck.api.study import Study, StudyError
from heatcheck.core import catalogue
from heatcheck.core.spec import Spec, SpecError, parse
from heatcheck.profiles import Profile, is_paper, load_profile, names

MUTANTS = (
    (
        "profiles/__init__.py",
        "{**meant.params, **changed}",
        "{**changed, **meant.params}",
        "test_an_alias_with_parameters_is_its_spec_with_these_changed",
    ),
)
TOY = Profile(
    name="toy",
    note="",
    methods=("rise",),
    metrics=("sds",),
    params={
        "method": {"rise": {"samples": 7, "fill": "blur(kernel=3)"}, "saliency": {"post": "abs"}},
        "metric": {"sds": {"units": "grid(2)"}},
        "fill": {"blur": {"sigma": 2.5}},
    },
    aliases={"I×G abs.": "input_x_gradient(post=abs)"},
)


EVERY = [(name, m) for name in names() for m in load_profile(name).on]


@pytest.mark.parametrize(("name", "modality"), EVERY)
def test_everything_a_profile_names_exists(name: str, modality: str) -> None:
    profile = load_profile(name, modality)
    written = [("method", m) for m in profile.methods] + [("metric", m) for m in profile.metrics]
    written += [(kind, str(Spec(id, params))) for kind, units in profile.params.items() for id, params in units.items()]
    assert profile.methods and profile.metrics and profile.note
    for kind, spec in written:
        assert list(catalogue.problems(kind, profile.spec(spec))) == []
        assert catalogue.build(kind, profile.apply(kind, spec)).id in catalogue.entries(kind)


def test_quick_is_what_the_specification_says() -> None:
    apply = load_profile("quick").apply
    for metric in ("morf", "lerf", "abpc", "ids", "deletion", "insertion"):
        assert apply("metric", metric) == f"{metric}(steps=8)"
    assert apply("metric", "irof") == "irof(units=segment)"
    assert apply("metric", "infidelity") == "infidelity(samples=64)"
    assert [apply("method", m) for m in ("rise", "lime", "integrated_gradients", "smoothgrad")] == [
        "rise(samples=128)",
        "lime(samples=128)",
        "integrated_gradients(steps=16)",
        "smoothgrad(samples=8)",
    ]
    assert load_profile("quick").methods == load_profile("default").methods


@pytest.mark.parametrize(
    ("name", "written", "meant"),
    [
        ("m4", "IG", "integrated_gradients"),
        ("m4", "IG(steps=3)", "integrated_gradients(steps=3)"),
        ("m4", " BT/H (start=0)", "bt_head(start=0)"),
        ("m4", "random_7(grid=5)", "random(grid=5)"),
        ("m4", "random_7()", "random(grid=7)"),
        ("idsds", "I×G-SG abs.(samples=4)", "smoothgrad(of=input_x_gradient, post=abs, samples=4)"),
        ("idsds", "IG-U(baseline=zero)", "integrated_gradients(baseline=zero)"),
        ("m4", "IG(steps=", "integrated_gradients(steps="),
        ("m4", "IGG(steps=3)", "IGG(steps=3)"),
    ],
)
def test_an_alias_with_parameters_is_its_spec_with_these_changed(name: str, written: str, meant: str) -> None:
    assert load_profile(name).spec(written) == meant


def test_the_rest_of_an_alias_with_parameters_is_the_profiles() -> None:
    whole, changed = (parse(load_profile("m4", "text").apply("method", m)) for m in ("LIME", "LIME(samples=30)"))
    assert whole.params["samples"] == 1000 and changed == Spec("lime", {**whole.params, "samples": 30})
    assert load_profile("m4", "text").apply("method", str(changed)) == str(changed)


def test_a_mistake_after_an_alias_is_answered() -> None:
    def wrong(method: str) -> str:
        with pytest.raises(StudyError) as caught:
            Study.of(models="minilm_sentiment", data="texts", profile="m4", methods=method)
        return str(caught.value)

    assert "method integrated_gradients has no parameter 'stepps'; did you mean steps" in wrong("IG(stepps=3)")
    assert "the bracket is not closed" in wrong("IG(steps=3")
    assert Study.of(models="minilm_sentiment", data="texts", profile="m4", methods="IG(steps=3), BT/H(start=0)")


def test_the_page_on_texts_says_what_m4_is_there() -> None:
    page = (Path(__file__).parents[2] / "docs" / "text.md").read_text(encoding="utf-8")
    part = page.partition("### M4's settings")[2].partition("\n## ")[0]
    told = dict(re.findall(r"^\| `(.+?)` \| `(.+?)` \|$", part, re.MULTILINE))
    m4 = load_profile("m4", "text")
    meant = {m: m4.apply("method", m) for m in m4.methods} | {m: m4.apply("metric", m) for m in m4.metrics}
    assert told == {name: spec for name, spec in meant.items() if name != spec}


def test_m4_squares_is_m4_but_for_two_methods() -> None:
    m4, squares = load_profile("m4"), load_profile("m4_squares")
    assert squares.methods == m4.methods and squares.metrics == ("synscore",) and squares.paper
    differing = {
        (m, name): value
        for m in m4.methods
        for name, value in parse(squares.apply("method", m)).params.items()
        if parse(m4.apply("method", m)).params[name] != value
    }
    assert differing == {("IG", "steps"): 20, ("IG", "baselines"): 5, ("SG", "sigma"): 0.001}


@pytest.mark.parametrize("modality", ["", "image", "text"])
def test_the_default_profile_changes_no_parameter(modality: str) -> None:
    profile = load_profile("default", modality)
    assert [profile.apply("method", m) for m in profile.methods] == list(profile.methods)
    assert profile.target == "predicted"


@pytest.mark.parametrize(
    ("kind", "written", "applied"),
    [
        ("method", "rise", "rise(samples=7, fill=blur(kernel=3, sigma=2.5))"),
        ("method", "rise(samples=9)", "rise(samples=9, fill=blur(kernel=3, sigma=2.5))"),
        ("method", "rise( fill = zero , samples=1000)", "rise(samples=1000, fill=zero)"),
        ("method", "rise(fill=blur(sigma=1.0))", "rise(samples=7, fill=blur(sigma=1.0))"),
        ("method", "smoothgrad", "smoothgrad(of=saliency(post=abs))"),
        ("method", "smoothgrad(of=saliency(post=none))", "smoothgrad(of=saliency(post=none))"),
        ("method", "smoothgrad(of=smoothgrad(of=rise))", None),
        ("method", "lime", "lime"),
        ("method", "I×G abs.", "input_x_gradient(post=abs)"),
        ("metric", "sds(fill=auto)", "sds(units=grid(2), fill=auto)"),
    ],
)
def test_what_is_written_beats_the_profile(kind: str, written: str, applied: str | None) -> None:
    got = TOY.apply(kind, written)
    if applied is None:
        inner = "rise(samples=7, fill=blur(kernel=3, sigma=2.5))"
        applied = f"smoothgrad(of=smoothgrad(of={inner}))"
    assert got == applied


params = st.fixed_dictionaries(
    {},
    optional={
        "samples": st.integers(1, 2000),
        "keep": st.floats(0.01, 0.99),
        "fill": st.sampled_from(["zero", "blur", "blur(kernel=5)", "auto"]),
        "output": st.sampled_from(["logit", "prob"]),
    },
)


@settings(max_examples=80, deadline=None)
@given(written=params, order=st.randoms(use_true_random=False))
def test_applying_is_canonical_idempotent_and_respects_what_is_written(written: dict, order) -> None:
    shuffled = list(written)
    order.shuffle(shuffled)
    once = TOY.apply("method", str(Spec("rise", {k: written[k] for k in shuffled})))
    assert once == TOY.apply("method", str(Spec("rise", written)))
    assert TOY.apply("method", once) == once
    got = parse(once).params
    declared = list(catalogue.find("method", "rise").params)
    assert list(got) == sorted(got, key=declared.index)
    assert {k: got[k] for k in written if k != "fill"} == {k: v for k, v in written.items() if k != "fill"}
    assert written.keys() <= got.keys()
    assert got["samples"] == written.get("samples", 7)


def test_units_that_do_not_exist() -> None:
    with pytest.raises(SpecError, match="no method is called 'rize'; did you mean rise"):
        TOY.apply("method", "rize")
    with pytest.raises(SpecError, match="no profile is called 'quik'; did you mean quick"):
        load_profile("quik")
    with pytest.raises(SpecError, match="no profile is called"):
        load_profile("../quick")


IDSDS = {
    "I×G": "input_x_gradient",
    "I×G-SG": "smoothgrad(of=input_x_gradient, samples=4, sigma=1.0, scale=one)",
    "IG": "integrated_gradients",
    "IG-U": "integrated_gradients(baseline=uniform(shared=true))",
    "IG-SG": "smoothgrad(of=integrated_gradients, samples=4, sigma=1.0, scale=one)",
    "I×G abs.": "input_x_gradient(post=abs)",
    "I×G-SG abs.": "smoothgrad(post=abs, of=input_x_gradient, samples=4, sigma=1.0, scale=one)",
    "IG abs.": "integrated_gradients(post=abs)",
    "IG-U abs.": "integrated_gradients(post=abs, baseline=uniform(shared=true))",
    "IG-SG abs.": "smoothgrad(post=abs, of=integrated_gradients, samples=4, sigma=1.0, scale=one)",
    "IG-SG-SQ": "smoothgrad_sq(of=integrated_gradients, samples=4, sigma=1.0, scale=one)",
    "Saliency": "saliency(post=abs)",
    "RISE": "rise(keep=0.1, fill=zero, shared=true)",
    "RISE-U": "rise(keep=0.1, fill=uniform(shared=true), shared=true)",
    "Grad-CAM": "grad_cam",
    "Grad-CAM++": "grad_cam_pp(torchcam_compat=true)",
    "SG-CAM++": "smooth_grad_cam_pp(torchcam_compat=true)",
    "XGrad-CAM": "xgrad_cam",
    "Layer-CAM": "layer_cam",
    "Rollout": "rollout(start=1)",
    "CheferLRP": "transformer_attribution(start=1)",
    "B-cos": "bcos",
    "BagNet-33": "bagnet",
}
M4 = {
    "GradCAM": "grad_cam(output=prob)",
    "IG": "integrated_gradients(output=prob, reduction=mean_abs, baseline=noise, baselines=10, quadrature=linspace_n)",
    "SG": "smoothgrad(output=prob, reduction=mean_abs, samples=100, sigma=0.1)",
    "GA": "generic_attribution(output=prob, start=4, head_reduce=mean_separately)",
    "BT/H": "bt_head(output=prob, start=4)",
    "BT/T": "bt_token(output=prob, start=4)",
    "LIME": "lime(output=prob, post=abs, units=quickshift, fill=superpixel_mean(units=quickshift))",
}
METARANK = {
    "Saliency": "saliency",
    "Guided Backprop": "guided_backprop",
    "Input⊙Gradient": "input_x_gradient",
    "DeepLift": "deep_lift",
    "Deconvolution": "deconvolution",
    "LRP": "lrp(composite=epsilon)",
    "Guided Grad-CAM": "guided_grad_cam",
    "IG": "integrated_gradients",
}


RISE = {
    "Grad-CAM": "grad_cam",
    "Sliding window": "occlusion(output=prob, units=grid(7), fill=zero)",
    "LIME": "lime",
    "RISE": "rise(samples=4000, grid=7, fill=zero)",
}
CHEFER = {
    "Rollout": "rollout(start=1)",
    "GradCAM": "attention_grad_cam",
    "Transformer attribution": "transformer_attribution(start=1)",
}
METRICS = {
    "rise": {
        "deletion": "deletion(steps=224, fill=zero, ties=reverse_index)",
        "insertion": "insertion(steps=224, fill=folded_blur(kernel=11, sigma=5.0), ties=reverse_index)",
    },
    "chefer": {
        "morf": "morf(steps=10, fill=black, output=accuracy, area=trapezoid, end=zero)",
        "lerf": "lerf(steps=10, fill=black, output=accuracy, area=trapezoid, end=zero)",
    },
    "quantus": {
        "deletion": "deletion(steps=224, fill=black, ties=index, area=quantus)",
        "faithfulness_correlation": "faithfulness_correlation(fill=black, output=prob, share=0.00446)",
        "irof": "irof(fill=channel_mean)",
    },
    "m4": {
        **{m: f"{m}(steps=100, fill=grey127, ties=percentile_compat)" for m in ("morf", "lerf", "abpc")},
        "infidelity": "infidelity(fill=grey127)",
    },
    "metarank": {m: f"{m}(fill=zero, output=accuracy, area=trapezoid)" for m in ("morf", "lerf")},
    "idsds": {"sds": "sds(units=grid(4), fill=zero)", "ids": "ids(fill=zero)"},
}


@pytest.mark.parametrize("name", METRICS)
def test_a_papers_metrics_have_its_settings(name: str) -> None:
    profile = load_profile(name)
    for id, spec in METRICS[name].items():
        built = catalogue.build("metric", profile.apply("metric", id))
        assert built.identity() == catalogue.build("metric", spec).identity()


M4_TEXT = {
    "LIME": "lime(output=prob, units=token, fill=unk)",
    "IG": "integrated_gradients(reduction=sum_abs, quadrature=linspace_n)",
    "SG": "smoothgrad(output=prob, reduction=sum_abs, samples=50, sigma=0.1)",
    "GA": "generic_attribution(start=-1, head_reduce=mean_separately)",
    "BT/H": "bt_head(start=-1)",
    "BT/T": "bt_token(start=-4)",
}
M4_TEXT_METRICS = {
    **{m: f"{m}(steps=100, fill=pad, ties=percentile_compat)" for m in ("morf", "lerf", "abpc")},
    "pscore": "pscore",
    "infidelity": "infidelity(sets=random, fill=pad, output=prob)",
}


def test_m4_has_settings_of_its_own_for_texts() -> None:
    text, image = load_profile("m4", "text"), load_profile("m4", "image")
    assert image == load_profile("m4") and image.note != text.note and text.paper
    assert text.methods == (*M4_TEXT, "random", "constant") and text.target == "predicted"
    assert text.metrics == ("morf", "abpc", "pscore", "infidelity")
    for kind, table in (("method", M4_TEXT), ("metric", M4_TEXT_METRICS)):
        for label, spec in table.items():
            assert catalogue.build(kind, text.apply(kind, label)).identity() == catalogue.build(kind, spec).identity()


def test_the_data_decide_which_settings_are_used() -> None:
    from heatcheck.api.benchmark import Benchmark

    texts = Benchmark(data=["a good film", "a bad one"], profile="m4")
    assert texts.settings() == load_profile("m4", "text") != Benchmark(profile="m4", samples=1).settings()
    with pytest.raises(SpecError, match="profile 'rise' has its paper's settings for images, and the data are texts"):
        Benchmark(data=["a good film"], profile="rise").with_random()


@pytest.mark.parametrize("name", ["default", "quick"])
def test_texts_have_at_least_fifteen_methods_and_ten_metrics(name: str) -> None:
    profile = load_profile(name, "text")
    real = [m for m in profile.methods if not catalogue.find("method", parse(m).id).facts["control"]]
    assert len(real) >= 15 and len(profile.metrics) >= 10
    for kind, specs in (("method", profile.methods), ("metric", profile.metrics)):
        assert all("text" in catalogue.find(kind, parse(spec).id).facts["on"] for spec in specs)


@pytest.mark.parametrize("name", ["idsds", "rise", "chefer", "metarank", "quantus", "m4_squares"])
def test_papers_without_texts_say_so(name: str) -> None:
    why = f"profile '{name}' has its paper's settings for images, and the data are texts; profiles for these are "
    with pytest.raises(SpecError, match=why + "default, m4, quick"):
        load_profile(name, "text")
    assert load_profile(name, "image") == load_profile(name)


def test_every_profile_of_the_specification_is_there() -> None:
    assert set(names()) == {"quick", "default", "m4", "m4_squares", "idsds", "metarank", "rise", "chefer", "quantus"}
    assert load_profile("quantus").target == "label"


@pytest.mark.parametrize(
    ("name", "table", "target"),
    [
        ("idsds", IDSDS, "label"),
        ("m4", M4, "predicted"),
        ("metarank", METARANK, "label"),
        ("rise", RISE, "predicted"),
        ("chefer", CHEFER, "predicted"),
    ],
)
def test_a_papers_methods_have_its_names_and_settings(name: str, table: dict[str, str], target: str) -> None:
    profile = load_profile(name)
    assert profile.target == target
    controls = [m for m in profile.methods if catalogue.find("method", parse(profile.spec(m)).id).facts["control"]]
    assert [m for m in profile.methods if m not in controls] == list(table)
    for label, spec in table.items():
        assert catalogue.build("method", profile.apply("method", label)).identity() == (
            catalogue.build("method", spec).identity()
        )


def test_a_papers_names_are_a_runs_labels() -> None:
    from heatcheck.api.benchmark import label_components

    labelled = dict(label_components("method", load_profile("idsds").methods, load_profile("idsds")))
    assert list(labelled) == [*IDSDS, "random"]
    assert labelled["IG-SG"].identity() == catalogue.build("method", IDSDS["IG-SG"]).identity()


@pytest.mark.parametrize(("name", "modality"), EVERY)
def test_every_profile_has_random_as_a_control(name: str, modality: str) -> None:
    from heatcheck.api.benchmark import Benchmark
    from heatcheck.data.catalogue import default_data

    profile = load_profile(name, modality)
    assert "random" in [catalogue.build("method", profile.apply("method", m)).id for m in profile.methods]
    assert not Benchmark(profile=name, data=default_data(modality), samples=1).lacks_random()


def test_published_tables_have_the_same_names() -> None:
    import csv
    import os
    from pathlib import Path

    shared = Path(os.environ.get("HEATCHECK_SHARED", Path(__file__).parents[2] / "shared"))
    path = shared / "spec" / "published" / "idsds_table4_idsds.csv"
    if not path.exists():
        pytest.skip("the published tables are not here")
    with path.open(encoding="utf-8") as f:
        names_there = [row["method"] for row in csv.DictReader(f)]
    assert names_there == [m for m in IDSDS if m not in ("Rollout", "CheferLRP")]


def test_papers_are_marked_and_keep_their_metrics() -> None:
    papers = {name for name in names() if load_profile(name).paper}
    assert papers == {"idsds", "m4", "m4_squares", "metarank", "rise", "chefer", "quantus"}
    assert is_paper("m4") and not is_paper("default") and not is_paper("nobody's")
