"""The log of one replica: segments, leader epochs and producer state of one topic partition.

Appended bytes are in the page cache; `recovery_point` is the offset below which they were flushed.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from reference.storage.filesystem import FileSystem
from reference.storage.leader_epochs import LeaderEpochCache
from reference.storage.producer_state import ProducerStates
from reference.storage.segment import Segment
from reference.storage.transaction_index import add_entry
from reference.wire.records import BatchHeader, batch_headers, crc_valid, stamp


class OffsetOutOfRangeError(Exception):
    """The offset is below the log start or above the log end."""


class CorruptBatchError(Exception):
    """A fetched batch fails its CRC or does not follow the log end; nothing of it was appended."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    segment_bytes: int = 1 << 30
    index_interval_bytes: int = 4096


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
        self.dirty: dict[str, None] = {}  # files written since the last flush, in order
        self._load(recovery_point, clean=clean)
        self.recovery_point = min(recovery_point, self.log_end_offset)

    # -- opening ---------------------------------------------------------------------------------

    def _load(self, recovery_point: int, *, clean: bool) -> None:
        """Walk all segments; after an unclean stop, CRCs are checked from the recovery point on."""
        bases = sorted(int(name.removesuffix(".log")) for name in self.fs.names(self.folder) if name.endswith(".log"))
        cut = False
        for slot, base in enumerate(bases):
            segment = Segment(self.fs, self.folder, base, self.config.index_interval_bytes)
            if cut:  # what follows a cut is not a continuation of the log
                segment.delete()
                continue
            self.segments.append(segment)
            segment.forget_transactions()
            size_before = segment.size
            last = slot + 1 == len(bases) or bases[slot + 1] > recovery_point
            for header in segment.recover(check_crc=not clean and last):
                self._note(header)
            cut = segment.size < size_before
        if not self.segments:
            self._roll(self.log_end_offset)
        self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        self.log_end_offset = max(self.log_end_offset, self.log_start_offset)

    def _note(self, header: BatchHeader) -> None:
        if header.partition_leader_epoch >= 0:
            self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        self._remember_producer(header)
        self.log_end_offset = header.next_offset

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

    def _roll(self, base_offset: int) -> None:
        self.segments.append(Segment(self.fs, self.folder, base_offset, self.config.index_interval_bytes))
        self.fs.append(self.segments[-1].path, b"")

    # -- appending -------------------------------------------------------------------------------

    def append_as_leader(self, batch: bytes, header: BatchHeader, leader_epoch: int) -> int:
        """Give one batch the next offsets and the leader epoch; returns its base offset."""
        stamped = bytearray(batch)
        stamp(stamped, 0, self.log_end_offset, leader_epoch)
        ((_, placed),) = batch_headers(stamped)
        self._append(bytes(stamped), placed)
        return placed.base_offset

    def append_as_follower(self, data: bytes) -> int:
        """Append the whole batches of a fetch reply as they are; a batch that was cut is left out.

        Returns the number of records. Batches at or below the log end are skipped, so a repeated
        reply does no harm; CorruptBatchError for a bad CRC or a hole.
        """
        count = 0
        for position, header in batch_headers(data):
            if header.last_offset < self.log_end_offset:
                continue
            if not crc_valid(data, position, header) or header.base_offset < self.log_end_offset:
                raise CorruptBatchError(f"{self.folder}: bad batch at offset {header.base_offset}")
            self._append(data[position : position + header.size], header)
            count += header.last_offset_delta + 1
        return count

    def _append(self, batch: bytes, header: BatchHeader) -> None:
        active = self.segments[-1]
        if active.size and active.size + len(batch) > self.config.segment_bytes:
            self._roll(header.base_offset)
            active = self.segments[-1]
        active.append(batch, header)
        self.dirty[active.path] = None
        self._note(header)

    def flushed(self, end_offset: int) -> None:
        """What was written was fsynced when the log end was `end_offset`."""
        self.recovery_point = max(self.recovery_point, min(end_offset, self.log_end_offset))

    # -- reading ---------------------------------------------------------------------------------

    def _segment_of(self, offset: int) -> int:
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
            self.log_end_offset = found[1].base_offset
        else:
            self.log_end_offset = max(offset, self.segments[0].base_offset)
        self.recovery_point = min(self.recovery_point, self.log_end_offset)
        self.epochs.truncate_from_end(self.log_end_offset)
        self._rebuild_producers()
        return True

    def truncate_fully(self, offset: int) -> None:
        """Start anew at `offset`: the leader's log begins past ours."""
        while self.segments:
            self._drop_last_segment()
        self.log_start_offset = self.log_end_offset = self.recovery_point = offset
        self.epochs = LeaderEpochCache()
        self.producers.clear()
        self._roll(offset)

    def _drop_last_segment(self) -> None:
        segment = self.segments.pop()
        self.dirty.pop(segment.path, None)
        self.dirty.pop(segment.transactions_path, None)
        segment.delete()

    def _rebuild_producers(self) -> None:
        self.producers.clear()
        for segment in self.segments:
            segment.forget_transactions()
            self.dirty.pop(segment.transactions_path, None)
        for header in self.headers(self.log_start_offset):
            self._remember_producer(header)

    def advance_log_start(self, offset: int) -> None:
        """DeleteRecords and retention: whole segments below go, the rest is hidden (KIP-107)."""
        self.log_start_offset = max(self.log_start_offset, min(offset, self.log_end_offset))
        while len(self.segments) > 1 and self.segments[1].base_offset <= self.log_start_offset:
            segment = self.segments.pop(0)
            self.dirty.pop(segment.path, None)
            segment.delete()
        self.epochs.truncate_from_start(self.log_start_offset)
        self.producers.forget_aborted_below(self.log_start_offset)
