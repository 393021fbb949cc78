"""CreatePartitions (key 37): give topics more partitions (KIP-195)."""

from reference.wire.schema import Bool, Int16, Int32, String, message, struct


@struct
class CreatePartitionsAssignment:
    broker_ids: tuple[Int32, ...] = ()


@struct
class CreatePartitionsTopic:
    name: String = ""
    count: Int32 = 0
    assignments: tuple[CreatePartitionsAssignment, ...] | None = ()


@message(api_key=37, versions="0-3", flexible_from=2)
class CreatePartitionsRequest:
    """Topics with their new total of partitions."""

    topics: tuple[CreatePartitionsTopic, ...] = ()
    timeout_ms: Int32 = 0
    validate_only: Bool = False


@struct
class CreatePartitionsTopicResult:
    name: String = ""
    error_code: Int16 = 0
    error_message: String | None = None


@message(api_key=37, versions="0-3", flexible_from=2)
class CreatePartitionsResponse:
    """What came to be of each topic."""

    throttle_time_ms: Int32 = 0
    results: tuple[CreatePartitionsTopicResult, ...] = ()
