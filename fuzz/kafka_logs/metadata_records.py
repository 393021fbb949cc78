"""The records of `__cluster_metadata` that decide leaders, ISRs and the state of brokers (KIP-500, 631, 966).

A record is a frame version, the API key of its type and its version, each a varint, and then the message, which is
flexible in every version (MetadataRecordSerde).
"""

from typing import Annotated, Any, Final

from highwater.reference.wire.codec import decode_prefix
from highwater.reference.wire.errors import BufferUnderflowError, DecodeError, UnsupportedVersionError
from highwater.reference.wire.readers import read_uvarint
from highwater.reference.wire.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    String,
    UInt16,
    Uuid,
    message,
    schema_of,
    since,
    struct,
    tagged,
)

FRAME_VERSION: Final = 1
NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2
"""PartitionRegistration.merge: the record does not name a leader, and the leader epoch does not change."""
FENCE, UNFENCE = 1, -1


@struct
class BrokerEndpoint:
    name: String = ""
    host: String = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


@struct
class BrokerFeature:
    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


@message(versions="0-4", flexible_from=0, api_key=0)
class RegisterBrokerRecord:
    broker_id: Int32 = -1
    is_migrating_zk_broker: Annotated[Bool, since(2)] = False
    incarnation_id: Uuid = bytes(16)
    broker_epoch: Int64 = -1
    end_points: tuple[BrokerEndpoint, ...] = ()
    features: tuple[BrokerFeature, ...] = ()
    rack: String | None = None
    fenced: Bool = True
    in_controlled_shutdown: Annotated[Bool, since(1)] = False
    log_dirs: Annotated[tuple[Uuid, ...], tagged(0, since=3)] = ()


@message(versions="0", flexible_from=0, api_key=2)
class TopicRecord:
    name: String = ""
    topic_id: Uuid = bytes(16)


@message(versions="0-2", flexible_from=0, api_key=3)
class PartitionRecord:
    partition_id: Int32 = -1
    topic_id: Uuid = bytes(16)
    replicas: tuple[Int32, ...] = ()
    isr: tuple[Int32, ...] = ()
    removing_replicas: tuple[Int32, ...] = ()
    adding_replicas: tuple[Int32, ...] = ()
    leader: Int32 = -1
    leader_recovery_state: Annotated[Int8, tagged(0, since=0)] = 0
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: Annotated[tuple[Uuid, ...], since(1)] = ()
    eligible_leader_replicas: Annotated[tuple[Int32, ...] | None, tagged(1, since=2)] = None
    last_known_elr: Annotated[tuple[Int32, ...] | None, tagged(2, since=2)] = None


@message(versions="0", flexible_from=0, api_key=4)
class ConfigRecord:
    resource_type: Int8 = 0
    resource_name: String = ""
    name: String = ""
    value: String | None = None


@message(versions="0-2", flexible_from=0, api_key=5)
class PartitionChangeRecord:
    partition_id: Int32 = -1
    topic_id: Uuid = bytes(16)
    isr: Annotated[tuple[Int32, ...] | None, tagged(0, since=0)] = None
    leader: Annotated[Int32, tagged(1, since=0)] = NO_LEADER_CHANGE
    replicas: Annotated[tuple[Int32, ...] | None, tagged(2, since=0)] = None
    removing_replicas: Annotated[tuple[Int32, ...] | None, tagged(3, since=0)] = None
    adding_replicas: Annotated[tuple[Int32, ...] | None, tagged(4, since=0)] = None
    leader_recovery_state: Annotated[Int8, tagged(5, since=0)] = -1
    eligible_leader_replicas: Annotated[tuple[Int32, ...] | None, tagged(6, since=2)] = None
    last_known_elr: Annotated[tuple[Int32, ...] | None, tagged(7, since=2)] = None
    directories: Annotated[tuple[Uuid, ...] | None, tagged(8, since=1)] = None


@message(versions="0", flexible_from=0, api_key=7)
class FenceBrokerRecord:
    id: Int32 = -1
    epoch: Int64 = -1


@message(versions="0", flexible_from=0, api_key=8)
class UnfenceBrokerRecord:
    id: Int32 = -1
    epoch: Int64 = -1


@message(versions="0", flexible_from=0, api_key=9)
class RemoveTopicRecord:
    topic_id: Uuid = bytes(16)


@message(versions="0", flexible_from=0, api_key=12)
class FeatureLevelRecord:
    name: String = ""
    feature_level: Int16 = 0


@message(versions="0-3", flexible_from=0, api_key=17)
class BrokerRegistrationChangeRecord:
    broker_id: Int32 = -1
    broker_epoch: Int64 = -1
    fenced: Annotated[Int8, tagged(0, since=0)] = 0
    in_controlled_shutdown: Annotated[Int8, tagged(1, since=1)] = 0
    log_dirs: Annotated[tuple[Uuid, ...], tagged(2, since=2)] = ()


@message(versions="0", flexible_from=0, api_key=28)
class ClearElrRecord:
    topic_name: String = ""


DECODED: Final = {
    schema_of(cls).api_key: cls
    for cls in (
        RegisterBrokerRecord, TopicRecord, PartitionRecord, ConfigRecord, PartitionChangeRecord, FenceBrokerRecord,
        UnfenceBrokerRecord, RemoveTopicRecord, FeatureLevelRecord, BrokerRegistrationChangeRecord, ClearElrRecord,
    )
}  # fmt: skip
IRRELEVANT: Final = {
    1: "UnregisterBrokerRecord",
    10: "DelegationTokenRecord",
    11: "UserScramCredentialRecord",
    14: "ClientQuotaRecord",
    15: "ProducerIdsRecord",
    18: "AccessControlEntryRecord",
    19: "RemoveAccessControlEntryRecord",
    20: "NoOpRecord",
    21: "ZkMigrationStateRecord",
    22: "RemoveUserScramCredentialRecord",
    23: "BeginTransactionRecord",
    24: "EndTransactionRecord",
    26: "RemoveDelegationTokenRecord",
    27: "RegisterControllerRecord",
}
"""Records that change no leader, ISR or session, by API key. AbortTransactionRecord (25) would undo others: unknown."""


def decode_metadata(value: bytes) -> tuple[str, Any]:
    """Return the name of a record's type and the record, or None for a type without effect on a partition.

    Raises DecodeError for another frame version, for an unknown type or version, and for malformed bytes.
    """
    try:
        frame, position = read_uvarint(value, 0)
        api_key, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except IndexError as error:
        raise BufferUnderflowError(f"a metadata record of {len(value)} bytes") from error
    if frame != FRAME_VERSION:
        raise UnsupportedVersionError(f"a metadata record of frame version {frame}")
    if api_key in IRRELEVANT:
        return IRRELEVANT[api_key], None
    if api_key not in DECODED:
        raise UnsupportedVersionError(f"a metadata record of type {api_key}")
    cls = DECODED[api_key]
    record, end = decode_prefix(cls, version, value, position)
    if end != len(value):
        raise DecodeError(f"{len(value) - end} bytes after a {cls.__name__}")
    return cls.__name__, record
