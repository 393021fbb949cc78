"""Events to columns, one partition each, and the tables of a run: one pass, with memory for columns only."""

import struct
from typing import Any, Final

from highwater.errors import UsageError
from highwater.reports.columns import ISOLATIONS, NEVER, UNKNOWN, Began, Kind, Operations, Status, stamped
from highwater.reports.ingest.builder import OWN_NUMBER, Builder, Values, packed, text_of
from highwater.reports.ingest.history import Held, Ingested, Key, status_of
from highwater.reports.ingest.incarnations import Former, Lives, after, key_of
from highwater.reports.ingest.steps import Run, Steps
from highwater.reports.tables import Tables
from highwater.spec.formats.history import NEMESIS, Config, Event

# A member of an enumeration takes longer to name than all else that is done with it.
SEND, READ, DELETE, OK = Kind.SEND, Kind.READ, Kind.DELETE, Status.OK
NOT_RETURNED: Final = int(NEVER)
KINDS = {
    "send": Kind.SEND, "poll": Kind.READ, "fetch": Kind.READ, "list_offsets": Kind.LIST_OFFSETS,
    "log_dump": Kind.DUMP, "delete_records": Kind.DELETE,
}  # fmt: skip
WITH_RECORDS = {Kind.READ, Kind.DUMP}
OPERATIONS = KINDS.keys() | Steps.handled
RESTARTS = {"assign", "seek", "reset", "revoke", "lost", "crash", "subscribe"}


