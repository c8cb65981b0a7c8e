"""Learning from texts: the same weights as a plain loop, the upper part alone, bare encoders, from ERASER's files."""

import json
import re

import pytest
import torch
import torch.nn.functional as F
from typer.testing import CliRunner

import heatcheck as hc
from heatcheck.cli import app
from heatcheck.core.types import HeatcheckError, Modality
from heatcheck.data.base import Dataset
from heatcheck.data.sentiment import CLASSES, corpus
from heatcheck.models.load import load_model
from heatcheck.models.text import TextModel
from heatcheck.models.training_record import TrainingRecord
from heatcheck.models.vision_shim import load_transformers
from heatcheck.models.weights import load_weights
from heatcheck.training import text
from heatcheck.training.loop import fit
from heatcheck.training.prepare import prepare
from heatcheck.training.recipe import load_recipe
from heatcheck.training.texts import TextTask, upper_part

QUICK = {"epochs": 2, "batch": 4, "lr": 1e-3, "tokens": 32}

MUTANTS = (
    ("training/texts.py", "contents, self.longest, in_front", "contents, 512, in_front", "test_texts_are_cut"),
    (
        "training/texts.py",
        "torch.randperm(len(self), generator=rng).tolist()",
        "list(range(len(self)))",
        "test_batches_hold_every_text_once_beside_texts_of_its_length",
    ),
    (
        "training/texts.py",
        "key=lambda i: _length(self.samples[i])",
        "key=lambda i: 0",
        "test_batches_hold_every_text_once_beside_texts_of_its_length",
    ),
    (
        "training/texts.py",
        "{len(stack) - layers}.",
        "{len(stack) - layers - 1}.",
        "test_the_upper_part_is_the_last_layers_and_what_lies_behind",
    ),
    (
        "training/texts.py",
        "weight.requires_grad_(self.learning is None or name in self.learning)",
        "weight.requires_grad_(True)",
        "test_only_the_upper_part_learns",
    ),
    (
        "models/hubs.py",
        "with without_bars(), without_reports(), drawn_from(0):",
        "with without_bars():",
        "test_a_bare_encoder_begins_a_training_and_nothing_else",
    ),
)


@pytest.fixture(scope="module")
def words():
    reviews = [*corpus(64), *corpus(32, split="test")]
    return sorted({w for s in reviews for w in re.findall(r"\w+|[^\w\s]", s.content.lower())})


@pytest.fixture(scope="module")
def tokenizer(words, tmp_path_factory):
    transformers = load_transformers()
    file = tmp_path_factory.mktemp("words") / "vocab.txt"
    file.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    return transformers.BertTokenizerFast(str(file), model_max_length=64)


