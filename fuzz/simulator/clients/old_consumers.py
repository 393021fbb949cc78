"""Consumers of 0.7, which share out partitions by what they read in ZooKeeper, and the brokers that register there."""

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
"""Partitions of each: three consumers have one each, and two do not share evenly."""
PATHS: Final = GroupPaths("old-group")
PARTITIONS: Final = frozenset((OLD_TOPIC, (broker, number)) for broker in BROKERS for number in range(BROKERS[broker]))


class Registrar(GroupConsumer):
    """A broker as far as the registries go; its nodes stay, so that the partitions do."""

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
    """By the name of their host; a process that is started anew has another id, so `lives` counts them."""

    consumers: dict[str, GroupConsumer] = field(default_factory=dict)
    lives: Counter[str] = field(default_factory=Counter)

    def start(self, cluster: SimulatedCluster, number: int) -> None:
        for broker_id in BROKERS:
            registrar = Registrar(_context(cluster), broker_id)
            cluster.world.add(f"registrar:{broker_id}", lambda disk, r=registrar: r)  # type: ignore[misc]
            cluster.world.start(f"registrar:{broker_id}")
        cluster.world.run_until(cluster.world.now_ms + 200)
        for each in range(number):
            self._start(cluster, f"old:{each}", each)

    def _start(self, cluster: SimulatedCluster, name: str, number: int) -> None:
        def make(_: object) -> GroupConsumer:
            self.lives[name] += 1
            consumer_id = f"c{self.lives[name]}-{number}"
            self.consumers[name] = GroupConsumer(_context(cluster), "old-group", consumer_id, {OLD_TOPIC: 1})
            return self.consumers[name]

        cluster.world.add(name, make)
        cluster.world.start(name)


def _context(cluster: SimulatedCluster) -> Context:
    guards_off = cluster.settings.guards_off
    config = BrokerConfig(broker_id=0, metadata_store_session_timeout_ms=900, guards_off=guards_off)
    return Context(config, SimulatedDisk(), Outbox())
