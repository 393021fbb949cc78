"""Checkpoint files: `topic partition offset` lines under a version and a count, as Apache Kafka writes them.

A checkpoint is written to a new file, flushed, and renamed; so the old one is whole until the new one is.
"""

from reference.effects import Flush, Outbox
from reference.storage.filesystem import FileSystem

Partition = tuple[str, int]
VERSION = 0


def format_offsets(offsets: dict[Partition, int]) -> bytes:
    lines = [str(VERSION), str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    return ("\n".join(lines) + "\n").encode()


def parse_offsets(data: bytes) -> dict[Partition, int]:
    """The offsets of a checkpoint; empty when the file is not a whole checkpoint.

    An empty one is always safe: recovery then checks all of the log, and a high watermark starts low.
    """
    try:
        version, count, *lines = data.decode().splitlines()
        offsets = {}
        for line in lines:
            topic, partition, offset = line.split(" ")
            offsets[topic, int(partition)] = int(offset)
    except ValueError:
        return {}
    return offsets if version == str(VERSION) and count == str(len(offsets)) else {}


class Checkpoint:
    """One checkpoint file and its pending replacement."""

    def __init__(self, fs: FileSystem, out: Outbox, path: str) -> None:
        self._fs, self._out, self.path = fs, out, path
        self._hidden = f"{path}.tmp"
        self.token = f"checkpoint:{path}"
        self._writing = False
        self._written: dict[Partition, int] = {}

    def read(self) -> dict[Partition, int]:
        if not self._fs.exists(self.path):
            return {}
        self._written = parse_offsets(self._fs.read(self.path, 0, self._fs.size(self.path)))
        return dict(self._written)

    def write(self, offsets: dict[Partition, int]) -> None:
        """Begin to replace the file, unless nothing changed or a replacement is under way."""
        if self._writing or offsets == self._written:
            return
        self._writing, self._written = True, dict(offsets)
        self._fs.write(self._hidden, format_offsets(offsets))
        self._out.add(Flush((self._hidden,), self.token))

    def flushed(self) -> None:
        self._fs.rename(self._hidden, self.path)
        self._writing = False
