"""One method, metric, fill, model, data source, kind of units or profile, with all that it declares."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from shlex import quote
from typing import Any

from heatcheck.cli.console import console
from heatcheck.cli.costs import in_full, written
from heatcheck.cli.formulas import plain
from heatcheck.core import catalogue
from heatcheck.core.plugins import plugin_module
from heatcheck.core.spec import Spec, write

Line = tuple[str, str]
"""A label and what is said under it; an empty label continues the one above."""


def card(what: str, row: Mapping[str, Any], plugins: Sequence[str] = ()) -> None:
    """Print one of them; long lines are folded under their labels. Examples of what a plugin declares name the file."""
    from rich.table import Table
    from rich.text import Text

    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    option = _plugin_option(what, row["id"], plugins)
    for label, text in _LINES[what](row):
        text = f"{text}{option}" if text.startswith("heatcheck ") else text
        made.add_row(Text(label, style="dim"), Text(plain(text)))
    screen = console()
    with screen.capture() as held:
        screen.print(Text(row.get("form", row["id"]), style="bold"))
        screen.print(made)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in held.get().splitlines()))
    sys.stdout.flush()


def _plugin_option(what: str, id: str, plugins: Sequence[str]) -> str:
    """The option that makes a user's own component known; empty for a shipped one."""
    own = catalogue.own_entries(what.removesuffix("s"))
    return "".join(
        f" --plugin {quote(path)}" for path in plugins if id in own and own[id].module == plugin_module(path)
    )


def _component(kind: str, row: Mapping[str, Any]) -> Iterator[Line]:
    entry = catalogue.find(kind, row["id"])
    yield "what", row["summary"]
    if entry.explanation:
        yield from (("", " ".join(text.split())) for text in entry.explanation.split("\n\n"))
    if "family" in row:
        yield "family", row["family"]
    yield "on", " and ".join(f"{modality}s" for modality in row["on"])
    if row.get("elsewhere"):
        yield "", f"elsewhere: {row['elsewhere']}"
    if kind == "metric":
        low, high = row["within"]
        yield "better", f"{row['better']}; from {'−∞' if low is None else low} to {'∞' if high is None else high}"
    yield from _where(row)
    if kind != "fill":
        yield "needs", ", ".join(row["uses"] if kind == "method" else row["needs"]) or _NOTHING[kind]
    yield from _parameters(row)
    yield from _passes(kind, row)
    if row["cost"]:
        yield "" if kind != "fill" else "cost", f"in general: {row['cost']}"
    if kind == "method":
        yield "claims", ", ".join(row["properties"]) or "nothing"
    if kind == "metric":
        yield "unmoved by", ", ".join(row["invariant"]) or "nothing"
    yield from ((("paper" if i == 0 else ""), text) for i, text in enumerate(row["references"]))
    if row["differs"]:
        yield "differs", row["differs"]
    if "version" in row:
        yield "version", str(row["version"])
    yield from _examples(kind, row)


def _where(row: Mapping[str, Any]) -> Iterator[Line]:
    if row.get("host"):
        yield "where", "on the CPU alone; from another device each batch goes there and back once"


_NOTHING = {"method": "nothing but outputs", "metric": "nothing but inputs and maps"}


def _parameters(row: Mapping[str, Any]) -> Iterator[Line]:
    label = "parameters"
    for name, default in row["params"].items():
        meaning = row["meanings"].get(name, "")
        words = row["choices"].get(name, ())
        said = f"{name}={write(default)}" + (f"  {meaning}" if meaning else "")
        yield label, said if not words or meaning else f"{said}  one of {', '.join(words)}"
        label = ""


def _passes(kind: str, row: Mapping[str, Any]) -> Iterator[Line]:
    label = "cost"
    for facts in written().values():
        if facts["model"] in row.get("passes", {}):
            cost = row["passes"][facts["model"]]
            said = "does not apply" if cost is None else f"{in_full(cost)} on {facts['sample']}"
            yield label, f"{facts['model']}: {said}"
            label = ""


def _examples(kind: str, row: Mapping[str, Any]) -> Iterator[Line]:
    id, params = row["id"], row["params"]
    own = [name for name in params if name not in ("output", "reduction", "post")]
    given = str(Spec(id, {own[0]: params[own[0]]} if own else {}))
    if kind == "method":
        seen = "cat.jpg" if "image" in row["on"] else '--text "a dull film"'
        yield "example", f"heatcheck explain {seen} --method {id}"
        yield "", f"heatcheck run --methods {quote(given)} --methods random"
    elif kind == "metric":
        where = "" if "image" in row["on"] else " --models minilm_sentiment --data texts"
        yield "example", f"heatcheck run --metrics {quote(given)}{where}"
    else:
        yield "example", f"heatcheck run --metrics {quote(f'sds(fill={given})')}"


def _source(option: str, row: Mapping[str, Any]) -> Iterator[Line]:
    yield "what", row["about"]
    yield "on", row["modality"]
    if row.get("install"):
        yield "install", row["install"]
    if row.get("licence"):
        yield "licence", row["licence"]
    if " " in row["form"]:
        yield "example", f"hc.Benchmark({option}=…)"
        return
    other = {"models": " --data texts", "data": " --models minilm_sentiment"}[option]
    written = re.sub(r"\[.*?\]", "", row["form"])
    yield "example", f"heatcheck run --{option} {written}{other if row['modality'] == 'text' else ''}"


def _units(row: Mapping[str, Any]) -> Iterator[Line]:
    yield "what", row["summary"]
    yield "on", " and ".join(f"{modality}s" for modality in row["on"])
    yield from _where(row)
    where = "" if "image" in row["on"] else " --models minilm_sentiment --data texts"
    units = row["form"].replace("(n)", "(8)")
    yield "example", f"heatcheck run --metrics {quote(f'sds(units={units})')}{where}"


def _profile(row: Mapping[str, Any]) -> Iterator[Line]:
    yield "what", row["note"]
    yield "target", str(row["target"])
    yield "methods", ", ".join(row["methods"])
    yield "metrics", ", ".join(row["metrics"])
    yield from _set_by_profile("parameters", row["params"])
    for modality in row["on"]:
        own = row.get(modality, {})
        if "note" in own:
            yield f"on {modality}s", own["note"]
        yield from ((f"{kind} on {modality}s", ", ".join(own[kind])) for kind in ("methods", "metrics") if kind in own)
        yield from _set_by_profile(f"parameters on {modality}s", own.get("params", {}))
    yield from (
        ("also called" if i == 0 else "", f"{name} = {spec}") for i, (name, spec) in enumerate(row["aliases"].items())
    )
    yield "example", f"heatcheck run --profile {row['id']}"


def _set_by_profile(label: str, params: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[Line]:
    for components in params.values():
        for id, given in components.items():
            yield label, str(Spec(id, given))
            label = ""


_LINES: dict[str, Callable[[Mapping[str, Any]], Iterator[Line]]] = {
    "methods": lambda row: _component("method", row),
    "metrics": lambda row: _component("metric", row),
    "fills": lambda row: _component("fill", row),
    "models": lambda row: _source("models", row),
    "data": lambda row: _source("data", row),
    "units": _units,
    "profiles": _profile,
}
