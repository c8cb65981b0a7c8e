"""Files that installed packages carry, found without importing the packages."""

from importlib.util import find_spec
from pathlib import Path

from heatcheck.core.extras import PACKAGES, require
from heatcheck.core.types import HeatcheckError


def package_folder(what: str, package: str, inside: str) -> Path:
    """A folder inside an installed package.

    Args:
        what: who needs it, as a sentence begins.
        package: the name it is imported by.
        inside: the folder within it.
    """
    require(what, package)
    spec = find_spec(package)
    for place in (spec.submodule_search_locations if spec is not None else None) or ():
        if (folder := Path(place) / inside).is_dir():
            return folder
    name = PACKAGES[package][0]
    raise HeatcheckError(
        f"{what} needs the folder {inside} of {name}, and the installed {name} has none: "
        f"pip install --force-reinstall {name}"
    )
