"""Rules about the records that one reader received: 6 to 9, 11, 23 and 33."""

from collections.abc import Iterator
from itertools import pairwise

from highwater.reports.columns import UNKNOWN, Began, Fate
from highwater.reports.tests.brute.oracle import Brute, Row, rule


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
    def reader(r: Row) -> int:
        return r.group if r.group != UNKNOWN else -2 - r.process

    solid = {offset for _, offset in b.solid_records()}
    with_records = [r for r in b.good if r.records]
    for read in with_records:
        if b.before(read) is not None or read.began != Began.RESUMED:
            continue
        mine = [r for r in with_records if reader(r) == reader(read)]
        received = {offset for r in mine for offset, _ in r.records}
        ends = [r.records[-1][0] + 1 for r in mine if r.returned < read.invoked]
        if ends and any(max(*ends, b.log_start, 0) <= o < read.records[0][0] for o in solid - received):
            yield read.number
