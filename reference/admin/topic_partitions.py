"""Serve DescribeTopicPartitions (key 75), which returns the partitions of topics in pages (KIP-966)."""

from highwater.reference.effects import Request
from highwater.reference.metadata import TOPIC_OPERATIONS
from highwater.reference.metadata_cache import MetadataCache
from highwater.reference.topics import INTERNAL_TOPICS, is_legal_name
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

MAX_PAGE = 2_000  # partitions


class TopicPartitions:
    """Pages through the partitions in the metadata cache."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache

    async def describe(self, request: Request) -> DescribeTopicPartitionsResponse:
        """Return one page of topics, sorted by name, from the cursor on, each with its authorized operations.

        The next cursor is the first partition that does not fit in the page.
        """
        body: DescribeTopicPartitionsRequest = request.body
        if _is_invalid(body):
            return _refused(body)
        names = sorted({topic.name for topic in body.topics} or self._cache.topics)
        start = ("", 0) if body.cursor is None else (body.cursor.topic_name, body.cursor.partition_index)
        capacity = max(min(body.response_partition_limit, MAX_PAGE), 1)
        topics: list[DescribeTopicPartitionsResponseTopic] = []
        for name in names:
            if name < start[0]:
                continue
            if name not in self._cache.topics:
                topics.append(_unknown_topic(name))
                continue
            numbers = [n for n in sorted(self._cache.topics[name].partitions) if name > start[0] or n >= start[1]]
            page, remaining = numbers[:capacity], numbers[capacity:]
            capacity -= len(page)
            if page or not remaining:  # a cursor may be behind the last partition
                topics.append(self._topic(name, page))
            if remaining:
                cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=remaining[0])
                return DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=cursor)
        return DescribeTopicPartitionsResponse(topics=tuple(topics))

    def _topic(self, name: str, numbers: list[int]) -> DescribeTopicPartitionsResponseTopic:
        return DescribeTopicPartitionsResponseTopic(
            name=name,
            topic_id=self._cache.topics[name].topic_id,
            is_internal=name in INTERNAL_TOPICS,
            topic_authorized_operations=TOPIC_OPERATIONS,
            partitions=tuple(
                DescribeTopicPartitionsResponsePartition(
                    **self._cache.partition_fields(name, number),
                    # Brokers do not learn of eligible leader replicas. Null would end Java's AdminClient.
                    eligible_leader_replicas=(),
                    last_known_elr=(),
                )
                for number in numbers
            ),
        )


def _is_invalid(body: DescribeTopicPartitionsRequest) -> bool:
    """Return whether the cursor is negative, or in a topic that the request does not list."""
    names = {topic.name for topic in body.topics}
    return body.cursor is not None and (
        body.cursor.partition_index < 0 or bool(names and body.cursor.topic_name not in names)
    )


def _refused(body: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=tuple(
            DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name)
            for topic in body.topics
        )
    )


def _unknown_topic(name: str) -> DescribeTopicPartitionsResponseTopic:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(
        error_code=error, name=name, topic_authorized_operations=TOPIC_OPERATIONS
    )
