"""Jumps of the wall clocks of running processes."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from highwater import faketime
from highwater.faketime import missing_for_clocks
from highwater.fuzz.chaos.capabilities import missing
from highwater.fuzz.chaos.clocks import Clocks
from highwater.fuzz.chaos.launch import open_cluster
from highwater.fuzz.schedule import Fault, Schedule

LACKS = missing_for_clocks()
PATIENCE_S = 60.0
CLOCK_SCRIPT = "import sys, time\nfor _ in sys.stdin: print(time.time() - time.monotonic(), flush=True)"


class ClockProcess:
    """A process that prints the difference between its wall clock and its monotonic clock, in seconds."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("?\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def await_offset(self, offset_s: float, truth: float) -> bool:
        """Wait until the process sees an offset of its wall clock; it reads the offset file only every second."""
        deadline = time.monotonic() + PATIENCE_S
        while abs(self() - truth - offset_s) > 60 and time.monotonic() < deadline:
            time.sleep(0.05)
        return time.monotonic() < deadline


@contextmanager
def clock_process(environment: dict[str, str]) -> Iterator[ClockProcess]:
    command = [sys.executable, "-c", CLOCK_SCRIPT]
    with subprocess.Popen(command, env=environment, stdin=-1, stdout=-1, text=True, bufsize=1) as process:
        yield ClockProcess(process)
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.skipif(bool(LACKS), reason=f"needs {LACKS}")
def test_clock_jumps_of_a_node_add_up_and_are_undone_one_by_one(tmp_path: Path) -> None:
    clocks = Clocks(tmp_path, ["1", "2"])
    jump = clocks.faults()["clock"]
    truth = time.time() - time.monotonic()
    with clock_process(clocks.environment("1")) as first, clock_process(clocks.environment("2")) as second:
        assert first.await_offset(0, truth)
        forth = jump(Fault(at_ms=0, kind="clock", nodes=("1",), options={"by_ms": 7_200_000}), "1")
        back = jump(Fault(at_ms=0, kind="clock", nodes=("1",), options={"by_ms": 600_000, "back": 1}), "1")
        assert first.await_offset(6_600, truth)
        assert second.await_offset(0, truth)
        forth()
        assert first.await_offset(-600, truth)
        back()
        assert first.await_offset(0, truth)


def test_without_libfaketime_the_clock_fault_is_unsupported_and_the_package_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(faketime, "PLACES", ("/nowhere",))
    with open_cluster("reference:1", Schedule(duration_ms=1), clocks=True) as cluster:
        assert "clock" not in cluster.faults
        assert missing(cluster, "clock").endswith("libfaketime (apt-get install faketime)")
