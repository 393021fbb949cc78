"""Read a history once for its page, keeping only what the page shows."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from highwater.reports.page.interests import Interests
from highwater.reports.page.lanes import Lanes, Window, windows
from highwater.reports.page.leaders import Leaders
from highwater.reports.page.operations import ALONE, NS, Operation, operation
from highwater.reports.page.outages import Outages
from highwater.reports.page.series import Sample, Series
from highwater.spec.formats.history import NEMESIS, Event

FAULTS_KEPT = 4_000


class Block(NamedTuple):
    """An operation as the timeline draws it; `first` to `last` are offsets, -1 if unknown."""

    lane: int
    invoked: int
    start_s: float
    end_s: float | None
    process: int | str
    f: str
    outcome: str
    key: str
    first: int
    last: int


def _block(lane: int, operation: Operation) -> Block:
    invoke, records = operation.invoke, operation.records
    key = operation.key or ", ".join(sorted(records)) or ("" if invoke.key is None else str(invoke.key))
    completion = operation.completion
    offsets = [pairs[place][0] for pairs in records.values() if pairs for place in (0, -1)]
    if completion.offset is not None:
        offsets.append(completion.offset)
    return Block(
        lane, invoke.index, operation.start_s, operation.end_s, invoke.process,
        invoke.f, operation.outcome, key, min(offsets, default=-1), max(offsets, default=-1),
    )  # fmt: skip


@dataclass(slots=True)
class Watched:
    """The result of a pass; `good` and `bad` sample successful and other operations, without witnesses."""

    interests: Interests
    good: Sample[Block]
    bad: Sample[Block]
    witnesses: list[Block] = field(default_factory=list)
    lanes: Lanes = field(default_factory=Lanes)
    series: Series = field(default_factory=Series)
    outages: Outages = field(default_factory=Outages)
    leaders: Leaders = field(default_factory=Leaders)
    faults: list[Event] = field(default_factory=list)
    duration_s: float = 0.0

    @property
    def windows(self) -> list[Window]:
        return windows(self.faults, self.duration_s)

    @property
    def operations(self) -> int:
        return self.good.offered + self.bad.offered + len(self.witnesses)

    def take(self, operation: Operation) -> None:
        if operation.invoke.f == "send":
            self.outages.end(operation)
        self.series.take(operation)
        self.leaders.take(operation)
        lane = self.lanes.of(operation)
        if self.interests.take(operation):
            self.witnesses.append(_block(lane, operation))
            return
        sample = self.good if operation.outcome == "ok" else self.bad
        if sample.wants():
            sample.keep(_block(lane, operation))


def watch(events: Iterable[Event], interests: Interests, limit: int) -> Watched:
    """Read all events; `limit` bounds the operations kept for drawing, besides witnesses."""
    watched = Watched(interests, good=Sample(limit * 3 // 4), bad=Sample(limit // 4))
    for completed in _operations(events, watched):
        watched.take(completed)
    watched.series.finish()
    watched.outages.finish()
    return watched


def _operations(events: Iterable[Event], watched: Watched) -> Iterator[Operation]:
    """Pair invocations with completions as the auditor does; pass faults and time to `watched`."""
    opened: dict[int | str, tuple[Event, float]] = {}
    now_s = 0.0
    for event in events:
        now_s = max(now_s, event.time_ns / NS)
        process = event.process
        if event.index in watched.interests.due:
            watched.interests.events[event.index] = (event, now_s)
        if process == NEMESIS:
            if len(watched.faults) < FAULTS_KEPT:
                watched.faults.append(event)
        elif event.f in ALONE:
            if event.type != "invoke":
                yield operation(event, event, now_s, now_s)
        elif event.type == "invoke":
            if process in opened:
                yield operation(opened[process][0], None, opened[process][1], None)
            opened[process] = (event, now_s)
            if event.f == "send" and event.topic is not None and event.partition is not None:
                watched.outages.begin(f"{event.topic}-{event.partition}", now_s)
        elif process in opened:
            invoke, start_s = opened.pop(process)
            yield operation(invoke, event, start_s, now_s)
        watched.duration_s = now_s
    for invoke, start_s in opened.values():
        yield operation(invoke, None, start_s, None)
