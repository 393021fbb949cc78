"""`history.ndjson` to columns, one partition each: a stream, in one pass, with memory for columns only."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from reports.columns import NEVER, UNKNOWN, Kind, Operations, Status
from spec.formats.history import NEMESIS, Config, Event, read_history
from spec.formats.verdict import UsageError

STATUS = {"ok": Status.OK, "fail": Status.FAIL, "info": Status.INFO}
KINDS = {"send": Kind.SEND, "poll": Kind.READ, "fetch": Kind.READ, "list_offsets": Kind.LIST_OFFSETS}
RESTARTS = {"assign", "seek", "revoke", "subscribe"}
Key = str  # "topic-0"


@dataclass(slots=True)
class Ingested:
    """A history as the kernel wants it. `operations` counts client calls by partition."""

    config: Config
    partitions: dict[Key, Operations]
    values: "Values"
    faults: list[Event]
    operations: int


class Values:
    """Values as integers: small non-negative integers stand for themselves, everything else is numbered."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._texts: list[str] = []

    def number(self, value: Any) -> int:
        if type(value) is int and 0 <= value < 1 << 61:
            return value
        text = repr(value)
        if text not in self._numbers:
            self._numbers[text] = -2 - len(self._texts)
            self._texts.append(text)
        return self._numbers[text]

    def text(self, number: int) -> str:
        return str(number) if number >= 0 else self._texts[-2 - number]


NAMES = (
    "invoked", "returned", "process", "run", "kind", "status", "offset", "value", "position", "high_watermark",
    "leader_epoch", "quiet", "record_count",
)  # fmt: skip


@dataclass(slots=True)
class Builder:
    """Grows the columns of one partition."""

    columns: dict[str, "array[int]"] = field(default_factory=lambda: {name: array("q") for name in NAMES})
    record_offset: "array[int]" = field(default_factory=lambda: array("q"))
    record_value: "array[int]" = field(default_factory=lambda: array("q"))

    def add(self, row: tuple[int, ...], records: Iterable[tuple[int, int]] = ()) -> None:
        before = len(self.record_offset)
        for offset, value in records:
            self.record_offset.append(offset)
            self.record_value.append(value)
        for name, cell in zip(NAMES, (*row, len(self.record_offset) - before), strict=True):
            self.columns[name].append(cell)

    def build(self) -> Operations:
        def column(data: "array[int]") -> Any:
            return np.frombuffer(data, np.int64) if data else np.zeros(0, np.int64)

        return Operations(
            **{name: column(data) for name, data in self.columns.items()},
            record_offset=column(self.record_offset),
            record_value=column(self.record_value),
        )


class Ingest:
    """Pairs invocations with completions; what never completed is unknown."""

    def __init__(self) -> None:
        self.values = Values()
        self.faults: list[Event] = []
        self.operations = 0
        self._builders: dict[Key, Builder] = {}
        self._open: dict[int | str, Event] = {}
        self._runs: dict[int | str, int] = {}
        self._numbers: dict[int | str, int] = {}
        self._starts: dict[tuple[int | str, Key], int] = {}
        self._quiet = 0

    def take(self, event: Event) -> None:
        if event.process == NEMESIS:
            self.faults.append(event)
            if event.f == "phase":
                self._quiet = int(event.value == "final")
            return
        if event.f in RESTARTS:
            self._restart(event)
            return
        if event.f not in KINDS:
            return
        if event.type == "invoke":
            left_open = self._open.pop(event.process, None)
            if left_open is not None:  # the process was reborn without an answer
                self._complete(left_open, None)
            self._open[event.process] = event
        else:
            opened = self._open.pop(event.process, None)
            if opened is None:
                raise UsageError(
                    f"line {event.index + 1}: process {event.process} completes {event.f!r} without an invoke before",
                    mend="every ok, fail or info needs its invoke",
                )
            self._complete(opened, event)

    def finish(self) -> None:
        for opened in list(self._open.values()):
            self._complete(opened, None)
        self._open.clear()

    def _restart(self, event: Event) -> None:
        """Reading begins anew for this process; an assignment may say where."""
        if event.type == "invoke":
            return
        self._runs[event.process] = self._runs.get(event.process, 0) + 1
        for key in event.value or []:
            if event.position is not None:
                self._starts[event.process, key] = event.position

    def _complete(self, invoke: Event, done: Event | None) -> None:
        kind = KINDS[invoke.f]
        status = STATUS[done.type] if done is not None else Status.INFO
        if invoke.f == "poll":
            self._complete_poll(invoke, done, status)
            return
        told = done or invoke
        topic = invoke.topic if invoke.topic is not None else told.topic
        number = invoke.partition if invoke.partition is not None else told.partition
        if topic is None or number is None:
            raise UsageError(
                f"line {invoke.index + 1}: {invoke.f!r} names no topic and partition", mend="add topic and partition"
            )
        position = told.position if told.position is not None else UNKNOWN
        records = self._records(done.value, position) if done is not None and invoke.f == "fetch" else []
        value = self.values.number(invoke.value) if kind is Kind.SEND else UNKNOWN
        self._add(f"{topic}-{number}", invoke, done, kind, status, value, position, records)

    def _complete_poll(self, invoke: Event, done: Event | None, status: Status) -> None:
        """One row for each partition that a poll returned records of; an empty poll proves nothing."""
        found = done.value if done is not None and isinstance(done.value, dict) else {}
        for key, pairs in found.items():
            position = self._starts.pop((invoke.process, key), UNKNOWN)
            self._add(key, invoke, done, Kind.READ, status, UNKNOWN, position, self._records(pairs, UNKNOWN))
        if not found:
            self.operations += 1

    def _records(self, pairs: Any, position: int) -> list[tuple[int, int]]:
        number = self.values.number
        return [(offset, number(value)) for offset, value in pairs or [] if offset >= position]

    def _add(
        self, key: Key, invoke: Event, done: Event | None, kind: Kind, status: Status, value: int, position: int,
        records: list[tuple[int, int]],
    ) -> None:  # fmt: skip
        self.operations += 1
        told = done or invoke
        process = self._numbers.setdefault(invoke.process, len(self._numbers))
        offset = told.offset if told.offset is not None and told.offset >= 0 else UNKNOWN
        row = (
            invoke.index,
            done.index if done is not None else int(NEVER),
            process,
            self._runs.get(invoke.process, 0),
            kind,
            status,
            offset if status is Status.OK else UNKNOWN,
            value,
            position,
            told.high_watermark if told.high_watermark is not None and status is Status.OK else UNKNOWN,
            told.leader_epoch if told.leader_epoch is not None else UNKNOWN,
            self._quiet,
        )
        self._builders.setdefault(key, Builder()).add(row, records)

    def build(self) -> dict[Key, Operations]:
        return {key: builder.build() for key, builder in sorted(self._builders.items())}


def ingest(path: Path, overrides: dict[str, Any] | None = None) -> Ingested:
    """Read a history whole; UsageError with the line that is wrong. `overrides` replace keys of its header."""
    config, events = read_history(path)
    if overrides:
        import msgspec

        config = msgspec.structs.replace(config, **overrides)
    reading = Ingest()
    try:
        for event in events:
            reading.take(event)
    except UsageError as error:
        if error.where:
            raise
        raise UsageError(error.what, where=str(path), mend=error.mend) from error
    reading.finish()
    return Ingested(config, reading.build(), reading.values, reading.faults, reading.operations)
