"""Every paper that a unit names is known, and every known paper is named."""

from heatcheck.core import catalogue
from heatcheck.core.papers import PAPERS, keys, references


def shipped(kind: str) -> list[catalogue.Entry]:
    """What comes with the package; other tests may have added units of their own."""
    return [e for e in catalogue.entries(kind).values() if e.module.startswith("heatcheck.")]


def named() -> set[str]:
    return {key for kind in catalogue.KINDS for entry in shipped(kind) for key in keys(entry.note("Paper"))}


def test_every_paper_is_known_and_used():
    assert named() == set(PAPERS)


def test_every_contestant_names_a_paper():
    silent = [e.id for e in shipped("method") if not keys(e.note("Paper")) and not e.facts["control"]]
    assert silent == []


def test_references_say_who_and_where():
    assert references("bach2015, montavon2019.") == [PAPERS["bach2015"], PAPERS["montavon2019"]]
    assert references("achtibat2024; cp: ali2022") == [PAPERS["achtibat2024"], PAPERS["ali2022"]]
    assert references("someone2031") == ["someone2031"]
    assert references("") == []
