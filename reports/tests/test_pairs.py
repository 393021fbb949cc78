"""Audits of a history with an anomaly for each rule, and of the most similar history without it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from highwater.reports.anomalies import anomalies
from highwater.reports.audit import audit
from highwater.reports.tests.histories import PROMISED, History
from highwater.reports.tests.pairs import PAIRS, Scenario
from highwater.reports.verdicts import AuditResult

HALVES = ("anomaly", "near miss")
CONFIG = msgspec.structs.replace(PROMISED, isolation="read_committed")


def test_each_rule_has_its_pair() -> None:
    assert sorted({rule for rule, _ in PAIRS}) == list(anomalies())
    assert all(set(pair) == set(HALVES) for pair in PAIRS.values())


@pytest.mark.parametrize(("rule", "way"), sorted(PAIRS))
def test_only_the_anomaly_is_found_and_the_near_miss_is_valid(rule: int, way: str, tmp_path: Path) -> None:
    wrong, right = (audit_half(PAIRS[rule, way][which], tmp_path / f"{which}.ndjson") for which in HALVES)
    severity = anomalies()[rule].severity
    assert {finding.rule for finding in wrong.findings if finding.severity in {severity, "violation"}} == {rule}
    assert wrong.verdict == {"violation": "invalid", "undecided": "unknown", "information": "valid"}[severity]
    assert rule not in {finding.rule for finding in right.findings if finding.severity == severity}
    assert right.verdict == "valid"
    assert [finding.name for finding in right.findings if finding.severity == "violation"] == []


def audit_half(half: tuple[Scenario, dict[str, Any]], path: Path) -> AuditResult:
    """Audit the history of one half of a pair."""
    write, config = half
    history = History(msgspec.structs.replace(CONFIG, **config))
    write(history)
    return audit(history.write(path))
