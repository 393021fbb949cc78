"""The log of one replica: segments, leader epochs and producer state of one topic partition (UnifiedLog).

Appended bytes are in the page cache; all records below `recovery_point` have been flushed.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Final
from zlib import crc32

from highwater.reference.storage.corruption import DamagedDataError
from highwater.reference.storage.filesystem import FileSystem
from highwater.reference.storage.leader_epochs import CHECKPOINT, LeaderEpochCache, format_epochs
from highwater.reference.storage.producer_state import (
    ProducerStates,
    delete_snapshots_above,
    newest_snapshot,
    read_marker,
    restore_latest,
    snapshot_path,
)
from highwater.reference.storage.recovery import (
    gap_error,
    load_segment,
    read_epochs,
    recover_segment,
    recover_swaps,
    segment_bases,
)
from highwater.reference.storage.segment import Segment
from highwater.reference.storage.transaction_index import (
    AbortedTransaction,
    add_entry,
    encode_entry,
    read_entries,
)
from highwater.reference.wire.errors import DecodeError
from highwater.reference.wire.log_entries import decode_entry, entries, entry_crc_valid
from highwater.reference.wire.records import BatchHeader, Record, read_batch_header, stamp

INT64_MAX: Final = (1 << 63) - 1


class OffsetOutOfRangeError(Exception):
    """The offset is below the log start or above the log end."""


class CorruptBatchError(Exception):
    """A fetched batch fails its CRC check or does not follow the log end; the batch was not appended."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one log, named like the topic configs. Sizes in bytes, times in milliseconds; -1 is no limit."""

    segment_bytes: int = 1 << 30
    index_interval_bytes: int = 4096
    segment_ms: int = -1
    segment_index_bytes: int = 10 * 1024 * 1024
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    retention_ms: int = -1
    retention_bytes: int = -1
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    min_cleanable_dirty_ratio: float = 0.5
    segment_jitter_ms: int = 0
    flush_messages: int = INT64_MAX
    message_downconversion_enable: bool = True

    def jitter_ms(self, segment: str) -> int:
        """Return by how much earlier than `segment_ms` a segment closes: from 0 to below `segment_jitter_ms`.

        The jitter keeps segments that were started together from closing together (LogConfig.randomSegmentJitter in
        Apache Kafka). It is a hash of the path, so that a run can be repeated.
        """
        return crc32(segment.encode()) % max(min(self.segment_jitter_ms, self.segment_ms), 1)

    @property
    def max_segment_ms(self) -> int:
        """The age at which a segment closes, without jitter: compaction cannot clean an active segment (KIP-354)."""
        compact = "compact" in self.cleanup_policy
        return min(self.max_compaction_lag_ms, self.segment_ms) if compact else self.segment_ms


