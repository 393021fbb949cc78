"""The partitions that a member owns, their generation, and the ones it must revoke (KIP-429, KIP-792)."""

from collections.abc import Sequence
from typing import Protocol

from highwater.reference.clients.assignors import Assignor
from highwater.reference.clients.subscriptions import NO_GENERATION, Partition, Subscription
from highwater.reference.guards import Guards


class Listener(Protocol):
    """The rebalance listener; called from `poll` or when a response is handled, never with an empty set."""

    def assigned(self, partitions: frozenset[Partition]) -> None: ...
    def revoked(self, partitions: frozenset[Partition]) -> None:
        """The member still owns the partitions: the last chance to commit their offsets."""

    def lost(self, partitions: frozenset[Partition]) -> None:
        """Other members may own the partitions already."""


class Ownership:
    """`owned` are the partitions that the member processes; `revoking` is the part that it must revoke."""

    def __init__(self, assignors: Sequence[Assignor], guards: Guards, listener: Listener) -> None:
        self._assignors, self._guards, self._listener = assignors, guards, listener
        self.owned: frozenset[Partition] = frozenset()
        self.revoking: frozenset[Partition] = frozenset()
        self._since = NO_GENERATION
        self._previous: frozenset[Partition] = frozenset()  # owned before the last full revocation; not a claim
        self._stale: frozenset[Partition] = frozenset()  # lost but still claimed; empty with guard ResetClaimOnLost

    @property
    def acts_eager(self) -> bool:
        """Return whether to revoke everything before a rebalance.

        True also for a mix of assignors: the group may choose the eager one, which withholds nothing (KIP-429 upgrade).
        """
        eager = [not assignor.is_cooperative for assignor in self._assignors]
        return all(eager) or (any(eager) and self._guards.eager_members_revoke_all)

    def prepare_join(self, *, is_member: bool) -> None:
        """Revoke, before JoinGroup, the partitions that may not be kept during a rebalance.

        A former member revokes nothing: it has lost its partitions before.
        """
        self._previous = self.owned or self._previous
        if not is_member:
            return
        if self.acts_eager:
            if self._guards.revoke_before_join:
                self._revoke(self.owned)
        elif not self._guards.unaffected_keep:
            self._revoke(self.owned)

    def subscription(self, topics: frozenset[str], assignor: Assignor) -> bytes:
        """Encode topics and claims as the metadata of this assignor in a JoinGroup."""
        generation = self._since if self._guards.claims_bear_generation else NO_GENERATION
        if assignor.uses_user_data:
            return Subscription(topics, self._previous, generation).encode_revoked()
        claimed = frozenset() if self.acts_eager else (self.owned - self.revoking) | self._stale
        return Subscription(topics, claimed, generation).encode()

    def apply_assignment(self, partitions: frozenset[Partition], generation: int) -> None:
        """Apply a added assignment; a cooperative member still owns the removed partitions until it revokes them."""
        added = partitions - self.owned
        self.revoking = frozenset() if self.acts_eager else self.owned - partitions
        self.owned = partitions | self.revoking
        self._since, self._stale = generation, frozenset()
        if added:
            self._listener.assigned(added)

    def revoke_removed(self) -> None:
        self._revoke(self.revoking)

    def revoke_all(self) -> None:
        self._revoke(self.owned)

    def _revoke(self, partitions: frozenset[Partition]) -> None:
        if partitions:
            self._listener.revoked(partitions)
        self.owned -= partitions
        self.revoking = frozenset()

    def lose(self) -> None:
        """Drop all partitions without a commit: the member is expelled, and other members may own them already."""
        lost = self.owned
        if self._guards.reset_claim_on_lost:
            self._since = NO_GENERATION
        else:
            self._stale = lost
        self.revoking = frozenset()
        if self._guards.drop_on_lost:
            self.owned = self._previous = frozenset()
            if lost:
                self._listener.lost(lost)
