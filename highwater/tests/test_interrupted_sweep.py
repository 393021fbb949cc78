"""An interrupted sweep of the simulator ends with its processes, and what it found until then is reported."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from highwater.errors import ExitCode

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


def is_sweeping(pid: int) -> bool:
    """Return whether the process handles SIGTERM, as it does while it sweeps."""
    caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> signal.SIGTERM - 1 & 1)


def wait_until(condition: object) -> bool:
    assert callable(condition)
    end = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    return bool(condition())


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_sweep_that_is_interrupted_leaves_no_process(number: signal.Signals, jobs: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "highwater", "simulate", "--seeds", "0:10000", "--jobs", str(jobs)]
    sweep = subprocess.Popen(
        command, cwd=tmp_path, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert wait_until(lambda: is_sweeping(sweep.pid))
        assert wait_until(lambda: len(members(sweep.pid)) == (jobs + 1 if jobs > 1 else 1))
        sweep.send_signal(number)
        output, _ = sweep.communicate(timeout=PATIENCE_S)
        assert wait_until(lambda: not members(sweep.pid)), members(sweep.pid)
        if number is not signal.SIGKILL:
            assert sweep.returncode == ExitCode.UNDECIDED, output
            assert "nterrupted" in output
    finally:
        for member in members(sweep.pid):
            os.kill(int(member), signal.SIGKILL)
