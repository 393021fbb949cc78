"""What members tell the leader, and what it tells them, as the consumer protocol writes it down (KIP-429, KIP-792)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from reference.wire.codec import decode, encode
from reference.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from reference.wire.schema import Int32, message, since

Partition = tuple[str, int]
Assignment = Mapping[str, frozenset[Partition]]
"""Of each member id, its partitions."""

NO_GENERATION: Final = -1


@message(versions="0-1")
class StickyUserData:
    """What Apache Kafka's StickyAssignor puts into the user data of a subscription (KIP-54, KIP-341)."""

    previous_assignment: tuple[TopicPartition, ...] = ()
    generation: Annotated[Int32, since(1)] = NO_GENERATION


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics that a member wants; the partitions that it has, since `generation`. -1: it does not say."""

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
        """For the eager sticky assignor: the partitions are what the member had, and has revoked; it claims nothing."""
        had = StickyUserData(previous_assignment=_by_topic(self.owned), generation=self.generation)
        topics = tuple(sorted(self.topics))
        return encode_subscription(ConsumerProtocolSubscription(topics=topics, user_data=encode(had, 1)))

    @classmethod
    def decode(cls, data: bytes, instance_id: str | None = None) -> "Subscription":
        """Raises `DecodeError`."""
        found = decode_subscription(data)
        owned, generation = found.owned_partitions, found.generation_id
        if found.user_data is not None:
            had = decode(StickyUserData, 1, found.user_data)
            owned, generation = had.previous_assignment, had.generation
        return cls(frozenset(found.topics), _flat(owned), generation, instance_id)


def pack_assignment(partitions: Iterable[Partition]) -> bytes:
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=_by_topic(partitions)))


def unpack_assignment(data: bytes) -> frozenset[Partition]:
    """Raises `DecodeError`."""
    return _flat(decode_assignment(data).assigned_partitions)


def _flat(topics: Iterable[TopicPartition]) -> frozenset[Partition]:
    return frozenset((each.topic, number) for each in topics for number in each.partitions)


def _by_topic(partitions: Iterable[Partition]) -> tuple[TopicPartition, ...]:
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        numbers.setdefault(topic, []).append(number)
    return tuple(TopicPartition(topic=topic, partitions=tuple(found)) for topic, found in numbers.items())
