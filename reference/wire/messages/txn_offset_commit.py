"""TxnOffsetCommit (key 28): commit offsets as part of a transaction (KIP-98).

3 is fenced by the group's generation and member (KIP-447), 5 adds the group to the transaction (KIP-890).
"""

from typing import Annotated

from reference.wire.schema import Int16, Int32, Int64, String, ignorable, message, since, struct


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, since(2), ignorable] = -1
    committed_metadata: String | None = ""


@struct
class TxnOffsetCommitRequestTopic:
    name: String = ""
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = ()


@message(api_key=28, versions="0-5", flexible_from=3)
class TxnOffsetCommitRequest:
    """They count when the transaction commits."""

    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id: Annotated[Int32, since(3)] = -1
    member_id: Annotated[String, since(3)] = ""
    group_instance_id: Annotated[String | None, since(3)] = None
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = ()


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class TxnOffsetCommitResponseTopic:
    name: String = ""
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = ()


@message(api_key=28, versions="0-5", flexible_from=3)
class TxnOffsetCommitResponse:
    """One error code for each partition."""

    throttle_time_ms: Int32 = 0
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = ()
