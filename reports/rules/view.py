"""The auditor's view of one partition: columns of its operations, and everything that several rules derive from them.

Theory of operation. A `View` wraps `Operations`, which holds one row per client call on the partition (send, read,
ListOffsets, replica dump, DeleteRecords; see `highwater.reports.columns`). Ingest adds a row when its call completes;
rules rely only on the order of the rows of one process, which has one call open at a time. The clock is the event
index in the history: `invoked` and `returned` of all rows are distinct numbers, except `NEVER` for calls without a
completion. Only hanging-transaction, stuck and early-retention use wall-clock time (`at_ms`, `calm_ms`, `open_ms`,
`timestamp_ms`).

Records of all reads and dumps are two flat columns, `record_offset` and `record_value`; row r owns the slice of length
`record_count[r]` from `record_start[r]`, and `record_row` maps each record back to its row. Columns have one of three
lengths: rows (masks and `rejected`), records (`writer`, `committed_read`, `durable`), or a selection (`sends`, `acked`,
`reading`), in which the cells are row numbers. A row number that is absent is `NO_ROW`, an unknown number is `UNKNOWN`.

Who may call what: rules and the executors read attributes; each is computed on first use and cached for the life of the
view, so a rule must never write to an array that it got from one. Only `highwater.reports.execution.division` passes
`known` values or overrides a property: a slice of a partition cannot derive these alone. Its `reading.before` may name
rows that follow all columns (`SpanView`); rules may compare and translate them, but not index with them. A view is used
by one thread and is not sent between processes.

Invariants, asserted where they are cheap: all row columns have one length; `record_count` adds up to the number of
records; `span` is not empty; `sends`, `acked` and `end_proofs` are increasing; `reading` is sorted by process and run,
and in a whole partition `before` is smaller than the read's own row; starts and ends in `cover` do not decrease;
`durable_offsets` is strictly increasing.

Deliberately absent: knowledge of other partitions and of the run's tables (`highwater.reports.rules.run`), of files and
engines, and any use of an offset as an array index, since a partition may begin at any offset and have gaps.
"""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from highwater.reports.columns import (
    NEVER,
    NOTHING,
    ROW_COLUMNS,
    TOMBSTONE,
    UNKNOWN,
    Fate,
    Ints,
    Isolation,
    Kind,
    Operations,
    Status,
    with_commits,
    with_isolation,
)
from highwater.reports.rules.findings import NO_ROW, Bounds, Mask, Promise, distinct
from highwater.reports.rules.summary import (
    Epochs,
    LogStarts,
    Producers,
    Summary,
    Timeline,
    deleted_to,
    log_starts,
    unplaced_tombstones,
)


@dataclass(frozen=True, slots=True)
class Observations:
    """Every (offset, value) in an acknowledgement, or in a read of any outcome; columns of equal length."""

    row: Ints
    offset: Ints
    value: Ints
    read: Mask


@dataclass(frozen=True, slots=True)
class Reading:
    """Successful reads with records, sorted by process and run; columns of equal length.

    `begins` is the requested position, or the end of the read before; `UNKNOWN` at the start of a run.
    """

    row: Ints
    begins: Ints
    first: Ints
    last: Ints
    before: Ints  # row of the previous read of the same process and run, `NO_ROW` for the first
    start: Ints  # position of its first record among all records


@dataclass(frozen=True, slots=True)
class Cover:
    """Offsets that reads passed: intervals sorted by start; `end` is the largest end so far, `row` the read with it."""

    start: Ints
    end: Ints
    row: Ints

    def look_up(self, offset: Ints) -> tuple[Mask, Ints]:
        """Return for each offset whether a read passed it, and the row of that read or `NO_ROW`."""
        if not len(self.start):
            return np.zeros(len(offset), bool), np.full(len(offset), NO_ROW)
        slot = np.searchsorted(self.start, offset, "right") - 1
        inside = (slot >= 0) & (self.end[slot] > offset)
        return inside, np.where(inside, self.row[slot], NO_ROW)


def sort_by_read(sends: Ints, reads: Ints) -> tuple[Ints, Ints]:
    """Sort pairs of rows by read, then by send."""
    order = np.lexsort((sends, reads))
    return sends[order], reads[order]


