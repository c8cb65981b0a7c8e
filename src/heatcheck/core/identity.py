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
