"""ConsumerGroupDescribe (key 69): epochs, members and assignments of consumer groups (KIP-848).

1 tells classic members from those of the new protocol (KIP-1099).
"""

from typing import Annotated

from reference.wire.schema import (
    ZERO_UUID,
    Bool,
    Int8,
    Int16,
    Int32,
    String,
    Uuid,
    message,
    since,
    struct,
)


@message(api_key=69, versions="0-1", flexible_from=0)
class ConsumerGroupDescribeRequest:
    """Groups to describe."""

    group_ids: tuple[String, ...] = ()
    include_authorized_operations: Bool = False


@struct
class TopicPartitions:
    topic_id: Uuid = ZERO_UUID
    topic_name: String = ""
    partitions: tuple[Int32, ...] = ()


@struct
class Assignment:
    topic_partitions: tuple[TopicPartitions, ...] = ()


@struct
class Member:
    member_id: String = ""
    instance_id: String | None = None
    rack_id: String | None = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: tuple[String, ...] = ()
    subscribed_topic_regex: String | None = None
    assignment: Assignment = Assignment()
    target_assignment: Assignment = Assignment()
    member_type: Annotated[Int8, since(1)] = -1


@struct
class DescribedGroup:
    error_code: Int16 = 0
    error_message: String | None = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: tuple[Member, ...] = ()
    authorized_operations: Int32 = -2147483648


@message(api_key=69, versions="0-1", flexible_from=0)
class ConsumerGroupDescribeResponse:
    """One entry for each group; an unknown one is an error."""

    throttle_time_ms: Int32 = 0
    groups: tuple[DescribedGroup, ...] = ()
