"""LeaveGroup (key 13): leave a group at once; since 3 several members in one request (KIP-345), 5 with reasons."""

from typing import Annotated

from reference.wire.schema import Int16, Int32, String, ignorable, message, since, struct, until


@struct
class MemberIdentity:
    member_id: String = ""
    group_instance_id: String | None = None
    reason: Annotated[String | None, since(5), ignorable] = None


@message(api_key=13, versions="0-5", flexible_from=4)
class LeaveGroupRequest:
    """One member up to 2, `members` since 3."""

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
    """Whether they were members."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Int16 = 0
    members: Annotated[tuple[MemberResponse, ...], since(3)] = ()
