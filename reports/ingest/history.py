"""A history to columns, one partition each, and the tables of a run: one pass, with memory for columns only."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from reports.columns import NEVER, UNKNOWN, Began, Isolation, Kind, Operations, Status
from reports.importers.formats import open_history
from reports.importers.quarantine import Quarantine
from reports.ingest.builder import Builder, Values
from reports.ingest.lives import Lives, key_of
from reports.ingest.steps import Steps
from reports.tables import Tables
from spec.formats.history import NEMESIS, Config, Event
from spec.formats.verdict import UsageError

STATUS = {"ok": Status.OK, "fail": Status.FAIL, "info": Status.INFO}
KINDS = {
    "send": Kind.SEND, "poll": Kind.READ, "fetch": Kind.READ, "list_offsets": Kind.LIST_OFFSETS,
    "log_dump": Kind.DUMP, "delete_records": Kind.DELETE,
}  # fmt: skip
WITH_RECORDS = {Kind.READ, Kind.DUMP}
RESTARTS = {"assign", "seek", "reset", "revoke", "lost", "crash", "subscribe"}
ISOLATIONS = {
    None: None,
    "read_uncommitted": int(Isolation.READ_UNCOMMITTED),
    "read_committed": int(Isolation.READ_COMMITTED),
}
Key = str  # "topic-0"


@dataclass(slots=True)
class Ingested:
    """A history as the rules want it. `operations` counts client calls by partition."""

    config: Config
    partitions: dict[Key, Operations]
    tables: Tables
    values: Values
    faults: list[Event]
    operations: int
    format: str = "ndjson"
    quarantine: Quarantine = field(default_factory=Quarantine)


@dataclass(slots=True)
class Run:
    """Where a process stands: how often it was assigned, how the last time began, and as whose member."""

    number: int = 0
    began: Began | None = None
    group: str | None = None
    since: int = 0  # the last event before the assignment


class Ingest:
    """Pairs invocations with completions; what never completed is unknown."""

    def __init__(self, config: Config | None = None) -> None:
        self.values = Values()
        self.faults: list[Event] = []
        self.operations = 0
        self.tables = Tables()
        self._isolation = ISOLATIONS[config.isolation if config else None]
        self._builders: dict[Key, Builder] = {}
        self._open: dict[int | str, Event] = {}
        self._runs: dict[int | str, Run] = {}
        self._numbers: dict[object, int] = {}
        self._starts: dict[tuple[int | str, Key], int] = {}
        self._fresh: set[tuple[int | str, Key]] = set()
        self._last: dict[int | str, int] = {}
        self._lives = Lives()
        self._steps = Steps(self.tables, self._number, self._lives)
        self._quiet = 0
        self._fault_ms = 0

    def _number(self, what: object) -> int:
        """Processes, groups, nodes and producers as they come."""
        return self._numbers.setdefault(what, len(self._numbers))

    # -- events ------------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        if event.process == NEMESIS:
            self._nemesis(event)
            return
        if event.f in RESTARTS:
            self._restart(event)
        elif event.f in KINDS or event.f in self._steps.handled:
            self._pair(event)
        self._last[event.process] = event.index

    def _nemesis(self, event: Event) -> None:
        self.faults.append(event)
        if event.f == "phase":
            self._quiet = int(event.value == "final")
        else:
            self._fault_ms = event.time_ns // 1_000_000
            self._steps.fault(event)

    def _pair(self, event: Event) -> None:
        if event.type == "invoke":
            left_open = self._open.pop(event.process, None)
            if left_open is not None:  # the process was reborn without an answer
                self._complete(left_open, None)
            self._open[event.process] = event
            self._steps.begin(event)
        elif event.f == "begin_txn":
            self._steps.begin(event)
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
        run = self._runs.setdefault(event.process, Run())
        run.number += 1
        run.since = self._last.get(event.process, event.index)
        positions = event.positions or {}
        told = event.position is not None or event.positions is not None
        if event.f == "assign":
            run.group = event.group
        if event.f == "reset" or (event.f == "assign" and event.group is not None and not told):
            run.began = Began.RESUMED
        else:
            run.began = Began.TOLD if event.f in {"assign", "seek"} else None
        for key in event.value or []:
            position = positions.get(key, event.position)
            self._starts.pop((event.process, key), None)
            if position is not None:
                self._starts[event.process, key] = position
            self._fresh.add((event.process, key))
            self._steps.forget(event.process, key)
        self._steps.membership(event, self._last.get(event.process, event.index), self._calm(event))

    def _calm(self, event: Event) -> int:
        return event.time_ns // 1_000_000 - self._fault_ms

    # -- operations --------------------------------------------------------------------------------

    def _complete(self, invoke: Event, done: Event | None) -> None:
        if invoke.f in self._steps.handled:
            self.operations += 1
            self._steps.complete(invoke, done, self._calm(done or invoke))
            return
        kind = KINDS[invoke.f]
        if invoke.f == "poll":
            self._complete_poll(invoke, done)
            return
        told = done or invoke
        topic = invoke.topic if invoke.topic is not None else told.topic
        number = invoke.partition if invoke.partition is not None else told.partition
        if topic is None or number is None:
            raise UsageError(
                f"line {invoke.index + 1}: {invoke.f!r} names no topic and partition", mend="add topic and partition"
            )
        position = told.position if told.position is not None else UNKNOWN
        records = self._records(done.value, position) if done is not None and kind in WITH_RECORDS else []
        self._place(topic, number, invoke, done, kind, position, records)

    def _complete_poll(self, invoke: Event, done: Event | None) -> None:
        """One row for each partition that a poll returned records of; an empty poll proves nothing."""
        found = done.value if done is not None and isinstance(done.value, dict) else {}
        for key, pairs in found.items():
            position = self._starts.pop((invoke.process, key), UNKNOWN)
            topic, _, number = key.rpartition("-")
            if not number.isdigit():
                raise UsageError(f"line {invoke.index + 1}: {key!r} is no partition", mend='say "topic-0"')
            self._place(topic, int(number), invoke, done, Kind.READ, position, self._records(pairs, UNKNOWN))
        if not found:
            self.operations += 1

    def _records(self, pairs: Any, position: int) -> list[tuple[int, int]]:
        number = self.values.number
        return [(offset, number(value)) for offset, value in pairs or [] if offset >= position]

    def _place(
        self, topic: str, number: int, invoke: Event, done: Event | None, kind: Kind, position: int,
        records: list[tuple[int, int]],
    ) -> None:  # fmt: skip
        """Into the columns of the partition, of the life of its topic that the operation is of."""
        self.operations += 1
        status = STATUS[done.type] if done is not None else Status.INFO
        life: int | None = 0
        if self._lives.windows:
            told = done or invoke
            end = done.index if done is not None else int(NEVER)
            life = self._lives.of(topic, told.topic_id or invoke.topic_id, invoke.index, end)
        if life is not None:
            self._add(key_of(topic, number, life), invoke, done, kind, status, position, records)
        elif kind is Kind.SEND:  # it may be of either: whoever reads it there is not to be blamed
            for each in range(len(self._lives.windows[topic]) + 1):
                self._add(key_of(topic, number, each), invoke, None, kind, Status.INFO, position, records)

    def _add(
        self, key: Key, invoke: Event, done: Event | None, kind: Kind, status: Status, position: int,
        records: list[tuple[int, int]],
    ) -> None:  # fmt: skip
        told = done or invoke
        offset = told.offset if told.offset is not None and told.offset >= 0 else UNKNOWN
        if kind is Kind.DELETE:
            offset = invoke.offset if invoke.offset is not None else int(NEVER)
        run = self._runs.get(invoke.process)
        ok = status is Status.OK
        row = (
            invoke.index,
            done.index if done is not None else int(NEVER),
            self._number(invoke.process),
            run.number if run is not None else 0,
            kind,
            status,
            offset if ok or kind is Kind.DELETE else UNKNOWN,
            self.values.number(invoke.value) if kind is Kind.SEND else UNKNOWN,
            position,
            told.high_watermark if told.high_watermark is not None and ok else UNKNOWN,
            told.leader_epoch if told.leader_epoch is not None else UNKNOWN,
            self._quiet,
        )
        extra = self._written(invoke, told) if kind is Kind.SEND else self._read(invoke, told, run, key, records)
        self._builders.setdefault(key, Builder()).add(row, extra, records)

    def _written(self, invoke: Event, told: Event) -> dict[str, int | None]:
        extra: dict[str, int | None] = {}
        if told.leader_epoch is not None:
            extra["at_ms"] = told.time_ns // 1_000_000
        if invoke.txn is not None:
            extra["txn"] = self.tables.transactions.number(invoke.txn)
        if invoke.producer_id is not None:
            extra["producer"] = self._number((invoke.producer_id, invoke.producer_epoch))
            extra["sequence"] = invoke.sequence
        if invoke.key is not None:
            extra["key"] = self._number(("key", repr(invoke.key)))
        extra["timestamp_ms"] = invoke.timestamp_ms
        return extra

    def _read(
        self, invoke: Event, told: Event, run: Run | None, key: Key, records: list[tuple[int, int]]
    ) -> dict[str, int | None]:
        isolation = invoke.isolation or told.isolation
        extra: dict[str, int | None] = {
            "isolation": ISOLATIONS[isolation] if isolation is not None else self._isolation,
            "last_stable_offset": told.last_stable_offset,
            "log_start_offset": told.log_start_offset,
        }
        if told.high_watermark is not None:
            extra["at_ms"], extra["calm_ms"] = told.time_ns // 1_000_000, self._calm(told)
        if invoke.txn is not None:
            extra["txn"] = self.tables.transactions.number(invoke.txn)
        if told.node is not None:
            extra["node"] = self._number(("node", told.node))
        group = invoke.group or (run.group if run is not None else None)
        if group is not None:
            extra["group"] = self._number(("group", group))
        if invoke.f == "poll" and records and told is not invoke:
            first = (invoke.process, key) in self._fresh
            if first and run is not None:
                self._fresh.discard((invoke.process, key))
                if run.began is not None and not self._steps.resumes(invoke, told, group, key, records, run):
                    extra["began"] = run.began
            self._steps.was_given(invoke.process, group, key, records[-1][0] + 1)
        return extra

    # -- the end -----------------------------------------------------------------------------------

    def ingested(self, config: Config) -> Ingested:
        self.finish()
        return Ingested(config, self.build(), self.tables, self.values, self.faults, self.operations)

    def build(self) -> dict[Key, Operations]:
        transactions = self.tables.transactions
        fate = np.array([*transactions.fate, UNKNOWN], np.int64)
        # Without a beginning nobody knows whether its end would have been recorded.
        ended = np.array(
            [
                end if begun or end < NEVER else 0
                for end, begun in zip(transactions.ended, transactions.begun, strict=True)
            ]
            + [UNKNOWN],
            np.int64,
        )
        partitions = {}
        for key, builder in sorted(self._builders.items()):
            txn = builder.told("txn")
            stamped = {} if txn is None else {"fate": fate[txn], "ended": ended[txn]}
            partitions[key] = builder.build(**stamped)
        return _with_former_lives(partitions, self._lives)


def _with_former_lives(partitions: dict[Key, Operations], lives: Lives) -> dict[Key, Operations]:
    """What was acknowledged in a deleted topic, added to those that took its name: it must not be read there."""
    for topic, windows in lives.windows.items():
        numbers = {key for key in partitions if key.startswith(f"{topic}-") and key[len(topic) + 1 :].isdigit()}
        for key in numbers:
            for life in range(1, len(windows) + 1):
                later = key_of(topic, int(key[len(topic) + 1 :]), life)
                if later in partitions:
                    partitions[later] = _after(partitions[key], partitions[later], windows[life - 1].deleted)
    return partitions


def _after(former: Operations, ops: Operations, deleted: int) -> Operations:
    gone = (former.kind == Kind.SEND) & (former.status == Status.OK) & (former.returned < deleted)
    columns = {}
    for name in Operations.__dataclass_fields__:
        old, new = getattr(former, name), getattr(ops, name)
        if name.startswith("record_") and name != "record_count":
            columns[name] = new
        elif new.strides != (0,) or name in {"invoked", "kind"}:
            columns[name] = np.concatenate([old[gone], new])
    columns["kind"][: int(gone.sum())] = Kind.FORMER
    return Operations(**columns)


def ingest(where: Path | str, overrides: dict[str, Any] | None = None, format_: str | None = None) -> Ingested:
    """Read a history whole; `overrides` replace keys of its header. UsageError when nothing of it can be read."""
    history = open_history(str(where), format_)
    config = msgspec.structs.replace(history.config, **overrides) if overrides else history.config
    reading = Ingest(config)
    read = 0
    for event in history.events:
        reading.take(event)
        read += 1
    quarantine = history.quarantine
    if not read and quarantine.lines:
        first = quarantine.lines[0]
        raise UsageError(
            f"nothing of it can be read as {history.format}; line {first.line}: {first.reason}",
            where=str(where),
            mend="name another format with --format",
        )
    ingested = reading.ingested(config)
    ingested.format, ingested.quarantine = history.format, quarantine
    return ingested
