"""Helpers that commit and read the offset of one partition of a group."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from highwater.conformance.broker import Broker, Topic, only
from highwater.conformance.cluster import Cluster
from highwater.conformance.failures import TargetFailure
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

T = TypeVar("T")

MANY_GROUPS: Final = 8
OFFSETS_TOPIC: Final = "__consumer_offsets"


def commit(
    broker: Broker, group: str, topic: Topic, offset: int, *, metadata: str | None = "", epoch: int = -1,
    version: int | None = None, generation: int = -1, member_id: str = "", instance: str | None = None,
) -> int:  # fmt: skip
    part = OffsetCommitRequestPartition(
        partition_index=topic.partition, committed_offset=offset, committed_metadata=metadata,
        committed_leader_epoch=epoch,
    )  # fmt: skip
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation, member_id=member_id, group_instance_id=instance,
        topics=(OffsetCommitRequestTopic(name=topic.name, partitions=(part,)),),
    )  # fmt: skip
    return int(only(only(broker.call(request, version).topics).partitions).error_code)


def committed_topics(broker: Broker, group: str, topic: Topic | None, version: int | None = None, **fields: Any) -> Any:
    """Return the topics of an OffsetFetch reply; None requests all topics."""
    chosen = broker.version_of(OffsetFetchRequest) if version is None else version
    indexes = (topic.partition,) if topic else ()
    if chosen >= MANY_GROUPS:
        new = (OffsetFetchRequestTopics(name=topic.name, partition_indexes=indexes),) if topic else None
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=new),), **fields)
        return only(broker.call(request, chosen).groups).topics
    old = (OffsetFetchRequestTopic(name=topic.name, partition_indexes=indexes),) if topic else None
    return broker.call(OffsetFetchRequest(group_id=group, topics=old, **fields), chosen).topics


def committed_offset(broker: Broker, group: str, topic: Topic) -> int:
    """Return the committed offset, -1 for none."""
    return int(only(only(committed_topics(broker, group, topic)).partitions).committed_offset)


def settled(cluster: Cluster, read: Callable[[], T], expected: T) -> T:
    """Return what `read` returns once it is as expected, or what it still returns after 10 s.

    What a group's next coordinator knows may be older for a moment (OFF-22); what counts here is that it is not lost.
    """
    with suppress(TargetFailure):
        cluster.eventually(f"{expected}", lambda: read() == expected)
    return read()


def offsets_partition(cluster: Cluster, group: str) -> Topic:
    """Return the partition of `__consumer_offsets` that stores the group, with its leader."""
    cluster.coordinator(group)  # the topic is created for the first group
    found = cluster.describe(OFFSETS_TOPIC)
    assert found is not None
    return cluster.topic(OFFSETS_TOPIC, partition=java_hash(group) % len(found.partitions))


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode` of an ASCII text without its sign bit (Utils.abs)."""
    value = 0
    for character in text.encode():
        value = (31 * value + character) & 0xFFFF_FFFF
    return value & 0x7FFF_FFFF
