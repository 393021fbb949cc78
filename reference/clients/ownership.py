"""What a member has: partitions, since which generation, and what it must give up (KIP-429, KIP-792)."""

from collections.abc import Sequence
from typing import Protocol

from reference.clients.assignors import Assignor
from reference.clients.subscriptions import NO_GENERATION, Partition, Subscription
from reference.guards import Guards


class Listener(Protocol):
    """Called from within `poll` or the reply that brings the news, with what changes hands; never with nothing."""

    def assigned(self, partitions: frozenset[Partition]) -> None: ...
    def revoked(self, partitions: frozenset[Partition]) -> None:
        """Still the member's own: the last chance to commit for them."""

    def lost(self, partitions: frozenset[Partition]) -> None:
        """Others may have them already."""


class Ownership:
    """`owned` is what the member processes; `revoking`, a part of it, what the leader has taken away."""

    def __init__(self, assignors: Sequence[Assignor], guards: Guards, listener: Listener) -> None:
        self._assignors, self._guards, self._listener = assignors, guards, listener
        self.owned: frozenset[Partition] = frozenset()
        self.revoking: frozenset[Partition] = frozenset()
        self._since = NO_GENERATION
        self._remembered: frozenset[Partition] = frozenset()  # what it had when it revoked all; no claim
        self._stale: frozenset[Partition] = frozenset()  # lost, and claimed none the less: nothing, by ResetClaimOnLost

    @property
    def acts_eager(self) -> bool:
        """Who lists an eager assignor may find itself in a group that withholds nothing (the two-bounce upgrade)."""
        eager = [not assignor.is_cooperative for assignor in self._assignors]
        return all(eager) or (any(eager) and self._guards.eager_members_revoke_all)

    def prepare_join(self, *, is_member: bool) -> None:
        """Give up, before JoinGroup, what may not be kept through a rebalance; who is no member has lost it before."""
        self._remembered = self.owned or self._remembered
        if not is_member:
            return
        if self.acts_eager:
            if self._guards.revoke_before_join:
                self._revoke(self.owned)
        elif not self._guards.unaffected_keep:
            self._revoke(self.owned)

    def subscription(self, topics: frozenset[str], assignor: Assignor) -> bytes:
        """Topics and claims, for the metadata of this assignor in a JoinGroup."""
        generation = self._since if self._guards.claims_bear_generation else NO_GENERATION
        if assignor.remembers:
            return Subscription(topics, self._remembered, generation).encode_revoked()
        claimed = frozenset() if self.acts_eager else (self.owned - self.revoking) | self._stale
        return Subscription(topics, claimed, generation).encode()

    def take(self, partitions: frozenset[Partition], generation: int) -> None:
        """An assignment. A cooperative member goes on with what it keeps, and has still to revoke what it loses."""
        new = partitions - self.owned
        self.revoking = frozenset() if self.acts_eager else self.owned - partitions
        self.owned = partitions | self.revoking
        self._since, self._stale = generation, frozenset()
        if new:
            self._listener.assigned(new)

    def revoke_taken(self) -> None:
        self._revoke(self.revoking)

    def revoke_all(self) -> None:
        self._revoke(self.owned)

    def _revoke(self, partitions: frozenset[Partition]) -> None:
        if partitions:
            self._listener.revoked(partitions)
        self.owned -= partitions
        self.revoking = frozenset()

    def lose(self) -> None:
        """A member no more, or not of this generation: nothing may be committed, and others may have everything."""
        lost = self.owned
        if self._guards.reset_claim_on_lost:
            self._since = NO_GENERATION
        else:
            self._stale = lost
        self.revoking = frozenset()
        if self._guards.drop_on_lost:
            self.owned = self._remembered = frozenset()
            if lost:
                self._listener.lost(lost)
