"""Invariants of transactions (KIP-98): a read_committed consumer sees each of them completely or not at all."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from highwater.fuzz.simulator.cluster import TOPIC, TRANSACTIONS_TOPIC, SimulatedCluster
from highwater.fuzz.simulator.invariants.contents import committed_batches
from highwater.fuzz.simulator.invariants.violations import Violated
from highwater.reference.replication.partition import Partition
from highwater.reference.storage.producer_state import read_marker
from highwater.reference.transactions.states import IDLE, PREPARED
from highwater.reference.transactions.transaction import Transaction
from highwater.reference.wire.records import BatchHeader, decode_records

PREFIX = b"txn "


@dataclass(slots=True)
class CommittedPart:
    """The committed part of one partition. `waiting` has the values of open transactions by producer id."""

    end: int = 0
    open_since: dict[int, int] = field(default_factory=dict)  # producer id -> first offset of its open transaction
    waiting: dict[int, list[bytes]] = field(default_factory=dict)


class ObservedTransactions:
    """Checks TransactionsAreAtomic, CommitsAreAsked and LastStableOffset when a high watermark rises.

    `asked(producer, transaction)` returns whether the producer has asked for a commit.
    After a disk was corrupted it checks nothing, as some partition was not read for a while; `torn_transactions` then
    checks the end of the run.
    """

    def __init__(
        self, partitions: int, unreadable: set[int], asked: Callable[[int, int], bool], violated: Violated
    ) -> None:
        self._unreadable, self._asked, self._violated = unreadable, asked, violated
        self._incomplete = False
        self._committed_parts = [CommittedPart() for _ in range(partitions)]
        self._partly_visible: dict[bytes, dict[int, set[int]]] = {}  # producer -> transaction -> its visible partitions

    def update(self, number: int, leader: Partition) -> None:
        """Read the newly committed batches of partition `number`."""
        self._incomplete = self._incomplete or bool(self._unreadable)
        if self._incomplete:
            return
        known = self._committed_parts[number]
        if leader.high_watermark > known.end:
            for header, batch in committed_batches(leader, known.end):
                self._read_batch(number, known, header, batch)
                known.end = header.next_offset
        if leader.high_watermark == known.end:
            self._check_stable(number, known, leader)

    def _read_batch(self, number: int, known: CommittedPart, header: BatchHeader, batch: bytes) -> None:
        if header.is_control:
            marker = read_marker(batch)
            values = known.waiting.pop(header.producer_id, [])
            known.open_since.pop(header.producer_id, None)
            for value in values if marker is not None and marker.committed else ():
                self._make_visible(number, value)
        elif header.is_transactional:
            known.open_since.setdefault(header.producer_id, header.base_offset)
            values = [record.value or b"" for record in decode_records(batch)[1]]
            known.waiting.setdefault(header.producer_id, []).extend(values)

    def _make_visible(self, number: int, value: bytes) -> None:
        """Make a committed value visible; all earlier transactions of its producer must be completely visible.

        A producer begins a transaction only after the end of the previous one.
        """
        _, producer, transaction, _ = value.split()
        if not self._asked(int(producer), int(transaction)):
            self._violated("CommitsAreAsked", f"{value.decode()} is visible, and its producer has not committed it")
        shown = self._partly_visible.setdefault(producer, {})
        for earlier, where in shown.items():
            if earlier < int(transaction):
                partitions = len(self._committed_parts)
                self._violated(
                    "TransactionsAreAtomic",
                    f"{len(where)} of {partitions} records of txn {producer.decode()} {earlier} are visible, and "
                    f"transaction {int(transaction)} is visible",
                )
        where = shown.setdefault(int(transaction), set())
        where.add(number)
        if len(where) == len(self._committed_parts):
            del shown[int(transaction)]

    def _check_stable(self, number: int, known: CommittedPart, leader: Partition) -> None:
        expected = min(known.open_since.values(), default=known.end)
        actual = leader.log.producers.last_stable_offset(leader.high_watermark)
        if actual != expected:
            opened = next((known.waiting[each] for each, at in known.open_since.items() if at == expected), [])
            where = f", where {opened[0]!r} is undecided" if opened else ""
            self._violated("LastStableOffset", f"{TOPIC}-{number} returns {actual} instead of {expected}{where}")


def committed_values(batches: Iterator[tuple[BatchHeader, bytes]]) -> list[bytes]:
    """Return the values that a read_committed consumer sees.

    Derived from the batches alone, without the producer state of a broker.
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
    """Return the first offset of the first transaction without a marker, or -1. Derived from the batches alone."""
    open_since: dict[int, int] = {}
    for header, _ in batches:
        if header.is_control:
            open_since.pop(header.producer_id, None)
        elif header.is_transactional:
            open_since.setdefault(header.producer_id, header.base_offset)
    return min(open_since.values(), default=-1)


def undecided_markers(cluster: SimulatedCluster) -> set[tuple[str, int, int]]:
    """Return transactional id, epoch and start of each transaction that is decided and lacks a marker."""
    return {
        (entry.transactional_id, entry.producer_epoch, entry.started_ms)
        for entry in _coordinated(cluster)
        if entry.state in PREPARED
    }


def hanging_transactions(cluster: SimulatedCluster) -> Iterator[str]:
    """Yield a message for each open transaction of a partition that its coordinator will not end."""
    known = {entry.producer_id: entry for entry in _coordinated(cluster)}
    for number in range(cluster.settings.partitions):
        replica = cluster.replica(cluster.leader(number), number)
        for producer_id, producer in replica.log.producers.entries.items() if replica is not None else ():
            entry = known.get(producer_id)
            is_known = entry is not None and entry.state not in IDLE and (TOPIC, number) in entry.partitions
            if producer.transaction_start is not None and not is_known:
                yield f"producer {producer_id} has begun one in {TOPIC}-{number} at offset {producer.transaction_start}"


def _coordinated(cluster: SimulatedCluster) -> list[Transaction]:
    """Return the transactions as their coordinator has them; empty if there is none."""
    state = cluster.stored(0, TRANSACTIONS_TOPIC)
    broker = cluster.broker(state.leader) if state is not None and state.leader > 0 else None
    return [entry.current for entry in broker.transactions.store.entries.values()] if broker is not None else []


def torn_transactions(cluster: SimulatedCluster) -> Iterator[str]:
    """Yield a message for each transaction that is visible in some partitions only."""
    visible: dict[bytes, int] = {}
    partitions = cluster.settings.partitions
    for number in range(partitions):
        replica = cluster.replica(cluster.leader(number), number)
        if replica is None:
            return
        for value in committed_values(committed_batches(replica)):
            if value.startswith(PREFIX):
                name = value.rpartition(b" ")[0]
                visible[name] = visible.get(name, 0) + 1
    for name, count in visible.items():
        if count != partitions:
            yield f"{count} of {partitions} records of {name.decode()} are visible"


def wrong_stable_offsets(cluster: SimulatedCluster) -> Iterator[str]:
    """Yield a message for each leader whose last stable offset is not the start of its first open transaction.

    Without an open transaction it must be the high watermark.
    """
    for number in range(cluster.settings.partitions):
        replica = cluster.replica(cluster.leader(number), number)
        if replica is None:  # an election at the end of the run
            continue
        undecided = first_undecided(committed_batches(replica))
        expected = replica.high_watermark if undecided < 0 else undecided
        actual = replica.log.producers.last_stable_offset(replica.high_watermark)
        if actual != expected:
            yield f"{TOPIC}-{number} returns {actual} instead of {expected}"
