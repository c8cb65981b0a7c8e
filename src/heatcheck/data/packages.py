"""Files that installed packages carry, found without importing the packages."""

import importlib.util
from pathlib import Path

from heatcheck.core.types import HeatcheckError


def package_folder(package: str, inside: str, install: str) -> Path:
    """A folder inside an installed package.

    Args:
        package: the name it is imported by.
        inside: the folder within it.
        install: the arguments of `pip install` that install it.
    """
    spec = importlib.util.find_spec(package)
    places = spec.submodule_search_locations if spec is not None else None
    for place in places or ():
        if (folder := Path(place) / inside).is_dir():
            return folder
    state = "is not installed" if not places else f"is installed, but has no folder {inside!r}"
    raise HeatcheckError(f"package {package} {state}, and its files are needed here: pip install {install}")
