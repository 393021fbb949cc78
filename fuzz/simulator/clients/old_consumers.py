"""Consumers of Kafka 0.7, which divide the partitions in ZooKeeper, and the brokers that register there."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from highwater.fuzz.simulator.cluster import SimulatedCluster
from highwater.reference.configuration.broker import BrokerConfig
from highwater.reference.context import Context, to_json
from highwater.reference.drivers.simulation.disk import SimulatedDisk
from highwater.reference.effects import Outbox
from highwater.reference.legacy.consumer import GroupConsumer
from highwater.reference.legacy.registry import BROKER_IDS, BROKER_TOPICS, GroupPaths
from highwater.reference.store.messages import Create

OLD_TOPIC: Final = "old"
BROKERS: Final = {1: 2, 2: 1}
"""Partitions on each broker: three in all, so three consumers get one each, and two get different numbers."""
OLD_GROUP: Final = "old-group"
PATHS: Final = GroupPaths(OLD_GROUP)
PARTITIONS: Final = frozenset((OLD_TOPIC, (broker, number)) for broker in BROKERS for number in range(BROKERS[broker]))


class Registrar(GroupConsumer):
    """A client that registers a broker and its partitions in the store; the registration is not ephemeral."""

    def __init__(self, context: Context, broker_id: int) -> None:
        super().__init__(context, "brokers", f"broker{broker_id}", {})
        self._broker_id = broker_id

    async def _register(self) -> None:
        await self.store.ensure(BROKER_IDS)
        await self.store.ensure(f"{BROKER_TOPICS}/{OLD_TOPIC}")
        path = f"{BROKER_TOPICS}/{OLD_TOPIC}/{self._broker_id}"
        await self.store.call(Create(path, to_json(BROKERS[self._broker_id])))


@dataclass(slots=True)
class OldConsumers:
    """The consumers by host name. A restarted process gets a new consumer id, so `starts` counts them."""

    consumers: dict[str, GroupConsumer] = field(default_factory=dict)
    starts: Counter[str] = field(default_factory=Counter)

    def start(self, cluster: SimulatedCluster, number: int) -> None:
        """Register the brokers, then start `number` consumers."""
        for broker_id in BROKERS:
            registrar = Registrar(_context(cluster), broker_id)
            cluster.world.add(f"registrar:{broker_id}", lambda disk, r=registrar: r)  # type: ignore[misc]
            cluster.world.start(f"registrar:{broker_id}")
        cluster.world.run_until(cluster.world.now_ms + 200)
        for index in range(number):
            self._start(cluster, f"old:{index}", index)

    def _start(self, cluster: SimulatedCluster, name: str, number: int) -> None:
        def make(_: object) -> GroupConsumer:
            self.starts[name] += 1
            consumer_id = f"c{self.starts[name]}-{number}"
            self.consumers[name] = GroupConsumer(_context(cluster), OLD_GROUP, consumer_id, {OLD_TOPIC: 1})
            return self.consumers[name]

        cluster.world.add(name, make)
        cluster.world.start(name)


def _context(cluster: SimulatedCluster) -> Context:
    guards_off = cluster.settings.guards_off
    config = BrokerConfig(broker_id=0, metadata_store_session_timeout_ms=900, guards_off=guards_off)
    return Context(config, SimulatedDisk(), Outbox(tracing=cluster.tracing))
