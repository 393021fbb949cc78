"""Transactions as a reader of committed records sees them: each whole or not at all."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from highwater.fuzz.simulator.cluster import TOPIC, SimulatedCluster
from highwater.fuzz.simulator.invariants.replication import Violated
from highwater.reference.replication.partition import Partition
from highwater.reference.storage.producer_state import read_marker
from highwater.reference.wire.records import BatchHeader, batch_headers, decode_records

PREFIX = b"txn "


@dataclass(slots=True)
class Decided:
    """One partition, as far as any leader has committed it."""

    end: int = 0
    open_since: dict[int, int] = field(default_factory=dict)  # producer id -> where its transaction begins
    waiting: dict[int, list[bytes]] = field(default_factory=dict)


class ObservedTransactions:
    """TransactionsAreAtomic and LastStableOffset, after every event that commits something of a partition.

    Of a run in which a disk rots, and some partition is not read for a while, only the end tells (`torn_transactions`).
    """

    def __init__(self, partitions: int, unreadable: set[int], violated: Violated) -> None:
        self._unreadable, self._violated = unreadable, violated
        self._blind = False
        self._decided = [Decided() for _ in range(partitions)]
        self._shown: dict[bytes, dict[int, set[int]]] = {}  # producer -> its transactions not shown whole -> where

    def look(self, number: int, leader: Partition) -> None:
        self._blind = self._blind or bool(self._unreadable)
        if self._blind:
            return
        known = self._decided[number]
        if leader.high_watermark > known.end:
            for header, batch in committed_batches(leader, known.end):
                self._take(number, known, header, batch)
                known.end = header.next_offset
        if leader.high_watermark == known.end:
            self._check_stable(number, known, leader)

    def _take(self, number: int, known: Decided, header: BatchHeader, batch: bytes) -> None:
        if header.is_control:
            marker = read_marker(batch)
            values = known.waiting.pop(header.producer_id, [])
            known.open_since.pop(header.producer_id, None)
            for value in values if marker is not None and marker.committed else ():
                self._show(number, value)
        elif header.is_transactional:
            known.open_since.setdefault(header.producer_id, header.base_offset)
            values = [record.value or b"" for record in decode_records(batch)[1]]
            known.waiting.setdefault(header.producer_id, []).extend(values)

    def _show(self, number: int, value: bytes) -> None:
        """Who shows a transaction has shown all before it: the next one begins when the last one has ended."""
        _, producer, transaction, _ = value.split()
        shown = self._shown.setdefault(producer, {})
        for earlier, where in shown.items():
            if earlier < int(transaction):
                everywhere = len(self._decided)
                self._violated(
                    "TransactionsAreAtomic",
                    f"txn {producer.decode()} {earlier} shows {len(where)} of its {everywhere} records, and "
                    f"{int(transaction)} is shown",
                )
        where = shown.setdefault(int(transaction), set())
        where.add(number)
        if len(where) == len(self._decided):
            del shown[int(transaction)]

    def _check_stable(self, number: int, known: Decided, leader: Partition) -> None:
        expected = min(known.open_since.values(), default=known.end)
        told = leader.log.producers.last_stable_offset(leader.high_watermark)
        if told != expected:
            self._violated("LastStableOffset", f"{TOPIC}-{number} tells {told}, and it is {expected}")


def committed_batches(replica: Partition, offset: int = 0) -> Iterator[tuple[BatchHeader, bytes]]:
    """All that is below the high watermark of a replica, from an offset on."""
    offset = max(offset, replica.log.log_start_offset)
    while offset < replica.high_watermark:
        data = replica.log.read(offset, 1 << 20, replica.high_watermark, at_least_one=True)
        for position, header in batch_headers(data):
            yield header, data[position : position + header.size]
            offset = header.next_offset


def committed_values(batches: Iterator[tuple[BatchHeader, bytes]]) -> list[bytes]:
    """What read_committed shows of them.

    Made from the batches alone, without what a broker remembers of producers.
    """
    shown: list[bytes] = []
    waiting: dict[int, list[bytes]] = {}
    for header, batch in batches:
        if header.is_control:
            marker = read_marker(batch)
            values = waiting.pop(header.producer_id, [])
            if marker is not None and marker.committed:
                shown += values
            continue
        values = [record.value or b"" for record in decode_records(batch)[1]]
        if header.is_transactional:
            waiting.setdefault(header.producer_id, []).extend(values)
        else:
            shown += values
    return shown


def first_undecided(batches: Iterator[tuple[BatchHeader, bytes]]) -> int:
    """Where their first transaction without a marker begins, -1 if there is none. Made as `committed_values`."""
    open_since: dict[int, int] = {}
    for header, _ in batches:
        if header.is_control:
            open_since.pop(header.producer_id, None)
        elif header.is_transactional:
            open_since.setdefault(header.producer_id, header.base_offset)
    return min(open_since.values(), default=-1)


def torn_transactions(cluster: SimulatedCluster) -> Iterator[str]:
    """Transactions of which some partitions show their record, and others do not."""
    seen: dict[bytes, int] = {}
    partitions = cluster.settings.partitions
    for number in range(partitions):
        replica = cluster.replica(cluster.leader(number), number)
        if replica is None:
            return
        for value in committed_values(committed_batches(replica)):
            if value.startswith(PREFIX):
                name = value.rpartition(b" ")[0]
                seen[name] = seen.get(name, 0) + 1
    for name, count in seen.items():
        if count != partitions:
            yield f"{name.decode()} shows {count} of its {partitions} records"


def wrong_stable_offsets(cluster: SimulatedCluster) -> Iterator[str]:
    """The last stable offset is where the first undecided transaction begins, at most the high watermark."""
    for number in range(cluster.settings.partitions):
        replica = cluster.replica(cluster.leader(number), number)
        if replica is None:
            return
        undecided = first_undecided(committed_batches(replica))
        expected = replica.high_watermark if undecided < 0 else undecided
        told = replica.log.producers.last_stable_offset(replica.high_watermark)
        if told != expected:
            yield f"{TOPIC}-{number} tells {told}, and it is {expected}"
