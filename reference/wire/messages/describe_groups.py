"""DescribeGroups (key 15): state and members of groups.

3 has authorised operations (KIP-430), 4 static members (KIP-345), 6 messages and an error for unknown groups
(KIP-1043).
"""

from typing import Annotated

from reference.wire.schema import Bool, Bytes, Int16, Int32, String, ignorable, message, since, struct


@message(api_key=15, versions="0-6", flexible_from=5)
class DescribeGroupsRequest:
    """Groups to describe."""

    groups: tuple[String, ...] = ()
    include_authorized_operations: Annotated[Bool, since(3)] = False


@struct
class DescribedGroupMember:
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(4), ignorable] = None
    client_id: String = ""
    client_host: String = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


@struct
class DescribedGroup:
    error_code: Int16 = 0
    error_message: Annotated[String | None, since(6)] = None
    group_id: String = ""
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: tuple[DescribedGroupMember, ...] = ()
    authorized_operations: Annotated[Int32, since(3)] = -2147483648


@message(api_key=15, versions="0-6", flexible_from=5)
class DescribeGroupsResponse:
    """Groups with their members; an unknown group is `Dead`."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    groups: tuple[DescribedGroup, ...] = ()
