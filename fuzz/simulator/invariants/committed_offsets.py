"""Invariants of committed offsets: OffsetFetch returns the newest commit, also after a failover of the coordinator."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from highwater.fuzz.simulator.cluster import OFFSETS_TOPIC, TOPIC
from highwater.fuzz.simulator.invariants.contents import committed_batches
from highwater.fuzz.simulator.invariants.violations import About, Violated
from highwater.reference.groups.records import OffsetCommitKey, unpack_key, unpack_offset
from highwater.reference.replication.partition import Partition
from highwater.reference.storage.producer_state import read_marker
from highwater.reference.wire.records import BatchHeader, decode_records

NO_OFFSET: Final = -1
Key = tuple[str, int]  # group, partition of the topic


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The number of the last commit of each partition that was in effect when OffsetFetch was sent.

    `epoch` is that of the coordinator; -1 if its response proves nothing.
    """

    broker_id: int
    group: str
    epoch: int
    commits: dict[int, int]


@dataclass(slots=True)
class CommittedOffsets:
    """All commits in the committed log of the coordinators, in their order.

    A late copy of a commit takes effect again, so the last one need not be the highest. A coordinator that timed out
    while it wrote a commit may ignore it until the next failover. So only acknowledged commits and those of
    transactions are known to be in effect. `acting_epoch(broker)` returns the leader epoch in which the broker acts as
    coordinator, or -1 if it is not the one of the metadata store: a former coordinator may answer from its memory until
    it learns of its successor.
    """

    acting_epoch: Callable[[int], int]
    rotten: set[int]  # brokers with flipped bits: the log was not read while one of them was the coordinator
    violated: Violated
    _history: dict[Key, list[int]] = field(default_factory=dict)
    _in_effect: dict[Key, int] = field(default_factory=dict)  # index in the history
    _pending: dict[int, list[tuple[Key, int]]] = field(default_factory=dict)  # by producer id
    _end: int = 0
    _incomplete: bool = False  # the cleaner removed batches that were not read yet

    def commit(self, leader: Partition) -> None:
        """Read the newly committed batches of a coordinator's log."""
        for header, batch in committed_batches(leader, self._end):
            self._incomplete |= header.base_offset > self._end
            self._end = header.next_offset
            if header.is_control:
                marker = read_marker(batch)
                for key, offset in self._pending.pop(header.producer_id, []):
                    if marker is not None and marker.committed:
                        self._history.setdefault(key, []).append(offset)
                        self._in_effect[key] = len(self._history[key]) - 1
            else:
                self._read(header, batch)

    def _read(self, header: BatchHeader, batch: bytes) -> None:
        for record in decode_records(batch)[1]:
            key = unpack_key(record.key or b"")
            if not isinstance(key, OffsetCommitKey) or key.topic != TOPIC or not record.value:
                continue
            found = (key.group, key.partition), unpack_offset(record.value).offset
            if header.is_transactional:
                self._pending.setdefault(header.producer_id, []).append(found)
            else:
                self._history.setdefault(found[0], []).append(found[1])

    @property
    def _is_known(self) -> bool:
        return not self._incomplete and not self.rotten

    def acknowledged(self, group: str, offsets: dict[int, int]) -> None:
        """CommittedOffsetStays: an acknowledged commit is in the committed log."""
        for number, offset in offsets.items():
            history = self._history.get((group, number), [])
            if offset in history:
                index = len(history) - 1 - history[::-1].index(offset)
                self._in_effect[group, number] = max(index, self._in_effect.get((group, number), -1))
            elif self._is_known:
                self.violated(
                    "CommittedOffsetStays",
                    f"{group} committed {offset} for {TOPIC}-{number}, which is not in {OFFSETS_TOPIC}",
                    About(f"{TOPIC}-{number}", group=group),
                )

    def snapshot(self, broker_id: int, group: str) -> Snapshot:
        """Return which commits of the group are in effect."""
        commits = {number: index for (name, number), index in self._in_effect.items() if name == group}
        return Snapshot(broker_id, group, self.acting_epoch(broker_id), commits)

    def fetched(self, sent: Snapshot, offsets: dict[int, int]) -> None:
        """CommittedOffsetStays: the coordinator returns the commit that was in effect, or a later one."""
        if not self._is_known or sent.epoch < 0 or self.acting_epoch(sent.broker_id) != sent.epoch:
            return
        for number, offset in offsets.items():
            first, history = sent.commits.get(number, -1), self._history.get((sent.group, number), [])
            allowed = history[max(first, 0) :] + ([NO_OFFSET] if first < 0 else [])
            if offset not in allowed:
                self.violated(
                    "CommittedOffsetStays",
                    f"{sent.group} fetches {offset} for {TOPIC}-{number}; the commits are {allowed[:4]}",
                    About(f"{TOPIC}-{number}", group=sent.group),
                )
