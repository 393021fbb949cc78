"""DeleteRecords (key 21): move the log start offset forward (KIP-107)."""

from reference.wire.schema import Int16, Int32, Int64, String, message, struct


@struct
class DeleteRecordsPartition:
    partition_index: Int32 = 0
    offset: Int64 = 0


@struct
class DeleteRecordsTopic:
    name: String = ""
    partitions: tuple[DeleteRecordsPartition, ...] = ()


@message(api_key=21, versions="0-2", flexible_from=2)
class DeleteRecordsRequest:
    """The offsets before which records may go; -1 is the high watermark."""

    topics: tuple[DeleteRecordsTopic, ...] = ()
    timeout_ms: Int32 = 0


@struct
class DeleteRecordsPartitionResult:
    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


@struct
class DeleteRecordsTopicResult:
    name: String = ""
    partitions: tuple[DeleteRecordsPartitionResult, ...] = ()


@message(api_key=21, versions="0-2", flexible_from=2)
class DeleteRecordsResponse:
    """The new low watermark of each partition."""

    throttle_time_ms: Int32 = 0
    topics: tuple[DeleteRecordsTopicResult, ...] = ()