class Log:
    """One replica's log. Compaction leaves gaps between offsets, so the next offset is read from batch headers."""

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
        self.warnings: list[str] = []  # damage found and repaired while opening the log
        self.dirty: dict[str, None] = {}  # files written since the last flush, in order
        self._replaced: dict[str, None] = {}  # files whose replacements, named *.tmp, await a flush
        self.unflushed_messages = 0
        self.cleaned_until = 0  # the log is compacted below this offset, the base of a segment
        self._flush_end = 0  # log end when the current flush began, or the offset of a later truncation
        self._load(recovery_point, clean=clean)
        if recovery_point > self.log_end_offset and not clean:
            # The checkpoint is older than a truncation, or data was lost: check the whole log.
            self.segments, self.log_end_offset = [], log_start_offset
            self._load(0, clean=False)
        self.recovery_point = min(recovery_point, self.log_end_offset)

    # -- opening ---------------------------------------------------------------------------------

    def _load(self, recovery_point: int, *, clean: bool) -> None:
        """Open all segments: trust those below the recovery point, scan the rest (and check CRCs unless `clean`)."""
        recover_swaps(self.fs, self.folder)
        bases = segment_bases(self.fs, self.folder)
        if clean:
            recovery_point = max(recovery_point, bases[-1] if bases else 0)
        first = max(bisect_right(bases, recovery_point) - 1, 0)
        end = 0  # of the segments so far; not known after a clean stop, which needs no check
        for base in bases[:first]:
            if base < end:
                self._drop_returned(base, end)
                continue
            self.segments.append(self._segment(base))
            load_segment(self.segments[-1], self.warnings.append)
            end = 0 if clean else self.segments[-1].end_offset()
        self._restore(bases[first] if bases else self.log_start_offset)
        for slot, base in enumerate(bases[first:], first):
            if base < end:
                self._drop_returned(base, end)
                continue
            # Compaction leaves gaps only between flushed segments; a gap past the recovery point is from a crash.
            if slot > first and base > max(self.log_end_offset, recovery_point):
                self._drop_unwritten(bases[slot:], recovery_point)
                break
            self.segments.append(self._segment(base))
            self.segments[-1].delete_transaction_index()
            if not clean:  # the data may be only in the page cache of the crashed process: flush it again
                self.dirty[self.segments[-1].path] = None
            if recover_segment(
                self.segments[-1],
                recovery_point,
                check_crc=not clean,
                note=self._track_batch,
                warn=self.warnings.append,
            ):
                self._drop_unwritten(bases[slot + 1 :], recovery_point)
                break
            if slot + 1 < len(bases):
                self.segments[-1].close()
            end = 0 if clean else self.log_end_offset
        if not self.segments:
            self._roll(self.log_end_offset)
        self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        self.log_end_offset = max(self.log_end_offset, self.log_start_offset, self.segments[-1].base_offset)
        self.epochs.truncate_from_end(self.log_end_offset)
        # A crash between the checkpoint of the log start and that of the epochs leaves older epochs (UnifiedLog).
        self.epochs.truncate_from_start(self.log_start_offset)
        self.producers.advance_log_start(self.log_start_offset)
        delete_snapshots_above(self.fs, self.folder, self.log_end_offset)

    def _segment(self, base_offset: int) -> Segment:
        return Segment(self.fs, self.folder, base_offset, self.config.index_interval_bytes)

    def _restore(self, base_offset: int) -> None:
        """Restore leader epochs and producer states as of `base_offset`, where the scan of the batches begins."""
        epochs = read_epochs(self.fs, self.folder, self.warnings.append)
        if epochs is None:
            for header in self.headers(self.log_start_offset):
                self._track_epoch(header)
        else:
            self.epochs = epochs
            self.epochs.truncate_from_end(base_offset)
        self._restore_producers(base_offset)

    def _drop_returned(self, base: int, end: int) -> None:
        """Delete a segment inside the previous one: an old one whose deletion the disk has undone."""
        segment = self._segment(base)
        self.warnings.append(f"{segment.path}: deleted, because the segment before it ends at offset {end}")
        segment.delete()

    def _drop_unwritten(self, bases: list[int], recovery_point: int) -> None:
        """Delete the segments after a truncated one. Raises CorruptLogError if one of them was flushed."""
        for base in bases:
            segment = self._segment(base)
            if segment.size and base < recovery_point:
                raise gap_error(self.segments[-1], self.log_end_offset)
            segment.delete()

    def _track_batch(self, header: BatchHeader) -> None:
        self._track_epoch(header)
        self._track_producer(header)
        self.log_end_offset = header.next_offset

    def _track_epoch(self, header: BatchHeader) -> None:
        if header.partition_leader_epoch >= 0:
            self.epochs.assign(header.partition_leader_epoch, header.base_offset)

    def _track_producer(self, header: BatchHeader) -> None:
        aborted = self.producers.update(header)
        if aborted is not None:
            path = self.segments[self._segment_of(header.base_offset)].transactions_path
            add_entry(self.fs, path, aborted)
            self.dirty[path] = None

    def _bytes_of(self, header: BatchHeader) -> bytes:
        """Return a complete batch of this log."""
        segment = self.segments[self._segment_of(header.base_offset)]
        found = segment.locate(header.base_offset)
        assert found is not None, header
        return segment.read(found[0], header.size)

    # -- rolling ---------------------------------------------------------------------------------

    def _roll(self, base_offset: int) -> None:
        """Start a new segment, and write a producer snapshot for its base offset."""
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
        """Close the active segment unless it is empty, so that it can be deleted or compacted."""
        if self.segments[-1].size:
            self._roll(self.log_end_offset)

    def _must_roll(self, header: BatchHeader) -> bool:
        """Return whether size, index size or time require a new segment.

        Time is measured by record timestamps, so a jump of the broker's clock does not roll segments.
        """
        active, config = self.segments[-1], self.config
        if not active.fits(header, config.segment_bytes, config.segment_index_bytes):
            return True
        if config.segment_ms < 0 or not active.size:
            return False
        first = active.first_timestamp
        limit_ms = config.max_segment_ms - config.jitter_ms(active.path)
        return first >= 0 and header.max_timestamp - first > limit_ms

    # -- appending -------------------------------------------------------------------------------

    def append_as_leader(self, batch: bytes, header: BatchHeader, leader_epoch: int) -> int:
        """Assign the next offsets and the leader epoch to one batch and append it; return its base offset."""
        stamped = bytearray(batch)
        stamp(stamped, 0, self.log_end_offset, leader_epoch)
        stamped_header = read_batch_header(stamped)
        self._append(bytes(stamped), stamped_header)
        return stamped_header.base_offset

    def append_as_follower(self, data: bytes) -> int:
        """Append the complete batches of a fetch response unchanged; return the number of records.

        A truncated last batch is ignored. Batches below the log end are skipped, so a repeated response is harmless.
        The leader's log start may be in the middle of a batch: then an empty log restarts at the batch's base offset
        and keeps its log start, as in Partition.appendRecordsToFollowerOrFutureReplica.
        Raises CorruptBatchError for a wrong CRC or an overlap with the log.
        """
        count = 0
        for position, header in entries(data):
            if header.last_offset < self.log_end_offset:
                continue
            overlaps, is_empty = header.base_offset < self.log_end_offset, self.log_start_offset == self.log_end_offset
            if not entry_crc_valid(data, position, header) or (overlaps and not is_empty):
                raise CorruptBatchError(f"{self.folder}: bad batch at offset {header.base_offset}")
            if overlaps:
                self.truncate_fully(header.base_offset, self.log_start_offset)
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
        self._track_batch(header)

    # -- flushing --------------------------------------------------------------------------------

    def begin_flush(self) -> tuple[str, ...]:
        """Return the files to fsync; empty if nothing was written since the last flush. One flush at a time."""
        if self.epochs.dirty:
            self._replace_when_flushed(f"{self.folder}/{CHECKPOINT}", format_epochs(self.epochs.entries))
            self.epochs.dirty = False
        paths = tuple(self.dirty)
        self.dirty.clear()
        self.unflushed_messages, self._flush_end = 0, self.log_end_offset
        return paths

    def _replace_when_flushed(self, path: str, content: bytes) -> None:
        self.fs.write(f"{path}.tmp", content)
        self.dirty[f"{path}.tmp"] = self._replaced[path] = None

    def complete_flush(self) -> None:
        """Advance the recovery point: the files returned by `begin_flush` are durable now."""
        for path in list(self._replaced):
            if f"{path}.tmp" not in self.dirty:  # else it was written again since the flush began
                self.fs.rename(f"{path}.tmp", path)
                del self._replaced[path]
        self.recovery_point = max(self.recovery_point, min(self._flush_end, self.log_end_offset))

    def close(self) -> None:
        """Prepare a clean shutdown: write the leader epochs; the driver fsyncs all files afterwards."""
        self.begin_flush()
        self.complete_flush()
        self.recovery_point = self.log_end_offset

    # -- reading ---------------------------------------------------------------------------------

    def _segment_of(self, offset: int) -> int:
        if self.segments and offset >= self.segments[-1].base_offset:  # where most readers are
            return len(self.segments) - 1
        return max(bisect_right(self.segments, offset, key=lambda segment: segment.base_offset) - 1, 0)

    def read(self, offset: int, max_bytes: int, until: int, *, at_least_one: bool) -> bytes:
        """Return at most `max_bytes` of batches, from the batch with `offset` up to offset `until` (exclusive).

        With `at_least_one` the first batch is complete even if it is larger (KIP-74); the last one may be truncated.
        Raises OffsetOutOfRangeError.
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

    def on_older_segment(self, offset: int, end: int) -> bool:
        """Return whether the segment of an offset is older than that of `end`."""
        return self._segment_of(offset) < self._segment_of(end)

    def _end_position(self, segment: Segment, until: int) -> int:
        """Return the position in a segment of the first batch at or past offset `until`."""
        if until >= self.log_end_offset:
            return segment.size
        found = segment.locate(until)
        return found[0] if found else segment.size

    def decode(self, data: bytes, position: int = 0) -> tuple[BatchHeader, list[Record]]:
        """Decode header and records of an entry that was read from this log. Raises DamagedDataError."""
        try:
            return decode_entry(data, position)
        except DecodeError as error:
            raise self.damaged(int.from_bytes(data[position : position + 8], "big"), error) from error

    def damaged(self, offset: int, reason: DecodeError) -> DamagedDataError:
        """Return the error for a record at an offset that cannot be decoded, with its place."""
        segment = self.segments[self._segment_of(offset)]
        return DamagedDataError(segment.path, segment.floor(offset), reason, offset)

    def headers(self, offset: int) -> Iterator[BatchHeader]:
        """Yield all batch headers, starting with the batch that contains `offset`."""
        for segment in self.segments[self._segment_of(offset) :]:
            start = segment.floor(offset) if offset > segment.base_offset else 0
            for _, header in segment.headers(start):
                if header.last_offset >= offset:
                    yield header

    def batches_from_timestamp(self, timestamp: int) -> Iterator[bytes]:
        """Yield complete batches in offset order whose largest timestamp is `timestamp` or later."""
        for segment in self.segments:
            start = segment.floor_of_time(timestamp)
            for position, header in segment.headers(start):
                if header.max_timestamp >= timestamp and header.last_offset >= self.log_start_offset:
                    yield segment.read(position, header.size)

    def batches_with_largest_timestamp(self) -> Iterator[bytes]:
        """Yield the first batch with the largest timestamp; all that have a time, if records of it are deleted."""
        segment = max(self.segments, key=lambda each: each.largest_timestamp)
        found = segment.locate(segment.largest_at) if segment.largest_timestamp >= 0 else None
        if found is not None and found[1].base_offset >= self.log_start_offset:
            yield segment.read(found[0], found[1].size)
        elif found is not None:
            yield from self.batches_from_timestamp(0)

    # -- compacting ------------------------------------------------------------------------------

    def replace(self, segment: Segment, path: str) -> None:
        """Replace a closed segment by its cleaned copy at `path`; delete it if empty, unless it is the first."""
        self.fs.rename(path, segment.path)
        for _ in segment.rebuild(check_crc=False):
            pass
        segment.close()
        if not segment.size and segment is not self.segments[0]:
            self.segments.remove(segment)
            self._delete(segment)

    # -- truncating ------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Remove every batch with records at or past `offset`; return whether anything was removed."""
        if offset >= self.log_end_offset:
            # Remove an epoch that this replica led without writing: it may start here (KAFKA-10706).
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
        if self.log_end_offset < self.cleaned_until:  # what is appended to this segment next is not compacted
            self.cleaned_until = self.segments[-1].base_offset
        self._flush_end = min(self._flush_end, self.log_end_offset)
        self.epochs.truncate_from_end(self.log_end_offset)
        delete_snapshots_above(self.fs, self.folder, self.log_end_offset)
        self._restore_producers(self.log_end_offset)
        return True

    def truncate_fully(self, offset: int, log_start_offset: int = -1) -> None:
        """Delete all segments and restart the log at `offset`, because the leader's log starts past this log's end.

        `log_start_offset` is greater if the records from `offset` on have been deleted within a batch.
        """
        while self.segments:
            self._drop_last_segment()
        self.log_end_offset = self.recovery_point = self._flush_end = offset
        self.log_start_offset = max(offset, log_start_offset)
        self.cleaned_until = min(self.cleaned_until, offset)
        self.epochs = LeaderEpochCache()
        self.epochs.dirty = True
        self.producers.clear()
        self.producers.advance_log_start(self.log_start_offset)
        self._roll(offset)

    def _drop_last_segment(self) -> None:
        self._delete(self.segments.pop())

    def _delete(self, segment: Segment) -> None:
        for path in segment.paths:
            self.dirty.pop(path, None)
            self._replaced.pop(path, None)
        segment.delete()

    def _restore_producers(self, at_most: int) -> None:
        """Rebuild the producer states from the last but one snapshot up to `at_most` and the batches after it.

        A snapshot has only the last batch of a producer. With the newest one the first of five batches in flight could
        be unknown, and refused when the producer repeats it, although it is stored.
        """
        self.producers.clear()
        newest = newest_snapshot(self.fs, self.folder, at_most)
        snapshot = restore_latest(self.fs, self.folder, self.producers, newest - 1)
        aborted = self._indexed_aborts(snapshot)
        if aborted is None:
            self.warnings.append(f"{self.folder}: a transaction index disagreed with the log; all are rebuilt from it")
            self.producers.clear()
            snapshot = 0
        self.producers.aborted += aborted or []
        rebuilt: dict[int, list[AbortedTransaction]] = {}  # by number of the segment
        known = ProducerStates(self._bytes_of)
        restore_latest(self.fs, self.folder, known, at_most)
        for header in self.headers(max(snapshot, self.log_start_offset)):
            entry = self.producers.update(header)
            if entry is not None:
                rebuilt.setdefault(self._segment_of(header.base_offset), []).append(entry)
        for number, segment in enumerate(self.segments):
            if segment.base_offset >= snapshot:
                self._correct_index(segment, rebuilt.get(number, []))
        self.producers.add_missing(known)

    def _correct_index(self, segment: Segment, entries: list[AbortedTransaction]) -> None:
        """Give a segment the transaction index that its batches require.

        The next start trusts the index of a flushed segment if its entries are right, and cannot see that some are
        missing. So a wrong one of a closed segment stays until its replacement has been flushed.
        """
        path = segment.transactions_path
        self._replaced.pop(path, None)  # a truncation since: what was to replace it may be wrong, too
        if read_entries(self.fs, path) == entries:
            return
        content = b"".join(map(encode_entry, entries))
        if segment is self.segments[-1]:
            self.fs.write(path, content)
            self.dirty[path] = None
        else:
            self._replace_when_flushed(path, content)

    def _indexed_aborts(self, until: int) -> list[AbortedTransaction] | None:
        """Return the entries of the transaction indexes below a segment's base offset; None if one disagrees.

        An index has no checksum, so the log is read where its entries begin and end. A wrong entry would hide committed
        records, or show aborted ones.
        """
        found: list[AbortedTransaction] = []
        for segment in self.segments:
            if segment.base_offset < until:
                entries = read_entries(self.fs, segment.transactions_path)
                if entries is None or not all(map(self._has_abort, entries)):
                    return None
                found += entries
        return found

    def _has_abort(self, entry: AbortedTransaction) -> bool:
        """Return whether the log has the transaction of an entry, up to its abort marker."""
        marker = next(self.headers(entry.last_offset), None)
        if marker is None or (marker.producer_id, marker.last_offset) != (entry.producer_id, entry.last_offset):
            return False
        decoded = read_marker(self._bytes_of(marker)) if marker.is_control else None
        if decoded is None or decoded.committed:
            return False
        first = next(self.headers(entry.first_offset), marker)
        begins = (first.producer_id, first.base_offset) == (entry.producer_id, entry.first_offset)
        begins = begins and first.is_transactional and not first.is_control and not self._has_marker(entry)
        return entry.first_offset < self.log_start_offset or begins

    def _has_marker(self, entry: AbortedTransaction) -> bool:
        """Return whether another transaction of the producer ends between the first offset and the abort marker."""
        inside = takewhile(lambda header: header.base_offset < entry.last_offset, self.headers(entry.first_offset))
        return any(header.is_control and header.producer_id == entry.producer_id for header in inside)

    def advance_log_start(self, offset: int) -> None:
        """Advance the log start offset and delete the segments completely below it (KIP-107)."""
        self.log_start_offset = max(self.log_start_offset, min(offset, self.log_end_offset))
        while len(self.segments) > 1 and self.segments[1].base_offset <= self.log_start_offset:
            self._delete(self.segments.pop(0))
        self.epochs.truncate_from_start(self.log_start_offset)
        self.producers.advance_log_start(self.log_start_offset)


