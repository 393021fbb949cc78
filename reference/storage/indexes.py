"""Sparse indexes of a segment: last offset of a batch -> its position, and timestamp -> offset.

Both are hints: a lookup returns a position at or before the result, from which the reader scans batches. An index that
disagrees with its log is rebuilt. The file formats are Apache Kafka's, big-endian: (relative offset, position) and
(largest timestamp so far, relative offset of the batch with that timestamp).
"""

import struct
from bisect import bisect_right
from itertools import pairwise

from highwater.reference.storage.filesystem import FileSystem

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
Pairs = list[tuple[int, int]]


def read_entries(fs: FileSystem, path: str, entry: struct.Struct) -> Pairs | None:
    """Return the entries of an index file without the zeros that Kafka preallocates at its end.

    None if the file is missing, is not an index, or is not in ascending order.
    """
    if not fs.exists(path):
        return None
    data = fs.read(path, 0, fs.size(path))
    if len(data) % entry.size:
        return None
    found = [(first, second) for first, second in entry.iter_unpack(data)]
    while found and found[-1] == (0, 0):
        found.pop()
    ascends = all(left[0] < right[0] and left[1] <= right[1] for left, right in pairwise(found))
    return found if ascends and all(first >= 0 <= second for first, second in found) else None


class OffsetIndex:
    """Entries (last offset of a batch, its position), ascending, about one per `index_interval_bytes`."""

    __slots__ = ("_base", "_fs", "_offsets", "_positions", "path")

    def __init__(self, fs: FileSystem, path: str, base_offset: int) -> None:
        self._fs, self.path, self._base = fs, path, base_offset
        self._offsets: list[int] = []
        self._positions: list[int] = []

    def __len__(self) -> int:
        return len(self._offsets)

    def load(self) -> bool:
        """Take what the file holds; False when it is missing or no index."""
        found = read_entries(self._fs, self.path, OFFSET_ENTRY)
        if found is None:
            return False
        self._offsets = [self._base + relative for relative, _ in found]
        self._positions = [position for _, position in found]
        self._fs.truncate(self.path, len(found) * OFFSET_ENTRY.size)
        return True

    def add(self, offset: int, position: int) -> None:
        self._offsets.append(offset)
        self._positions.append(position)
        self._fs.append(self.path, OFFSET_ENTRY.pack(offset - self._base, position))

    def floor(self, offset: int) -> tuple[int, int]:
        """Return (last offset, position) of the last indexed batch that ends at or below `offset`; (-1, 0) if none."""
        slot = bisect_right(self._offsets, offset)
        return (self._offsets[slot - 1], self._positions[slot - 1]) if slot else (-1, 0)

    def truncate(self, position: int) -> None:
        """Remove the entries at or past a log position."""
        keep = bisect_right(self._positions, position - 1)
        if keep < len(self._positions):
            del self._offsets[keep:], self._positions[keep:]
            self._fs.truncate(self.path, keep * OFFSET_ENTRY.size)

    def reset(self) -> None:
        """Remove all entries, in memory and on disk, before recovery adds them again."""
        self._offsets, self._positions = [], []
        self._fs.write(self.path, b"")


class TimeIndex:
    """Entries (largest timestamp so far, last offset of the batch with that timestamp), ascending in both."""

    __slots__ = ("_base", "_fs", "_offsets", "_timestamps", "path")

    def __init__(self, fs: FileSystem, path: str, base_offset: int) -> None:
        self._fs, self.path, self._base = fs, path, base_offset
        self._timestamps: list[int] = []
        self._offsets: list[int] = []

    def load(self) -> bool:
        """Take what the file holds; False when it is missing or no index."""
        found = read_entries(self._fs, self.path, TIME_ENTRY)
        if found is None:
            return False
        self._timestamps = [timestamp for timestamp, _ in found]
        self._offsets = [self._base + relative for _, relative in found]
        self._fs.truncate(self.path, len(found) * TIME_ENTRY.size)
        return True

    @property
    def timestamps(self) -> tuple[int, ...]:
        """Return the timestamps of the entries in ms, ascending."""
        return tuple(self._timestamps)

    @property
    def last(self) -> tuple[int, int]:
        """Return (largest timestamp in ms, its offset) of the last entry; (-1, base offset) if there is none."""
        return (self._timestamps[-1], self._offsets[-1]) if self._timestamps else (-1, self._base)

    def add(self, timestamp: int, offset: int) -> None:
        if timestamp <= self.last[0] or offset < self.last[1]:
            return
        self._timestamps.append(timestamp)
        self._offsets.append(offset)
        self._fs.append(self.path, TIME_ENTRY.pack(timestamp, offset - self._base))

    def floor(self, timestamp: int) -> tuple[int, int]:
        """Return the last entry before a timestamp: all records up to its offset are older; (-1, base offset) if none.

        The first record with this timestamp or a later one is at or after the offset.
        """
        slot = bisect_right(self._timestamps, timestamp - 1)
        return (self._timestamps[slot - 1], self._offsets[slot - 1]) if slot else (-1, self._base)

    def truncate(self, offset: int) -> None:
        keep = bisect_right(self._offsets, offset - 1)
        if keep < len(self._offsets):
            del self._offsets[keep:], self._timestamps[keep:]
            self._fs.truncate(self.path, keep * TIME_ENTRY.size)

    def reset(self) -> None:
        self._timestamps, self._offsets = [], []
        self._fs.write(self.path, b"")
