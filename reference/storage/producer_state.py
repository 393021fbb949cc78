"""Producer state of a partition: the last five batches of every producer, and its transactions (KIP-98, KIP-360).

The state is derived from the batches of the log, so every replica builds it, and a new leader has it at once
(ProducerStateManager).
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from crc32c import crc32c

from highwater.reference.guards import Guards
from highwater.reference.storage.filesystem import FileSystem
from highwater.reference.storage.transaction_index import AbortedTransaction
from highwater.reference.wire.errors import DecodeError, ErrorCode
from highwater.reference.wire.records import BatchHeader, decode_records

BATCHES_TO_RETAIN: Final = 5
SEQUENCE_MODULUS: Final = 1 << 31
NO_SEQUENCE: Final = -1
ABORT: Final = 0
COMMIT: Final = 1

MARKER_KEY: Final = struct.Struct(">hh")
MARKER_VALUE: Final = struct.Struct(">hi")

SNAPSHOT_VERSION: Final = 1
SNAPSHOT_HEAD: Final = struct.Struct(">hII")
SNAPSHOT_ENTRY: Final = struct.Struct(">qhiqiqiq")


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """Sequences, offsets and timestamp of one batch, for the detection of duplicates."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of a transaction, decoded from its control record."""

    committed: bool
    coordinator_epoch: int


@dataclass(slots=True)
class ProducerEntry:
    epoch: int
    batches: list[BatchMetadata] = field(default_factory=list)
    coordinator_epoch: int = -1
    transaction_start: int | None = None  # the first offset of the open transaction
    last_marker: int = -1  # the offset of the end of the transaction before
    last_timestamp: int = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


def last_sequence(header: BatchHeader) -> int:
    """Return the last sequence of a batch; sequences wrap from 2^31 - 1 to 0."""
    return (header.base_sequence + header.last_offset_delta) % SEQUENCE_MODULUS


def is_next(sequence: int, last: int, guards: Guards) -> bool:
    """Return whether a batch with this first sequence may follow `last` (NO_SEQUENCE: it is the first of its epoch)."""
    if last == NO_SEQUENCE and not guards.begin_at_zero:
        return True
    skipped = (sequence - last - 1) % SEQUENCE_MODULUS
    if skipped >= SEQUENCE_MODULUS // 2:  # sequences wrap: so far ahead, it is behind
        return not guards.refuse_used_sequence
    return skipped == 0 or not guards.refuse_sequence_gap


def read_marker(batch: bytes) -> Marker | None:
    """Decode the transaction marker of a control batch; None if the batch is another kind of control record."""
    try:
        record = decode_records(batch)[1][0]
        _, kind = MARKER_KEY.unpack_from(record.key or b"")
        _, coordinator_epoch = MARKER_VALUE.unpack_from(record.value or b"")
    except (DecodeError, IndexError, struct.error):
        return None
    return Marker(kind == COMMIT, coordinator_epoch) if kind in {ABORT, COMMIT} else None


def marker_record(marker: Marker) -> tuple[bytes, bytes]:
    """Return key and value of the control record."""
    return MARKER_KEY.pack(0, int(marker.committed)), MARKER_VALUE.pack(0, marker.coordinator_epoch)


