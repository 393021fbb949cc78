"""Of each rule an anomaly as the rule says it, and what is nearest to it and none, by whole audits."""

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
def test_the_anomaly_is_found_and_nothing_else_and_its_neighbour_is_not(rule: int, tmp_path: Path) -> None:
    wrong, right = (told(rule, which, tmp_path) for which in ("anomaly", "near miss"))
    severity = anomalies()[rule].severity
    assert {each.rule for each in wrong.findings if each.severity in {severity, "violation"}} == {rule}
    assert wrong.verdict == ("invalid" if severity == "violation" else "valid")
    assert rule not in {each.rule for each in right.findings if each.severity == severity}
    assert (right.verdict, [each.name for each in right.findings if each.severity == "violation"]) == ("valid", [])


def told(rule: int, which: str, folder: Path) -> AuditResult:
    story, config = PAIRS[rule][which]
    history = History(msgspec.structs.replace(CONFIG, **config))
    story(history)
    return audit(history.write(folder / f"{which}.ndjson"))
