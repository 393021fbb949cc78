"""Measure unavailability: the longest time without a successful send, by partition and fault."""

import heapq
from dataclasses import dataclass, field
from typing import NamedTuple

from highwater.reports.page.lanes import Window
from highwater.reports.page.operations import Operation

SHORTEST_S = 0.05
KEPT = 256  # longest gaps kept for each partition
SHOWN = 40
FAULTS_SHOWN = 3


class Gap(NamedTuple):
    """A gap from the last success, or the first attempt after it, to the next success, if any."""

    seconds: float
    start_s: float
    end_s: float
    recovered: bool


@dataclass(slots=True)
class _Partition:
    gaps: list[Gap] = field(default_factory=list)
    trying_since_s: float | None = None
    under_way: int = 0
    last_attempt_s: float = 0.0

    def close(self, until_s: float, *, recovered: bool = True) -> None:
        since_s = self.trying_since_s
        if since_s is not None and until_s - since_s >= SHORTEST_S:
            push = heapq.heappush if len(self.gaps) < KEPT else heapq.heappushpop
            push(self.gaps, Gap(until_s - since_s, since_s, until_s, recovered))


class Outage(NamedTuple):
    """A gap in a partition with the faults that overlap it."""

    windows: list[Window]
    partition: str
    gap: Gap


class Outages:
    """Finds gaps from the start and end of every send. Time without attempts does not count."""

    def __init__(self) -> None:
        self._partitions: dict[str, _Partition] = {}

    def begin(self, key: str | None, at_s: float) -> None:
        if key is None:
            return
        partition = self._partitions.setdefault(key, _Partition())
        partition.under_way += 1
        if partition.trying_since_s is None:
            partition.trying_since_s = at_s

    def end(self, operation: Operation) -> None:
        key = operation.key
        if key is None:
            return
        partition = self._partitions.setdefault(key, _Partition())
        partition.under_way = max(0, partition.under_way - 1)
        at_s = operation.end_s
        if at_s is None:
            return
        partition.last_attempt_s = at_s
        if operation.outcome == "ok":
            partition.close(at_s)
            partition.trying_since_s = at_s if partition.under_way else None

    def finish(self) -> None:
        for partition in self._partitions.values():
            partition.close(partition.last_attempt_s, recovered=False)

    @property
    def partitions(self) -> int:
        return len(self._partitions)

    def longest(self) -> Outage | None:
        """Return the longest gap of all partitions, with or without a fault."""
        found = [(max(p.gaps), key) for key, p in self._partitions.items() if p.gaps]
        if not found:
            return None
        gap, key = max(found)
        return Outage([], key, gap)

    def during(self, windows: list[Window]) -> list[Outage]:
        """Return the longest gap of each partition for each fault, sorted; equal gaps are merged."""
        found: dict[tuple[str, Gap], list[Window]] = {}
        for window in windows:
            for key, partition in self._partitions.items():
                gaps = [gap for gap in partition.gaps if window.overlaps(gap.start_s, gap.end_s)]
                if gaps:
                    found.setdefault((key, max(gaps)), []).append(window)
        outages = [Outage(around, key, gap) for (key, gap), around in found.items()]
        return sorted(outages, key=lambda outage: -outage.gap.seconds)
