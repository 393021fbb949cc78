"""Comparison of two runs."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from highwater.conformance.report import Report, Stamp, read_report
from highwater.conformance.reports import compare_text as comparison
from highwater.conformance.reports.compare import VerdictChange, compare, exit_code
from highwater.conformance.running.verdicts import CaseResult, CaseVerdict
from highwater.conformance.tests.sample_reports import HOSTILE, failed, passed, report, result, target
from highwater.errors import ExitCode, UsageError

PASS, FAIL, NON_STRICT = CaseVerdict.PASS, CaseVerdict.FAIL, CaseVerdict.NON_STRICT
UNSUPPORTED, NOT_APPLICABLE, FLAKY, ERROR = (
    CaseVerdict.UNSUPPORTED, CaseVerdict.NOT_APPLICABLE, CaseVerdict.FLAKY, CaseVerdict.ERROR,
)  # fmt: skip


def one(*cases: CaseResult) -> Report:
    return report(target("a:1", *cases))


@pytest.mark.parametrize(
    ("was", "now", "change", "code"),
    [
        (PASS, FAIL, VerdictChange.BROKE, ExitCode.VIOLATED),
        (PASS, NON_STRICT, VerdictChange.BROKE, ExitCode.HELD),
        (PASS, PASS, None, ExitCode.HELD),
        (FAIL, PASS, VerdictChange.FIXED, ExitCode.HELD),
        (FAIL, NON_STRICT, None, ExitCode.HELD),
        (PASS, UNSUPPORTED, VerdictChange.UNSUPPORTED, ExitCode.HELD),
        (PASS, NOT_APPLICABLE, VerdictChange.SKIPPED, ExitCode.HELD),
        (FAIL, UNSUPPORTED, VerdictChange.UNSUPPORTED, ExitCode.HELD),
        (UNSUPPORTED, PASS, VerdictChange.NEWLY_PASSING, ExitCode.HELD),
        (UNSUPPORTED, FAIL, VerdictChange.FAILING, ExitCode.HELD),
        (PASS, FLAKY, VerdictChange.UNDECIDED, ExitCode.UNDECIDED),
        (ERROR, FLAKY, None, ExitCode.HELD),
        (PASS, CaseVerdict.NOT_RUN, VerdictChange.UNDECIDED, ExitCode.UNDECIDED),
        (CaseVerdict.NOT_RUN, PASS, VerdictChange.NEWLY_PASSING, ExitCode.HELD),
    ],
)
def test_a_case_that_changed(was: CaseVerdict, now: CaseVerdict, change: VerdictChange | None, code: ExitCode) -> None:
    found = compare(one(result("PRD-7", was)), one(result("PRD-7", now)))
    assert [difference.change for difference in found.differences] == ([change] if change else [])
    assert exit_code(found) is code


def test_a_broken_should_counts_only_on_request() -> None:
    found = compare(one(result("MD-9", PASS)), one(result("MD-9", NON_STRICT)))
    assert exit_code(found, strict=True) is ExitCode.VIOLATED


def test_cases_of_only_one_run_are_added_or_removed() -> None:
    found = compare(one(passed("PRD-1"), passed("PRD-2")), one(passed("PRD-2"), failed("PRD-3")))
    assert [
        (difference.case, difference.change, difference.before, difference.after) for difference in found.differences
    ] == [
        ("PRD-3", VerdictChange.ADDED, None, FAIL),
        ("PRD-1", VerdictChange.REMOVED, PASS, None),
    ]
    assert exit_code(found) is ExitCode.HELD


def test_a_fixed_case_shows_no_message_of_a_failure() -> None:
    (fixed,) = compare(one(failed("PRD-7")), one(result("PRD-7", PASS, "3 of 4 rows apply"))).differences
    assert (fixed.change, fixed.message) == (VerdictChange.FIXED, "")


def test_targets_are_matched_by_name_or_are_the_only_ones() -> None:
    several = report(target("a:1", passed("PRD-7")), target("b:1", passed("PRD-7")), target("c:1", passed("PRD-7")))
    later = report(target("b:1", failed("PRD-7")), target("d:1", failed("PRD-7")))
    found = compare(several, later)
    assert [(difference.target, difference.change) for difference in found.differences] == [
        ("b:1", VerdictChange.BROKE)
    ]
    assert [remark for remark in found.remarks if " is only in the " in remark] == [
        "a:1 is only in the first run", "c:1 is only in the first run", "d:1 is only in the second run",
    ]  # fmt: skip
    alone = compare(report(target("old:1", passed("PRD-7"))), report(target("new:2", failed("PRD-7"))))
    assert [difference.target for difference in alone.differences] == ["old:1 -> new:2"]
    with pytest.raises(UsageError, match="no target is in both"):
        compare(several, report(target("x:1"), target("y:1")))


def test_an_empty_or_incomplete_run_is_undecided() -> None:
    empty = compare(one(passed("PRD-7")), one())
    assert exit_code(empty) is ExitCode.UNDECIDED
    assert "a:1 has a run without cases" in empty.remarks
    broken_off = compare(one(passed("PRD-7")), one(passed("PRD-7"), result("suite", ERROR)))
    assert exit_code(broken_off) is ExitCode.UNDECIDED


def test_other_differences_of_the_runs_are_reported() -> None:
    older = msgspec.structs.replace(one(passed("PRD-7")), run=Stamp(suite="highwater 0", options={"areas": ["PRD"]}))
    reported = " ".join(compare(older, one(passed("PRD-7"))).remarks)
    assert "different options: areas=['PRD'], then level=must" in reported
    assert "different schema: none, then Apache Kafka 0" in reported
    assert "different suite" not in reported


def test_markdown_and_lines_have_the_sum_and_escape_text_of_targets() -> None:
    found = compare(one(passed("PRD-7"), failed("PRD-4")), one(failed("PRD-7", HOSTILE), passed("PRD-4")))
    assert list(comparison.lines(found))[-1] == "1 broke, 1 mended"
    text = comparison.markdown(found)
    assert "1 broke, 1 mended" in text
    assert "<script>" not in text.replace(r"\<script\>", "")


def test_the_exit_code_follows_the_verdict(tmp_path: Path) -> None:
    for name, shown in (("a", one(passed("PRD-7"))), ("b", one(failed("PRD-7")))):
        (tmp_path / f"{name}.json").write_bytes(msgspec.json.encode(shown))
    (tmp_path / "c.json").write_text('{"targets": [{"target": 3}]}')

    def diff(*names: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "highwater", "diff", *(str(tmp_path / name) for name in names)]
        return subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=60, check=False)

    broke = diff("a.json", "b.json")
    assert broke.returncode == ExitCode.VIOLATED
    assert [difference["change"] for difference in msgspec.json.decode(broke.stdout)["differences"]] == ["broke"]
    for wrong in ("c.json", "nowhere.json"):
        refused = diff("a.json", wrong)
        assert refused.returncode == ExitCode.USAGE
        assert wrong in refused.stderr
        assert "give a file with the output of highwater conform --json" in refused.stderr
        assert refused.stderr.count("\n") == 1


def test_a_report_round_trips_through_json(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(msgspec.json.encode(one(failed("PRD-7", HOSTILE))))
    assert read_report(path) == one(failed("PRD-7", HOSTILE))
