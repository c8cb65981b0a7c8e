"""A user's own model: preprocessing, outputs, several inputs, and targets that are no classes, as a user types them."""

import functools
import json
import re
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from PIL import Image
from tests.models.conftest import Net
from torch import nn
from torch.testing import assert_close
from typer.testing import CliRunner

import heatcheck as hc
from heatcheck.cli import app
from heatcheck.core.types import HeatcheckError
from heatcheck.models.load import load_model
from heatcheck.models.vision_shim import load_timm, load_torchvision, load_transformers
from heatcheck.run.resources import Resources
from heatcheck.run.setup import prepare
from heatcheck.run.store import Store
from heatcheck.run.work import Work

MUTANTS = (
    (
        "models/outputs.py",
        "return scores[:, column]",
        "return scores[:, 0]",
        "test_a_column_is_that_column",
    ),
    (
        "domain/component.py",
        'changes: dict[str, Any] = {"output": "logit"} if self.params().get("output") == "prob" else {}',
        "changes: dict[str, Any] = {}",
        "test_a_regression_is_measured_and_what_needs_classes_is_skipped",
    ),
    (
        "models/held.py",
        "return value.expand(n, *value.shape[1:]) if repeats else value",
        "return value",
        "test_several_inputs",
    ),
)
SMALL = "mean=0.5 0.5 0.5,std=0.25 0.25 0.25,size=16,fit=squash"
RUN = {"methods": ["saliency", "random"], "metrics": ["sds"]}
X = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def pics(tmp_path):
    """A folder with two pictures."""
    folder = tmp_path / "pics"
    folder.mkdir()
    y, x = np.mgrid[0:40, 0:48]
    for i in range(2):
        rgb = np.stack([x * 5, y * 6, (x + y + 40 * i) * 2], -1).astype(np.uint8)
        Image.fromarray(rgb).save(folder / f"{i}.png")
    return folder


def checkpoint(folder):
    """A small network of timm with weights in a file, as a command line names it."""
    torch.save(load_timm().create_model("test_resnet", num_classes=3).state_dict(), folder / "w.pt")
    return f"timm:test_resnet@{folder / 'w.pt'}"


def run(out, **settings):
    return hc.Benchmark(**{**RUN, **settings}).run(out, progress="none")


def model_record(result):
    return result.manifest["models"][0]


class Returns(nn.Module):
    """A network whose output is wrapped by a function."""

    def __init__(self, wrap, classes=3):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.net = Net(classes)
        self.wrap = wrap

    def forward(self, x):
        return self.wrap(self.net(x), x)


