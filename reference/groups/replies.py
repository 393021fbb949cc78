"""Build the responses to JoinGroup and SyncGroup."""

from reference.groups.group import NO_GENERATION, Group, Member
from reference.wire.errors import ErrorCode
from reference.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from reference.wire.messages.sync_group import SyncGroupResponse


def member_list(group: Group) -> tuple[JoinGroupResponseMember, ...]:
    """Return every member with its metadata for the chosen protocol."""
    return tuple(
        JoinGroupResponseMember(
            member_id=m.member_id, group_instance_id=m.instance_id, metadata=m.metadata(group.protocol or "")
        )
        for m in group.members.values()
    )


def join_response(group: Group, member: Member) -> JoinGroupResponse:
    """Return the current generation; only the leader gets the member list."""
    is_leader = member.member_id == group.leader
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        member_id=member.member_id,
        members=member_list(group) if is_leader else (),
    )


def refuse_join(error: ErrorCode, member_id: str) -> JoinGroupResponse:
    """Return a JoinGroup response with this error."""
    return JoinGroupResponse(error_code=error, generation_id=NO_GENERATION, member_id=member_id)


def sync_response(group: Group, member: Member) -> SyncGroupResponse:
    """Return the member's assignment."""
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )
