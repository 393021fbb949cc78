"""Collect what the page shows of one history: one pass over its events, and its verdict."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from highwater.names import number_of
from highwater.reports.anomalies import Severity, anomalies
from highwater.reports.page.charts import charts, leaders_chart
from highwater.reports.page.interests import Interests
from highwater.reports.page.narrative import FindingNarrative, narrate
from highwater.reports.page.picture import drawing, embed, picture, sampled
from highwater.reports.page.watch import Watched, watch
from highwater.reports.page.words import SEVERITIES, because, counts, unavailability, verdict_words
from highwater.reports.verdicts import AuditResult, Finding
from highwater.spec.formats.history import Event

OPERATIONS_DRAWN = 24_000  # on the whole page
RANGES_SHOWN = 8
EVENT_NS = 1_000_000  # time between events in a history without times
SETTINGS_LEFT_OUT = {"source", "clients", "workload", "started_ms"}


def show_history(
    read: Callable[[], Iterable[Event]], result: AuditResult, limit: int = OPERATIONS_DRAWN
) -> dict[str, Any]:
    """Return the template variables of a history, except its title and location.

    A history without times is read a second time, with times made up from the order of its events.
    """
    watched = watch(read(), Interests(result), limit)
    timed = watched.duration_s > 0 or not watched.operations
    if not timed:
        in_order = (msgspec.structs.replace(event, time_ns=event.index * EVENT_NS) for event in read())
        watched = watch(in_order, Interests(result), limit)
    windows = watched.windows
    findings, narratives = [], list[FindingNarrative]()
    for finding in sorted(result.findings, key=lambda finding: (SEVERITIES.index(finding.severity), finding.rule)):
        new_narratives = [
            narrate(len(narratives) + number, finding, evidence, watched.interests, windows)
            for number, evidence in enumerate(finding.witnesses)
        ]
        findings.append(_finding(finding, new_narratives, watched, result))
        narratives += new_narratives
    return {
        "result": result,
        "words": verdict_words(result),
        "coverage": result.coverage.lines() if result.coverage is not None else [],
        "counts": counts(result),
        "severities": SEVERITIES,
        "unused": number_of(result.quarantine.count, "line"),
        "serious": [finding for finding in findings if finding["severity"] != Severity.INFORMATION],
        "notes": [finding for finding in findings if finding["severity"] == Severity.INFORMATION],
        "unavailability": unavailability(watched.outages, windows),
        "drawing": embed(drawing(watched, narratives)),
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


def _finding(
    finding: Finding, narratives: list[FindingNarrative], watched: Watched, result: AuditResult
) -> dict[str, Any]:
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
        "ranges": [part.words for part in finding.ranges[:RANGES_SHOWN]],
        "more_ranges": max(0, len(finding.ranges) - RANGES_SHOWN),
        "clauses": anomaly.clauses if anomaly else (),
        "guards": anomaly.guards if anomaly else (),
        "narratives": list(zip(narratives, pictures, strict=True)),
        "more": finding.count - len(narratives),
    }


def _settings(result: AuditResult) -> list[tuple[str, str]]:
    """Return the settings in the header on which the verdict depends."""
    return [
        (name, "not stated" if value is None else str(value).lower() if isinstance(value, bool) else str(value))
        for name, value in ((name, getattr(result.config, name)) for name in result.config.__struct_fields__)
        if name not in SETTINGS_LEFT_OUT
    ]
