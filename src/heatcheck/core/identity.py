"""What decides a result, as a digest: canonical JSON under SHA-256."""

import hashlib
import json
from typing import Any


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces; floats as Python prints them; NaN refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def digest(value: Any) -> str:
    """SHA-256 of a value's canonical JSON, as hex."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def map_key(*, model: str, sample: str, target: int, method: dict[str, Any], seed: int) -> str:
    """The key of one attribution map."""
    return digest({"model": model, "sample": sample, "target": target, "method": method, "seed": seed})


def score_key(*, map: str, metric: dict[str, Any], reference: str, label: int | None) -> str:
    """The key of one score: the map, the metric, and what the metric compares with."""
    return digest({"map": map, "metric": metric, "reference": reference, "label": label})
