"""Transactions: rules 17 to 20, 22 and 29."""

from collections.abc import Iterator

from highwater.reports.columns import UNKNOWN, Fate, Isolation, Kind, Status
from highwater.reports.tests.brute.oracle import Brute, had_no_effect, rule, was_read


@rule(17)
def _(b: Brute) -> Iterator[int]:
    for read in b.committed_reads():
        for offset, value in read.records:
            send = b.writer(offset, value)
            if send is not None and had_no_effect(send):
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
    """Yield transactions."""
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
        is_read = was_read(send, b.committed_reads())
        offset = b.send_offset(send)
        if send.txn == UNKNOWN or send.fate == Fate.ABORTED or is_read or offset < max(b.log_start, 0):
            continue
        if any(begin <= offset < end for r, begin, end in b.covers() if r.isolation == Isolation.READ_COMMITTED):
            yield send.number


@rule(22)
def _(b: Brute) -> Iterator[int]:
    """Yield the later of two transactions."""
    done = [r for r in b.good if r.fate == Fate.COMMITTED and r.group != UNKNOWN]
    for a in done:
        for c in done:
            if a.group == c.group and a.txn < c.txn and {o for o, _ in a.records} & {o for o, _ in c.records}:
                yield c.txn


@rule(29)
def _(b: Brute) -> Iterator[int]:
    reported = [r for r in b.rows if r.status == Status.OK and UNKNOWN not in (r.last_stable_offset, r.high_watermark)]
    reported = [r for r in reported if r.last_stable_offset < r.high_watermark]
    for late in reported:
        same = [r for r in reported if r.last_stable_offset == late.last_stable_offset]
        first = min(same, key=lambda r: r.returned)
        unchanged_ms = min(late.at_ms - first.at_ms, late.calm_ms)
        if unchanged_ms > b.promise.transaction_timeout_ms >= 0 and late.high_watermark > first.high_watermark:
            yield late.last_stable_offset
