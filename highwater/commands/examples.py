"""`highwater examples`: list or copy the example histories, schedules and client programs."""

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from highwater.errors import UsageError

SOURCES: Final = {"histories": "highwater.examples", "clients": "highwater.examples", "schedules": "highwater.fuzz"}
"""Each folder of examples, and the package that contains it."""


def source(name: str) -> Path:
    """Return the folder of this installation that holds these examples."""
    package = find_spec(SOURCES[name])
    assert package is not None
    assert package.submodule_search_locations
    return Path(next(iter(package.submodule_search_locations))) / name


def examples_command(
    folder: Annotated[
        Path | None, typer.Argument(help="Copy the examples into this folder; lists them if left out.")
    ] = None,
) -> None:
    """List the examples, or copy them: histories of real clusters, fault schedules, client programs.

    Examples: highwater examples · highwater examples examples · highwater audit examples/histories/*4.3.1*
    """
    for name in SOURCES:
        if folder is None:
            for path in sorted(source(name).iterdir()):
                if not path.name.startswith("_"):
                    typer.echo(f"{name}/{path.name}")
            continue
        target = folder / name
        if target.exists():
            raise UsageError("exists already", where=str(target), hint="give another folder")
        shutil.copytree(source(name), target, ignore=shutil.ignore_patterns("__*"))
        typer.echo(str(target))
