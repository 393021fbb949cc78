"""CreateTopics (key 19): create topics; 4 takes the broker's defaults for -1 (KIP-464), 5 returns what came to be
(KIP-525), 7 the topic id.
"""

from typing import Annotated

from highwater.reference.wire.schema import (
    ZERO_UUID,
    Bool,
    Int8,
    Int16,
    Int32,
    String,
    Uuid,
    ignorable,
    message,
    nullable,
    since,
    struct,
    tagged,
    until,
)


@struct
class CreatableReplicaAssignment:
    partition_index: Int32 = 0
    broker_ids: tuple[Int32, ...] = ()


@struct
class CreatableTopicConfig:
    name: String = ""
    value: String | None = ""


@struct
class CreatableTopic:
    name: String = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: tuple[CreatableReplicaAssignment, ...] = ()
    configs: tuple[CreatableTopicConfig, ...] = ()


@message(api_key=19, versions="0-7", flexible_from=5)
class CreateTopicsRequest:
    """Topics with either a partition count or a manual assignment."""

    topics: tuple[CreatableTopic, ...] = ()
    timeout_ms: Int32 = 60000
    validate_only: Annotated[Bool, since(1)] = False


@struct
class CreatableTopicConfigs:
    name: String = ""
    value: String | None = ""
    read_only: Bool = False
    config_source: Annotated[Int8, ignorable] = -1
    is_sensitive: Bool = False


@struct
class CreatableTopicResult:
    name: String = ""
    topic_id: Annotated[Uuid, since(7), ignorable] = ZERO_UUID
    error_code: Int16 = 0
    error_message: Annotated[String | None, since(1), ignorable] = ""
    topic_config_error_code: Annotated[Int16, tagged(0, since=5), ignorable] = 0
    num_partitions: Annotated[Int32, since(5), ignorable] = -1
    replication_factor: Annotated[Int16, since(5), ignorable] = -1
    configs: Annotated[tuple[CreatableTopicConfigs, ...] | None, since(5), ignorable] = ()


@message(api_key=19, versions="0-7", flexible_from=5)
class CreateTopicsResponse:
    """What came to be of each topic."""

    throttle_time_ms: Annotated[Int32, since(2), ignorable] = 0
    topics: tuple[CreatableTopicResult, ...] = ()


# --------------------------------------------------------------------------------------------------
# CreatePartitions (key 37): add partitions to topics (KIP-195).


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
    """Topics with their new number of partitions."""

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


# --------------------------------------------------------------------------------------------------
# DeleteTopics (key 20): delete topics, by name or since 6 by id (KIP-516).


@struct
class DeleteTopicState:
    name: String | None = None
    topic_id: Uuid = ZERO_UUID


@message(api_key=20, versions="0-6", flexible_from=4)
class DeleteTopicsRequest:
    """`topic_names` up to 5, `topics` by name or id since 6."""

    topics: Annotated[tuple[DeleteTopicState, ...], since(6)] = ()
    topic_names: Annotated[tuple[String, ...], until(5), ignorable] = ()
    timeout_ms: Int32 = 0


@struct
class DeletableTopicResult:
    name: Annotated[String | None, nullable(since=6)] = ""
    topic_id: Annotated[Uuid, since(6), ignorable] = ZERO_UUID
    error_code: Int16 = 0
    error_message: Annotated[String | None, since(5), ignorable] = None


@message(api_key=20, versions="0-6", flexible_from=4)
class DeleteTopicsResponse:
    """What came to be of each topic."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    responses: tuple[DeletableTopicResult, ...] = ()
