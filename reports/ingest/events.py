"""Turn events into columns per partition and tables of the run, in one pass that keeps only columns in memory."""

import struct
from typing import Any, Final

from highwater.errors import UsageError
from highwater.reports.columns import (
    ISOLATIONS,
    NEVER,
    UNKNOWN,
    Began,
    Kind,
    Operations,
    Status,
    producer_of,
    with_transaction_outcomes,
)
from highwater.reports.ingest.builder import OWN_NUMBER, Builder, Processes, Values, packed, text_of
from highwater.reports.ingest.history import Ingested, InMemoryPartitions, Key, status_of
from highwater.reports.ingest.incarnations import FormerPartition, TopicIncarnations, key_of, prepend_former_sends
from highwater.reports.ingest.inventory import Ends, Inventory
from highwater.reports.ingest.steps import Run, Steps
from highwater.reports.tables import Tables
from highwater.spec.formats.history import NEMESIS, Config, Event, begins_fault

# Module constants: attribute access on an enumeration dominated the time per event.
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
    """Pair invocations with completions; an operation without a completion has the status INFO."""

    def __init__(self) -> None:
        self.values = Values()
        self.faults: list[Event] = []
        self.operations = 0
        self.tables = Tables()
        self._partitions: dict[Key, tuple[str, int]] = {}
        self._builders: dict[Key, Builder] = {}
        self._open: dict[int | str, Event] = {}
        self.pending = 0  # rows and records not yet drained
        self._runs: dict[int | str, Run] = {}
        self._numbers: dict[object, int] = {}
        self._processes = Processes()
        self._starts: dict[int | str, dict[Key, int]] = {}
        self._fresh: set[tuple[int | str, Key]] = set()
        self._last: dict[int | str, int] = {}
        self._lives = TopicIncarnations()
        self._steps = Steps(self.tables, self._processes.cell, self._lives)
        self._gave_up: dict[object, int] = {}  # client -> the last event at which it gave up on a record
        self._final_since = NOT_RETURNED  # the event at which the current phase `final` began
        self._fault_ms = 0
        self._faults_met = 0
        self._unmet = 0  # faults during which no operation was open so far

    def _number(self, what: object) -> int:
        """Return the number of a group, node, key or producer, assigned at first use."""
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
        if begins_fault(event):
            self._faults_met += bool(self._open)
            self._unmet += not self._open
        elif event.f not in {"phase", "header"}:
            self._unmet = 0  # the end of a fault
        if event.f == "phase":
            self._final_since = event.index if event.value == "final" else NOT_RETURNED
        else:
            self._fault_ms = event.time_ns // 1_000_000
            self._steps.fault(event)

    def _pair(self, event: Event) -> None:
        if event.type == "invoke":
            if self._unmet:
                self._faults_met, self._unmet = self._faults_met + self._unmet, 0
            opened = self._open.pop(event.process, None)
            if opened is not None:  # the process restarted before a reply
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
                    f"line {event.index + 1}: process {event.process} completes {event.f!r} without an earlier invoke",
                    hint="every ok, fail or info needs an invoke before it",
                )
            self._complete(opened, event)

    def finish(self) -> None:
        """Complete the operations that are open: their outcome is unknown."""
        for opened in list(self._open.values()):
            self._complete(opened, None)
        self._open.clear()

    def _restart(self, event: Event) -> None:
        """Start a new run of a reading process; an assignment may give the positions."""
        if event.type == "invoke":
            return
        left_open = self._open.get(event.process)
        if event.f == "crash" and left_open is not None and left_open.f == "poll":
            self._lose_place(event.process, event.index)
        run = self._runs.setdefault(event.process, Run())
        run.number += 1
        run.since = self._last.get(event.process, event.index)
        run.at_ms, run.calm_ms = event.time_ns // 1_000_000, self._calm(event)
        positions = event.positions or {}
        has_position = event.position is not None or event.positions is not None
        run.reset = event.f == "reset"
        run.held = dict(self._steps.positions(event.process)) if run.reset else {}
        if event.f == "crash":
            self._steps.forget_positions(event.process)
        if event.f == "assign":
            run.group = event.group
        if event.f == "reset" or (event.f == "assign" and event.group is not None and not has_position):
            run.began = Began.RESUMED
        else:
            run.began = Began.ASSIGNED if event.f in {"assign", "seek"} else None
        starts = self._starts.setdefault(event.process, {})
        for key in event.value or []:
            position = positions.get(key, event.position)
            starts.pop(key, None)
            if position is not None:
                starts[key] = position
            self._fresh.add((event.process, key))
            self._steps.set_position(event.process, key, position)
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
        last = done or invoke
        topic = invoke.topic if invoke.topic is not None else last.topic
        number = invoke.partition if invoke.partition is not None else last.partition
        if topic is None or number is None:
            raise UsageError(
                f"line {invoke.index + 1}: {invoke.f!r} names no topic and partition", hint="add topic and partition"
            )
        requested = last.position if last.position is not None else invoke.position
        position = requested if requested is not None else UNKNOWN
        records = self._records(done.value) if done is not None and kind in WITH_RECORDS else []
        self.operations += 1
        self._place(topic, number, invoke, done, kind, position, records)

    def _complete_poll(self, invoke: Event, done: Event | None) -> None:
        """Add one row for each partition with records: Kafka does not promise that a poll returns what is there."""
        records = done.value if done is not None and isinstance(done.value, dict) else {}
        unsure = done is None or done.type == "info" or (done.type == "fail" and bool(records or invoke.txn))
        starts = self._starts.get(invoke.process, {})
        for key, pairs in records.items():
            position = starts.pop(key, UNKNOWN) if starts and pairs else UNKNOWN
            self.operations += 1
            self._place(*self._partition(key, invoke), invoke, done, READ, position, self._records(pairs))
        if not records:
            self.operations += 1
        if unsure:
            self._lose_place(invoke.process, (done or invoke).index)

    def _partition(self, key: str, invoke: Event) -> tuple[str, int]:
        place = self._partitions.get(key)
        if place is None:
            topic, _, number = key.rpartition("-")
            if not number.isdigit():
                raise UsageError(f"line {invoke.index + 1}: {key!r} is not a partition", hint='write it as "topic-0"')
            place = self._partitions[key] = topic, int(number)
        return place

    def _lose_place(self, process: int | str, index: int) -> None:
        """Start a new run: a poll that failed or is unknown may have advanced past more records than it returned."""
        run = self._runs.setdefault(process, Run())
        run.number, run.began = run.number + 1, None
        self._starts.pop(process, None)
        self._steps.lose_place(process, run.group, index)

    def _records(self, pairs: Any) -> list[tuple[int, int]]:
        number = self.values.number
        return [
            (offset, value if type(value) is int and 0 <= value < OWN_NUMBER else number(value))
            for offset, value in pairs or ()
        ]

    def _place(
        self, topic: str, number: int, invoke: Event, done: Event | None, kind: Kind, position: int,
        records: list[tuple[int, int]],
    ) -> None:  # fmt: skip
        """Add a row to the partition, in the topic incarnation that the operation belongs to."""
        status = OK if done is not None and done.type == "ok" else status_of(invoke, done)
        life: int | None = 0
        if self._lives.windows:
            last = done or invoke
            end = done.index if done is not None else NOT_RETURNED
            life = self._lives.of(topic, last.topic_id or invoke.topic_id, invoke.index, end)
        if life is not None:
            key = key_of(topic, number, life) if life else f"{topic}-{number}"
            self._add(key, invoke, done, kind, status, position, records)
        elif kind is SEND:  # it may belong to any incarnation: a read of it in either is then no finding
            for incarnation in range(len(self._lives.windows[topic]) + 1):
                self._add(key_of(topic, number, incarnation), invoke, None, kind, Status.INFO, position, records)

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
        """Return the packed row of a send."""
        last, value, process = done or invoke, invoke.value, invoke.process
        offset = last.offset if status is OK and last.offset is not None and last.offset >= 0 else UNKNOWN
        epoch = last.leader_epoch if last.leader_epoch is not None else invoke.leader_epoch
        run = self._runs.get(process)
        producer = key = UNKNOWN
        if invoke.producer_id is not None:
            producer = producer_of(self._number(("producer", invoke.producer_id)), invoke.producer_epoch)
        if invoke.key is not None:
            key = self._number(("key", invoke.key) if type(invoke.key) is str else ("other key", text_of(invoke.key)))
        return packed(
            invoke.index,
            done.index if done is not None else NOT_RETURNED,
            self._processes.cell(process),
            run.number if run is not None else 0,
            SEND,
            status,
            offset,
            value if type(value) is int and 0 <= value < OWN_NUMBER else self.values.number(value),
            position,
            UNKNOWN,
            epoch if epoch is not None else UNKNOWN,
            int(invoke.index > self._final_since),
            0,
            UNKNOWN, UNKNOWN, UNKNOWN,
            self.tables.transactions.number(invoke.txn) if invoke.txn is not None else UNKNOWN,
            producer,
            invoke.sequence if invoke.sequence is not None else UNKNOWN,
            key,
            invoke.timestamp_ms if invoke.timestamp_ms is not None else UNKNOWN,
            UNKNOWN, UNKNOWN, UNKNOWN,
            last.time_ns // 1_000_000 if last.leader_epoch is not None else UNKNOWN,
            UNKNOWN,
            self._gives_up(invoke, last),
            UNKNOWN,
        )  # fmt: skip

    def _gives_up(self, invoke: Event, last: Event) -> int:
        """Return 1 if the client gave up on any record while this send was open, else `UNKNOWN`."""
        client = invoke.client if invoke.client is not None else invoke.process
        if last.type not in {"ok", "fail"}:
            self._gave_up[client] = max(last.index, invoke.index)
        return 1 if self._gave_up.get(client, -1) >= invoke.index else UNKNOWN

    def _read(
        self, key: Key, invoke: Event, done: Event | None, kind: Kind, status: Status, position: int,
        records: list[tuple[int, int]],
    ) -> bytes:  # fmt: skip
        """Return the packed row of an operation that is not a send."""
        last, process, numbers = done or invoke, invoke.process, self._numbers
        offset, end, start = last.offset, last.high_watermark, last.log_start_offset
        if kind is DELETE:
            offset = invoke.offset if invoke.offset is not None and invoke.offset >= 0 else UNKNOWN
        elif status is not OK or offset is None or offset < 0:
            offset = UNKNOWN
        epoch = last.leader_epoch if last.leader_epoch is not None else invoke.leader_epoch
        run, node, at_ms = self._runs.get(process), last.node or invoke.node, last.time_ns // 1_000_000
        group = invoke.group or (run.group if run is not None else None)
        return packed(
            invoke.index,
            done.index if done is not None else NOT_RETURNED,
            self._processes.cell(process, raw=invoke.f != "poll"),
            run.number if run is not None else 0,
            kind,
            status,
            offset,
            UNKNOWN,
            position,
            end if end is not None and status is OK else UNKNOWN,
            epoch if epoch is not None else UNKNOWN,
            int(invoke.index > self._final_since),
            len(records),
            last.last_stable_offset if last.last_stable_offset is not None else UNKNOWN,
            start if start is not None else UNKNOWN,
            ISOLATIONS[invoke.isolation or last.isolation],
            self.tables.transactions.number(invoke.txn) if invoke.txn is not None else UNKNOWN,
            UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN,
            numbers.setdefault(("node", node), len(numbers)) if node is not None else UNKNOWN,
            numbers.setdefault(("group", group), len(numbers)) if group is not None else UNKNOWN,
            self._note_poll(invoke, last, run, key, group, records) if records and invoke.f == "poll" else UNKNOWN,
            at_ms if end is not None or start is not None else UNKNOWN,
            at_ms - self._fault_ms if end is not None else UNKNOWN,
            UNKNOWN,
            at_ms - invoke.time_ns // 1_000_000 if end is not None else UNKNOWN,
        )  # fmt: skip

    def _note_poll(
        self, invoke: Event, last: Event, run: Run | None, key: Key, group: str | None,
        records: list[tuple[int, int]],
    ) -> int:  # fmt: skip
        """Note the end of a poll; return how the run began (`Began`) if this is its first poll, else `UNKNOWN`."""
        if last is invoke:
            return UNKNOWN
        began = UNKNOWN
        if run is not None and (invoke.process, key) in self._fresh:
            self._fresh.discard((invoke.process, key))
            if run.began is not None and not self._steps.resumes(invoke, last, group, key, records, run):
                began = run.began
        self._steps.advance_position(invoke.process, group, key, records[-1][0] + 1, last.index)
        return began

    @property
    def has_events(self) -> bool:
        """Return whether any event was read."""
        return bool(self.operations or self.faults or self._last)

    # -- the end -----------------------------------------------------------------------------------

    def build(self) -> dict[Key, Operations]:
        fate, ended = self.tables.transactions.columns()
        partitions = {key: with_transaction_outcomes(ops, fate, ended) for key, ops in self.drain().items()}
        return {
            key: prepend_former_sends(partitions[former.key], ops, former.deleted)
            if (former := self.former(key))
            else ops
            for key, ops in partitions.items()
        }

    def ingested(self, config: Config) -> Ingested:
        self.finish()
        partitions = InMemoryPartitions(self.build())
        rows = sum(len(ops) for ops in partitions.values())
        inventory, ends = Inventory(), Ends()
        for key in partitions:
            inventory.add(partitions[key])
            ends.add(key, partitions[key])
        inventory.note_ends(ends)
        inventory.add_steps(self.tables.steps)
        self.note(inventory)
        return Ingested(config, partitions, self.tables, self.values, self.faults, self.operations, rows, inventory)

    def note(self, inventory: Inventory) -> None:
        """Add what only the events show to the counts of a history."""
        inventory.faults_met, inventory.ended_topics = self._faults_met, self._lives.ended()

    def drain(self) -> dict[Key, Operations]:
        """Return the rows read since the last call; fates of transactions are not yet filled in."""
        self.pending = 0
        return {key: builder.take() for key, builder in sorted(self._builders.items()) if len(builder)}

    def former(self, key: Key) -> FormerPartition | None:
        """Return the partition of the deleted topic of the same name, None if the history has no operation on it."""
        former = self._lives.former(key)
        return former if former is not None and former.key in self._builders else None
