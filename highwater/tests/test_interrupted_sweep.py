"""An interrupted sweep of the simulator ends with its processes, and what it found until then is reported."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import highwater.results
from highwater.commands.simulate import _exit_code
from highwater.errors import ExitCode
from highwater.fuzz.simulator.cluster import Settings
from highwater.fuzz.simulator.guard_focus import settings_without_guard
from highwater.fuzz.simulator.sweep import print_summary, simulate
from highwater.tests.running import PATIENCE_S, cpu_s, members, wait_until

IMPORTS_CPU_S = 3.0
"""More than the command takes until it sweeps."""


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_sweep_that_is_interrupted_leaves_no_process(number: signal.Signals, jobs: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "highwater", "simulate", "--seeds", "0:10000", "--jobs", str(jobs)]
    sweep = subprocess.Popen(
        command, cwd=tmp_path, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        if jobs > 1:
            assert wait_until(lambda: len(members(sweep.pid)) == jobs + 1)
        else:
            assert wait_until(lambda: cpu_s(sweep.pid) > IMPORTS_CPU_S)
        sweep.send_signal(number)
        output, _ = sweep.communicate(timeout=PATIENCE_S)
        assert wait_until(lambda: not members(sweep.pid)), members(sweep.pid)
        if number is not signal.SIGKILL:
            assert sweep.returncode == ExitCode.UNDECIDED, output
            assert "nterrupted" in output
    finally:
        for member in members(sweep.pid):
            os.kill(int(member), signal.SIGKILL)


def test_a_violation_that_was_found_before_an_interruption_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def interrupted(what: str, total: int, *, quiet: bool = False) -> Iterator[Callable[[], None]]:
        def step() -> None:
            raise KeyboardInterrupt

        yield step

    monkeypatch.setattr(highwater.results, "progress", interrupted)
    summary = simulate(range(1), settings_without_guard("AckAfterCommit", Settings()), jobs=1)
    print_summary(summary, as_json=False)
    assert [finding["seed"] for finding in summary["findings"]] == [0]
    assert _exit_code(summary, None) == ExitCode.VIOLATED
    printed = capsys.readouterr().out
    assert "highwater simulate --seeds 0:1 --guard-off AckAfterCommit" in printed
    assert "1 violated an invariant until it was interrupted" in printed
