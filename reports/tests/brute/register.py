"""Real time: rules 14 to 16."""

from collections.abc import Iterator

from highwater.reports.columns import UNKNOWN, Isolation, Kind, Status
from highwater.reports.tests.brute.oracle import ENDS, Brute, broken, rule


@rule(14)
def _(b: Brute) -> Iterator[int]:
    yield from broken(b.lower(), [(r, r.high_watermark) for r in b.ends()], epoch=True)
    stable = [(r, r.last_stable_offset) for r in b.ends("last_stable_offset")]
    committed = [(r, z) for r, z in b.lower() if r.isolation == Isolation.READ_COMMITTED]
    yield from broken(committed, stable, epoch=True)
    first = {s.txn: min(o.offset for o in b.acked if o.txn == s.txn) for s in b.acked if s.txn != UNKNOWN}
    free = {s.offset for s in b.acked} - set(first.values()) if b.has_transactions else set()
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
        reported = [(r, r.cells[name]) for r in b.ends(name)]
        yield from broken(reported, reported, epoch=True)
    listed = [(r, r.high_watermark) for r in b.ends() if r.kind == Kind.LIST_OFFSETS and r.leader_epoch != UNKNOWN]
    for late, z in listed:
        if any(r.returned < late.invoked and end > z and r.leader_epoch < late.leader_epoch for r, end in listed):
            yield late.number