class ProducerStates:
    """The state of every producer, by producer id; `read_batch` returns the bytes of a batch of this log."""

    __slots__ = ("_completed", "_log_start", "_read_batch", "aborted", "entries")

    def __init__(self, read_batch: Callable[[BatchHeader], bytes]) -> None:
        self._read_batch = read_batch
        self.entries: dict[int, ProducerEntry] = {}
        self.aborted: list[AbortedTransaction] = []  # by the offset of their marker
        self._completed: list[tuple[int, int]] = []  # first offset and marker of ended transactions, by marker
        self._log_start = 0

    # -- before an append ------------------------------------------------------------------------

    def duplicate(self, header: BatchHeader, guards: Guards) -> BatchMetadata | None:
        """Return the batch that this one repeats, if it is among the producer's last five."""
        entry = self.entries.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            return None
        span = (header.base_sequence, last_sequence(header))
        remembered = entry.batches if guards.remember_batches else entry.batches[-1:]
        return next((b for b in remembered if (b.base_sequence, b.last_sequence) == span), None)

    def check(self, header: BatchHeader, guards: Guards, *, from_zero: bool = False) -> ErrorCode:
        """Check the producer epoch and sequence of the next batch to append.

        An unknown producer id may start with any sequence (KIP-360), unless `from_zero`: under transaction version 2
        every transaction has a new epoch and starts with sequence 0 (KIP-890).
        """
        entry = self.entries.get(header.producer_id)
        if entry is None:
            is_late = from_zero and header.base_sequence and guards.begin_at_zero
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if is_late else ErrorCode.NONE
        if header.producer_epoch < entry.epoch and guards.fence_stale_produce:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if entry.transaction_start is not None and not header.is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        if header.base_sequence == NO_SEQUENCE:  # written by a coordinator on behalf of the producer
            return ErrorCode.NONE
        last = entry.last_sequence if header.producer_epoch == entry.epoch else NO_SEQUENCE
        follows = is_next(header.base_sequence, last, guards)
        return ErrorCode.NONE if follows else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def check_marker(
        self, header: BatchHeader, coordinator_epoch: int, guards: Guards, *, ends_version_2: bool
    ) -> ErrorCode:
        """Check that neither the producer epoch nor the coordinator epoch of a marker is outdated.

        Under transaction version 2 the epoch of a marker is higher than that of its transaction: one with the same
        epoch is late, and would end the transaction after it (KIP-1228).
        """
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return ErrorCode.NONE
        if header.producer_epoch < entry.epoch and guards.fence_stale_marker:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if header.producer_epoch == entry.epoch and ends_version_2 and guards.marker_needs_new_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if coordinator_epoch < entry.coordinator_epoch and guards.fence_old_coordinator:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return ErrorCode.NONE

    def repeats_marker(self, header: BatchHeader) -> bool:
        """Return whether a marker of this epoch has ended the producer's last transaction here (KAFKA-19999)."""
        entry = self.entries.get(header.producer_id)
        if entry is None or entry.transaction_start is not None:
            return False
        return entry.last_marker >= 0 and entry.epoch == header.producer_epoch and not entry.batches

    def last_marker(self, producer_id: int) -> int:
        """Return the offset of the producer's last marker, or -1; it changes when a transaction ends (KIP-890)."""
        entry = self.entries.get(producer_id)
        return -1 if entry is None else entry.last_marker

    def has_open_transaction(self, header: BatchHeader) -> bool:
        entry = self.entries.get(header.producer_id)
        return entry is not None and entry.transaction_start is not None and entry.epoch == header.producer_epoch

    # -- after an append -------------------------------------------------------------------------

    def update(self, header: BatchHeader) -> AbortedTransaction | None:
        """Update the state after an append; return the transaction that the batch aborts, for the transaction index."""
        if header.producer_id < 0:
            return None
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = self.entries[header.producer_id] = ProducerEntry(header.producer_epoch)
        elif entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.last_timestamp = header.max_timestamp
        if header.is_control:
            marker = read_marker(self._read_batch(header))
            return None if marker is None else self._end_transaction(entry, header, marker)
        if header.base_sequence != NO_SEQUENCE:
            entry.batches.append(
                BatchMetadata(
                    header.base_sequence,
                    last_sequence(header),
                    header.base_offset,
                    header.last_offset,
                    header.max_timestamp,
                )
            )
            del entry.batches[:-BATCHES_TO_RETAIN]
        if header.is_transactional and entry.transaction_start is None:
            entry.transaction_start = header.base_offset
        return None

    def _end_transaction(self, entry: ProducerEntry, header: BatchHeader, marker: Marker) -> AbortedTransaction | None:
        entry.coordinator_epoch, entry.last_marker = marker.coordinator_epoch, header.base_offset
        first_offset, entry.transaction_start = entry.transaction_start, None
        if first_offset is None:
            return None
        self._completed.append((first_offset, header.last_offset))
        if marker.committed:
            return None
        aborted = AbortedTransaction(
            header.producer_id,
            first_offset,
            header.last_offset,
            min(self._open_transaction_starts(), default=header.next_offset),
        )
        self.aborted.append(aborted)
        return aborted

    def _open_transaction_starts(self) -> Iterator[int]:
        return (entry.transaction_start for entry in self.entries.values() if entry.transaction_start is not None)

    # -- for readers -----------------------------------------------------------------------------

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the end of the read_committed data: all transactions below it have a committed marker.

        Records of an open transaction may have been deleted; then it counts from the log start on.
        """
        while self._completed and self._completed[0][1] < high_watermark:
            del self._completed[0]
        if not self.entries and not self._completed:
            return high_watermark
        first = min([high_watermark, *self._open_transaction_starts(), *(first for first, _ in self._completed)])
        return min(max(first, self._log_start), high_watermark)

    def aborted_between(self, offset: int, until: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap the offsets from `offset` to `until` (exclusive)."""
        return [txn for txn in self.aborted if txn.last_offset >= offset and txn.first_offset < until]

    # -- forgetting ------------------------------------------------------------------------------

    def expire(self, oldest_ms: int) -> None:
        """Remove the producers without a batch since `oldest_ms` and without an open transaction."""
        expired = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.transaction_start is None and entry.last_timestamp < oldest_ms
        ]
        for producer_id in expired:
            del self.entries[producer_id]

    def remember_batches(self, before: Mapping[int, ProducerEntry]) -> None:
        """Take epochs and batches from an earlier state, as a leader did that kept them beside its log."""
        for producer_id, entry in before.items():
            kept = self.entries.setdefault(producer_id, ProducerEntry(entry.epoch))
            kept.epoch, kept.batches = entry.epoch, entry.batches

    def advance_log_start(self, offset: int) -> None:
        """Note the new log start, and remove the aborted transactions that end below it."""
        self._log_start = offset
        self.aborted = [txn for txn in self.aborted if txn.last_offset >= offset]

    def clear(self) -> None:
        self.entries.clear()
        self.aborted.clear()
        self._completed.clear()

    # -- snapshots -------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """Encode all producers as an Apache Kafka `.snapshot` file, which has only the last batch of a producer."""
        body: bytes = len(self.entries).to_bytes(4, "big") + b"".join(
            _pack_entry(producer_id, entry) for producer_id, entry in self.entries.items()
        )
        checksum: int = crc32c(body)
        return SNAPSHOT_VERSION.to_bytes(2, "big") + checksum.to_bytes(4, "big") + body

    def add_missing(self, others: "ProducerStates") -> None:
        """Add the producers of which no batch is left in the log, from a snapshot."""
        self.entries = {**others.entries, **self.entries}

    def restore(self, data: bytes) -> bool:
        """Load a snapshot; return False, with an empty state, if it is incomplete or its CRC is wrong."""
        self.clear()
        if len(data) < SNAPSHOT_HEAD.size:
            return False
        version, crc, count = SNAPSHOT_HEAD.unpack_from(data)
        complete = len(data) == SNAPSHOT_HEAD.size + count * SNAPSHOT_ENTRY.size
        if version != SNAPSHOT_VERSION or not complete or crc32c(data[SNAPSHOT_HEAD.size - 4 :]) != crc:
            return False
        for fields in SNAPSHOT_ENTRY.iter_unpack(data[SNAPSHOT_HEAD.size :]):
            self._restore_entry(*fields)
        return True

    def _restore_entry(
        self, producer_id: int, epoch: int, sequence: int, offset: int, delta: int, timestamp: int,
        coordinator_epoch: int, start: int,
    ) -> None:  # fmt: skip
        entry = ProducerEntry(epoch, [], coordinator_epoch, start if start >= 0 else None, last_timestamp=timestamp)
        if sequence != NO_SEQUENCE:
            base_sequence = (sequence - delta) % SEQUENCE_MODULUS
            entry.batches.append(BatchMetadata(base_sequence, sequence, offset - delta, offset, timestamp))
        self.entries[producer_id] = entry


