"""Numbers and foreign strings as text."""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from markupsafe import Markup

_LONGEST = 2000
_LARGEST = 99  # effect: differences that hardly vary
# Control characters, bidirectional overrides and lone surrogates: they can hide, reorder or break text.
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_HEADLINE = 40  # characters of a name that a headline has room for
_FOLDERS = re.compile(
    r"[^:@]*[/\\](?=[^/\\:@])"
)  # of a path, whatever stands before it (`trained:`) or behind it (`@05`)
_DIGEST = re.compile(r"[0-9a-f]{32,}")


def plain(text: str) -> str:
    r"""A foreign string with invisible characters escaped and its length bounded.

    Example:
        >>> plain("cat\u202egnp.exe")
        'cat\\u202egnp.exe'
    """
    shown = _INVISIBLE.sub(lambda m: f"\\u{ord(m[0]):04x}", text)
    if len(shown) <= _LONGEST:
        return shown
    return f"{shown[:_LONGEST]}… (+{len(shown) - _LONGEST} characters)"


def clean(value: Any) -> Any:
    """A JSON value that any parser accepts: plain strings (`Markup` is trusted), six-digit numbers, NaN as null."""
    if isinstance(value, Markup):
        return str(value)
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, bool) or value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {plain(str(k)): clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [clean(v) for v in value]
    return plain(str(value))


def brief(name: str) -> str:
    """A sample's name; a digest is cut to its first ten characters."""
    return name[:10] if _DIGEST.fullmatch(name) else name


def in_headline(names: Sequence[str]) -> list[str]:
    """Models or data sets as a headline calls them: of long paths the last part, unless two would be called the same.

    Example:
        >>> in_headline(["trained:/home/jane/studies/2026/aligned-resnet50@05", "hf:org/name"])
        ['trained:…/aligned-resnet50@05', 'hf:org/name']
    """
    short = [_FOLDERS.sub("…/", name) if len(name) > _HEADLINE else name for name in names]
    return short if len(set(short)) == len(set(names)) else list(names)


def decimals(scale: float) -> int | None:
    """Decimals that show three significant digits of numbers of magnitude `scale`; None for scientific notation."""
    if not math.isfinite(scale) or scale == 0:
        return 3
    places = 2 - math.floor(math.log10(abs(scale)))
    return max(places, 0) if -4 <= places <= 6 else None


def number(value: float | None, places: int | None = 3) -> str:
    """A number with a true minus sign; a dash where there is none.

    Example:
        >>> number(-0.12345), number(None)
        ('−0.123', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:.2e}" if places is None else f"{value:.{places}f}"
    if not text.strip("-0."):
        text = text.removeprefix("-")
    return text.replace("-", "−")


def number_of_size(value: float | None) -> str:
    """A number with three significant digits, whatever its size.

    Example:
        >>> number_of_size(0.0123456), number_of_size(-1234.5), number_of_size(0.0)
        ('0.0123', '−1234', '0')
    """
    if value is None or not math.isfinite(value):
        return "–"
    return number(value, decimals(value)) if value else "0"


def count(value: float | None) -> str:
    """A count or a duration in a few characters: 950, 12.4k, 3.1M."""
    if value is None or not math.isfinite(value):
        return "–"
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            size = value / (1e3 if unit == "k" else limit)
            return f"{size:.3g}{unit}"
    return f"{value:.0f}" if value == round(value) else f"{value:.3g}"


def day(moment: str) -> str:
    """A moment as people write it; what is no moment stays as it is.

    Example:
        >>> day("2026-11-17T19:42:08+00:00"), day("yesterday")
        ('17 November 2026, 19:42 UTC', 'yesterday')
    """
    try:
        known = datetime.fromisoformat(moment)
    except ValueError:
        return moment
    zone = " UTC" if known.utcoffset() == timedelta(0) else ""
    return f"{known.day} {known:%B %Y, %H:%M}{zone}"


def rank(value: float | None) -> str:
    """A rank, with a decimal for ties."""
    return "–" if value is None else f"{value:.3g}"


def rank_set(row: Mapping[str, Any]) -> str:
    """The ranks that a method may have; empty where it is one."""
    low, high = row["rank_low"], row["rank_high"]
    return "" if low is None or low == high else f"{rank(low)}–{rank(high)}"


def half_interval(row: Mapping[str, Any], places: int | None, bounds: tuple[float, float]) -> str:
    """Half a mean's interval behind ±; both ends where it reaches the end of the metric's range; empty without one.

    Example:
        >>> half_interval({"mean": 0.5, "low": 0.25, "high": 0.75}, 2, (0, 1))
        ' ±0.25'
        >>> half_interval({"mean": 0.5, "low": 0.125, "high": 1.0}, 3, (0, 1))
        ' [0.125, 1.000]'
    """
    low, mean, high = row["low"], row["mean"], row["high"]
    if low is None:
        return ""
    if mean > low == bounds[0] or mean < high == bounds[1]:
        return f" [{number(low, places)}, {number(high, places)}]"
    return f" ±{number((high - low) / 2, places)}"


def effect(value: float | None) -> str:
    """A difference in standard deviations; a dash where there is none.

    Example:
        >>> effect(0.8412), effect(-0.2), effect(250.0), effect(None)
        ('0.84', '−0.20', '> 99', '–')
    """
    if value is not None and abs(value) > _LARGEST:
        return f"> {_LARGEST}" if value > 0 else f"< −{_LARGEST}"
    return number(value, 2)


def per_cent(share: float | None) -> str:
    """A share in whole per cent; a dash where there is none.

    Example:
        >>> per_cent(0.928), per_cent(None)
        ('93 %', '–')
    """
    return "–" if share is None else f"{100 * share:.0f} %"


def p_value(value: float | None) -> str:
    """A p-value as papers print it.

    Example:
        >>> p_value(0.0312), p_value(0.0001)
        ('p = 0.031', 'p < 0.001')
    """
    if value is None:
        return "–"
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"
