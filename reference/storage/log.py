"""The log of one replica: segments, leader epochs and producer state of one topic partition.

Appended bytes are in the page cache; `recovery_point` is the offset below which they were flushed.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from reference.storage.filesystem import FileSystem
from reference.storage.leader_epochs import CHECKPOINT, LeaderEpochCache, format_epochs
from reference.storage.producer_snapshots import forget_above, restore_latest, snapshot_path
from reference.storage.producer_state import ProducerStates
from reference.storage.recovery import load_segment, read_epochs, recover_segment, refuse_gap, segment_bases
from reference.storage.segment import Segment
from reference.storage.swaps import recover_swaps
from reference.storage.transaction_index import add_entry, read_entries
from reference.wire.log_entries import entries, entry_crc_valid
from reference.wire.records import BatchHeader, read_batch_header, stamp


class OffsetOutOfRangeError(Exception):
    """The offset is below the log start or above the log end."""


class CorruptBatchError(Exception):
    """A fetched batch fails its CRC or does not follow the log end; nothing of it was appended."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Sizes in bytes, times in milliseconds; -1 is without limit. Names are those of the topic settings."""

    segment_bytes: int = 1 << 30
    index_interval_bytes: int = 4096
    segment_ms: int = -1
    segment_index_bytes: int = 10 * 1024 * 1024
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    retention_ms: int = -1
    retention_bytes: int = -1
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    min_cleanable_dirty_ratio: float = 0.5


