"""What the controller holds in memory of brokers, topics and partitions, and how it reads that from the store."""

from dataclasses import dataclass, field
from typing import TypeVar

from reference.context import from_json, to_json
from reference.replication.states import PartitionState, state_path
from reference.store_client import StoreClient
from reference.store_messages import StoreReply

BROKERS = "/brokers/ids"
TOPICS = "/brokers/topics"
Key = tuple[str, int]
T = TypeVar("T")


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


class StoreLostError(Exception):
    """The store could not be read: what is missing from an answer must not be taken for what is gone."""


async def _children(store: StoreClient, path: str) -> tuple[str, ...]:
    reply = await store.children(path)
    if reply.error:
        raise StoreLostError(reply.error)
    return reply.children


async def _get_all(store: StoreClient, paths: dict[T, str]) -> dict[T, StoreReply]:
    """The nodes that exist, asked for all at once."""
    replies = [(key, store.get(path)) for key, path in paths.items()]
    found = {}
    for key, pending in replies:
        reply = await pending
        if reply.error not in {"", "NoNode"}:
            raise StoreLostError(reply.error)
        if not reply.error:
            found[key] = reply
    return found


def parse_topic(data: bytes) -> TopicInfo:
    found = from_json(data)
    assignment = {int(partition): tuple(replicas) for partition, replicas in found["partitions"].items()}
    return TopicInfo(bytes.fromhex(found["topic_id"]), assignment)


def registration(host: str, port: int, *, unclean: bool) -> bytes:
    return to_json({"host": host, "port": port, "unclean": unclean})


async def read_brokers(store: StoreClient) -> dict[int, BrokerInfo]:
    names = await _children(store, BROKERS)
    brokers = {}
    for broker_id, reply in (await _get_all(store, {int(name): f"{BROKERS}/{name}" for name in names})).items():
        found = from_json(reply.data)
        created = reply.stat.created if reply.stat else -1
        brokers[broker_id] = BrokerInfo(found["host"], found["port"], created, found["unclean"])
    return dict(sorted(brokers.items()))


async def read_topics(store: StoreClient, names: tuple[str, ...] | None = None) -> dict[str, TopicInfo]:
    if names is None:
        names = await _children(store, TOPICS)
    found = await _get_all(store, {name: f"{TOPICS}/{name}" for name in names})
    return {name: parse_topic(reply.data) for name, reply in found.items()}


async def read_states(store: StoreClient, keys: list[Key]) -> dict[Key, PartitionState]:
    found = await _get_all(store, {key: state_path(*key) for key in keys})
    return {
        key: PartitionState.from_bytes(reply.data, reply.stat.version) for key, reply in found.items() if reply.stat
    }
