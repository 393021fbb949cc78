"""One segment of a log: `<base offset, 20 digits>.log` with its offset index and time index (LogSegment)."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from highwater.reference.storage.corruption import DamagedDataError
from highwater.reference.storage.filesystem import FileSystem
from highwater.reference.storage.indexes import OFFSET_ENTRY, OffsetIndex, TimeIndex
from highwater.reference.wire.errors import DecodeError, WireError
from highwater.reference.wire.log_entries import MIN_ENTRY, entry_crc_valid, read_entry_header
from highwater.reference.wire.records import HEADER_SIZE, BatchHeader

SCAN_BYTES = 16 * 1024
RECENT_BATCHES = 512
MAX_RELATIVE_OFFSET = (1 << 31) - 1
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".txnindex.tmp", ".snapshot")


class Segment:
    """Batches from `base_offset` on. `size` is the valid length of the file in bytes."""

    __slots__ = (
        "_first_timestamp",
        "_interval_bytes",
        "_recent_offsets",
        "_recent_positions",
        "_since_entry",
        "base_offset",
        "fs",
        "largest_at",
        "largest_timestamp",
        "offsets",
        "path",
        "size",
        "times",
        "transactions_path",
    )

    def __init__(self, fs: FileSystem, folder: str, base_offset: int, index_interval_bytes: int) -> None:
        self.fs = fs
        self.base_offset = base_offset
        self.path = f"{folder}/{base_offset:020d}.log"
        stem = self.path.removesuffix(".log")
        self.offsets = OffsetIndex(fs, f"{stem}.index", base_offset)
        self.times = TimeIndex(fs, f"{stem}.timeindex", base_offset)
        self.transactions_path = f"{stem}.txnindex"
        self.size = fs.size(self.path) if fs.exists(self.path) else 0
        self._first_timestamp: int | None = None
        self.largest_timestamp = -1
        self.largest_at = base_offset
        self._interval_bytes = index_interval_bytes
        self._since_entry = 0
        self._recent_offsets: list[int] = []
        self._recent_positions: list[int] = []

    # -- appending -------------------------------------------------------------------------------

    def fits(self, header: BatchHeader, segment_bytes: int, index_bytes: int) -> bool:
        """Return whether a batch fits: by segment size, index size and the range of relative offsets."""
        return not self.size or (
            self.size + header.size <= segment_bytes
            and (len(self.offsets) + 1) * OFFSET_ENTRY.size <= index_bytes
            and header.last_offset - self.base_offset <= MAX_RELATIVE_OFFSET
        )

    def append(self, data: bytes, header: BatchHeader) -> None:
        """Append one complete batch. An OSError leaves the segment unchanged."""
        self.fs.append(self.path, data)
        self._index(header, self.size)
        self.size += len(data)

    def _index(self, header: BatchHeader, position: int) -> None:
        self._recent_offsets.append(header.base_offset)
        self._recent_positions.append(position)
        if len(self._recent_offsets) > 2 * RECENT_BATCHES:
            del self._recent_offsets[:RECENT_BATCHES], self._recent_positions[:RECENT_BATCHES]
        if not position:
            self._first_timestamp = header.max_timestamp
        self._track_timestamp(header)
        if self._since_entry > self._interval_bytes:
            self.offsets.add(header.last_offset, position)
            self.times.add(self.largest_timestamp, self.largest_at)
            self._since_entry = 0
        self._since_entry += header.size

    def _track_timestamp(self, header: BatchHeader) -> None:
        if header.max_timestamp > self.largest_timestamp:
            self.largest_timestamp, self.largest_at = header.max_timestamp, header.last_offset

    def close(self) -> None:
        """Add the largest timestamp to the time index, so that a restart does not need to search for it."""
        self.times.add(self.largest_timestamp, self.largest_at)

    # -- reading ---------------------------------------------------------------------------------

    @property
    def first_timestamp(self) -> int:
        """Return the timestamp of the first batch, from which a segment's age counts; -1 if it is empty or has none.

        A restart after a clean stop does not read the batches, so the first call after it reads this one.
        """
        if not self.size:
            return -1
        if self._first_timestamp is None:
            self._first_timestamp = next((header.max_timestamp for _, header in self.headers()), -1)
        return self._first_timestamp

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) from a batch boundary up to the last complete batch.

        Raises DamagedDataError where the bytes are no header.
        """
        window, start = b"", position
        while position + MIN_ENTRY <= self.size:
            if position + HEADER_SIZE > start + len(window) or position < start:
                start, window = position, self.fs.read(self.path, position, SCAN_BYTES)
                if len(window) < MIN_ENTRY:
                    return
            try:
                header = read_entry_header(window, position - start)
            except DecodeError as error:
                raise DamagedDataError(self.path, position, error) from error
            end = position + header.size
            if end > self.size:
                return
            yield position, header
            position = end

    def floor(self, offset: int) -> int:
        """Return the position of a batch at or before `offset`; exact near the log end, where most readers are."""
        if self._recent_offsets and offset >= self._recent_offsets[0]:
            return self._recent_positions[bisect_right(self._recent_offsets, offset) - 1]
        last_offset, position = self.offsets.floor(offset)
        if not position or self._has_batch_at(position, last_offset):
            return position
        self._rebuild_indexes()
        return self.offsets.floor(offset)[1]

    def floor_of_time(self, timestamp: int) -> int:
        """Return the position of a batch at or before the first one with this timestamp (ms) or a later one."""
        if not self._has_timestamp(*self.times.floor(timestamp)):
            self._rebuild_indexes()
        return self.floor(self.times.floor(timestamp)[1])

    def _rebuild_indexes(self) -> None:
        """Rebuild both indexes, because one of them disagrees with the log."""
        for _ in self.rebuild(check_crc=False):
            pass

    def _has_timestamp(self, timestamp: int, offset: int) -> bool:
        """Return whether the batch with this offset has this largest timestamp, as an entry of the time index says."""
        if timestamp < 0:
            return True
        found = self.locate(offset)
        return found is not None and found[1].base_offset <= offset and found[1].max_timestamp == timestamp

    def _has_batch_at(self, position: int, last_offset: int) -> bool:
        try:
            return read_entry_header(self.fs.read(self.path, position, HEADER_SIZE)).last_offset == last_offset
        except WireError:
            return False

    def end_offset(self) -> int:
        """Return the offset after the last record; the base offset of an empty segment."""
        end = self.base_offset
        for _, header in self.headers(self.floor(self.base_offset + MAX_RELATIVE_OFFSET)):
            end = header.next_offset
        return end

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Return (position, header) of the first batch that ends at or past `offset`, or None."""
        for position, header in self.headers(self.floor(offset)):
            if header.last_offset >= offset:
                return position, header
        return None

    def read(self, position: int, size: int) -> bytes:
        return self.fs.read(self.path, position, min(size, self.size - position))

    # -- truncating and recovering ---------------------------------------------------------------

    def truncate_to(self, position: int) -> None:
        found = next(self.headers(position), None)
        self.fs.truncate(self.path, position)
        self.size = position
        self._first_timestamp = None
        self.offsets.truncate(position)
        if found is not None:
            self.times.truncate(found[1].base_offset)
        keep = bisect_left(self._recent_positions, position)
        del self._recent_offsets[keep:], self._recent_positions[keep:]
        self._since_entry = 0
        self._find_largest_timestamp()

    def _find_largest_timestamp(self) -> int:
        """Find the largest timestamp from the time index and the batches after its last entry.

        Returns the position after the last batch.
        """
        self.largest_timestamp, self.largest_at = self.times.last
        end = self.offsets.floor(MAX_RELATIVE_OFFSET + self.base_offset)[1]
        for position, header in self.headers(end):
            self._track_timestamp(header)
            end = position + header.size
        return end

    def load(self) -> bool:
        """Load the indexes; return False if they, or the batches after their last entries, disagree with the log."""
        if not self.offsets.load() or not self.times.load():
            return False
        last_offset, position = self.offsets.floor(MAX_RELATIVE_OFFSET + self.base_offset)
        if position >= self.size if last_offset >= 0 else self.size > 2 * self._interval_bytes:
            return False
        if last_offset >= 0 and not self._has_batch_at(position, last_offset):
            return False
        try:
            return self._has_timestamp(*self.times.last) and self._find_largest_timestamp() == self.size
        except DamagedDataError:
            return False

    def rebuild(self, *, check_crc: bool) -> Iterator[BatchHeader]:
        """Rebuild the indexes and yield every valid batch header.

        `size` becomes the position of the first invalid batch; the file itself is not changed.
        """
        end = self.fs.size(self.path)
        self.offsets.reset()
        self.times.reset()
        self.largest_timestamp, self.largest_at, self._since_entry = -1, self.base_offset, 0
        self._first_timestamp = None
        self._recent_offsets.clear()
        self._recent_positions.clear()
        self.size, next_offset = 0, self.base_offset
        while self.size + MIN_ENTRY <= end:
            header = self.read_valid_header(self.size, next_offset, end, check_crc=check_crc)
            if header is None:
                return
            self._index(header, self.size)
            self.size += header.size
            next_offset = header.next_offset
            yield header

    def read_valid_header(self, position: int, next_offset: int, end: int, *, check_crc: bool) -> BatchHeader | None:
        """Return the header of the batch at a position, or None if it is incomplete, out of order, or fails its CRC."""
        try:
            header = read_entry_header(self.fs.read(self.path, position, HEADER_SIZE))
        except WireError:
            return None
        if position + header.size > end or header.base_offset < next_offset or header.last_offset_delta < 0:
            return None
        if header.last_offset - self.base_offset > MAX_RELATIVE_OFFSET:  # no CRC covers the base offset
            return None
        if check_crc and not entry_crc_valid(self.fs.read(self.path, position, header.size), 0, header):
            return None
        return header

    def delete_transaction_index(self) -> None:
        if self.fs.exists(self.transactions_path):
            self.fs.delete(self.transactions_path)

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths of all files that belong to this segment."""
        stem = self.path.removesuffix(".log")
        return tuple(stem + suffix for suffix in SUFFIXES)

    def delete(self) -> None:
        for path in self.paths:
            if self.fs.exists(path):
                self.fs.delete(path)
