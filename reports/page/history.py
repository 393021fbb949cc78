"""What the page says of one history: one pass over its events, and its verdict."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from highwater.reports.anomalies import Severity, anomalies
from highwater.reports.page.charts import charts, leaders_chart
from highwater.reports.page.interests import Interests
from highwater.reports.page.narrative import Story, tell
from highwater.reports.page.picture import drawing, embed, picture, sampled
from highwater.reports.page.watch import Watched, watch
from highwater.reports.page.words import SEVERITIES, because, counts, lines, unavailability, verdict_words
from highwater.reports.verdicts import AuditResult, Finding
from highwater.spec.formats.history import Event

OPERATIONS_DRAWN = 24_000  # on the whole page
EVENT_NS = 1_000_000  # what an event takes where nobody told
SETTINGS_LEFT_OUT = {"source", "clients", "workload", "started_ms"}


def show_history(
    read: Callable[[], Iterable[Event]], result: AuditResult, limit: int = OPERATIONS_DRAWN
) -> dict[str, Any]:
    """Everything that the template asks for, apart from where the history is and what it is called.

    A history that tells no times is read once more, with the order of its events in their place.
    """
    watched = watch(read(), Interests(result), limit)
    timed = watched.duration_s > 0 or not watched.operations
    if not timed:
        in_order = (msgspec.structs.replace(event, time_ns=event.index * EVENT_NS) for event in read())
        watched = watch(in_order, Interests(result), limit)
    windows = watched.windows
    findings, stories = [], list[Story]()
    for finding in sorted(result.findings, key=lambda each: (SEVERITIES.index(each.severity), each.rule)):
        told = [
            tell(len(stories) + number, finding, evidence, watched.interests, windows)
            for number, evidence in enumerate(finding.witnesses)
        ]
        findings.append(_finding(finding, told, watched, result))
        stories += told
    return {
        "result": result,
        "words": verdict_words(result),
        "counts": counts(result),
        "severities": SEVERITIES,
        "unused": lines(result.quarantine.count),
        "serious": [each for each in findings if each["severity"] != Severity.INFORMATION],
        "notes": [each for each in findings if each["severity"] == Severity.INFORMATION],
        "unavailability": unavailability(watched.outages, windows),
        "drawing": embed(drawing(watched, stories)),
        "sampled": sampled(watched),
        "shared_lanes": watched.lanes.shared,
        "lanes": len(watched.lanes.lanes),
        "operations": watched.operations,
        "windows": windows,
        "timed": timed,
        "charts": charts(watched) if timed else [],
        "leaders": leaders_chart(watched),
        "settings": _settings(result),
    }


def _finding(finding: Finding, stories: list[Story], watched: Watched, result: AuditResult) -> dict[str, Any]:
    anomaly = anomalies().get(finding.rule)  # none for registers, sets and counters
    places = [watched.interests.place_of(evidence) for evidence in finding.witnesses]
    pictures = [picture(place) if place is not None else None for place in places]
    return {
        "rule": finding.rule,
        "name": finding.name,
        "severity": finding.severity,
        "sentence": finding.sentence,
        "because": because(finding.severity, anomaly, result) if anomaly else None,
        "count": finding.count,
        "clauses": anomaly.clauses if anomaly else (),
        "guards": anomaly.guards if anomaly else (),
        "told": list(zip(stories, pictures, strict=True)),
        "more": finding.count - len(stories),
    }


def _settings(result: AuditResult) -> list[tuple[str, str]]:
    """What the verdict depends on, as the header has it."""
    return [
        (name, "not told" if value is None else str(value).lower() if isinstance(value, bool) else str(value))
        for name, value in ((name, getattr(result.config, name)) for name in result.config.__struct_fields__)
        if name not in SETTINGS_LEFT_OUT
    ]
