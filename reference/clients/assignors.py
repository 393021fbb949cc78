"""How a leader divides partitions among members: range, round robin, sticky and cooperative sticky.

An assignor gets the members by id and the number of partitions of each topic (one that is not there has none), and
gives every partition of a subscribed topic to exactly one member that wants it; cooperative ones may withhold some.
The same input has the same answer, whatever its order.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import cycle
from typing import ClassVar, Final

from reference.clients.claims import Claims, withhold
from reference.clients.subscriptions import Assignment, Partition, Subscription
from reference.guards import Guards

Members = Mapping[str, Subscription]
Counts = Mapping[str, int]


class Assignor(ABC):
    name: ClassVar[str]
    is_cooperative: ClassVar[bool] = False
    remembers: ClassVar[bool] = False
    """Does it ask members what they had, even if they have revoked it?"""

    @abstractmethod
    def assign(self, members: Members, partitions: Counts, guards: Guards) -> Assignment:
        """What each member gets; members that get nothing are named too."""


def in_order(members: Members) -> list[str]:
    """Static members first, by their instance id: that is the same when they come back (KIP-345)."""

    def rank(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, instance_id or member_id

    return sorted(members, key=rank)


def wanted(members: Members, partitions: Counts) -> list[Partition]:
    """All partitions that anybody subscribes to, by topic and number."""
    topics = sorted(frozenset[str]().union(*(each.topics for each in members.values())))
    return [(topic, number) for topic in topics for number in range(partitions.get(topic, 0))]


def _frozen(shares: Mapping[str, set[Partition]]) -> Assignment:
    return {member_id: frozenset(share) for member_id, share in shares.items()}


class RangeAssignor(Assignor):
    """Topic by topic: neighbouring partitions to one member, one more to the first members where it does not divide."""

    name = "range"

    def assign(self, members: Members, partitions: Counts, guards: Guards) -> Assignment:
        shares: dict[str, set[Partition]] = {member_id: set() for member_id in members}
        ordered = in_order(members)
        for topic in sorted({topic for topic, _ in wanted(members, partitions)}):
            takers = [member_id for member_id in ordered if topic in members[member_id].topics]
            each, extra = divmod(partitions[topic], len(takers))
            first = 0
            for place, member_id in enumerate(takers):
                end = first + each + (place < extra)
                shares[member_id] |= {(topic, number) for number in range(first, end)}
                first = end
        return _frozen(shares)


class RoundRobinAssignor(Assignor):
    """One partition after the other to one member after the other, leaving out those that do not subscribe."""

    name = "roundrobin"

    def assign(self, members: Members, partitions: Counts, guards: Guards) -> Assignment:
        shares: dict[str, set[Partition]] = {member_id: set() for member_id in members}
        turns = cycle(in_order(members))
        for partition in wanted(members, partitions):
            taker = next(member_id for member_id in turns if partition[0] in members[member_id].topics)
            shares[taker].add(partition)
        return _frozen(shares)


class StickyAssignor(Assignor):
    """As even as the subscriptions allow (KIP-54), and of what members have only that moves which must."""

    name = "sticky"
    remembers = True

    def assign(self, members: Members, partitions: Counts, guards: Guards) -> Assignment:
        shares: dict[str, set[Partition]] = {member_id: set() for member_id in members}
        claims, ordered = Claims(members, guards), in_order(members)
        takers = {
            topic: [member_id for member_id in ordered if topic in members[member_id].topics]
            for topic in {topic for topic, _ in wanted(members, partitions)}
        }
        homeless = []
        for partition in wanted(members, partitions):
            owner = claims.owner(partition)
            if owner is not None and partition[0] in members[owner].topics:
                shares[owner].add(partition)
            else:
                homeless.append(partition)
        for partition in sorted(homeless, key=lambda each: (len(takers[each[0]]), each)):
            shares[min(takers[partition[0]], key=lambda member_id: len(shares[member_id]))].add(partition)
        _even_out(shares, ordered, takers)
        return _frozen(shares)


def _even_out(shares: dict[str, set[Partition]], ordered: list[str], takers: Mapping[str, list[str]]) -> None:
    """Move partitions from a member to another that has at least two fewer, while there are such members.

    One at a time, and from the fullest member that can give: whoever gives two in a row may give one too many.
    """
    while move := _next_move(shares, ordered, takers):
        partition, giver, taker = move
        shares[giver].remove(partition)
        shares[taker].add(partition)


def _next_move(
    shares: Mapping[str, set[Partition]], ordered: list[str], takers: Mapping[str, list[str]]
) -> tuple[Partition, str, str] | None:
    for giver in sorted(ordered, key=lambda member_id: -len(shares[member_id])):
        for partition in sorted(shares[giver], reverse=True):
            taker = min(takers[partition[0]], key=lambda member_id: len(shares[member_id]))
            if len(shares[giver]) - len(shares[taker]) >= 2:
                return partition, giver, taker
    return None


class CooperativeStickyAssignor(StickyAssignor):
    """Sticky; what must move is withheld until the member that has it has revoked it (KIP-429)."""

    name = "cooperative-sticky"
    is_cooperative = True
    remembers = False

    def assign(self, members: Members, partitions: Counts, guards: Guards) -> Assignment:
        return withhold(super().assign(members, partitions, guards), members, guards)


ASSIGNORS: Final[Mapping[str, Assignor]] = {
    each.name: each for each in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
}
