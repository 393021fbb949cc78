"""Apache Kafka behind the proxies of `chaos`, as a target of the suite: links can be cut, tails lost, and clocks moved.

Every listener of a broker and of a controller has a proxy, so the cases reach the brokers through it, too: messages
take a little longer than without. So this is a target of its own, `apache-kafka-faults[:VERSION][:N]`, for the cases
that need these faults.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from highwater.conformance.targets.apache_kafka import ApacheKafka
from highwater.conformance.targets.base import CLOCKS, LINKS, LOST_TAILS
from highwater.errors import UsageError
from highwater.faketime import missing_for_clocks
from highwater.fuzz.chaos.apache_kafka import ProxiedSettings
from highwater.fuzz.chaos.clocks import Clocks
from highwater.fuzz.chaos.cluster import LaunchedTarget
from highwater.fuzz.chaos.disk.mount import mount_disks
from highwater.fuzz.chaos.nemesis import Undo
from highwater.fuzz.schedule import Fault, Schedule
from highwater.temporary import temporary_folder

SPREAD: Final[Mapping[str, object]] = {"offsets.topic.num.partitions": 5, "transaction.state.log.num.partitions": 5}
"""Partitions for coordinators on different brokers: a cut link then stops one of them, and the other goes on."""
KEPT_PAGES: Final = 2
"""Pages of each file that a broker keeps of what it had not flushed."""


class FaultyApacheKafka(ApacheKafka):
    """A cluster with `LINKS`, and as far as this machine supports them (FUSE, libfaketime) `LOST_TAILS` and `CLOCKS`.

    Raises UsageError for a release without KRaft.
    """

    def __init__(self, version: str, brokers: int) -> None:
        found = LaunchedTarget("apache-kafka", version, brokers)
        if not found.is_kraft:
            raise UsageError("a release without ZooKeeper is needed", where=f"apache-kafka-faults:{version}")
        self._stack = ExitStack()
        self._proxied = ProxiedSettings(
            Schedule(duration_ms=0), self._stack, is_kraft=True, faults_of_controllers=False
        )
        folder = self._stack.enter_context(temporary_folder("faults-"))
        self._proxied.disks = mount_disks(folder, found.nodes, self._stack)
        self._clocks = None if missing_for_clocks() else Clocks(folder, found.nodes)
        self._undo: list[Undo] = []
        self.capabilities |= {LINKS}
        self.capabilities |= {LOST_TAILS} if self._proxied.disks else set()
        self.capabilities |= {CLOCKS} if self._clocks else set()
        try:
            super().__init__(
                version, brokers, settings=SPREAD, node_settings=self._proxied.settings, environment=self._clock_of
            )
        except BaseException:
            self._stack.close()
            raise

    def _clock_of(self, node: int | str) -> dict[str, str]:
        return self._clocks.environment(str(node)) if self._clocks else {}

    def close(self) -> None:
        super().close()
        self._stack.close()

    def slow_links(self, node: int, others: Sequence[int], delay_ms: int) -> None:
        self._begin("delay", node, others, ms=delay_ms, spread_ms=0)

    def cut_links(self, node: int, others: Sequence[int]) -> None:
        self._begin("cut", node, others)

    def _begin(self, kind: str, node: int, others: Sequence[int], **options: int) -> None:
        for other in others:
            of = {"of": str(other), "direction": "both"}
            fault = Fault(at_ms=0, kind=kind, nodes=(str(node),), options={**of, **options})
            self._undo.append(self._proxied.links.begin(fault, str(node)))

    def restore_links(self) -> None:
        while self._undo:
            self._undo.pop()()

    def kill_losing_tail(self, node: int) -> None:
        self.kill_node(node)
        self._proxied.disks[str(node)].execute(f"lose {KEPT_PAGES}")

    def move_clocks(self, seconds: int) -> None:
        assert self._clocks is not None, "a case asks for the capability first"
        for node in self.addresses:
            self._clocks.move(str(node), seconds * 1000)
