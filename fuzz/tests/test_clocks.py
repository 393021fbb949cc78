"""Wall clocks of real processes, moved while they run."""

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
from highwater.fuzz.chaos.launch import open_field
from highwater.fuzz.schedule import Fault, Schedule

LACKS = missing_for_clocks()
PATIENCE_S = 60.0
TELLS = "import sys, time\nfor _ in sys.stdin: print(time.time() - time.monotonic(), flush=True)"


class Teller:
    """A process that says how far its wall clock is from the monotonic one."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("?\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def until_off_by(self, off_s: float, truth: float) -> bool:
        """It sees a jump late, and asking once more costs nothing."""
        deadline = time.monotonic() + PATIENCE_S
        while abs(self() - truth - off_s) > 60 and time.monotonic() < deadline:
            time.sleep(0.05)
        return time.monotonic() < deadline


@contextmanager
def teller(environment: dict[str, str]) -> Iterator[Teller]:
    command = [sys.executable, "-c", TELLS]
    with subprocess.Popen(command, env=environment, stdin=-1, stdout=-1, text=True, bufsize=1) as process:
        yield Teller(process)
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.skipif(bool(LACKS), reason=f"needs {LACKS}")
def test_jumps_add_up_end_one_by_one_and_move_no_timer(tmp_path: Path) -> None:
    clocks = Clocks(tmp_path, ["1", "2"])
    jump = clocks.faults()["clock"]
    truth = time.time() - time.monotonic()
    with teller(clocks.environment("1")) as first, teller(clocks.environment("2")) as second:
        assert first.until_off_by(0, truth)
        forth = jump(Fault(at_ms=0, kind="clock", nodes=("1",), options={"by_ms": 7_200_000}), "1")
        back = jump(Fault(at_ms=0, kind="clock", nodes=("1",), options={"by_ms": 600_000, "back": 1}), "1")
        assert first.until_off_by(6_600, truth)
        assert second.until_off_by(0, truth)
        forth()
        assert first.until_off_by(-600, truth)
        back()
        assert first.until_off_by(0, truth)


def test_without_the_library_the_fault_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faketime, "PLACES", ("/nowhere",))
    with open_field("reference:1", Schedule(duration_ms=1), clocks=True) as field:
        assert "clock" not in field.faults
        assert missing(field, "clock").endswith("libfaketime (apt-get install faketime)")
