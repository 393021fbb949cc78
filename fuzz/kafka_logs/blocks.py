"""The replicas of a partition as sequences of blocks: offsets between which no log, epoch or checkpoint differs.

A specification counts records one by one, and a log of a chaos run has a hundred thousand.  Records that every replica
has or lacks together, in one leader epoch, are one block, which is one record of the specification.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from highwater.fuzz.kafka_logs.folders import ReplicaFolder

Log = tuple[int, ...]
"""The leader epoch of each block."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """The logs and high watermarks by broker, and the first block of each leader epoch, in blocks.

    `by_checkpoint`: the logs with the epochs of the leader epoch checkpoint, of the brokers that have one.
    `leaders_start`: the first block of an epoch as one broker has it.
    """

    logs: dict[int, Log]
    by_checkpoint: dict[int, Log]
    high_watermarks: dict[int, int]
    starts: dict[int, int]
    leaders_start: dict[tuple[int, int], int]
    cuts: tuple[int, ...]

    def end_of(self, epoch: int) -> int:
        """Return the block after the last one of an epoch in any log; 0 if no log has one."""
        ends = (at + 1 for log in self.logs.values() for at, found in enumerate(log) if found == epoch)
        return max(ends, default=0)

    def offset(self, block: int) -> int:
        """Return the first offset of a block."""
        return self.cuts[min(block, len(self.cuts) - 1)]


def divide(replicas: Mapping[int, ReplicaFolder]) -> Blocks:
    """Divide the logs into blocks; records below the largest log start are left out, because not all logs have them."""
    first = max((replica.start for replica in replicas.values()), default=0)
    offsets = {first}
    for replica in replicas.values():
        known = [start for _, start in (*replica.runs, *replica.epochs)]
        offsets |= {offset for offset in (*known, replica.end, replica.high_watermark) if offset > first}
    cuts = tuple(sorted(offsets))

    def block(offset: int) -> int:
        return bisect_left(cuts, max(offset, first))

    logs = {node: _log(replica.runs, replica.end, cuts) for node, replica in replicas.items()}
    noted = {node: replica for node, replica in replicas.items() if replica.epochs}
    by_checkpoint = {node: _log(replica.epochs, replica.end, cuts) for node, replica in noted.items()}
    starts: dict[int, int] = {}
    own: dict[tuple[int, int], int] = {}
    for node, replica in replicas.items():
        for epoch, offset in (*replica.runs, *replica.epochs):
            starts.setdefault(epoch, block(offset))
            own[node, epoch] = block(offset)
    marks = {node: block(replica.high_watermark) for node, replica in replicas.items()}
    return Blocks(logs, by_checkpoint, marks, starts, own, cuts)


def _log(epochs: Sequence[tuple[int, int]], end: int, cuts: tuple[int, ...]) -> Log:
    inside = (cut for cut in cuts if cut < end)
    return tuple(next((epoch for epoch, start in reversed(epochs) if start <= cut), -1) for cut in inside)


def common(one: Log | list[int], other: Log | list[int]) -> int:
    """Return how many blocks at the start of two logs are the same."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
