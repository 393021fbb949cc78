"""The consumer protocol: subscriptions and assignments of group members."""

import pytest

from highwater.reference.wire.errors import BufferUnderflowError, DecodeError, UnsupportedVersionError
from highwater.reference.wire.messages.consumer_groups import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

SUBSCRIPTION = ConsumerProtocolSubscription(
    topics=("a", "b"),
    user_data=b"sticky",
    owned_partitions=(TopicPartition(topic="a", partitions=(0, 2)),),
    generation_id=5,
    rack_id="r1",
)
ASSIGNMENT = ConsumerProtocolAssignment(assigned_partitions=(TopicPartition(topic="a", partitions=(1,)),))


def test_newest_versions_round_trip() -> None:
    assert decode_subscription(encode_subscription(SUBSCRIPTION)) == SUBSCRIPTION
    assert decode_assignment(encode_assignment(ASSIGNMENT)) == ASSIGNMENT


@pytest.mark.parametrize(
    ("version", "kept"), [(0, ()), (1, ("owned_partitions",)), (2, ("owned_partitions", "generation_id"))]
)
def test_older_versions_omit_fields_they_lack(version: int, kept: tuple[str, ...]) -> None:
    values = {name: getattr(SUBSCRIPTION, name) for name in ("topics", "user_data", *kept)}
    written = encode_subscription(SUBSCRIPTION, version)
    assert written[:2] == bytes([0, version])
    assert decode_subscription(written) == ConsumerProtocolSubscription(**values)


def test_a_newer_version_is_read_as_the_newest_known() -> None:
    """A member that is upgraded first must not break older members."""
    written = b"\x00\x09" + encode_subscription(SUBSCRIPTION)[2:] + b"fields of the future"
    assert decode_subscription(written) == SUBSCRIPTION
    assert decode_assignment(b"\x00\x09" + encode_assignment(ASSIGNMENT)[2:] + b"more") == ASSIGNMENT


def test_an_empty_assignment_has_no_partitions() -> None:
    assert decode_assignment(b"") == ConsumerProtocolAssignment()


def test_invalid_data_is_refused() -> None:
    with pytest.raises(BufferUnderflowError):
        decode_subscription(b"\0")
    with pytest.raises(UnsupportedVersionError):
        decode_assignment(b"\xff\xff\0\0\0\0")
    written = encode_subscription(SUBSCRIPTION)
    for end in range(len(written)):
        with pytest.raises(DecodeError):
            decode_subscription(written[:end])
