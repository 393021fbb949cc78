"""What the coordinator answers to JoinGroup and SyncGroup."""

from reference.groups.group import NO_GENERATION, Group, Member
from reference.wire.errors import ErrorCode
from reference.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from reference.wire.messages.sync_group import SyncGroupResponse


def member_list(group: Group) -> tuple[JoinGroupResponseMember, ...]:
    return tuple(
        JoinGroupResponseMember(
            member_id=m.member_id, group_instance_id=m.instance_id, metadata=m.metadata(group.protocol or "")
        )
        for m in group.members.values()
    )


def joined(group: Group, member: Member) -> JoinGroupResponse:
    """Only the leader sees the members."""
    leads = member.member_id == group.leader
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        member_id=member.member_id,
        members=member_list(group) if leads else (),
    )


def refuse_join(error: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, generation_id=NO_GENERATION, member_id=member_id)


def synced(group: Group, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )
