"""One partition as the rules look at it: what several of them need is worked out once."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from highwater.reports.columns import (
    NEVER,
    NOTHING,
    TOMBSTONE,
    UNKNOWN,
    Fate,
    Ints,
    Isolation,
    Kind,
    Operations,
    Status,
    with_isolation,
)
from highwater.reports.rules.findings import NOBODY, Mask, Promise, distinct


@dataclass(frozen=True, slots=True)
class Observed:
    """Every (offset, value) that somebody was told: by an acknowledgement, or by a read of whatever outcome."""

    row: Ints
    offset: Ints
    value: Ints
    read: Mask


@dataclass(frozen=True, slots=True)
class Reading:
    """Successful reads with records, in the order of their process and run.

    Where a read began is what it asked for, or the end of the read before it; unknown at the start of a run.
    """

    row: Ints
    begins: Ints
    first: Ints
    last: Ints
    before: Ints  # the read before it of the same process and run, `NOBODY` if it is the first
    start: Ints  # of its records among all records


@dataclass(frozen=True, slots=True)
class Cover:
    """Which offsets the reads passed: intervals sorted by start, with the furthest end so far and who reached it."""

    start: Ints
    end: Ints
    row: Ints

    def look_up(self, offset: Ints) -> tuple[Mask, Ints]:
        """Is each offset covered, and by which row?"""
        if not len(self.start):
            return np.zeros(len(offset), bool), np.full(len(offset), NOBODY)
        slot = np.searchsorted(self.start, offset, "right") - 1
        inside = (slot >= 0) & (self.end[slot] > offset)
        return inside, np.where(inside, self.row[slot], NOBODY)


def in_order_of_reads(sends: Ints, reads: Ints) -> tuple[Ints, Ints]:
    """Pairs by their reads, those of one read by their sends."""
    order = np.lexsort((sends, reads))
    return sends[order], reads[order]


class View:
    """The columns of a partition, what the configuration promises, and what follows from both.

    For a slice of a partition (`reports.execution.division`), `known` holds what the slice alone cannot show.
    """

    span: ClassVar[tuple[int, int]] = (-(1 << 63), (1 << 63) - 1)
    """The first and the last offset that are looked at; of others only some observations are here."""
    neighbour: ClassVar[Ints] = NOTHING
    """The row of the last acknowledged send of a transaction before the span, if there is one."""
    jumps: Any = None
    """Of `highwater.reports.rules.polls`, where they were found before."""

    def __init__(self, ops: Operations, promise: Promise, **known: Any) -> None:
        self.ops, self.promise = with_isolation(ops, promise.isolation), promise
        self.told_txn = ops.tells("txn")
        vars(self).update(known)

    def numbered(self, rows: Ints) -> Ints:
        """As numbers of all rows of the partition, of which this may be a slice; `NOBODY` stays."""
        return rows

    def spanned(self, offset: Ints) -> Mask:
        return (offset >= self.span[0]) & (offset <= self.span[1])

    # -- sends -------------------------------------------------------------------------------------

    @cached_property
    def sends(self) -> Ints:
        return np.flatnonzero(self.ops.kind == Kind.SEND)

    @cached_property
    def acked(self) -> Ints:
        """Sends that are in the log at an offset that was told."""
        ops = self.ops
        acked: Ints = self.sends[(ops.status[self.sends] == Status.OK) & (ops.offset[self.sends] != UNKNOWN)]
        return acked

    @cached_property
    def gone(self) -> Mask:
        """Of each row: a send that was refused or taken back."""
        gone: Mask = (self.ops.status == Status.FAIL) | (self.ops.fate == Fate.ABORTED)
        return gone

    @cached_property
    def _sends_by_value(self) -> tuple[Ints, Ints]:
        """Of those with one value first what may be in the log."""
        ops = self.ops
        rows = self.sends[ops.value[self.sends] != TOMBSTONE]
        rows = rows[np.argsort(ops.value[rows], kind="stable")]
        known = ops.value[rows]
        if np.any(known[1:] == known[:-1]):
            rows = rows[np.lexsort((rows, self.gone[rows], known))]
        return rows, known

    @cached_property
    def sent_again(self) -> Ints:
        """Sends of values that were sent more than once, as a client does that tries again by itself."""
        rows, known = self._sends_by_value
        same = known[1:] == known[:-1]
        return rows[np.append(same, False) | np.append(False, same)] if np.any(same) else NOTHING

    def _writer_of(self, offsets: Ints, values: Ints) -> Ints:
        """A send of each value, that which was told the offset if any; `NOBODY` for tombstones and where none is."""
        rows, known = self._sends_by_value
        if not len(rows):
            return np.full(len(values), NOBODY)
        slot = np.minimum(np.searchsorted(known, values), len(rows) - 1)
        writer: Ints = np.where(known[slot] == values, rows[slot], NOBODY)
        if len(self.sent_again):
            again = np.flatnonzero(np.isin(values, self.ops.value[self.sent_again]))
            exact = self._told_so(offsets[again], values[again])
            writer[again] = np.where(exact == NOBODY, writer[again], exact)
        return writer

    def _told_so(self, offsets: Ints, values: Ints) -> Ints:
        """Of values that were sent again, the first send that was told this offset, `NOBODY` if none was."""
        ops = self.ops
        rows = self.sent_again[(ops.status[self.sent_again] == Status.OK) & (ops.offset[self.sent_again] != UNKNOWN)]
        if not len(rows):
            return np.full(len(values), NOBODY)
        places, each = np.unique(np.stack([ops.value[rows], ops.offset[rows]]), axis=1, return_index=True)
        pairs = np.concatenate([places, np.stack([values, offsets])], axis=1)
        _, same = np.unique(pairs, axis=1, return_inverse=True)
        told = np.full(len(same), NOBODY)
        told[same[: len(each)]] = rows[each]
        found: Ints = told[same[len(each) :]]
        return found

    # -- reads -------------------------------------------------------------------------------------

    @cached_property
    def record_row(self) -> Ints:
        """The row that each record belongs to."""
        return np.repeat(np.arange(len(self.ops)), self.ops.record_count)

    @cached_property
    def record_start(self) -> Ints:
        return np.cumsum(self.ops.record_count) - self.ops.record_count

    @cached_property
    def writer(self) -> Ints:
        """The send that wrote each record."""
        return self._writer_of(self.ops.record_offset, self.ops.record_value)

    @cached_property
    def committed_read(self) -> Mask:
        """Records told by a successful read that is, or may be, read_committed."""
        ops, row = self.ops, self.record_row
        committed = (ops.kind == Kind.READ) & (ops.status == Status.OK)
        committed &= ops.isolation != Isolation.READ_UNCOMMITTED
        told: Mask = committed[row]
        return told

    @cached_property
    def read_value(self) -> Mask:
        """Records told by a read of whatever outcome; a dump is of a replica, and may hold what is not committed."""
        told: Mask = (self.ops.kind == Kind.READ)[self.record_row]
        return told

    @property  # quickly made, and too much to be kept
    def seen(self) -> Observed:
        ops, read = self.ops, self.read_value
        return Observed(
            row=np.concatenate([self.acked, self.record_row[read]]),
            offset=np.concatenate([ops.offset[self.acked], ops.record_offset[read]]),
            value=np.concatenate([ops.value[self.acked], ops.record_value[read]]),
            read=np.concatenate([np.zeros(len(self.acked), bool), np.ones(int(read.sum()), bool)]),
        )

    @cached_property
    def read_somewhere(self) -> Mask:
        """Of each row: a send whose value a successful read told."""
        return self._told((self.ops.status == Status.OK)[self.record_row] & self.read_value)

    @cached_property
    def in_committed_read(self) -> Mask:
        """Of each row: a send whose value a successful read told that was, or may have been, read_committed."""
        return self._told(self.committed_read)

    def _told(self, records: Mask) -> Mask:
        """Of each row: a send of a value among these records, whoever sent it; of a tombstone its place counts."""
        ops, told = self.ops, np.zeros(len(self.ops), bool)
        told[self.writer[records & (self.writer != NOBODY)]] = True
        told[self.sent_again] = np.isin(ops.value[self.sent_again], ops.record_value[records])
        dead = self.acked[ops.value[self.acked] == TOMBSTONE]
        told[dead] = np.isin(ops.offset[dead], ops.record_offset[records & (ops.record_value == TOMBSTONE)])
        return told

    @cached_property
    def solid(self) -> Mask:
        """Records of successful reads that every other reader must meet too, of whatever isolation."""
        ops = self.ops
        good: Mask = (ops.status == Status.OK)[self.record_row] & self.read_value & self.spanned(ops.record_offset)
        if not self.told_txn:
            return good
        writer = self.writer
        outside = (writer == NOBODY) | (ops.txn[writer] == UNKNOWN) | (ops.fate[writer] == Fate.COMMITTED)
        certain = (ops.isolation == Isolation.READ_COMMITTED)[self.record_row]
        solid: Mask = good & (outside | certain | self.in_committed_read[writer] & (writer != NOBODY))
        return solid

    @cached_property
    def solid_offsets(self) -> Ints:
        return distinct(self.ops.record_offset[self.solid])

    @cached_property
    def log_start(self) -> int:
        """The largest log start that anybody told or asked for: nothing below it need be there."""
        ops = self.ops
        asked = ops.offset[(ops.kind == Kind.DELETE) & (ops.status != Status.FAIL)]
        told = ops.log_start_offset if ops.tells("log_start_offset") else NOTHING
        return max(int(told.max(initial=0)), int(asked.max(initial=0)))

    @cached_property
    def reading(self) -> Reading:
        ops = self.ops
        rows = np.flatnonzero((ops.kind == Kind.READ) & (ops.status == Status.OK) & (ops.record_count > 0))
        # A process does one thing at a time, so its rows stand in order already.
        rows = rows[np.lexsort((ops.run[rows], ops.process[rows]))]
        start = self.record_start[rows]
        first = ops.record_offset[start]
        last = ops.record_offset[start + ops.record_count[rows] - 1]
        begins = ops.position[rows].copy()
        before = np.full(len(rows), NOBODY)
        goes_on = (ops.process[rows[1:]] == ops.process[rows[:-1]]) & (ops.run[rows[1:]] == ops.run[rows[:-1]])
        before[1:][goes_on] = rows[:-1][goes_on]
        follows = np.flatnonzero((before != NOBODY) & (begins == UNKNOWN))
        begins[follows] = last[follows - 1] + 1
        return Reading(rows, begins, first, last, before, start)

    @cached_property
    def silent(self) -> Ints:
        """Successful reads from a position that found nothing."""
        ops = self.ops
        rows = np.flatnonzero((ops.kind == Kind.READ) & (ops.status == Status.OK) & (ops.record_count == 0))
        told: Ints = rows[ops.position[rows] != UNKNOWN]
        return told

    @cached_property
    def falls(self) -> Ints:
        """Records after which, in the same read, comes one that is no further."""
        same = self.read_value[1:] & (self.record_row[1:] == self.record_row[:-1])
        return np.flatnonzero(same & (np.diff(self.ops.record_offset) <= 0))

    @cached_property
    def disordered(self) -> Ints:
        """Rows of reads with such records."""
        return distinct(self.record_row[self.falls])

    @cached_property
    def early(self) -> tuple[Ints, Ints]:
        """Records that a reader had before their transaction's commit was asked for: send and read, a pair for each."""
        ops, row, writer = self.ops, self.record_row, self.writer
        may_commit = (ops.txn != UNKNOWN) & (ops.fate != Fate.ABORTED)
        early = self.committed_read & (writer != NOBODY) & may_commit[writer] & (ops.txn[row] != ops.txn[writer])
        early &= (ops.returned[row] < ops.ended[writer]) & self.spanned(ops.record_offset)
        places = np.flatnonzero(early)
        return in_order_of_reads(writer[places], row[places])

    @cached_property
    def covered(self) -> tuple[Ints, Ints, Ints]:
        """Rows of reads, and from where (inclusive) to where (exclusive) each proves what there is.

        A quiet read (after healing, with nobody writing) that reached the reported end proves it for all beyond.
        """
        ops, reading = self.ops, self.reading
        unknown = (reading.begins == UNKNOWN) | self.promise.retention  # who begins below the log start jumps to it
        start = np.where(unknown, reading.first, reading.begins)
        rows = np.concatenate([reading.row, self.silent])
        start = np.concatenate([start, ops.position[self.silent]])
        end = np.concatenate([reading.last + 1, ops.position[self.silent]])
        reached = (ops.quiet[rows] == 1) & (ops.high_watermark[rows] != UNKNOWN) & (end >= ops.high_watermark[rows])
        return rows, start, np.where(reached, NEVER, end)

    @cached_property
    def cover(self) -> Cover:
        return self.cover_of(np.ones(len(self.covered[0]), bool))

    def cover_of(self, chosen: Mask) -> Cover:
        """Of the chosen among `covered`."""
        rows, start, end = (column[chosen] for column in self.covered)
        if not len(rows):
            return Cover(NOTHING, NOTHING, NOTHING)
        order = np.argsort(start, kind="stable")
        furthest = np.maximum.accumulate(end[order])
        who = np.maximum.accumulate(np.where(end[order] == furthest, np.arange(len(order)), 0))
        return Cover(start[order], furthest, rows[order][who])

    def last_offset_of(self, values: Ints) -> Ints:
        """For each value the largest offset that anybody was told, `UNKNOWN` if nobody was."""
        seen = self.seen
        order = np.lexsort((seen.offset, seen.value))
        known = seen.value[order]
        if not len(known):
            return np.full(len(values), UNKNOWN)
        slot = np.searchsorted(known, values, "right") - 1
        return np.where((slot >= 0) & (known[slot] == values), seen.offset[order][slot], UNKNOWN)

    @cached_property
    def send_offset(self) -> Ints:
        """Of each row in `sends`: its offset, also where only who read it tells."""
        offset = self.ops.offset[self.sends].copy()
        untold = np.flatnonzero((offset == UNKNOWN) & (self.ops.value[self.sends] != TOMBSTONE))
        if len(untold):
            offset[untold] = self.last_offset_of(self.ops.value[self.sends[untold]])
        return offset

    @cached_property
    def stuck(self) -> tuple[Ints, Ints]:
        """The last row that told an end when all was quiet, and what its leader had acknowledged beyond; if any."""
        ops, patience = self.ops, self.promise.patience_ms
        told = (ops.quiet == 1) & (ops.status == Status.OK) & (ops.kind != Kind.DUMP)
        rows = np.flatnonzero(told & (ops.high_watermark != UNKNOWN) & (ops.leader_epoch != UNKNOWN))
        if not len(rows) or patience < 0:
            return NOTHING, NOTHING
        last = rows[np.argmax(ops.returned[rows])]
        acked = self.acked[(ops.leader_epoch[self.acked] == ops.leader_epoch[last]) & (ops.quiet[self.acked] == 0)]
        beyond = acked[ops.offset[acked] >= ops.high_watermark[last]]
        waited = min(int(ops.calm_ms[last]), int(ops.at_ms[last] - ops.at_ms[acked].max(initial=0)))
        moved = np.any(ops.leader_epoch[rows] != ops.leader_epoch[last])
        return (NOTHING, NOTHING) if moved or not len(beyond) or waited <= patience else (np.array([last]), beyond)