class TestPreprocessing:
    def test_a_module_of_unknown_preprocessing_is_an_error_with_the_remedy(self, tmp_path, pics, net):
        with pytest.raises(HeatcheckError, match=r"Net cannot read the 2 pictures of 'pics'.*preprocess=\"imagenet\""):
            run(tmp_path / "run", models=[net], data=f"folder:{pics}")
        with pytest.raises(HeatcheckError, match='preprocess="imagenet"'):
            hc.explain(net, pics / "0.png", method="saliency")

    def forms():
        steps = load_torchvision().transforms
        compose = steps.Compose([steps.Resize((16, 16)), steps.ToTensor(), steps.Normalize((0.5,) * 3, (0.25,) * 3)])
        return {
            "text": SMALL.replace("fit=squash", "fit=squash,interpolation=bilinear"),
            "object": hc.Preprocess(mean=(0.5,) * 3, std=(0.25,) * 3, size=16, fit="squash", interpolation="bilinear"),
            "steps": compose,
        }

    @pytest.mark.parametrize("form", forms())
    def test_every_form_means_the_same(self, tmp_path, pics, net, form):
        result = run(tmp_path / "run", models=[net], data=f"folder:{pics}", preprocess=TestPreprocessing.forms()[form])
        assert result.scores()["status"].to_list() == ["ok"] * 4
        record = model_record(result)
        assert record["preprocessing"]["mean"] == [0.5] * 3
        assert record["preprocessing"]["size"] == [16, 16]
        assert record["notes"] == []
        assert record["identity"] == load_model(net, preprocess=TestPreprocessing.forms()["object"]).identity

    def test_other_preprocessing_is_another_model(self, net):
        known = [load_model(net, preprocess=p).identity for p in ("imagenet", "clip", "imagenet,size=96", SMALL)]
        assert len(set(known)) == 4

    @pytest.mark.parametrize(
        ("name", "mean", "size", "resize"),
        [("imagenet", 0.485, 224, 256), ("clip", 0.48145466, 224, 224), ("inception", 0.5, 299, 341)],
    )
    def test_named_ones(self, net, name, mean, size, resize):
        record = load_model(net, preprocess=name).preprocessing
        assert (record["mean"][0], record["size"], record["resize"]) == (mean, [size, size], resize)

    @pytest.mark.parametrize(
        ("written", "message"),
        [
            ("imagnet", "did you mean imagenet"),
            ("mean=0.5,size=8", "lacks mean= or std="),
            ("mean=a b,std=1", "'a b' are no numbers"),
            ("imagenet,sice=3", "there is no 'sice'; did you mean size"),
            ("imagenet,size", "cannot be read from 'size' on"),
        ],
    )
    def test_mistakes_are_repeated(self, pics, written, message):
        with pytest.raises(ValueError, match=re.escape(message)):
            hc.explain(Net(), pics / "0.png", method="saliency", preprocess=written)
        told = CliRunner().invoke(app, ["plan", "--data", f"folder:{pics}", "--preprocess", written])
        assert told.exit_code == 2
        assert message in " ".join(told.output.split()), told.output

    def test_weights_and_their_transforms(self, pics):
        models = load_torchvision().models
        weights = models.ResNet18_Weights.IMAGENET1K_V1
        net = models.resnet18(num_classes=3)
        for form in (weights, weights.transforms()):
            assert load_model(net, preprocess=form).preprocessing["resize"] == 256
        x = hc.load_model(net, preprocess=weights).encode(hc.load_data([pics / "0.png"])[0])["pixels"]
        assert_close(x[0], weights.transforms()(Image.open(pics / "0.png")), rtol=0, atol=1e-5)

    def test_a_torchvision_module_is_guessed_and_that_is_said(self, tmp_path, pics, capsys):
        net = load_torchvision().models.mobilenet_v3_small(num_classes=3)
        bench = hc.Benchmark(models=[net], data=f"folder:{pics}", methods=["random"], metrics=["sparseness"])
        result = bench.run(tmp_path / "run", progress="lines", batch=1)
        said = "the preprocessing is guessed, ImageNet's, since the module is torchvision's MobileNetV3"
        assert said in capsys.readouterr().err
        assert said in model_record(result)["notes"][0]
        assert model_record(result)["preprocessing"]["size"] == [224, 224]
        page = result.report(tmp_path / "report.html").read_text()
        assert "the preprocessing is guessed" in page
        with pytest.warns(UserWarning, match="the preprocessing is guessed"):
            hc.explain(net, pics / "0.png", method="random")

    def test_tensors_need_no_guess(self):
        net = load_torchvision().models.mobilenet_v3_small(num_classes=3)
        assert load_model(net).preprocessing is None
        hc.explain(net, torch.rand(1, 3, 32, 32), method="random")  # a warning would be an error

    def test_a_timm_module_says_it_and_a_part_lets_it_be_guessed(self, pics):
        net = load_timm().create_model("test_resnet", num_classes=3)
        own = load_model(net, guess=True)
        assert own.preprocessing["size"] == list(net.pretrained_cfg["input_size"][-2:])
        assert own.notes == []
        around = load_model(nn.Sequential(net), guess=True)
        assert around.preprocessing == own.preprocessing
        assert "from the pretrained_cfg of its part '0'" in around.notes[0]

    def test_an_image_processor(self, tmp_path, pics):
        transformers = load_transformers()
        config = transformers.ViTConfig(
            image_size=16, patch_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
        )
        net = transformers.ViTForImageClassification(config)
        processor = transformers.ViTImageProcessor(size={"height": 16, "width": 16}, image_mean=[0.4] * 3)
        result = run(tmp_path / "run", models=[net], data=f"folder:{pics}", preprocess=processor)
        assert result.scores()["status"].to_list() == ["ok"] * 4
        assert_close(torch.tensor(model_record(result)["preprocessing"]["mean"]), torch.full((3,), 0.4))
        assert load_model(net, guess=True).preprocessing["size"] == [16, 16]
        net.save_pretrained(tmp_path / "saved")
        processor.save_pretrained(tmp_path / "saved")
        loaded = transformers.ViTForImageClassification.from_pretrained(tmp_path / "saved")
        guessed = load_model(loaded, guess=True)
        assert_close(torch.tensor(guessed.preprocessing["mean"]), torch.full((3,), 0.4))
        assert "the image processor that lies beside the weights" in guessed.notes[0]

    def test_on_the_command_line(self, tmp_path, pics):
        spec, out = checkpoint(tmp_path), tmp_path / "run"
        line = [
            "run",
            "-m",
            spec,
            "-d",
            f"folder:{pics}",
            "--methods",
            "saliency,random",
            "--metrics",
            "sds",
            "-j",
            "1",
        ]
        done = CliRunner().invoke(app, [*line, "--preprocess", SMALL, "-q", "-o", str(out)])
        assert done.exit_code == 0, done.output
        record = json.loads((out / "run.json").read_text())
        assert record["models"][0]["preprocessing"]["size"] == [16, 16]
        assert record["study"]["preprocess"].startswith("mean 0.5 0.5 0.5, std 0.25 0.25 0.25, 16 pixels")
        assert set(hc.Result.open(out).scores()["status"]) == {"ok"}
        sheet = str(tmp_path / "sheet.png")
        for command in (
            ["doctor", spec, "--data", f"folder:{pics}", "--json"],
            ["explain", str(pics / "0.png"), "-m", spec, "-o", sheet],
            ["plan", "-m", spec, "-d", f"folder:{pics}", "--methods", "saliency", "--metrics", "sds", "-o", str(out)],
        ):
            told = CliRunner().invoke(app, [*command, "--preprocess", SMALL])
            assert told.exit_code == 0, told.output

    def test_a_loaded_model_and_a_text_classifier_take_none(self, net, bert_folder):
        with pytest.raises(HeatcheckError, match=r"pass preprocess= to hc\.load_model"):
            hc.explain(load_model(net), X, method="saliency", preprocess="imagenet")
        with pytest.raises(HeatcheckError, match=r"reads texts: this preprocess= is for pictures; write tokens="):
            hc.explain(f"hf:{bert_folder}", "the film", method="saliency", preprocess="imagenet")


