"""The state of a consumer group and of its members (Apache Kafka: GroupMetadata, MemberMetadata)."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from highwater.reference.groups.consumer.group import ConsumerGroup
from highwater.reference.procedures import Pending
from highwater.reference.state_table import StateTable
from highwater.reference.wire.messages.groups import JoinGroupResponse, SyncGroupResponse


class GroupState(StrEnum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


S = GroupState
_UNLOADED: Final = "another broker became the coordinator; pending requests fail with NOT_COORDINATOR"

GROUP_TABLE: Final = StateTable(
    "group",
    "kafka-0.8-principles, coordinator; KIP-62; Apache Kafka GroupCoordinator",
    S.EMPTY,
    {
        (S.EMPTY, S.PREPARING_REBALANCE): "first member; others may join within group.initial.rebalance.delay.ms",
        (S.STABLE, S.PREPARING_REBALANCE): "a member joins, leaves or expires; the others rejoin",
        (S.COMPLETING_REBALANCE, S.PREPARING_REBALANCE): "the same, or no SyncGroup in time; SyncGroups are rejected",
        (S.PREPARING_REBALANCE, S.COMPLETING_REBALANCE): "all joined, or timeout; generation + 1, JoinGroups completed",
        (S.PREPARING_REBALANCE, S.EMPTY): "the last member left; generation + 1, the group is stored",
        (S.COMPLETING_REBALANCE, S.STABLE): "the leader's assignment is stored, then SyncGroups are completed",
        (S.EMPTY, S.DEAD): "deleted, or the last offset expired; tombstones are written",
        (S.PREPARING_REBALANCE, S.DEAD): _UNLOADED,
        (S.COMPLETING_REBALANCE, S.DEAD): _UNLOADED,
        (S.STABLE, S.DEAD): _UNLOADED,
    },
)

NO_GENERATION = -1
Protocols = tuple[tuple[str, bytes], ...]


@dataclass(slots=True)
class Member:
    """A member, with the pending JoinGroup and SyncGroup requests that it waits for."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    pending_join: Pending[JoinGroupResponse] | None = None
    pending_syncs: list[Pending[SyncGroupResponse]] = field(default_factory=list)
    owes_sync: bool = False  # it has joined this generation, and has not sent SyncGroup
    session_ticket: str = ""

    def metadata(self, protocol: str) -> bytes:
        """Return the member's metadata for this protocol, or empty bytes."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def answer_syncs(self, response: SyncGroupResponse) -> None:
        """Complete every pending SyncGroup with this response; a client may still wait for an earlier one."""
        waiting, self.pending_syncs = self.pending_syncs, []
        for pending in waiting:
            pending.resolve(response)


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset; times in wall clock milliseconds, `expire_timestamp` -1 without a retention of its own.

    `log_offset` is that of its record in `__consumer_offsets`: of two commits of a partition the later record counts.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int = -1
    expire_timestamp: int = -1
    log_offset: int = -1


@dataclass(slots=True)
class InitialDelay:
    """How long an empty group still waits for its first members (KIP-134), and whether one has joined meanwhile."""

    left_ms: int
    has_newcomer: bool = False


@dataclass(slots=True)
class Group:
    """A group in the memory of its coordinator.

    A consumer group of KIP-848 has its members in `consumer`; then state, generation and members here are those of a
    group without members. The committed offsets belong to both kinds: they outlive a conversion.
    """

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation_id: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    pending_members: dict[str, str] = field(default_factory=dict)  # not joined yet (KIP-394) -> ticket
    offsets: dict[tuple[str, int], CommittedOffset] = field(default_factory=dict)
    # By producer id: offsets of open transactions (KIP-98).
    pending_offsets: dict[int, dict[tuple[str, int], CommittedOffset]] = field(default_factory=dict)
    rebalance_ticket: str = ""
    initial_delay: InitialDelay | None = None  # not None while an empty group waits for its first members
    incarnation: int = 0  # counts rebalances, so that the completion of an earlier one is ignored
    state_timestamp: int = -1  # wall clock milliseconds of the last stored state change
    consumer: ConsumerGroup | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether the group has no members, of either protocol."""
        return self.state is GroupState.EMPTY and (self.consumer is None or not self.consumer.members)

    def forget_classic(self) -> None:
        """Forget all of the classic protocol: the group becomes a consumer group."""
        self.state, self.generation_id, self.state_timestamp = GroupState.EMPTY, 0, -1
        self.protocol_type, self.protocol, self.leader, self.initial_delay = "", None, None, None
        self.incarnation += 1
        for members in (self.members, self.static_members, self.pending_members):
            members.clear()

    def move_to(self, state: GroupState) -> None:
        """Change the state; raise InvalidTransitionError if GROUP_TABLE has no such transition."""
        GROUP_TABLE.check(self.state, state)
        self.state = state

    def add(self, member: Member) -> None:
        """Add a member; the first one becomes the leader."""
        if not self.members:
            self.leader = None
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.leader = self.leader or member.member_id

    def remove(self, member_id: str) -> Member | None:
        """Remove and return the member; if it was the leader, the oldest remaining member becomes the leader."""
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def supports(self, protocol_type: str, protocols: Protocols, *, shared: bool) -> bool:
        """Return whether a member with these protocols may join; if `shared`, all members need one in common."""
        if not protocols or not protocol_type:
            return False
        if not self.members or not shared:
            return True
        names = {name for name, _ in protocols}
        return protocol_type == self.protocol_type and bool(names & self.common_protocols())

    def common_protocols(self) -> set[str]:
        """Return the names of the protocols that all members support."""
        supported = [{name for name, _ in member.protocols} for member in self.members.values()]
        return set.intersection(*supported) if supported else set()

    def choose_protocol(self) -> str:
        """Return the protocol with most votes; each member votes for its first one that all members support.

        The leader's order breaks ties. If no protocol is common (the guard OneProtocolForAll is off), the leader's
        protocols are the candidates.
        """
        preferences = [name for name, _ in self.members[self.leader or ""].protocols]
        common = self.common_protocols() or set(preferences)
        votes = Counter(next((name for name, _ in m.protocols if name in common), "") for m in self.members.values())
        return max((name for name in preferences if name in common), key=votes.__getitem__)

    def is_unstable(self, key: tuple[str, int]) -> bool:
        """Return whether an open transaction may change this offset (KIP-447)."""
        return any(key in offsets for offsets in self.pending_offsets.values())

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply the pending offsets of the producer's transaction if it committed; otherwise drop them.

        An offset that was committed without a transaction later in the log than the pending one remains.
        """
        offsets = self.pending_offsets.pop(producer_id, {})
        for key in [key for key, pending in offsets.items() if self._committed_later(key, pending)]:
            del offsets[key]
        if committed:
            self.offsets.update(offsets)

    def _committed_later(self, key: tuple[str, int], pending: CommittedOffset) -> bool:
        return key in self.offsets and self.offsets[key].log_offset > pending.log_offset

    def delete_offset(self, key: tuple[str, int]) -> None:
        """Forget the committed offset of a partition, and those that open transactions would commit."""
        for offsets in (self.offsets, *self.pending_offsets.values()):
            offsets.pop(key, None)

    @property
    def has_offsets(self) -> bool:
        """Return whether an offset is committed, or would be by an open transaction."""
        return bool(self.offsets) or any(self.pending_offsets.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def any_joined(self) -> bool:
        return any(member.pending_join is not None for member in self.members.values())

    @property
    def all_joined(self) -> bool:
        return not self.pending_members and all(member.pending_join is not None for member in self.members.values())
