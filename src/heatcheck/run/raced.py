"""Which studies of a folder are looks of a race: their number of samples was decided by looking at scores."""

from collections.abc import Iterable
from typing import Any

from heatcheck.run.union import Section

RACE = "race"
"""In a study's own record: what the race was to find, and how many samples its benchmark has."""


def races(sections: Iterable[Section]) -> list[dict[str, Any]]:
    """What each section that a race was the last to run says of it: data, models, goal, margin, samples so far and of all."""
    return [
        {
            "data": str(section.manifest["data"]["name"]),
            "source": section.data,
            "models": [str(model["name"]) for model in section.manifest["models"]],
            "n": len(section.manifest["samples"]),
            **record,
        }
        for section in sections
        if (record := section.manifest["study"].get(RACE))
    ]
