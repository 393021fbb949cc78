"""Audits of a history with an anomaly for each rule, and of the most similar history without it."""

from pathlib import Path

import msgspec
import pytest

from highwater.reports.anomalies import anomalies
from highwater.reports.audit import audit
from highwater.reports.tests.histories import PROMISED, History
from highwater.reports.tests.pairs import PAIRS
from highwater.reports.verdicts import AuditResult

CONFIG = msgspec.structs.replace(PROMISED, isolation="read_committed")


def test_each_rule_has_its_pair() -> None:
    assert sorted(PAIRS) == list(anomalies())
    assert all(set(pair) == {"anomaly", "near miss"} for pair in PAIRS.values())


@pytest.mark.parametrize("rule", sorted(PAIRS))
def test_only_the_anomaly_is_found_and_the_near_miss_is_valid(rule: int, tmp_path: Path) -> None:
    wrong, right = (audit_half(rule, which, tmp_path) for which in ("anomaly", "near miss"))
    severity = anomalies()[rule].severity
    assert {finding.rule for finding in wrong.findings if finding.severity in {severity, "violation"}} == {rule}
    assert wrong.verdict == {"violation": "invalid", "undecided": "unknown", "information": "valid"}[severity]
    assert rule not in {finding.rule for finding in right.findings if finding.severity == severity}
    assert right.verdict == "valid"
    assert [finding.name for finding in right.findings if finding.severity == "violation"] == []


def audit_half(rule: int, which: str, folder: Path) -> AuditResult:
    """Audit the history of one half of a pair."""
    write, config = PAIRS[rule][which]
    history = History(msgspec.structs.replace(CONFIG, **config))
    write(history)
    return audit(history.write(folder / f"{which}.ndjson"))
