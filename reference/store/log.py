"""The durable state of the metadata store: a log of writes, replaced by a snapshot when it grows.

`store.N.log` has the writes after transaction N, `store.N.snapshot` the tree at transaction N. The generation before
the last snapshot is kept until the next snapshot is complete: if the rename of the last one does not survive a crash,
the store recovers from the one before.
"""

import struct
from collections.abc import Callable, Iterator
from zlib import crc32

from highwater.reference.storage.filesystem import FileSystem

FRAME = struct.Struct(">II")  # length and CRC-32 of the body
PREFIX, LOG, SNAPSHOT, TEMPORARY = "store.", ".log", ".snapshot", ".tmp"


def frame(data: bytes) -> bytes:
    return FRAME.pack(len(data), crc32(data)) + data


def _frames(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the body and the end position of each complete frame, up to the first torn or corrupt one."""
    position = 0
    while position + FRAME.size <= len(data):
        length, crc = FRAME.unpack_from(data, position)
        body = data[position + FRAME.size : position + FRAME.size + length]
        if len(body) < length or crc32(body) != crc:
            return
        position += FRAME.size + length
        yield body, position


class StoreLog:
    def __init__(self, fs: FileSystem, snapshot_bytes: int) -> None:
        self._fs, self._snapshot_bytes = fs, snapshot_bytes
        self._number = 0
        self._size = 0
        self._writing: int | None = None  # the generation whose snapshot is being flushed
        self.replayed: tuple[str, ...] = ()  # paths of the logs that recovery replayed

    @property
    def path(self) -> str:
        return f"{PREFIX}{self._number}{LOG}"

    # -- recovery --------------------------------------------------------------------------------

    def recover(self, load: Callable[[bytes], None], replay: Callable[[bytes], None]) -> None:
        """Load the newest complete snapshot and replay the logs after it.

        A torn end is truncated: none of its writes was acknowledged.
        """
        base = 0
        for number in reversed(self._numbers(SNAPSHOT)):
            whole = [body for body, _ in _frames(self._read(f"{PREFIX}{number}{SNAPSHOT}"))]
            if whole:
                base = number
                load(whole[0])
                break
        for number in self._numbers(LOG):
            if number >= base:
                self._replay(number, replay)
        self._number = max([base, *self._numbers(LOG)])
        if not self._fs.exists(self.path):
            self._fs.write(self.path, b"")
        self._size = self._fs.size(self.path)

    def _replay(self, number: int, replay: Callable[[bytes], None]) -> None:
        path, whole = f"{PREFIX}{number}{LOG}", 0
        data = self._read(path)
        for body, end in _frames(data):
            replay(body)
            whole = end
        if whole:
            self.replayed += (path,)
        if whole < len(data):
            self._fs.truncate(path, whole)

    def _numbers(self, kind: str) -> list[int]:
        numbers = [name.removeprefix(PREFIX).removesuffix(kind) for name in self._fs.names("") if name.endswith(kind)]
        return sorted(int(number) for number in numbers if number.isdigit())

    def _read(self, path: str) -> bytes:
        return self._fs.read(path, 0, self._fs.size(path))

    # -- writing ---------------------------------------------------------------------------------

    def append(self, entries: list[bytes]) -> str:
        """Append entries; return the path to flush before any of them takes effect."""
        data = b"".join(map(frame, entries))
        self._fs.append(self.path, data)
        self._size += len(data)
        return self.path

    @property
    def needs_snapshot(self) -> bool:
        return self._size > self._snapshot_bytes and self._writing is None

    def begin_snapshot(self, zxid: int, data: bytes) -> str:
        """Write the tree at transaction `zxid` to a temporary file, start a new log, return the path to flush."""
        self._number = self._writing = zxid
        self._fs.write(self.path, b"")
        self._size = 0
        temporary = f"{PREFIX}{zxid}{SNAPSHOT}{TEMPORARY}"
        self._fs.write(temporary, frame(data))
        return temporary

    def finish_snapshot(self) -> None:
        """Publish the flushed snapshot; delete the generations older than the snapshot before it."""
        number, self._writing = self._writing, None
        before = max(self._numbers(SNAPSHOT), default=0)
        self._fs.rename(f"{PREFIX}{number}{SNAPSHOT}{TEMPORARY}", f"{PREFIX}{number}{SNAPSHOT}")
        for kind in (SNAPSHOT, LOG):
            for old in self._numbers(kind):
                if old < before:
                    self._fs.delete(f"{PREFIX}{old}{kind}")
