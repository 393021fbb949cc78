"""The server-side assignors: from the subscriptions of all members to the target assignment.

Both are deterministic: they go through members and partitions in order of their ids. Apache Kafka: UniformAssignor,
RangeAssignor.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from highwater.reference.groups.consumer.group import Part

Topics = Mapping[bytes, int]
"""Topic id -> number of partitions, of the topics that exist."""
Target = dict[str, frozenset[Part]]


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member, as an assignor sees it: the ids of existing topics that it subscribes to, and its last target."""

    member_id: str
    topics: Collection[bytes]
    instance_id: str | None = None
    target: frozenset[Part] = field(default=frozenset())


def assign_range(subscribers: list[Subscriber], topics: Topics) -> Target:
    """Divide each topic into contiguous ranges; the first members get one partition more if it cannot be even.

    Topics with the same number of partitions and the same subscribers are divided alike, so that a member can join
    them.
    """
    shares: dict[str, list[Part]] = {each.member_id: [] for each in subscribers}
    ordered = sorted(subscribers, key=lambda each: (each.instance_id is None, each.instance_id or "", each.member_id))
    for topic in sorted(topics):
        interested = [each.member_id for each in ordered if topic in each.topics]
        quota, extra = divmod(topics[topic], len(interested)) if interested else (0, 0)
        first = 0
        for index, member_id in enumerate(interested):
            end = first + quota + (index < extra)
            shares[member_id] += [(topic, number) for number in range(first, end)]
            first = end
    return {member_id: frozenset(parts) for member_id, parts in shares.items()}


class _Uniform:
    """Balances first, then moves as little as possible."""

    def __init__(self, subscribers: list[Subscriber], topics: Topics) -> None:
        self._topics = {each.member_id: frozenset(each.topics) & topics.keys() for each in subscribers}
        self._all = [(topic, number) for topic in sorted(topics) for number in range(topics[topic])]
        existing = set(self._all)
        self.shares = {
            each.member_id: {part for part in each.target if part in existing and part[0] in each.topics}
            for each in sorted(subscribers, key=lambda each: each.member_id)
        }

    def _by_load(self) -> list[str]:
        return sorted(self.shares, key=lambda member_id: len(self.shares[member_id]))

    def assign_rest(self) -> None:
        """Give each partition that no member has to the subscriber with the fewest."""
        assigned = set().union(*self.shares.values())
        for part in self._all:
            if part in assigned:
                continue
            interested = [member_id for member_id in self.shares if part[0] in self._topics[member_id]]
            if interested:
                least = min(interested, key=lambda member_id: len(self.shares[member_id]))
                self.shares[least].add(part)

    def balance(self) -> None:
        """Move partitions until no move makes two shares more equal: each makes the sum of their squares smaller."""
        while (move := self._next_move()) is not None:
            part, source, destination = move
            self.shares[source].remove(part)
            self.shares[destination].add(part)

    def _next_move(self) -> tuple[Part, str, str] | None:
        ordered = self._by_load()
        for source in reversed(ordered):
            for destination in ordered:
                if len(self.shares[source]) - len(self.shares[destination]) < 2:
                    break
                wanted = [part for part in self.shares[source] if part[0] in self._topics[destination]]
                if wanted:
                    return max(wanted), source, destination
        return None


def assign_uniform(subscribers: list[Subscriber], topics: Topics) -> Target:
    """Give members with the same subscription shares that differ by one at most, and let them keep what they have.

    With different subscriptions no single move of a partition would make the shares of two members more equal.
    """
    shares = _Uniform(subscribers, topics)
    shares.assign_rest()
    shares.balance()
    return {member_id: frozenset(parts) for member_id, parts in shares.shares.items()}


ASSIGNORS: Final[dict[str, Callable[[list[Subscriber], Topics], Target]]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}
