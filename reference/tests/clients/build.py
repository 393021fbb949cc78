"""The little programs, built once into the user's cache; a change of their source builds them anew."""

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from spec.artefacts import cache_folder, move_into_cache

SOURCES = Path(__file__).parent
BUILD_TIMEOUT_S = 400


def built(folder: str, tool: str, *command: str) -> Path:
    """Where the sources of `folder` stand, with what the command made of them; skips where that cannot be had."""
    program = shutil.which(tool)
    if program is None:
        pytest.skip(f"{tool} is not on PATH")
    files = sorted(path for path in (SOURCES / folder).iterdir() if path.is_file())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    place = cache_folder() / "clients" / f"{folder}-{digest}"
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as name:
        made = Path(name) / "made"
        shutil.copytree(SOURCES / folder, made)
        try:
            subprocess.run(
                [program, *command], cwd=made, check=True, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            last = str(error.stderr or error).strip().splitlines()[-1:]
            pytest.skip(f"{tool} {' '.join(command)} failed here, is there a network? {last}")
        move_into_cache(made, place)
    return place


def run(*command: str | Path, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3_000:]
    return ended


def expected(*prefixes: str, count: int = 20) -> list[str]:
    return [f"{prefix} {number}" for prefix in prefixes for number in range(count)]
