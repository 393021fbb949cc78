"""The rules of one partition in plain Python, pair by pair: slow, obvious, and what the NumPy form is held to."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from reports.columns import NEVER, TOMBSTONE, UNKNOWN, Began, Fate, Isolation, Kind, Operations, Status
from reports.rules.found import Promise

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
    """Registers what yields the culprits of a rule: offsets, values or rows, as `CULPRIT` says."""

    def register(judge: Callable[["Brute"], Iterator[int]]) -> Callable[["Brute"], set[int]]:
        RULES[number] = lambda brute: set(judge(brute))
        return RULES[number]

    return register


class Brute:
    def __init__(self, ops: Operations, promise: Promise) -> None:
        self.promise, self.told_txn = promise, ops.tells("txn")
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

    # -- what everybody needs ----------------------------------------------------------------------

    def writer(self, offset: int, value: int) -> Row | None:
        """Who was told the offset, else who may have written the value, else who tried in vain."""
        mine = [s for s in self.sends if s.value == value != TOMBSTONE]
        told = [s for s in mine if s.status == Status.OK and s.offset == offset]
        return min(told or mine, key=lambda s: (not told and in_vain(s), s.number), default=None)

    def told(self) -> list[tuple[int, int]]:
        return [(r.offset, r.value) for r in self.acked] + [pair for r in self.reads for pair in r.records]

    def last_offset(self, value: int) -> int:
        return max((offset for offset, each in self.told() if each == value), default=UNKNOWN)

    def send_offset(self, send: Row) -> int:
        if send.offset != UNKNOWN or send.value == TOMBSTONE:
            return send.offset
        return self.last_offset(send.value)

    def appended_after(self, send: Row) -> int:
        """What stands below it was asked for before."""
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
        return any(each == value for r in self.committed_reads() for _, each in r.records)

    def solid_records(self) -> list[tuple[Row, int]]:
        return [(r, offset) for r in self.good for offset, value in r.records if self.solid(r, offset, value)]

    def before(self, read: Row) -> Row | None:
        """The read with records of the same process and run before it."""
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

    def seen(self, offset: int) -> list[Row]:
        return [r for r, each in self.solid_records() if each == offset]

    def still_there(self, read: Row, offset: int) -> bool:
        return any(r.returned > read.invoked for r in self.seen(offset))

    def gone(self, read: Row, offset: int) -> bool:
        full = read.position != UNKNOWN or read.quiet == 1
        earlier = any(r.returned < read.invoked for r in self.seen(offset))
        return full and earlier and not self.still_there(read, offset)

    def ends(self, name: str = "high_watermark") -> list[Row]:
        kinds = {Kind.READ, Kind.LIST_OFFSETS}
        return [r for r in self.rows if r.kind in kinds and r.status == Status.OK and r.cells[name] != UNKNOWN]

    def lower(self) -> list[tuple[Row, int]]:
        found = [(r, r.records[-1][0] + 1) for r in self.good if r.records]
        return found + [(r, r.offset + 1) for r in self.acked if self.promise.acks_all]


def in_vain(send: Row) -> bool:
    return send.status == Status.FAIL or send.fate == Fate.ABORTED


def replica(read: Row) -> tuple[int, ...]:
    """Who answered: a node, or the leader of an epoch; nobody knows if neither is told."""
    return (read.node, 0) if read.node != UNKNOWN else (read.leader_epoch,)


def told_of(send: Row, reads: list[Row]) -> bool:
    """Did one of these tell its value, of a tombstone at its place?"""
    there = [o for r in reads for o, v in r.records if v == send.value]
    return send.offset in there if send.value == TOMBSTONE else bool(there)


def broken(lower: list[tuple[Row, int]], upper: list[tuple[Row, int]], *, epoch: bool) -> Iterator[int]:
    for late, z in upper:
        for early, least in lower:
            same = late.leader_epoch == early.leader_epoch != UNKNOWN
            if early.returned < late.invoked and least > z and (same or not epoch):
                yield late.number


# -- the log -----------------------------------------------------------------------------------------


@rule(1)
def _(b: Brute) -> Iterator[int]:
    told = b.told()
    yield from (o for o, v in told for other, w in told if o == other and v != w)


@rule(2)
def _(b: Brute) -> Iterator[int]:
    told = [pair for pair in b.told() if pair[1] != TOMBSTONE]
    yield from (v for o, v in told for other, w in told if v == w and o != other)


@rule(3)
def _(b: Brute) -> Iterator[int]:
    """By who was told it first."""
    known = b.values | {r.value for r in b.rows if r.kind == Kind.FORMER} | {TOMBSTONE}
    for value in {v for r in b.reads for _, v in r.records} - known:
        yield min(r.number for r in b.reads for _, v in r.records if v == value)


@rule(38)
def _(b: Brute) -> Iterator[int]:
    former = {r.value for r in b.rows if r.kind == Kind.FORMER}
    for read in b.reads:
        yield from (v for _, v in read.records if v not in b.values and v in former and v != TOMBSTONE)


def _missing(b: Brute) -> Iterator[tuple[Row, int, bool]]:
    for send in b.sends:
        value = send.value
        dead = value == TOMBSTONE
        unsure = not dead and any(v == value for r in b.reads if r.status != Status.OK for _, v in r.records)
        proven = send.status == Status.OK or (send.status == Status.INFO and unsure)
        decided = send.txn == UNKNOWN or send.fate == Fate.COMMITTED
        offset = send.offset if dead else b.last_offset(value)
        if dead and b.promise.compaction:
            continue
        if not proven or told_of(send, b.good) or not decided or offset == UNKNOWN or offset < b.log_start:
            continue
        if b.promise.compaction:
            later = [s for s in b.sends if s.key == send.key and b.send_offset(s) > offset]
            if send.key == UNKNOWN or later:
                continue
        stuck = any(send is each for _, each in _stuck(b))
        yield send, offset, not stuck and any(begin <= offset < end for _, begin, end in b.covers())


@rule(4)
def _(b: Brute) -> Iterator[int]:
    yield from (send.number for send, _, covered in _missing(b) if covered)


@rule(5)
def _(b: Brute) -> Iterator[int]:
    yield from (send.number for send, _, covered in _missing(b) if not covered)


@rule(12)
def _(b: Brute) -> Iterator[int]:
    by = sorted((s for s in b.acked if UNKNOWN not in (s.producer, s.sequence)), key=lambda s: (s.producer, s.sequence))
    for a, c in pairwise(by):
        if a.producer == c.producer and a.sequence < c.sequence and c.offset < a.offset:
            yield c.number


def _own_disorder(b: Brute) -> list[tuple[Row, Row]]:
    """A send, and that before it of the same process or in the same transaction; of each the first such."""
    found = {}
    for c in b.acked:
        before = [a for a in b.acked if a.process == c.process and a.number < c.number]
        if before and before[-1].returned < c.invoked and c.offset <= before[-1].offset:
            found[c.number] = c, before[-1]
    named = [s for s in b.acked if s.producer == UNKNOWN and UNKNOWN not in (s.txn, s.sequence)]
    for a, c in pairwise(sorted(named, key=lambda s: (s.txn, s.sequence, s.number))):
        if a.txn == c.txn and c.offset <= a.offset:
            found.setdefault(c.number, (c, a))
    return [*found.values()]


@rule(10)
def _(b: Brute) -> Iterator[int]:
    yield from (send.number for send, _ in _own_disorder(b))


@rule(13)
def _(b: Brute) -> Iterator[int]:
    """What rule 10 tells, of both its sends, is not told again."""
    blamed = {send.number for pair in _own_disorder(b) for send in pair}
    for send in b.sends:
        before = [a for a in b.acked if a.returned < send.invoked and a.offset >= b.send_offset(send) != UNKNOWN]
        if before and send.status != Status.FAIL:
            witness = max(before, key=lambda a: (a.offset, -a.returned))
            if not blamed & {send.number, witness.number}:
                yield send.number


# -- polls -------------------------------------------------------------------------------------------


@rule(6)
def _(b: Brute) -> Iterator[int]:
    if not b.promise.compaction:
        yield from (offset for read, offset in b.gaps() if b.gone(read, offset))


@rule(8)
def _(b: Brute) -> Iterator[int]:
    if not b.promise.compaction:
        for read, offset in b.gaps():
            if not b.gone(read, offset) and offset <= read.records[0][0]:
                yield read.number


@rule(9)
def _(b: Brute) -> Iterator[int]:
    for read in b.reads:
        if any(c[0] <= a[0] for a, c in pairwise(read.records)):
            yield read.number
    if not b.promise.compaction:
        for read, offset in b.gaps():
            if not b.gone(read, offset) and offset > read.records[0][0]:
                yield read.number


@rule(7)
def _(b: Brute) -> Iterator[int]:
    for read in b.good:
        before = b.before(read) if read.records else None
        if before is not None and read.position == UNKNOWN and read.records[0][0] <= before.records[-1][0]:
            aborted = before.fate == Fate.ABORTED and before.txn != read.txn
            if not aborted:
                yield read.number


@rule(23)
def _(b: Brute) -> Iterator[int]:
    for read in b.good:
        before = b.before(read) if read.records else None
        aborted = before is not None and before.fate == Fate.ABORTED and before.txn != read.txn
        if aborted and before is not None and read.records[0][0] != before.records[0][0]:
            yield read.number


@rule(11)
def _(b: Brute) -> Iterator[int]:
    for txn in {s.txn for s in b.acked} - {UNKNOWN}:
        mine = sorted((s for s in b.acked if s.txn == txn), key=lambda s: (s.offset, s.number))
        for a, c in pairwise(mine):
            if any(a.offset < s.offset < c.offset for s in b.acked):
                yield c.number


@rule(33)
def _(b: Brute) -> Iterator[int]:
    def who(r: Row) -> int:
        return r.group if r.group != UNKNOWN else -2 - r.process

    solid = {offset for _, offset in b.solid_records()}
    with_records = [r for r in b.good if r.records]
    for read in with_records:
        if b.before(read) is not None or read.began != Began.RESUMED:
            continue
        mine = [r for r in with_records if who(r) == who(read)]
        seen = {offset for r in mine for offset, _ in r.records}
        ends = [r.records[-1][0] + 1 for r in mine if r.returned < read.invoked]
        if ends and any(max(*ends, b.log_start, 0) <= o < read.records[0][0] for o in solid - seen):
            yield read.number


# -- real time ---------------------------------------------------------------------------------------


@rule(14)
def _(b: Brute) -> Iterator[int]:
    yield from broken(b.lower(), [(r, r.high_watermark) for r in b.ends()], epoch=True)
    stable = [(r, r.last_stable_offset) for r in b.ends("last_stable_offset")]
    committed = [(r, z) for r, z in b.lower() if r.isolation == Isolation.READ_COMMITTED]
    yield from broken(committed, stable, epoch=True)
    first = {s.txn: min(o.offset for o in b.acked if o.txn == s.txn) for s in b.acked if s.txn != UNKNOWN}
    free = {s.offset for s in b.acked} - set(first.values()) if b.told_txn else set()
    yield from broken(b.lower(), [(r, z) for r, z in stable if z in free], epoch=True)


@rule(15)
def _(b: Brute) -> Iterator[int]:
    for read in b.reads:
        for offset, value in read.records:
            send = b.writer(offset, value)
            if send is not None and read.returned < send.invoked:
                yield send.number
    if not b.promise.unclean_election:
        upper = [(s, b.send_offset(s)) for s in b.sends if s.status != Status.FAIL and b.send_offset(s) != UNKNOWN]
        lower = [(r, r.cells[name]) for name in ENDS for r in b.ends(name)] + [
            (r, r.records[-1][0] + 1) for r in b.good if r.records
        ]
        yield from broken(lower, upper, epoch=False)


@rule(16)
def _(b: Brute) -> Iterator[int]:
    for name in ENDS:
        told = [(r, r.cells[name]) for r in b.ends(name)]
        yield from broken(told, told, epoch=True)
    listed = [(r, r.high_watermark) for r in b.ends() if r.kind == Kind.LIST_OFFSETS and r.leader_epoch != UNKNOWN]
    for late, z in listed:
        if any(r.returned < late.invoked and end > z and r.leader_epoch < late.leader_epoch for r, end in listed):
            yield late.number


# -- transactions ------------------------------------------------------------------------------------


@rule(17)
def _(b: Brute) -> Iterator[int]:
    for read in b.committed_reads():
        for offset, value in read.records:
            send = b.writer(offset, value)
            if send is not None and in_vain(send):
                yield send.number


@rule(18)
def _(b: Brute) -> Iterator[int]:
    for read in b.committed_reads():
        for offset, value in read.records:
            send = b.writer(offset, value)
            if send is not None and read.txn == send.txn != UNKNOWN:
                yield send.number


@rule(19)
def _(b: Brute) -> Iterator[int]:
    """By transaction."""
    for read in b.committed_reads():
        for offset, value in read.records:
            send = b.writer(offset, value)
            if send is None or send.txn == UNKNOWN or send.fate == Fate.ABORTED or read.txn == send.txn:
                continue
            if read.returned < send.ended:
                yield send.txn
    released = [(r, r.records[-1][0] + 1) for r in b.good if r.records and r.isolation == Isolation.READ_COMMITTED]
    released += [
        (r, r.last_stable_offset)
        for r in b.rows
        if r.kind != Kind.SEND and r.status == Status.OK and r.last_stable_offset != UNKNOWN
    ]
    for txn in {s.txn for s in b.sends} - {UNKNOWN}:
        sends = [s for s in b.sends if s.txn == txn and b.send_offset(s) != UNKNOWN]
        if sends:
            first = min(b.send_offset(s) for s in sends)
            open_at = [s.ended for s in sends if s.fate == Fate.COMMITTED]
            open_at += [b.appended_after(s) for s in sends if s.status == Status.OK]
            if any(r.returned < max(open_at, default=-1) and end > first and r.txn != txn for r, end in released):
                yield txn


@rule(20)
def _(b: Brute) -> Iterator[int]:
    for send in b.sends:
        seen = told_of(send, b.committed_reads())
        offset = b.send_offset(send)
        if send.txn == UNKNOWN or send.fate == Fate.ABORTED or seen or offset < max(b.log_start, 0):
            continue
        if any(begin <= offset < end for r, begin, end in b.covers() if r.isolation == Isolation.READ_COMMITTED):
            yield send.number


@rule(22)
def _(b: Brute) -> Iterator[int]:
    """By the later of two transactions."""
    done = [r for r in b.good if r.fate == Fate.COMMITTED and r.group != UNKNOWN]
    for a in done:
        for c in done:
            if a.group == c.group and a.txn < c.txn and {o for o, _ in a.records} & {o for o, _ in c.records}:
                yield c.txn


@rule(29)
def _(b: Brute) -> Iterator[int]:
    told = [r for r in b.rows if r.status == Status.OK and UNKNOWN not in (r.last_stable_offset, r.high_watermark)]
    told = [r for r in told if r.last_stable_offset < r.high_watermark]
    for late in told:
        same = [r for r in told if r.last_stable_offset == late.last_stable_offset]
        first = min(same, key=lambda r: r.returned)
        stands = min(late.at_ms - first.at_ms, late.calm_ms)
        if stands > b.promise.transaction_timeout_ms >= 0 and late.high_watermark > first.high_watermark:
            yield late.last_stable_offset


# -- storage -----------------------------------------------------------------------------------------


def _stuck(b: Brute) -> Iterator[tuple[Row, Row]]:
    """The last answer of a quiet end, and what its leader had acknowledged beyond."""
    told = [r for r in b.rows if r.kind != Kind.DUMP and r.status == Status.OK and r.quiet == 1]
    told = [r for r in told if UNKNOWN not in (r.high_watermark, r.leader_epoch)]
    if not told or len({r.leader_epoch for r in told}) > 1:
        return
    last = max(told, key=lambda r: r.returned)
    mine = [s for s in b.acked if s.leader_epoch == last.leader_epoch and s.quiet == 0]
    since = max([0, *(s.at_ms for s in mine)])
    if min(last.calm_ms, last.at_ms - since) > b.promise.patience_ms >= 0:
        yield from ((last, s) for s in mine if s.offset >= last.high_watermark)


@rule(30)
def _(b: Brute) -> Iterator[int]:
    yield from (last.number for last, _ in _stuck(b))


@rule(34)
def _(b: Brute) -> Iterator[int]:
    p = b.promise
    if p.retention and p.retention_ms < 0:
        return
    for read in b.rows:
        if read.status != Status.OK or read.log_start_offset <= 0:
            continue
        asked = [
            r.offset for r in b.rows if r.kind == Kind.DELETE and r.status != Status.FAIL and r.invoked < read.returned
        ]
        if max(asked, default=UNKNOWN) >= read.log_start_offset:
            continue
        for send in b.acked:
            if send.offset >= read.log_start_offset or (p.retention and send.timestamp_ms == UNKNOWN):
                continue
            if not p.retention or p.started_ms + read.at_ms - send.timestamp_ms < p.retention_ms:
                yield read.log_start_offset


@rule(35)
def _(b: Brute) -> Iterator[int]:
    if not b.promise.compaction:
        return
    for read, offset in b.gaps():
        if any(r.invoked > read.returned and replica(r) == replica(read) != (UNKNOWN,) for r in b.seen(offset)):
            yield offset
    certain = [s for s in b.acked if s.txn == UNKNOWN or s.fate == Fate.COMMITTED]
    dead = [s for s in certain if s.value == TOMBSTONE and s.key != UNKNOWN]

    def key_of(offset: int, value: int) -> int:
        if value == TOMBSTONE:
            return next((d.key for d in dead if d.offset == offset), UNKNOWN)
        writer = b.writer(offset, value)
        return writer.key if writer is not None else UNKNOWN

    for read in b.good:
        newest = {key_of(o, v): (o, v) for o, v in read.records}
        for key, (offset, value) in newest.items():
            after = [d for d in dead if d.key == key and offset < d.offset <= read.records[-1][0]]
            if after and key != UNKNOWN and value != TOMBSTONE:
                yield offset


@rule(36)
def _(b: Brute) -> Iterator[int]:
    dumps = [r for r in b.rows if r.kind == Kind.DUMP and r.status == Status.OK and r.high_watermark != UNKNOWN]
    for a in dumps:
        for c in dumps:
            for offset, value in a.records:
                if offset >= min(a.high_watermark, c.high_watermark) or a is c:
                    continue
                there = [v for o, v in c.records if o == offset]
                begin = max(c.position, b.log_start if b.promise.retention else 0)
                absent = not there and offset >= begin and not b.promise.compaction
                if any(v != value for v in there) or absent:
                    yield offset
