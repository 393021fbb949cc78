"""Whose a partition is, by what members claim (spec/cooperative_rebalance, "Claims and assignment").

A claim bears the generation in which its member was given what it has (KIP-792): without it, a member that was passed
over looks as good as its successor (KAFKA-12984, KAFKA-14639).
"""

from collections.abc import Mapping

from reference.clients.subscriptions import Assignment, Partition, Subscription
from reference.guards import Guards


class Claims:
    def __init__(self, members: Mapping[str, Subscription], guards: Guards) -> None:
        self._members, self._guards = members, guards
        latest = max((each.generation for each in members.values()), default=0)
        self._claimants: dict[Partition, list[str]] = {}
        for member_id, claim in members.items():
            if claim.generation == latest or guards.highest_claim_wins:
                for partition in claim.owned:
                    self._claimants.setdefault(partition, []).append(member_id)

    def owner(self, partition: Partition) -> str | None:
        """Who claims it since the latest generation; if two do, one of them is wrong, and nobody is its owner."""
        claimants = self._claimants.get(partition, [])
        latest = max((self._members[each].generation for each in claimants), default=0)
        right = sorted(each for each in claimants if self._members[each].generation == latest)
        if len(right) > 1 and self._guards.nobody_keeps_on_conflict:
            return None
        return right[0] if right else None

    def may_get(self, member_id: str, partition: Partition) -> bool:
        """Nobody gets what another has, or what two say that they have, until they have revoked it."""
        return partition not in self._claimants or self.owner(partition) == member_id


def withhold(wish: Assignment, members: Mapping[str, Subscription], guards: Guards) -> Assignment:
    """Without what is to move: that finds its new member in the rebalance after its old one has revoked it."""
    if not guards.withhold_claimed:
        return wish
    claims = Claims(members, guards)
    return {
        member_id: frozenset(each for each in partitions if claims.may_get(member_id, each))
        for member_id, partitions in wish.items()
    }
