"""What tests of interruptions ask about running processes; Linux only."""

import os
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_S = 30


def members(group: int) -> list[str]:
    """Return the ids of the running processes of a process group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(stat.parent.name)
    return found


def cpu_s(pid: int) -> float:
    """Return the processor time of a process in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_until(condition: Callable[[], bool]) -> bool:
    """Return whether the condition became true in time."""
    end = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    return condition()
