"""ConsumerGroupHeartbeat (key 68): the whole membership protocol of a consumer group in one request (KIP-848).

1 may subscribe by regular expression, and the member chooses its own id (KIP-1082).
"""

from typing import Annotated

from reference.wire.schema import ZERO_UUID, Int16, Int32, String, Uuid, message, since, struct


@struct
class TopicPartitions:
    topic_id: Uuid = ZERO_UUID
    partitions: tuple[Int32, ...] = ()


@message(api_key=68, versions="0-1", flexible_from=0)
class ConsumerGroupHeartbeatRequest:
    """What changed since the last heartbeat; null and -1 say that nothing did.

    `member_epoch` 0 joins, -1 leaves, and -2 leaves for a while as a static member.
    """

    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: tuple[String, ...] | None = None
    subscribed_topic_regex: Annotated[String | None, since(1)] = None
    server_assignor: String | None = None
    topic_partitions: tuple[TopicPartitions, ...] | None = None


@struct
class Assignment:
    topic_partitions: tuple[TopicPartitions, ...] = ()


@message(api_key=68, versions="0-1", flexible_from=0)
class ConsumerGroupHeartbeatResponse:
    """The member's epoch, and its assignment when that changed."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None
