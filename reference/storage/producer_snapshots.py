"""Producer snapshots: `<offset>.snapshot` holds what the log below that offset says of its producers.

One is written whenever a segment is rolled, so that a start replays the last segment and not the whole log.
"""

from collections.abc import Iterator

from reference.storage.filesystem import FileSystem
from reference.storage.producer_state import ProducerStates

SUFFIX = ".snapshot"


def snapshot_path(folder: str, offset: int) -> str:
    return f"{folder}/{offset:020d}{SUFFIX}"


def _offsets(fs: FileSystem, folder: str) -> Iterator[int]:
    for name in fs.names(folder):
        stem = name.removesuffix(SUFFIX)
        if name.endswith(SUFFIX) and stem.isdigit():
            yield int(stem)


def restore_latest(fs: FileSystem, folder: str, states: ProducerStates, at_most: int) -> int:
    """Take the newest whole snapshot at or below an offset; returns its offset, 0 when there is none."""
    for offset in sorted((offset for offset in _offsets(fs, folder) if offset <= at_most), reverse=True):
        path = snapshot_path(folder, offset)
        if states.restore(fs.read(path, 0, fs.size(path))):
            return offset
        fs.delete(path)  # damaged: an older one serves
    return 0


def forget_above(fs: FileSystem, folder: str, offset: int) -> None:
    """What a truncation took, no snapshot may bring back."""
    for each in list(_offsets(fs, folder)):
        if each > offset:
            fs.delete(snapshot_path(folder, each))
