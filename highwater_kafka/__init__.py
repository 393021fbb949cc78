"""The distribution `highwater-kafka`: its name, its version, and how to install its extras.

Since September 2026 the package index has an unrelated distribution named `highwater`, with a package of that name. If
it is installed, its `highwater/__init__.py` replaces ours or hides it. So this package is outside of `highwater`, below
all of its layers, and imports it only inside functions: the entry points (`command`, `pytest_plugin`) and the check for
the other distribution (`collision`) work whatever `highwater` is.
"""

from typing import Final

DISTRIBUTION: Final = "highwater-kafka"
"""The name by which installers know the project. `highwater/__init__.py` has it, too, which shows that it is ours."""
OTHER: Final = "highwater"
"""The name of the unrelated distribution, which no hint may name."""


def install_hint(extra: str) -> str:
    """Return the command that installs an extra of `pyproject.toml`."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def installed_version() -> str:
    """Return the version of the installed distribution, or `not installed`, as in a folder on PYTHONPATH."""
    from importlib import metadata  # late: it takes longer to import than all of a command's help takes

    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "not installed"
