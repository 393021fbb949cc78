"""Serve DescribeLogDirs (key 35) and AlterReplicaLogDirs (34) (KIP-113).

A broker has one log directory: a move to it succeeds at once, and a move to any other directory fails.
"""

from highwater.reference.context import Context
from highwater.reference.effects import Request
from highwater.reference.replication.replica_manager import ReplicaManager
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.replicas import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


class LogDirs:
    """Handlers for log directory requests."""

    def __init__(self, context: Context, replicas: ReplicaManager) -> None:
        self._context, self._replicas = context, replicas

    async def describe(self, request: Request) -> DescribeLogDirsResponse:
        """Return size in bytes and offset lag of each replica on this broker."""
        body: DescribeLogDirsRequest = request.body
        requested = None if body.topics is None else {(t.topic, number) for t in body.topics for number in t.partitions}
        topics: dict[str, list[DescribeLogDirsPartition]] = {}
        for (topic, number), partition in sorted(self._replicas.partitions.items()):
            if requested is None or (topic, number) in requested:
                replica = DescribeLogDirsPartition(
                    partition_index=number,
                    partition_size=sum(segment.size for segment in partition.log.segments),
                    offset_lag=max(partition.high_watermark - partition.log.log_end_offset, 0),
                )
                topics.setdefault(topic, []).append(replica)
        result = DescribeLogDirsResult(
            log_dir=self._context.config.log_dir,
            topics=tuple(
                DescribeLogDirsTopic(name=name, partitions=tuple(replicas)) for name, replicas in topics.items()
            ),
        )
        return DescribeLogDirsResponse(results=(result,))

    async def alter(self, request: Request) -> AlterReplicaLogDirsResponse:
        """Return an error code for each replica that the request moves."""
        body: AlterReplicaLogDirsRequest = request.body
        results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
        for log_dir in body.dirs:
            for topic in log_dir.topics:
                results.setdefault(topic.name, []).extend(
                    AlterReplicaLogDirPartitionResult(
                        partition_index=number, error_code=self._move(log_dir.path, topic.name, number)
                    )
                    for number in topic.partitions
                )
        return AlterReplicaLogDirsResponse(
            results=tuple(
                AlterReplicaLogDirTopicResult(topic_name=name, partitions=tuple(parts))
                for name, parts in results.items()
            )
        )

    def _move(self, path: str, topic: str, number: int) -> ErrorCode:
        if path != self._context.config.log_dir:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if (topic, number) in self._replicas.partitions:
            return ErrorCode.NONE
        is_elsewhere = self._replicas.partition_exists(topic, number)
        return ErrorCode.REPLICA_NOT_AVAILABLE if is_elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
