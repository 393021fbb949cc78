"""The clauses as one page: what a Kafka-compatible broker must do, with sources, and the releases that keep each."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from highwater.conformance.calibrate import read_calibration
from highwater.conformance.patterns import natural_key
from highwater.conformance.reports.sources import link_source
from highwater.pages import render, write
from highwater.spec.clauses import Clause
from highwater_kafka import installed_version

TITLES: Final = {
    "FRM": "Framing",
    "API": "ApiVersions",
    "MD": "Metadata",
    "PRD": "Produce",
    "FET": "Fetch",
    "LST": "Offsets of a log",
    "IDM": "Idempotent producers",
    "TXN": "Transactions",
    "GRP": "Groups",
    "OFF": "Committed offsets",
    "SHR": "Share groups",
    "STR": "Streams groups",
    "ADM": "Administration",
    "FLD": "Fields of requests",
    "QTA": "Quotas",
    "TEL": "Metrics of clients",
    "SEC": "Security",
    "ACL": "Access control lists",
    "REP": "Replication",
    "CTL": "The controller",
    "ZKR": "Groups without a coordinator",
}
"""The areas, in the order of the page."""


def clause_page(chosen: Iterable[Clause], checked: int) -> str:
    """Return the page as HTML without references to other files; `checked` is the number of clauses with a case."""
    clauses = sorted(chosen, key=lambda clause: (list(TITLES).index(clause.area), natural_key(clause.id)))
    calibration = read_calibration()
    return render(
        "highwater.conformance",
        "clauses.html.j2",
        suite=f"highwater {installed_version()}",
        count=len(clauses),
        checked=checked,
        releases=sorted(calibration.runs, key=natural_key),
        levels=sorted({clause.level for clause in clauses}),
        areas=[
            {"id": area, "title": TITLES[area], "clauses": list(_rows(group, calibration.held))}
            for area, group in groupby(clauses, lambda clause: clause.area)
        ],
    )


def write_clause_page(path: Path, chosen: Iterable[Clause], checked: int) -> None:
    """Write the page, and create its folder."""
    write(path, clause_page(chosen, checked))


def _rows(clauses: Any, held: dict[str, list[str]]) -> Iterator[dict[str, Any]]:
    for clause in clauses:
        yield {
            "id": clause.id,
            "level": clause.level,
            "sentence": clause.sentence,
            "source": list(link_source(clause.source)),
            "versions": _versions(clause),
            "held": held.get(clause.id, []),
        }


def _versions(clause: Clause) -> str:
    since = f"since {clause.since}" if clause.since else ""
    return ", ".join(filter(None, (since, f"until {clause.until}" if clause.until else "")))
