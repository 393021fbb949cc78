"""The records of consumer groups in `__consumer_offsets`, in the format of Apache Kafka 4.3.

The version of a key names its type (CoordinatorRecordType). A record without a value is a tombstone.
"""

from typing import Annotated, Any, Final, NamedTuple

from highwater.reference.groups.records import pack
from highwater.reference.wire.codec import decode
from highwater.reference.wire.schema import (
    ZERO_UUID,
    Bytes,
    Int8,
    Int32,
    Int64,
    String,
    Uuid,
    message,
    schema_of,
    struct,
    tagged,
)

VALUE_VERSION: Final = 0


@message(versions="3-3")
class ConsumerGroupMetadataKey:
    group_id: String = ""


@message(versions="0", flexible_from=0)
class ConsumerGroupMetadataValue:
    """The group epoch, and a hash of the subscribed topics as they were in this epoch (KIP-1101)."""

    epoch: Int32 = 0
    metadata_hash: Annotated[Int64, tagged(0, since=0)] = 0


@message(versions="4-4")
class ConsumerGroupPartitionMetadataKey:
    """What Apache Kafka 4.0 writes in place of the hash; nothing is read from it."""

    group_id: String = ""


@message(versions="5-5")
class ConsumerGroupMemberMetadataKey:
    group_id: String = ""
    member_id: String = ""


@struct
class ClassicProtocol:
    name: String = ""
    metadata: Bytes = b""


@struct
class ClassicMemberMetadata:
    session_timeout_ms: Int32 = 0
    supported_protocols: tuple[ClassicProtocol, ...] = ()


@message(versions="0", flexible_from=0)
class ConsumerGroupMemberMetadataValue:
    instance_id: String | None = None
    rack_id: String | None = None
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: tuple[String, ...] = ()
    subscribed_topic_regex: String | None = None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: String | None = None
    classic_member_metadata: Annotated[ClassicMemberMetadata | None, tagged(0, since=0)] = None


@message(versions="6-6")
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: String = ""


@message(versions="0", flexible_from=0)
class ConsumerGroupTargetAssignmentMetadataValue:
    """The epoch of the target assignment, and when it was computed (KIP-1263)."""

    assignment_epoch: Int32 = 0
    assignment_timestamp: Annotated[Int64, tagged(0, since=0)] = 0


@message(versions="7-7")
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: String = ""
    member_id: String = ""


@struct
class TargetTopicPartitions:
    topic_id: Uuid = ZERO_UUID
    partitions: tuple[Int32, ...] = ()


@message(versions="0", flexible_from=0)
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: tuple[TargetTopicPartitions, ...] = ()


@message(versions="8-8")
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: String = ""
    member_id: String = ""


@struct
class CurrentTopicPartitions:
    """Partitions of a topic, and the epochs in which they were assigned (KIP-1251), in the same order."""

    topic_id: Uuid = ZERO_UUID
    partitions: tuple[Int32, ...] = ()
    assignment_epochs: Annotated[tuple[Int32, ...] | None, tagged(0, since=0)] = None


@message(versions="0", flexible_from=0)
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: tuple[CurrentTopicPartitions, ...] = ()
    partitions_pending_revocation: tuple[CurrentTopicPartitions, ...] = ()


@message(versions="16-16")
class ConsumerGroupRegularExpressionKey:
    group_id: String = ""
    regular_expression: String = ""


@message(versions="0", flexible_from=0)
class ConsumerGroupRegularExpressionValue:
    """The topics that matched a pattern, in which version of the metadata, and when."""

    topics: tuple[String, ...] = ()
    version: Int64 = 0
    timestamp: Int64 = 0


# By type of key: the type of its value, or None if nothing is read from it.
VALUES: Final[dict[type[Any], type[Any] | None]] = {
    ConsumerGroupMetadataKey: ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey: None,
    ConsumerGroupMemberMetadataKey: ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupRegularExpressionKey: ConsumerGroupRegularExpressionValue,
}
KEYS: Final[dict[int, type[Any]]] = {schema_of(key).versions.first: key for key in VALUES}


class Change(NamedTuple):
    """A record before it is encoded; `value` None deletes what the key names."""

    key: Any
    value: Any


def pack_change(change: Change) -> tuple[bytes, bytes | None]:
    """Return key and value as they are stored."""
    key = pack(change.key, schema_of(type(change.key)).versions.first)
    return key, None if change.value is None else pack(change.value, VALUE_VERSION)


def unpack_change(key: bytes, value: bytes | None) -> Change | None:
    """Return the change, or None for a key of another type. Raises DecodeError for malformed bytes."""
    kind = KEYS.get(version := int.from_bytes(key[:2], "big"))
    if kind is None:
        return None
    value_kind = VALUES[kind]
    if value is None or value_kind is None:
        return Change(decode(kind, version, key[2:]), None)
    return Change(decode(kind, version, key[2:]), decode(value_kind, int.from_bytes(value[:2], "big"), value[2:]))
