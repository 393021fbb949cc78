"""The consumer protocol: the metadata in JoinGroup and the assignment in SyncGroup; opaque to the broker.

Both begin with an int16 version. A reader takes a newer version for the newest that it knows and ignores what follows,
so that assignors may be upgraded one member at a time. 1 has owned partitions (KIP-429), 2 the generation in which
they were owned (KIP-792), 3 racks (KIP-881).
"""

from typing import Annotated, TypeVar

from highwater.reference.wire.codec import decode_prefix, encode
from highwater.reference.wire.errors import BufferUnderflowError, UnsupportedVersionError
from highwater.reference.wire.schema import (
    ZERO_UUID,
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    String,
    Uuid,
    ignorable,
    message,
    schema_of,
    since,
    struct,
)

M = TypeVar("M")


@struct
class TopicPartition:
    topic: String = ""
    partitions: tuple[Int32, ...] = ()


@message(versions="0-3")
class ConsumerProtocolSubscription:
    """The topics of a member, and the partitions that it owns."""

    topics: tuple[String, ...] = ()
    user_data: Bytes | None = None
    owned_partitions: Annotated[tuple[TopicPartition, ...], since(1), ignorable] = ()
    generation_id: Annotated[Int32, since(2), ignorable] = -1
    rack_id: Annotated[String | None, since(3), ignorable] = None


@message(versions="0-3")
class ConsumerProtocolAssignment:
    """The partitions assigned to a member."""

    assigned_partitions: tuple[TopicPartition, ...] = ()
    user_data: Bytes | None = None


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int = 3) -> bytes:
    return version.to_bytes(2, "big", signed=True) + encode(subscription, version)


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Decode a subscription. Raises `DecodeError`."""
    return _decode(ConsumerProtocolSubscription, data)


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int = 3) -> bytes:
    return version.to_bytes(2, "big", signed=True) + encode(assignment, version)


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Decode an assignment. Raises `DecodeError`. Some leaders send no bytes to a member without partitions."""
    return _decode(ConsumerProtocolAssignment, data) if data else ConsumerProtocolAssignment()


def _decode(cls: type[M], data: bytes) -> M:
    if len(data) < 2:
        raise BufferUnderflowError(f"{cls.__name__} of {len(data)} bytes has no version")
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise UnsupportedVersionError(f"{cls.__name__} version {version}")
    return decode_prefix(cls, min(version, schema_of(cls).versions.last), data, 2)[0]


# --------------------------------------------------------------------------------------------------
# ConsumerGroupDescribe (key 69): epochs, members and assignments of consumer groups (KIP-848).
#
# 1 adds the member type: classic or new protocol (KIP-1099).


@message(api_key=69, versions="0-1", flexible_from=0)
class ConsumerGroupDescribeRequest:
    """Groups to describe."""

    group_ids: tuple[String, ...] = ()
    include_authorized_operations: Bool = False


@struct
class TopicPartitions:
    topic_id: Uuid = ZERO_UUID
    topic_name: String = ""
    partitions: tuple[Int32, ...] = ()


@struct
class Assignment:
    topic_partitions: tuple[TopicPartitions, ...] = ()


@struct
class Member:
    member_id: String = ""
    instance_id: String | None = None
    rack_id: String | None = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: tuple[String, ...] = ()
    subscribed_topic_regex: String | None = None
    assignment: Assignment = Assignment()
    target_assignment: Assignment = Assignment()
    member_type: Annotated[Int8, since(1)] = -1


@struct
class DescribedGroup:
    error_code: Int16 = 0
    error_message: String | None = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: tuple[Member, ...] = ()
    authorized_operations: Int32 = -2147483648


@message(api_key=69, versions="0-1", flexible_from=0)
class ConsumerGroupDescribeResponse:
    """One entry for each group; an unknown one is an error."""

    throttle_time_ms: Int32 = 0
    groups: tuple[DescribedGroup, ...] = ()


# --------------------------------------------------------------------------------------------------
# ConsumerGroupHeartbeat (key 68): the whole membership protocol of a consumer group in one request (KIP-848).
#
# 1 may subscribe by regular expression, and the member chooses its own id (KIP-1082).


@struct
class HeartbeatTopicPartitions:
    topic_id: Uuid = ZERO_UUID
    partitions: tuple[Int32, ...] = ()


@message(api_key=68, versions="0-1", flexible_from=0)
class ConsumerGroupHeartbeatRequest:
    """The changes since the last heartbeat; null and -1 mean unchanged.

    `member_epoch` 0 joins, -1 leaves, and -2 leaves for a while as a static member.
    """

    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: tuple[String, ...] | None = None
    subscribed_topic_regex: Annotated[String | None, since(1)] = None
    server_assignor: String | None = None
    topic_partitions: tuple[HeartbeatTopicPartitions, ...] | None = None


@struct
class HeartbeatAssignment:
    topic_partitions: tuple[HeartbeatTopicPartitions, ...] = ()


@message(api_key=68, versions="0-1", flexible_from=0)
class ConsumerGroupHeartbeatResponse:
    """The member's epoch, and its assignment if it has changed."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: HeartbeatAssignment | None = None