Pair = namedtuple("Pair", "features scores")


@dataclass
class Answer:
    scores: torch.Tensor
    features: torch.Tensor


class TestOutputs:
    @pytest.mark.parametrize(
        ("wrap", "said"),
        [
            (lambda y, x: {"scores": y}, None),
            (lambda y, x: {"features": x, "scores": y}, "'features' [n, 3, 8, 8], 'scores' [n, 3], 'scores' is taken"),
            (lambda y, x: (x, y), "'1' is taken"),
            (lambda y, x: Pair(x, y), "'scores' is taken"),
            (lambda y, x: Answer(y, x), "'scores' is taken"),
            (lambda y, x: {"heads": {"main": y}, "loss": None}, None),
            (lambda y, x: {"logits": y, "other": y + 1}, None),
        ],
    )
    def test_an_obvious_one_is_taken_and_said(self, tmp_path, wrap, said):
        net = Returns(wrap)
        bench = hc.Benchmark(models=[net], data=X, **RUN)
        result = bench.run(tmp_path / "run", progress="none")
        assert result.scores()["status"].to_list() == ["ok"] * 4
        notes = model_record(result)["notes"]
        assert (said in notes[0]) if said else notes == []
        plain = hc.explain(net.net, X, method="saliency")
        if said:
            with pytest.warns(UserWarning, match="is taken; output= names another"):
                heat = hc.explain(net, X, method="saliency")
        else:
            heat = hc.explain(net, X, method="saliency")
        assert torch.equal(heat.values, plain.values)

    def test_an_ambiguous_one_is_listed_and_output_names_it(self, tmp_path):
        net = Returns(lambda y, x: {"coarse": y[:, :2], "fine": y})
        with pytest.raises(
            HeatcheckError, match=r"'coarse' \[n, 2\], 'fine' \[n, 3\]; say which, such as output='coarse'"
        ):
            hc.explain(net, X, method="saliency")
        heat = hc.explain(net, X, method="saliency", output="fine")
        assert torch.equal(heat.values, hc.explain(net.net, X, method="saliency").values)
        result = run(tmp_path / "run", models=[net], data=X, output="fine")
        assert result.scores()["status"].to_list() == ["ok"] * 4
        with pytest.raises(HeatcheckError, match=r"output='fin' is not in what the model returns: 'coarse'"):
            hc.explain(net, X, method="saliency", output="fin")

    def test_positions_and_nested_parts(self):
        net = Returns(lambda y, x: (y + 1, {"a": y, "b": y[:, :2]}))
        wanted = hc.explain(net.net, X, method="saliency").values
        for output in (0, "0", "1.a"):
            assert torch.equal(hc.explain(net, X, method="saliency", output=output).values, wanted)

    def test_other_outputs_are_other_models(self):
        net = Returns(lambda y, x: (y, y + 1))
        assert len({load_model(net).identity, *(load_model(net, output=i).identity for i in (0, 1))}) == 3
        assert load_model(net, output=1).identity == load_model(net, output="1").identity

    def test_no_scores_at_all(self):
        net = Returns(lambda y, x: {"out": x})
        with pytest.raises(
            HeatcheckError, match=r"no tensor \[n, classes\] or \[n\]: 'out' \[n, 3, 8, 8\]; target=lambda"
        ):
            hc.explain(net, X, method="saliency")
        heat = hc.explain(net, X, method="saliency", target=lambda output: output["out"][:, 1].mean((1, 2)))
        assert heat.values.allclose(torch.tensor(1 / 64))

    def test_a_function_may_return_a_dict(self):
        heat = hc.explain(lambda x: {"a": x.mean((2, 3)), "b": 1}, X, method="occlusion")
        assert heat.status == ("ok", "ok")


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3 + 2, 4)

    def forward(self, image, meta):
        return self.head(torch.cat([image.mean((2, 3)), meta], 1))


