"""What the controller holds in memory of brokers, topics and partitions, and how it reads that from the store."""

from dataclasses import dataclass, field

from reference.context import from_json
from reference.replication.states import PartitionState, state_path
from reference.store_client import StoreClient

BROKERS = "/brokers/ids"
TOPICS = "/brokers/topics"
Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """`epoch` is the transaction that registered it: another one is another life (KIP-380)."""

    host: str
    port: int
    epoch: int
    unclean: bool


@dataclass(slots=True)
class TopicInfo:
    topic_id: bytes
    assignment: dict[int, tuple[int, ...]]


@dataclass(slots=True)
class Cluster:
    brokers: dict[int, BrokerInfo] = field(default_factory=dict)
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    states: dict[Key, PartitionState] = field(default_factory=dict)

    def replicas(self, key: Key) -> tuple[int, ...]:
        return self.topics[key[0]].assignment[key[1]]

    def hosted_by(self, broker_id: int) -> list[Key]:
        return [key for key in self.states if broker_id in self.replicas(key)]


def parse_topic(data: bytes) -> TopicInfo:
    found = from_json(data)
    assignment = {int(partition): tuple(replicas) for partition, replicas in found["partitions"].items()}
    return TopicInfo(bytes.fromhex(found["topic_id"]), assignment)


async def read_brokers(store: StoreClient) -> dict[int, BrokerInfo]:
    names = (await store.children(BROKERS)).children
    replies = [(int(name), store.get(f"{BROKERS}/{name}")) for name in names]
    brokers = {}
    for broker_id, pending in replies:
        reply = await pending
        if not reply.error and reply.stat is not None:
            found = from_json(reply.data)
            brokers[broker_id] = BrokerInfo(found["host"], found["port"], reply.stat.created, found["unclean"])
    return dict(sorted(brokers.items()))


async def read_topics(store: StoreClient, names: tuple[str, ...] | None = None) -> dict[str, TopicInfo]:
    if names is None:
        names = (await store.children(TOPICS)).children
    replies = [(name, store.get(f"{TOPICS}/{name}")) for name in names]
    topics = {}
    for name, pending in replies:
        reply = await pending
        if not reply.error:
            topics[name] = parse_topic(reply.data)
    return topics


async def read_states(store: StoreClient, keys: list[Key]) -> dict[Key, PartitionState]:
    replies = [(key, store.get(state_path(*key))) for key in keys]
    states = {}
    for key, pending in replies:
        reply = await pending
        if not reply.error and reply.stat is not None:
            states[key] = PartitionState.from_bytes(reply.data, reply.stat.version)
    return states
