"""The state of a consumer group: its epochs, its target assignment, and its members (KIP-848).

Theory of operation
-------------------
Three epochs are ordered: member epoch <= assignment epoch <= group epoch.

* The group epoch is incremented when a member joins or leaves, and when its subscription, the topics, or their
  partitions change. A new group begins with epoch 1.
* The assignment epoch is the group epoch for which the target assignment was computed. The group is Assigning while it
  is behind.
* The epoch of a member follows when the member has given up what its target no longer contains (`reconciliation`). The
  group is Reconciling while a member is behind.

A member owns what is assigned to it and what it still has to revoke. A partition has one owner; it is not assigned to
another member before its owner has stopped reporting it (ConsumerGroup.currentPartitionEpoch).

State changes only by `changes.apply`, with records: a coordinator applies a record and writes it to
`__consumer_offsets`, and the next coordinator applies the same records in the same order. After the records of a
request, and after loading, `check_invariants` raises AssertionError with the name of a rule that does not hold.

Apache Kafka: ConsumerGroup, ConsumerGroupMember, ModernGroup.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from highwater.reference.state_table import StateTable

Part = tuple[bytes, int]
"""A partition: topic id and number."""
Assigned = Mapping[Part, int]
"""Partitions with the epoch in which the member got each of them (KIP-1251)."""
JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH = 0, -1, -2


class ConsumerGroupState(StrEnum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberState(StrEnum):
    STABLE = "Stable"
    UNREVOKED_PARTITIONS = "UnrevokedPartitions"
    UNRELEASED_PARTITIONS = "UnreleasedPartitions"


M = MemberState
_UNREVOKED: Final = "a new target lacks partitions that the member still reports; its epoch stays"
_UNRELEASED: Final = "it has the target epoch, and waits for partitions that other members have not revoked"

CONSUMER_MEMBER_TABLE: Final = StateTable(
    "member of a consumer group",
    "KIP-848; Apache Kafka CurrentAssignmentBuilder, MemberState",
    M.STABLE,
    {
        (M.STABLE, M.UNREVOKED_PARTITIONS): _UNREVOKED,
        (M.STABLE, M.UNRELEASED_PARTITIONS): _UNRELEASED,
        (M.UNREVOKED_PARTITIONS, M.STABLE): "it has revoked, and gets all of its target, or leaves for a while",
        (M.UNREVOKED_PARTITIONS, M.UNRELEASED_PARTITIONS): f"it has revoked; {_UNRELEASED}",
        (M.UNRELEASED_PARTITIONS, M.STABLE): "the last missing partition was released by its owner",
        (M.UNRELEASED_PARTITIONS, M.UNREVOKED_PARTITIONS): _UNREVOKED,
    },
)


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """What a member that uses the classic protocol sent with JoinGroup; `protocols` are names with metadata."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member. A static member that has left for a while has the epoch -2; `classic` is None under KIP-848."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assignor: str | None = None
    classic: ClassicMember | None = None
    # the current assignment
    state: MemberState = MemberState.STABLE
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Assigned = field(default_factory=dict)
    pending_revocation: Assigned = field(default_factory=dict)

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def with_epoch(self, epoch: int, **changes: Any) -> "ConsumerMember":
        """Return the member in this epoch; a heartbeat with the one before is accepted while its reply may be lost."""
        return replace(self, epoch=epoch, previous_epoch=self.epoch, **changes)


@dataclass(frozen=True, slots=True)
class ResolvedPattern:
    """The topics that match a pattern; `timestamp_ms` is the wall clock at which they were searched."""

    topics: frozenset[str]
    version: int = 0
    timestamp_ms: int = 0