def test_several_inputs(tmp_path):
    """The sentence names the fix, and the code in it works as it is written."""
    model, meta = TwoInputs(), torch.tensor([[1.0, -1.0]])
    with pytest.raises(HeatcheckError, match=r"TwoInputs takes 2 inputs \(image, meta\)") as told:
        hc.explain(model, X, method="saliency")
    code = re.search(r"functools\.partial\([^)]*\)", str(told.value)).group()
    held = eval(code, {"functools": functools, "model": model, "meta": meta})
    heat = hc.explain(held, X, method="input_x_gradient", target=2)
    assert_close(heat.values, (X * model.head.weight[2, :3, None, None] / 64).sum(1).detach())
    result = run(tmp_path / "run", models=[held], data=X, methods=["input_x_gradient", "random"])
    assert result.scores()["status"].to_list() == ["ok"] * 4
    assert model_record(result)["name"] == "TwoInputs"
    other = functools.partial(model, meta=-meta)
    assert load_model(held).identity != load_model(other).identity

    def function(x, other):
        return x.mean((2, 3)) * other

    with pytest.raises(HeatcheckError, match=r"function takes 2 inputs \(x, other\)") as told:
        load_model(function)
    code = re.search(r"lambda x: [^)]*\)", str(told.value)).group()
    assert (
        load_model(eval(code, {"function": function, "other": 2.0})).class_count(hc.load_model(Net()).domain.wrap(X))
        == 3
    )


def test_the_input_that_is_not_held_may_come_later():
    class Late(nn.Module):
        def forward(self, ids=None, pixels=None, scale=1.0):
            return pixels.mean((2, 3)) @ ids.float() * scale

    held = functools.partial(Late(), ids=torch.eye(3), scale=2.0)
    assert_close(load_model(held).logits(load_model(Net()).domain.wrap(X)), 2 * X.mean((2, 3)))


