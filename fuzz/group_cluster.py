"""A simulated cluster with the members of one group, and the judge that watches every event."""

from typing import Any

from fuzz.simulated_cluster import TOPIC, Settings, SimulatedCluster
from reference.clients.application import Application
from reference.clients.judge import quarrels
from reference.clients.member import MemberConfig
from reference.drivers.simulation.world import Host
from reference.groups.group import Group
from reference.guards import Guards
from reference.replication.partition import Partition
from reference.wire.errors import ErrorCode

GROUP = "g"
OFFSETS_TOPIC = "__consumer_offsets"


class GroupCluster(SimulatedCluster):
    """`quarrels` holds what two members of the group had at once, each once; members have the guards of the brokers."""

    def __init__(self, seed: int, settings: Settings, *, tracing: bool = False) -> None:
        super().__init__(seed, settings, tracing=tracing)
        self.members: dict[str, Application] = {}
        self.quarrels: list[str] = []
        self.world.after_event = self._judge

    def join(self, name: str, **config: Any) -> None:
        guards = Guards().without(*self.settings.guards_off)
        settings = MemberConfig(
            GROUP, frozenset({TOPIC}), session_timeout_ms=1_500, heartbeat_interval_ms=200, max_poll_interval_ms=4_000,
            request_timeout_ms=500, guards=guards, **config,
        )  # fmt: skip
        application = self.members[name] = Application(name, self.broker_ids, settings)
        self.world.add(name, lambda disk: application)
        self.world.start(name)

    def leave(self, name: str) -> None:
        self.world.enter(name, self.members.pop(name).leave)

    def kill(self, name: str) -> None:
        """Without a word: its session has to expire."""
        self.world.crash(name, lose_unflushed=False)
        del self.members[name]

    @property
    def offsets_log(self) -> Partition | None:
        """The group's partition at the coordinator: the broker that the newest leader epoch made that."""
        found = []
        for broker_id in self.broker_ids:
            broker = self.broker(broker_id)
            if broker is not None and broker.groups.check(GROUP) is ErrorCode.NONE:
                found.append(broker.replicas.partitions[OFFSETS_TOPIC, broker.groups.partition_for(GROUP)])
        return max(found, key=lambda partition: partition.leader_epoch, default=None)

    @property
    def coordinator(self) -> int:
        partition = self.offsets_log
        return -1 if partition is None else next(b for b in self.broker_ids if self._has(b, partition))

    def _has(self, broker_id: int, partition: Partition) -> bool:
        broker = self.broker(broker_id)
        return broker is not None and partition in broker.replicas.partitions.values()

    @property
    def group(self) -> Group | None:
        """As its coordinator has it."""
        broker = self.broker(self.coordinator) if self.coordinator > 0 else None
        return broker.groups.groups.get(GROUP) if broker else None

    def _judge(self, host: Host) -> None:
        if host.name in self.members and self.group is not None:
            self.quarrels += [each for each in quarrels(self.members, self.group) if each not in self.quarrels]
