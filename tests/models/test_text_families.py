"""Every family of text classifiers: encoders and decoders, padded on either side, with tokenizers of three kinds."""

import copy

import pytest
import torch
from captum.attr import LayerIntegratedGradients
from torch.testing import assert_close

import heatcheck as hc
from heatcheck.api.benchmark import as_component, label_models
from heatcheck.core.types import Batch, HeatcheckError, Streams
from heatcheck.fills.text import Pad, Remove
from heatcheck.models.last_token import reads_last_token
from heatcheck.models.load import load_model
from heatcheck.models.text_questions import hidden, unpadded
from heatcheck.models.vision_shim import load_transformers
from heatcheck.probe.attention import AttentionTrace
from heatcheck.run.rehearsal import applicable
from heatcheck.testing import check_method
from heatcheck.testing.scenes import batch_of, probe_for
from heatcheck.testing.text_zoo import FAMILIES, SENTENCES, TEXT, network_of, said, small_text, tokenizer_of

MUTANTS = (
    (
        "models/last_token.py",
        "torch.where(nobody, own, attention > 0)",
        "own",
        "test_a_decoder_without_its_last_tokens_reads_the_one_before",
    ),
    ("models/last_token.py", '"attention_mask": attention.scatter(1, last[:, None], 1)', "", "test_all_tokens_hidden"),
    ("domain/text.py", '(places + x["start"][:, None])', "places", "test_padding_on_either_side"),
    ("domain/text.py", '(places - x["start"][:, None])', "places", "test_maps_of_left_padded_texts"),
    (
        "probe/rules.py",
        'given["mat2"].mT, given["input"])',
        'given["mat2"].mT, None)',
        "test_the_linear_layers_of_gpt2_follow_the_rules_of_linear_layers",
    ),
    ("fills/text.py", "gone.long() + 2 * behind.long()", "gone.long()", "test_all_tokens_hidden"),
)
DECODERS = ("GPT-2", "Llama", "Qwen2")
SIDES = ("left", "right")


def places(model, x):
    """The places of a text's own tokens."""
    return (~x["special"][0]).nonzero()[:, 0].tolist()


@pytest.mark.parametrize("name", FAMILIES)
def test_ids_and_their_embeddings_give_the_same_answer(name):
    model = small_text(name)
    x = unpadded(model.encode(said(TEXT)))
    with torch.inference_mode():
        truth = model.by_ids(x)
        assert_close(model.logits(x), truth, rtol=1e-5, atol=1e-6)
        assert_close(model.logits(model.domain.with_leaf(x, model.domain.leaf(x))), truth, rtol=1e-5, atol=1e-6)
    assert truth.std() > 0.01
    assert reads_last_token(model.module()) == (name in DECODERS)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", FAMILIES)
