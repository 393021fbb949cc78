"""The rows of a partition, queries that several rules share, and the registry of the rules."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from highwater.reports.columns import NEVER, TOMBSTONE, UNKNOWN, Fate, Isolation, Kind, Operations, Status
from highwater.reports.rules.findings import Promise

ENDS = ("high_watermark", "last_stable_offset")
RULES: dict[int, Callable[["Brute"], set[int]]] = {}


@dataclass(slots=True)
class Row:
    number: int
    cells: dict[str, int]
    records: list[tuple[int, int]]

    def __getattr__(self, name: str) -> int:
        try:
            return self.cells[name]
        except KeyError:
            raise AttributeError(name) from None


def rule(number: int) -> Callable[[Callable[["Brute"], Iterator[int]]], Callable[["Brute"], set[int]]]:
    """Register a generator of the findings of a rule: offsets, values or rows, as in `CULPRITS`."""

    def register(judge: Callable[["Brute"], Iterator[int]]) -> Callable[["Brute"], set[int]]:
        RULES[number] = lambda brute: set(judge(brute))
        return RULES[number]

    return register


class Brute:
    def __init__(self, ops: Operations, promise: Promise) -> None:
        self.promise, self.has_transactions = promise, ops.has_values("txn")
        names = [name for name in Operations.__dataclass_fields__ if name not in {"record_offset", "record_value"}]
        ends = [0, *ops.record_count.cumsum().tolist()]
        pairs = list(zip(ops.record_offset.tolist(), ops.record_value.tolist(), strict=True))
        self.rows = [
            Row(n, {name: int(getattr(ops, name)[n]) for name in names}, pairs[ends[n] : ends[n + 1]])
            for n in range(len(ops))
        ]
        self.sends = [r for r in self.rows if r.kind == Kind.SEND]
        self.acked = [r for r in self.sends if r.status == Status.OK and r.offset != UNKNOWN]
        self.reads = [r for r in self.rows if r.kind == Kind.READ]
        self.good = [r for r in self.reads if r.status == Status.OK]
        self.values = {send.value for send in self.sends} - {TOMBSTONE}
        self.log_start = max(
            [0, *(r.log_start_offset for r in self.rows)]
            + [r.offset for r in self.rows if r.kind == Kind.DELETE and r.status != Status.FAIL]
        )

    def writer(self, offset: int, value: int) -> Row | None:
        """Return the send acknowledged at the offset, else one that may have written the value, else a failed one."""
        mine = [s for s in self.sends if s.value == value != TOMBSTONE]
        acknowledged = [s for s in mine if s.status == Status.OK and s.offset == offset]
        return min(acknowledged or mine, key=lambda s: (not acknowledged and had_no_effect(s), s.number), default=None)

    def records(self) -> list[tuple[int, int]]:
        """Return (offset, value) of every acknowledged send and every record read."""
        return [(r.offset, r.value) for r in self.acked] + [pair for r in self.reads for pair in r.records]

    def last_offset(self, value: int) -> int:
        return max((offset for offset, other in self.records() if other == value), default=UNKNOWN)

    def send_offset(self, send: Row) -> int:
        if send.offset != UNKNOWN or send.value == TOMBSTONE:
            return send.offset
        return self.last_offset(send.value)

    def appended_after(self, send: Row) -> int:
        """Return a time before which the send was not appended: all sends at lower offsets were invoked by then."""
        if self.promise.unclean_election or not self.promise.acks_all:
            return send.invoked
        place = self.send_offset(send)
        there = [s for s in self.sends if s.status != Status.FAIL and self.send_offset(s) != UNKNOWN]
        return max(s.invoked for s in [send, *there] if s is send or self.send_offset(s) <= place)

    def committed_reads(self) -> list[Row]:
        return [r for r in self.good if r.isolation != Isolation.READ_UNCOMMITTED]

    def solid(self, read: Row, offset: int, value: int) -> bool:
        writer = self.writer(offset, value)
        if writer is None or writer.txn == UNKNOWN or writer.fate == Fate.COMMITTED:
            return True
        if read.isolation == Isolation.READ_COMMITTED:
            return True
        certain = [r for r in self.good if r.isolation == Isolation.READ_COMMITTED]
        return any(other == value for r in certain for _, other in r.records)

    def solid_records(self) -> list[tuple[Row, int]]:
        return [(r, offset) for r in self.good for offset, value in r.records if self.solid(r, offset, value)]

    def before(self, read: Row) -> Row | None:
        """Return the previous read with records of the same process and run."""
        mine = [r for r in self.good if r.records and (r.process, r.run) == (read.process, read.run)]
        earlier = [r for r in mine if r.number < read.number]
        return earlier[-1] if earlier else None

    def begins(self, read: Row) -> int:
        if read.position != UNKNOWN:
            return read.position
        before = self.before(read)
        return before.records[-1][0] + 1 if before else UNKNOWN

    def covers(self) -> list[tuple[Row, int, int]]:
        found = []
        for read in self.good:
            if not read.records and read.position == UNKNOWN:
                continue
            begin, end = (
                (self.begins(read), read.records[-1][0] + 1) if read.records else (read.position, read.position)
            )
            if read.records and (begin == UNKNOWN or self.promise.retention):
                begin = read.records[0][0]
            if read.quiet == 1 and read.high_watermark != UNKNOWN and end >= read.high_watermark:
                end = int(NEVER)
            found.append((read, begin, end))
        return found

    def gaps(self) -> list[tuple[Row, int]]:
        known = {offset for _, offset in self.solid_records()}
        found = []
        for read in self.good:
            if not read.records:
                continue
            begin = self.begins(read)
            if begin == UNKNOWN or self.promise.retention:
                begin = read.records[0][0]
            begin = max(begin, self.log_start)
            held = {offset for offset, _ in read.records}
            found += [(read, o) for o in sorted(known) if begin <= o <= read.records[-1][0] and o not in held]
        return found

    def reads_of(self, offset: int) -> list[Row]:
        return [r for r, other in self.solid_records() if other == offset]

    def still_there(self, read: Row, offset: int) -> bool:
        return any(r.returned > read.invoked for r in self.reads_of(offset))

    def gone(self, read: Row, offset: int) -> bool:
        full = read.position != UNKNOWN or read.quiet == 1
        earlier = any(r.returned < read.invoked for r in self.reads_of(offset))
        return full and earlier and not self.still_there(read, offset)

    def ends(self, name: str = "high_watermark") -> list[Row]:
        kinds = {Kind.READ, Kind.LIST_OFFSETS}
        return [r for r in self.rows if r.kind in kinds and r.status == Status.OK and r.cells[name] != UNKNOWN]

    def lower(self) -> list[tuple[Row, int]]:
        found = [(r, r.records[-1][0] + 1) for r in self.good if r.records]
        return found + [(r, r.offset + 1) for r in self.acked if self.promise.acks_all]


def had_no_effect(send: Row) -> bool:
    return send.status == Status.FAIL or send.fate == Fate.ABORTED


def replica(read: Row) -> tuple[int, ...]:
    """Return the replica that responded: a node, or the leader of an epoch; `(UNKNOWN,)` if neither is recorded."""
    return (read.node, 0) if read.node != UNKNOWN else (read.leader_epoch,)


def was_read(send: Row, reads: list[Row]) -> bool:
    """Return whether one of the reads has the value; for a tombstone, whether one has it at its offset."""
    there = [o for r in reads for o, v in r.records if v == send.value]
    return send.offset in there if send.value == TOMBSTONE else bool(there)


def broken(lower: list[tuple[Row, int]], upper: list[tuple[Row, int]], *, epoch: bool) -> Iterator[int]:
    for late, z in upper:
        for early, least in lower:
            same = late.leader_epoch == early.leader_epoch != UNKNOWN
            if early.returned < late.invoked and least > z and (same or not epoch):
                yield late.number
