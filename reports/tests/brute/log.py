"""Rules about the records of the log: 1 to 5, 10, 12, 13 and 38."""

from collections.abc import Iterator
from itertools import pairwise

from highwater.reports.columns import TOMBSTONE, UNKNOWN, Fate, Kind, Status
from highwater.reports.tests.brute.oracle import Brute, Row, rule, was_read
from highwater.reports.tests.brute.storage import stuck_ends


@rule(1)
def _(b: Brute) -> Iterator[int]:
    reported = b.records()
    yield from (o for o, v in reported for other, w in reported if o == other and v != w)


@rule(2)
def _(b: Brute) -> Iterator[int]:
    reported = [pair for pair in b.records() if pair[1] != TOMBSTONE]
    yield from (v for o, v in reported for other, w in reported if v == w and o != other)


@rule(3)
def _(b: Brute) -> Iterator[int]:
    """Yield the first read of each unknown value."""
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
        if not proven or was_read(send, b.good) or not decided or offset == UNKNOWN or offset < b.log_start:
            continue
        if b.promise.compaction:
            later = [s for s in b.sends if s.key == send.key and b.send_offset(s) > offset]
            if send.key == UNKNOWN or later:
                continue
        stuck = any(send is beyond for _, beyond in stuck_ends(b))
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
    """Return each send in wrong order with the one before it in the same process or transaction."""
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
    """Sends that rule 10 reports are not reported again."""
    reported_sends = {send.number for pair in _own_disorder(b) for send in pair}
    for send in b.sends:
        before = [a for a in b.acked if a.returned < send.invoked and a.offset >= b.send_offset(send) != UNKNOWN]
        if before and send.status != Status.FAIL:
            witness = max(before, key=lambda a: (a.offset, -a.returned))
            if not reported_sends & {send.number, witness.number}:
                yield send.number
