"""Group the events of a history into operations, transactions, and the sends and reads of each partition."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

Event = dict[str, Any]
History = list[Event]
"""The header, then the events in their order. The place in the list is the time."""
Key = str
"""Topic and partition, such as `t-0`."""

INDEFINITE: Final = re.compile("time|connection|leader", re.IGNORECASE)
"""Errors of a `fail` that leave it open whether the operation took effect."""


@dataclass(frozen=True)
class Operation:
    """An invocation with its completion, or one event without an invocation."""

    f: str
    process: int | str
    invoked: int
    returned: float
    """Infinite if there is no completion."""
    status: str
    fields: Event
    final: bool
    """It began in the final phase."""

    @property
    def key(self) -> Key:
        return f"{self.fields['topic']}-{self.fields['partition']}"

    def offsets(self) -> dict[Key, int]:
        """Return the offsets of a commit, of `send_offsets`, or of a reply to `committed`."""
        return dict(self.fields.get("value") or {})


def operations_of(history: History) -> list[Operation]:
    """Return the operations of the clients, sorted by invocation."""
    found: list[Operation] = []
    opened: dict[int | str, tuple[int, Event]] = {}
    phases = {event["value"]: time for time, event in enumerate(history) if event["f"] == "phase"}
    final = phases.get("final", inf)
    for time, event in enumerate(history):
        process = event["process"]
        if event["type"] == "invoke":
            opened[process] = time, event
        elif process != "nemesis":
            invoked, call = opened.pop(process, (time, {}))
            indefinite = event["type"] == "fail" and INDEFINITE.search(event.get("error") or "")
            status = "info" if indefinite else event["type"]
            found.append(Operation(event["f"], process, invoked, time, status, call | event, invoked > final))
    for invoked, call in opened.values():
        found.append(Operation(call["f"], call["process"], invoked, inf, "info", call, invoked > final))
    return sorted(found, key=lambda operation: operation.invoked)


@dataclass(frozen=True)
class Send:
    """A send that was not rejected."""

    process: int | str
    value: Any
    invoked: int
    acked: bool
    deadline: float
    """The time by which it was committed: that of the acknowledgement."""
    offset: int | None
    leader_epoch: int | None
    txn: Any
    producer_id: int | None
    order: tuple[int, int] | None
    """Producer epoch and sequence."""


@dataclass(frozen=True)
class Resumed:
    """The position of a group member after an assignment: what the group has committed."""

    group: str
    assigned: int
    """The time of the assignment; the committed offset is fetched after it."""


@dataclass(frozen=True)
class Read:
    """A reply with records or ends of one partition."""

    f: str
    invoked: int
    returned: float
    final: bool
    committed: bool
    """Isolation read_committed."""
    start: int | None
    """The position, None if it is not known."""
    records: tuple[tuple[int, Any], ...]
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    leader_epoch: int | None = None
    resumed: Resumed | None = None

    @property
    def next(self) -> int:
        return self.records[-1][0] + 1 if self.records else 0

    @property
    def end(self) -> int:
        """Return the offset below which the reply proves all records committed."""
        return max(self.next, self.high_watermark or 0)

    @property
    def stable_end(self) -> int:
        """Return the offset below which the reply proves all transactions decided."""
        return max(self.next if self.committed else 0, self.last_stable_offset or 0)

    @property
    def covered(self) -> range:
        """Return the offsets whose visible records must be in the reply; a fetch may return whole batches."""
        first = self.records[0][0] if self.records else 0
        return range(first if self.start is None else min(self.start, first), self.next)


@dataclass
class Transaction:
    name: Any
    began: int
    transactional_id: str | None = None
    ends: list[Operation] = field(default_factory=list)
    touched: dict[Key, int] = field(default_factory=dict)
    """Partitions that get a marker, with the time of the first send: it adds the partition to the transaction."""

    def requested(self, outcome: str, *statuses: str) -> list[int]:
        """Return when this outcome was requested, of the requests that ended in these ways."""
        return [end.invoked for end in self.ends if end.fields["value"] == outcome and end.status in statuses]

    def outcomes(self) -> set[str]:
        """Return the possible outcomes; the coordinator may abort a transaction that the client has not ended."""
        decided = {end.fields["value"] for end in self.ends if end.status == "ok"}
        if decided:
            return decided if len(decided) == 1 else set()
        return {"abort", "open"} | ({"commit"} if self.requested("commit", "info") else set())


def transactions_of(operations: Sequence[Operation]) -> dict[Any, Transaction]:
    """Return the transactions by name, in the order in which they began."""
    found: dict[Any, Transaction] = {}
    for operation in operations:
        if (name := operation.fields.get("txn")) is None:
            continue
        txn = found.setdefault(name, Transaction(name, operation.invoked))
        if operation.f == "begin_txn":
            txn.transactional_id = operation.fields.get("value")
        elif operation.f == "end_txn":
            txn.ends.append(operation)
        elif operation.f == "send":
            txn.touched.setdefault(operation.key, operation.invoked)
    return found


def sends_of(operations: Sequence[Operation]) -> dict[Key, list[Send]]:
    """Return the sends of each partition that may be in its log."""
    sends: dict[Key, list[Send]] = defaultdict(list)
    for operation in operations:
        if operation.f != "send" or operation.status == "fail":
            continue
        get, acked = operation.fields.get, operation.status == "ok"
        offset, epoch = (get("offset"), get("leader_epoch")) if acked else (None, None)
        order: Any = get("producer_epoch"), get("sequence")
        sends[operation.key].append(
            Send(
                operation.process, get("value"), operation.invoked, acked, operation.returned if acked else inf,
                None if offset == -1 else offset, epoch, get("txn"), get("producer_id"),
                None if None in order else order,
            )
        )  # fmt: skip
    return sends


def reads_of(operations: Sequence[Operation], isolation: str) -> dict[Key, list[Read]]:
    """Return the replies of each partition; `isolation` applies to those that state none."""
    reads: dict[Key, list[Read]] = defaultdict(list)
    for key, read in _polls(operations, isolation):
        reads[key].append(read)
    for op in operations:
        if op.f in {"fetch", "list_offsets"} and op.status == "ok":
            get = op.fields.get
            committed = get("isolation", isolation) == "read_committed"
            records = tuple((offset, value) for offset, value in get("value") or ())
            ends = get("high_watermark"), get("last_stable_offset"), get("leader_epoch")
            reads[op.key].append(
                Read(op.f, op.invoked, op.returned, op.final, committed, get("position"), records, *ends)
            )
    return reads


def _polls(operations: Sequence[Operation], isolation: str) -> Iterator[tuple[Key, Read]]:
    """Follow the positions of the consumers; each process has one consumer."""
    consumers: dict[int | str, dict[Key, int | Resumed | None]] = defaultdict(dict)
    for op in operations:
        positions, get = consumers[op.process], op.fields.get
        if op.f == "poll" and op.status == "ok":
            for key, rows in (get("value") or {}).items():
                if not rows:
                    continue
                at, committed = positions.get(key), get("isolation", isolation) == "read_committed"
                start, resumed = (None, at) if isinstance(at, Resumed) else (at, None)
                records = tuple((offset, value) for offset, value in rows)
                read = Read(op.f, op.invoked, op.returned, op.final, committed, start, records, resumed=resumed)
                positions[key] = read.next
                yield key, read
        elif op.f == "poll":
            positions.update(dict.fromkeys(positions))
        elif op.f == "assign":
            member = get("generation_id") is not None
            start = get("position", Resumed(get("group", ""), op.invoked) if member else None)
            positions.clear()
            positions.update({key: (get("positions") or {}).get(key, start) for key in op.fields["value"]})
        elif op.f == "revoke":
            for key in op.fields["value"]:
                positions.pop(key, None)
