"""The studies of a folder read as one: their union, cut where ranks would compare what is not comparable.

A section holds the studies with equal data, target, seed and samples. In it, models are told apart by their identity,
methods and metrics by their full names; equal labels that mean different things get what differs behind them. A study
that a later one contains adds nothing and is left out. Design: design/store.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heatcheck.core.identity import digest
from heatcheck.core.spec import parse
from heatcheck.run.history import Manifest

KINDS = ("methods", "metrics")
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Section:
    """Studies with equal data, target, seed and samples, merged into one.

    Args:
        manifest: the merged study, in the form of `run.json`, with labels that are unique in the whole union.
        asked: the (model, method, metric) that a study asked for, by label.
        parts: for each metric that adds up others, the labels of its parts by id.
        data: the data set's own name.
        number: of the last study in it, counted from the oldest.
    """

    manifest: Manifest
    asked: frozenset[tuple[str, str, str]]
    parts: Mapping[str, Mapping[str, str]]
    data: str
    number: int

    @property
    def complete(self) -> bool:
        """Whether every method of a model was asked for under every metric."""
        cells: dict[str, tuple[set[str], set[str]]] = {}
        for model, method, metric in self.asked:
            methods, metrics = cells.setdefault(model, (set(), set()))
            methods.add(method)
            metrics.add(metric)
        return sum(len(a) * len(b) for a, b in cells.values()) == len(self.asked)


@dataclass(frozen=True)
class Union:
    """What a folder's studies amount to.

    Args:
        sections: that of the last study first.
        lines: what a reader must be told about them.
    """

    sections: tuple[Section, ...]
    lines: tuple[str, ...] = ()


def alone(study: Manifest) -> Union:
    """One study, with its own labels."""
    return Union((_merged([(0, study, _own_labels(study))], str(study["data"]["name"])),))


def union(studies: Sequence[Manifest]) -> Union:
    """All studies of a folder, the last one last. A multiverse is a table of its own and is shown alone."""
    last = studies[-1]
    others = [s for s in studies[:-1] if not s["study"].get("multiverse")]
    if last["study"].get("multiverse") or not others:
        hidden = len(studies) - 1
        beside = "a multiverse is shown alone" if hidden else ""
        return Union(alone(last).sections, _lines_hidden(hidden, beside))
    kept = _not_contained([*others, last])
    labels = _labels(kept)
    groups: dict[Key, list[tuple[int, Manifest, dict[Key, str]]]] = {}
    for number, study in enumerate(kept):
        groups.setdefault(_section_key(study), []).append((number, study, labels[number]))
    names = _data_names([members[-1][1] for members in groups.values()])
    sections = [_merged(members, name) for members, name in zip(groups.values(), names, strict=True)]
    sections.sort(key=lambda section: -section.number)
    hidden = len(studies) - 1 - len(others)
    lines = [*_lines(kept, last, sections), *_lines_hidden(hidden, "a multiverse is shown alone")]
    return Union(tuple(sections), tuple(lines))


def _lines(kept: Sequence[Manifest], last: Manifest, sections: Sequence[Section]) -> list[str]:
    if len(kept) == 1:
        part = "The last study is part of an earlier one in this folder, which is shown. The last alone: --only."
        return [part] if last not in kept else []
    lines = [f"{len(kept)} studies were run into this folder; all are shown. Only the last: --only, or only=True."]
    apart = [s.manifest["data"]["name"] for s in sections if s.manifest["data"]["name"] != s.data]
    if apart:
        lines.append(f"Ranked apart, because target, seed or samples differ: {'; '.join(apart)}.")
    if not all(section.complete for section in sections):
        lines.append("Not every method was measured under every metric (–); a run that names both fills the gaps.")
    return lines


def _lines_hidden(hidden: int, why: str) -> tuple[str, ...]:
    if not hidden:
        return ()
    return (f"{hidden} more {'study' if hidden == 1 else 'studies'} in this folder not shown: {why}.",)


# -- what is what -------------------------------------------------------------------------------------------


def _component_keys(study: Manifest, kind: str) -> list[Key]:
    """What each method or metric of a study is, whatever its label; two of a kind are counted."""
    keys: list[Key] = []
    for entry in study[kind]:
        key = (kind, entry["name"], _beside(study, kind, entry))
        keys.append((*key, sum(1 for known in keys if known[:3] == key)))
    return keys


def _beside(study: Manifest, kind: str, entry: Mapping[str, Any]) -> tuple[str, ...]:
    """What else decides a metric: the metrics that it adds up, or the models that it compares."""
    if kind == "methods":
        return ()
    if entry.get("family") == "composite":
        return tuple(m["name"] for m in study["metrics"] if m is not entry and m.get("family") != "composite")
    filed = [record for model in study["models"] for record in model["metrics"] if record["label"] == entry["label"]]
    if any(record["digest"] != digest(record["identity"]) for record in filed):
        return tuple(sorted(model["name"] for model in study["models"]))
    return ()


def _model_keys(study: Manifest) -> list[Key]:
    keys: list[Key] = []
    for model in study["models"]:
        key = ("models", model["identity"])
        keys.append((*key, sum(1 for known in keys if known[:2] == key)))
    return keys


def _own_labels(study: Manifest) -> dict[Key, str]:
    labels = dict(zip(_model_keys(study), (m["name"] for m in study["models"]), strict=True))
    for kind in KINDS:
        labels |= dict(zip(_component_keys(study, kind), (c["label"] for c in study[kind]), strict=True))
    return labels


def _cells(study: Manifest) -> set[Key]:
    """What a study asks for, apart from samples."""
    methods, metrics = (_component_keys(study, kind) for kind in KINDS)
    return {(model, method, metric) for model in _model_keys(study) for method in methods for metric in metrics}


def _rows(study: Manifest) -> frozenset[Key]:
    return frozenset((s["name"], s["digest"], s["context"], s["problem"]) for s in study["samples"])


def _section_key(study: Manifest) -> Key:
    return study["data"]["name"], str(study["target"]), study["seed"], _rows(study)


def _not_contained(studies: Sequence[Manifest]) -> list[Manifest]:
    """The studies that no other one contains. A later one also replaces samples of the same names."""
    cells, rows = [_cells(s) for s in studies], [_rows(s) for s in studies]
    names = [{row[0] for row in some} for some in rows]

    def contained(i: int, j: int) -> bool:
        if _section_key(studies[i])[:3] != _section_key(studies[j])[:3] or not cells[i] <= cells[j]:
            return False
        return names[i] <= names[j] if i < j else rows[i] <= rows[j] and not contained(j, i)

    numbers = range(len(studies))
    return [studies[i] for i in numbers if not any(contained(i, j) for j in numbers if i != j)]


# -- labels -------------------------------------------------------------------------------------------------


def _labels(studies: Sequence[Manifest]) -> list[dict[Key, str]]:
    """Each study's labels: those of the last study that has the component; where labels clash, with what differs."""
    known: dict[Key, str] = {}
    about: dict[Key, dict[str, Any]] = {}
    for study in studies:
        known |= _own_labels(study)
        for kind in KINDS:
            for key, entry in zip(_component_keys(study, kind), study[kind], strict=True):
                about[key] = _parameters(study, kind, entry)
    final: dict[Key, str] = {}
    for key, label in known.items():
        rivals = [other for other, name in known.items() if name == label and other[0] == key[0]]
        final[key] = label if len(rivals) == 1 else f"{label} ({_difference(key, rivals, about)})"
    return [{key: final[key] for key in _own_labels(study)} for study in studies]


