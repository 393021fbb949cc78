"""Subscriptions and assignments in the encoding of the consumer protocol (KIP-429, KIP-792)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from highwater.reference.wire.codec import decode, encode
from highwater.reference.wire.messages.consumer_groups import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from highwater.reference.wire.schema import Int32, message, since

Partition = tuple[str, int]
Assignment = Mapping[str, frozenset[Partition]]
"""The partitions of every member id."""

NO_GENERATION: Final = -1


@message(versions="0-1")
class StickyUserData:
    """The user data of a subscription for Apache Kafka's StickyAssignor (KIP-54, KIP-341)."""

    previous_assignment: tuple[TopicPartition, ...] = ()
    generation: Annotated[Int32, since(1)] = NO_GENERATION


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member's topics and owned partitions; `generation` is that of their assignment, -1 if unknown."""

    topics: frozenset[str]
    owned: frozenset[Partition] = frozenset()
    generation: int = NO_GENERATION
    instance_id: str | None = None

    def encode(self) -> bytes:
        return encode_subscription(
            ConsumerProtocolSubscription(
                topics=tuple(sorted(self.topics)),
                owned_partitions=_by_topic(self.owned),
                generation_id=self.generation,
            )
        )

    def encode_revoked(self) -> bytes:
        """Encode for the eager sticky assignor: the partitions are the previous assignment, not a claim."""
        user_data = StickyUserData(previous_assignment=_by_topic(self.owned), generation=self.generation)
        topics = tuple(sorted(self.topics))
        return encode_subscription(ConsumerProtocolSubscription(topics=topics, user_data=encode(user_data, 1)))

    @classmethod
    def decode(cls, data: bytes, instance_id: str | None = None) -> "Subscription":
        """Decode the metadata of a JoinGroup. Raises `DecodeError`."""
        found = decode_subscription(data)
        owned, generation = found.owned_partitions, found.generation_id
        if found.user_data is not None:
            user_data = decode(StickyUserData, 1, found.user_data)
            owned, generation = user_data.previous_assignment, user_data.generation
        return cls(frozenset(found.topics), _flat(owned), generation, instance_id)


def pack_assignment(partitions: Iterable[Partition]) -> bytes:
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=_by_topic(partitions)))


def unpack_assignment(data: bytes) -> frozenset[Partition]:
    """Decode the assignment of a SyncGroup response. Raises `DecodeError`."""
    return _flat(decode_assignment(data).assigned_partitions)


def _flat(topics: Iterable[TopicPartition]) -> frozenset[Partition]:
    return frozenset((topic.topic, number) for topic in topics for number in topic.partitions)


def _by_topic(partitions: Iterable[Partition]) -> tuple[TopicPartition, ...]:
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        numbers.setdefault(topic, []).append(number)
    return tuple(TopicPartition(topic=topic, partitions=tuple(found)) for topic, found in numbers.items())
