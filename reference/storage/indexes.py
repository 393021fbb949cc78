"""Sparse indexes of a segment: offset -> position and timestamp -> offset.

Both are hints: a look-up gives a place at or before the answer, from which batches are scanned.
They are rebuilt from the log at every start, so one that disagrees with its log does no harm.
File formats as Apache Kafka's: big-endian (relative offset, position) and (timestamp, relative offset).
"""

import struct
from bisect import bisect_right

from reference.storage.filesystem import FileSystem

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")


class OffsetIndex:
    """Entries (offset, position), ascending in both; one about every `index_interval_bytes`."""

    __slots__ = ("_base", "_fs", "_offsets", "_path", "_positions")

    def __init__(self, fs: FileSystem, path: str, base_offset: int) -> None:
        self._fs, self._path, self._base = fs, path, base_offset
        self._offsets: list[int] = []
        self._positions: list[int] = []

    def add(self, offset: int, position: int) -> None:
        self._offsets.append(offset)
        self._positions.append(position)
        self._fs.append(self._path, OFFSET_ENTRY.pack(offset - self._base, position))

    def floor(self, offset: int) -> int:
        """Position of the last entry at or below `offset`; 0 when there is none."""
        slot = bisect_right(self._offsets, offset)
        return self._positions[slot - 1] if slot else 0

    def truncate(self, position: int) -> None:
        """Forget entries at or past a log position."""
        keep = bisect_right(self._positions, position - 1)
        if keep < len(self._positions):
            del self._offsets[keep:], self._positions[keep:]
            self._fs.truncate(self._path, keep * OFFSET_ENTRY.size)

    def reset(self) -> None:
        """Forget all, in memory and on disk; recovery then adds the entries anew."""
        self._offsets, self._positions = [], []
        self._fs.write(self._path, b"")


class TimeIndex:
    """Entries (largest timestamp so far, offset that carries it); ascending in both."""

    __slots__ = ("_base", "_fs", "_offsets", "_path", "_timestamps")

    def __init__(self, fs: FileSystem, path: str, base_offset: int) -> None:
        self._fs, self._path, self._base = fs, path, base_offset
        self._timestamps: list[int] = []
        self._offsets: list[int] = []

    def add(self, timestamp: int, offset: int) -> None:
        if self._timestamps and timestamp <= self._timestamps[-1]:
            return
        self._timestamps.append(timestamp)
        self._offsets.append(offset)
        self._fs.append(self._path, TIME_ENTRY.pack(timestamp, offset - self._base))

    def floor(self, timestamp: int) -> int:
        """An offset at or before the first record with this timestamp or a later one."""
        slot = bisect_right(self._timestamps, timestamp - 1)
        return self._offsets[slot - 1] if slot else self._base

    def truncate(self, offset: int) -> None:
        keep = bisect_right(self._offsets, offset - 1)
        if keep < len(self._offsets):
            del self._offsets[keep:], self._timestamps[keep:]
            self._fs.truncate(self._path, keep * TIME_ENTRY.size)

    def reset(self) -> None:
        self._timestamps, self._offsets = [], []
        self._fs.write(self._path, b"")
