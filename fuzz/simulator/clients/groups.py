"""A simulated cluster with the members of one group, which checks the owners of partitions after every event."""

from typing import Any

from highwater.fuzz.simulator.cluster import TOPIC, Settings, SimulatedCluster
from highwater.reference.clients.application import Application
from highwater.reference.clients.judge import ownership_conflicts
from highwater.reference.clients.member import MemberConfig
from highwater.reference.drivers.simulation.world import Host
from highwater.reference.groups.group import Group
from highwater.reference.guards import Guards
from highwater.reference.replication.partition import Partition
from highwater.reference.wire.errors import ErrorCode

GROUP = "g"
OFFSETS_TOPIC = "__consumer_offsets"


class GroupCluster(SimulatedCluster):
    """A cluster with group members. `ownership_conflicts` lists each pair of owners of one partition once.

    Members have the same guards off as the brokers.
    """

    def __init__(self, seed: int, settings: Settings, *, tracing: bool = False) -> None:
        super().__init__(seed, settings, tracing=tracing)
        self.members: dict[str, Application] = {}
        self.ownership_conflicts: list[str] = []
        self.world.after_event = self._check_owners

    def join(self, name: str, **config: Any) -> None:
        """Start a member; `config` are further fields of MemberConfig."""
        guards = Guards().without(*self.settings.guards_off)
        settings = MemberConfig(
            GROUP, frozenset({TOPIC}), session_timeout_ms=1_500, heartbeat_interval_ms=200, max_poll_interval_ms=4_000,
            request_timeout_ms=500, guards=guards, **config,
        )  # fmt: skip
        application = self.members[name] = Application(name, self.broker_ids, settings)
        self.world.add(name, lambda disk: application)
        self.world.start(name)

    def leave(self, name: str) -> None:
        """Let a member leave the group."""
        self.world.enter(name, self.members.pop(name).leave)

    def kill(self, name: str) -> None:
        """Crash a member without LeaveGroup: its session has to expire."""
        self.world.crash(name, lose_unflushed=False)
        del self.members[name]

    @property
    def offsets_log(self) -> Partition | None:
        """Return the replica of the group's partition on the coordinator, the broker with the highest leader epoch."""
        found = []
        for broker_id in self.broker_ids:
            broker = self.broker(broker_id)
            if broker is not None and broker.groups.check(GROUP) is ErrorCode.NONE:
                found.append(broker.replicas.partitions[OFFSETS_TOPIC, broker.groups.partition_for(GROUP)])
        return max(found, key=lambda partition: partition.leader_epoch, default=None)

    @property
    def coordinator(self) -> int:
        """Return the id of the group's coordinator, or -1."""
        partition = self.offsets_log
        return -1 if partition is None else next(b for b in self.broker_ids if self._has(b, partition))

    def _has(self, broker_id: int, partition: Partition) -> bool:
        broker = self.broker(broker_id)
        return broker is not None and partition in broker.replicas.partitions.values()

    @property
    def group(self) -> Group | None:
        """Return the group in the memory of its coordinator, None if there is none."""
        broker = self.broker(self.coordinator) if self.coordinator > 0 else None
        return broker.groups.groups.get(GROUP) if broker else None

    def _check_owners(self, host: Host) -> None:
        if host.name in self.members and self.group is not None:
            found = ownership_conflicts(self.members, self.group)
            self.ownership_conflicts += [conflict for conflict in found if conflict not in self.ownership_conflicts]