def test_padding_on_either_side(name, side):
    """A padded text, and one of whose tokens every second is hidden, is answered as without padding."""
    model = small_text(name, side)
    assert name == "XLNet" or model.side == side
    bare = unpadded(model.encode(said(TEXT)))
    n = bare["ids"].shape[1]
    wide = model.encode(said(TEXT), 96)
    assert wide["attention"][0].tolist() == (
        [0] * (96 - n) + [1] * n if model.side == "left" else [1] * n + [0] * (96 - n)
    )
    with torch.inference_mode():
        for place in (None, *places(model, bare)[::4]):
            inside = place if place is None or model.side == "right" else place + 96 - n
            own, padded = (x if p is None else hidden(x, p, 0) for x, p in ((bare, place), (wide, inside)))
            assert_close(model.logits(padded), model.logits(own), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_hiding_a_token_moves_no_other(name):
    """The answer is that of the network at explicit places; the embedding of what is hidden is never read."""
    model = small_text(name)
    x = unpadded(model.encode(said(TEXT)))
    free = places(model, x)
    network, n = model.module(), x["ids"].shape[1]
    first = {"RoBERTa": 1, "MPNet": 2}.get(name, 0) + (model.tokenizer.pad_token_id if name == "RoBERTa" else 0)
    places_told = {"position_ids": torch.arange(first, first + n)[None]}
    told = {"token_type_ids": x["types"]} if name == "XLNet" else places_told
    with torch.inference_mode():
        for place in free[:-1]:
            gone = hidden(x, place, model.domain.pad)
            got = model.logits(gone)
            if name in DECODERS:
                body = network.base_model(input_ids=gone["ids"], attention_mask=gone["attention"], **told)[0]
                truth = network.score(body[:, -1])
            else:
                truth = network(input_ids=gone["ids"], attention_mask=gone["attention"], **told).logits
            assert_close(got, truth, rtol=1e-4, atol=1e-5)
            assert_close(got, model.logits(hidden(x, place, 5)), rtol=1e-5, atol=1e-6)
            assert not torch.allclose(got, model.logits(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_without_its_last_tokens_reads_the_one_before(name, side):
    """Hiding the end of a text is the network's own answer to what comes before it."""
    model = small_text(name, side)
    bare, x = unpadded(model.encode(said(TEXT))), model.encode(said(TEXT), 64)
    n = bare["ids"].shape[1]
    offset = 64 - n if side == "left" else 0
    with torch.inference_mode():
        for keep in range(1, n):
            truth = model.module()(input_ids=bare["ids"][:, :keep]).logits
            attention = x["attention"].clone()
            attention[:, offset + keep :] = 0
            assert_close(model.logits(x.replace(attention=attention)), truth, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("fill", [Pad(), Remove()], ids=str)
@pytest.mark.parametrize("name", DECODERS)
def test_all_tokens_hidden(name, fill):
    """What is left is a single token, at the last place of the text, whatever the padding."""
    found = []
    for side, width in (("left", 0), ("right", 0), ("left", 96), ("right", 96)):
        model = small_text(name, side)
        x = model.encode(said(TEXT), width)
        zeros = torch.zeros(1, dtype=torch.long)
        full = fill.full(model.domain, Batch(x=x, target=zeros, label=zeros, streams=Streams(0, ("d",))))
        with torch.inference_mode():
            nothing = torch.zeros(1, x["ids"].shape[1], dtype=torch.bool)
            found.append(model.logits(fill.erase(model.domain, x, nothing, full)))
    n = int(x["attention"].sum())
    ids = torch.full((1, n), model.domain.pad)
    attention = torch.zeros(1, n, dtype=torch.long)
    attention[:, -1] = 1
    if name == "Llama":  # its first token is never deleted, and so the last that is left
        ids, attention = x["ids"][:, :1], torch.ones(1, 1, dtype=torch.long)
    with torch.inference_mode():
        body = model.module().base_model(
            input_ids=ids, attention_mask=attention, position_ids=torch.arange(ids.shape[1])[None]
        )
        truth = model.module().score(body[0][:, -1])
    for got in found:
        assert_close(got, truth, rtol=1e-5, atol=1e-5)


def test_a_batch_that_transformers_pads_is_answered_as_transformers_does():
    model = small_text("Qwen2", "left")
    batch = model.tokenizer(list(SENTENCES), padding=True, return_tensors="pt")
    assert batch["attention_mask"][:, 0].tolist() != [1] * 4
    config = model.module().config
    config.pad_token_id = model.tokenizer.pad_token_id
    with torch.inference_mode():
        truth = model.module()(**{k: batch[k] for k in ("input_ids", "attention_mask")}).logits
        got = model.logits(model.domain.wrap({k: batch[k] for k in ("input_ids", "attention_mask")}))
    assert_close(got, truth, rtol=1e-4, atol=1e-4)


def test_attention_is_computed_eagerly_whatever_the_user_chose():
    family = FAMILIES["BERT"]
    tokenizer = tokenizer_of(family)
    network = network_of(family, len(tokenizer), 0)
    network.set_attn_implementation("sdpa")
    model = load_model((network, tokenizer))
    assert model.module().config._attn_implementation == "eager" and network.config._attn_implementation == "sdpa"
    assert applicable(model, model.encode(said(TEXT)))["rollout"] is None


def test_tokenizers_without_a_padding_token_pad_with_the_end_of_a_text():
    model = small_text("GPT-2", "right")
    end = model.tokenizer.eos_token_id
    assert model.tokenizer.pad_token_id is None and model.domain.pad == end
    x = model.encode(said(TEXT), 64)
    assert x["ids"][0, -1] == end and x["special"][0, -1]
    with pytest.raises(HeatcheckError, match="tokenizer has no mask token; fill=pad, unk or remove can be used"):
        hc.explain(model, [TEXT], method="occlusion(fill=mask)")


def test_slow_tokenizers_are_refused_with_the_remedy():
    class Slow:
        is_fast = False

    with pytest.raises(HeatcheckError, match=r"Slow does not say where its tokens stand; use a fast.*tokenizer\.json"):
        type(small_text("BERT"))(small_text("BERT").module(), Slow(), "slow")


def test_networks_as_objects(tmp_path):
    transformers = load_transformers()
    family = FAMILIES["BERT"]
    tokenizer = tokenizer_of(family)
    named = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}, "num_labels": 2}
    network = network_of(family, len(tokenizer), 0, **named)
    both = load_model((network, tokenizer))
    assert (both.name, both.classes) == ("BertForSequenceClassification", ("bad", "good"))
    pipe = transformers.pipeline("text-classification", model=network, tokenizer=tokenizer)
    piped = load_model(pipe, name="piped")
    assert piped.identity == both.identity
    score = pipe(TEXT)[0]
    with torch.inference_mode():
        own = piped.logits(piped.encode(said(TEXT))).softmax(1)[0]
    assert own.max().item() == pytest.approx(score["score"], abs=1e-5)
    assert piped.classes[own.argmax()] == score["label"]
    maps = [hc.explain(m, [TEXT], method="saliency").values for m in (pipe, (network, tokenizer))]
    assert torch.equal(*maps)
    assert list(label_models((network, tokenizer))) == ["BertForSequenceClassification"]
    with pytest.raises(HeatcheckError, match=r"BertModel, which reads texts but has no layer.*heatcheck train text"):
        load_model((network.bert, tokenizer))
    with pytest.raises(HeatcheckError, match=r"needs its tokenizer; pass both as \(network, tokenizer\)"):
        load_model(network)
    network.bert.save_pretrained(tmp_path)
    with pytest.raises(
        HeatcheckError, match=r"no image or sequence classifier; which reads texts.*heatcheck train text"
    ):
        load_model(f"hf:{tmp_path}")


def test_several_labels_and_one_number_go_the_road_of_classes():
    family = FAMILIES["BERT"]
    tokenizer = tokenizer_of(family)
    several = load_model((network_of(family, len(tokenizer), 0, problem_type="multi_label_classification"), tokenizer))
    x = several.encode(said(TEXT))
    leaf = several.domain.leaf(x).requires_grad_()
    (slope,) = torch.autograd.grad(several.logits(several.domain.with_leaf(x, leaf))[0, 2], leaf)
    truth = (slope * leaf).sum(-1).detach()
    by_class, by_column = (hc.explain(several, [TEXT], method="input_x_gradient", target=t) for t in (2, "column:2"))
    assert_close(by_class.values, truth)
    assert_close(by_column.values, truth)
    assert (by_class.explains, by_column.explains) == ("", "column:2")
    number = load_model((network_of(family, len(tokenizer), 0, num_labels=1), tokenizer))
    found = hc.explain(number, [TEXT], method="input_x_gradient")
    assert found.target.tolist() == [0] and found.values.abs().sum() > 0
    assert number.gives_number and number.classes == ("output",)


@pytest.mark.parametrize("method", ["saliency", "input_x_gradient", "rollout", "generic_attribution", "occlusion"])
@pytest.mark.parametrize("name", ["BERT", "ModernBERT", "DeBERTa-v2", "GPT-2", "Llama"])
def test_maps_of_left_padded_texts(name, method):
    """A map belongs to the tokens, wherever padding stands."""
    maps = []
    for side in SIDES:
        model = small_text(name, side)
        x = model.encode(said(TEXT), 64)
        batch = batch_of(model, x)
        values = as_component("method", method)(probe_for(model), batch).values[0]
        read = model.domain.seen(x)[0]
        assert not values[~read].any()
        maps.append(values[read])
    assert_close(*maps, rtol=1e-4, atol=1e-5)
    assert maps[0].std() > 0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["saliency", "generic_attribution", "occlusion"])
@pytest.mark.parametrize("name", ["RoBERTa", "ModernBERT", "GPT-2", "Qwen2"])
def test_methods_keep_their_promises(name, method):
    check_method(method, [small_text(name)])


@pytest.mark.parametrize("name", ["BERT", "RoBERTa", "GPT-2"])
def test_captum_gives_the_same_integrated_gradients(name):
    """Captum interpolates what the embedding layer gives, ours what the network is given."""
    model = small_text(name, "right")
    network, x = model.module(), unpadded(model.encode(said(TEXT)))
    ids, free = x["ids"], ~x["special"]

    def forward(tokens):
        if name == "GPT-2":  # without a padding token, its own head refuses batches
            return network.score(network.base_model(input_ids=tokens)[0][:, -1])
        return network(input_ids=tokens, attention_mask=torch.ones_like(tokens)).logits

    theirs = LayerIntegratedGradients(forward, network.get_input_embeddings()).attribute(
        ids, torch.where(free, model.domain.unk, ids), target=1, n_steps=30, method="gausslegendre"
    )
    ours = hc.explain(model, [TEXT], method="integrated_gradients(steps=30, baseline=unk)", target=1)
    assert_close(ours.values[0, : ids.shape[1]], theirs.sum(-1)[0].detach(), rtol=1e-5, atol=1e-5)
    assert ours.values.abs().max() > 1e-2


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "XLNet"])
def test_the_attention_that_methods_see_is_the_networks_own(name):
    """Transformers gives its attention weights by itself; GPT-2, DeBERTa-v2 and ModernBERT compute them in ways of their own."""
    model = small_text(name)
    x = unpadded(model.encode(said(TEXT)))
    leaf = model.domain.leaf(x).detach().requires_grad_()
    with AttentionTrace() as trace:
        model.logits(model.domain.with_leaf(x, leaf))
    body = model.module().base_model
    with torch.inference_mode():
        theirs = body(input_ids=x["ids"], attention_mask=x["attention"], output_attentions=True).attentions
    assert len(trace.blocks) == len(theirs) == model.module().config.num_hidden_layers
    for block, own in zip(trace.blocks, theirs, strict=True):
        assert_close(block.weights, own, rtol=1e-5, atol=1e-6)
        assert block.stream is not None and block.projection is not None
        assert block.values.shape == (*own.shape[:2], own.shape[-1], 16 // own.shape[1])


def test_the_linear_layers_of_gpt2_follow_the_rules_of_linear_layers():
    """GPT-2 writes them as addmm with transposed weights; with ordinary layers in their place all maps are the same."""
    model = small_text("GPT-2")

    def plain(old):
        new = torch.nn.Linear(old.nx, old.nf)
        new.weight, new.bias = torch.nn.Parameter(old.weight.T.contiguous()), torch.nn.Parameter(old.bias.clone())
        return new

    network = copy.deepcopy(model.module())
    for module in list(network.modules()):
        for child, own in list(module.named_children()):
            if type(own).__name__ == "Conv1D":
                setattr(module, child, plain(own))
    twin = model.around(network)
    assert not any(type(m).__name__ == "Conv1D" for m in twin.module().modules())
    for method in ("lrp", "attn_lrp", "deep_lift", "bt_token", "transformer_attribution", "legrad"):
        ours, theirs = (hc.explain(m, [TEXT], method=method, target=1).values for m in (model, twin))
        assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
        assert ours.any(), method
