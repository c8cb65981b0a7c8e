"""Write `metrics.md` and `fills.md` from what the components declare: `python docs/pages.py docs`."""

import sys
from pathlib import Path

from heatcheck.core import catalogue
from heatcheck.core.catalogue import METRIC_FAMILIES, Entry

METRICS = """# Metrics

Every metric that ships, as it declares itself; `heatcheck list metrics --json` says the same to programs, and
`heatcheck.testing.check_metric` holds each to it. Written by `make docs`; a test keeps it true.

*Needs* are what must be there besides inputs and maps. *Unmoved by* names what may be done to a map without changing its
score: any increasing change (monotone), a positive factor (scale), an added constant (shift), negation (sign), or
anything at all (map: the metric measures the model).
"""
FILLS = """# Fills

What takes the place of what is deleted, as each declares itself; `heatcheck list fills --json` says the same to
programs. `heatcheck fills MODEL` measures how far out of distribution each takes your model. *Computed* says where: on
the model's device, or on the CPU alone, where from another device each batch goes there and back once
([devices.md](devices.md)). Written by `make docs`; a test keeps it true.
"""
ASKS = {
    "curve": "Curves: delete step by step",
    "deletion": "Single and random deletions",
    "imputation": "Deletion with care: what is deleted is painted over",
    "reference": "References: compare with a truth that is given, or with other models",
    "sanity": "Sanity and robustness: does the map depend on what it should?",
    "form": "Form: the map alone",
    "composite": "Composites: add up others",
}


def shipped(kind: str) -> list[Entry]:
    """Components of this package, grouped by family."""
    found = catalogue.metrics_by_family() if kind == "metric" else list(catalogue.entries(kind).values())
    return [entry for entry in found if entry.module.startswith("heatcheck.")]


def metrics_page() -> str:
    """One table per family, then what each takes and costs."""
    lines = [METRICS]
    for family in METRIC_FAMILIES:
        own = [entry for entry in shipped("metric") if entry.facts["family"] == family]
        if own:
            head = ["| metric | asks | better | range | on | needs | unmoved by |", "| --- " * 7 + "|"]
            lines += [f"## {ASKS[family]}\n", *head, *map(metric_row, own), ""]
            lines += [text for entry in own for text in details(entry)]
    return "\n".join(lines)


def metric_row(entry: Entry) -> str:
    """A metric as a line of a table."""
    low, high = entry.facts["within"]
    inside = "" if low is None and high is None else f"{'−∞' if low is None else low} … {'∞' if high is None else high}"
    cells = [f"`{entry.id}`", entry.summary, entry.facts["better"], inside]
    cells += [", ".join(entry.facts[name]) for name in ("on", "needs", "invariant")]
    return row(cells)


def row(cells: list[str]) -> str:
    """A line of a table; a bar inside a cell is escaped."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def fills_page() -> str:
    """One table, then what each takes."""
    rows = [
        row([f"`{e.id}`", e.summary, ", ".join(e.facts["on"]), "on the CPU" if e.facts["host"] else "with the model"])
        for e in shipped("fill")
    ]
    more = [text for entry in shipped("fill") for text in details(entry)]
    return "\n".join([FILLS, "| fill | what it does | on | computed |", "| --- " * 4 + "|", *rows, "", *more])


def details(entry: Entry) -> list[str]:
    """Parameters, paper, differences and cost."""
    record = entry.record()
    params = ", ".join(f"{name}={value}" for name, value in record["params"].items())
    said = [f"`{entry.id}({params})`"] if params else [f"`{entry.id}`"]
    said += [f"Paper: {'; '.join(record['references'])}."] if record["references"] else []
    said += [f"Differs: {record['differs']}."] if record["differs"] else []
    said += [f"Cost per sample: {record['cost']}."] if record["cost"] else []
    return [f"- {' '.join(said)}", ""]


PAGES = {"metrics.md": metrics_page, "fills.md": fills_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (Path(sys.argv[1]) / name).write_text(page(), encoding="utf-8")
