"""The controller's in-memory view of brokers, topics and partitions, and how it is read from the store."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from highwater.reference.context import from_json, to_json
from highwater.reference.replication.states import PartitionState, state_path
from highwater.reference.store.client import StoreClient
from highwater.reference.store.messages import ANY_VERSION, StoreReply

# --------------------------------------------------------------------------------------------------
# Paths of the metadata store's nodes, as in Apache Kafka on ZooKeeper (kafka-0.8-principles).


BROKERS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN: Final = "/admin/reassign_partitions"
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"


Key = tuple[str, int]
ReplicaKey = tuple[str, int, int]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A registered broker; `epoch` is the id of the transaction that registered it, new at each restart (KIP-380)."""

    host: str
    port: int
    epoch: int
    unclean: bool
    rack: str | None = None


@dataclass(slots=True)
class TopicInfo:
    """A topic as stored: partition -> replicas.

    During a reassignment `adding` and `removing` name the replicas that join and leave (KIP-455). `version` is that of
    the node when it was read or last written.
    """

    topic_id: bytes
    assignment: dict[int, tuple[int, ...]]
    adding: dict[int, tuple[int, ...]] = field(default_factory=dict)
    removing: dict[int, tuple[int, ...]] = field(default_factory=dict)
    version: int = ANY_VERSION

    def to_bytes(self) -> bytes:
        return to_json(
            {
                "version": 3,
                "topic_id": self.topic_id.hex(),
                "partitions": self.assignment,
                "adding_replicas": self.adding,
                "removing_replicas": self.removing,
            }
        )


@dataclass(slots=True)
class Cluster:
    brokers: dict[int, BrokerInfo] = field(default_factory=dict)
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    states: dict[Key, PartitionState] = field(default_factory=dict)
    deleting: set[str] = field(default_factory=set)
    shutting_down: set[int] = field(default_factory=set)  # brokers in controlled shutdown
    offline_replicas: set[ReplicaKey] = field(
        default_factory=set
    )  # replicas on a failed disk of a live broker (KIP-112)

    def __contains__(self, key: Key) -> bool:
        return key[0] in self.topics and key[1] in self.topics[key[0]].assignment

    def partitions(self, topic: str | None = None) -> Iterator[Key]:
        """Yield the assigned partitions of one topic, or of all topics."""
        for name in self.topics if topic is None else filter(self.topics.__contains__, (topic,)):
            for partition in self.topics[name].assignment:
                yield name, partition

    def replicas(self, key: Key) -> tuple[int, ...]:
        return self.topics[key[0]].assignment[key[1]]

    def live(self, key: Key) -> set[int]:
        """Return the live brokers without a failed disk for this partition."""
        return {broker_id for broker_id in self.brokers if (*key, broker_id) not in self.offline_replicas}

    def unclean(self) -> set[int]:
        """Return the brokers whose unclean restart has not been handled yet: they may lack committed records."""
        return {broker_id for broker_id, info in self.brokers.items() if info.unclean}

    def assigned_to(self, broker_id: int) -> list[Key]:
        """Return the partitions with a replica on this broker, created or not."""
        return [key for key in self.partitions() if broker_id in self.replicas(key)]

    def hosted_by(self, broker_id: int) -> list[Key]:
        """Return the created partitions (those with a stored state) with a replica on this broker."""
        return [key for key in self.states if broker_id in self.replicas(key)]


class StoreLostError(Exception):
    """The store could not be read, so a node missing from the reply must not be treated as deleted."""


async def _children(store: StoreClient, path: str) -> tuple[str, ...]:
    reply = await store.children(path)
    if reply.error:
        raise StoreLostError(reply.error)
    return reply.children


async def _get_all(store: StoreClient, paths: dict[T, str]) -> dict[T, StoreReply]:
    """Read the nodes that exist, all in flight at once; raise StoreLostError if one cannot be read."""
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

    def replicas(key: str) -> dict[int, tuple[int, ...]]:
        return {int(partition): tuple(ids) for partition, ids in found.get(key, {}).items()}

    info = TopicInfo(bytes.fromhex(found["topic_id"]), replicas("partitions"))
    info.adding, info.removing = replicas("adding_replicas"), replicas("removing_replicas")
    return info


def registration(host: str, port: int, *, unclean: bool, rack: str | None = None) -> bytes:
    """Encode a node of `/brokers/ids`. `unclean` is not in Apache Kafka's ZooKeeper format (KIP-966 is for KRaft)."""
    known = {"version": 1, "host": host, "port": port, "jmx_port": -1}
    return to_json({**known, "unclean": unclean, "rack": rack})


async def read_brokers(store: StoreClient) -> dict[int, BrokerInfo]:
    names = await _children(store, BROKERS)
    brokers = {}
    for broker_id, reply in (await _get_all(store, {int(name): f"{BROKERS}/{name}" for name in names})).items():
        found = from_json(reply.data)
        created = reply.stat.created if reply.stat else -1
        brokers[broker_id] = BrokerInfo(found["host"], found["port"], created, found["unclean"], found.get("rack"))
    return dict(sorted(brokers.items()))


async def read_topics(store: StoreClient, names: tuple[str, ...] | None = None) -> dict[str, TopicInfo]:
    if names is None:
        names = await _children(store, TOPICS)
    found = await _get_all(store, {name: f"{TOPICS}/{name}" for name in names})
    topics = {name: parse_topic(reply.data) for name, reply in found.items()}
    for name, info in topics.items():
        stat = found[name].stat
        info.version = stat.version if stat is not None else ANY_VERSION
    return topics


async def read_states(store: StoreClient, keys: list[Key]) -> dict[Key, PartitionState]:
    found = await _get_all(store, {key: state_path(*key) for key in keys})
    return {
        key: PartitionState.from_bytes(reply.data, reply.stat.version) for key, reply in found.items() if reply.stat
    }
