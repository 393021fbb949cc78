"""Where the metadata store keeps what it answered: a log of writes, and now and then a snapshot in its place.

`store.N.log` holds the writes behind transaction N, `store.N.snapshot` the tree as it stood then. The generation before
the last snapshot is kept until the next one stands: should the rename not survive a crash, it still has everything.
"""

import struct
from collections.abc import Callable, Iterator
from zlib import crc32

from reference.storage.filesystem import FileSystem

FRAME = struct.Struct(">II")  # length, CRC-32 of what follows
PREFIX, LOG, SNAPSHOT, HIDDEN = "store.", ".log", ".snapshot", ".tmp"


def framed(data: bytes) -> bytes:
    return FRAME.pack(len(data), crc32(data)) + data


def _frames(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Each whole frame's content, and where it ends."""
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
        self._writing: int | None = None  # the generation whose snapshot is on its way to disk
        self.replayed: tuple[str, ...] = ()  # logs that recovery read something from

    @property
    def path(self) -> str:
        return f"{PREFIX}{self._number}{LOG}"

    # -- recovery --------------------------------------------------------------------------------

    def recover(self, load: Callable[[bytes], None], replay: Callable[[bytes], None]) -> None:
        """Load the newest whole snapshot and replay what came behind it.

        A torn end is cut, since nothing of it was ever answered.
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
        middles = [name.removeprefix(PREFIX).removesuffix(kind) for name in self._fs.names("") if name.endswith(kind)]
        return sorted(int(middle) for middle in middles if middle.isdigit())

    def _read(self, path: str) -> bytes:
        return self._fs.read(path, 0, self._fs.size(path))

    # -- writing ---------------------------------------------------------------------------------

    def append(self, entries: list[bytes]) -> str:
        """The file to be flushed before any of these takes effect."""
        data = b"".join(map(framed, entries))
        self._fs.append(self.path, data)
        self._size += len(data)
        return self.path

    @property
    def is_long(self) -> bool:
        return self._size > self._snapshot_bytes and self._writing is None

    def begin_snapshot(self, zxid: int, data: bytes) -> str:
        """Write the tree as it stands behind transaction `zxid`, where a new log begins; returns the file to flush."""
        self._number = self._writing = zxid
        self._fs.write(self.path, b"")
        self._size = 0
        hidden = f"{PREFIX}{zxid}{SNAPSHOT}{HIDDEN}"
        self._fs.write(hidden, framed(data))
        return hidden

    def finish_snapshot(self) -> None:
        """It is on disk: what is older than the one before it may go."""
        number, self._writing = self._writing, None
        before = max(self._numbers(SNAPSHOT), default=0)
        self._fs.rename(f"{PREFIX}{number}{SNAPSHOT}{HIDDEN}", f"{PREFIX}{number}{SNAPSHOT}")
        for kind in (SNAPSHOT, LOG):
            for old in self._numbers(kind):
                if old < before:
                    self._fs.delete(f"{PREFIX}{old}{kind}")
