"""A cluster of the reference broker keeps every clause, but for cases that wait for time-outs: `.ci/run` has those."""

import pytest

from highwater.conformance.runner import Options, run_suite
from highwater.conformance.verdicts import exit_code
from highwater.errors import ExitCode


@pytest.mark.long
def test_three_reference_brokers_keep_every_clause() -> None:
    report = run_suite(["reference:3"], Options(no_slow=True))
    broken = [
        case for case in report["targets"][0]["cases"] if case["verdict"] in ("fail", "non-strict", "flaky", "error")
    ]
    assert [(case["case"], case["verdict"], case["message"]) for case in broken] == []
    assert report["targets"][0]["verdicts"]["pass"] >= 300
    assert exit_code(report, strict=True) is ExitCode.HELD