def _pack_entry(producer_id: int, entry: ProducerEntry) -> bytes:
    last = entry.batches[-1] if entry.batches else BatchMetadata(NO_SEQUENCE, NO_SEQUENCE, -1, -1, -1)
    start = -1 if entry.transaction_start is None else entry.transaction_start
    packed: bytes = SNAPSHOT_ENTRY.pack(
        producer_id, entry.epoch, last.last_sequence, last.last_offset, last.last_offset - last.base_offset,
        entry.last_timestamp, entry.coordinator_epoch, start,
    )  # fmt: skip
    return packed


# --------------------------------------------------------------------------------------------------
# Producer snapshots: `<offset>.snapshot` is the producer state of the log below that offset.
#
# One is written whenever a segment is rolled, so that a restart replays only the last segment.


SUFFIX = ".snapshot"


def snapshot_path(folder: str, offset: int) -> str:
    return f"{folder}/{offset:020d}{SUFFIX}"


def _offsets(fs: FileSystem, folder: str) -> Iterator[int]:
    for name in fs.names(folder):
        stem = name.removesuffix(SUFFIX)
        if name.endswith(SUFFIX) and stem.isdigit():
            yield int(stem)


def newest_snapshot(fs: FileSystem, folder: str, at_most: int) -> int:
    """Return the offset of the newest snapshot at or below an offset, 0 if there is none."""
    return max((offset for offset in _offsets(fs, folder) if offset <= at_most), default=0)


def restore_latest(fs: FileSystem, folder: str, states: ProducerStates, at_most: int) -> int:
    """Load the newest valid snapshot at or below an offset; return its offset, or 0 if there is none."""
    for offset in sorted((offset for offset in _offsets(fs, folder) if offset <= at_most), reverse=True):
        path = snapshot_path(folder, offset)
        if states.restore(fs.read(path, 0, fs.size(path))):
            return offset
        fs.delete(path)  # damaged: try an older one
    return 0


def delete_snapshots_above(fs: FileSystem, folder: str, offset: int) -> None:
    """Delete the snapshots above an offset, because a truncation has removed the batches they cover."""
    for snapshot_offset in list(_offsets(fs, folder)):
        if snapshot_offset > offset:
            fs.delete(snapshot_path(folder, snapshot_offset))
