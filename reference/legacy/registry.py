"""The ZooKeeper nodes of brokers and consumers of Kafka 0.7 (kafka-0.7-design, "Zookeeper Directories")."""

from collections.abc import Awaitable
from typing import Any, Final, Protocol

from highwater.errors import UsageError
from highwater.reference.context import Context, from_json, to_json
from highwater.reference.effects import STORE, Effect, Instant
from highwater.reference.store.client import StoreClient
from highwater.reference.store.messages import Create, StoreReply

BROKER_IDS: Final = "/brokers/ids"
BROKER_TOPICS: Final = "/brokers/topics"
BrokerPartition = tuple[int, int]
"""Broker id and partition number: the sort order groups the partitions of one broker (step 4)."""


class Reader(Protocol):
    """Reads nodes of the store: a `StoreClient`, or a rebalance, which ends when the connection does."""

    def get(self, path: str) -> Awaitable[StoreReply]: ...

    def children(self, path: str) -> Awaitable[StoreReply]: ...


def node_name(partition: BrokerPartition) -> str:
    broker_id, number = partition
    return f"{broker_id}-{number}"


class StoreNode:
    """The entry points of a node that talks to the store. A subclass sets `store`, and adds timers of its own."""

    store: StoreClient

    def __init__(self, context: Context) -> None:
        self._context = context

    def start(self, now: Instant) -> list[Effect]:
        self._context.now = now
        self.store.start()
        return self._context.out.drain()

    def receive(self, now: Instant, source: str, message: Any) -> list[Effect]:
        self._context.now = now
        self.store.receive(message)
        return self._context.out.drain()

    def fire(self, now: Instant, timer: str) -> list[Effect]:
        self._context.now = now
        self._fire(timer)
        return self._context.out.drain()

    def _fire(self, timer: str) -> None:
        self.store.fire(timer)

    def complete(self, now: Instant, token: str) -> list[Effect]:
        return []

    def closed(self, now: Instant, peer: str) -> list[Effect]:
        """Handle the end of a connection; what was sent on it may be lost."""
        self._context.now = now
        if peer == STORE:
            self.store.closed()
        return self._context.out.drain()


class GroupPaths:
    def __init__(self, group: str) -> None:
        self.ids = f"/consumers/{group}/ids"
        self._owners, self._offsets = f"/consumers/{group}/owners", f"/consumers/{group}/offsets"

    def owners(self, topic: str) -> str:
        return f"{self._owners}/{topic}"

    def owner(self, topic: str, partition: BrokerPartition) -> str:
        return f"{self._owners}/{topic}/{node_name(partition)}"

    def offsets(self, topic: str) -> str:
        return f"{self._offsets}/{topic}"

    def offset(self, topic: str, partition: BrokerPartition) -> str:
        return f"{self._offsets}/{topic}/{node_name(partition)}"


async def register_broker(store: StoreClient, broker_id: int, address: str, topics: dict[str, int]) -> None:
    """Register a broker's address and the partition count of its topics, in ephemeral nodes.

    Raises UsageError for an id that is in use.
    """
    await store.ensure(BROKER_IDS)
    reply = await store.call(Create(f"{BROKER_IDS}/{broker_id}", address.encode(), ephemeral=True))
    if reply.error == "NodeExists":
        hint = "give each broker a unique id"
        raise UsageError("this broker id is in use", where=f"{BROKER_IDS}/{broker_id}", hint=hint)
    for topic, partitions in topics.items():
        await store.ensure(f"{BROKER_TOPICS}/{topic}")
        path = f"{BROKER_TOPICS}/{topic}/{broker_id}"
        await store.call(Create(path, to_json(partitions), ephemeral=True))


async def read_partitions(store: Reader, topic: str) -> list[BrokerPartition]:
    """Return all partitions of a topic on all live brokers, sorted (steps 2 and 4)."""
    found: list[BrokerPartition] = []
    for broker in (await store.children(f"{BROKER_TOPICS}/{topic}")).children:
        reply = await store.get(f"{BROKER_TOPICS}/{topic}/{broker}")
        if not reply.error:
            found += [(int(broker), number) for number in range(int(from_json(reply.data)))]
    return sorted(found)


async def read_members(store: Reader, paths: GroupPaths) -> dict[str, list[str]]:
    """Return the topics of every consumer of a group, sorted by consumer id (steps 3 and 5)."""
    members: dict[str, list[str]] = {}
    for consumer in sorted((await store.children(paths.ids)).children):
        reply = await store.get(f"{paths.ids}/{consumer}")
        if not reply.error:
            members[consumer] = list(from_json(reply.data))
    return members


def range_of(position: int, members: int, partitions: list[BrokerPartition]) -> list[BrokerPartition]:
    """Return the range of the consumer at `position` (steps 6 and 7); the first ones get one more if needed."""
    quota, extra = divmod(len(partitions), members)
    first = position * quota + min(position, extra)
    return partitions[first : first + quota + (position < extra)]
