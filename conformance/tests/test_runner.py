"""A run that is broken off keeps what it has, and cannot be mistaken for a whole one."""

import pytest

from conformance.report import report_of
from conformance.runner import Interrupted, Options, run_suite
from conformance.verdicts import CaseResult, CaseVerdict, exit_code
from spec.formats.verdict import ExitCode


def test_an_interrupted_run_tells_what_was_run() -> None:
    seen: list[CaseResult] = []

    def interrupt(_: str, result: CaseResult) -> None:
        seen.append(result)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as interrupted:
        run_suite(["reference:1", "librdkafka-mock"], Options(areas=["LST"], jobs=1), interrupt)
    report = report_of(interrupted.value.report)
    assert [target.target for target in report.targets] == ["reference:1"]
    assert report.targets[0].cases[:-1] == seen
    assert report.targets[0].cases[-1].verdict is CaseVerdict.ERROR
    assert exit_code(interrupted.value.report) is ExitCode.UNDECIDED


def test_a_suite_that_breaks_off_is_an_error() -> None:
    report = run_suite(["reference:1"], Options(areas=["LST"], jobs=1, level="nonsense"))
    assert [case["verdict"] for case in report["targets"][0]["cases"]] == ["error"]
    assert "pytest's code 4" in report["targets"][0]["cases"][0]["message"]
    assert exit_code(report) is ExitCode.UNDECIDED
