"""What is in the log of a replica: batches, records, and the records that a read_committed consumer delivers."""

from collections.abc import Iterator
from typing import Final

from highwater.reference.replication.partition import Partition
from highwater.reference.storage.producer_state import read_marker
from highwater.reference.wire.records import BatchHeader, batch_headers, decode_records

EVERYTHING: Final = 1 << 26
Records = list[tuple[int, str]]
Batches = list[tuple[BatchHeader, bytes]]


def batches_of(replica: Partition, start: int, end: int) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield header and bytes of each batch between two offsets."""
    while start < end:
        data = replica.log.read(start, EVERYTHING, end, at_least_one=True)
        if not data:
            return
        for position, header in batch_headers(data):
            yield header, data[position : position + header.size]
            start = header.next_offset


def data_of(batches: Batches) -> Records:
    """Return (offset, value) of each data record."""
    return [
        (record.offset, (record.value or b"").decode())
        for header, batch in batches
        if not header.is_control
        for record in decode_records(batch)[1]
    ]


def committed_data(batches: Batches, last_stable_offset: int) -> Records:
    """Return what a read_committed consumer delivers: records below the last stable offset, except aborted ones."""
    delivered: Records = []
    undecided: dict[int, Records] = {}
    for header, batch in batches:
        marker = read_marker(batch) if header.is_control else None
        if marker is not None:
            decided = undecided.pop(header.producer_id, [])
            delivered += decided if marker.committed else []
        elif header.is_transactional and not header.is_control:
            undecided.setdefault(header.producer_id, []).extend(data_of([(header, batch)]))
        else:
            delivered += data_of([(header, batch)])
    shown = [*delivered, *(pair for records in undecided.values() for pair in records)]
    return sorted(pair for pair in shown if pair[0] < last_stable_offset)
