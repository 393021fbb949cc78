"""A group and its members: states, and the questions that the coordinator asks of them."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from reference.procedures import Pending
from reference.state_table import StateTable
from reference.wire.messages.join_group import JoinGroupResponse
from reference.wire.messages.sync_group import SyncGroupResponse


class GroupState(StrEnum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


S = GroupState
_MOVED: Final = "another broker coordinates it: whoever waits is sent there (NOT_COORDINATOR)"

GROUP_TABLE: Final = StateTable(
    "group",
    "kafka-0.8-principles, coordinator; KIP-62; Apache Kafka GroupCoordinator",
    S.EMPTY,
    {
        (S.EMPTY, S.PREPARING_REBALANCE): "first member; others have group.initial.rebalance.delay.ms to come",
        (S.STABLE, S.PREPARING_REBALANCE): "a member joins, leaves or expires; heartbeats tell the others to join",
        (S.COMPLETING_REBALANCE, S.PREPARING_REBALANCE): "the same, or nobody synced; waiting SyncGroups are refused",
        (S.PREPARING_REBALANCE, S.COMPLETING_REBALANCE): "all came, or time is up; generation + 1, JoinGroups answered",
        (S.PREPARING_REBALANCE, S.EMPTY): "the last member went; generation + 1, stored",
        (S.COMPLETING_REBALANCE, S.STABLE): "the leader's assignment is stored, then SyncGroups are answered",
        (S.EMPTY, S.DEAD): "deleted, or its last offset expired; tombstones written",
        (S.PREPARING_REBALANCE, S.DEAD): _MOVED,
        (S.COMPLETING_REBALANCE, S.DEAD): _MOVED,
        (S.STABLE, S.DEAD): _MOVED,
    },
)

NO_GENERATION = -1
Protocols = tuple[tuple[str, bytes], ...]


@dataclass(slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    joining: Pending[JoinGroupResponse] | None = None
    syncing: list[Pending[SyncGroupResponse]] = field(default_factory=list)
    session_ticket: str = ""

    def metadata(self, protocol: str) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def answer_syncs(self, response: SyncGroupResponse) -> None:
        """All alike: a member that asked again may still hear the first answer."""
        waiting, self.syncing = self.syncing, []
        for each in waiting:
            each.resolve(response)


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """`commit_timestamp` in wall clock milliseconds."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int = -1


@dataclass(slots=True)
class Group:
    group_id: str
    state: GroupState = GroupState.EMPTY
    generation_id: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    pending_members: dict[str, str] = field(default_factory=dict)  # ids given out (KIP-394) -> their ticket
    offsets: dict[tuple[str, int], CommittedOffset] = field(default_factory=dict)
    # By producer id: offsets of transactions that are still open (KIP-98).
    pending_offsets: dict[int, dict[tuple[str, int], CommittedOffset]] = field(default_factory=dict)
    rebalance_ticket: str = ""
    incarnation: int = 0  # counts rebalances begun, so that a late completion knows that it is late
    state_timestamp: int = -1  # wall clock milliseconds of the last change of state that was stored

    def move_to(self, state: GroupState) -> None:
        GROUP_TABLE.check(self.state, state)
        self.state = state

    def add(self, member: Member) -> None:
        if not self.members:
            self.leader = None
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.leader = self.leader or member.member_id

    def remove(self, member_id: str) -> Member | None:
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def supports(self, protocol_type: str, protocols: Protocols, *, shared: bool) -> bool:
        """Could a member with these protocols follow what all others can (of the same type), if they must be shared?"""
        if not protocols or not protocol_type:
            return False
        if not self.members or not shared:
            return True
        names = {name for name, _ in protocols}
        return protocol_type == self.protocol_type and bool(names & self.common_protocols())

    def common_protocols(self) -> set[str]:
        supported = [{name for name, _ in member.protocols} for member in self.members.values()]
        return set.intersection(*supported) if supported else set()

    def choose_protocol(self) -> str:
        """Each member votes for its first protocol that all support; the leader's order breaks ties.

        Where members share none (OneProtocolForAll is off), the leader's choice is as good as any.
        """
        mine = [name for name, _ in self.members[self.leader or ""].protocols]
        common = self.common_protocols() or set(mine)
        votes = [next((name for name, _ in m.protocols if name in common), "") for m in self.members.values()]
        order = [name for name in mine if name in common]
        return max(order, key=lambda name: (votes.count(name), -order.index(name)))

    def is_unstable(self, key: tuple[str, int]) -> bool:
        """Would an open transaction change this offset (KIP-447)?"""
        return any(key in offsets for offsets in self.pending_offsets.values())

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Its offsets count from now on, or never did."""
        offsets = self.pending_offsets.pop(producer_id, {})
        if committed:
            self.offsets.update(offsets)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def any_joined(self) -> bool:
        return any(member.joining is not None for member in self.members.values())

    @property
    def all_joined(self) -> bool:
        return not self.pending_members and all(member.joining is not None for member in self.members.values())
