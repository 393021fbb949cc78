"""Phrase the verdict, the counts by anomaly and severity, and the text of cited clauses."""

from typing import Any

from highwater.errors import Verdict
from highwater.names import number_of
from highwater.reports.anomalies import Anomaly, Severity, anomalies
from highwater.reports.page.lanes import Window
from highwater.reports.page.narrative import duration
from highwater.reports.page.outages import FAULTS_SHOWN, SHORTEST_S, SHOWN, Outage, Outages
from highwater.reports.verdicts import AuditResult, Finding, RuleVerdict
from highwater.spec.clauses import load_clauses
from highwater.spec.guards import load_guards

SEVERITIES = (Severity.VIOLATION, Severity.UNDECIDED, Severity.EXPECTED, Severity.INFORMATION)
MEANING = {
    Severity.VIOLATION: "the settings promise that this does not happen",
    Severity.UNDECIDED: "the history lacks the setting or record that decides",
    Severity.EXPECTED: "a correct Kafka may do this with these settings",
    Severity.INFORMATION: "worth knowing; a correct Kafka may do this",
}


def verdict_words(result: AuditResult) -> str:
    """Return the verdict in one or two sentences."""
    judged = sum(row.verdict is not RuleVerdict.NOT_JUDGED for row in result.rules)
    rules = f"{judged} of {len(result.rules)} rules" if len(result.rules) > 1 else "one rule"
    scope = f"{result.operations:,} operations were checked against {rules}"
    if result.verdict is Verdict.INVALID:
        return f"A promise was broken: {_named(result, Severity.VIOLATION)}. {scope}."
    if result.verdict is Verdict.UNKNOWN:
        open_ = _named(result, Severity.UNDECIDED)
        if open_:
            return f"Undecided: {open_} may be violations; the history lacks what decides. {scope}."
        why = "the search for a linearization took too long"
        if not judged:
            why = "it holds no operation to check"
        elif result.quarantine.mattering:
            why = f"{number_of(result.quarantine.mattering, 'line')} that may matter could not be used"
        return f"Undecided: {why}. {scope}."
    expected = _named(result, Severity.EXPECTED)
    shown = f"; {expected}, which these settings allow" if expected else ""
    return f"No promise of the settings was broken{shown}. {scope}."


def because(severity: Severity, anomaly: Anomaly, result: AuditResult) -> str | None:
    """Explain why a finding is less than a violation; None for a violation."""
    if severity is Severity.EXPECTED:
        return f"A correct Kafka may show this with {', '.join(anomaly.allowed_by(result.config))}."
    if severity is Severity.UNDECIDED and (keys := anomaly.missing_settings(result.config)):
        options = " ".join(f"--config {key}=…" for key in keys)
        return (
            f"Whether this is a violation depends on {', '.join(keys)}, which the history does not state; "
            f"give {options}."
        )
    if severity is Severity.UNDECIDED:
        row = next(row for row in result.rules if row.rule == anomaly.rule)
        return f"Whether this is a violation is undecided: {row.why}."
    return None


def _named(result: AuditResult, severity: Severity) -> str:
    return ", ".join(f"{finding.count:,} {finding.name}" for finding in result.findings if finding.severity is severity)


def counts(result: AuditResult) -> list[dict[str, Any]]:
    """Return a row for each anomaly found, the most severe first."""
    rows: dict[int, dict[str, Any]] = {}
    for finding in result.findings:
        row = rows.setdefault(finding.rule, {"rule": finding.rule, "name": finding.name, "counts": {}})
        row["counts"][finding.severity] = finding.count
    return list(rows.values())


def cited(findings: list[Finding]) -> dict[str, list[dict[str, str]]]:
    """Return the sentences of the clauses and guards that these findings cite."""
    mine = [anomalies()[finding.rule] for finding in findings if finding.rule in anomalies()]
    clauses, guards = load_clauses(), load_guards()
    return {
        "clauses": [
            {"id": clause, "sentence": clauses[clause].sentence, "source": clauses[clause].source}
            for clause in sorted({clause for anomaly in mine for clause in anomaly.clauses})
            if clause in clauses
        ],
        "guards": [
            {"id": guard, "sentence": guards[guard].rule, "source": guards[guard].source}
            for guard in sorted({guard for anomaly in mine for guard in anomaly.guards})
            if guard in guards
        ],
    }


def unavailability(outages: Outages, windows: list[Window]) -> dict[str, Any]:
    """Return the headline, and a row for each outage around faults."""
    found = outages.during(windows)
    return {
        "headline": _headline(outages, max(found, key=lambda outage: outage.gap.seconds, default=None)),
        "rows": [
            {"faults": [_when(window) for window in outage.windows[:FAULTS_SHOWN]],
             "more": max(0, len(outage.windows) - FAULTS_SHOWN), "partition": outage.partition,
             "length": duration(outage.gap.seconds), "start": outage.gap.start_s, "end": outage.gap.end_s,
             "recovered": outage.gap.recovered} for outage in found[:SHOWN]
        ],
        "left_out": max(0, len(found) - SHOWN),
    }  # fmt: skip


def _headline(outages: Outages, worst: Outage | None) -> str:
    """Describe the longest outage around a fault, and a longer one without a fault, if any."""
    longest = outages.longest()
    if not outages.partitions:
        return "The history has no sends, so unavailability is unknown."
    if longest is None:
        return f"No partition was without a successful send for longer than {duration(SHORTEST_S)}."
    around = f"{_lasted(worst)}, around: {_together(worst.windows)}." if worst is not None else ""
    if worst is not None and worst.gap.seconds >= longest.gap.seconds:
        return around
    beside = f"{_lasted(longest)}, from {longest.gap.start_s:.2f} s on, with no fault at that time."
    return f"{around} {beside}".strip()


def _when(window: Window) -> str:
    until = f" to {window.end_s:.2f}" if window.end_s > window.start_s else ""
    return f"{window.words} ({window.start_s:.2f}{until} s)"


def _together(windows: list[Window]) -> str:
    words = list(dict.fromkeys(window.words for window in windows))
    more = f" and {len(words) - FAULTS_SHOWN} more" if len(words) > FAULTS_SHOWN else ""
    return ", ".join(words[:FAULTS_SHOWN]) + more


def _lasted(outage: Outage) -> str:
    back = "" if outage.gap.recovered else ", without recovery until the last attempt"
    return f"{duration(outage.gap.seconds)} without a successful send in {outage.partition}{back}"
