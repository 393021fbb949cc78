"""Programs in other languages: built into the user's cache, and rebuilt when their source changes."""

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
    """Run `tool command...` in a copy of the folder and return the copy; raise UsageError if that fails."""
    program = shutil.which(tool)
    if program is None:
        raise UsageError(f"{tool} is not on PATH", where=str(sources), mend=f"install {tool}")
    files = sorted(path for path in sources.iterdir() if path.is_file())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    path = cache_folder() / "builds" / f"{sources.name}-{digest}"
    if path.is_dir():
        return path
    print(f"Building {sources.name} with {tool}. This happens once and may take minutes.", file=sys.stderr)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as name:
        finished = Path(name) / "made"
        shutil.copytree(sources, finished)
        try:
            subprocess.run(
                [program, *command], cwd=finished, check=True, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            last = (str(error.stderr or error).strip().splitlines() or [""])[-1]
            raise UsageError(
                f"{tool} {' '.join(command)}: {last}", where=str(sources), mend="check the network and the build tool"
            ) from error
        move_into_cache(finished, path)
    return path
