"""A model of one partition: its batches, its offsets, its leader epochs, and the state of its producers."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from highwater.conformance.models.batches import NONE, SEQUENCES, Batch, Stored, marker_batch
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import ErrorCode

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
REMEMBERED: Final = 5
"""Batches of a producer that a partition recognises when they are repeated (KAFKA-5494)."""
BEYOND_MEMORY: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
"""Both mean that sequence numbers were used before."""
Errors = int | frozenset[ErrorCode]


class Listed(NamedTuple):
    """What ListOffsets returns."""

    error: int
    timestamp: int
    offset: int
    leader_epoch: int


NOT_FOUND: Final = Listed(0, NONE, NONE, NONE)


class EpochEnd(NamedTuple):
    """What OffsetForLeaderEpoch returns."""

    error: int
    leader_epoch: int
    end_offset: int


class Aborted(NamedTuple):
    """An aborted transaction: producer, its first offset, and the offset of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(slots=True)
class ProducerState:
    """What a partition knows of a producer: the last batches, and where its open transaction began.

    A snapshot of this state contains only the last batch, so that a broker that restarts may forget the others:
    `forgettable` has their base offsets.
    """

    epoch: int = NONE
    batches: list[Stored] = field(default_factory=list)
    open_since: int | None = None
    last: Stored | None = None
    forgettable: set[int] = field(default_factory=set)

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].batch.last_sequence if self.batches else NONE

    def next_sequence(self, epoch: int) -> int:
        """Return the sequence number of the next batch with this epoch."""
        return 0 if epoch > self.epoch else (self.last_sequence + 1) % SEQUENCES

    def repetition_of(self, batch: Batch) -> Stored | None:
        """Return the remembered batch with the same epoch and sequence numbers."""
        if batch.epoch != self.epoch:
            return None
        wanted = (batch.sequence, batch.last_sequence)
        return next((s for s in self.batches if (s.batch.sequence, s.batch.last_sequence) == wanted), None)

    def error_for(self, batch: Batch) -> Errors:
        """Return the error for a batch that repeats none of those remembered."""
        if batch.epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        ahead = (batch.sequence - self.next_sequence(batch.epoch)) % SEQUENCES
        if self.epoch != NONE and ahead:
            return BEYOND_MEMORY if ahead > SEQUENCES // 2 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if self.open_since is not None and not batch.transactional:
            return ErrorCode.INVALID_TXN_STATE
        return 0

    def take(self, stored: Stored) -> None:
        self.last = stored
        if stored.batch.epoch != self.epoch:
            self.epoch, self.batches = stored.batch.epoch, []
        if stored.marker is None:
            self.batches = [*self.batches, stored][-REMEMBERED:]
            if stored.batch.transactional and self.open_since is None:
                self.open_since = stored.base_offset
        else:
            self.open_since = None


class Appended(NamedTuple):
    """What Produce returns: an error, or the batch that is stored now or was already; `again` if it was."""

    error: Errors
    stored: Stored | None = None
    again: bool = False


