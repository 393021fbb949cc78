"""An interrupted run keeps its results and is marked as incomplete."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from highwater.conformance.patterns import natural_key
from highwater.conformance.report import report_of
from highwater.conformance.runner import Interrupted, Options, run_suite
from highwater.conformance.running.verdicts import CaseResult, CaseVerdict, exit_code
from highwater.conformance.targets.reference import ReferenceCluster
from highwater.conformance.tests.listed_cases import TOGETHER, chosen
from highwater.conformance.tests.sample_reports import passed, result, target
from highwater.conformance.tests.sample_reports import report as sample
from highwater.errors import ExitCode, UsageError


def test_an_interrupted_run_reports_its_results() -> None:
    observed: list[CaseResult] = []

    def interrupt(_: str, result: CaseResult, selected: int) -> None:
        observed.append(result)
        if len(observed) == 3:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as interrupted:
        run_suite(["reference:1", "librdkafka-mock"], Options(areas=["LST"], jobs=1), interrupt)
    report = report_of(interrupted.value.report)
    assert [target.target for target in report.targets] == ["reference:1"]
    cases = report.targets[0].cases
    assert [case for case in cases[:-1] if case in observed] == sorted(
        observed, key=lambda case: natural_key(case.case)
    )
    others = {(case.verdict, case.message) for case in cases[:-1] if case not in observed}
    assert others == {(CaseVerdict.NOT_RUN, "interrupted")}
    assert cases[-1].verdict is CaseVerdict.ERROR
    assert cases[-1].message == f"interrupted; {len(cases) - 4} cases were not run"
    assert exit_code(interrupted.value.report) is ExitCode.UNDECIDED


@TOGETHER
@pytest.mark.parametrize("jobs", [1, 2])
def test_cases_that_a_dead_target_leaves_are_reported_as_not_run(jobs: int) -> None:
    """The target died in a run of 44 cases, and the report had the two that had ended."""
    with ReferenceCluster() as cluster:

        def kill(_: str, __: CaseResult, selected: int) -> None:
            cluster.kill_node(1)

        options = Options(areas=["LST"], jobs=jobs)
        report_object = run_suite([cluster.bootstrap], options, kill)
    (target,) = report_of(report_object).targets
    assert {case.case for case in target.cases} == chosen(areas=["LST"]) | {"suite"}
    not_run = [case for case in target.cases if case.verdict is CaseVerdict.NOT_RUN]
    assert len(not_run) == target.verdicts["not run"] > len(target.cases) / 2
    assert all(case.message.startswith("the target died or hangs (") for case in not_run)
    assert ("ran meanwhile: decide with --jobs 1" in not_run[0].message) == (jobs > 1)
    assert target.cases[-1].case == "suite"
    assert target.cases[-1].message == f"{not_run[0].message}; {len(not_run)} cases were not run"
    assert exit_code(report_object) in (ExitCode.VIOLATED, ExitCode.UNDECIDED)


def test_a_run_that_decides_nothing_is_undecided() -> None:
    """The exit code was 0 for 219 unsupported cases: nothing had been checked."""
    cases = [result("TXN-1", CaseVerdict.UNSUPPORTED), result("TXN-2", CaseVerdict.NOT_APPLICABLE)]
    for number in range(len(cases) + 1):
        assert exit_code(msgspec.to_builtins(sample(target("a:1", *cases[:number])))) is ExitCode.UNDECIDED
    decided = sample(target("a:1", *cases, passed("LST-1")))
    assert exit_code(msgspec.to_builtins(decided)) is ExitCode.HELD


def test_the_order_of_a_report_is_that_of_the_clauses_however_the_cases_ran() -> None:
    """It was the order in which workers ended, so that files of --write-expect differed from run to run."""
    (target,) = report_of(run_suite(["reference:1"], Options(clauses=["FRM-1", "LST-1*"], jobs=4))).targets
    names = [case.case for case in target.cases]
    assert names == sorted(names, key=natural_key)


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


def test_a_clause_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(UsageError, match="NOPE-1"):
        run_suite(["reference"], Options(clauses=["NOPE-1"], dry_run=True))
