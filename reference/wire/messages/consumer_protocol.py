"""The consumer protocol: what members put into JoinGroup's metadata and SyncGroup's assignment; opaque to the broker.

Both begin with an int16 version. A reader takes a newer version for the newest that it knows and ignores what follows,
so that assignors may be upgraded one member at a time. 1 has owned partitions (KIP-429), 2 the generation in which
they were owned (KIP-792), 3 racks (KIP-881).
"""

from typing import Annotated, TypeVar

from reference.wire.codec import decode_prefix, encode
from reference.wire.errors import BufferUnderflowError, UnsupportedVersionError
from reference.wire.schema import Bytes, Int32, String, ignorable, message, schema_of, since, struct

M = TypeVar("M")


@struct
class TopicPartition:
    topic: String = ""
    partitions: tuple[Int32, ...] = ()


@message(versions="0-3")
class ConsumerProtocolSubscription:
    """The topics that a member wants, and the partitions that it has."""

    topics: tuple[String, ...] = ()
    user_data: Bytes | None = None
    owned_partitions: Annotated[tuple[TopicPartition, ...], since(1), ignorable] = ()
    generation_id: Annotated[Int32, since(2), ignorable] = -1
    rack_id: Annotated[String | None, since(3), ignorable] = None


@message(versions="0-3")
class ConsumerProtocolAssignment:
    """The partitions that a member gets."""

    assigned_partitions: tuple[TopicPartition, ...] = ()
    user_data: Bytes | None = None


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int = 3) -> bytes:
    return version.to_bytes(2, "big", signed=True) + encode(subscription, version)


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Raises `DecodeError`."""
    return _decode(ConsumerProtocolSubscription, data)


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int = 3) -> bytes:
    return version.to_bytes(2, "big", signed=True) + encode(assignment, version)


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Raises `DecodeError`. No bytes at all are what a member without partitions gets from some leaders."""
    return _decode(ConsumerProtocolAssignment, data) if data else ConsumerProtocolAssignment()


def _decode(cls: type[M], data: bytes) -> M:
    if len(data) < 2:
        raise BufferUnderflowError(f"{cls.__name__} of {len(data)} bytes has no version")
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise UnsupportedVersionError(f"{cls.__name__} version {version}")
    return decode_prefix(cls, min(version, schema_of(cls).versions.last), data, 2)[0]
