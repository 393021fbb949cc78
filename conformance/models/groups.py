"""A model of a classic group: its state, members and committed offsets, and the error of each request.

The order of the checks is Apache Kafka's (ClassicGroup.validateMember, validateSyncGroup, validateOffsetCommit): the
instance id first, then the member id, the generation, and the state.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Final

from highwater.conformance import CLIENT_ID
from highwater.conformance.models.comparison import TEXT, one_of
from highwater.conformance.models.offsets import Offsets
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.groups import DescribedGroup, DescribedGroupMember, ListedGroup

EMPTY, PREPARING, COMPLETING, STABLE = "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"
DEAD: Final = "Dead"
UNKNOWN_GROUP_SINCE: Final = 6
"""First version of DescribeGroups that reports an unknown group as an error (KIP-1043)."""
GROUP_ID_NOT_FOUND_SINCE: Final = 9
"""First version of OffsetCommit in which a member of an unknown group gets GROUP_ID_NOT_FOUND (KIP-848)."""
UNSET: Final = -(2**31)


@dataclass(frozen=True, slots=True)
class GroupClient:
    """What a request says about its sender."""

    member_id: str = ""
    generation: int = -1
    instance: str | None = None


@dataclass(slots=True, eq=False)
class ModelMember:
    """A member with what it offered and what it was assigned."""

    member_id: str
    instance: str | None = None
    metadata: bytes = b""
    assignment: bytes = b""


@dataclass(slots=True, eq=False)
class ClassicModel:
    """One group; `members` by member id, `pending` are ids that were given out to clients that have not joined."""

    group: str
    state: str = DEAD
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: dict[str, ModelMember] = field(default_factory=dict)
    offsets: Offsets = field(default_factory=Offsets)

    # -- errors --------------------------------------------------------------------------------------

    def member_error(self, client: GroupClient) -> int:
        """Return the error for a client that is not a member, or that another one has replaced."""
        if client.instance is not None:
            holder = next((each for each in self.members.values() if each.instance == client.instance), None)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            return 0 if holder.member_id == client.member_id else ErrorCode.FENCED_INSTANCE_ID
        return 0 if client.member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _request_error(self, client: GroupClient) -> int:
        error = self.member_error(client)
        if not error and client.generation != self.generation:
            error = ErrorCode.ILLEGAL_GENERATION
        return error

    def heartbeat_error(self, client: GroupClient) -> int:
        error = self._request_error(client)
        return error or (ErrorCode.REBALANCE_IN_PROGRESS if self.state == PREPARING else 0)

    def sync_error(self, client: GroupClient, protocol_type: str | None, protocol: str | None) -> int:
        """Return the error of a SyncGroup of a client that expects this protocol; null expects nothing."""
        error = self._request_error(client)
        expected = {None, self.protocol_type}, {None, self.protocol}
        if not error and (protocol_type not in expected[0] or protocol not in expected[1]):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return error or (ErrorCode.REBALANCE_IN_PROGRESS if self.state == PREPARING else 0)

    def commit_error(self, client: GroupClient, version: int) -> Any:
        """Return the error of the group for a commit of this client; an old coordinator knows older ones only."""
        if self.state == DEAD and client.generation >= 0:
            newer = (ErrorCode.GROUP_ID_NOT_FOUND,) if version >= GROUP_ID_NOT_FOUND_SINCE else ()
            return one_of(ErrorCode.ILLEGAL_GENERATION, *newer)
        if self.state in {DEAD, EMPTY} and client.generation < 0:
            return 0
        if client == GroupClient():
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self._request_error(client)
        return error or (ErrorCode.REBALANCE_IN_PROGRESS if self.state == COMPLETING else 0)

    def leave_error(self, member_id: str, instance: str | None) -> int:
        """Return the error for a member that leaves; a static one may be named by its instance id alone (KIP-345)."""
        holder = next((each for each in self.members.values() if instance and each.instance == instance), None)
        if holder and not member_id:
            return 0
        return self.member_error(GroupClient(member_id, instance=instance))

    # -- changes -------------------------------------------------------------------------------------

    def remove(self, member_id: str, instance: str | None = None) -> None:
        """Remove a member without which the group is empty, in its next generation, or rebalances."""
        holder = next((each.member_id for each in self.members.values() if instance and each.instance == instance), "")
        del self.members[member_id or holder]
        if self.members:
            self.state = PREPARING
        else:
            self.generation, self.state, self.protocol, self.leader = self.generation + 1, EMPTY, "", ""

    # -- what is described ---------------------------------------------------------------------------

    def described(self, version: int) -> DescribedGroup:
        """Return what DescribeGroups describes: neither protocol nor metadata while the group rebalances."""
        if self.state == DEAD:
            error = ErrorCode.GROUP_ID_NOT_FOUND if version >= UNKNOWN_GROUP_SINCE else 0
            return DescribedGroup(error_code=error, group_id=self.group, group_state=DEAD)
        return DescribedGroup(
            group_id=self.group, group_state=self.state, protocol_type=self.protocol_type,
            protocol_data=self.protocol if self.state == STABLE else "",
            members=tuple(self._described_member(each) for each in self.members.values()),
        )  # fmt: skip

    def _described_member(self, member: ModelMember) -> DescribedGroupMember:
        stable: Any = self.state == STABLE
        assignment: Any = member.assignment if stable else one_of(b"", member.assignment)
        host: Any = TEXT
        return DescribedGroupMember(
            member_id=member.member_id, group_instance_id=member.instance, client_id=CLIENT_ID, client_host=host,
            member_metadata=member.metadata if stable else b"", member_assignment=assignment,
        )  # fmt: skip

    def listed(self) -> tuple[ListedGroup, ...]:
        if self.state == DEAD:
            return ()
        named = ListedGroup(group_id=self.group, protocol_type=self.protocol_type, group_state=self.state)
        return (replace(named, group_type="classic"),)
