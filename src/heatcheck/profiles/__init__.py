"""Settings that belong together, as data: which methods and metrics run, on which target, with which parameters.

A profile is a TOML file in this folder. What a user writes always beats what a profile says. Where a paper sets things
otherwise for one modality, a table named after it (`[text]`, `[text.method.lime]`) takes the place of what the file says
for all; a list `on` names the modalities that the settings are for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from heatcheck.core import toml
from heatcheck.core.catalogue import KINDS, NESTED, find, modalities
from heatcheck.core.spec import Spec, SpecError, parse, suggest

FOLDER = Path(__file__).parent
OTHER_NAMES = {"idsds": "sds"}
"""Names that a component has on some models only, and its own name."""


@dataclass(frozen=True)
class Profile:
    """A named set of settings.

    Args:
        name: its id.
        note: what a reader of the results must know about it.
        methods: the methods that run where none are named.
        metrics: likewise.
        target: the class that is explained where none is named.
        params: parameters by kind and component id, used where a spec names none.
        aliases: other names for specs, such as a paper's own labels.
        paper: whether these are the settings of a paper; all its metrics then count in the mean rank.
        on: the modalities that the settings are for.
    """

    name: str
    note: str
    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    target: str = "predicted"
    params: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    paper: bool = False
    on: tuple[str, ...] = ()

    def spec(self, written: str) -> str:
        """The spec behind an alias, with the component's own name; anything else as it is.

        Parameters after an alias change those of its spec. What cannot be read is left to whoever checks it.

        >>> load_profile("m4").spec("random_7(grid=5, post=abs)")
        'random(grid=5, post=abs)'
        """
        name, bracket, rest = written.strip().partition("(")
        behind = self.aliases.get(name.strip())
        if behind is None or not bracket:
            return own_name(behind or written)
        meant = parse(behind)
        try:
            changed = parse(f"{meant.id}({rest}").params
        except SpecError:
            return f"{meant.id}({rest}"
        return own_name(str(Spec(meant.id, {**meant.params, **changed})))

    def apply(self, kind: str, written: str) -> str:
        """A spec with this profile's parameters under those that are written, nested components included.

        The result names parameters in the order of their declaration, and applying the profile to it again
        changes nothing.

        >>> load_profile("quick").apply("method", "rise")                  # doctest: +SKIP
        'rise(samples=128)'
        """
        spec = parse(self.spec(written))
        entry = find(kind, spec.id)
        given = {**self.params.get(kind, {}).get(spec.id, {}), **spec.params}
        for name in entry.params.keys() & NESTED.keys():
            default = entry.default(name)
            inner = given.get(name, default)
            if isinstance(inner, str) and inner != "auto":
                applied = self.apply(NESTED[name], inner)
                if name in given or applied != default:
                    given[name] = applied
        order = [*entry.params, *sorted(given.keys() - entry.params.keys())]
        return str(Spec(spec.id, {name: given[name] for name in order if name in given}))


def own_name(written: str) -> str:
    """A spec by the name that its component has on every model.

    >>> own_name("idsds(units=grid(8))")
    'sds(units=grid(8))'
    """
    id, bracket, rest = written.partition("(")
    return OTHER_NAMES[id.strip()] + bracket + rest if id.strip() in OTHER_NAMES else written


def names() -> list[str]:
    """The profiles there are."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


@cache
def load_profile(name: str, modality: str = "") -> Profile:
    """A profile by name, as it is on a modality; without one, what its file says for all.

    Raises:
        SpecError: there is none of that name, or its settings are for another modality.
    """
    if name not in names():
        raise SpecError(f"no profile is called {name!r}{suggest(name, names())}")
    said = _read(name)
    on = tuple(said.get("on", modalities()))
    if modality and modality not in on:
        others = [other for other in names() if modality in _read(other).get("on", modalities())]
        raise SpecError(
            f"profile {name!r} has its paper's settings for {' and '.join(f'{m}s' for m in on)}, and the data are "
            f"{modality}s; profiles for these are {', '.join(others)}"
        )
    said = _over(said, said.get(modality, {}))
    return Profile(
        name=name,
        note=said["note"],
        methods=tuple(said["methods"]),
        metrics=tuple(said["metrics"]),
        target=said["target"],
        params={kind: said.get(kind, {}) for kind in KINDS},
        aliases=said.get("aliases", {}),
        paper=said.get("paper", False),
        on=on,
    )


def is_paper(name: str) -> bool:
    """Whether a profile has the settings of a paper; False for a name that no profile has."""
    return name in names() and load_profile(name).paper


def _read(name: str) -> dict[str, Any]:
    """A profile's file over the one it extends, the tables of each modality included."""
    said = toml.read(FOLDER / f"{name}.toml").values
    base = _read(said.pop("extends")) if "extends" in said else {}
    special = {m: _over(base.get(m, {}), said.get(m, {})) for m in modalities() if m in base or m in said}
    return {**_over(base, said), **special}


def _over(base: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """Settings over others; tables of components and aliases are merged."""
    tables = {k: {**base.get(k, {}), **said.get(k, {})} for k in (*KINDS, "aliases")}
    return {**base, **said, **tables}
