"""pytest hooks that import our test modules under their installed names, such as `highwater.spec.tests.test_tlc`.

The five folders at the top level of the repository are packages of `highwater`. pytest derives the name of a module
from its path, and would import `spec/tests/test_tlc.py` as `spec.tests.test_tlc`: a second copy of `highwater.spec`.
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

PACKAGES: Final = (
    "highwater.spec", "highwater.reference", "highwater.conformance", "highwater.fuzz", "highwater.reports",
    "highwater",
)  # fmt: skip


@cache
def _folders() -> dict[Path, str]:
    """Return the package that each folder holds, the innermost first."""
    found = {}
    for package in PACKAGES:
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            found[Path(folder)] = package
    return found


def dotted_name(path: Path) -> str | None:
    """Return the name under which a file or folder of ours is imported, or None for a path of another project."""
    for folder, package in _folders().items():
        if path.is_relative_to(folder):
            return ".".join((package, *path.relative_to(folder).parts)).removesuffix(".py")
    return None


class NamedModule(pytest.Module):
    """A test module that is imported by name, so that helpers and tests share one copy of every package."""

    def _getobj(self) -> ModuleType:
        name = dotted_name(self.path)
        assert name is not None
        return import_module(name)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if dotted_name(module_path) is None:
        return None
    module: pytest.Module = NamedModule.from_parent(parent, path=module_path)
    return module


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect our packages as plain folders: pytest would import the `__init__` of a package under its path's name."""
    if dotted_name(path) is None or not (path / "__init__.py").exists():
        return None
    folder: pytest.Collector = pytest.Dir.from_parent(parent, path=path)
    return folder
