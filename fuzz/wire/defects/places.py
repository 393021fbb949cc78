"""Defects with wrong values of a partition, producer or group: offsets, leaders, epochs, ids, metadata."""

from dataclasses import replace
from typing import Any, Final

from highwater.fuzz.wire.defects.harm import read
from highwater.fuzz.wire.defects.rewriting import (
    Change,
    encode_changed,
    map_committed,
    map_fetched,
    map_partitions,
)
from highwater.reference.effects import Response
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.framing import encode_request
from highwater.reference.wire.messages.metadata import FindCoordinatorResponse, MetadataResponse
from highwater.reference.wire.messages.transactions import InitProducerIdResponse

FETCH, LIST_OFFSETS, JOIN_GROUP, DELETE_RECORDS, END_TXN = 1, 2, 11, 21, 26
LATEST, FUTURE_MS = -1, 2**50
UNKNOWN_BROKER_ID: Final = 99
SHARED_PRODUCER_ID: Final = 1_000


def negative_throttle(response: Response, frame: bytes) -> bytes:
    """Return a negative throttle time."""
    body = response.body
    if isinstance(body, FindCoordinatorResponse) and body.error_code and response.api_version:
        return encode_changed(response, throttle_time_ms=-1)
    return frame


def low_watermark(response: Response, frame: bytes) -> bytes:
    """Return a high watermark that is below the returned records, as if they were read uncommitted."""
    return map_fetched(
        response, frame, lambda part: {"high_watermark": part.high_watermark - 1} if part.records else {}
    )


def beyond_the_end(response: Response, frame: bytes) -> bytes:
    """Return no error for an offset out of range, so that the reader waits forever."""
    out = ErrorCode.OFFSET_OUT_OF_RANGE
    return map_fetched(response, frame, lambda part: {"error_code": 0} if part.error_code == out else {})


def stale_leader(response: Response, frame: bytes) -> bytes:
    """Return outdated metadata, with a leader that does not exist."""
    body = response.body
    if not isinstance(body, MetadataResponse):
        return frame
    return encode_changed(response, topics=map_partitions(body.topics, lambda part: {"leader_id": UNKNOWN_BROKER_ID}))


def metadata_of_commit(response: Response, frame: bytes) -> bytes:
    """Return a committed offset without its metadata string."""
    return map_committed(response, frame, lambda part: {"metadata": ""})


def producer_id(response: Response, frame: bytes) -> bytes:
    body = response.body
    if isinstance(body, InitProducerIdResponse) and not body.error_code and not body.producer_epoch:
        return encode_changed(response, producer_id=SHARED_PRODUCER_ID)
    return frame


def epoch_ignored(frame: bytes) -> bytes:
    """Serve a fetch without checking its leader epoch (KIP-320)."""
    return _with_partitions(frame, FETCH, lambda part: {"current_leader_epoch": -1})


def end_for_never(frame: bytes) -> bytes:
    """ListOffsets for a future timestamp returns the log end offset instead of -1 (KIP-79)."""
    return _with_partitions(
        frame, LIST_OFFSETS, lambda part: {"timestamp": LATEST} if part.timestamp > FUTURE_MS else {}
    )


def deletes_too_little(frame: bytes) -> bytes:
    """Delete records up to the offset before the requested one (KIP-107)."""
    return _with_partitions(frame, DELETE_RECORDS, lambda part: {"offset": part.offset - 1} if part.offset > 0 else {})


def _with_partitions(frame: bytes, key: int, change: Change) -> bytes:
    request = read(frame, key)
    if request is None:
        return frame
    return _change_request(frame, key, topics=map_partitions(request[1].topics, change))


def aborts_commit(frame: bytes) -> bytes:
    """Commit a transaction even if EndTxn requests an abort."""
    return _change_request(frame, END_TXN, committed=True)


def subscription_lost(frame: bytes) -> bytes:
    """Drop the metadata in JoinGroup: the leader assigns without subscriptions, and no change causes a rebalance."""
    request = read(frame, JOIN_GROUP)
    if request is None:
        return frame
    protocols = tuple(replace(protocol, metadata=b"") for protocol in request[1].protocols)
    return _change_request(frame, JOIN_GROUP, protocols=protocols)


def _change_request(frame: bytes, key: int, **changed: Any) -> bytes:
    """Return the request with changed fields, or the same frame if nothing differs."""
    request = read(frame, key)
    if request is None:
        return frame
    header, body = request
    changed_body = replace(body, **changed)
    if changed_body == body:
        return frame
    return encode_request(changed_body, header.api_version, header.correlation_id, header.client_id)[4:]
