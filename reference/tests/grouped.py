"""Group members and brokers in one simulation; after every event it checks that a partition has one owner."""

from typing import Any

from highwater.reference.clients.application import Application
from highwater.reference.clients.judge import ownership_conflicts
from highwater.reference.clients.member import MemberConfig
from highwater.reference.drivers.simulation.world import Host
from highwater.reference.groups.group import Group, GroupState
from highwater.reference.tests.simulated import Simulated
from highwater.reference.wire.errors import ErrorCode

TOPIC = "t"
GROUP = "g"
SETTLE_MS = 60_000


class Grouped(Simulated):
    """`partitions` of one topic; `join` adds members. `ownership_conflicts` lists partitions with two owners."""

    def __init__(self, brokers: int = 1, partitions: int = 3, seed: int = 0, **settings: Any) -> None:
        quick = {"group_min_session_timeout_ms": 500, "offsets_topic_num_partitions": 1}
        super().__init__(brokers, seed, **{**quick, **settings})
        self.create(TOPIC, partitions)
        self.coordinator(GROUP, 0)
        self.partitions = partitions
        self.members: dict[str, Application] = {}
        self.ownership_conflicts: list[str] = []
        self.world.after_event = self._judge

    def join(self, name: str, *assignors: str, poll_ms: int = 50, **config: Any) -> Application:
        quick: dict[str, Any] = {
            "session_timeout_ms": 1_500, "heartbeat_interval_ms": 200, "max_poll_interval_ms": 4_000,
            "request_timeout_ms": 500,
        }  # fmt: skip
        settings = MemberConfig(GROUP, frozenset({TOPIC}), assignors or ("range",), **{**quick, **config})
        application = Application(name, self.broker_ids, settings, poll_ms)
        self.members[name] = application
        self.world.add(name, lambda disk: application)
        self.world.start(name)
        return application

    def leave(self, name: str) -> None:
        self.world.enter(name, self.members.pop(name).leave)

    def kill(self, name: str) -> None:
        """Crash the member without LeaveGroup: its session has to expire."""
        self.world.crash(name, lose_unflushed=False)
        del self.members[name]

    # -- inspection ----------------------------------------------------------------------------------

    @property
    def coordinating(self) -> int:
        """Return the broker that leads the offsets partition in its newest leader epoch, or -1."""
        found = [(-1, -1)]
        for broker_id in self.up:
            broker = self.broker(broker_id)
            if broker.groups.check(GROUP) is ErrorCode.NONE:
                number = broker.groups.partition_for(GROUP)
                found.append((broker.replicas.partitions["__consumer_offsets", number].leader_epoch, broker_id))
        return max(found)[1]

    @property
    def group(self) -> Group | None:
        """The group in the memory of its coordinator."""
        broker_id = self.coordinating
        return self.broker(broker_id).groups.groups.get(GROUP) if broker_id > 0 else None

    def shares(self) -> dict[str, list[int]]:
        return {name: sorted(number for _, number in each.member.owned) for name, each in self.members.items()}

    def _judge(self, host: Host) -> None:
        if host.name in self.members and self.group is not None:
            self.ownership_conflicts += ownership_conflicts(self.members, self.group)

    @property
    def settled(self) -> bool:
        """Return whether the group is stable with exactly these members and every partition has one owner."""
        group = self.group
        everything = sorted(number for share in self.shares().values() for number in share)
        ids = {each.member.member_id for each in self.members.values()}
        return (
            group is not None
            and group.state is (GroupState.STABLE if self.members else GroupState.EMPTY)
            and set(group.members) == ids
            and everything == (list(range(self.partitions)) if self.members else [])
        )

    def settle(self) -> dict[str, list[int]]:
        """Run until the assignment is stable and return the partitions of each member."""
        end_ms = self.world.now_ms + SETTLE_MS
        calm = 0
        while calm < 10:
            assert self.world.now_ms < end_ms, f"not settled: {self.shares()} {self.group}"
            self.run(100)
            calm = calm + 1 if self.settled else 0
        return self.shares()
