"""libfaketime: shift the wall clock of a running process. Its monotonic clock, and so its timers, do not change."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PLACES: Final = ("/usr/lib", "/usr/lib64", "/usr/local/lib")
LIBRARY: Final = "faketime/libfaketimeMT.so.1"  # the one for programs with threads
INSTALL_HINT: Final = "apt-get install faketime"
DAY_S: Final = 86_400
TRY_TIMEOUT_S: Final = 20


def faketime_library() -> Path | None:
    """Return the path of libfaketime, or None; on Debian it is below the folder of the architecture."""
    found = [path for place in PLACES for pattern in (LIBRARY, f"*/{LIBRARY}") for path in Path(place).glob(pattern)]
    return found[0] if found else None


def faketime_environment(library: Path) -> dict[str, str]:
    """Return the environment variables of a process whose wall clock is to be shifted.

    Without `FAKETIME_FORCE_MONOTONIC_FIX=0` libfaketime applies the shift to waits on condition variables too, and a
    JVM hangs at its start.
    """
    monotonic = {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_FORCE_MONOTONIC_FIX": "0"}
    return {"LD_PRELOAD": str(library), **monotonic}


def missing_for_clocks() -> str:
    """Return what is missing to shift clocks, or an empty string if a test process saw a clock shifted by a day."""
    library = faketime_library()
    if library is None:
        return f"libfaketime ({INSTALL_HINT})"
    dates = [_date({**faketime_environment(library), "FAKETIME": offset}) for offset in ("+0", f"+{DAY_S}")]
    return "" if DAY_S <= dates[1] - dates[0] < 2 * DAY_S else f"a libfaketime that shifts clocks; {library} does not"


def _date(environment: Mapping[str, str]) -> int:
    """Return the wall clock, in seconds since 1970, that a process sees with this environment."""
    command = ["date", "+%s"]
    shown = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=TRY_TIMEOUT_S, check=True
    )
    return int(shown.stdout)
