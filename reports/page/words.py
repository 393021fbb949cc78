"""The verdict in a sentence, counts by anomaly and severity, and what the findings cite."""

from typing import Any

from highwater.errors import Verdict
from highwater.reports.anomalies import Anomaly, Severity, anomalies
from highwater.reports.page.lanes import Window
from highwater.reports.page.narrative import duration
from highwater.reports.page.outages import FAULTS_SHOWN, SHORTEST_S, SHOWN, Outage, Outages
from highwater.reports.verdicts import AuditResult, Finding
from highwater.spec.clauses import load_clauses
from highwater.spec.guards import load_guards

SEVERITIES = (Severity.VIOLATION, Severity.UNDECIDED, Severity.EXPECTED, Severity.INFORMATION)
MEANING = {
    Severity.VIOLATION: "the settings promise that this does not happen",
    Severity.UNDECIDED: "the history leaves out what decides",
    Severity.EXPECTED: "a correct Kafka may do this with these settings",
    Severity.INFORMATION: "worth knowing; a correct Kafka may do this",
}


def verdict_words(result: AuditResult) -> str:
    """What a reader in a hurry has to know."""
    rules = f"{len(result.rules)} rules" if len(result.rules) > 1 else "one rule"
    looked = f"{result.operations:,} operations were held to {rules}"
    if result.verdict is Verdict.INVALID:
        return f"A promise was broken: {_named(result, Severity.VIOLATION)}. {looked}."
    if result.verdict is Verdict.UNKNOWN:
        open_ = _named(result, Severity.UNDECIDED)
        if open_:
            return f"Nobody can say: {open_} would be violations if the history told more. {looked}."
        why = "its search for an order took too long"
        if not result.operations:
            why = "there is nothing in it to judge"
        elif result.quarantine.mattering:
            why = f"{lines(result.quarantine.mattering)} that may matter could not be used"
        return f"Nobody can say: {why}. {looked}."
    expected = _named(result, Severity.EXPECTED)
    shown = f"; {expected}, which these settings allow" if expected else ""
    return f"Nothing that the settings promise was broken{shown}. {looked}."


def because(severity: Severity, anomaly: Anomaly, result: AuditResult) -> str | None:
    """Why a finding counts as less than a violation."""
    if severity is Severity.EXPECTED:
        return f"A correct Kafka may show this with {', '.join(anomaly.allowed_by(result.config))}."
    if severity is Severity.UNDECIDED and (keys := anomaly.missing_settings(result.config)):
        options = " ".join(f"--config {key}=…" for key in keys)
        return (
            f"A violation or not: that depends on {', '.join(keys)}, which the history does not tell; {options} does."
        )
    if severity is Severity.UNDECIDED:
        return "A violation or not: what could not be read of the history may explain it."
    return None


def lines(count: int) -> str:
    return f"{count:,} line{'' if count == 1 else 's'}"


def _named(result: AuditResult, severity: Severity) -> str:
    return ", ".join(f"{each.count:,} {each.name}" for each in result.findings if each.severity is severity)


def counts(result: AuditResult) -> list[dict[str, Any]]:
    """A row for each anomaly that was found, the gravest first."""
    rows: dict[int, dict[str, Any]] = {}
    for finding in result.findings:
        row = rows.setdefault(finding.rule, {"rule": finding.rule, "name": finding.name, "counts": {}})
        row["counts"][finding.severity] = finding.count
    return list(rows.values())


def cited(findings: list[Finding]) -> dict[str, list[dict[str, str]]]:
    """Sentences of the clauses and guards that these findings name."""
    mine = [anomalies()[finding.rule] for finding in findings if finding.rule in anomalies()]
    clauses, guards = load_clauses(), load_guards()
    return {
        "clauses": [
            {"id": each, "sentence": clauses[each].sentence, "source": clauses[each].source}
            for each in sorted({clause for anomaly in mine for clause in anomaly.clauses})
            if each in clauses
        ],
        "guards": [
            {"id": each, "sentence": guards[each].rule, "source": guards[each].source}
            for each in sorted({guard for anomaly in mine for guard in anomaly.guards})
            if each in guards
        ],
    }


def unavailability(outages: Outages, windows: list[Window]) -> dict[str, Any]:
    """The headline, and a row for each outage around faults."""
    found = outages.during(windows)
    return {
        "headline": _headline(outages, max(found, key=lambda each: each.gap.seconds, default=None)),
        "rows": [
            {"faults": [_when(window) for window in each.windows[:FAULTS_SHOWN]],
             "more": max(0, len(each.windows) - FAULTS_SHOWN), "partition": each.partition,
             "length": duration(each.gap.seconds), "start": each.gap.start_s, "end": each.gap.end_s,
             "over": each.gap.over} for each in found[:SHOWN]
        ],
        "left_out": max(0, len(found) - SHOWN),
    }  # fmt: skip


def _headline(outages: Outages, worst: Outage | None) -> str:
    """The longest around a fault; also that beside any fault, if it was longer."""
    longest = outages.longest()
    if not outages.partitions:
        return "Nobody wrote, so nobody can say how long writing was impossible."
    if longest is None:
        return f"Nobody was kept from writing for longer than {duration(SHORTEST_S)}."
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
    back = "" if outage.gap.over else ", which did not come back while anybody tried"
    return f"{duration(outage.gap.seconds)} without a successful send in {outage.partition}{back}"
