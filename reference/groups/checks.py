"""Check that a request comes from a current member of the group and from the current generation."""

from highwater.reference.groups.group import NO_GENERATION, Group, GroupState, Member
from highwater.reference.groups.store import GroupStore
from highwater.reference.guards import Guards
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.groups import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse


class MemberChecks:
    """The checks of member id, instance id and generation that all group requests share."""

    def __init__(self, store: GroupStore, guards: Guards) -> None:
        self._store, self._guards = store, guards

    @property
    def fencing_error(self) -> ErrorCode:
        """Return the error for a replaced static member; FENCED_INSTANCE_ID makes its client close (KIP-345)."""
        return ErrorCode.FENCED_INSTANCE_ID if self._guards.fence_instance else ErrorCode.UNKNOWN_MEMBER_ID

    def check_member(self, group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return NONE for a member that no newer instance has replaced."""
        if instance_id is not None:
            current_id = group.static_members.get(instance_id)
            if current_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current_id != member_id:
                return self.fencing_error
        return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID

    def find_group(
        self, group_id: str, member_id: str, instance_id: str | None, generation_id: int, *,
        fenced: bool, members_only: bool = True,
    ) -> tuple[ErrorCode, Group | None]:  # fmt: skip
        """Return the group and NONE, or an error; `fenced` checks the generation, `members_only` the membership."""
        error = self._store.check(group_id)
        if error is not ErrorCode.NONE:
            return error, None
        group = self._store.groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            return ErrorCode.UNKNOWN_MEMBER_ID, None
        error = self.check_member(group, member_id, instance_id)
        if error is ErrorCode.UNKNOWN_MEMBER_ID and not members_only:
            error = ErrorCode.NONE
        if error is ErrorCode.NONE and fenced and generation_id != group.generation_id:
            error = ErrorCode.ILLEGAL_GENERATION
        return error, group

    def find_committer(
        self, group_id: str, member_id: str, instance_id: str | None, generation_id: int
    ) -> tuple[ErrorCode, Group | None]:
        """Find the group for an offset commit; guards decide which checks apply."""
        return self.find_group(
            group_id, member_id, instance_id, generation_id,
            fenced=self._guards.fence_stale_generation, members_only=self._guards.members_commit_only,
        )  # fmt: skip


# --------------------------------------------------------------------------------------------------
# Build the responses to JoinGroup and SyncGroup.


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
    return JoinGroupResponse(error_code=error, generation_id=NO_GENERATION, protocol_name=None, member_id=member_id)


def sync_response(group: Group, member: Member) -> SyncGroupResponse:
    """Return the member's assignment."""
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )
