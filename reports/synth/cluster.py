"""A correct Kafka reduced to what histories show: logs, committed offsets, one group."""

from bisect import bisect_left
from dataclasses import dataclass, field

BATCH = 50


@dataclass(slots=True)
class Log:
    """The log of one partition. A transaction marker takes an offset but is not a record."""

    topic: str
    partition: int
    leader_epoch: int = 0
    end: int = 0
    high_watermark: int = 0
    offsets: list[int] = field(default_factory=list)
    values: list[int | None] = field(default_factory=list)
    txns: list[str | None] = field(default_factory=list)
    open: dict[str, int] = field(default_factory=dict)
    aborted: set[str] = field(default_factory=set)

    @property
    def key(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def where(self) -> dict[str, str | int]:
        return {"topic": self.topic, "partition": self.partition}

    def append(self, value: int | None, txn: str | None = None) -> int:
        if txn is not None:
            self.open.setdefault(txn, self.end)
        self.offsets.append(self.end)
        self.values.append(value)
        self.txns.append(txn)
        self.end += 1
        return self.end - 1

    def mark(self, txn: str, *, commit: bool) -> None:
        if self.open.pop(txn, None) is None:
            return
        if not commit:
            self.aborted.add(txn)
        self.end += 1
        self.high_watermark = self.end

    def commit_to(self, end: int) -> None:
        self.high_watermark = max(self.high_watermark, end)

    @property
    def last_stable_offset(self) -> int:
        return min([self.high_watermark, *self.open.values()])

    def read(self, position: int, *, committed: bool) -> list[tuple[int, int | None]]:
        """Return the records of a fetch, at most `BATCH`."""
        until = self.last_stable_offset if committed else self.high_watermark
        first = bisect_left(self.offsets, position)
        last = min(bisect_left(self.offsets, until), first + BATCH)
        return [
            (self.offsets[slot], self.values[slot])
            for slot in range(first, last)
            if not (committed and self.txns[slot] in self.aborted)
        ]


@dataclass(slots=True)
class Group:
    """A consumer group of processes; `owners` is the assignment of the generation."""

    name: str
    logs: list[Log]
    generation: int = 0
    members: list[int] = field(default_factory=list)
    owners: dict[int, list[Log]] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=dict)
    holders: dict[int, int] = field(default_factory=dict)  # the generation whose partitions a member still owns

    def has_unrevoked(self) -> bool:
        """Return whether a member has yet to revoke partitions of an older generation."""
        return any(generation < self.generation for generation in self.holders.values())

    def rebalance(self, members: list[int]) -> None:
        self.generation += 1
        self.members = members
        self.owners = {member: self.logs[slot :: len(members)] for slot, member in enumerate(members)}
