"""The leader epoch cache: where each leader epoch began in this log (KIP-101)."""

from bisect import bisect_right
from itertools import pairwise

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1
CHECKPOINT = "leader-epoch-checkpoint"
VERSION = "0"


def format_epochs(entries: list[tuple[int, int]]) -> bytes:
    """`epoch start_offset` lines under a version and a count, as Apache Kafka writes them."""
    return "".join(f"{line}\n" for line in (VERSION, len(entries), *(f"{e} {s}" for e, s in entries))).encode()


def parse_epochs(data: bytes) -> list[tuple[int, int]] | None:
    """None when this is not a whole checkpoint whose entries ascend."""
    try:
        version, count, *lines = data.decode().splitlines()
        entries = [(int(epoch), int(start)) for epoch, start in (line.split(" ") for line in lines)]
    except ValueError:
        return None
    ascends = all(one[0] < two[0] and one[1] <= two[1] for one, two in pairwise(entries))
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
        """Note that `epoch` begins at `start_offset`, unless it is known already."""
        if epoch > self.latest_epoch:
            # An epoch that wrote nothing leaves no trace: its start is the next one's.
            while self.entries and self.entries[-1][1] >= start_offset:
                self.entries.pop()
            self.entries.append((epoch, start_offset))
            self.dirty = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch not above the asked one, and where it ended; (-1, -1) when unknown (KIP-279).

        The current epoch ends at the log end.
        """
        if epoch == UNDEFINED_EPOCH or not self.entries:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        slot = bisect_right(self.entries, epoch, key=lambda entry: entry[0])
        if slot == len(self.entries):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if slot == 0:  # older than anything here: the log begins where the next epoch does
            return epoch, self.entries[0][1]
        return self.entries[slot - 1][0], self.entries[slot][1]

    def truncate_from_end(self, log_end_offset: int) -> None:
        while self.entries and self.entries[-1][1] >= log_end_offset:
            self.entries.pop()
            self.dirty = True

    def truncate_from_start(self, log_start_offset: int) -> None:
        keep = [entry for entry in self.entries if entry[1] > log_start_offset]
        below = [entry for entry in self.entries if entry[1] <= log_start_offset]
        if below and below[-1][1] < log_start_offset:
            self.entries = [(below[-1][0], log_start_offset), *keep]
            self.dirty = True
