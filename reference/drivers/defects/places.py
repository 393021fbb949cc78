"""Lies about a partition or its readers: where it begins and ends, who leads it, whose epoch it is, whose id."""

from dataclasses import replace
from typing import Any, Final

from reference.drivers.defects.harm import read
from reference.drivers.defects.rewriting import Change, answered, in_committed, in_fetched, in_partitions
from reference.events import Response
from reference.wire.errors import ErrorCode
from reference.wire.framing import encode_request
from reference.wire.messages.find_coordinator import FindCoordinatorResponse
from reference.wire.messages.init_producer_id import InitProducerIdResponse
from reference.wire.messages.metadata import MetadataResponse

FETCH, LIST_OFFSETS, JOIN_GROUP, DELETE_RECORDS, END_TXN = 1, 2, 11, 21, 26
LATEST, LATE = -1, 2**50
GONE: Final = 99
ONE_FOR_ALL: Final = 1_000


def negative_throttle(response: Response, frame: bytes) -> bytes:
    """A time to wait that is over before it begins."""
    body = response.body
    if isinstance(body, FindCoordinatorResponse) and body.error_code and response.api_version:
        return answered(response, throttle_time_ms=-1)
    return frame


def low_watermark(response: Response, frame: bytes) -> bytes:
    """Records are served before they are committed."""
    return in_fetched(response, frame, lambda part: {"high_watermark": part.high_watermark - 1} if part.records else {})


def beyond_the_end(response: Response, frame: bytes) -> bytes:
    """Who reads where nothing is, or no longer, waits for ever."""
    out = ErrorCode.OFFSET_OUT_OF_RANGE
    return in_fetched(response, frame, lambda part: {"error_code": 0} if part.error_code == out else {})


def stale_leader(response: Response, frame: bytes) -> bytes:
    """Metadata of before: who leads is gone."""
    body = response.body
    if not isinstance(body, MetadataResponse):
        return frame
    return answered(response, topics=in_partitions(body.topics, lambda part: {"leader_id": GONE}))


def metadata_of_commit(response: Response, frame: bytes) -> bytes:
    """A commit is kept without what was said with it."""
    return in_committed(response, frame, lambda part: {"metadata": ""})


def producer_id(response: Response, frame: bytes) -> bytes:
    body = response.body
    if isinstance(body, InitProducerIdResponse) and not body.error_code and not body.producer_epoch:
        return answered(response, producer_id=ONE_FOR_ALL)
    return frame


def epoch_ignored(frame: bytes) -> bytes:
    """A fetch is served whatever leader epoch it knows of (KIP-320)."""
    return _with_partitions(frame, FETCH, lambda part: {"current_leader_epoch": -1})


def end_for_never(frame: bytes) -> bytes:
    """Of a time that has not come the end is told, as if it were asked for."""
    return _with_partitions(frame, LIST_OFFSETS, lambda part: {"timestamp": LATEST} if part.timestamp > LATE else {})


def deletes_too_little(frame: bytes) -> bytes:
    """Up to an offset, and not it: off by one."""
    return _with_partitions(frame, DELETE_RECORDS, lambda part: {"offset": part.offset - 1} if part.offset > 0 else {})


def _with_partitions(frame: bytes, key: int, change: Change) -> bytes:
    request = read(frame, key)
    if request is None:
        return frame
    return _asked(frame, key, topics=in_partitions(request[1].topics, change))


def aborts_commit(frame: bytes) -> bytes:
    """However a transaction is to end, it is committed."""
    return _asked(frame, END_TXN, committed=True)


def subscription_lost(frame: bytes) -> bytes:
    """What a member says of itself is not kept: the leader shares out without knowing, and no change is noticed."""
    request = read(frame, JOIN_GROUP)
    if request is None:
        return frame
    protocols = tuple(replace(each, metadata=b"") for each in request[1].protocols)
    return _asked(frame, JOIN_GROUP, protocols=protocols)


def _asked(frame: bytes, key: int, **changed: Any) -> bytes:
    """The same request with other values, where it has them."""
    request = read(frame, key)
    if request is None:
        return frame
    header, body = request
    other = replace(body, **changed)
    if other == body:
        return frame
    return encode_request(other, header.api_version, header.correlation_id, header.client_id)[4:]
