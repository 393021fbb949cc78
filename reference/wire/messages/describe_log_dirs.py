"""DescribeLogDirs (key 35): sizes of replicas, folder by folder (KIP-113).

3 has an error code of its own, 4 sizes of the volume (KIP-827), 5 tells cordoned folders (KIP-1066).
"""

from typing import Annotated

from reference.wire.schema import Bool, Int16, Int32, Int64, String, ignorable, message, since, struct


@struct
class DescribableLogDirTopic:
    topic: String = ""
    partitions: tuple[Int32, ...] = ()


@message(api_key=35, versions="0-5", flexible_from=2)
class DescribeLogDirsRequest:
    """Null `topics` asks for all."""

    topics: tuple[DescribableLogDirTopic, ...] | None = ()


@struct
class DescribeLogDirsPartition:
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False


@struct
class DescribeLogDirsTopic:
    name: String = ""
    partitions: tuple[DescribeLogDirsPartition, ...] = ()


@struct
class DescribeLogDirsResult:
    error_code: Int16 = 0
    log_dir: String = ""
    topics: tuple[DescribeLogDirsTopic, ...] = ()
    total_bytes: Annotated[Int64, since(4), ignorable] = -1
    usable_bytes: Annotated[Int64, since(4), ignorable] = -1
    is_cordoned: Annotated[Bool, since(5), ignorable] = False


@message(api_key=35, versions="0-5", flexible_from=2)
class DescribeLogDirsResponse:
    """Bytes of each replica, and how far it lags."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(3), ignorable] = 0
    results: tuple[DescribeLogDirsResult, ...] = ()
