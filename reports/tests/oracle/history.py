"""Operations of a partition as plain objects, and the words of docs/audit/rules.md about them.

Everything here is quadratic or worse on purpose: each function repeats one sentence of the definitions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Final

from highwater.reports.columns import NEVER, ROW_COLUMNS, TOMBSTONE, UNKNOWN, Fate, Isolation, Kind, Operations, Status
from highwater.reports.rules.findings import Promise

UNLIMITED: Final = int(NEVER)


@dataclass(frozen=True, slots=True)
class Row:
    """One operation; None is unknown. A deletion with offset -1 has the offset -1."""

    row: int
    invoked: int
    returned: int
    process: int
    run: int
    kind: Kind
    status: Status
    offset: int | None
    value: int | None
    position: int | None
    high_watermark: int | None
    leader_epoch: int | None
    quiet: bool
    last_stable_offset: int | None
    log_start_offset: int | None
    isolation: int | None
    txn: int | None
    fate: int | None
    ended: int | None
    producer: int | None
    sequence: int | None
    key: int | None
    timestamp_ms: int | None
    node: int | None
    group: int | None
    began: int | None
    at_ms: int | None
    calm_ms: int | None
    gave_up: bool
    open_ms: int | None
    records: tuple[tuple[int, int], ...]

    @property
    def invoked_ms(self) -> int:
        """Return the time of the invocation of an operation whose time is known."""
        return (self.at_ms or 0) - (self.open_ms or 0)

    @property
    def calm_before_ms(self) -> int | None:
        """Return the time from the last fault to the invocation."""
        return None if self.calm_ms is None else self.calm_ms - (self.open_ms or 0)

    @property
    def succeeded(self) -> bool:
        return self.status is Status.OK

    @property
    def offsets(self) -> tuple[int, ...]:
        return tuple(offset for offset, _ in self.records)

    @property
    def first(self) -> int:
        """Return the offset of the first record in the reply; rule 9 finds replies that are not in order."""
        return self.offsets[0]

    @property
    def last(self) -> int:
        return self.offsets[-1]

    @property
    def is_raw(self) -> bool:
        """Return whether a read states what only a reply of a broker contains, so that it is not a poll of a client."""
        cells = (self.high_watermark, self.last_stable_offset, self.log_start_offset, self.leader_epoch, self.node)
        return self.kind is Kind.READ and any(cell is not None for cell in cells)

    @property
    def acknowledged(self) -> bool:
        return self.kind is Kind.SEND and self.succeeded

    @property
    def rejected(self) -> bool:
        return self.kind is Kind.SEND and self.status is Status.FAIL

    @property
    def reader(self) -> tuple[int | None, int | None]:
        """Return the group, or the process of a reader without one."""
        return (self.group, None) if self.group is not None else (None, self.process)

    @property
    def aborted(self) -> bool:
        return self.fate == Fate.ABORTED

    @property
    def committed(self) -> bool:
        return self.fate == Fate.COMMITTED

    @property
    def replies_as_leader(self) -> bool:
        """Return whether this is a successful reply to a client, whose ends are those of the partition."""
        return self.succeeded and self.kind in {Kind.READ, Kind.LIST_OFFSETS}

    def precedes(self, other: "Row") -> bool:
        return self.returned < other.invoked


class History:
    """The operations of a partition, and what its settings promise."""

    def __init__(self, ops: Operations, promise: Promise) -> None:
        self.promise = promise
        self.rows = list(_rows(ops))
        self.sends = [row for row in self.rows if row.kind is Kind.SEND]
        self.acknowledged = [row for row in self.sends if row.acknowledged]
        self.reads = [row for row in self.rows if row.kind is Kind.READ and row.records]
        self.dumps = [row for row in self.rows if row.kind is Kind.DUMP and row.succeeded]
        self.former = [row for row in self.rows if row.kind is Kind.FORMER]

    # -- readers -------------------------------------------------------------------------------------

    def isolation(self, row: Row) -> int | None:
        if row.isolation is None and self.promise.isolation != UNKNOWN:
            return self.promise.isolation
        return row.isolation

    def is_read_committed(self, row: Row) -> bool:
        return self.isolation(row) == Isolation.READ_COMMITTED

    def may_be_read_committed(self, row: Row) -> bool:
        return self.isolation(row) != Isolation.READ_UNCOMMITTED

    def sees_uncommitted(self, row: Row) -> bool:
        """Return whether a reader must see the records of all transactions, which a log cleaner does not remove."""
        return self.isolation(row) == Isolation.READ_UNCOMMITTED and not self.promise.compaction

    def previous_read(self, read: Row) -> Row | None:
        """Return the previous successful read with records of the same process and run."""
        earlier = [
            row
            for row in self.reads
            if row.succeeded and row.row < read.row and row.process == read.process and row.run == read.run
        ]
        return earlier[-1] if earlier else None

    # -- writers -------------------------------------------------------------------------------------

    def sends_of(self, value: int) -> list[Row]:
        return [send for send in self.sends if send.value == value]

    def writers(self, offset: int, value: int) -> list[Row]:
        """Return the sends that may have written a record that was read; those of the first kind that there is."""
        at_offset = [send for send in self.acknowledged if send.value == value and send.offset == offset]
        if at_offset or value == TOMBSTONE:
            return at_offset
        sends = self.sends_of(value)
        accepted = [send for send in sends if not send.rejected]
        unplaced = [send for send in accepted if not send.acknowledged or send.offset is None]
        return unplaced or accepted or sends

    def writer(self, offset: int, value: int) -> Row | None:
        """Return the one of `writers` that counts: of a transaction that was not aborted, and of these the first."""
        writers = self.writers(offset, value)
        return min(writers, key=lambda send: (send.aborted, send.invoked), default=None)

    def place(self, send: Row) -> int | None:
        """Return the acknowledged offset of a send, else the largest one at which only its value can be received."""
        if send.acknowledged and send.offset is not None:
            return send.offset
        assert send.value is not None
        accepted = [other for other in self.sends_of(send.value) if not other.rejected]
        named = {other.offset for other in accepted if other.acknowledged and other.offset is not None}
        received = {at for row in self.reads for at, value in row.records if value == send.value}
        if send.value == TOMBSTONE:
            return None
        if len(self.sends_of(send.value)) > 1:
            others = [other for other in accepted if other is not send]
            placed = all(other.acknowledged and other.offset is not None for other in others)
            if send.rejected or not placed or not all(map(self.is_written_once, others)):
                return None
            received -= named
        return max(received, default=None)

    def is_written_once(self, send: Row) -> bool:
        """Return whether a record is at most once in the log: of an idempotent producer that kept its epoch."""
        sure = not send.gave_up or self.kept_its_epoch(send)
        return send.txn is not None or (self.promise.idempotence and sure)

    def kept_its_epoch(self, send: Row) -> bool:
        """Return whether a later send of the same producer epoch proves that there was no new one."""
        if send.producer is None:
            return False
        return any(later.producer == send.producer and send.precedes(later) for later in self.sends)

    def was_received(self, send: Row) -> bool:
        return any(value == send.value for row in self.reads for _, value in row.records)

    def was_read(self, send: Row) -> bool:
        """Return whether a successful read has the record of a send."""
        return any(self.is_record_of(send, *record) for row in self.reads if row.succeeded for record in row.records)

    def is_record_of(self, send: Row, offset: int, value: int) -> bool:
        """Return whether a record may be that of a send: by its offset for tombstones, or if it was acknowledged."""
        by_offset = value == TOMBSTONE or (send.acknowledged and send.offset is not None)
        return value == send.value and (not by_offset or offset == send.offset)

    @cached_property
    def replies(self) -> list[Row]:
        return [row for row in self.rows if row.replies_as_leader]

    @cached_property
    def has_transactions(self) -> bool:
        return any(row.txn is not None for row in self.rows)

    # -- what was known ------------------------------------------------------------------------------

    @cached_property
    def end_proofs(self) -> list[tuple[int, Row]]:
        """Return (end, operation) for each proof that the high watermark was at least `end`."""
        reported = [
            (row.high_watermark, row) for row in self.rows if row.replies_as_leader and row.high_watermark is not None
        ]
        return (self.record_proofs if self.promise.acks_all else self.read_proofs) + reported

    @cached_property
    def record_proofs(self) -> list[tuple[int, Row]]:
        """Return (end, operation) for each read with records, and each acknowledgement if `acks` may be `all`."""
        if self.promise.acks_known and not self.promise.acks_all:
            return self.read_proofs
        return [(s.offset + 1, s) for s in self.acknowledged if s.offset is not None] + self.read_proofs

    @cached_property
    def read_proofs(self) -> list[tuple[int, Row]]:
        return [(row.last + 1, row) for row in self.reads if row.succeeded]

    @cached_property
    def committed_record_proofs(self) -> list[tuple[int, Row]]:
        """Return (end, operation) for each read_committed read with records."""
        return [(row.last + 1, row) for row in self.reads if row.succeeded and self.is_read_committed(row)]

    @cached_property
    def stable_proofs(self) -> list[tuple[int, Row]]:
        """Return (end, operation) for each proof that the last stable offset was at least `end`."""
        reported = [
            (row.last_stable_offset, row)
            for row in self.rows
            if row.replies_as_leader and row.last_stable_offset is not None
        ]
        return self.committed_record_proofs + reported

    def proved_end(self, row: Row) -> int:
        """Return the end that is proved before an operation was invoked."""
        return max((end for end, proof in self.end_proofs if proof.precedes(row)), default=0)

    @cached_property
    def epoch_statements(self) -> list[Row]:
        return [
            row for row in self.rows if row.succeeded and row.leader_epoch is not None and row.kind is not Kind.FORMER
        ]

    def is_of_follower(self, row: Row) -> bool:
        """Return whether a read names its node and no leader epoch, although other operations state leader epochs."""
        if row.kind is not Kind.READ or row.leader_epoch is not None or row.node is None:
            return False
        return bool(self.epoch_statements)

    def epochs(self, row: Row) -> tuple[int, int]:
        """Return the smallest and the largest leader epoch in which an operation may have been served."""
        if row.leader_epoch is not None:
            return row.leader_epoch, row.leader_epoch
        stated = self.epoch_statements
        # A former leader that was paused or cut off may reply long after its successor, but commits nothing new: from
        # below what the same node has stated is a bound, for a send all that was; from above only the newest epoch.
        earlier = [other for other in stated if other.precedes(row)]
        if row.kind is not Kind.SEND:
            earlier = [other for other in earlier if other.node is not None and other.node == row.node]
        low = max((other.leader_epoch or 0 for other in earlier), default=UNKNOWN)
        newest = max((other.leader_epoch or 0 for other in stated), default=UNLIMITED)
        later = any(other.leader_epoch == newest and row.precedes(other) for other in stated)
        return UNKNOWN if self.is_of_follower(row) else low, newest if later else UNLIMITED


def _rows(ops: Operations) -> Iterator[Row]:
    begin = 0
    for row in range(len(ops)):
        cells = {name: int(getattr(ops, name)[row]) for name in ROW_COLUMNS}
        end = begin + cells.pop("record_count")
        records = tuple((int(ops.record_offset[slot]), int(ops.record_value[slot])) for slot in range(begin, end))
        begin = end
        yield _row(row, cells, records)


def _row(row: int, cells: dict[str, int], records: tuple[tuple[int, int], ...]) -> Row:
    kind = Kind(cells.pop("kind"))
    known: dict[str, int | None] = {
        name: None if cell == UNKNOWN and not (name == "offset" and kind is Kind.DELETE) else cell
        for name, cell in cells.items()
    }
    known |= {"status": Status(cells["status"]), "quiet": cells["quiet"] == 1, "gave_up": cells["gave_up"] == 1}
    assert {field.name for field in fields(Row)} == known.keys() | {"row", "kind", "records"}
    return Row(row=row, kind=kind, records=records, **known)  # type: ignore[arg-type]
