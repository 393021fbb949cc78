"""The core has no I/O: it imports no module for time, randomness or sockets."""

import ast
from pathlib import Path

import pytest

CORE = Path(__file__).parent.parent
BANNED = {
    "time",
    "random",
    "socket",
    "asyncio",
    "threading",
    "os",
    "uuid",
    "datetime",
    "select",
    "secrets",
    "subprocess",
}
OUTSIDE = {"drivers", "client", "tools", "tests"}  # these run the core, send requests to it, or test it
SOURCES = [
    path for path in sorted(CORE.rglob("*.py"))
    if path.relative_to(CORE).parts[0] not in OUTSIDE and path.name != "command_line.py"
]  # fmt: skip


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


def test_the_core_has_modules() -> None:
    assert len(SOURCES) > 50


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(CORE)))
def test_the_core_imports_no_io(path: Path) -> None:
    assert not imported(path) & BANNED
    if path.parent != CORE / "wire":
        assert not any(name.startswith("highwater.reference.drivers") for name in path.read_text().split())


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(CORE)))
def test_no_function_of_the_core_is_too_long(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 70, f"{path}:{node.lineno} {node.name}"
