"""libfaketime: the wall clock of one process, moved while it runs. Timers, which are monotonic, stay as they are."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PLACES: Final = ("/usr/lib", "/usr/lib64", "/usr/local/lib")
LIBRARY: Final = "faketime/libfaketimeMT.so.1"  # the one for programs with threads
HOW: Final = "apt-get install faketime"
DAY_S: Final = 86_400
TRY_TIMEOUT_S: Final = 20


def faketime_library() -> Path | None:
    """Where a distribution puts it: in a folder of its own, below that of the architecture on Debian."""
    found = [path for place in PLACES for pattern in (LIBRARY, f"*/{LIBRARY}") for path in Path(place).glob(pattern)]
    return found[0] if found else None


def faketime_environment(library: Path) -> dict[str, str]:
    """What every process needs whose wall clock is to move.

    Without the last it takes waits on condition variables for waits by the wall clock: a JVM hangs at its start.
    """
    alone = {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_FORCE_MONOTONIC_FIX": "0"}
    return {"LD_PRELOAD": str(library), **alone}


def missing_for_clocks() -> str:
    """What this machine lacks; empty when a process believed in a clock that was moved by a day."""
    library = faketime_library()
    if library is None:
        return f"libfaketime ({HOW})"
    told = [_date({**faketime_environment(library), "FAKETIME": offset}) for offset in ("+0", f"+{DAY_S}")]
    return "" if DAY_S <= told[1] - told[0] < 2 * DAY_S else f"a libfaketime that moves clocks; {library} does not"


def _date(environment: Mapping[str, str]) -> int:
    """Seconds since 1970, as a process sees them."""
    command = ["date", "+%s"]
    shown = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=TRY_TIMEOUT_S, check=True
    )
    return int(shown.stdout)
