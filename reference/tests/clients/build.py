"""Builds the client programs on first use."""

import subprocess
from pathlib import Path

import pytest

from highwater.artefacts import build
from highwater.errors import UsageError

SOURCES = Path(__file__).parent


def built(folder: str, tool: str, *command: str) -> Path:
    """Build the program in `folder` with `tool` and return its build folder; skip the test if that fails."""
    try:
        return build(SOURCES / folder, tool, *command)
    except UsageError as error:
        pytest.skip(str(error))


def run(*command: str | Path, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3_000:]
    return ended


def expected(*prefixes: str, count: int = 20) -> list[str]:
    return [f"{prefix} {number}" for prefix in prefixes for number in range(count)]
