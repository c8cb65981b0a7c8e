"""Every paper that a unit names is known, and every known paper is named."""

from heatcheck import catalogue
from heatcheck.papers import PAPERS, keys, references


def named() -> set[str]:
    return {
        key
        for kind in catalogue.KINDS
        for entry in catalogue.entries(kind).values()
        for key in keys(entry.note("Paper"))
    }


def test_every_paper_is_known_and_used():
    assert named() == set(PAPERS)


def test_every_contestant_names_a_paper():
    silent = [
        e.id for e in catalogue.entries("method").values() if not keys(e.note("Paper")) and not e.facts["control"]
    ]
    assert silent == []


def test_references_say_who_and_where():
    assert references("bach2015, montavon2019.") == [PAPERS["bach2015"], PAPERS["montavon2019"]]
    assert references("achtibat2024; cp: ali2022") == [PAPERS["achtibat2024"], PAPERS["ali2022"]]
    assert references("someone2031") == ["someone2031"]
    assert references("") == []
