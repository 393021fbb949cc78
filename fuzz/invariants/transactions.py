"""Transactions as a reader of committed records sees them: each whole or not at all."""

from collections.abc import Iterator

from fuzz.simulated_cluster import TOPIC, SimulatedCluster
from reference.replication.partition import Partition
from reference.storage.producer_state import read_marker
from reference.wire.records import BatchHeader, batch_headers, decode_records

PREFIX = b"txn "


def committed_batches(replica: Partition) -> Iterator[tuple[BatchHeader, bytes]]:
    """All that is below the high watermark of a replica."""
    offset = replica.log.log_start_offset
    while offset < replica.high_watermark:
        data = replica.log.read(offset, 1 << 20, replica.high_watermark, at_least_one=True)
        for position, header in batch_headers(data):
            yield header, data[position : position + header.size]
            offset = header.next_offset


def committed_values(batches: Iterator[tuple[BatchHeader, bytes]]) -> tuple[list[bytes], int]:
    """What read_committed shows of them, and where its first undecided transaction begins, -1 if there is none.

    Made from the batches alone, without what a broker remembers of producers.
    """
    shown: list[bytes] = []
    open_since: dict[int, int] = {}
    waiting: dict[int, list[bytes]] = {}
    for header, batch in batches:
        if header.is_control:
            marker = read_marker(batch)
            values = waiting.pop(header.producer_id, [])
            open_since.pop(header.producer_id, None)
            if marker is not None and marker.committed:
                shown += values
            continue
        values = [record.value or b"" for record in decode_records(batch)[1]]
        if header.is_transactional:
            open_since.setdefault(header.producer_id, header.base_offset)
            waiting.setdefault(header.producer_id, []).extend(values)
        else:
            shown += values
    return shown, min(open_since.values(), default=-1)


def torn_transactions(cluster: SimulatedCluster) -> Iterator[str]:
    """Transactions of which some partitions show their record, and others do not."""
    seen: dict[bytes, int] = {}
    partitions = cluster.settings.partitions
    for number in range(partitions):
        replica = cluster.replica(cluster.leader(number), number)
        if replica is None:
            return
        for value in committed_values(committed_batches(replica))[0]:
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
        undecided = committed_values(committed_batches(replica))[1]
        expected = replica.high_watermark if undecided < 0 else undecided
        told = replica.log.producers.last_stable_offset(replica.high_watermark)
        if told != expected:
            yield f"{TOPIC}-{number} tells {told}, and it is {expected}"