class Linear(nn.Module):
    """A regression: one number, linear in the pixels."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.weight = nn.Parameter(torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(1)))

    def forward(self, x):
        return ((x * self.weight).sum((1, 2, 3)) - 3).reshape(self.shape)


def age(output):
    """The first number of an output."""
    return output["ages"][:, 0]


class TestTargets:
    @pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
    def test_a_regression_has_its_closed_form(self, shape):
        net = Linear(shape)
        with pytest.warns(UserWarning, match="gives one number per input"):
            heat = hc.explain(net, X, method="integrated_gradients(steps=4, baseline=zero)")
        assert_close(heat.values, (net.weight * X).sum(1).detach(), rtol=1e-4, atol=1e-5)
        with pytest.warns(UserWarning, match="gives one number per input"):
            score = hc.score(net, X, heat, metric="sds(fill=zero)")
        assert_close(score, torch.ones(1, 2, dtype=torch.float64))

    def test_a_regression_is_measured_and_what_needs_classes_is_skipped(self, tmp_path):
        metrics = ["sds", "deletion", "morf(output=margin)", "average_drop", "random_logit"]
        result = run(
            tmp_path / "run", models=[Linear((-1,))], data=(X, [3, 7]), methods=["saliency", "rise(samples=8)", "random"],
            metrics=metrics,
        )  # fmt: skip
        status = {m: set(rows["status"]) for (m,), rows in result.scores().group_by("metric")}
        assert status["sds"] == status["deletion"] == {"ok"}
        for metric in ("morf(output=margin)", "average_drop"):
            assert all(s.startswith("skipped: needs classes") for s in status[metric]), status[metric]
        assert status["random_logit"] == {"undefined: the model has only one class"}
        assert result.failed == 0
        record = model_record(result)
        assert {m["label"]: m["name"] for m in record["methods"]}["rise(samples=8)"].startswith("rise(output=logit, ")
        samples = result.samples()
        assert samples["prob"].to_list() == [None, None]
        assert samples["target_name"].to_list() == ["output", "output"]
        assert "gives one number per input" in record["notes"][0]
        assert "gives one number per input" in result.report(tmp_path / "report.html").read_text()

    def test_deletion_reads_the_number_itself(self):
        """The area under the curve of a linear model, by hand: the curve falls by each unit's share."""
        net = load_model(Linear((-1,)))
        x = X[:1]
        share = (net.module().weight * x).sum(1).detach()
        value = hc.score(net, x, share[None], metric="deletion(units=pixel, steps=64, fill=zero)")
        heights = net.module()(x).item() - torch.cat(
            [torch.zeros(1), share.flatten().sort(descending=True).values.cumsum(0)]
        )
        assert_close(value.item(), torch.trapezoid(heights.double(), dx=1 / 64).item(), rtol=1e-4, atol=1e-4)

    def test_a_function_of_the_output(self, tmp_path):
        net = Returns(lambda y, x: {"ages": y, "mask": x})
        result = run(tmp_path / "run", models=[net], data=X, target=age, methods=["saliency", "occlusion", "random"])
        assert result.scores()["status"].to_list() == ["ok"] * 6
        assert result.samples()["target_name"].to_list() == ["age", "age"]
        assert re.fullmatch(r"function age \(\w{6}\)", result.facts["target"])
        plain = hc.explain(net.net, X, method="saliency", target=0)
        heat = hc.explain(net, X, method="saliency", target=age)
        assert torch.equal(heat.values, plain.values)
        assert hc.score(net, X, heat, metric="sds", target=age).isfinite().all()
        with pytest.raises(HeatcheckError, match=r"explain function age .* but a class would be scored"):
            hc.score(net, X, heat, metric="sds", output="ages")

    def test_wrong_functions_are_told(self):
        net = Returns(lambda y, x: {"ages": y})
        with pytest.raises(
            HeatcheckError, match=r"gave torch.float32 \[n, 3\] for n inputs; .* it got 'ages' \[n, 3\]"
        ):
            hc.explain(net, X, method="saliency", target=lambda output: output["ages"])
        with pytest.raises(ValueError, match="'wrong' is no target; it is predicted"):
            hc.explain(net, X, method="saliency", target="wrong")

    def test_a_column_is_that_column(self, tmp_path):
        """A multi-label logit: its own number, not a share of a softmax."""
        net = Returns(lambda y, x: y)
        heat = hc.explain(net, X, method="integrated_gradients(steps=8)", target="column:2")
        assert torch.equal(heat.values, hc.explain(net, X, method="integrated_gradients(steps=8)", target=2).values)
        morf = {target: hc.score(net, X, ["saliency"], metric="morf", target=target) for target in ("column:2", 2)}
        raw = hc.score(net, X, ["saliency"], metric="morf(output=logit)", target=2)
        assert torch.equal(morf["column:2"], raw)
        assert not torch.equal(morf[2], raw)
        with pytest.raises(HeatcheckError, match="target=column:7 is not in an output of 3 columns"):
            hc.explain(net, X, method="saliency", target="column:7")

    @pytest.mark.parametrize(
        "method", ["lrp", "deep_lift", "guided_backprop", "grad_cam", "full_grad", "lime(samples=16)", "kernel_shap"]
    )
    def test_methods_that_look_inside_see_the_same(self, net, method):
        """A method explains a column, and a function that takes it, as it explains the class of that number."""
        known = hc.explain(net, X, method=method, target=1)
        assert known.status == ("ok", "ok")
        for target in ("column:1", lambda output: output[:, 1]):
            assert_close(hc.explain(net, X, method=method, target=target).values, known.values, rtol=1e-4, atol=1e-6)

    def test_targets_never_mix(self, tmp_path):
        net = Returns(lambda y, x: y)
        targets = ("column:1", "column:2", "column:1")
        first, second, again = (
            run(tmp_path / "run", models=[net], data=X, target=target).last().scores()["score"].to_list()
            for target in targets
        )
        assert first == again != second
        known = {load_model(net, target=t).identity for t in ("column:1", "column:2", age, lambda o: o[:, 0], None)}
        assert len(known) == 5

    def test_functions_that_differ_anywhere_are_other_targets(self):
        """Lambdas of one line, defaults in a loop, what a closure holds, held arguments, a helper: all of it counts."""
        net, places = Returns(lambda y, x: y), ([1], [2])

        def picked(columns):
            return lambda o: o[:, columns].sum(1)

        def asks(helper):
            def question(o):
                return helper(o)

            return question

        pairs = [
            (lambda o: o[:, 0], lambda o: o[:, 1]),
            (lambda o: o[:, 0] + 1, lambda o: o[:, 0] - 1),
            tuple(lambda o, i=i: o[:, i] for i in range(2)),
            tuple(map(picked, places)),
            (asks(lambda o: o[:, 0]), asks(lambda o: o[:, 1])),
            tuple(functools.partial(torch.select, dim=1, index=i) for i in range(2)),
            (functools.partial(torch.mean, dim=1), functools.partial(torch.sum, dim=1)),
            (nn.Linear(3, 1), nn.Linear(3, 1)),
        ]

        for pair in pairs:
            assert len({load_model(net, target=t).identity for t in pair}) == 2
            assert len({load_model(net, target=pair[0]).identity for _ in range(2)}) == 1

    def test_a_study_file_and_worker_processes(self, tmp_path, pics):
        """Preprocessing, output and a function from a file beside the study; a worker loads the very same model."""
        checkpoint(tmp_path)
        (tmp_path / "targets.py").write_text("def gap(output):\n    return output[:, 0] - output[:, 1]\n")
        (tmp_path / "study.toml").write_text(
            f"""
models = "timm:test_resnet@w.pt"
data = "folder:pics"
methods = ["saliency", "rise(samples=8)", "random"]
metrics = ["sds"]
preprocess = "{SMALL}"
target = "targets.py:gap"
"""
        )
        study = hc.Study.load(tmp_path / "study.toml")
        bench = hc.Benchmark.from_study(study)
        result = bench.run(tmp_path / "run", progress="none")
        assert set(result.scores()["status"]) == {"ok"}
        assert set(result.samples()["target_name"]) == {"gap"}
        setup = bench.setup()
        assert setup.sources.portable
        (part,) = prepare(setup, hc.Runtime(progress="none"), None)
        work = Work.from_json(part.work(list(setup.data), Store.open(tmp_path / "run"), setup.sources).to_json())
        elsewhere = Resources().grid(work)
        assert elsewhere.model is not part.grid.model
        assert elsewhere.model.identity == part.grid.model.identity
        assert [m.digest for m in elsewhere.methods] == [m.digest for m in part.grid.methods]
        plain = load_model(f"timm:test_resnet@{tmp_path / 'w.pt'}", preprocess=SMALL)
        x = plain.encode(setup.data[0])
        scores = plain.logits(x)
        assert_close(elsewhere.model.logits(x), scores[:, :1] - scores[:, 1:2])

    def test_the_command_line_explains_a_column(self, tmp_path, pics):
        line = ["explain", str(pics / "0.png"), "-m", checkpoint(tmp_path), "--json"]
        line += ["-o", str(tmp_path / "sheet.png"), "--target"]
        told = CliRunner().invoke(app, [*line, "column:1"])
        assert json.loads(told.stdout)[0]["target_name"] == "column 1", told.output
        told = CliRunner().invoke(app, [*line, "label"])
        assert told.exit_code == 2
        assert "'label' is for runs" in " ".join(told.output.split())

    def test_top2_and_labels_of_a_regression(self, tmp_path):
        settings = {"models": [Linear((-1,))], "data": (X, [3, 7])}
        with pytest.raises(HeatcheckError, match="target='top2', but the model gives one number per input"):
            run(tmp_path / "top2", target="top2", **settings)
        status = run(tmp_path / "label", target="label", **settings).scores()["status"]
        assert all("is not a class of a model with 1" in s for s in status), status.to_list()

    def test_names_of_folders_are_no_matter_for_a_number(self, tmp_path, pics, net):
        for i, name in enumerate(("cat", "dog")):
            (pics / name).mkdir()
            (pics / f"{i}.png").rename(pics / name / f"{i}.png")
        result = run(tmp_path / "run", models=[net], data=f"folder:{pics}", preprocess=SMALL, target="column:2")
        assert result.scores()["status"].to_list() == ["ok"] * 4
        assert not any("no class of" in note for note in result.manifest["data"]["notes"])

    def test_a_text_classifier(self, bert_folder):
        heat = hc.explain(
            f"hf:{bert_folder}", ["the film was good"], method="occlusion", target=lambda o: o.logits[:, 1]
        )
        plain = hc.explain(f"hf:{bert_folder}", ["the film was good"], method="occlusion", target=1)
        assert torch.equal(heat.values, plain.values)


