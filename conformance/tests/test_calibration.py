"""Calibration of clauses from runs on Apache Kafka."""

from pathlib import Path

import pytest

from highwater.conformance.calibrate import (
    Calibration,
    merge_reports,
    observe_clauses,
    read_calibration,
    write_calibration,
)
from highwater.conformance.report import Report, TargetReport
from highwater.conformance.running.verdicts import CaseResult, CaseVerdict, count_verdicts
from highwater.conformance.tests.listed_cases import TOGETHER, every_case
from highwater.errors import UsageError
from highwater.spec.clauses import find_clause


@TOGETHER
def test_every_must_clause_holds_on_some_apache_kafka_and_breaks_on_none() -> None:
    found, musts = (
        read_calibration(),
        {clause for clause in set(every_case().values()) if find_clause(clause).level == "MUST"},
    )
    assert sorted(musts - found.held.keys()) == []
    assert sorted(musts & found.broken.keys()) == []


def case(clause: str, verdict: CaseVerdict) -> CaseResult:
    return CaseResult(case=clause, clause=clause, level="MUST", verdict=verdict)


def run(target: str, version: str, *cases: CaseResult) -> Report:
    verdicts = count_verdicts(cases)
    return Report(targets=[TargetReport(target=target, version=version, verdicts=verdicts, cases=list(cases))])


PASS, FAIL, FLAKY, LACKS = CaseVerdict.PASS, CaseVerdict.FAIL, CaseVerdict.FLAKY, CaseVerdict.UNSUPPORTED


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([PASS, LACKS], {"FRM-1": "held"}),
        ([PASS, FAIL], {"FRM-1": "broken"}),
        ([PASS, FLAKY], {}),
        ([LACKS], {}),
    ],
)
def test_one_failure_breaks_a_clause_and_one_undecided_case_leaves_it_open(
    verdicts: list[CaseVerdict], expected: dict[str, str]
) -> None:
    assert observe_clauses([case("FRM-1", verdict) for verdict in verdicts]) == expected


def test_a_new_run_replaces_the_earlier_run_of_its_release_only(tmp_path: Path) -> None:
    first = merge_reports(
        Calibration(),
        [
            run("apache-kafka:2.8.2:3", "2.8.2", case("FRM-10", PASS), case("FRM-2", FAIL)),
            run("apache-kafka:3", "4.3.1", case("FRM-10", PASS), case("FRM-2", PASS)),
        ],
    )
    second = merge_reports(first, [run("apache-kafka", "4.3.1", case("FRM-10", FAIL), case("FRM-2", PASS))])
    assert second.held == {"FRM-2": ["4.3.1"], "FRM-10": ["2.8.2"]}
    assert second.broken == {"FRM-2": ["2.8.2"], "FRM-10": ["4.3.1"]}
    assert second.runs["4.3.1"].target == "apache-kafka"
    path = tmp_path / "calibration.toml"
    write_calibration(second, path)
    assert read_calibration(path) == second


def test_a_run_of_some_clauses_can_be_added_to_the_earlier_run() -> None:
    whole = run("apache-kafka:3", "4.3.1", case("FRM-10", PASS), case("FRM-2", PASS), case("FRM-3", FAIL))
    first = merge_reports(Calibration(), [whole])
    some = run("apache-kafka", "4.3.1", case("FRM-2", FAIL), case("FRM-3", PASS), case("FRM-4", PASS))
    second = merge_reports(first, [some], add=True)
    assert second.held == {"FRM-3": ["4.3.1"], "FRM-4": ["4.3.1"], "FRM-10": ["4.3.1"]}
    assert second.broken == {"FRM-2": ["4.3.1"]}
    assert second.runs == first.runs


def test_only_apache_kafka_calibrates() -> None:
    with pytest.raises(UsageError, match="not a run on Apache Kafka"):
        merge_reports(Calibration(), [run("kfake", "1", case("FRM-1", PASS))])
