"""Programs in other languages, built once into the user's cache; a change of their source builds them anew."""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from spec.artefacts import cache_folder, move_into_cache
from spec.formats.verdict import UsageError

BUILD_TIMEOUT_S: Final = 600


def build(sources: Path, tool: str, *command: str) -> Path:
    """A copy of the folder with what `tool command...` made in it. UsageError when the tool is missing or fails."""
    program = shutil.which(tool)
    if program is None:
        raise UsageError(f"{tool} is not on PATH", where=str(sources), mend=f"install {tool}")
    files = sorted(path for path in sources.iterdir() if path.is_file())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    place = cache_folder() / "builds" / f"{sources.name}-{digest}"
    if place.is_dir():
        return place
    print(f"building {sources.name} with {tool}, once; it may take minutes", file=sys.stderr)
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as name:
        made = Path(name) / "made"
        shutil.copytree(sources, made)
        try:
            subprocess.run(
                [program, *command], cwd=made, check=True, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            last = (str(error.stderr or error).strip().splitlines() or [""])[-1]
            raise UsageError(
                f"{tool} {' '.join(command)}: {last}", where=str(sources), mend="is there a network?"
            ) from error
        move_into_cache(made, place)
    return place
