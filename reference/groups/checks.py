"""Who asks: a member of the group, of its present generation, and not one that another process replaced?"""

from reference.groups.group import Group, GroupState
from reference.groups.store import GroupStore
from reference.guards import Guards
from reference.wire.errors import ErrorCode


class Checks:
    def __init__(self, store: GroupStore, guards: Guards) -> None:
        self._store, self._guards = store, guards

    @property
    def replaced(self) -> ErrorCode:
        """What the process hears whose place as a static member another one took; fenced, it closes for good."""
        return ErrorCode.FENCED_INSTANCE_ID if self._guards.fence_instance else ErrorCode.UNKNOWN_MEMBER_ID

    def check_member(self, group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
        """Is this a member, and not one that a newer instance replaced?"""
        if instance_id is not None:
            known = group.static_members.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return self.replaced
        return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID

    def find(
        self, group_id: str, member_id: str, instance_id: str | None, generation_id: int, *,
        fenced: bool, members_only: bool = True,
    ) -> tuple[ErrorCode, Group | None]:  # fmt: skip
        """The group, if a member of it asks; `fenced`: one of its present generation."""
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
        return self.find(
            group_id, member_id, instance_id, generation_id,
            fenced=self._guards.fence_stale_generation, members_only=self._guards.members_commit_only,
        )  # fmt: skip
