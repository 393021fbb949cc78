"""Defects in what is answered: each gets the response and its encoded frame, and gives the frame that is sent."""

from collections.abc import Callable
from typing import Any, Final

from reference.drivers.defects.rewriting import answered, in_committed, in_fetched, in_partitions
from reference.events import Response
from reference.wire.errors import ErrorCode
from reference.wire.messages.describe_groups import DescribeGroupsResponse
from reference.wire.messages.find_coordinator import FindCoordinatorResponse
from reference.wire.messages.heartbeat import HeartbeatResponse
from reference.wire.messages.join_group import JoinGroupResponse
from reference.wire.messages.list_offsets import ListOffsetsResponse
from reference.wire.messages.metadata import MetadataResponse
from reference.wire.messages.produce import ProduceResponse
from reference.wire.messages.sync_group import SyncGroupResponse

NO_ERROR_CODE: Final = 3_000
GENERATIONS: Final = 2
Answer = Callable[[Response, bytes], bytes | None]
"""None: nothing is sent."""


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
    """The name of a topic that is not there is null, in versions that have no null for it."""
    if isinstance(response.body, MetadataResponse) and 1 <= response.api_version <= 8:
        for topic in response.body.topics:
            name = (topic.name or "").encode()
            if topic.error_code and name:
                at = frame.find(len(name).to_bytes(2, "big") + name)
                spoiled = frame[:at] + b"\xff\xff" + frame[at + 2 + len(name) :]
                return (len(spoiled) - 4).to_bytes(4, "big") + spoiled[4:]
    return frame


def error_code(response: Response, frame: bytes) -> bytes:
    if isinstance(response.body, HeartbeatResponse) and response.body.error_code:
        return answered(response, error_code=NO_ERROR_CODE)
    return frame


def error_family(response: Response, frame: bytes) -> bytes:
    """An error of another family of requests."""
    if isinstance(response.body, HeartbeatResponse) and response.body.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
        return answered(response, error_code=int(ErrorCode.MESSAGE_TOO_LARGE))
    return frame


def generation(response: Response, frame: bytes) -> bytes:
    if isinstance(response.body, JoinGroupResponse) and response.body.generation_id >= GENERATIONS:
        return answered(response, generation_id=response.body.generation_id - 1)
    return frame


def committed_offset(response: Response, frame: bytes) -> bytes:
    return in_committed(response, frame, lambda part: {"committed_offset": -1})


def aborted(response: Response, frame: bytes) -> bytes:
    return in_fetched(response, frame, lambda part: {"aborted_transactions": ()})


def base_offset(response: Response, frame: bytes) -> bytes:
    body = response.body
    if not isinstance(body, ProduceResponse):
        return frame

    def one_less(part: Any) -> dict[str, Any]:
        return {"base_offset": part.base_offset - 1} if part.base_offset > 0 else {}

    return answered(response, responses=in_partitions(body.responses, one_less, "partition_responses"))


def stable_offset(response: Response, frame: bytes) -> bytes:
    """The high watermark is taken for the last stable offset."""
    return in_fetched(
        response, frame, lambda part: {"last_stable_offset": max(part.high_watermark, part.last_stable_offset)}
    )


def assignment(response: Response, frame: bytes) -> bytes:
    """The last byte is lost of what the leader handed in."""
    if isinstance(response.body, SyncGroupResponse) and response.body.assignment:
        return answered(response, assignment=response.body.assignment[:-1])
    return frame
