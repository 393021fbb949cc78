"""The verdict in a sentence, counts by anomaly and severity, and what the findings cite."""

from typing import Any

from reports.anomalies import Severity, anomalies
from reports.audit import AuditResult, Finding
from reports.page.faults import Window
from reports.page.outages import SHOWN, Outage, Outages
from reports.page.story import duration
from spec.clauses import load_clauses
from spec.formats.verdict import Verdict
from spec.guards import load_guards

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
            why = f"{result.quarantine.mattering:,} lines that may matter could not be used"
        return f"Nobody can say: {why}. {looked}."
    expected = _named(result, Severity.EXPECTED)
    shown = f"; {expected}, which these settings allow" if expected else ""
    return f"Nothing that the settings promise was broken{shown}. {looked}."


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
    """The headline, and a row for each fault and partition."""
    found = outages.during(windows)
    worst = max(found, key=lambda each: each.gap.seconds, default=None)
    overall = outages.longest()
    if not outages.partitions:
        headline = "Nobody wrote, so nobody can say how long writing was impossible."
    elif worst is not None:
        headline = (
            f"{duration(worst.gap.seconds)} without a successful send in {worst.partition}{_ended(worst)}, "
            f"around: {worst.window.words}."
        )
    else:
        faults = "No fault stopped" if windows else "There was no fault, and nothing stopped"
        headline = f"{faults} anybody from writing for longer than 50 ms."
    outside = overall if overall is not None and (worst is None or overall.gap.seconds > worst.gap.seconds) else None
    return {
        "headline": headline,
        "outside": "" if outside is None else
            f"Longer, and beside any fault: {duration(outside.gap.seconds)} in {outside.partition}{_ended(outside)}, "
            f"from {outside.gap.start_s:.2f} s on.",
        "rows": [
            {"fault": each.window.words, "from": each.window.start_s, "to": each.window.end_s,
             "partition": each.partition, "length": duration(each.gap.seconds), "start": each.gap.start_s,
             "end": each.gap.end_s, "over": each.gap.over} for each in found[:SHOWN]
        ],
        "left_out": max(0, len(found) - SHOWN),
    }  # fmt: skip


def _ended(outage: Outage) -> str:
    return "" if outage.gap.over else ", which did not come back while anybody tried"
