"""DescribeLogDirs (key 35): how large each replica of this broker is (KIP-113). There is one folder."""

from reference.context import Context
from reference.events import Request
from reference.replication.replica_manager import ReplicaManager
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
