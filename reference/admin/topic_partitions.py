"""DescribeTopicPartitions (key 75): the partitions of topics page by page (KIP-966)."""

from reference.events import Request
from reference.metadata_cache import MetadataCache
from reference.topics import INTERNAL
from reference.wire.errors import ErrorCode
from reference.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

MAX_PAGE = 2_000


class TopicPartitions:
    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache

    async def describe(self, request: Request) -> DescribeTopicPartitionsResponse:
        """Topics by name from the cursor on; the next cursor is the first partition that found no room."""
        body: DescribeTopicPartitionsRequest = request.body
        names = sorted({topic.name for topic in body.topics} or self._cache.topics)
        start = ("", 0) if body.cursor is None else (body.cursor.topic_name, body.cursor.partition_index)
        room = max(min(body.response_partition_limit, MAX_PAGE), 1)
        topics: list[DescribeTopicPartitionsResponseTopic] = []
        for name in names:
            if name < start[0]:
                continue
            if name not in self._cache.topics:
                topics.append(
                    DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
                )
                continue
            numbers = [n for n in sorted(self._cache.topics[name].partitions) if name > start[0] or n >= start[1]]
            page, left = numbers[:room], numbers[room:]
            room -= len(page)
            if page:
                topics.append(self._topic(name, page))
            if left:
                cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=left[0])
                return DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=cursor)
        return DescribeTopicPartitionsResponse(topics=tuple(topics))

    def _topic(self, name: str, numbers: list[int]) -> DescribeTopicPartitionsResponseTopic:
        return DescribeTopicPartitionsResponseTopic(
            name=name,
            topic_id=self._cache.topics[name].topic_id,
            is_internal=name in INTERNAL,
            partitions=tuple(
                DescribeTopicPartitionsResponsePartition(**self._cache.described(name, number)) for number in numbers
            ),
        )