class View:
    """The operations of a partition, the settings, and columns derived from both; see the module docstring.

    `known` replaces attributes that a slice (`highwater.reports.execution.division`) cannot derive alone.
    """

    span: ClassVar[tuple[int, int]] = (-(1 << 63), (1 << 63) - 1)
    """First and last offset that the view is responsible for; of other offsets it holds only some observations."""
    neighbour: ClassVar[Ints] = NOTHING
    """Row of the last acknowledged send of a transaction before the span; empty if there is none."""
    jumps: Any = None
    """`highwater.reports.rules.checks.polls.Jumps` of the whole partition, for a slice; None to compute them here."""

    def __init__(self, ops: Operations, promise: Promise, **known: Any) -> None:
        ops = with_commits(with_isolation(ops, promise.isolation), promise.shown_commits)
        self.ops, self.promise = ops, promise
        self.has_transactions = ops.has_values("txn") and bool(np.any(ops.txn != UNKNOWN))
        vars(self).update(known)
        assert self.span[0] <= self.span[1], self.span
        assert all(len(getattr(ops, name)) == len(ops) for name in ROW_COLUMNS), "columns of different lengths"
        assert len(ops.record_offset) == len(ops.record_value), (len(ops.record_offset), len(ops.record_value))
        assert int(ops.record_count.sum()) == len(ops.record_offset), "record_count does not add up to the records"

    def to_partition_rows(self, rows: Ints) -> Ints:
        """Translate rows of this view into row numbers of the whole partition; `NO_ROW` stays."""
        return rows

    def in_span(self, offset: Ints) -> Mask:
        """Return which offsets this view is responsible for."""
        return (offset >= self.span[0]) & (offset <= self.span[1])

    # -- sends -------------------------------------------------------------------------------------

    @cached_property
    def sends(self) -> Ints:
        """Rows of sends of any outcome, increasing."""
        return np.flatnonzero(self.ops.kind == Kind.SEND)

    @cached_property
    def acked(self) -> Ints:
        """Rows of sends that were acknowledged with an offset, increasing."""
        acked: Ints = self.sends[self._placed(self.sends)]
        return acked

    @cached_property
    def rejected(self) -> Mask:
        """Mask by row: the operation failed, or its transaction was aborted."""
        rejected: Mask = (self.ops.status == Status.FAIL) | (self.ops.fate == Fate.ABORTED)
        return rejected

    @cached_property
    def _sends_by_value(self) -> tuple[Ints, Ints]:
        """Rows of sends sorted by value, and their values; of equal values the likeliest comes first."""
        ops = self.ops
        rows = self.sends[ops.value[self.sends] != TOMBSTONE]
        rows = rows[np.argsort(ops.value[rows], kind="stable")]
        known = ops.value[rows]
        if np.any(known[1:] == known[:-1]):
            failed = ops.status[rows] == Status.FAIL
            rows = rows[
                np.lexsort((ops.invoked[rows], ops.fate[rows] == Fate.ABORTED, self._placed(rows), failed, known))
            ]
        return rows, known

    def _placed(self, sends: Ints) -> Mask:
        """Return which of these sends were acknowledged with an offset: they wrote no record at another one."""
        placed: Mask = (self.ops.status[sends] == Status.OK) & (self.ops.offset[sends] != UNKNOWN)
        return placed

    @cached_property
    def resent_sends(self) -> Ints:
        """Rows of sends whose value was sent several times, as clients that retry do."""
        rows, known = self._sends_by_value
        same = known[1:] == known[:-1]
        return rows[np.append(same, False) | np.append(False, same)] if np.any(same) else NOTHING

    def _writer_of(self, offsets: Ints, values: Ints) -> Ints:
        """Return a send of each value, preferably acknowledged at the offset; `NO_ROW` for tombstones or none."""
        rows, known = self._sends_by_value
        if not len(rows):
            return np.full(len(values), NO_ROW)
        slot = np.minimum(np.searchsorted(known, values), len(rows) - 1)
        writer: Ints = np.where(known[slot] == values, rows[slot], NO_ROW)
        if len(self.resent_sends):
            again = np.flatnonzero(np.isin(values, self.ops.value[self.resent_sends]))
            exact = self._acknowledged_writer(self.resent_sends, offsets[again], values[again])
            writer[again] = np.where(exact == NO_ROW, writer[again], exact)
        return writer

    def _acknowledged_writer(self, sends: Ints, offsets: Ints, values: Ints) -> Ints:
        """Return the first of `sends` that was acknowledged with this value and offset, `NO_ROW` if none."""
        ops = self.ops
        rows = sends[self._placed(sends)]
        if not len(rows):
            return np.full(len(values), NO_ROW)
        places, place = np.unique(np.stack([ops.value[rows], ops.offset[rows]]), axis=1, return_index=True)
        pairs = np.concatenate([places, np.stack([values, offsets])], axis=1)
        _, same = np.unique(pairs, axis=1, return_inverse=True)
        sender = np.full(len(same), NO_ROW)
        sender[same[: len(place)]] = rows[place]
        writer: Ints = sender[same[len(place) :]]
        return writer

    def first_writer(self, record: Ints) -> Ints:
        """Return of the sends that may have written each of these records the one that began first.

        `writer` is the one that is most likely in the log; both differ only if a value was sent, or a tombstone
        acknowledged at its offset, several times.
        """
        ops, values = self.ops, self.ops.record_value[record]
        sends = self.sends[np.isin(ops.value[self.sends], values)]
        sends = sends[np.lexsort((ops.invoked[sends], self._placed(sends), ops.status[sends] == Status.FAIL))]
        by_value = sends[np.argsort(ops.value[sends], kind="stable")]
        same_value = by_value[np.searchsorted(ops.value[by_value], values)]
        exact = self._acknowledged_writer(sends, ops.record_offset[record], values)
        writer: Ints = np.where(exact == NO_ROW, same_value, exact)
        return writer

    def has_one_writer(self, record: Ints) -> Mask:
        """Return for each of these records with a `writer` whether no other send may have written it."""
        ops, again = self.ops, self.resent_sends
        again = again[np.argsort(ops.value[again], kind="stable")]
        value, offset = ops.record_value[record], ops.record_offset[record]
        first = np.searchsorted(ops.value[again], value, "left")
        count = np.searchsorted(ops.value[again], value, "right") - first
        of = np.repeat(np.arange(len(record)), count)
        send = again[np.arange(len(of)) - np.repeat(np.cumsum(count) - count - first, count)]
        placed = self._placed(send)
        ranks = [placed & (ops.offset[send] == offset[of]), placed, ops.status[send] == Status.FAIL]
        rank = np.select(ranks, [0, 2, 3], 1)
        best = np.full(len(record), 3)
        np.minimum.at(best, of, rank)
        several: Mask = np.bincount(of[rank == best[of]], minlength=len(record)) > 1
        return ~several

    # -- reads -------------------------------------------------------------------------------------

    @cached_property
    def record_row(self) -> Ints:
        """Row that each record belongs to, increasing."""
        return np.repeat(np.arange(len(self.ops)), self.ops.record_count)

    @cached_property
    def record_start(self) -> Ints:
        """Position of the first record of each row."""
        return np.cumsum(self.ops.record_count) - self.ops.record_count

    @cached_property
    def writer(self) -> Ints:
        """Row of the send that wrote each record, `NO_ROW` if none is known; tombstones are identified by offset."""
        ops = self.ops
        writer = self._writer_of(ops.record_offset, ops.record_value)
        tombstones = np.flatnonzero(ops.record_value == TOMBSTONE)
        sent = self.acked[ops.value[self.acked] == TOMBSTONE]
        if len(tombstones) and len(sent):
            sent = sent[np.lexsort((ops.invoked[sent], ops.fate[sent] == Fate.ABORTED, ops.offset[sent]))]
            slot = np.minimum(np.searchsorted(ops.offset[sent], ops.record_offset[tombstones]), len(sent) - 1)
            same = ops.offset[sent[slot]] == ops.record_offset[tombstones]
            writer[tombstones[same]] = sent[slot[same]]
        return writer

    @cached_property
    def committed_read(self) -> Mask:
        """Mask by record: it is in a successful read that is, or may be, read_committed."""
        ops, row = self.ops, self.record_row
        committed = (ops.kind == Kind.READ) & (ops.status == Status.OK)
        committed &= ops.isolation != Isolation.READ_UNCOMMITTED
        mask: Mask = committed[row]
        return mask

    @cached_property
    def committed_receipt(self) -> Mask:
        """Mask by record: a reader that is, or may be, read_committed received it, in a read of any outcome."""
        ops = self.ops
        mask: Mask = ((ops.kind == Kind.READ) & (ops.isolation != Isolation.READ_UNCOMMITTED))[self.record_row]
        return mask

    @cached_property
    def read_value(self) -> Mask:
        """Mask by record: it is in a read of any outcome. A dump shows one replica and may hold uncommitted records."""
        mask: Mask = (self.ops.kind == Kind.READ)[self.record_row]
        return mask

    @property  # not cached: it is fast to build and large
    def observations(self) -> Observations:
        """Return all (offset, value) pairs in acknowledgements and reads."""
        ops, read = self.ops, self.read_value
        return Observations(
            row=np.concatenate([self.acked, self.record_row[read]]),
            offset=np.concatenate([ops.offset[self.acked], ops.record_offset[read]]),
            value=np.concatenate([ops.value[self.acked], ops.record_value[read]]),
            read=np.concatenate([np.zeros(len(self.acked), bool), np.ones(int(read.sum()), bool)]),
        )

    @cached_property
    def read_somewhere(self) -> Mask:
        """Mask by row: a send whose value is in a successful read."""
        return self._sends_of_records((self.ops.status == Status.OK)[self.record_row] & self.read_value)

    @cached_property
    def in_committed_read(self) -> Mask:
        """Mask by row: a send whose value is in a successful read that is, or may be, read_committed."""
        return self._sends_of_records(self.committed_read)

    def _sends_of_records(self, records: Mask) -> Mask:
        """Return a mask by row: every send of a record among `records`.

        Sends that were acknowledged with an offset are matched by it, other ones by value: a value that was read
        elsewhere does not show that the record at the acknowledged offset is there.
        """
        ops, mask = self.ops, np.zeros(len(self.ops), bool)
        mine = records & (self.writer != NO_ROW)
        writer = self.writer[mine]
        mask[writer[~self._placed(writer) | (ops.offset[writer] == ops.record_offset[mine])]] = True
        again = self.resent_sends
        mask[again] = np.isin(ops.value[again], ops.record_value[records])
        placed = again[ops.offset[again] != UNKNOWN]
        mine = records & np.isin(ops.record_value, ops.value[placed])
        there = {*zip(ops.record_value[mine].tolist(), ops.record_offset[mine].tolist(), strict=True)}
        at = zip(ops.value[placed].tolist(), ops.offset[placed].tolist(), strict=True)
        mask[placed] = [place in there for place in at]
        dead = self.acked[ops.value[self.acked] == TOMBSTONE]
        mask[dead] = np.isin(ops.offset[dead], ops.record_offset[records & (ops.record_value == TOMBSTONE)])
        return mask

    @cached_property
    def returned(self) -> Mask:
        """Mask by record: it is in a successful read, so that read_uncommitted readers must see it."""
        mask: Mask = (self.ops.status == Status.OK)[self.record_row] & self.read_value
        return mask & self.in_span(self.ops.record_offset)

    @cached_property
    def durable(self) -> Mask:
        """Mask by record: it is in a successful read, and readers of either isolation level must see it."""
        ops, good = self.ops, self.returned
        if not self.has_transactions:
            return good
        writer = self.writer
        outside = (writer == NO_ROW) | (ops.txn[writer] == UNKNOWN) | (ops.fate[writer] == Fate.COMMITTED)
        outside &= ~self._perhaps_of_open_transaction
        certain = (ops.isolation == Isolation.READ_COMMITTED)[self.record_row]
        durable: Mask = good & (outside | certain)
        unsure = np.flatnonzero(good & ~durable)
        durable[unsure] = self._are_among(unsure, self.committed_read & certain)
        return durable

    def _are_among(self, these: Ints, records: Mask) -> Mask:
        """Return which of these records have the value of one of `records`, and its offset if the value is not unique.

        Of equal values one may be committed and another aborted, so only the offset shows which one was read.
        """
        ops, value = self.ops, self.ops.record_value[these]
        found: Mask = np.isin(value, ops.record_value[records])
        several = np.append(ops.value[self.resent_sends], TOMBSTONE)
        again = np.flatnonzero(found & np.isin(value, several))
        mine = records & np.isin(ops.record_value, several)
        there = {*zip(ops.record_value[mine].tolist(), ops.record_offset[mine].tolist(), strict=True)}
        pairs = zip(value[again].tolist(), ops.record_offset[these[again]].tolist(), strict=True)
        found[again] = [pair in there for pair in pairs]
        return found

    @property
    def _perhaps_of_open_transaction(self) -> Mask:
        """Mask by record: several sends may have written it, one of them in a transaction not known to commit."""
        ops, rows = self.ops, self._possible_writers
        return self._written_perhaps_by(rows[(ops.txn[rows] != UNKNOWN) & (ops.fate[rows] != Fate.COMMITTED)])

    @property
    def perhaps_of_another_transaction(self) -> Mask:
        """Mask by record: several sends may have written it, not all in one transaction, or not all outside of any."""
        ops, rows = self.ops, self._possible_writers
        same, other = ops.value[rows[1:]] == ops.value[rows[:-1]], ops.txn[rows[1:]] != ops.txn[rows[:-1]]
        return self._written_perhaps_by(rows[1:][same & other])

    @cached_property
    def _possible_writers(self) -> Ints:
        """Rows of sends of values that were sent several times, by value; impossible ones only without others."""
        ops, again = self.ops, self.resent_sends
        possible = again[(ops.status[again] != Status.FAIL) & ~self._placed(again)]
        rows = np.concatenate([possible, again[~np.isin(ops.value[again], ops.value[possible])]])
        return rows[np.argsort(ops.value[rows], kind="stable")]

    def _written_perhaps_by(self, sends: Ints) -> Mask:
        """Mask by record: it has the value of one of these sends, and none was acknowledged at its offset."""
        ops, writer = self.ops, self.writer
        if not len(sends):
            return np.zeros(len(writer), bool)
        exact = (writer != NO_ROW) & (ops.status[writer] == Status.OK) & (ops.offset[writer] == ops.record_offset)
        mask: Mask = np.isin(ops.record_value, ops.value[sends]) & ~exact
        return mask

    @cached_property
    def durable_offsets(self) -> Ints:
        """Offsets of durable records, strictly increasing."""
        return distinct(self.ops.record_offset[self.durable])

    @cached_property
    def returned_offsets(self) -> Ints:
        """Offsets of records in successful reads, strictly increasing."""
        return distinct(self.ops.record_offset[self.returned])

    @cached_property
    def sees_uncommitted(self) -> Mask:
        """Mask by row: a read that is read_uncommitted, of a topic in which aborted records stay."""
        mask: Mask = self.ops.isolation == Isolation.READ_UNCOMMITTED
        return mask & (not self.promise.compaction)

    # -- facts about the whole partition -------------------------------------------------------------

    @cached_property
    def log_starts(self) -> LogStarts:
        """Evidence of the log start: records below it may be missing."""
        return log_starts(self.ops, self._proved_ends, self._upper_ends)

    @cached_property
    def log_start_proofs(self) -> Bounds:
        """Lower bounds of the log start: reports, but for those of followers, and successful deletions."""
        ops = self.ops
        reporting = np.flatnonzero((ops.status == Status.OK) & (ops.log_start_offset > 0) & ~self.by_follower)
        deletions = np.flatnonzero((ops.kind == Kind.DELETE) & (ops.status == Status.OK))
        rows = np.concatenate([reporting, deletions])
        to = np.concatenate([ops.log_start_offset[reporting], deleted_to(ops, deletions, self._proved_ends)])
        return Bounds(ops.returned[rows], to, rows)

    def _proved_ends(self) -> Timeline:
        """Return the log ends that acknowledgements, reads and reported high watermarks prove."""
        ops, acked, reading = self.ops, self.acked if self.promise.acks_all else NOTHING, self.reading
        reporting = np.flatnonzero(self.reports & (ops.high_watermark != UNKNOWN))
        rows = np.concatenate([acked, reading.row, reporting])
        ends = np.concatenate([ops.offset[acked] + 1, reading.last + 1, ops.high_watermark[reporting]])
        return Timeline.of(ops.returned[rows], ends)

    def _upper_ends(self) -> tuple[Ints, Ints]:
        """Return event indices, and the largest high watermark at each: the offset of a record that was sent later.

        A clean leader has all records below the high watermark; without acks=all the record itself may be lost.
        """
        ops, acked = self.ops, self.acked
        if self.promise.unclean_election or not self.promise.acks_all:
            return NOTHING, NOTHING
        return ops.invoked[acked], ops.offset[acked]

    @cached_property
    def epochs(self) -> Epochs:
        return Epochs.of(self.ops)

    @cached_property
    def producers(self) -> Producers:
        return Producers.of(self.ops)

    @cached_property
    def unplaced_tombstones(self) -> int:
        return unplaced_tombstones(self.ops, idempotence=self.promise.idempotence)

    def summary(self) -> Summary:
        """Return the facts about these operations, to merge them with those of other chunks of the partition."""
        return Summary(self.log_starts, self.epochs, self.producers, self.unplaced_tombstones, self.has_transactions)

    # -- positions of readers ------------------------------------------------------------------------

    @cached_property
    def reports(self) -> Mask:
        """Mask by row: a successful read or ListOffsets; a dump reports the ends of one replica only."""
        ops = self.ops
        mask: Mask = ((ops.kind == Kind.READ) | (ops.kind == Kind.LIST_OFFSETS)) & (ops.status == Status.OK)
        return mask

    @cached_property
    def reading(self) -> Reading:
        """Successful reads with records, with the position at which each began."""
        ops = self.ops
        rows = np.flatnonzero((ops.kind == Kind.READ) & (ops.status == Status.OK) & (ops.record_count > 0))
        # A process has one operation open at a time, so its rows are in order already.
        rows = rows[np.lexsort((ops.run[rows], ops.process[rows]))]
        start = self.record_start[rows]
        first = ops.record_offset[start]
        last = ops.record_offset[start + ops.record_count[rows] - 1]
        begins = ops.position[rows].copy()
        before = np.full(len(rows), NO_ROW)
        goes_on = (ops.process[rows[1:]] == ops.process[rows[:-1]]) & (ops.run[rows[1:]] == ops.run[rows[:-1]])
        before[1:][goes_on] = rows[:-1][goes_on]
        follows = np.flatnonzero((before != NO_ROW) & (begins == UNKNOWN))
        begins[follows] = last[follows - 1] + 1
        assert np.all(before < rows), "a read continues one that comes after it"
        return Reading(rows, begins, first, last, before, start)

    @cached_property
    def end_proofs(self) -> Ints:
        """Rows, increasing, of the final phase that may prove an end: empty reads at a position, and ListOffsets."""
        ops = self.ops
        empty = (ops.kind == Kind.READ) & (ops.record_count == 0) & (ops.position != UNKNOWN)
        states_end = (ops.status == Status.OK) & (ops.high_watermark != UNKNOWN) & (ops.quiet == 1)
        return np.flatnonzero(states_end & (empty | (ops.kind == Kind.LIST_OFFSETS)))

    @cached_property
    def offset_decreases(self) -> Ints:
        """Positions of records whose successor in the same read has no larger offset."""
        same = self.read_value[1:] & (self.record_row[1:] == self.record_row[:-1])
        return np.flatnonzero(same & (np.diff(self.ops.record_offset) <= 0))

    @cached_property
    def unordered_reads(self) -> Ints:
        """Rows of reads whose offsets do not increase."""
        return distinct(self.record_row[self.offset_decreases])

    @cached_property
    def early(self) -> tuple[Ints, Ints]:
        """Pairs (send, read): a read returned the record before its transaction's EndTxn request."""
        ops, row, writer = self.ops, self.record_row, self.writer
        may_commit = (ops.txn != UNKNOWN) & (ops.fate != Fate.ABORTED)
        early = self.committed_read & (writer != NO_ROW) & may_commit[writer] & (ops.txn[row] != ops.txn[writer])
        early &= (ops.returned[row] < ops.ended[writer]) & self.in_span(ops.record_offset)
        places = np.flatnonzero(early)
        return sort_by_read(writer[places], row[places])

    @cached_property
    def covered(self) -> tuple[Ints, Ints, Ints]:
        """Rows of reads, then of `end_proofs`, and the range [start, end) of offsets whose content each proves.

        In the final phase (no faults, no writers) a read that reached the reported end proves all offsets beyond.
        """
        ops, reading, others = self.ops, self.reading, self.end_proofs
        place = np.where(ops.kind[others] == Kind.LIST_OFFSETS, ops.high_watermark[others], ops.position[others])
        start = np.concatenate([np.maximum(self.begins_at, self.possible_starts[1]), place])
        rows, end = np.concatenate([reading.row, others]), np.concatenate([reading.last + 1, place])
        reported = ops.high_watermark[rows]
        reached = (reported != UNKNOWN) & (end >= reported) & (ops.quiet[rows] == 1) & ~self.by_follower[rows]
        return rows, start, np.where(reached, NEVER, end)

    @cached_property
    def by_follower(self) -> Mask:
        """Mask by row: the reply of a follower, `Epochs.by_follower`."""
        return self.epochs.by_follower(self.ops)

    @cached_property
    def begins_at(self) -> Ints:
        """Offset at which each read in `reading` began: its first record if that is unknown, or before."""
        begins, first = self.reading.begins, self.reading.first
        return np.where(begins == UNKNOWN, first, np.minimum(begins, first))

    @cached_property
    def possible_starts(self) -> tuple[Ints, Ints]:
        """Log start for each read in `reading`: at least, and at most; both at most the first record of the read."""
        ops, rows, first = self.ops, self.reading.row, self.reading.first
        own = ops.log_start_offset[rows]
        certain = np.where(own == UNKNOWN, self.log_starts.certain(ops.invoked[rows]), own)
        certain, possible = (np.minimum(start, first) for start in (certain, self._possible_start(rows)))
        assert np.all(certain <= possible), "a log start is certain but not possible"
        return certain, possible

    def _possible_start(self, rows: Ints) -> Ints:
        """Return the largest possible log start during each operation."""
        ops, own = self.ops, self.ops.log_start_offset[rows]
        possible = self.log_starts.possible(ops.invoked[rows], ops.returned[rows])
        return np.where(own == UNKNOWN, NEVER if self.promise.retention else possible, own)

    def passed(self, sends: Ints, offset: Ints, chosen: Mask | None = None) -> tuple[Mask, Ints]:
        """Return for each send whether a read that did not precede it passed its offset, and the row of such a read.

        `chosen` masks the reads of `covered` that count (None: all). The row is `NO_ROW` if there is none.
        """
        ops, chosen = self.ops, np.ones(len(self.covered[0]), bool) if chosen is None else chosen
        passed, by = self._cover_of(chosen).look_up(offset)
        rows, start, end = (column[chosen] for column in self.covered)
        for place in np.flatnonzero(passed & (ops.returned[by] < ops.invoked[sends])):  # seldom: it was longer
            later = (start <= offset[place]) & (end > offset[place]) & (ops.returned[rows] > ops.invoked[sends[place]])
            passed[place], by[place] = later.any(), rows[later].min() if later.any() else NO_ROW
        return passed, by

    def passed_everything(self, sends: Ints, chosen: Mask | None = None) -> Ints:
        """Return for each send the read that proves the end if reads that did not precede it passed all offsets.

        `chosen` masks the reads of `covered` that count (None: all).
        """
        if self.stuck_end != NEVER:  # the record may be beyond the end
            return np.full(len(sends), NO_ROW)
        invoked = np.sort(self.ops.invoked[sends])
        chosen = np.ones(len(self.covered[0]), bool) if chosen is None else chosen
        passed = bisect_left(invoked, True, key=lambda since: self._end_of_all(int(since), chosen) == NO_ROW)
        by = self._end_of_all(int(invoked[passed - 1]), chosen) if passed else NO_ROW
        return np.where(np.searchsorted(invoked, self.ops.invoked[sends]) < passed, by, NO_ROW)

    def _end_of_all(self, since: int, chosen: Mask) -> int:
        """Return the read that proves the end if the reads that did not return before `since` passed all offsets."""
        later = chosen & (self.ops.returned[self.covered[0]] > since)
        rows, start, end = (column[later] for column in self.covered)
        order = np.argsort(start, kind="stable")
        rows, start, end = rows[order], start[order], end[order]
        reached = np.append(0, np.maximum.accumulate(end))
        if reached[-1] != NEVER:
            return NO_ROW
        last = int(np.argmax(end))
        return int(rows[last]) if np.all(start[: last + 1] <= reached[: last + 1]) else NO_ROW

    def _cover_of(self, chosen: Mask) -> Cover:
        """Return the offsets passed by the reads of `covered` that `chosen` masks."""
        rows, start, end = (column[chosen] for column in self.covered)
        if not len(rows):
            return Cover(NOTHING, NOTHING, NOTHING)
        order = np.argsort(start, kind="stable")
        furthest = np.maximum.accumulate(end[order])
        reached_by = np.maximum.accumulate(np.where(end[order] == furthest, np.arange(len(order)), 0))
        cover = Cover(start[order], furthest, rows[order][reached_by])
        assert np.all(cover.start[1:] >= cover.start[:-1]), "intervals are not sorted"
        return cover

    def last_offset_of(self, values: Ints) -> Ints:
        """Return for each value the largest acknowledged or read offset, `UNKNOWN` if there is none."""
        observations = self.observations
        order = np.lexsort((observations.offset, observations.value))
        known = observations.value[order]
        if not len(known):
            return np.full(len(values), UNKNOWN)
        slot = np.searchsorted(known, values, "right") - 1
        return np.where((slot >= 0) & (known[slot] == values), observations.offset[order][slot], UNKNOWN)

    @cached_property
    def written_once(self) -> Mask:
        """Mask by row: the record of the send is at most once in the log, since its producer is known to be idempotent.

        A client that gave up on a record may send it again under a new producer epoch (KIP-360).
        """
        ops = self.ops
        sure = (ops.gave_up != 1) | self.producers.used_after(ops.producer, ops.returned)
        mask: Mask = (ops.txn != UNKNOWN) | (sure & self.promise.idempotence)
        return mask

    @cached_property
    def send_offset(self) -> Ints:
        """Offset of each row in `sends`, acknowledged or else read; `UNKNOWN` if neither, or if others may be there."""
        offset = self.ops.offset[self.sends].copy()
        unacknowledged = np.flatnonzero((offset == UNKNOWN) & (self.ops.value[self.sends] != TOMBSTONE))
        if len(unacknowledged):
            several = np.isin(self.sends[unacknowledged], self.resent_sends)
            one, again = unacknowledged[~several], unacknowledged[several]
            offset[one] = self.last_offset_of(self.ops.value[self.sends[one]])
            offset[again] = self._only_place(self.sends[again])
        return offset

    def _only_place(self, sends: Ints) -> Ints:
        """Return where the records of these resent sends were read, `UNKNOWN` if another send may have written them."""
        ops, again = self.ops, self.resent_sends
        possible = again[ops.status[again] != Status.FAIL]
        placed = self._placed(possible)
        values, count = np.unique(ops.value[possible[~placed]], return_counts=True)
        values = np.setdiff1d(values[count == 1], ops.value[possible[placed & ~self.written_once[possible]]])
        record = np.flatnonzero(self.read_value & np.isin(ops.record_value, values))
        offset, value = ops.record_offset[record], ops.record_value[record]
        other = self._acknowledged_writer(again, offset, value) == NO_ROW
        order = np.lexsort((offset[other], value[other]))
        offset, value = offset[other][order], value[other][order]
        slot = np.searchsorted(value, ops.value[sends], "right") - 1
        known = (slot >= 0) & (ops.status[sends] != Status.FAIL)
        known[known] = value[slot[known]] == ops.value[sends[known]]
        result = np.full(len(sends), UNKNOWN)
        result[known] = offset[slot[known]]
        return result

    @cached_property
    def placed(self) -> tuple[Ints, Ints]:
        """Rows of sends that were not rejected and whose place is known, increasing, and the offset by row."""
        offset = np.full(len(self.ops), UNKNOWN)
        offset[self.sends] = np.where(self.ops.status[self.sends] == Status.FAIL, UNKNOWN, self.send_offset)
        return np.flatnonzero(offset != UNKNOWN), offset

    @cached_property
    def unplaced_records(self) -> Ints:
        """Offsets of received records that are not the place of a send, increasing."""
        ops, writer = self.ops, self.writer
        at_place = (writer != NO_ROW) & (self.placed[1][writer] == ops.record_offset)
        return distinct(ops.record_offset[self.read_value & ~at_place])

    @cached_property
    def stuck(self) -> tuple[Ints, Ints]:
        """Last row of the newest leader with an end in the quiet phase, and rows that it acknowledged beyond; or none.

        Acknowledgements and faults of less than `patience_ms` ago do not count.
        """
        ops, patience = self.ops, self.promise.patience_ms
        reporting = (ops.quiet == 1) & (ops.status == Status.OK) & (ops.kind != Kind.DUMP)
        rows = np.flatnonzero(reporting & (ops.high_watermark != UNKNOWN) & (ops.leader_epoch != UNKNOWN))
        newest = ops.leader_epoch[rows].max(initial=UNKNOWN)
        rows = rows[(ops.leader_epoch[rows] == newest) & (ops.at_ms[rows] != UNKNOWN)]
        if not len(rows) or patience < 0:
            return NOTHING, NOTHING
        last = rows[np.argmax(ops.returned[rows])]
        acked = self.acked[(ops.leader_epoch[self.acked] == newest) & (ops.quiet[self.acked] == 0)]
        acked = acked[ops.returned[acked] < ops.invoked[last]]
        waited = np.minimum(ops.calm_ms[last], ops.at_ms[last] - ops.at_ms[acked]) - max(ops.open_ms[last], 0)
        beyond = acked[(ops.offset[acked] >= ops.high_watermark[last]) & (waited > patience)]
        return (np.array([last]), beyond) if len(beyond) else (NOTHING, NOTHING)

    @cached_property
    def stuck_end(self) -> int:
        """End at which the partition is stuck; `NEVER` if it is not."""
        last, _ = self.stuck
        return int(self.ops.high_watermark[last[0]]) if len(last) else int(NEVER)