def tiny(tokenizer, kind="BertModel", **options):
    """A small network of transformers with drawn weights."""
    transformers = load_transformers()
    network = getattr(transformers, kind)
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 16}
    if "Distil" in kind:
        sizes = {"dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 16}
    config = network.config_class(vocab_size=len(tokenizer), pad_token_id=0, **sizes, **options)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return network(config)


@pytest.fixture
def encoder(tokenizer, tmp_path):
    """The folder of a BERT without a classifier's head."""
    folder = tmp_path / "encoder"
    tiny(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def reviews(n=24, split="train"):
    return Dataset("reviews", Modality.TEXT, tuple(corpus(n, seed=0, split=split)), CLASSES)


def ready(folder, variant="", **changes):
    recipe = load_recipe("text", variant, {**QUICK, **changes})
    return prepare(recipe, f"hf:{folder}", reviews(), held_out=reviews(8, "test"), device="cpu", threads=1)


def task_of(folder, **changes) -> TextTask:
    return ready(folder, **changes).task


class TestTask:
    def test_a_plain_loop_gives_the_same_weights(self, encoder, tmp_path):
        prepared = ready(encoder, dropout=False, batch=8)
        task, steps = prepared.task, 6
        with torch.random.fork_rng():
            network = ready(encoder, dropout=False, batch=8).network.eval()
            exempt = [p for n, p in network.named_parameters() if n.endswith("bias") or "LayerNorm" in n]
            others = [p for n, p in network.named_parameters() if not (n.endswith("bias") or "LayerNorm" in n)]
            optimizer = torch.optim.AdamW(
                [{"params": others, "weight_decay": 0.01}, {"params": exempt, "weight_decay": 0.0}]
            )
            step = 0
            for epoch in range(2):
                for rows in task.batches(epoch):
                    samples = [task.samples[i] for i in rows]
                    encoded = task.model.tokenizer(
                        [s.content for s in samples], padding=True, truncation=True, max_length=32, return_tensors="pt"
                    )
                    loss = F.cross_entropy(network(**encoded).logits, torch.tensor([s.label for s in samples]))
                    optimizer.zero_grad()
                    loss.backward()
                    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
                    warm = round(0.1 * steps)
                    for group in optimizer.param_groups:
                        group["lr"] = 1e-3 * ((step + 1) / warm if step < warm else (steps - step) / (steps - warm))
                    optimizer.step()
                    step += 1
        assert step == steps
        fit(task, prepared.network, prepared.record, tmp_path / "out", progress="none")
        for name, weight in network.state_dict().items():
            torch.testing.assert_close(prepared.network.state_dict()[name], weight, rtol=1e-4, atol=1e-6, msg=name)

    def test_the_recipe_is_m4s(self):
        recipe = load_recipe("text")
        assert (recipe.optimizer, recipe.lr, recipe.batch, recipe.epochs) == ("adamw", 3e-5, 32, 10)
        assert (recipe.schedule, recipe.warmup, recipe.weight_decay, recipe.decay) == ("linear", 0.1, 0.01, "weights")
        assert (recipe.clip, recipe.seed, recipe.tokens, recipe.choose) == (1.0, 77, 512, "last")
        assert load_recipe("text", "large").tokens == 300

    def test_batches_hold_every_text_once_beside_texts_of_its_length(self, encoder):
        task = task_of(encoder)
        first, second = task.batches(0), task.batches(1)
        assert sorted(i for batch in first for i in batch) == list(range(24))
        assert first == task_of(encoder).batches(0)
        assert first != second and len(first) == len(second)
        assert first != task_of(encoder, seed=3).batches(0)
        lengths = [len(s.content) for s in task.samples]

        def spread(batches):
            return sum(max(lengths[i] for i in b) - min(lengths[i] for i in b) for b in batches)

        assert spread(first) == spread(second)  # 24 texts are one pool, sorted by length
        assert spread(first) < spread([list(range(i, i + 4)) for i in range(0, 24, 4)])
        small = task_of(encoder, batch=2)  # 24 texts are two pools, other ones in every epoch
        assert {frozenset(b) for b in small.batches(0)} != {frozenset(b) for b in small.batches(1)}
        starts = [min(lengths[i] for i in batch) for batch in first]
        assert starts != sorted(starts)

    def test_texts_are_cut(self, encoder):
        assert task_of(encoder, tokens=8).examples([0, 1], 0).x["ids"].shape == (2, 8)
        assert task_of(encoder, tokens=512).longest == 64  # what the model can read

    def test_a_label_that_is_missing_is_named(self, encoder):
        unlabelled = Dataset("plain", Modality.TEXT, tuple(hc.load_data(["good", "bad"])), CLASSES)
        with pytest.raises(HeatcheckError, match="has no label, so nothing can be learnt from it"):
            prepare(load_recipe("text", "", QUICK), f"hf:{encoder}", unlabelled)

    def test_pictures_do_not_fit(self, encoder):
        with pytest.raises(HeatcheckError, match="recipe text is for texts, but 'train_part-images' holds images"):
            prepare(load_recipe("text", "", QUICK), f"hf:{encoder}", "images")


class TestUpperPart:
    @pytest.mark.parametrize(
        ("kind", "layers", "behind"),
        [
            ("BertForSequenceClassification", "bert.encoder.layer", ("bert.pooler.", "classifier.")),
            ("RobertaForSequenceClassification", "roberta.encoder.layer", ("classifier.",)),
            ("DistilBertForSequenceClassification", "distilbert.transformer.layer", ("pre_classifier.", "classifier.")),
            ("ElectraForSequenceClassification", "electra.encoder.layer", ("classifier.",)),
            ("MPNetForSequenceClassification", "mpnet.encoder.layer", ("classifier.",)),
        ],
    )
    def test_the_upper_part_is_the_last_layers_and_what_lies_behind(self, tokenizer, kind, layers, behind):
        model = TextModel(tiny(tokenizer, kind), tokenizer, "tiny")
        expected = (f"{layers}.1.", f"{layers}.2.", *behind)
        names = {name for name, _ in model.module().named_parameters()}
        assert upper_part(model, 2) == {name for name in names if name.startswith(expected)}

    def test_only_the_upper_part_learns(self, encoder, tmp_path):
        prepared = ready(encoder, layers=1)
        before = {k: v.clone() for k, v in prepared.network.state_dict().items()}
        fit(prepared.task, prepared.network, prepared.record, tmp_path / "out", progress="none")
        changed = {k for k, v in prepared.network.state_dict().items() if not torch.equal(v, before[k])}
        assert {k.split(".")[0] for k in changed} == {"bert", "classifier"}
        assert all(k.startswith(("bert.encoder.layer.2.", "bert.pooler.", "classifier.")) for k in changed)

    def test_more_layers_than_there_are(self, encoder):
        with pytest.raises(HeatcheckError, match=r"layers=4: .* has 3 layers .*; write layers=0 for all"):
            task_of(encoder, layers=4)


class TestBareEncoders:
    def test_a_bare_encoder_begins_a_training_and_nothing_else(self, encoder):
        with pytest.raises(HeatcheckError, match="BertModel: no image or sequence classifier"):
            load_model(f"hf:{encoder}")
        with torch.random.fork_rng():
            a = load_model(f"hf:{encoder}", headless=True)
            torch.manual_seed(1)
            b = load_model(f"hf:{encoder}", headless=True)
        assert a.fresh_head and a.identity == b.identity
        old = load_weights(encoder / "model.safetensors")
        new = a.module().state_dict()
        assert all(torch.equal(weight, new[f"bert.{name}"]) for name, weight in old.items())

    def test_a_language_model_too(self, tokenizer, tmp_path):
        tiny(tokenizer, "RobertaForMaskedLM").save_pretrained(tmp_path / "lm")
        tokenizer.save_pretrained(tmp_path / "lm")
        with pytest.raises(HeatcheckError, match="no image or sequence classifier"):
            load_model(f"hf:{tmp_path / 'lm'}")
        assert load_model(f"hf:{tmp_path / 'lm'}", headless=True).fresh_head

    def test_the_head_is_drawn_from_the_recipes_seed(self, encoder):
        heads = [ready(encoder, seed=seed).network.classifier.weight for seed in (1, 1, 2)]
        assert torch.equal(heads[0], heads[1])
        assert not torch.equal(heads[0], heads[2])
        assert ready(encoder).record.parent.new_head

    def test_an_encoder_that_lacks_a_layer_is_refused(self, encoder):
        config = json.loads((encoder / "config.json").read_text())
        (encoder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 4}))
        with pytest.raises(
            HeatcheckError, match=r"lacks weights of BertForSequenceClassification: bert.encoder.layer.3"
        ):
            load_model(f"hf:{encoder}", headless=True)

    def test_a_classifier_goes_on_with_its_own_head(self, tokenizer, tmp_path):
        names = dict(enumerate(CLASSES))
        network = tiny(
            tokenizer, "BertForSequenceClassification", id2label=names, label2id={"negative": 0, "positive": 1}
        )
        network.save_pretrained(tmp_path / "classifier")
        tokenizer.save_pretrained(tmp_path / "classifier")
        prepared = ready(tmp_path / "classifier")
        assert not prepared.record.parent.new_head
        assert torch.equal(prepared.network.classifier.weight, network.classifier.weight)

    @pytest.mark.parametrize("outputs", [1, 2])
    def test_ratings_are_not_taken_for_classes(self, tokenizer, tmp_path, outputs):
        tiny(tokenizer, "BertForSequenceClassification", num_labels=outputs).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        rows = "".join(f"a film {i},{rating}\n" for i, rating in enumerate([3.5, 0.2, 4.8, 2]))
        (tmp_path / "ratings.csv").write_text(f"text,label\n{rows}")
        data = str(tmp_path / "ratings.csv")
        with pytest.raises(HeatcheckError, match=r"are numbers, such as 3\.5: a training needs classes"):
            prepare(load_recipe("text", "", QUICK), f"hf:{tmp_path}", data, device="cpu", threads=1)