class ModelLog:
    """The log of a partition as its leader has it; all of it is replicated, so the high watermark is its end."""

    def __init__(self, leader_epoch: int, *, by_append_time: bool = False, codec: Compression | None = None) -> None:
        self.by_append_time, self.codec = by_append_time, codec
        self.batches: list[Stored] = []
        self.producers: dict[int, ProducerState] = {}
        self.aborted: list[Aborted] = []
        self.start = self.end = 0
        self.epochs = [(leader_epoch, 0)]

    # -- writing -------------------------------------------------------------------------------------------

    @property
    def leader_epoch(self) -> int:
        return self.epochs[-1][0]

    def append(self, batch: Batch) -> Appended:
        """Append a batch that is valid by itself, unless the state of its producer forbids it."""
        if batch.producer_id == NONE:
            return Appended(0, self._store(batch))
        state = self.producers.get(batch.producer_id, ProducerState())
        repeated = state.repetition_of(batch)
        if repeated is not None:
            forgotten = BEYOND_MEMORY if repeated.base_offset in state.forgettable else frozenset()
            return Appended(frozenset({ErrorCode.NONE, *forgotten}), repeated, again=True)
        error = state.error_for(batch)
        if error:
            return Appended(error)
        stored = self._store(batch)
        self.producers.setdefault(batch.producer_id, state).take(stored)
        return Appended(0, stored)

    def end_transaction(self, producer_id: int, epoch: int, kind: int) -> None:
        """Append a transaction marker."""
        state = self.producers.setdefault(producer_id, ProducerState())
        began = state.open_since
        stored = self._store(marker_batch(producer_id, epoch, kind), marker=kind)
        state.take(stored)
        if began is not None and not kind:
            self.aborted.append(Aborted(producer_id, began, stored.base_offset))

    def _store(self, batch: Batch, marker: int | None = None) -> Stored:
        codec = batch.codec if self.codec is None or marker is not None else self.codec
        stored = Stored(self.end, self.leader_epoch, batch, codec, self.by_append_time, marker=marker)
        self.batches.append(stored)
        self.end = stored.next_offset
        return stored

    def delete_before(self, offset: int) -> tuple[int, int]:
        """Move the start of the log; return the error code and the low watermark, -1 for an error."""
        wanted = self.end if offset == NONE else offset
        if not 0 <= wanted <= self.end:
            return ErrorCode.OFFSET_OUT_OF_RANGE, NONE
        self.start = max(self.start, wanted)
        return 0, self.start

    def restart(self) -> None:
        """Allow that the broker remembers only the last batch of each producer."""
        for state in self.producers.values():
            state.forgettable = {stored.base_offset for stored in state.batches[:-1]}

    def elect(self, leader_epoch: int) -> None:
        """Begin a new leader epoch; one without a record in it has no entry once the next one begins."""
        self.epochs = [*((epoch, start) for epoch, start in self.epochs if start < self.end), (leader_epoch, self.end)]

    # -- reading -------------------------------------------------------------------------------------------

    @property
    def stable(self) -> int:
        """Return the last stable offset."""
        began = [state.open_since for state in self.producers.values() if state.open_since is not None]
        return min(began, default=self.end)

    def limit(self, committed: bool) -> int:
        """Return the offset up to which an isolation level reads."""
        return self.stable if committed else self.end

    def from_offset(self, offset: int, limit: int) -> list[Stored]:
        """Return the batches from the one that contains the offset."""
        return [stored for stored in self.batches if stored.last_offset >= offset and stored.base_offset < limit]

    def times(self) -> Iterator[tuple[int, int, int]]:
        """Yield offset, timestamp and leader epoch of each record that is not deleted."""
        for stored in self.from_offset(self.start, self.end):
            for offset, timestamp in enumerate(stored.timestamps, stored.base_offset):
                if offset >= self.start:
                    yield offset, timestamp, stored.leader_epoch

    @property
    def largest_is_deleted(self) -> bool:
        """Whether a deleted record has the largest timestamp, or may have, as its batch was never read.

        A broker may still return it for -3.
        """
        if any(each.has_time_of_broker and each.append_time is None for each in self.batches):
            return True
        times = [
            (timestamp, -offset)
            for each in self.batches
            for offset, timestamp in enumerate(each.timestamps, each.base_offset)
        ]
        return bool(times) and -max(times)[1] < self.start

    def listed(self, timestamp: int, *, committed: bool = False) -> Listed:
        """Return what ListOffsets returns for a time or one of the special timestamps."""
        limit = self.limit(committed)
        if timestamp == LATEST:
            return Listed(0, NONE, limit, self.leader_epoch)
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return Listed(0, NONE, self.start, self._epoch_at(self.start))
        if timestamp == LATEST_TIERED:
            return NOT_FOUND
        found = self._latest() if timestamp == MAX_TIMESTAMP else self._first_not_before(timestamp)
        return NOT_FOUND if found is None or found.offset >= limit else found

    def _latest(self) -> Listed | None:
        found = max(((timestamp, -offset, epoch) for offset, timestamp, epoch in self.times()), default=None)
        return found and Listed(0, found[0], -found[1], found[2])

    def _first_not_before(self, timestamp: int) -> Listed | None:
        return next(
            (Listed(0, found, offset, epoch) for offset, found, epoch in self.times() if found >= timestamp), None
        )

    def _epoch_at(self, offset: int) -> int:
        return next(epoch for epoch, start in reversed(self.epochs) if start <= offset)

    def epoch_end(self, epoch: int) -> EpochEnd:
        """Return the largest epoch that is not above the requested one, and its end offset."""
        known = [(each, max(start, self.start)) for each, start in self._known_epochs()]
        if epoch == self.leader_epoch:
            return EpochEnd(0, epoch, self.end)
        later = [start for each, start in known if each > epoch]
        if epoch < 0 or not later:
            return EpochEnd(0, NONE, NONE)
        return EpochEnd(0, max((each for each, _ in known if each <= epoch), default=epoch), later[0])

    def _known_epochs(self) -> list[tuple[int, int]]:
        """Return the epochs of which a record is left, and the newest."""
        ends = [start for _, start in self.epochs[1:]]
        return [entry for entry, end in zip(self.epochs, [*ends, None], strict=True) if end is None or end > self.start]

    def aborted_between(self, first: int, last: int) -> list[Aborted]:
        """Return the aborted transactions with offsets in this range."""
        return [each for each in self.aborted if each.last_offset >= first and each.first_offset <= last]

    def firsts(self, aborted: Aborted) -> set[tuple[int, int]]:
        """Return producer id and first offset of an aborted transaction as a reply may contain them.

        If its first batches were deleted, a broker that restarts may know only later ones.
        """
        found = set[tuple[int, int]]()
        for stored in self.from_offset(aborted.first_offset, aborted.last_offset):
            if stored.batch.producer_id == aborted.producer_id:
                found.add((aborted.producer_id, stored.base_offset))
                if stored.last_offset >= self.start:
                    break
        return found
