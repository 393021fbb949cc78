"""Read and write checkpoint files: a version, a count, and `topic partition offset` lines (OffsetCheckpointFile).

A checkpoint is written to a temporary file, fsynced and renamed, so a crash leaves either the old or the new file.
"""

from highwater.reference.effects import Flush, Log, Outbox
from highwater.reference.storage.filesystem import FileSystem

Partition = tuple[str, int]
VERSION = 0


def format_offsets(offsets: dict[Partition, int]) -> bytes:
    lines = [str(VERSION), str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    return ("\n".join(lines) + "\n").encode()


def parse_offsets(data: bytes) -> dict[Partition, int] | None:
    """Return the offsets of a checkpoint file, or None if it is not a complete checkpoint."""
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
        self._temporary_path = f"{path}.tmp"
        self.token = f"checkpoint:{path}"
        self._writing = False
        self._written: dict[Partition, int] = {}
        self.damaged = False

    def read(self) -> dict[Partition, int]:
        """Return the offsets in the file; empty if the file is missing or (with a warning) damaged.

        Empty is safe for every kind. Without a recovery point the whole log is checked. Without a log start, deleted
        records of the first segment reappear. The high watermark starts at the log start, so consumers see too few
        records until the ISR has fetched, but never uncommitted ones.
        """
        if not self._fs.exists(self.path):
            return {}
        found = parse_offsets(self._fs.read(self.path, 0, self._fs.size(self.path)))
        self.damaged = found is None
        if found is None:
            self._out.add(Log("log", f"{self.path} is damaged; the broker treats it as empty", "warning"))
        self._written = found or {}
        return dict(self._written)

    def write(self, offsets: dict[Partition, int]) -> None:
        """Start to replace the file, unless nothing has changed or a replacement is in progress."""
        if self._writing or offsets == self._written:
            return
        try:
            self._fs.write(self._temporary_path, format_offsets(offsets))
        except OSError as error:  # the old file remains valid
            self._out.add(Log("log", f"{self.path} could not be replaced: {error}; the old file remains", "warning"))
            return
        self._writing, self._written = True, dict(offsets)
        self._out.add(Flush((self._temporary_path,), self.token))

    def write_now(self, offsets: dict[Partition, int]) -> None:
        """Replace the file at once, for a clean shutdown: the driver fsyncs all files afterwards."""
        self._written = dict(offsets)
        self._fs.write(self._temporary_path, format_offsets(offsets))
        self.complete_flush()

    def complete_flush(self) -> None:
        self._fs.rename(self._temporary_path, self.path)
        self._writing = False