# --------------------------------------------------------------------------------------------------
# Retention: delete whole segments by age or by total size (kafka-0.7-design, "Deletes").
#
# The age comes from record timestamps, so file dates and broker restarts have no effect.


def retention_bound(log: Log, wall_ms: int, high_watermark: int) -> int:
    """Return the offset below which segments may be deleted, at most the high watermark; the log start if none may."""
    config = log.config
    excess = sum(segment.size for segment in log.segments) - config.retention_bytes
    ends = [*(segment.base_offset for segment in log.segments[1:]), log.log_end_offset]
    bound = log.log_start_offset
    for segment, end in zip(log.segments, ends, strict=True):
        too_old = 0 <= config.retention_ms < wall_ms - segment.largest_timestamp and segment.largest_timestamp >= 0
        too_much = config.retention_bytes >= 0 and excess >= segment.size
        if not segment.size and segment is not log.segments[-1]:
            continue  # compaction has emptied it; it is deleted with the next one
        if not segment.size or end > high_watermark or not (too_old or too_much):
            break
        excess -= segment.size
        bound = end
    return bound


def retain(log: Log, wall_ms: int, high_watermark: int) -> None:
    """Delete the expired segments. An expired active segment is rolled first, as in Apache Kafka."""
    bound = retention_bound(log, wall_ms, high_watermark)
    if bound > log.log_start_offset:
        if bound == log.log_end_offset:
            log.roll()
        log.advance_log_start(bound)
