"""Rules about stuck ends, retention, compaction and diverging replicas: 30 and 34 to 36."""

from collections.abc import Iterator

from highwater.reports.columns import TOMBSTONE, UNKNOWN, Fate, Kind, Status
from highwater.reports.tests.brute.oracle import Brute, Row, replica, rule


def stuck_ends(b: Brute) -> Iterator[tuple[Row, Row]]:
    """Yield the last response of a quiet partition with each acknowledged send beyond its high watermark."""
    reported = [r for r in b.rows if r.kind != Kind.DUMP and r.status == Status.OK and r.quiet == 1]
    reported = [r for r in reported if UNKNOWN not in (r.high_watermark, r.leader_epoch)]
    if not reported or len({r.leader_epoch for r in reported}) > 1:
        return
    last = max(reported, key=lambda r: r.returned)
    mine = [s for s in b.acked if s.leader_epoch == last.leader_epoch and s.quiet == 0]
    since = max([0, *(s.at_ms for s in mine)])
    if min(last.calm_ms, last.at_ms - since) > b.promise.patience_ms >= 0:
        yield from ((last, s) for s in mine if s.offset >= last.high_watermark)


@rule(30)
def _(b: Brute) -> Iterator[int]:
    yield from (last.number for last, _ in stuck_ends(b))


@rule(34)
def _(b: Brute) -> Iterator[int]:
    p = b.promise
    if p.retention and p.retention_ms < 0:
        return
    for read in b.rows:
        if read.status != Status.OK or read.log_start_offset <= 0:
            continue
        deletions = [
            r.offset for r in b.rows if r.kind == Kind.DELETE and r.status != Status.FAIL and r.invoked < read.returned
        ]
        if max(deletions, default=UNKNOWN) >= read.log_start_offset:
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
        if any(r.invoked > read.returned and replica(r) == replica(read) != (UNKNOWN,) for r in b.reads_of(offset)):
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