# -- whose mistake it is ----------------------------------------------------------------------------------------


class Two(nn.Module):
    """Gives two outputs that could be class scores."""

    def forward(self, x):
        flat = x.mean((2, 3))
        return {"a": flat, "b": 2 * flat}


@pytest.mark.parametrize(
    ("model", "target", "message"),
    [
        (
            Net(),
            lambda out: out["age"],
            r"^Net: target=function <lambda> \(\w+\) raised IndexError: .*; it got a tensor \[n, \d+\]$",
        ),
        (Two(), None, r"^Two: the output holds 2 tensors .*; say which, such as output='a'$"),
    ],
    ids=["target", "output"],
)
def test_an_error_names_what_is_to_be_changed(model, target, message, tmp_path):
    bench = hc.Benchmark(models=model.eval(), data=X, target=target, **RUN)
    with pytest.raises(HeatcheckError, match=message):
        bench.run(tmp_path / "r", progress="none")


def test_a_class_is_no_model():
    with pytest.raises(HeatcheckError, match=r"model=Two is a class: pass an instance: Two\(\)$"):
        hc.Benchmark(models=Two, data=X, **RUN).setup()


def test_a_benchmark_says_how_many_samples_and_run_has_the_last_word():
    bench = hc.Benchmark(models=Net().eval(), data=X, samples=1, **RUN)
    assert (len(bench.setup().data), len(bench.setup(2).data)) == (1, 2)


def test_an_interruption_says_where_finished_work_is(tmp_path):
    def interrupted(x):
        raise KeyboardInterrupt

    bench = hc.Benchmark(models={"m": load_model(interrupted, name="m", identity="1")}, data=X, **RUN)
    with pytest.raises(KeyboardInterrupt) as stopped:
        bench.run(tmp_path / "r", progress="none")
    assert stopped.value.__notes__ == [f"finished work is saved in {tmp_path / 'r'}; run again to continue"]