class Ingest:
    """Pairs invocations with completions; what never completed is unknown."""

    def __init__(self) -> None:
        self.values = Values()
        self.faults: list[Event] = []
        self.operations = 0
        self.tables = Tables()
        self._partitions: dict[Key, tuple[str, int]] = {}
        self._builders: dict[Key, Builder] = {}
        self._open: dict[int | str, Event] = {}
        self.pending = 0  # rows and records not yet taken
        self._runs: dict[int | str, Run] = {}
        self._numbers: dict[object, int] = {}
        self._starts: dict[int | str, dict[Key, int]] = {}
        self._fresh: set[tuple[int | str, Key]] = set()
        self._last: dict[int | str, int] = {}
        self._lives = Lives()
        self._steps = Steps(self.tables, self._number, self._lives)
        self._gave_up: dict[object, int] = {}  # client -> the last event at which it gave up on a record
        self._quiet = 0
        self._fault_ms = 0

    def _number(self, what: object) -> int:
        """Processes, groups, nodes and producers as they come."""
        return self._numbers.setdefault(what, len(self._numbers))

    # -- events ------------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        process, f = event.process, event.f
        if process == NEMESIS:
            self._nemesis(event)
            return
        if f in OPERATIONS:
            self._pair(event)
        elif f in RESTARTS:
            self._restart(event)
        self._last[process] = event.index

    def _nemesis(self, event: Event) -> None:
        self.faults.append(event)
        if event.f == "phase":
            self._quiet = int(event.value == "final")
        else:
            self._fault_ms = event.time_ns // 1_000_000
            self._steps.fault(event)

    def _pair(self, event: Event) -> None:
        if event.type == "invoke":
            opened = self._open.pop(event.process, None)
            if opened is not None:  # the process was reborn without an answer
                self._complete(opened, None)
            self._open[event.process] = event
            if event.f not in KINDS:
                self._steps.begin(event)
        elif event.f == "begin_txn":
            self._steps.begin(event)
        else:
            opened = self._open.pop(event.process, None)
            if opened is None:
                raise UsageError(
                    f"line {event.index + 1}: process {event.process} completes {event.f!r} without an invoke before",
                    hint="every ok, fail or info needs its invoke",
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
        left_open = self._open.get(event.process)
        if event.f == "crash" and left_open is not None and left_open.f == "poll":
            self._lose_place(event.process, event.index)
        run = self._runs.setdefault(event.process, Run())
        run.number += 1
        run.since = self._last.get(event.process, event.index)
        positions = event.positions or {}
        told = event.position is not None or event.positions is not None
        run.reset = event.f == "reset"
        if event.f == "assign":
            run.group = event.group
        if event.f == "reset" or (event.f == "assign" and event.group is not None and not told):
            run.began = Began.RESUMED
        else:
            run.began = Began.TOLD if event.f in {"assign", "seek"} else None
        starts = self._starts.setdefault(event.process, {})
        for key in event.value or []:
            position = positions.get(key, event.position)
            starts.pop(key, None)
            if position is not None:
                starts[key] = position
            self._fresh.add((event.process, key))
            self._steps.stands_at(event.process, key, position)
        self._steps.membership(event, self._last.get(event.process, event.index), self._calm(event))

    def _calm(self, event: Event) -> int:
        return event.time_ns // 1_000_000 - self._fault_ms

    # -- operations --------------------------------------------------------------------------------

    def _complete(self, invoke: Event, done: Event | None) -> None:
        kind = KINDS.get(invoke.f)
        if kind is None:
            self.operations += 1
            self._steps.complete(invoke, done, self._calm(done or invoke))
            return
        if invoke.f == "poll":
            self._complete_poll(invoke, done)
            return
        told = done or invoke
        topic = invoke.topic if invoke.topic is not None else told.topic
        number = invoke.partition if invoke.partition is not None else told.partition
        if topic is None or number is None:
            raise UsageError(
                f"line {invoke.index + 1}: {invoke.f!r} names no topic and partition", hint="add topic and partition"
            )
        asked = told.position if told.position is not None else invoke.position
        position = asked if asked is not None else UNKNOWN
        records = self._records(done.value, position) if done is not None and kind in WITH_RECORDS else []
        self._place(topic, number, invoke, done, kind, position, records)

    def _complete_poll(self, invoke: Event, done: Event | None) -> None:
        """One row for each partition that a poll returned records of; an empty poll proves nothing."""
        found = done.value if done is not None and isinstance(done.value, dict) else {}
        unsure = done is None or done.type == "info" or (done.type == "fail" and bool(found or invoke.txn))
        starts = self._starts.get(invoke.process, {})
        for key, pairs in found.items():
            position = starts.pop(key, UNKNOWN) if starts else UNKNOWN
            place = self._partitions.get(key)
            if place is None:
                topic, _, number = key.rpartition("-")
                if not number.isdigit():
                    raise UsageError(f"line {invoke.index + 1}: {key!r} is no partition", hint='say "topic-0"')
                place = self._partitions[key] = topic, int(number)
            self._place(*place, invoke, done, READ, position, self._records(pairs, UNKNOWN))
        if not found:
            self.operations += 1
        if unsure:
            self._lose_place(invoke.process, (done or invoke).index)

    def _lose_place(self, process: int | str, index: int) -> None:
        """A poll that did not end well may have gone on over more than it told."""
        run = self._runs.setdefault(process, Run())
        run.number, run.began = run.number + 1, None
        self._starts.pop(process, None)
        self._steps.lose_place(process, run.group, index)

    def _records(self, pairs: Any, position: int) -> list[tuple[int, int]]:
        number = self.values.number
        return [
            (offset, value if type(value) is int and 0 <= value < OWN_NUMBER else number(value))
            for offset, value in pairs or ()
            if offset >= position
        ]

    def _place(
        self, topic: str, number: int, invoke: Event, done: Event | None, kind: Kind, position: int,
        records: list[tuple[int, int]],
    ) -> None:  # fmt: skip
        """Into the columns of the partition, of the life of its topic that the operation is of."""
        self.operations += 1
        status = OK if done is not None and done.type == "ok" else status_of(invoke, done)
        life: int | None = 0
        if self._lives.windows:
            told = done or invoke
            end = done.index if done is not None else NOT_RETURNED
            life = self._lives.of(topic, told.topic_id or invoke.topic_id, invoke.index, end)
        if life is not None:
            key = key_of(topic, number, life) if life else f"{topic}-{number}"
            self._add(key, invoke, done, kind, status, position, records)
        elif kind is SEND:  # it may be of either: whoever reads it there is not to be blamed
            for each in range(len(self._lives.windows[topic]) + 1):
                self._add(key_of(topic, number, each), invoke, None, kind, Status.INFO, position, records)

    def _add(
        self, key: Key, invoke: Event, done: Event | None, kind: Kind, status: Status, position: int,
        records: list[tuple[int, int]],
    ) -> None:  # fmt: skip
        builder = self._builders.get(key)
        if builder is None:
            builder = self._builders[key] = Builder()
        try:
            if kind is SEND:
                builder.add(self._written(invoke, done, status, position), records)
            else:
                builder.add(self._read(key, invoke, done, kind, status, position, records), records)
        except (struct.error, OverflowError) as error:
            raise UsageError(f"line {invoke.index + 1}: {error}", hint="numbers have 64 bits") from error
        self.pending += 1 + len(records)

    def _written(self, invoke: Event, done: Event | None, status: Status, position: int) -> bytes:
        """The row of a send."""
        told, value, process, numbers = done or invoke, invoke.value, invoke.process, self._numbers
        offset = told.offset if status is OK and told.offset is not None and told.offset >= 0 else UNKNOWN
        epoch = told.leader_epoch if told.leader_epoch is not None else invoke.leader_epoch
        run = self._runs.get(process)
        producer = key = UNKNOWN
        if invoke.producer_id is not None:
            producer = self._number((invoke.producer_id, invoke.producer_epoch))
        if invoke.key is not None:
            key = self._number(("key", invoke.key) if type(invoke.key) is str else ("other key", text_of(invoke.key)))
        return packed(
            invoke.index,
            done.index if done is not None else NOT_RETURNED,
            numbers.setdefault(process, len(numbers)),
            run.number if run is not None else 0,
            SEND,
            status,
            offset,
            value if type(value) is int and 0 <= value < OWN_NUMBER else self.values.number(value),
            position,
            UNKNOWN,
            epoch if epoch is not None else UNKNOWN,
            self._quiet,
            0,
            UNKNOWN, UNKNOWN, UNKNOWN,
            self.tables.transactions.number(invoke.txn) if invoke.txn is not None else UNKNOWN,
            producer,
            invoke.sequence if invoke.sequence is not None else UNKNOWN,
            key,
            invoke.timestamp_ms if invoke.timestamp_ms is not None else UNKNOWN,
            UNKNOWN, UNKNOWN, UNKNOWN,
            told.time_ns // 1_000_000 if told.leader_epoch is not None else UNKNOWN,
            UNKNOWN,
            self._gives_up(invoke, told),
        )  # fmt: skip

    def _gives_up(self, invoke: Event, told: Event) -> int:
        """Did the client give up on a record while this send was open?"""
        client = invoke.client if invoke.client is not None else invoke.process
        if told.type not in {"ok", "fail"}:
            self._gave_up[client] = max(told.index, invoke.index)
        return 1 if self._gave_up.get(client, -1) >= invoke.index else UNKNOWN

    def _read(
        self, key: Key, invoke: Event, done: Event | None, kind: Kind, status: Status, position: int,
        records: list[tuple[int, int]],
    ) -> bytes:  # fmt: skip
        """The row of anything else."""
        told, process, numbers = done or invoke, invoke.process, self._numbers
        offset, end, start = told.offset, told.high_watermark, told.log_start_offset
        if kind is DELETE:
            offset = invoke.offset if invoke.offset is not None else NOT_RETURNED
        elif status is not OK or offset is None or offset < 0:
            offset = UNKNOWN
        epoch = told.leader_epoch if told.leader_epoch is not None else invoke.leader_epoch
        run, node, at_ms = self._runs.get(process), told.node or invoke.node, told.time_ns // 1_000_000
        group = invoke.group or (run.group if run is not None else None)
        return packed(
            invoke.index,
            done.index if done is not None else NOT_RETURNED,
            numbers.setdefault(process, len(numbers)),
            run.number if run is not None else 0,
            kind,
            status,
            offset,
            UNKNOWN,
            position,
            end if end is not None and status is OK else UNKNOWN,
            epoch if epoch is not None else UNKNOWN,
            self._quiet,
            len(records),
            told.last_stable_offset if told.last_stable_offset is not None else UNKNOWN,
            start if start is not None else UNKNOWN,
            ISOLATIONS[invoke.isolation or told.isolation],
            self.tables.transactions.number(invoke.txn) if invoke.txn is not None else UNKNOWN,
            UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN,
            numbers.setdefault(("node", node), len(numbers)) if node is not None else UNKNOWN,
            numbers.setdefault(("group", group), len(numbers)) if group is not None else UNKNOWN,
            self._given(invoke, told, run, key, group, records) if records and invoke.f == "poll" else UNKNOWN,
            at_ms if end is not None or start is not None else UNKNOWN,
            at_ms - self._fault_ms if end is not None else UNKNOWN,
            UNKNOWN,
        )  # fmt: skip

    def _given(
        self, invoke: Event, told: Event, run: Run | None, key: Key, group: str | None,
        records: list[tuple[int, int]],
    ) -> int:  # fmt: skip
        """Notes what a poll was given; the first one after an assignment tells how it began."""
        if told is invoke:
            return UNKNOWN
        began = UNKNOWN
        if run is not None and (invoke.process, key) in self._fresh:
            self._fresh.discard((invoke.process, key))
            if run.began is not None and not self._steps.resumes(invoke, told, group, key, records, run):
                began = run.began
        self._steps.was_given(invoke.process, group, key, records[-1][0] + 1, told.index)
        return began

    @property
    def touched(self) -> bool:
        """Did anything come at all?"""
        return bool(self.operations or self.faults or self._last)

    # -- the end -----------------------------------------------------------------------------------

    def build(self) -> dict[Key, Operations]:
        fate, ended = self.tables.transactions.columns()
        partitions = {key: stamped(ops, fate, ended) for key, ops in self.taken().items()}
        return {
            key: after(partitions[former.key], ops, former.deleted) if (former := self.former(key)) else ops
            for key, ops in partitions.items()
        }

    def ingested(self, config: Config) -> Ingested:
        self.finish()
        partitions = Held(self.build())
        rows = sum(len(ops) for ops in partitions.values())
        return Ingested(config, partitions, self.tables, self.values, self.faults, self.operations, rows)

    def taken(self) -> dict[Key, Operations]:
        """What was read since the last time, without what became of its transactions."""
        self.pending = 0
        return {key: builder.take() for key, builder in sorted(self._builders.items()) if len(builder)}

    def former(self, key: Key) -> Former | None:
        """The partition of the deleted topic whose name this one took, if there was one that is known."""
        former = self._lives.former(key)
        return former if former is not None and former.key in self._builders else None
