"""A walk: a fixed sequence of requests over two topics of three partitions, each compared with the model.

Every random choice comes from the walk's generator, which begins with a constant unless it is drawn. Requests go to
the leaders of their partitions, all of them to one broker where the target places replicas as requested. An entry of
`parts` names the partition that a part of a request concerns, also one that does not exist.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from highwater.conformance.cases.support.replicas import FOLLOWERS_SERVE_SINCE
from highwater.conformance.client.broker import BY_ID_SINCE, LATEST, TOPIC_ID_SINCE, Broker, Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.expectations import expect, require
from highwater.conformance.failures import Unsupported
from highwater.conformance.models.batches import NONE
from highwater.conformance.models.log import ModelLog
from highwater.reference.client.versions import OLDEST_OF_CASES
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.produce import ProduceRequest
from highwater.reference.wire.registry import api_of
from highwater.reference.wire.schema import ZERO_UUID

Key = tuple[str, int]
"""Topic name and partition."""
PARTITIONS: Final = 3
UNKNOWN_ID: Final = bytes(range(16))
ZSTD_SINCE: Final = (2, 1)
APPEND_TIME: Final = {"message.timestamp.type": "LogAppendTime"}
CODECS: Final = {
    "producer": None, "uncompressed": Compression.NONE, "gzip": Compression.GZIP, "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4, "zstd": Compression.ZSTD,
}  # fmt: skip
"""By value of compression.type, the codec of stored batches; None keeps that of the producer."""


class Part(Protocol):
    """A part of a request, which concerns one partition."""

    @property
    def key(self) -> Key: ...


P = TypeVar("P", bound=Part)
R = TypeVar("R")


class Walk:
    """Topics, their models, connections to their leaders, and the generator of choices."""

    def __init__(
        self, cluster: Cluster, seed: int, *configs: Mapping[str, str], replicas: int | None = None
    ) -> None:  # fmt: skip
        self.cluster, self.random, self.sent = cluster, cluster.draws.generator(seed), 0
        self.began_ms = cluster.now_ms()
        self.names: list[str] = []
        self.topics: dict[Key, Topic] = {}
        self.logs: dict[Key, ModelLog] = {}
        self.ids: dict[str, bytes] = {}
        self.producer_ids: set[int] = set()
        self._brokers: dict[str, Broker] = {}
        self._oldest: dict[type[Any], int] = {}
        for topic_configs in configs or ({}, {}):
            self._create(topic_configs, replicas)
        self._learn_ids()

    def _create(self, configs: Mapping[str, str], replicas: int | None) -> None:
        nodes = sorted(self.cluster.target.addresses)
        count = replicas or min(3, len(nodes))
        name = self.cluster.create_topic(
            partitions=PARTITIONS, assignment=nodes[:count] if 19 in self.cluster.advertised else None,
            configs=dict(configs),
        ).name  # fmt: skip
        self.names.append(name)
        found = self.cluster.eventually(f"leaders of all partitions of {name}", lambda: self._led(name))
        for index in found:
            topic = self.cluster.topic(name, partition=index)
            self.topics[name, index] = topic
            self.logs[name, index] = ModelLog(
                topic.leader_epoch, by_append_time=configs.get("message.timestamp.type") == "LogAppendTime",
                codec=CODECS[configs.get("compression.type", "producer")],
            )  # fmt: skip

    def _led(self, name: str) -> list[int] | None:
        """Return the partitions of a topic once each of them has a leader that serves it."""
        found = self.cluster.describe(name)
        if found is None or any(part.leader_id < 0 for part in found.partitions):
            return None
        indexes = sorted(part.partition_index for part in found.partitions)
        topics = [self.cluster.topic(name, partition=index) for index in indexes]
        served = all(self.broker(topic.leader).list_offset(topic, LATEST).error_code == 0 for topic in topics)
        return indexes if served else None

    def _learn_ids(self) -> None:
        """Ask for the ids of the topics if the broker has a version of Produce or Fetch that needs them."""
        broker = self.cluster.connect()
        if any(self.supports(request, BY_ID_SINCE) for request in (ProduceRequest, FetchRequest)):
            for topic in broker.metadata(*self.names, version=TOPIC_ID_SINCE).topics:
                if topic.topic_id != ZERO_UUID:
                    self.ids[topic.name or ""] = topic.topic_id

    # -- choices -------------------------------------------------------------------------------------------

    def steps(self, count: int) -> Iterator[int]:
        """Yield the numbers of the steps of a loop; a drawn walk takes some of them."""
        return self.cluster.draws.steps(count, self.random)

    def versions(self, request: type[Any], first: int = 0, last: int | None = None) -> list[int]:
        """Return the advertised versions from the first one on; raises Unsupported if there is none."""
        api = api_of(request)
        lowest, newest = self.cluster.advertised.get(api.key, (0, -1))
        oldest = (OLDEST_OF_CASES.get(api.key, 0), self._oldest.get(request, 0))
        bottom = max(first, lowest, api.min_version, *oldest)
        found = list(range(bottom, min(newest, api.max_version if last is None else last) + 1))
        if not found:
            raise Unsupported(f"{api.name} v{first} or newer is not advertised")
        return found

    def version(self, request: type[Any], first: int = 0, last: int | None = None) -> int:
        """Choose an advertised version; one that names topics by id only if the topics have ids."""
        found = self.versions(request, first, last)
        if not self.ids and api_of(request).key in OLDEST_OF_CASES:
            found = [version for version in found if version < BY_ID_SINCE]
        return self.random.choice(found)

    def supports(self, request: type[Any], version: int = 0) -> bool:
        """Whether the broker advertises this version of a request or a newer one."""
        return self.cluster.advertised.get(api_of(request).key, (0, -1))[1] >= version

    def led_by_one(self) -> tuple[Broker, list[Key]]:
        """Return the leader of most partitions, and these."""
        leaders = [topic.leader for topic in self.topics.values()]
        leader = max(leaders, key=leaders.count)
        return self.broker(leader), [key for key, topic in self.topics.items() if topic.leader == leader]

    def now_ms(self) -> int:
        return self.cluster.now_ms()

    @property
    def keys(self) -> list[Key]:
        return list(self.logs)

    @property
    def unknown_keys(self) -> list[Key]:
        """Return a partition that does not exist, and one of a topic that does not exist."""
        return [(self.names[0], 1000), (f"{self.names[0]}-none", 0)]

    def unknown_error(self, key: Key, version: int) -> int:
        by_id = version >= BY_ID_SINCE and key[0] not in self.ids
        return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    # -- requests ------------------------------------------------------------------------------------------

    def broker(self, address: str) -> Broker:
        if address not in self._brokers:
            self._brokers[address] = self.cluster.connect(address)
        return self._brokers[address]

    @contextmanager
    def at_follower(self, node: int) -> Iterator[None]:
        """Send what is meant for leaders to this replica, in versions of Fetch in which followers serve consumers."""
        topics, address = self.topics, self.cluster.target.addresses[node]
        self.topics = {key: replace(topic, leader=address) for key, topic in topics.items()}
        self._oldest = {FetchRequest: FOLLOWERS_SERVE_SINCE}
        yield
        self.topics, self._oldest = topics, {}

    def await_ends(self, *, stable: bool = False) -> None:
        """Wait until the high watermark of each partition, or also its last stable offset, is that of its model."""
        for key, topic in self.topics.items():
            wanted = (self.logs[key].end, self.logs[key].stable if stable else NONE)

            def ended(topic: Topic = topic, wanted: tuple[int, int] = wanted) -> bool:
                part = self.broker(topic.leader).fetch(topic, wanted[0], isolation_level=int(stable))
                return (part.high_watermark, part.last_stable_offset if stable else NONE) == wanted

            self.cluster.eventually(f"high watermark and last stable offset {wanted} in {self.show(key)}", ended)

    def follow_leaders(self, excluded: int | None = None) -> None:
        """Wait for a leader of each partition, other than `excluded`, and begin its epoch in the model."""
        self.reconnect()
        for (name, index), log in self.logs.items():
            topic = self.cluster.topic(name, partition=index, excluded_leader=excluded)

            def epoch(topic: Topic = topic) -> int | None:
                answer = self.broker(topic.leader).list_offset(topic, LATEST)
                return None if answer.error_code else answer.leader_epoch

            found = self.cluster.eventually(f"a leader that serves {self.show((name, index))}", epoch, 15.0)
            self.topics[name, index] = replace(topic, leader_epoch=found)
            if found != log.leader_epoch:
                log.elect(found)

    def restart(self) -> None:
        """Note in the models that a replica was restarted."""
        for log in self.logs.values():
            log.restart()

    def await_replicas(self) -> None:
        """Wait until all replicas of all partitions are in sync."""
        for name in self.names:
            self.cluster.eventually(f"all replicas of {name} in sync", partial(self._in_sync, name), 20.0)

    def _in_sync(self, name: str) -> bool:
        found = self.cluster.describe(name)
        return found is not None and all(set(part.isr_nodes) == set(part.replica_nodes) for part in found.partitions)

    def reconnect(self) -> None:
        """Forget all connections, for example after a restart."""
        for broker in self._brokers.values():
            broker.close()
        self._brokers = {}

    def by_leader(self, parts: Sequence[P]) -> list[tuple[Broker, list[P]]]:
        """Return the parts of a request by the broker that they are for; unknown partitions are for the first one."""
        first = next(iter(self.topics.values())).leader
        found: dict[str, list[P]] = {}
        for part in parts:
            address = self.topics[part.key].leader if part.key in self.topics else first
            found.setdefault(address, []).append(part)
        return [(self.broker(address), group) for address, group in found.items()]

    def step(self, what: str) -> str:
        """Return the number and the description of the next request, for messages."""
        self.sent += 1
        return f"request {self.sent}, {what}"

    def identity(self, name: str) -> dict[str, bytes]:
        """Return the field with the id of a topic, for versions that name topics by id."""
        return {"topic_id": self.ids.get(name, UNKNOWN_ID)}

    def name_of(self, topic: Any, by_id: bool, unknown: str) -> str:
        """Return the name of a topic in a reply."""
        if not by_id:
            return str(getattr(topic, "topic", None) or getattr(topic, "name", ""))
        return next((name for name, found in self.ids.items() if found == topic.topic_id), unknown)

    def show(self, key: Key) -> str:
        """Return a short name of a partition, for messages."""
        return f"{self.names.index(key[0]) if key[0] in self.names else 'unknown'}/{key[1]}"


def grouped(parts: Iterable[P]) -> dict[str, list[P]]:
    """Return the parts by topic, in order."""
    found: dict[str, list[P]] = {}
    for part in parts:
        found.setdefault(part.key[0], []).append(part)
    return found


def answers(what: str, parts: Sequence[P], found: Iterable[tuple[Key, R]]) -> list[tuple[P, R]]:
    """Return each part of a request with its answer, in the order of the answers; each must have exactly one."""
    replies = list(found)
    require(f"{what}: partitions of the reply", sorted(part.key for part in parts), sorted(key for key, _ in replies))
    asked = {part.key: part for part in parts}
    return [(asked[key], reply) for key, reply in replies]


def compare(what: str, **fields: tuple[object, object]) -> None:
    """Compare fields of an answer: expected and actual; a frozenset as expected value allows each of its elements."""
    for name, (expected, actual) in fields.items():
        expect(f"{what}: {name.replace('_', ' ')}", expected, actual)
