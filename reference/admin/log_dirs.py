"""DescribeLogDirs (key 35): how large each replica here is; AlterReplicaLogDirs (34): where it lies (KIP-113).

There is one folder: a move to it is done already, and there is nowhere else to move to.
"""

from reference.context import Context
from reference.events import Request
from reference.replication.replica_manager import ReplicaManager
from reference.wire.errors import ErrorCode
from reference.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from reference.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


class LogDirs:
    def __init__(self, context: Context, replicas: ReplicaManager) -> None:
        self._context, self._replicas = context, replicas

    async def describe(self, request: Request) -> DescribeLogDirsResponse:
        body: DescribeLogDirsRequest = request.body
        wanted = None if body.topics is None else {(t.topic, number) for t in body.topics for number in t.partitions}
        topics: dict[str, list[DescribeLogDirsPartition]] = {}
        for (topic, number), partition in sorted(self._replicas.partitions.items()):
            if wanted is None or (topic, number) in wanted:
                found = DescribeLogDirsPartition(
                    partition_index=number,
                    partition_size=sum(segment.size for segment in partition.log.segments),
                    offset_lag=max(partition.high_watermark - partition.log.log_end_offset, 0),
                )
                topics.setdefault(topic, []).append(found)
        result = DescribeLogDirsResult(
            log_dir=self._context.config.log_dir,
            topics=tuple(DescribeLogDirsTopic(name=name, partitions=tuple(found)) for name, found in topics.items()),
        )
        return DescribeLogDirsResponse(results=(result,))

    async def alter(self, request: Request) -> AlterReplicaLogDirsResponse:
        body: AlterReplicaLogDirsRequest = request.body
        results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
        for folder in body.dirs:
            for topic in folder.topics:
                results.setdefault(topic.name, []).extend(
                    AlterReplicaLogDirPartitionResult(
                        partition_index=number, error_code=self._move(folder.path, topic.name, number)
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
        if (topic, number) not in self._replicas.partitions:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        return ErrorCode.NONE
