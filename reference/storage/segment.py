"""One segment: `<base offset, 20 digits>.log` with its two indexes."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from reference.storage.filesystem import FileSystem
from reference.storage.indexes import OffsetIndex, TimeIndex
from reference.wire.errors import WireError
from reference.wire.records import BatchHeader, crc_valid, read_batch_header

HEADER_BYTES = 61
SCAN_BYTES = 16 * 1024
RECENT_BATCHES = 512


class Segment:
    """Batches from `base_offset` on. `size` is the valid length of the file in bytes."""

    __slots__ = (
        "_interval_bytes",
        "_recent_offsets",
        "_recent_positions",
        "_since_entry",
        "base_offset",
        "fs",
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
        self.largest_timestamp = -1
        self._interval_bytes = index_interval_bytes
        self._since_entry = 0
        self._recent_offsets: list[int] = []
        self._recent_positions: list[int] = []

    def append(self, data: bytes, header: BatchHeader) -> None:
        """Append one or more whole batches, of which `header` is the first, and index that."""
        self._index(header, self.size)
        self.fs.append(self.path, data)
        self._since_entry += len(data)
        self.size += len(data)

    def _index(self, header: BatchHeader, position: int) -> None:
        self._recent_offsets.append(header.base_offset)
        self._recent_positions.append(position)
        if len(self._recent_offsets) > 2 * RECENT_BATCHES:
            del self._recent_offsets[:RECENT_BATCHES], self._recent_positions[:RECENT_BATCHES]
        self.largest_timestamp = max(self.largest_timestamp, header.max_timestamp)
        if self._since_entry > self._interval_bytes:
            self.offsets.add(header.base_offset, position)
            self.times.add(self.largest_timestamp, header.base_offset)
            self._since_entry = 0

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Walk batch headers from a batch boundary; stops where the file has no whole batch left."""
        window, start = b"", position
        while position + HEADER_BYTES <= self.size:
            if position + HEADER_BYTES > start + len(window) or position < start:
                start, window = position, self.fs.read(self.path, position, SCAN_BYTES)
                if len(window) < HEADER_BYTES:
                    return
            header = read_batch_header(window, position - start)
            if header.batch_length < HEADER_BYTES - 12 or position + header.size > self.size:
                return
            yield position, header
            position += header.size

    def floor(self, offset: int) -> int:
        """Position of a batch at or before `offset`; exact near the end of the log, where most readers are."""
        if self._recent_offsets and offset >= self._recent_offsets[0]:
            return self._recent_positions[bisect_right(self._recent_offsets, offset) - 1]
        return self.offsets.floor(offset)

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The first batch that ends at or past `offset`."""
        for position, header in self.headers(self.floor(offset)):
            if header.last_offset >= offset:
                return position, header
        return None

    def read(self, position: int, size: int) -> bytes:
        return self.fs.read(self.path, position, min(size, self.size - position))

    def truncate_to(self, position: int) -> None:
        self.fs.truncate(self.path, position)
        self.size = position
        self.offsets.truncate(position)
        keep = bisect_left(self._recent_positions, position)
        del self._recent_offsets[keep:], self._recent_positions[keep:]
        self._since_entry = 0

    def recover(self, *, check_crc: bool) -> Iterator[BatchHeader]:
        """Rebuild the indexes, yielding every good batch; the file is cut at the first bad one."""
        self.size = self.fs.size(self.path)
        self.offsets.reset()
        self.times.reset()
        self.largest_timestamp, self._since_entry = -1, 0
        self._recent_offsets.clear()
        self._recent_positions.clear()
        position, next_offset = 0, self.base_offset
        while position + HEADER_BYTES <= self.size:
            header = self._checked(position, next_offset, check_crc=check_crc)
            if header is None:
                break
            self._index(header, position)
            self._since_entry += header.size
            position += header.size
            next_offset = header.next_offset
            yield header
        if position < self.size:
            self.truncate_to(position)

    def _checked(self, position: int, next_offset: int, *, check_crc: bool) -> BatchHeader | None:
        try:
            header = read_batch_header(self.fs.read(self.path, position, HEADER_BYTES))
        except WireError:
            return None
        fits = header.batch_length >= HEADER_BYTES - 12 and position + header.size <= self.size
        if not fits or header.magic != 2 or header.base_offset < next_offset or header.last_offset_delta < 0:
            return None
        if check_crc and not crc_valid(self.fs.read(self.path, position, header.size), 0, header):
            return None
        return header

    def forget_transactions(self) -> None:
        if self.fs.exists(self.transactions_path):
            self.fs.delete(self.transactions_path)

    def delete(self) -> None:
        stem = self.path.removesuffix(".log")
        for path in (self.path, f"{stem}.index", f"{stem}.timeindex", self.transactions_path):
            if self.fs.exists(path):
                self.fs.delete(path)
