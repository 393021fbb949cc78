"""The registries that brokers and consumers of 0.7 keep in ZooKeeper (kafka-0.7-design, "Zookeeper Directories")."""

from typing import Final

from highwater.errors import UsageError
from highwater.reference.context import from_json, to_json
from highwater.reference.store.client import StoreClient
from highwater.reference.store.messages import Create

BROKER_IDS: Final = "/brokers/ids"
BROKER_TOPICS: Final = "/brokers/topics"
BrokerPartition = tuple[int, int]
"""Broker id and number: sorted, partitions of one broker stand together (step 4)."""


def node_name(partition: BrokerPartition) -> str:
    broker_id, number = partition
    return f"{broker_id}-{number}"


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
    """A broker tells where it listens and how many partitions of each topic it has; all of it goes with its session.

    Raises UsageError for an id that is in use.
    """
    await store.ensure(BROKER_IDS)
    reply = await store.call(Create(f"{BROKER_IDS}/{broker_id}", address.encode(), ephemeral=True))
    if reply.error == "NodeExists":
        hint = "give each broker an id of its own"
        raise UsageError("this broker id is in use", where=f"{BROKER_IDS}/{broker_id}", hint=hint)
    for topic, partitions in topics.items():
        await store.ensure(f"{BROKER_TOPICS}/{topic}")
        path = f"{BROKER_TOPICS}/{topic}/{broker_id}"
        await store.call(Create(path, to_json(partitions), ephemeral=True))


async def read_partitions(store: StoreClient, topic: str) -> list[BrokerPartition]:
    """All partitions of a topic on all brokers that live, sorted (steps 2 and 4)."""
    found: list[BrokerPartition] = []
    for broker in (await store.children(f"{BROKER_TOPICS}/{topic}")).children:
        reply = await store.get(f"{BROKER_TOPICS}/{topic}/{broker}")
        if not reply.error:
            found += [(int(broker), number) for number in range(int(from_json(reply.data)))]
    return sorted(found)


async def read_members(store: StoreClient, paths: GroupPaths) -> dict[str, list[str]]:
    """The group's consumers, sorted, with the topics of each (steps 3 and 5)."""
    members: dict[str, list[str]] = {}
    for consumer in sorted((await store.children(paths.ids)).children):
        reply = await store.get(f"{paths.ids}/{consumer}")
        if not reply.error:
            members[consumer] = list(from_json(reply.data))
    return members


def range_of(place: int, members: int, partitions: list[BrokerPartition]) -> list[BrokerPartition]:
    """The part of the consumer at `place` (steps 6 and 7); what does not divide goes to the first ones, one each."""
    each, more = divmod(len(partitions), members)
    first = place * each + min(place, more)
    return partitions[first : first + each + (place < more)]