def _difference(key: Key, rivals: Sequence[Key], about: Mapping[Key, Mapping[str, Any]]) -> str:
    """What tells a component from others with its label."""
    if key[0] == "models":
        return str(key[1])[:8]
    mine = about[key]
    others = [about[rival] for rival in rivals if rival != key]
    names = dict.fromkeys(name for parameters in (mine, *others) for name in parameters)
    differing = [n for n in names if any(mine.get(n) != other.get(n) for other in others)]
    if differing:
        return ", ".join(f"{name}={mine[name]}" for name in differing if name in mine) or str(key[1])
    return f"with {', '.join(key[2])}" if key[2] else f"number {key[3] + 1}" if key[3] else "alone"


def _parameters(study: Manifest, kind: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """A component's parameters, as some model sees it, nested ones by dotted names."""
    for model in study["models"]:
        for record in model[kind]:
            if record["label"] == entry["label"]:
                return _flat(record["identity"]["params"])
    return dict(parse(str(entry["name"])).params)


def _flat(params: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in params.items():
        if isinstance(value, Mapping) and "id" in value:
            found |= {f"{prefix}{name}": value["id"], **_flat(value.get("params", {}), f"{prefix}{name}.")}
        else:
            found[f"{prefix}{name}"] = value
    return found


def _data_names(studies: Sequence[Manifest]) -> list[str]:
    """The data set's name for each section; where several share it, with what differs."""
    names = []
    for study in studies:
        name = str(study["data"]["name"])
        kin = [other for other in studies if other["data"]["name"] == name]
        said = [f"{what}={study[what]}" for what in ("target", "seed") if len({str(other[what]) for other in kin}) > 1]
        if len({_rows(other) for other in kin}) > 1:
            n = len(study["samples"])
            said.append(f"{n} sample{'' if n == 1 else 's'}")
        names.append(f"{name} ({', '.join(said)})" if said else name)
    for i, name in enumerate(names):
        earlier = names[:i].count(name)
        if names.count(name) > 1 and earlier:
            names[i] = f"{name} #{earlier + 1}"
    return names


# -- merging ------------------------------------------------------------------------------------------------


def _merged(members: Sequence[tuple[int, Manifest, dict[Key, str]]], data: str) -> Section:
    """Studies of one section as one: a later study's word counts where they differ."""
    number, last, _ = members[-1]
    models: dict[str, dict[str, Any]] = {}
    entries: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in KINDS}
    asked: set[tuple[str, str, str]] = set()
    parts: dict[str, dict[str, str]] = {}
    for _, study, labels in members:
        named = {kind: [labels[key] for key in _component_keys(study, kind)] for kind in KINDS}
        new = {kind: dict(zip((e["label"] for e in study[kind]), named[kind], strict=True)) for kind in KINDS}
        for kind in KINDS:
            for entry, label in zip(study[kind], named[kind], strict=True):
                entries[kind][label] = {**entry, "label": label}
        ids: dict[str, str] = {}
        for entry, label in zip(study["metrics"], named["metrics"], strict=True):
            ids.setdefault(entry["id"], label)
        composites = [e["label"] for e in study["metrics"] if e.get("family") == "composite"]
        parts |= {new["metrics"][label]: ids for label in composites}
        for key, model in zip(_model_keys(study), study["models"], strict=True):
            label = labels[key]
            models[label] = _merged_model(models.get(label), {**model, "name": label}, new)
            asked |= {(label, method, metric) for method in named["methods"] for metric in named["metrics"]}
    manifest = {
        **last,
        "data": {**last["data"], "name": data},
        "models": list(models.values()),
        **{kind: list(entries[kind].values()) for kind in KINDS},
    }
    return Section(manifest, frozenset(asked), parts, str(last["data"]["name"]), number)


def _merged_model(
    before: Mapping[str, Any] | None, model: dict[str, Any], new: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    """A model's share of a study with new labels, added to its share of earlier ones."""
    filed = {kind: [{**record, "label": new[kind][record["label"]]} for record in model[kind]] for kind in KINDS}
    either = {**new["metrics"], **new["methods"]}
    skipped = {either.get(label, label): reason for label, reason in model["skipped"].items()}
    circular = [[new["methods"][method], new["metrics"][metric]] for method, metric in model["circular"]]
    if before is None:
        return {**model, **filed, "skipped": skipped, "circular": circular}
    mine = set(either.values())
    return {
        **model,
        **{kind: [*(r for r in before[kind] if r["label"] not in mine), *filed[kind]] for kind in KINDS},
        "skipped": {**_without(before["skipped"], mine), **skipped},
        "circular": _unique([*before["circular"], *circular]),
        "gallery": sorted({*before["gallery"], *model["gallery"]}),
    }


def _without(reasons: Mapping[str, str], labels: set[str]) -> dict[str, str]:
    return {label: reason for label, reason in reasons.items() if label not in labels}


def _unique(pairs: Iterable[list[str]]) -> list[list[str]]:
    return [list(pair) for pair in dict.fromkeys(tuple(pair) for pair in pairs)]
