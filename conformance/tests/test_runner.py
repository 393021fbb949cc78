"""An interrupted run keeps its results and is marked as incomplete."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from highwater.conformance.report import report_of
from highwater.conformance.runner import Interrupted, Options, run_suite
from highwater.conformance.verdicts import CaseResult, CaseVerdict, exit_code
from highwater.errors import ExitCode


def test_an_interrupted_run_reports_its_results() -> None:
    observed: list[CaseResult] = []

    def interrupt(_: str, result: CaseResult) -> None:
        observed.append(result)
        if len(observed) == 3:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as interrupted:
        run_suite(["reference:1", "librdkafka-mock"], Options(areas=["LST"], jobs=1), interrupt)
    report = report_of(interrupted.value.report)
    assert [target.target for target in report.targets] == ["reference:1"]
    assert report.targets[0].cases[:-1] == observed
    assert report.targets[0].cases[-1].verdict is CaseVerdict.ERROR
    assert exit_code(interrupted.value.report) is ExitCode.UNDECIDED


def test_an_aborted_suite_is_an_error() -> None:
    report = run_suite(["reference:1"], Options(areas=["LST"], jobs=1, level="nonsense"))
    assert [case["verdict"] for case in report["targets"][0]["cases"]] == ["error"]
    assert "pytest ended with exit code 4" in report["targets"][0]["cases"][0]["message"]
    assert exit_code(report) is ExitCode.UNDECIDED


def test_sigterm_ends_all_processes_and_reports_results() -> None:
    command = [sys.executable, "-m", "highwater", "conform", "reference:1", "--json", "--area", "TXN", "--jobs", "2"]
    command += ["--clusters", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        family: set[int] = set()
        while len(family) < 10 and run.poll() is None:  # pytest, three workers, two supervisors, stores and brokers
            time.sleep(0.1)
            family = descendants(run.pid)
        run.send_signal(signal.SIGTERM)
        reported, _ = run.communicate(timeout=60)
    assert run.returncode == ExitCode.UNDECIDED
    assert json.loads(reported)["targets"][0]["cases"][-1]["verdict"] == "error"
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in family) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [pid for pid in family if Path(f"/proc/{pid}").exists()] == []


def descendants(pid: int) -> set[int]:
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return set()
    return {int(child) for child in listed}.union(*(descendants(int(child)) for child in listed))


def test_a_module_that_cannot_be_imported_is_an_error_of_the_suite(tmp_path: Path) -> None:
    """Without its cases the run would look complete: once it ended with `no case` and without a reason."""
    (tmp_path / "test_broken.py").write_text("raise ValueError('no such clause')\n")
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "pytest", "-p", "highwater.conformance.plugin", str(tmp_path), "--hw-jobs=2"]
    arguments = ["--hw-target=reference:1", f"--hw-report-fd={writer}", "--override-ini=addopts="]
    ended = subprocess.run([*command, *arguments], cwd=tmp_path, pass_fds=[writer], capture_output=True, check=False)
    os.close(writer)
    with os.fdopen(reader) as lines:
        events = [json.loads(line) for line in lines]
    messages = {event["unreadable"] for event in events if "unreadable" in event}
    assert messages == {"test_broken.py has no cases: E   ValueError: no such clause"}, ended.stdout
