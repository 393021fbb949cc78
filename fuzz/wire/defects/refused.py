"""Defects of a broker that reports an error and does the work nevertheless.

Each has two parts: the request is changed so that the broker carries it out, and its response gets the error code. They
are matched by the correlation id.
"""

from dataclasses import replace
from typing import Any, Final

from highwater.fuzz.wire.defects import batches
from highwater.fuzz.wire.defects.harm import read
from highwater.fuzz.wire.defects.rewriting import encode_changed, map_partitions
from highwater.reference.effects import Response
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.framing import encode_request
from highwater.reference.wire.messages.committed_offsets import OffsetCommitResponse
from highwater.reference.wire.messages.offsets import DeleteRecordsResponse
from highwater.reference.wire.messages.produce import ProduceResponse

PRODUCE, OFFSET_COMMIT, DELETE_RECORDS = 0, 8, 21
HIGH_WATERMARK: Final = -1
_refused: set[int] = set()


def append_corrupt(frame: bytes) -> bytes:
    """Append a batch whose CRC is wrong."""
    repaired = batches.checksum(frame)
    request = read(frame, PRODUCE)
    if repaired != frame and request is not None:
        _refused.add(request[0].correlation_id)
    return repaired


def report_corrupt(response: Response, frame: bytes) -> bytes:
    body = response.body
    if not isinstance(body, ProduceResponse) or response.correlation_id not in _refused:
        return frame
    _refused.discard(response.correlation_id)
    code = {"error_code": int(ErrorCode.CORRUPT_MESSAGE), "base_offset": -1}
    return encode_changed(response, responses=map_partitions(body.responses, lambda part: code, "partition_responses"))


def store_commit(frame: bytes) -> bytes:
    """Store the offsets of a member that the group does not know."""
    request = read(frame, OFFSET_COMMIT)
    if request is None or not request[1].member_id:
        return frame
    header, body = request
    _refused.add(header.correlation_id)
    changed = replace(body, member_id="", generation_id_or_member_epoch=-1, group_instance_id=None)
    return encode_request(changed, header.api_version, header.correlation_id, header.client_id)[4:]


def report_unknown_member(response: Response, frame: bytes) -> bytes:
    code = {"error_code": int(ErrorCode.UNKNOWN_MEMBER_ID)}
    return _with_codes(response, frame, OffsetCommitResponse, code)


def delete_beyond(frame: bytes) -> bytes:
    """Delete all records for an offset beyond the high watermark."""
    request = read(frame, DELETE_RECORDS)
    if request is None or not any(part.offset > 2**31 for topic in request[1].topics for part in topic.partitions):
        return frame
    header, body = request
    _refused.add(header.correlation_id)
    changed = replace(body, topics=map_partitions(body.topics, lambda part: {"offset": HIGH_WATERMARK}))
    return encode_request(changed, header.api_version, header.correlation_id, header.client_id)[4:]


def report_out_of_range(response: Response, frame: bytes) -> bytes:
    code = {"error_code": int(ErrorCode.OFFSET_OUT_OF_RANGE), "low_watermark": -1}
    return _with_codes(response, frame, DeleteRecordsResponse, code)


def _with_codes(response: Response, frame: bytes, kind: type[Any], code: dict[str, int]) -> bytes:
    if not isinstance(response.body, kind) or response.correlation_id not in _refused:
        return frame
    _refused.discard(response.correlation_id)
    return encode_changed(response, topics=map_partitions(response.body.topics, lambda part: code))
