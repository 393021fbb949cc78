"""The reference broker in a simulated world, as a target of the suite: no process, no port, no waiting.

Theory of operation
-------------------
`begin_case` makes a world of one metadata store and N brokers, with the settings of the target `reference` and a seed
that is derived from the name of the case. The case then runs as over TCP; its transport and its clock are those of the
world, which moves only while the case waits. `end_case` returns the fingerprint of the world and what broke in it: an
exception of a node, or a case that did not end within `LIMIT_MS` of virtual time.

A run of a case depends on the case and the code alone. So a failure needs no second run, any number of processes may
share the cases, and equal fingerprints of two runs mean that they were the same event by event.

Deliberately absent: TLS, and limits of a real machine (sockets, buffers, memory).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from zlib import crc32

from highwater.conformance.client.broker import NOW_MS
from highwater.conformance.failures import TargetFailure
from highwater.conformance.targets.base import (
    CLOCKS,
    LINKS,
    LOST_TAILS,
    PAUSE_NODE,
    REPEATABLE,
    STOP_NODE,
    CaseEnd,
    SaslListener,
)  # fmt: skip
from highwater.conformance.targets.reference import LOGIN_SETTINGS, ReferenceTarget, login_listener, placement
from highwater.fuzz.simulator.cluster import ClusterState
from highwater.fuzz.simulator.invariants.violations import ViolationError
from highwater.fuzz.virtual.invariants import CaseInvariants
from highwater.reference.broker import Broker
from highwater.reference.configuration.broker import BrokerConfig, StoreConfig
from highwater.reference.configuration.properties import broker_config
from highwater.reference.drivers.cluster import cluster_settings, settings_of
from highwater.reference.drivers.security import Security
from highwater.reference.drivers.simulation.clients import LOOPBACK, Port, SimulatedTransport
from highwater.reference.drivers.simulation.disk import Lose
from highwater.reference.drivers.simulation.world import World
from highwater.reference.effects import STORE, broker_peer
from highwater.reference.store.metadata_store import MetadataStore
from highwater_kafka import installed_version

FIRST_PORT: Final = 9092
LOGIN_PORT: Final = 9192
POLL_S: Final = 0.02
YEARS_LATER_MS: Final = NOW_MS + 3 * 365 * 86_400_000
"""The wall clock at the start of a case: the fixed timestamps of most records are years ago, as on a real machine."""
SHUTDOWN_S: Final = 5.0
START_S: Final = 30.0
BOOTED_MS: Final = 60_000
"""The monotonic clock at the start: with 0 a broker would take "never" for the present."""
LIMIT_MS: Final = 3_600_000
"""Of virtual time for one case: longer than any wait of a case, so that one that never ends is reported."""


class CaseWorld(ClusterState):
    """The world of one case, its brokers and the ports at which clients reach them."""

    def __init__(self, seed: int, configs: Mapping[int, BrokerConfig]) -> None:
        super().__init__(World(seed, spread_ms=0, wall_clock_start_ms=YEARS_LATER_MS), list(configs))
        self.world.now_ms = BOOTED_MS
        self.configs = configs
        self.invariants = CaseInvariants(self)
        self.world.add(STORE, lambda disk: MetadataStore(StoreConfig(), disk, tracing=False))
        for broker_id, config in self.configs.items():
            self.world.add(broker_peer(broker_id), lambda disk, c=config: Broker(c, disk, tracing=False))  # type: ignore[misc]
        self.transport = SimulatedTransport(self.world, self._ports())
        self.transport.step = self._step
        self.broken = ""
        self._link_faults: list[tuple[str, str, dict[str, int]]] = []
        self.world.start(STORE)
        for broker_id in self.configs:
            self.start(broker_id)
        for broker_id in self.configs:
            self.wait_until_up(broker_id)

    def _ports(self) -> dict[int, Port]:
        first, *_ = self.configs
        stream = self.world.chance.stream("login")
        drawn = iter(range(1, 1 << 30))

        def nonce() -> str:
            return f"{stream.draw(next(drawn), 1 << 62):016x}"

        login = Security(
            broker_config({"broker_id": first, **LOGIN_SETTINGS}, "login"),
            clock=lambda: self.world.instant(self.world.hosts[broker_peer(first)]), nonce=nonce, salt=nonce().encode(),
        )  # fmt: skip
        ports = {config.port: Port(broker_id) for broker_id, config in self.configs.items()}
        return ports | {LOGIN_PORT: Port(first, login.authenticator)}

    def _step(self, end_ms: int) -> bool:
        """Run one event for a client that waits; raises TargetFailure once the world is broken."""
        if not self.broken and self.world.now_ms >= BOOTED_MS + LIMIT_MS:
            open_requests = ", ".join(self.transport.open_requests()) or "none"
            self.broken = f"the case did not end within {LIMIT_MS // 60_000} virtual minutes; open: {open_requests}"
        if not self.broken:
            try:
                return self.world.step(end_ms)
            except ViolationError as error:
                self.broken = str(error.violation)
            except Exception as error:  # no request may make a node raise
                self.broken = f"a node raised {type(error).__name__}: {error}"
        raise TargetFailure(self.broken)

    def start(self, node: int | str) -> None:
        if not self.world.is_up(self.peer(node)):
            self.world.start(self.peer(node))

    def wait_until_up(self, broker_id: int) -> None:
        """Let time pass until the broker is registered and has the metadata, as a process that says it is ready."""
        end = self.transport.clock.monotonic() + START_S
        while not self._is_up(broker_id) and self.transport.clock.monotonic() < end:
            self.transport.clock.sleep(POLL_S)

    def _is_up(self, broker_id: int) -> bool:
        broker = self.world.hosts[broker_peer(broker_id)].node
        return isinstance(broker, Broker) and broker.cache.is_alive(broker_id)

    def stop(self, node: int | str) -> None:
        """Stop a broker with a controlled shutdown of at most `SHUTDOWN_S`, as SIGTERM does."""
        peer = self.peer(node)
        host = self.world.hosts[peer]
        broker, end = host.node, self.transport.clock.monotonic() + SHUTDOWN_S
        if isinstance(broker, Broker):
            self.world.enter(peer, broker.shut_down)
            while not broker.may_stop and host.node is broker and self.transport.clock.monotonic() < end:
                self.transport.clock.sleep(POLL_S)
            if host.node is broker:
                self.world.enter(peer, broker.stop)
                host.disk.flush_all()
        self.kill(node)

    def kill(self, node: int | str, lose: Lose = "nothing") -> None:
        if self.world.is_up(self.peer(node)):
            if lose != "nothing":
                self.invariants.unclean.add(int(node))
            self.world.crash(self.peer(node), lose=lose)

    def begin_link_fault(self, node: int, others: Sequence[int], **amounts: int) -> None:
        """Add a fault to both directions of the links between a broker and others."""
        for other in others:
            for source, target in ((node, other), (other, node)):
                self.world.network.add_faults(broker_peer(source), broker_peer(target), "", **amounts)
                self._link_faults.append((broker_peer(source), broker_peer(target), amounts))

    def end_link_faults(self) -> None:
        for source, target, amounts in self._link_faults:
            self.world.network.add_faults(source, target, "", **{name: -amount for name, amount in amounts.items()})
        self._link_faults.clear()

    def move_clocks(self, by_ms: int) -> None:
        for broker_id in self.broker_ids:
            self.world.hosts[broker_peer(broker_id)].wall_offset_ms += by_ms

    @staticmethod
    def peer(node: int | str) -> str:
        return STORE if node == STORE else broker_peer(int(node))


def _config(broker_id: int, brokers: int, more: Mapping[str, object]) -> BrokerConfig:
    common = cluster_settings(brokers, **{**ReferenceTarget.settings, **placement(brokers), **more})
    own = {"broker_id": broker_id, "port": FIRST_PORT - 1 + broker_id, "host": LOOPBACK}
    return broker_config({**own, **settings_of(broker_id, common)}, f"broker {broker_id}")


class SimulatorTarget:
    """N simulated brokers; a new world for each case."""

    name, era = "simulator", ReferenceTarget.era
    capabilities = frozenset({STOP_NODE, PAUSE_NODE, REPEATABLE, LINKS, LOST_TAILS, CLOCKS})
    command_config: Path | None = None

    def __init__(
        self, brokers: int = 1, *, guards_off: tuple[str, ...] = (), hidden: Mapping[str, object] | None = None
    ) -> None:
        """Make the cluster; `hidden` settings are applied, but not reported in `settings`."""
        self.version = installed_version()
        self._more = {**(hidden or {}), "guards_off": guards_off}
        self.addresses = {number: f"{LOOPBACK}:{FIRST_PORT - 1 + number}" for number in range(1, brokers + 1)}
        self._configs = self._configured({})
        self.begin_case("")

    def _configured(self, settings: Mapping[str, int]) -> dict[int, BrokerConfig]:
        more = {**self._more, **settings}
        return {number: _config(number, len(self.addresses), more) for number in self.addresses}

    def begin_case(self, case: str, settings: Mapping[str, int] = {}) -> None:
        """Make the world of a case; its seed is derived from the case's name."""
        self.settings: Mapping[str, int] = {**ReferenceTarget.settings, **settings}
        configs = self._configured(settings) if settings else self._configs
        self._case = CaseWorld(crc32(case.encode()), configs)
        self.transport = self._case.transport

    def end_case(self) -> CaseEnd:
        """Return the fingerprint of the world, and what broke in it."""
        return CaseEnd(f"{self._case.world.fingerprint:016x}", self._case.broken)

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses.values())

    @property
    def sasl(self) -> SaslListener:
        return login_listener(f"{LOOPBACK}:{LOGIN_PORT}")

    def start_node(self, node: int | str) -> None:
        self._case.start(node)
        if node != STORE:
            self._case.wait_until_up(int(node))

    def stop_node(self, node: int | str) -> None:
        self._case.stop(node)

    def kill_node(self, node: int | str) -> None:
        self._case.kill(node)

    def pause_node(self, node: int | str) -> None:
        self._case.world.pause(self._case.peer(node))

    def resume_node(self, node: int | str) -> None:
        self._case.world.resume(self._case.peer(node))

    def slow_links(self, node: int, others: Sequence[int], delay_ms: int) -> None:
        self._case.begin_link_fault(node, others, delay_ms=delay_ms)

    def cut_links(self, node: int, others: Sequence[int]) -> None:
        self._case.begin_link_fault(node, others, cut=1)

    def restore_links(self) -> None:
        self._case.end_link_faults()

    def kill_losing_tail(self, node: int) -> None:
        self._case.kill(node, lose="torn")

    def move_clocks(self, seconds: int) -> None:
        self._case.move_clocks(seconds * 1000)

    def revive(self) -> bool:
        for node in self.addresses:
            self.start_node(node)
        return True

    def close(self) -> None:
        """Do nothing: there is no process."""
