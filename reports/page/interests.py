"""Collect what the verdict refers to: witness operations, and the offsets around findings."""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from highwater.reports.page.conclusions import conclusions
from highwater.reports.page.operations import Operation
from highwater.reports.page.series import Sample
from highwater.reports.verdicts import AuditResult, Evidence, Finding
from highwater.spec.formats.history import Event

AROUND = 5  # offsets shown on either side of a finding
PLACES = 48
PICTURES = 2  # pictures for each anomaly of a severity
ROWS_KEPT = 240
SHORT = 100  # up to this many records are all inspected, since a reply may be out of order
UNKNOWN_OFFSET = -1


class Touch(NamedTuple):
    """One operation near a place: `cells` are (offset, value); `first` to `last` is the range it covered."""

    invoked: int
    start_s: float
    end_s: float | None
    process: int | str
    what: str
    outcome: str
    cells: tuple[tuple[int, Any], ...]
    first: int
    last: int


@dataclass(slots=True)
class Place:
    """Offsets of a partition around one finding, and the operations that touched them."""

    partition: str
    offset: int
    witnesses: frozenset[int]
    kept: list[Touch] = field(default_factory=list)
    others: Sample[Touch] = field(default_factory=lambda: Sample[Touch](ROWS_KEPT))

    @property
    def low(self) -> int:
        return max(0, self.offset - AROUND)

    @property
    def high(self) -> int:
        return self.offset + AROUND

    def take(self, key: str, operation: Operation) -> None:
        touch = self._touch(key, operation)
        if touch is not None and touch.invoked in self.witnesses:
            self.kept.append(touch)
        elif touch is not None and self.others.wants():
            self.others.keep(touch)

    def _touch(self, key: str, operation: Operation) -> Touch | None:
        invoke = operation.invoke
        records = operation.records.get(key)
        if records:
            near = records
            if len(records) > SHORT:
                begin = bisect_left(records, self.low, key=lambda record: record[0])
                near = records[begin : begin + 4 * AROUND]
            cells = tuple((offset, value) for offset, value in near if self.low <= offset <= self.high)
            first, last = records[0][0], records[-1][0]
            if invoke.position is not None:
                first = min(first, invoke.position)
        elif invoke.f == "send":
            first = last = UNKNOWN_OFFSET if operation.completion.offset is None else operation.completion.offset
            cells = ((first, invoke.value),)
        else:
            first = UNKNOWN_OFFSET if invoke.position is None else invoke.position
            last, cells = first - 1, ()  # it found nothing there
        witness = invoke.index in self.witnesses
        if (last < self.low or first > self.high) and not witness:
            return None
        return Touch(
            invoke.index, operation.start_s, operation.end_s, invoke.process, invoke.f, operation.outcome,
            cells, max(first, self.low), min(last, self.high),
        )  # fmt: skip


class Interests:
    """Filled while the history is read: events of witnesses, and operations near findings."""

    def __init__(self, result: AuditResult) -> None:
        all_evidence = [evidence for finding in result.findings for evidence in finding.witnesses]
        witnesses = [witness for evidence in all_evidence for witness in evidence.operations]
        self.invoked = frozenset(witness.invoked for witness in witnesses)
        self.due = self.invoked | {witness.returned for witness in witnesses}
        self.events: dict[int, tuple[Event, float]] = {}  # by event index; the time in seconds
        self._places: dict[tuple[str, int, frozenset[int]], Place] = {}
        drawn = [
            evidence for finding in result.findings if _has_place(finding) for evidence in finding.witnesses[:PICTURES]
        ]
        for evidence in drawn[:PLACES]:
            place = Place(evidence.partition, evidence.offset, frozenset(w.invoked for w in evidence.operations))
            self._places.setdefault((place.partition, place.offset, place.witnesses), place)
        self._by_partition: dict[str, list[Place]] = {}
        for place in self._places.values():
            key, _, _ = place.partition.partition(" (")  # strip the suffix that distinguishes a re-created topic
            self._by_partition.setdefault(key, []).append(place)

    def take(self, operation: Operation) -> bool:
        """Add an operation to the places it touches; return whether it is a witness."""
        key = operation.key
        for partition in (key,) if key is not None else operation.records:
            for place in self._by_partition.get(partition, ()):
                place.take(partition, operation)
        return operation.invoke.index in self.invoked

    def place_of(self, evidence: Evidence) -> Place | None:
        witnesses = frozenset(witness.invoked for witness in evidence.operations)
        return self._places.get((evidence.partition, evidence.offset, witnesses))


def _has_place(finding: Finding) -> bool:
    return finding.rule not in conclusions().beside and finding.severity != "information"
