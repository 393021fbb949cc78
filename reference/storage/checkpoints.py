"""Checkpoint files: `topic partition offset` lines under a version and a count, as Apache Kafka writes them.

A checkpoint is written to a new file, flushed, and renamed; so the old one is whole until the new one is.
"""

from reference.effects import Flush, Log, Outbox
from reference.storage.filesystem import FileSystem

Partition = tuple[str, int]
VERSION = 0


def format_offsets(offsets: dict[Partition, int]) -> bytes:
    lines = [str(VERSION), str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    return ("\n".join(lines) + "\n").encode()


def parse_offsets(data: bytes) -> dict[Partition, int] | None:
    """The offsets of a checkpoint; None when the file is not a whole checkpoint."""
    try:
        version, count, *lines = data.decode().splitlines()
        offsets = {}
        for line in lines:
            topic, partition, offset = line.split(" ")
            offsets[topic, int(partition)] = int(offset)
    except ValueError:
        return None
    return offsets if version == str(VERSION) and count == str(len(offsets)) else None


class Checkpoint:
    """One checkpoint file and its pending replacement."""

    def __init__(self, fs: FileSystem, out: Outbox, path: str) -> None:
        self._fs, self._out, self.path = fs, out, path
        self._hidden = f"{path}.tmp"
        self.token = f"checkpoint:{path}"
        self._writing = False
        self._written: dict[Partition, int] = {}
        self.damaged = False

    def read(self) -> dict[Partition, int]:
        """What the file holds; empty when there is none, and, with a warning, when it is damaged.

        Empty is safe for each kind: without a recovery point all of the log is checked; without a log start deleted
        records of the first segment come back; and a high watermark starts at the log start, which shows consumers
        too little until the ISR has fetched, and never too much.
        """
        if not self._fs.exists(self.path):
            return {}
        found = parse_offsets(self._fs.read(self.path, 0, self._fs.size(self.path)))
        self.damaged = found is None
        if found is None:
            self._out.add(Log("log", f"{self.path} is damaged and counts as empty", "warning"))
        self._written = found or {}
        return dict(self._written)

    def write(self, offsets: dict[Partition, int]) -> None:
        """Begin to replace the file, unless nothing changed or a replacement is under way."""
        if self._writing or offsets == self._written:
            return
        try:
            self._fs.write(self._hidden, format_offsets(offsets))
        except OSError as error:  # the old one stands, and serves
            self._out.add(Log("log", f"{self.path} could not be replaced: {error}", "warning"))
            return
        self._writing, self._written = True, dict(offsets)
        self._out.add(Flush((self._hidden,), self.token))

    def write_now(self, offsets: dict[Partition, int]) -> None:
        """Replace the file at once, for a clean stop: the driver flushes all files afterwards."""
        self._written = dict(offsets)
        self._fs.write(self._hidden, format_offsets(offsets))
        self.flushed()

    def flushed(self) -> None:
        self._fs.rename(self._hidden, self.path)
        self._writing = False
