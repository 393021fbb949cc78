"""AlterReplicaLogDirs (key 34): move replicas between folders of a broker (KIP-113)."""

from reference.wire.schema import Int16, Int32, String, message, struct


@struct
class AlterReplicaLogDirTopic:
    name: String = ""
    partitions: tuple[Int32, ...] = ()


@struct
class AlterReplicaLogDir:
    path: String = ""
    topics: tuple[AlterReplicaLogDirTopic, ...] = ()


@message(api_key=34, versions="0-2", flexible_from=2)
class AlterReplicaLogDirsRequest:
    """Each folder with what is to lie there."""

    dirs: tuple[AlterReplicaLogDir, ...] = ()


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: String = ""
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...] = ()


@message(api_key=34, versions="0-2", flexible_from=2)
class AlterReplicaLogDirsResponse:
    """Error 57 (LOG_DIR_NOT_FOUND) for a folder that the broker has not."""

    throttle_time_ms: Int32 = 0
    results: tuple[AlterReplicaLogDirTopicResult, ...] = ()
