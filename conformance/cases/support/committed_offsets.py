"""Helpers that commit and read the offset of one partition of a group."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from highwater.conformance.client.broker import Broker, Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.requests import message
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import TargetFailure, Unsupported
from highwater.conformance.models.offsets import Commit
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import OffsetCommitRequest, OffsetFetchRequest

T = TypeVar("T")

ONE_GROUP, MANY_GROUPS = 7, 8
OFFSETS_TOPIC: Final = "__consumer_offsets"


def commit(
    broker: Broker, group: str, topic: Topic, offset: int, *, metadata: str | None = "", epoch: int = -1,
    version: int | None = None, generation: int = -1, member_id: str = "", instance: str | None = None,
) -> int:  # fmt: skip
    part = {
        "partition_index": topic.partition, "committed_offset": offset, "committed_metadata": metadata,
        "committed_leader_epoch": epoch,
    }  # fmt: skip
    request = message(
        OffsetCommitRequest, group_id=group, generation_id_or_member_epoch=generation, member_id=member_id,
        group_instance_id=instance, topics=[{"name": topic.name, "partitions": [part]}],
    )  # fmt: skip
    return int(only(only(broker.call(request, version).topics).partitions).error_code)


def committed_topics(broker: Broker, group: str, topic: Topic | None, version: int | None = None, **fields: Any) -> Any:
    """Return the topics of an OffsetFetch reply; None requests all topics."""
    chosen = broker.version_of(OffsetFetchRequest) if version is None else version
    indexes = (topic.partition,) if topic else ()
    if chosen > ONE_GROUP:
        new = [{"name": topic.name, "partition_indexes": indexes}] if topic else None
        request = message(OffsetFetchRequest, groups=[{"group_id": group, "topics": new}], **fields)
        return only(broker.call(request, chosen).groups).topics
    old = [[topic.name, indexes]] if topic else None
    return broker.call(message(OffsetFetchRequest, group_id=group, topics=old, **fields), chosen).topics


def committed_part(broker: Broker, group: str, topic: Topic, version: int | None = None, **fields: Any) -> Any:
    """Return what OffsetFetch returns for the partition."""
    return only(only(committed_topics(broker, group, topic, version, **fields)).partitions)


def committed_offset(broker: Broker, group: str, topic: Topic) -> int:
    """Return the committed offset, -1 for none."""
    return int(committed_part(broker, group, topic).committed_offset)


def coordinated_offset(cluster: Cluster, group: str, topic: Topic) -> int:
    """Return the offset that the group's coordinator has committed, -1 for none; uses versions with one group."""
    with cluster.coordinator(group) as broker:
        part = committed_part(broker, group, topic, min(broker.version_of(OffsetFetchRequest), ONE_GROUP))
    expect("error code of OffsetFetch", 0, part.error_code)
    return int(part.committed_offset)


# -- a request with valid and invalid parts -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MixedCommit(Commit):
    """The commit of one partition, among others, and the error code with which it is answered."""

    error: int = 0

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.partition

    @property
    def fields(self) -> dict[str, Any]:
        """Return the fields that OffsetCommit and TxnOffsetCommit have in common."""
        return {
            "partition_index": self.partition, "committed_offset": self.offset,
            "committed_leader_epoch": self.leader_epoch, "committed_metadata": self.metadata,
        }  # fmt: skip


def mixed_commits(cluster: Cluster) -> list[MixedCommit]:
    """Return commits for partitions of two topics, with invalid ones between them and metadata at its limit."""
    first, second = (cluster.create_topic(partitions=2).name for _ in range(2))
    limit = cluster.setting("offset_metadata_max_bytes")
    return [
        MixedCommit(first, 0, 10, leader_epoch=0, metadata="first"),
        MixedCommit(first, 1000, 11, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        MixedCommit(first, 1, 12, metadata=None),
        MixedCommit(cluster.name(), 0, 13, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        MixedCommit(second, 0, 14, metadata="x" * (limit + 1), error=ErrorCode.OFFSET_METADATA_TOO_LARGE),
        MixedCommit(second, 1, 15, leader_epoch=3, metadata="x" * limit),
    ]


def by_topic(commits: Sequence[MixedCommit]) -> dict[str, list[MixedCommit]]:
    """Return the commits by topic, in their order."""
    return {name: [each for each in commits if each.topic == name] for name in dict.fromkeys(c.topic for c in commits)}


def error_codes(reply: Any) -> dict[tuple[str, int], int]:
    """Return the error codes of OffsetCommit or TxnOffsetCommit by partition."""
    return {(topic.name, part.partition_index): part.error_code for topic in reply.topics for part in topic.partitions}


def expected_errors(commits: Sequence[MixedCommit]) -> dict[tuple[str, int], int]:
    return {each.key: each.error for each in commits}


def expected_parts(commits: Sequence[MixedCommit]) -> dict[tuple[str, int], tuple[int, int, str]]:
    """Return offset, leader epoch and metadata of the commits without an error; null metadata is read as empty."""
    return {each.key: (each.offset, each.leader_epoch, each.metadata or "") for each in commits if not each.error}


def stored_parts(broker: Broker, group: str) -> dict[tuple[str, int], tuple[int, int, str]]:
    """Return offset, leader epoch and metadata of all committed offsets of the group."""
    return {
        (topic.name, part.partition_index): (part.committed_offset, part.committed_leader_epoch, part.metadata)
        for topic in committed_topics(broker, group, None)
        for part in topic.partitions
    }


def settled(cluster: Cluster, read: Callable[[], T], expected: T) -> T:
    """Return what `read` returns once it is as expected, or what it still returns after 10 s.

    What a group's next coordinator knows may be older for a moment (OFF-22); what counts here is that it is not lost.
    """
    with suppress(TargetFailure):
        cluster.eventually(f"{expected}", lambda: read() == expected)
    return read()


def offsets_partition(cluster: Cluster, group: str) -> Topic:
    """Return the partition of `__consumer_offsets` that stores the group; raises Unsupported if there is none."""
    cluster.coordinator(group)  # the topic is created for the first group
    found = cluster.describe(OFFSETS_TOPIC)
    if not found or not found.partitions:
        raise Unsupported(f"the target has no {OFFSETS_TOPIC}")
    return cluster.topic(OFFSETS_TOPIC, partition=java_hash(group) % len(found.partitions))


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode` of an ASCII text without its sign bit (Utils.abs)."""
    value = 0
    for character in text.encode():
        value = (31 * value + character) & 0xFFFF_FFFF
    return value & 0x7FFF_FFFF
