"""Defects in responses: a defect takes the response and its encoded frame, and returns the frame to send."""

from collections.abc import Callable
from typing import Any, Final

from highwater.fuzz.wire.defects.rewriting import encode_changed, map_committed, map_fetched, map_partitions
from highwater.reference.effects import Response
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.groups import (
    DescribeGroupsResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    SyncGroupResponse,
)
from highwater.reference.wire.messages.metadata import FindCoordinatorResponse, MetadataResponse
from highwater.reference.wire.messages.offsets import ListOffsetsResponse
from highwater.reference.wire.messages.produce import ProduceResponse

NO_ERROR_CODE: Final = 3_000
GENERATIONS: Final = 2
ResponseDefect = Callable[[Response, bytes], bytes | None]
"""A defect in a response; None sends nothing."""


def correlation_id(response: Response, frame: bytes) -> bytes:
    if isinstance(response.body, FindCoordinatorResponse) and response.body.error_code:
        return frame[:4] + (response.correlation_id - 1 & 0x7FFFFFFF).to_bytes(4, "big") + frame[8:]
    return frame


def dropped(response: Response, frame: bytes) -> bytes | None:
    if isinstance(response.body, DescribeGroupsResponse) and len(response.body.groups) > 1:
        return None
    return frame


def cut(response: Response, frame: bytes) -> bytes:
    if isinstance(response.body, ListOffsetsResponse) and any(
        part.error_code for topic in response.body.topics for part in topic.partitions
    ):
        return (len(frame) - 5).to_bytes(4, "big") + frame[4:-1]
    return frame


def null_topics(response: Response, frame: bytes) -> bytes:
    """Return a null name for an unknown topic, in versions where the name is not nullable."""
    if isinstance(response.body, MetadataResponse) and 1 <= response.api_version <= 8:
        for topic in response.body.topics:
            name = (topic.name or "").encode()
            if topic.error_code and name:
                at = frame.find(len(name).to_bytes(2, "big") + name)
                changed = frame[:at] + b"\xff\xff" + frame[at + 2 + len(name) :]
                return (len(changed) - 4).to_bytes(4, "big") + changed[4:]
    return frame


def error_code(response: Response, frame: bytes) -> bytes:
    if isinstance(response.body, HeartbeatResponse) and response.body.error_code:
        return encode_changed(response, error_code=NO_ERROR_CODE)
    return frame


def error_family(response: Response, frame: bytes) -> bytes:
    """Return an error code that belongs to another API."""
    if isinstance(response.body, HeartbeatResponse) and response.body.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
        return encode_changed(response, error_code=int(ErrorCode.MESSAGE_TOO_LARGE))
    return frame


def generation(response: Response, frame: bytes) -> bytes:
    if isinstance(response.body, JoinGroupResponse) and response.body.generation_id >= GENERATIONS:
        return encode_changed(response, generation_id=response.body.generation_id - 1)
    return frame


def committed_offset(response: Response, frame: bytes) -> bytes:
    return map_committed(response, frame, lambda part: {"committed_offset": -1})


def aborted(response: Response, frame: bytes) -> bytes:
    return map_fetched(response, frame, lambda part: {"aborted_transactions": ()})


def base_offset(response: Response, frame: bytes) -> bytes:
    body = response.body
    if not isinstance(body, ProduceResponse):
        return frame

    def one_less(part: Any) -> dict[str, Any]:
        return {"base_offset": part.base_offset - 1} if part.base_offset > 0 else {}

    return encode_changed(response, responses=map_partitions(body.responses, one_less, "partition_responses"))


def stable_offset(response: Response, frame: bytes) -> bytes:
    """Return the high watermark as the last stable offset."""
    return map_fetched(
        response, frame, lambda part: {"last_stable_offset": max(part.high_watermark, part.last_stable_offset)}
    )


def assignment(response: Response, frame: bytes) -> bytes:
    """Drop the last byte of the leader's assignment."""
    if isinstance(response.body, SyncGroupResponse) and response.body.assignment:
        return encode_changed(response, assignment=response.body.assignment[:-1])
    return frame
