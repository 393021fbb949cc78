"""A Fetch returns no more records than its limits allow (KIP-74).

`max_bytes` limits the whole response, `partition_max_bytes` one partition. Only the first batch of the first partition
with records may exceed both, so that a consumer always makes progress (ReplicaManager.readFromLog).
"""

import struct
from typing import Any, Final

BATCHES_SINCE: Final = 4  # version of Fetch
LENGTH_AT: Final = 8
LENGTH_END: Final = 12


def excess(version: int, request: Any, response: Any) -> str:
    """Return which limit of a Fetch its response exceeds; empty if none.

    Nothing is said about versions that may convert records to message sets, whose size differs from that in the log.
    """
    if version < BATCHES_SINCE:
        return ""
    limits = _limits(request)
    records = [
        ((topic.topic, topic.topic_id, part.partition_index), part.records)
        for topic in response.responses
        for part in topic.partitions
        if part.records
    ]
    if not records:
        return ""
    total, first = sum(len(data) for _, data in records), max(_first_batch(data) for _, data in records)
    if total > max(request.max_bytes, first):
        return f"{total} bytes of records, at most {request.max_bytes} are allowed, and the first batch has {first}"
    beyond = [(place, data) for place, data in records if len(data) > limits.get(place, len(data))]
    for number, (place, data) in enumerate(beyond):
        if number or len(data) > _first_batch(data):
            return f"{len(data)} bytes of records of partition {place[-1]}, at most {limits[place]} are allowed"
    return ""


def _limits(request: Any) -> dict[tuple[Any, ...], int]:
    """Return the largest limit of each partition; a request may name one twice."""
    limits: dict[tuple[Any, ...], int] = {}
    for topic in request.topics:
        for part in topic.partitions:
            place = topic.topic, topic.topic_id, part.partition
            limits[place] = max(limits.get(place, 0), part.partition_max_bytes)
    return limits


def _first_batch(data: bytes) -> int:
    """Return the size of the first batch, all of the data if it is cut."""
    if len(data) < LENGTH_END:
        return len(data)
    length: int = struct.unpack_from(">i", data, LENGTH_AT)[0]
    return min(LENGTH_END + max(length, 0), len(data))
