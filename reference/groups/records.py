"""Encode and decode records of `__consumer_offsets` in Apache Kafka's format: an int16 version, then the fields."""

from typing import Annotated, Any

from highwater.reference.wire.codec import decode, encode
from highwater.reference.wire.schema import Bytes, Int32, Int64, String, message, since, struct, versions

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
VALUE_VERSION = 3
EXPIRY_VALUE_VERSION = 1
"""The only version of an offset record with its own expiry time, so that Apache Kafka writes it for those."""


@message(versions="0-1")
class OffsetCommitKey:
    group: String = ""
    topic: String = ""
    partition: Int32 = 0


@message(versions="0-3")
class OffsetCommitValue:
    offset: Int64 = 0
    leader_epoch: Annotated[Int32, since(3)] = -1
    metadata: String = ""
    commit_timestamp: Int64 = -1
    expire_timestamp: Annotated[Int64, versions(1, 1)] = -1


@message(versions="2-2")
class GroupMetadataKey:
    group: String = ""


@struct
class MemberMetadata:
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(3)] = None
    client_id: String = ""
    client_host: String = ""
    rebalance_timeout: Annotated[Int32, since(1)] = -1
    session_timeout: Int32 = 0
    subscription: Bytes = b""
    assignment: Bytes = b""


@message(versions="0-3")
class GroupMetadataValue:
    protocol_type: String = ""
    generation: Int32 = 0
    protocol: String | None = None
    leader: String | None = None
    current_state_timestamp: Annotated[Int64, since(2)] = -1
    members: tuple[MemberMetadata, ...] = ()


def pack(message_: Any, version: int) -> bytes:
    """Return the encoded message behind its int16 version."""
    return version.to_bytes(2, "big") + encode(message_, version)


def unpack_key(data: bytes) -> OffsetCommitKey | GroupMetadataKey | None:
    """Return the key, or None for an unknown version, which the caller skips."""
    version = int.from_bytes(data[:2], "big")
    if version <= OFFSET_KEY_VERSION:
        return decode(OffsetCommitKey, version, data[2:])
    return decode(GroupMetadataKey, version, data[2:]) if version == GROUP_KEY_VERSION else None


def unpack_offset(data: bytes) -> OffsetCommitValue:
    """Return the value of an offset record; raise DecodeError for malformed bytes."""
    return decode(OffsetCommitValue, int.from_bytes(data[:2], "big"), data[2:])


def unpack_group(data: bytes) -> GroupMetadataValue:
    """Return the value of a group record; raise DecodeError for malformed bytes."""
    return decode(GroupMetadataValue, int.from_bytes(data[:2], "big"), data[2:])
