"""What a consumer delivers of the data of one partition in a Fetch response (Apache Kafka's CompletedFetch)."""

from dataclasses import dataclass

from highwater.reference.storage.producer_state import read_marker
from highwater.reference.wire.errors import DecodeError
from highwater.reference.wire.messages.fetch import PartitionData
from highwater.reference.wire.records import batch_headers, crc_valid, decode_records


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """`records` are (offset, value); `position` is the offset of the next fetch."""

    records: tuple[tuple[int, bytes], ...]
    position: int


def fetched_records(data: PartitionData, position: int, *, read_committed: bool) -> FetchedRecords:
    """Return the records from `position` on, without control records and, with `read_committed`, without aborted ones.

    The response lists aborted transactions by first offset. The records of such a producer are skipped from that offset
    up to its abort marker (KIP-98). Raises DecodeError for a batch with a wrong checksum.
    """
    content = bytes(data.records or b"")
    aborted = sorted(data.aborted_transactions or (), key=lambda transaction: transaction.first_offset)
    aborting: set[int] = set()
    records: list[tuple[int, bytes]] = []
    for start, header in batch_headers(content):
        batch = content[start : start + header.size]
        if not crc_valid(content, start, header):
            raise DecodeError(f"the batch at offset {header.base_offset} has a wrong checksum")
        while read_committed and aborted and aborted[0].first_offset <= header.last_offset:
            aborting.add(aborted.pop(0).producer_id)
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and not marker.committed:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            records += [(r.offset, r.value or b"") for r in decode_records(batch)[1] if r.offset >= position]
        position = max(position, header.next_offset)
    return FetchedRecords(tuple(records), position)