@dataclass(slots=True)
class Timers:
    """Tickets of the running timers, by member id. They are not stored: a new coordinator starts them again."""

    sessions: dict[str, str] = field(default_factory=dict)
    rebalances: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class ConsumerGroup:
    """A consumer group in the memory of its coordinator."""

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    assignment_epoch: int = 0
    assignment_ms: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    target: dict[str, frozenset[Part]] = field(default_factory=dict)
    patterns: dict[str, ResolvedPattern] = field(default_factory=dict)
    # not stored
    timers: Timers = field(default_factory=Timers)
    metadata_version: int = -1  # version of the metadata cache from which topics and partitions were taken
    written_end: int = 0  # log offset after the last record of the group
    committed: "ConsumerGroup | None" = None  # the state that the committed records leave; None before the first

    # -- what the state says -----------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        reconciled = all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values())
        return ConsumerGroupState.STABLE if reconciled else ConsumerGroupState.RECONCILING

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        return next((member for member in self.members.values() if member.instance_id == instance_id), None)

    def subscribed_topics(self, member: ConsumerMember) -> frozenset[str]:
        """Return the names that the member subscribes to, and those that its pattern matched when it was resolved."""
        resolved = self.patterns.get(member.pattern)
        return frozenset(member.topics) | (resolved.topics if resolved else frozenset())

    def all_subscribed_topics(self) -> frozenset[str]:
        return frozenset().union(*map(self.subscribed_topics, self.members.values()))

    def preferred_assignor(self, assignors: Sequence[str]) -> str:
        """Return the assignor that most members chose, the first one if none did (preferredServerAssignor)."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor in assignors)
        return max(assignors, key=lambda name: votes[name])

    def owners(self) -> dict[Part, ConsumerMember]:
        """Return the owner of each partition: the member that it is assigned to, or that has not revoked it yet."""
        found: dict[Part, ConsumerMember] = {}
        for member in self.members.values():
            for part in (*member.assigned, *member.pending_revocation):
                other = found.setdefault(part, member)
                is_new = other is member and not (part in member.assigned and part in member.pending_revocation)
                assert is_new, f"OneOwner: {part} is owned by {other.member_id} and by {member.member_id}"
        return found

    # -- changes -----------------------------------------------------------------------------------

    def snapshot(self) -> "ConsumerGroup":
        """Return a copy of the state, to which `restore` returns if the records cannot be written."""
        members, target, patterns = dict(self.members), dict(self.target), dict(self.patterns)
        return replace(self, members=members, target=target, patterns=patterns, committed=None)

    def restore(self, before: "ConsumerGroup") -> None:
        """Undo the changes since the snapshot."""
        stored = ("epoch", "metadata_hash", "assignment_epoch", "assignment_ms", "members", "target", "patterns")
        for name in (*stored, "metadata_version"):
            setattr(self, name, getattr(before, name))

    # -- invariants --------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise AssertionError if a rule does not hold."""
        assert self.assignment_epoch <= self.epoch, f"EpochsOrdered: {self.assignment_epoch} > {self.epoch}"
        self.owners()
        targets = Counter(part for target in self.target.values() for part in target)
        assert all(count == 1 for count in targets.values()), "OneTarget: a partition is in the target of two members"
        assert self.target.keys() <= self.members.keys(), "TargetOfMembers: a member that has left has a target"
        instances = Counter(member.instance_id for member in self.members.values() if member.instance_id is not None)
        assert all(count == 1 for count in instances.values()), "OneInstance: two members have one instance id"
        for member in self.members.values():
            assert member.epoch <= self.assignment_epoch, f"EpochsOrdered: {member.member_id} is ahead of the group"
            unrevoked = member.state is MemberState.UNREVOKED_PARTITIONS
            assert unrevoked == bool(member.pending_revocation), f"RevokesWhatMoves: {member.member_id}"
            newest = max(member.assigned.values(), default=0)
            assert newest <= member.epoch or member.epoch < 0, f"AssignedByEpoch: {member.member_id} at {newest}"

    def check_follows(self, before: "ConsumerGroup") -> None:
        """Raise AssertionError if the state cannot follow `before`."""
        assert self.epoch >= before.epoch, f"EpochsNeverFall: the group epoch from {before.epoch} to {self.epoch}"
        assert self.assignment_epoch >= before.assignment_epoch, "EpochsNeverFall: the assignment epoch"
        owners = self.owners()
        for part, owner in before.owners().items():
            taken = part in owners and owners[part].member_id != owner.member_id
            assert not taken or owner.member_id not in self.members, f"ReleasedByOwner: {part} of {owner.member_id}"
        for member in self.members.values():
            if (old := before.members.get(member.member_id)) is not None:
                if old.state is not member.state:
                    CONSUMER_MEMBER_TABLE.check(old.state, member.state)
                falls = member.epoch < old.epoch and member.epoch != LEAVE_STATIC_EPOCH
                assert not falls, f"EpochsNeverFall: {member.member_id} from {old.epoch} to {member.epoch}"
