"""JoinGroup (key 11): join a group and wait for the rebalance.

1 has its own rebalance timeout (KIP-62), 4 may answer with the member id to come back with (KIP-394), 5 static members
(KIP-345), 7 the protocol type, 8 a reason (KIP-800), 9 may spare a returning static leader the assignment (KIP-814).
"""

from typing import Annotated

from highwater.reference.wire.schema import (
    Bool,
    Bytes,
    Int16,
    Int32,
    String,
    ignorable,
    message,
    nullable,
    since,
    struct,
    until,
)


@struct
class JoinGroupRequestProtocol:
    name: String = ""
    metadata: Bytes = b""


@message(api_key=11, versions="0-9", flexible_from=6)
class JoinGroupRequest:
    """A member with its supported protocols, the preferred one first."""

    group_id: String = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, since(1), ignorable] = -1
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(5)] = None
    protocol_type: String = ""
    protocols: tuple[JoinGroupRequestProtocol, ...] = ()
    reason: Annotated[String | None, since(8), ignorable] = None


@struct
class JoinGroupResponseMember:
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(5), ignorable] = None
    metadata: Bytes = b""


@message(api_key=11, versions="0-9", flexible_from=6)
class JoinGroupResponse:
    """The new generation; only the leader gets the members."""

    throttle_time_ms: Annotated[Int32, since(2), ignorable] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[String | None, since(7), ignorable] = None
    protocol_name: Annotated[String | None, nullable(since=7)] = ""
    leader: String = ""
    skip_assignment: Annotated[Bool, since(9)] = False
    member_id: String = ""
    members: tuple[JoinGroupResponseMember, ...] = ()


# --------------------------------------------------------------------------------------------------
# DeleteGroups (key 42): delete empty groups with their offsets (KIP-229).


@message(api_key=42, versions="0-2", flexible_from=2)
class DeleteGroupsRequest:
    """Groups to delete."""

    groups_names: tuple[String, ...] = ()


@struct
class DeletableGroupResult:
    group_id: String = ""
    error_code: Int16 = 0


@message(api_key=42, versions="0-2", flexible_from=2)
class DeleteGroupsResponse:
    """One error code for each group."""

    throttle_time_ms: Int32 = 0
    results: tuple[DeletableGroupResult, ...] = ()


# --------------------------------------------------------------------------------------------------
# DescribeGroups (key 15): state and members of groups.
#
# 3 has authorised operations (KIP-430), 4 static members (KIP-345), 6 messages and an error for unknown groups
# (KIP-1043).


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


# --------------------------------------------------------------------------------------------------
# Heartbeat (key 12): keep the membership, and detect rebalances. 3 has static members (KIP-345).


@message(api_key=12, versions="0-4", flexible_from=4)
class HeartbeatRequest:
    """A member and its generation."""

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(3)] = None


@message(api_key=12, versions="0-4", flexible_from=4)
class HeartbeatResponse:
    """Whether the member must join again."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16 = 0


# --------------------------------------------------------------------------------------------------
# LeaveGroup (key 13): leave a group at once; since 3 several members in one request (KIP-345), 5 with reasons.


@struct
class MemberIdentity:
    member_id: String = ""
    group_instance_id: String | None = None
    reason: Annotated[String | None, since(5), ignorable] = None


@message(api_key=13, versions="0-5", flexible_from=4)
class LeaveGroupRequest:
    """One member in top-level fields up to 2, `members` since 3."""

    group_id: String = ""
    member_id: Annotated[String, until(2)] = ""
    members: Annotated[tuple[MemberIdentity, ...], since(3)] = ()


@struct
class MemberResponse:
    member_id: String = ""
    group_instance_id: String | None = ""
    error_code: Int16 = 0


@message(api_key=13, versions="0-5", flexible_from=4)
class LeaveGroupResponse:
    """One error code for each member."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16 = 0
    members: Annotated[tuple[MemberResponse, ...], since(3)] = ()


# --------------------------------------------------------------------------------------------------
# ListGroups (key 16): the groups of one coordinator; 4 filters by state (KIP-518), 5 by type (KIP-848).


@message(api_key=16, versions="0-5", flexible_from=3)
class ListGroupsRequest:
    """The states and types to list; empty means all."""

    states_filter: Annotated[tuple[String, ...], since(4)] = ()
    types_filter: Annotated[tuple[String, ...], since(5)] = ()


@struct
class ListedGroup:
    group_id: String = ""
    protocol_type: String = ""
    group_state: Annotated[String, since(4), ignorable] = ""
    group_type: Annotated[String, since(5), ignorable] = ""


@message(api_key=16, versions="0-5", flexible_from=3)
class ListGroupsResponse:
    """The groups."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16 = 0
    groups: tuple[ListedGroup, ...] = ()


# --------------------------------------------------------------------------------------------------
# SyncGroup (key 14): the leader sends the assignments, and every member receives its own.
#
# 3 has static members (KIP-345), 5 the protocol that the member expects (KIP-559).


@struct
class SyncGroupRequestAssignment:
    member_id: String = ""
    assignment: Bytes = b""


@message(api_key=14, versions="0-5", flexible_from=4)
class SyncGroupRequest:
    """The assignments if the member is the leader, else none."""

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, since(3)] = None
    protocol_type: Annotated[String | None, since(5), ignorable] = None
    protocol_name: Annotated[String | None, since(5), ignorable] = None
    assignments: tuple[SyncGroupRequestAssignment, ...] = ()


@message(api_key=14, versions="0-5", flexible_from=4)
class SyncGroupResponse:
    """The member's assignment, opaque to the broker."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[String | None, since(5), ignorable] = None
    protocol_name: Annotated[String | None, since(5), ignorable] = None
    assignment: Bytes = b""