@pytest.fixture
def movies(tmp_path):
    """A corpus in ERASER's layout, whose labels are called otherwise than the model's."""
    root = tmp_path / "movies"
    (root / "docs").mkdir(parents=True)
    for split, n in (("train", 16), ("val", 6), ("test", 4)):
        lines = []
        for i, sample in enumerate(corpus(n, seed=0, split="test" if split == "test" else "train")):
            name = f"{split}-{i}"
            (root / "docs" / name).write_text(sample.content)
            lines.append({"annotation_id": name, "classification": ("NEG", "POS")[sample.label], "evidences": []})
        (root / f"{split}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return root


class TestCommand:
    def test_from_an_encoder_and_erasers_files_to_a_model(self, encoder, movies, tmp_path):
        out = tmp_path / "out"
        changes = [part for k, v in QUICK.items() for part in ("--set", f"{k}={v}")]
        command = ["train", "text", "--model", f"hf:{encoder}", "--data", f"eraser:{movies}", "--out", str(out)]
        done = CliRunner().invoke(app, [*command, *changes, "--keep", "2", "--threads", "1", "--quiet", "--json"])
        assert done.exit_code == 0, done.output
        record = json.loads(done.stdout)
        assert (record["samples"], record["held_out_samples"]) == (16, 6)
        assert (record["data"], record["held_out"]) == (f"eraser:{movies}:train", f"eraser:{movies}:val")
        assert record["finished"] and record["parent"]["new_head"] and record["classes"] == ["NEG", "POS"]

        model, first = hc.load_model(f"trained:{out}"), hc.load_model(f"trained:{out}@01")
        assert model.classes == ("NEG", "POS") and model.trained["recipe"] == "text"
        assert model.identity == hc.load_model(f"trained:{out}@02").identity != first.identity
        saved = load_weights(out / "weights.safetensors")
        assert all(torch.equal(saved[k], v) for k, v in model.module().state_dict().items())
        judged = hc.load_data(f"eraser:{movies}:val")
        right = sum(int(model.logits(model.encode(s)).argmax()) == s.label for s in judged) / len(judged)
        assert right == record["accuracy"]["chosen"]

        (out / "hf" / "config.json").write_text("{")
        with pytest.raises(HeatcheckError, match="describes no text classifier"):
            hc.load_model(f"trained:{out}")

    def test_another_training_in_the_folder_is_left_alone(self, encoder, tmp_path):
        prepared = ready(encoder)
        fit(prepared.task, prepared.network, prepared.record, tmp_path / "out", progress="none")
        before = {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()}
        other = ready(encoder, lr=1e-2)
        other.task.classes = ("other", "names")
        with pytest.raises(HeatcheckError, match=r"holds another training: lr is 0\.001 there, 0\.01 here"):
            fit(other.task, other.network, other.record, tmp_path / "out", progress="none")
        assert {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()} == before
        assert TrainingRecord.read(tmp_path / "out").finished


class TestSentiment:
    """The embedded default's recipe on a tiny encoder."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch):
        monkeypatch.setattr(text, "SENTIMENT_REVIEWS", 64)
        monkeypatch.setattr(text, "HELD_OUT", 32)

    def test_it_repeats_itself_to_the_bit_and_draws_nothing(self, encoder, tmp_path, monkeypatch):
        monkeypatch.setattr(text, "ENOUGH", 0.0)
        with torch.random.fork_rng():
            for seed, name in enumerate(("a", "b")):
                torch.manual_seed(seed)
                before = torch.get_rng_state()
                text.train_sentiment(encoder, tmp_path / name, progress="none")
                assert torch.equal(torch.get_rng_state(), before)
        a, b = ((tmp_path / n / "model.safetensors").read_bytes() for n in ("a", "b"))
        assert a == b
        old, new = load_weights(encoder / "model.safetensors"), load_weights(tmp_path / "a" / "model.safetensors")
        changed = {k for k, v in old.items() if not torch.equal(v, new[f"bert.{k}"])}
        assert {k.split(".")[2] for k in changed if k.startswith("encoder")} == {"1", "2"}
        assert load_model(f"hf:{tmp_path / 'a'}").classes == CLASSES

    def test_a_poor_classifier_is_refused(self, encoder, tmp_path):
        with pytest.raises(HeatcheckError, match=r"of held-out reviews right, below 95%"):
            text.train_sentiment(encoder, tmp_path / "a", progress="none")
        assert not (tmp_path / "a").exists()
