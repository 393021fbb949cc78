"""The partition assignors of a group leader: range, round robin, sticky and cooperative sticky.

An assignor takes the members by id and the partition count of every topic (0 for a missing topic). It assigns every
partition of a subscribed topic to exactly one subscriber; a cooperative assignor may withhold some partitions. The
result does not depend on the order of the input.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import cycle
from typing import ClassVar, Final

from highwater.reference.clients.subscriptions import Assignment, Partition, Subscription
from highwater.reference.guards import Guards

# --------------------------------------------------------------------------------------------------
# The owner of a partition by the claims of the members (spec/cooperative_rebalance, "Claims and assignment").
#
# A claim has the generation in which its member got the partitions (KIP-792). Without it, the claim of a member that
# missed a rebalance looks the same as the claim of the current owner (KAFKA-12984, KAFKA-14639).


class Claims:
    """The partitions that the members claim to own, from their subscriptions."""

    def __init__(self, members: Mapping[str, Subscription], guards: Guards) -> None:
        self._members, self._guards = members, guards
        latest = max((member.generation for member in members.values()), default=0)
        self._claimants: dict[Partition, list[str]] = {}
        for member_id, claim in members.items():
            if claim.generation == latest or guards.highest_claim_wins:
                for partition in claim.owned:
                    self._claimants.setdefault(partition, []).append(member_id)

    def owner(self, partition: Partition) -> str | None:
        """Return the member with the claim of the latest generation; None if there is none, or two with the same."""
        claimants = self._claimants.get(partition, [])
        latest = max((self._members[member_id].generation for member_id in claimants), default=0)
        owners = sorted(member_id for member_id in claimants if self._members[member_id].generation == latest)
        if len(owners) > 1 and self._guards.nobody_keeps_on_conflict:
            return None
        return owners[0] if owners else None

    def is_assignable(self, member_id: str, partition: Partition) -> bool:
        """Return whether a member may get a partition now: it is unclaimed, or this member is its only owner."""
        return partition not in self._claimants or self.owner(partition) == member_id


def withhold(target_assignment: Assignment, members: Mapping[str, Subscription], guards: Guards) -> Assignment:
    """Remove the partitions that must change their owner; the rebalance after their revocation assigns them."""
    if not guards.withhold_claimed:
        return target_assignment
    claims = Claims(members, guards)
    return {
        member_id: frozenset(partition for partition in partitions if claims.is_assignable(member_id, partition))
        for member_id, partitions in target_assignment.items()
    }


Members = Mapping[str, Subscription]
Counts = Mapping[str, int]


class Assignor(ABC):
    name: ClassVar[str]
    is_cooperative: ClassVar[bool] = False
    uses_user_data: ClassVar[bool] = False
    """Whether members send their previous assignment in the user data, even if they have revoked it."""

    @abstractmethod
    def assign(self, members: Members, partitions: Counts, guards: Guards) -> Assignment:
        """Return the partitions of every member, including members without any."""


def in_assignment_order(members: Members) -> list[str]:
    """Return the member ids in assignment order: static members first, by instance id, which is stable (KIP-345)."""

    def rank(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, instance_id or member_id

    return sorted(members, key=rank)


def subscribed_partitions(members: Members, partitions: Counts) -> list[Partition]:
    """Return all partitions of the subscribed topics, sorted by topic and number."""
    topics = sorted(frozenset[str]().union(*(member.topics for member in members.values())))
    return [(topic, number) for topic in topics for number in range(partitions.get(topic, 0))]


def _frozen(shares: Mapping[str, set[Partition]]) -> Assignment:
    return {member_id: frozenset(share) for member_id, share in shares.items()}


class RangeAssignor(Assignor):
    """Assign a contiguous range of every topic to every subscriber; the first ones get one more if needed."""

    name = "range"

    def assign(self, members: Members, partitions: Counts, guards: Guards) -> Assignment:
        shares: dict[str, set[Partition]] = {member_id: set() for member_id in members}
        ordered = in_assignment_order(members)
        for topic in sorted({topic for topic, _ in subscribed_partitions(members, partitions)}):
            subscribers = [member_id for member_id in ordered if topic in members[member_id].topics]
            quota, extra = divmod(partitions[topic], len(subscribers))
            first = 0
            for position, member_id in enumerate(subscribers):
                end = first + quota + (position < extra)
                shares[member_id] |= {(topic, number) for number in range(first, end)}
                first = end
        return _frozen(shares)


class RoundRobinAssignor(Assignor):
    """Assign the partitions to the members in turn, skipping members that do not subscribe to the topic."""

    name = "roundrobin"

    def assign(self, members: Members, partitions: Counts, guards: Guards) -> Assignment:
        shares: dict[str, set[Partition]] = {member_id: set() for member_id in members}
        turns = cycle(in_assignment_order(members))
        for partition in subscribed_partitions(members, partitions):
            subscriber = next(member_id for member_id in turns if partition[0] in members[member_id].topics)
            shares[subscriber].add(partition)
        return _frozen(shares)


class StickyAssignor(Assignor):
    """Balance as evenly as the subscriptions allow, and move as few partitions as possible (KIP-54)."""

    name = "sticky"
    uses_user_data = True

    def assign(self, members: Members, partitions: Counts, guards: Guards) -> Assignment:
        shares: dict[str, set[Partition]] = {member_id: set() for member_id in members}
        claims, ordered = Claims(members, guards), in_assignment_order(members)
        subscribers = {
            topic: [member_id for member_id in ordered if topic in members[member_id].topics]
            for topic in {topic for topic, _ in subscribed_partitions(members, partitions)}
        }
        without_owner = []
        for partition in subscribed_partitions(members, partitions):
            owner = claims.owner(partition)
            if owner is not None and partition[0] in members[owner].topics:
                shares[owner].add(partition)
            else:
                without_owner.append(partition)
        for partition in sorted(without_owner, key=lambda unassigned: (len(subscribers[unassigned[0]]), unassigned)):
            shares[min(subscribers[partition[0]], key=lambda member_id: len(shares[member_id]))].add(partition)
        _balance(shares, ordered, subscribers)
        return _frozen(shares)


def _balance(shares: dict[str, set[Partition]], ordered: list[str], subscribers: Mapping[str, list[str]]) -> None:
    """Move partitions to members with at least two fewer, until there are none.

    Every move starts from the member with the most partitions: a second move from the same member could unbalance it.
    """
    while move := _next_move(shares, ordered, subscribers):
        partition, source, target = move
        shares[source].remove(partition)
        shares[target].add(partition)


def _next_move(
    shares: Mapping[str, set[Partition]], ordered: list[str], subscribers: Mapping[str, list[str]]
) -> tuple[Partition, str, str] | None:
    for source in sorted(ordered, key=lambda member_id: -len(shares[member_id])):
        for partition in sorted(shares[source], reverse=True):
            target = min(subscribers[partition[0]], key=lambda member_id: len(shares[member_id]))
            if len(shares[source]) - len(shares[target]) >= 2:
                return partition, source, target
    return None


class CooperativeStickyAssignor(StickyAssignor):
    """Sticky, but withholds a partition that must move until its owner has revoked it (KIP-429)."""

    name = "cooperative-sticky"
    is_cooperative = True
    uses_user_data = False

    def assign(self, members: Members, partitions: Counts, guards: Guards) -> Assignment:
        return withhold(super().assign(members, partitions, guards), members, guards)


ASSIGNORS: Final[Mapping[str, Assignor]] = {
    assignor.name: assignor
    for assignor in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
}
