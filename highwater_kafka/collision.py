"""Detect the unrelated distribution `highwater`, whose files replace or hide ours.

Installers do not reject two distributions that own the same file: the one that is installed last overwrites it. Beside
an editable installation both packages remain, and Python imports the one in `site-packages`.
"""

import os
import sys
from collections.abc import Sequence
from typing import Final

from highwater_kafka import DISTRIBUTION, OTHER

REMEDY: Final = f"run `pip uninstall {OTHER}`, then install {DISTRIBUTION} again with --force-reinstall"
INFO: Final = ".dist-info"


def collision() -> str | None:
    """Return what was found of the other distribution and where, or None if nothing was."""
    return _installed_beside(sys.path) or _imported_instead()


def collision_line() -> str | None:
    """Return what `collision` finds and what to do, as one line for standard error; None if all is well."""
    found = collision()
    return found and f"highwater: {found}; {REMEDY}"


def _installed_beside(path: Sequence[str]) -> str | None:
    """Look for the metadata of the other distribution by file names: importlib.metadata takes 20 ms to import."""
    for folder in path:
        try:
            names = os.listdir(folder or os.curdir)  # noqa: PTH208  pathlib takes 3 ms to import
        except OSError:  # an archive, or a folder that does not exist
            continue
        for name in names:
            other, _, rest = name.partition("-")
            if other.lower() == OTHER and rest.endswith(INFO):  # in ours, the name has an underscore: highwater_kafka-
                return (
                    f"Another distribution, {OTHER} {rest.removesuffix(INFO)}, is installed in {folder}, "
                    f"and owns highwater/__init__.py as {DISTRIBUTION} does"
                )
    return None


def _imported_instead() -> str | None:
    """Examine the package that was imported: without its metadata, a file of the other distribution may be left."""
    package = sys.modules.get("highwater")
    if package is None or getattr(package, "DISTRIBUTION", None) == DISTRIBUTION:
        return None
    places = [getattr(package, "__file__", None), *getattr(package, "__path__", ())]  # no file: __init__.py is missing
    place = next(filter(None, places), "an unknown place")
    return f"The package highwater, imported from {place}, is not that of {DISTRIBUTION}, or is incomplete"
