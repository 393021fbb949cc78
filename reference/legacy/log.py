"""The log of Kafka 0.7 (kafka-0.7-design, "Log"): the offset of a message is its byte position in the whole stream.

The files are `<topic>_<partition>/<offset of the first message, 11 digits>.kafka`.
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from highwater.reference.legacy.messages import message_set, valid_bytes, whole
from highwater.reference.storage.filesystem import FileSystem
from highwater.reference.wire.errors import InvalidBatchError

__all__ = ["EARLIEST", "LATEST", "LegacyLog", "LegacyLogConfig", "LegacySegment", "OutOfRangeError", "message_set"]

SUFFIX: Final = ".kafka"
LATEST: Final = -1
EARLIEST: Final = -2


class OutOfRangeError(Exception):
    """The offset is outside this log; the consumer must reset its position or fail."""


@dataclass(frozen=True, slots=True)
class LegacyLogConfig:
    """Settings; `flush_messages` and `flush_ms` are M and S of "Writes": the most that a system crash may lose."""

    file_bytes: int = 1 << 30
    flush_messages: int = 500
    flush_ms: int = 1_000
    max_message_bytes: int = 1_000_000


@dataclass(slots=True)
class LegacySegment:
    """One file with the bytes of the stream from `start` on; its age is the time since the last write."""

    path: str
    start: int
    size: int
    modified_ms: int

    @property
    def end(self) -> int:
        return self.start + self.size


class LegacyLog:
    """The log of one partition. Consumers can read only flushed messages."""

    def __init__(self, fs: FileSystem, topic: str, partition: int, config: LegacyLogConfig, now_ms: int = 0) -> None:
        self._fs, self.config = fs, config
        self.folder = f"{topic}_{partition}"
        self._segments = self._open(now_ms)
        self._unflushed, self._flushed_ms = 0, now_ms
        self.flushed_end = self.end

    def _open(self, now_ms: int) -> list[LegacySegment]:
        """Open all files; truncate the newest one after its last valid message ("Guarantees")."""
        names = [name for name in self._fs.names(self.folder) if name.endswith(SUFFIX)]
        starts = sorted(int(name.removesuffix(SUFFIX)) for name in names)
        segments = [self._segment(start, now_ms) for start in starts] or [self._segment(0, now_ms)]
        last = segments[-1]
        valid_size = valid_bytes(self._fs.read(last.path, 0, last.size))
        if valid_size < last.size:
            self._fs.truncate(last.path, valid_size)
            last.size = valid_size
        return segments

    def _segment(self, start: int, now_ms: int) -> LegacySegment:
        path = f"{self.folder}/{start:011d}{SUFFIX}"
        if not self._fs.exists(path):
            self._fs.append(path, b"")
        return LegacySegment(path, start, self._fs.size(path), now_ms)

    @property
    def start(self) -> int:
        return self._segments[0].start

    @property
    def end(self) -> int:
        return self._segments[-1].end

    @property
    def starts(self) -> list[int]:
        return [segment.start for segment in self._segments]

    # -- writes ----------------------------------------------------------------------------------

    def append(self, data: bytes, count: int, now_ms: int) -> int:
        """Append a message set to the last file; return its offset. Raises `DecodeError`."""
        if not data or not whole(data):
            raise InvalidBatchError("the message set is incomplete")
        if len(data) > self.config.max_message_bytes:
            raise InvalidBatchError(f"{len(data)} bytes exceed the maximum of {self.config.max_message_bytes}")
        segment = self._segments[-1]
        if segment.size >= self.config.file_bytes:
            segment = self._segment(segment.end, now_ms)
            self._segments.append(segment)
        offset = segment.end
        self._fs.append(segment.path, data)
        segment.size += len(data)
        segment.modified_ms = now_ms
        self._unflushed += count
        return offset

    def flush_due(self, now_ms: int) -> tuple[str, ...]:
        """Return the files to fsync now, after M messages or S milliseconds; empty if neither is reached."""
        late = now_ms - self._flushed_ms >= self.config.flush_ms
        if not self._unflushed or not (late or self._unflushed >= self.config.flush_messages):
            return ()
        return tuple(segment.path for segment in self._segments if segment.end > self.flushed_end)

    def flushed(self, now_ms: int) -> None:
        self._unflushed, self._flushed_ms, self.flushed_end = 0, now_ms, self.end

    # -- reads -----------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Return up to `max_bytes` of the file with the offset; the last message may be truncated."""
        if not self.start <= offset <= self.flushed_end:
            raise OutOfRangeError(f"{self.folder}: offset {offset} is not in {self.start} to {self.flushed_end}")
        segment = self._segments[bisect_right(self.starts, offset) - 1]
        size = min(max_bytes, segment.end - offset, self.flushed_end - offset)
        return self._fs.read(segment.path, offset - segment.start, max(size, 0))

    def offsets_before(self, time_ms: int, count: int) -> list[int]:
        """Return at most `count` start offsets of files last written before a time, in descending order.

        LATEST also returns the end of the log, EARLIEST only its start ("Low-level API").
        """
        if time_ms == EARLIEST:
            return [self.start][:count]
        found = [segment.start for segment in self._segments if time_ms == LATEST or segment.modified_ms < time_ms]
        if time_ms == LATEST:
            found.append(self.flushed_end)
        return sorted(set(found), reverse=True)[:count]

    # -- deletes ---------------------------------------------------------------------------------

    def delete_old(self, now_ms: int, retention_ms: int) -> None:
        """Delete the files last written more than `retention_ms` ago, oldest first; the last file remains."""
        while len(self._segments) > 1 and now_ms - self._segments[0].modified_ms > retention_ms:
            self._fs.delete(self._segments.pop(0).path)

    def delete_excess(self, retention_bytes: int) -> None:
        """Delete the oldest files as long as the rest has at least `retention_bytes`."""
        while len(self._segments) > 1 and self.end - self._segments[1].start >= retention_bytes:
            self._fs.delete(self._segments.pop(0).path)
