"""A group and its members: states, and the questions that the coordinator asks of them."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from reference.procedures import Pending
from reference.wire.messages.join_group import JoinGroupResponse
from reference.wire.messages.sync_group import SyncGroupResponse


class GroupState(StrEnum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_PREVIOUS: Final = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY},
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: set(GroupState),
}

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
    syncing: Pending[SyncGroupResponse] | None = None
    session_ticket: str = ""

    def metadata(self, protocol: str) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: int
    leader_epoch: int
    metadata: str


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

    def move_to(self, state: GroupState) -> None:
        assert self.state in VALID_PREVIOUS[state], f"{self.group_id}: {self.state} to {state}"
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

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Could a member with these protocols follow what all others can (of the same type)?"""
        if not protocols or not protocol_type:
            return False
        if not self.members:
            return True
        names = {name for name, _ in protocols}
        return protocol_type == self.protocol_type and bool(names & self.common_protocols())

    def common_protocols(self) -> set[str]:
        supported = [{name for name, _ in member.protocols} for member in self.members.values()]
        return set.intersection(*supported) if supported else set()

    def choose_protocol(self) -> str:
        """Each member votes for its first protocol that all support; the leader's order breaks ties."""
        common = self.common_protocols()
        votes = [next(name for name, _ in member.protocols if name in common) for member in self.members.values()]
        order = [name for name, _ in self.members[self.leader or ""].protocols if name in common]
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
    def all_joined(self) -> bool:
        return not self.pending_members and all(member.joining is not None for member in self.members.values())
