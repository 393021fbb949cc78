"""A model of topics: partitions, replicas and ids, as Metadata and DescribeTopicPartitions describe them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from highwater.conformance.models.comparison import ANYTHING, Where
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import (
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from highwater.reference.wire.schema import ZERO_UUID

TOPIC_IDS_SINCE: Final = 10


@dataclass(slots=True, eq=False)
class TopicModel:
    """A topic that exists, with the replicas of its partitions; None where the broker chooses `factor` of them."""

    name: str
    factor: int
    replicas: list[Sequence[int] | None] = field(default_factory=list)
    topic_id: bytes = ZERO_UUID

    def in_metadata(self, nodes: frozenset[int]) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name=self.name, topic_id=self._id(),
            partitions=tuple(
                MetadataResponsePartition(**self._partition(number, nodes)) for number in range(len(self.replicas))
            ),
        )  # fmt: skip

    def in_pages(self, nodes: frozenset[int]) -> DescribeTopicPartitionsResponseTopic:
        nothing: Any = Where("no replicas", lambda value: not value)
        return DescribeTopicPartitionsResponseTopic(
            name=self.name, topic_id=self._id(), topic_authorized_operations=_whatever(),
            partitions=tuple(
                DescribeTopicPartitionsResponsePartition(
                    **self._partition(number, nodes), eligible_leader_replicas=nothing, last_known_elr=nothing
                )
                for number in range(len(self.replicas))
            ),
        )  # fmt: skip

    def _id(self) -> Any:
        return Where("an id", lambda value: value != ZERO_UUID) if self.topic_id == ZERO_UUID else self.topic_id

    def _partition(self, number: int, nodes: frozenset[int]) -> dict[str, Any]:
        """Return the fields of a partition whose replicas are all in sync, led by one of them."""
        given = self.replicas[number]

        def are_replicas(found: Sequence[int]) -> bool:
            if given is not None:
                return list(found) == list(given)
            return len(found) == len(set(found)) == self.factor and set(found) <= nodes

        def are_in_sync(found: Sequence[int]) -> bool:
            return len(found) == self.factor and (given is None or set(found) == set(given))

        leaders = frozenset(given) if given is not None else nodes
        return {
            "partition_index": number, "leader_id": Where(f"one of {set(leaders)}", lambda found: found in leaders),
            "leader_epoch": Where("an epoch", lambda found: found >= 0),
            "replica_nodes": Where(f"{given or self.factor} as replicas", are_replicas),
            "isr_nodes": Where(f"{given or self.factor} in sync", are_in_sync),
        }  # fmt: skip


def _whatever() -> Any:
    return ANYTHING


def absent_in_metadata(name: str, error: int = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name)


def absent_in_pages(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name, topic_authorized_operations=_whatever()
    )