class Log:
    """Offsets ascend; they may have gaps after compaction, so the next offset comes from batch headers."""

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        config: LogConfig,
        *,
        recovery_point: int = 0,
        clean: bool = True,
        log_start_offset: int = 0,
    ) -> None:
        self.fs, self.folder, self.config = fs, folder, config
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_start_offset
        self.epochs = LeaderEpochCache()
        self.producers = ProducerStates(self._bytes_of)
        self.segments: list[Segment] = []
        self.warnings: list[str] = []  # what opening it found, and mended
        self.dirty: dict[str, None] = {}  # files written since the last flush, in order
        self.unflushed_messages = 0
        self._flushing_to = 0  # log end when the flush under way began, or where a truncation cut since then
        self._load(recovery_point, clean=clean)
        if recovery_point > self.log_end_offset and not clean:
            # A truncation that the checkpoint has not heard of, or lost data: nothing is to be trusted.
            self.segments, self.log_end_offset = [], log_start_offset
            self._load(0, clean=False)
        self.recovery_point = min(recovery_point, self.log_end_offset)

    # -- opening ---------------------------------------------------------------------------------

    def _load(self, recovery_point: int, *, clean: bool) -> None:
        """Trust what lies below the recovery point, walk the rest; after an unclean stop every CRC there is checked."""
        recover_swaps(self.fs, self.folder)
        bases = segment_bases(self.fs, self.folder)
        if clean:
            recovery_point = max(recovery_point, bases[-1] if bases else 0)
        first = max(bisect_right(bases, recovery_point) - 1, 0)
        for base in bases[:first]:
            self.segments.append(self._segment(base))
            load_segment(self.segments[-1], self.warnings.append)
        self._restore(bases[first] if bases else self.log_start_offset)
        for slot, base in enumerate(bases[first:], first):
            # Compaction leaves holes between segments, but only in what is flushed; this one a crash left.
            if slot > first and base > max(self.log_end_offset, recovery_point):
                self._drop_unwritten(bases[slot:], recovery_point)
                break
            self.segments.append(self._segment(base))
            self.segments[-1].forget_transactions()
            if not clean:  # a process that died leaves in the page cache what a machine that dies would lose
                self.dirty[self.segments[-1].path] = None
            if recover_segment(
                self.segments[-1], recovery_point, check_crc=not clean, note=self._note, warn=self.warnings.append
            ):
                self._drop_unwritten(bases[slot + 1 :], recovery_point)
                break
            if slot + 1 < len(bases):
                self.segments[-1].close()
        if not self.segments:
            self._roll(self.log_end_offset)
        self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        self.log_end_offset = max(self.log_end_offset, self.log_start_offset, self.segments[-1].base_offset)
        self.epochs.truncate_from_end(self.log_end_offset)
        forget_above(self.fs, self.folder, self.log_end_offset)

    def _segment(self, base_offset: int) -> Segment:
        return Segment(self.fs, self.folder, base_offset, self.config.index_interval_bytes)

    def _restore(self, base_offset: int) -> None:
        """Leader epochs and producers as they were at `base_offset`, where the walk over the batches begins."""
        epochs = read_epochs(self.fs, self.folder, self.warnings.append)
        if epochs is None:
            for header in self.headers(self.log_start_offset):
                self._note_epoch(header)
        else:
            self.epochs = epochs
            self.epochs.truncate_from_end(base_offset)
        self._restore_producers(base_offset)

    def _drop_unwritten(self, bases: list[int], recovery_point: int) -> None:
        """What follows a cut is no continuation of the log; unless it was flushed, then the cut must not be."""
        for base in bases:
            segment = self._segment(base)
            if segment.size and base < recovery_point:
                raise refuse_gap(self.segments[-1], self.log_end_offset)
            segment.delete()

    def _note(self, header: BatchHeader) -> None:
        self._note_epoch(header)
        self._remember_producer(header)
        self.log_end_offset = header.next_offset

    def _note_epoch(self, header: BatchHeader) -> None:
        if header.partition_leader_epoch >= 0:
            self.epochs.assign(header.partition_leader_epoch, header.base_offset)

    def _remember_producer(self, header: BatchHeader) -> None:
        aborted = self.producers.note(header)
        if aborted is not None:
            path = self.segments[self._segment_of(header.base_offset)].transactions_path
            add_entry(self.fs, path, aborted)
            self.dirty[path] = None

    def _bytes_of(self, header: BatchHeader) -> bytes:
        """A whole batch of this log."""
        segment = self.segments[self._segment_of(header.base_offset)]
        found = segment.locate(header.base_offset)
        assert found is not None, header
        return segment.read(found[0], header.size)

    # -- rolling ---------------------------------------------------------------------------------

    def _roll(self, base_offset: int) -> None:
        """Begin a new segment, with a snapshot of the producers beside it."""
        if self.segments:
            self.segments[-1].close()
            path = snapshot_path(self.folder, base_offset)
            self.fs.write(path, self.producers.snapshot())
            self.dirty[path] = None
        segment = self._segment(base_offset)
        self.fs.append(segment.path, b"")
        for index in (segment.offsets, segment.times):
            index.reset()
        self.segments.append(segment)

    def roll(self) -> None:
        """Close the active segment, unless it is empty, so that it may be deleted or compacted."""
        if self.segments[-1].size:
            self._roll(self.log_end_offset)

    def _must_roll(self, header: BatchHeader) -> bool:
        """By size, index or time; time is that of the records, so that a clock that jumps rolls nothing."""
        active, config = self.segments[-1], self.config
        if not active.has_room(header, config.segment_bytes, config.segment_index_bytes):
            return True
        if config.segment_ms < 0 or not active.size:
            return False
        first = active.first_timestamp
        return first >= 0 and header.max_timestamp - first > config.segment_ms

    # -- appending -------------------------------------------------------------------------------

    def append_as_leader(self, batch: bytes, header: BatchHeader, leader_epoch: int) -> int:
        """Give one batch the next offsets and the leader epoch; returns its base offset."""
        stamped = bytearray(batch)
        stamp(stamped, 0, self.log_end_offset, leader_epoch)
        placed = read_batch_header(stamped)
        self._append(bytes(stamped), placed)
        return placed.base_offset

    def append_as_follower(self, data: bytes) -> int:
        """Append the whole batches of a fetch reply as they are; a batch that was cut is left out.

        Returns the number of records. Batches at or below the log end are skipped, so a repeated
        reply does no harm; CorruptBatchError for a bad CRC or a hole.
        """
        count = 0
        for position, header in entries(data):
            if header.last_offset < self.log_end_offset:
                continue
            if not entry_crc_valid(data, position, header) or header.base_offset < self.log_end_offset:
                raise CorruptBatchError(f"{self.folder}: bad batch at offset {header.base_offset}")
            self._append(data[position : position + header.size], header)
            count += header.last_offset_delta + 1
        return count

    def _append(self, batch: bytes, header: BatchHeader) -> None:
        if self._must_roll(header):
            self._roll(header.base_offset)
        active = self.segments[-1]
        active.append(batch, header)
        self.dirty[active.path] = None
        self.unflushed_messages += header.last_offset_delta + 1
        self._note(header)

    # -- flushing --------------------------------------------------------------------------------

    def begin_flush(self) -> tuple[str, ...]:
        """The files to fsync; empty when nothing was written since the last time. One flush at a time."""
        if self.epochs.dirty:
            hidden = f"{self.folder}/{CHECKPOINT}.tmp"
            self.fs.write(hidden, format_epochs(self.epochs.entries))
            self.dirty[hidden] = None
            self.epochs.dirty = False
        paths = tuple(self.dirty)
        self.dirty.clear()
        self.unflushed_messages, self._flushing_to = 0, self.log_end_offset
        return paths

    def flushed(self) -> None:
        """What `begin_flush` named is on the platter: what lies below needs no check after a crash."""
        hidden = f"{self.folder}/{CHECKPOINT}.tmp"
        if self.fs.exists(hidden):
            self.fs.rename(hidden, f"{self.folder}/{CHECKPOINT}")
        self.recovery_point = max(self.recovery_point, min(self._flushing_to, self.log_end_offset))

    def close(self) -> None:
        """A clean stop: what a start would have to work out is written down; the driver flushes all files."""
        self.begin_flush()
        self.flushed()
        self.recovery_point = self.log_end_offset

    # -- reading ---------------------------------------------------------------------------------

    def _segment_of(self, offset: int) -> int:
        if self.segments and offset >= self.segments[-1].base_offset:  # where most readers are
            return len(self.segments) - 1
        return max(bisect_right(self.segments, offset, key=lambda segment: segment.base_offset) - 1, 0)

    def read(self, offset: int, max_bytes: int, until: int, *, at_least_one: bool) -> bytes:
        """Batches from the one that holds `offset`, below offset `until`, at most `max_bytes`.

        The first batch comes whole even if it is larger when `at_least_one` (KIP-74); the last may be cut.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(offset)
        if offset >= until:
            return b""
        slot = self._segment_of(offset)
        found = self.segments[slot].locate(offset)
        while found is None and slot + 1 < len(self.segments):
            slot += 1
            found = self.segments[slot].locate(offset)
        if found is None or found[1].base_offset >= until:
            return b""
        segment, (position, header) = self.segments[slot], found
        if max_bytes < header.size:
            return segment.read(position, header.size) if at_least_one else b""
        return segment.read(position, min(self._end_position(segment, until) - position, max_bytes))

    def _end_position(self, segment: Segment, until: int) -> int:
        """Position in a segment of the first batch at or past `until`."""
        if until >= self.log_end_offset:
            return segment.size
        found = segment.locate(until)
        return found[0] if found else segment.size

    def headers(self, offset: int) -> Iterator[BatchHeader]:
        """All batch headers from the batch that holds `offset`."""
        for segment in self.segments[self._segment_of(offset) :]:
            start = segment.floor(offset) if offset > segment.base_offset else 0
            for _, header in segment.headers(start):
                if header.last_offset >= offset:
                    yield header

    def batches_from_timestamp(self, timestamp: int) -> Iterator[bytes]:
        """Whole batches, oldest first, whose largest timestamp is `timestamp` or later."""
        for segment in self.segments:
            start = segment.floor(segment.times.floor(timestamp))
            for position, header in segment.headers(start):
                if header.max_timestamp >= timestamp and header.last_offset >= self.log_start_offset:
                    yield segment.read(position, header.size)

    # -- compacting ------------------------------------------------------------------------------

    def replace(self, segment: Segment, path: str) -> None:
        """A cleaned copy takes the place of a closed segment; one without a batch goes, unless the log begins there."""
        self.fs.rename(path, segment.path)
        for _ in segment.rebuild(check_crc=False):
            pass
        segment.close()
        if not segment.size and segment is not self.segments[0]:
            self.segments.remove(segment)
            self._delete(segment)

    # -- truncating ------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Drop every batch that reaches `offset` or beyond; True if anything went."""
        if offset >= self.log_end_offset:
            # An epoch that this replica led without writing may begin here, and is no part of the log (KAFKA-10706).
            self.epochs.truncate_from_end(offset)
            return False
        while len(self.segments) > 1 and self.segments[-1].base_offset >= offset:
            self._drop_last_segment()
        found = self.segments[-1].locate(offset)
        if found is not None:
            self.segments[-1].truncate_to(found[0])
            self.dirty[self.segments[-1].path] = None
            self.log_end_offset = max(found[1].base_offset, self.log_start_offset)
        else:
            self.log_end_offset = max(offset, self.segments[0].base_offset)
        self.recovery_point = min(self.recovery_point, self.log_end_offset)
        self._flushing_to = min(self._flushing_to, self.log_end_offset)
        self.epochs.truncate_from_end(self.log_end_offset)
        forget_above(self.fs, self.folder, self.log_end_offset)
        self._restore_producers(self.log_end_offset)
        return True

    def truncate_fully(self, offset: int) -> None:
        """Start anew at `offset`: the leader's log begins past ours."""
        while self.segments:
            self._drop_last_segment()
        self.log_start_offset = self.log_end_offset = self.recovery_point = offset
        self._flushing_to = offset
        self.epochs = LeaderEpochCache()
        self.epochs.dirty = True
        self.producers.clear()
        self._roll(offset)

    def _drop_last_segment(self) -> None:
        self._delete(self.segments.pop())

    def _delete(self, segment: Segment) -> None:
        for path in segment.paths:
            self.dirty.pop(path, None)
        segment.delete()

    def _restore_producers(self, at_most: int) -> None:
        """From the newest snapshot, and the batches behind it."""
        self.producers.clear()
        snapshot = restore_latest(self.fs, self.folder, self.producers, at_most)
        for segment in self.segments:
            if segment.base_offset < snapshot:
                self.producers.aborted += read_entries(self.fs, segment.transactions_path)
            else:
                segment.forget_transactions()
                self.dirty.pop(segment.transactions_path, None)
        for header in self.headers(max(snapshot, self.log_start_offset)):
            self._remember_producer(header)

    def advance_log_start(self, offset: int) -> None:
        """DeleteRecords and retention: whole segments below go, the rest is hidden (KIP-107)."""
        self.log_start_offset = max(self.log_start_offset, min(offset, self.log_end_offset))
        while len(self.segments) > 1 and self.segments[1].base_offset <= self.log_start_offset:
            self._delete(self.segments.pop(0))
        self.epochs.truncate_from_start(self.log_start_offset)
        self.producers.forget_aborted_below(self.log_start_offset)
