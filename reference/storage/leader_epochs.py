"""The leader epoch cache: the start offset of every leader epoch in a log (KIP-101, LeaderEpochFileCache)."""

from bisect import bisect_right
from itertools import pairwise

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1
CHECKPOINT = "leader-epoch-checkpoint"
VERSION = "0"


def format_epochs(entries: list[tuple[int, int]]) -> bytes:
    """Return the content of a leader-epoch-checkpoint file: a version, a count, and `epoch start_offset` lines."""
    return "".join(f"{line}\n" for line in (VERSION, len(entries), *(f"{e} {s}" for e, s in entries))).encode()


def parse_epochs(data: bytes) -> list[tuple[int, int]] | None:
    """Return the entries of a leader-epoch-checkpoint file; None if it is incomplete or not in ascending order."""
    try:
        version, count, *lines = data.decode().splitlines()
        entries = [(int(epoch), int(start)) for epoch, start in (line.split(" ") for line in lines)]
    except ValueError:
        return None
    ascends = all(left[0] < right[0] and left[1] <= right[1] for left, right in pairwise(entries))
    return entries if ascends and (version, count) == (VERSION, str(len(entries))) else None


class LeaderEpochCache:
    """Entries (epoch, start offset), ascending in both."""

    __slots__ = ("dirty", "entries")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.entries: list[tuple[int, int]] = entries or []
        self.dirty = False

    @property
    def latest_epoch(self) -> int:
        return self.entries[-1][0] if self.entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` begins at `start_offset`, unless the epoch is known already."""
        if epoch > self.latest_epoch:
            # Remove epochs without records: they start where the new epoch starts.
            while self.entries and self.entries[-1][1] >= start_offset:
                self.entries.pop()
            self.entries.append((epoch, start_offset))
            self.dirty = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest known epoch <= `epoch` and its end offset; (-1, -1) if unknown (KIP-279).

        The latest epoch ends at the log end.
        """
        if epoch == UNDEFINED_EPOCH or not self.entries:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        slot = bisect_right(self.entries, epoch, key=lambda entry: entry[0])
        if slot == len(self.entries):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if slot == 0:  # older than all known epochs: it ended where the first known epoch starts
            return epoch, self.entries[0][1]
        return self.entries[slot - 1][0], self.entries[slot][1]

    def truncate_from_end(self, log_end_offset: int) -> None:
        while self.entries and self.entries[-1][1] >= log_end_offset:
            self.entries.pop()
            self.dirty = True

    def truncate_from_start(self, log_start_offset: int) -> None:
        """Remove the epochs that end at or before the log start; the one that contains it begins there."""
        keep = [entry for entry in self.entries if entry[1] > log_start_offset]
        below = [entry for entry in self.entries if entry[1] <= log_start_offset]
        if len(below) > 1 or (below and below[-1][1] < log_start_offset):
            self.entries = [(below[-1][0], log_start_offset), *keep]
            self.dirty = True
