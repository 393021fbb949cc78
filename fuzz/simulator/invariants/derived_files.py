"""What a broker has read from its disk when it started: no damaged batch, and files that agree with the logs.

A broker reads indexes, transactions and producers from files that are derived from its logs, so only brokers that have
started again are checked, at the end of a run. The batches of each replica are read one after the other, without an
index, and each lookup is compared with them.
"""

from collections.abc import Collection, Iterator

from highwater.fuzz.simulator.cluster import SimulatedCluster
from highwater.fuzz.simulator.invariants.violations import About
from highwater.reference.effects import broker_peer
from highwater.reference.storage.log import Log
from highwater.reference.storage.producer_state import ProducerEntry, ProducerStates
from highwater.reference.storage.segment import Segment
from highwater.reference.wire.log_entries import entry_crc_valid
from highwater.reference.wire.records import BatchHeader


def wrong_files(cluster: SimulatedCluster, partitions: dict[tuple[str, int], bool]) -> Iterator[tuple[str, About]]:
    """Yield a message for each lookup that disagrees with a log; `partitions`: whether the log is compacted."""
    for broker_id in cluster.broker_ids:
        broker = cluster.broker(broker_id)
        if broker is None or cluster.world.life(broker_peer(broker_id)) == 1:
            continue
        for (topic, number), compacted in partitions.items():
            replica = broker.replicas.partitions.get((topic, number))
            if replica is None or replica.offline:
                continue
            for message in _of_a_log(replica.log, compacted=compacted):
                yield f"broker {broker_id}, {topic}-{number}: {message}", About(f"{topic}-{number}")


def damaged_batches(cluster: SimulatedCluster, broker_ids: Collection[int]) -> Iterator[tuple[str, About]]:
    """Yield a message for each batch with a wrong CRC in a log that one of these brokers has opened and may serve."""
    for broker_id in broker_ids:
        broker = cluster.broker(broker_id)
        for (topic, number), replica in broker.replicas.partitions.items() if broker is not None else ():
            for header in replica.log.headers(replica.log.log_start_offset) if not replica.offline else ():
                if not entry_crc_valid(_batch_of(replica.log, header), 0, header):
                    partition, offset = f"{topic}-{number}", header.base_offset
                    yield (
                        f"broker {broker_id} has a damaged batch at offset {offset} of {partition}",
                        About(partition, offset),
                    )


def _of_a_log(log: Log, *, compacted: bool) -> Iterator[str]:
    try:
        for segment in log.segments:
            batches = list(segment.headers())
            yield from _wrong_offsets(segment, batches)
            yield from _wrong_times(segment, batches)
        if not compacted:  # the state of a producer stays when compaction removes its batches
            yield from _wrong_producers(log)
    except OSError as error:
        yield str(error)


def _wrong_offsets(segment: Segment, batches: list[tuple[int, BatchHeader]]) -> Iterator[str]:
    for position, header in batches:
        found = segment.locate(header.base_offset)
        if found is None or found[0] != position:
            yield f"offset {header.base_offset} is at byte {position}, and the index leads to {found and found[0]}"


def _wrong_times(segment: Segment, batches: list[tuple[int, BatchHeader]]) -> Iterator[str]:
    """Look up the times after each entry: the index must not lead beyond the first batch with a later time."""
    for timestamp in segment.times.timestamps:
        first = next((place for place, header in batches if header.max_timestamp > timestamp), segment.size)
        found = segment.floor_of_time(timestamp + 1)
        if found > first:
            yield f"times after {timestamp} begin at byte {first}, and the index leads to {found}"


def _wrong_producers(log: Log) -> Iterator[str]:
    """Compare producers and aborted transactions with those of the whole log; a producer may have expired."""
    derived = ProducerStates(lambda header: _batch_of(log, header))
    for header in log.headers(log.log_start_offset):
        derived.update(header)
    expected = {producer: _known(entry) for producer, entry in derived.entries.items()}
    for producer, entry in log.producers.entries.items():
        if expected.get(producer) != _known(entry):
            yield f"producer {producer} has {_known(entry)}, and {expected.get(producer)} in the log"
    aborted, in_log = (
        {(each.producer_id, each.first_offset, each.last_offset) for each in states.aborted}
        for states in (log.producers, derived)
    )
    if aborted != in_log:
        yield f"aborted transactions are {sorted(aborted ^ in_log)} in the index or in the log only"


def _batch_of(log: Log, header: BatchHeader) -> bytes:
    first = max(header.base_offset, log.log_start_offset)  # the log may begin inside the batch (KIP-107)
    return log.read(first, header.size, header.next_offset, at_least_one=True)


def _known(entry: ProducerEntry) -> tuple[int | None, ...]:
    """Return what a snapshot has of a producer: epochs, the last batch, and the start of an open transaction."""
    last = entry.batches[-1] if entry.batches else None
    batch = (last.base_sequence, last.last_sequence, last.base_offset) if last is not None else ()
    return entry.epoch, entry.coordinator_epoch, entry.transaction_start, *batch
