"""A cluster in the simulator: one metadata store, N brokers, and the clients of a run."""

from dataclasses import dataclass, field
from typing import Any

from highwater.fuzz.schedule import Fault
from highwater.fuzz.simulator.clients.producers import Asker, topic_creator
from highwater.reference.broker import Broker
from highwater.reference.configuration.broker import BrokerConfig, StoreConfig
from highwater.reference.context import from_json
from highwater.reference.controller.cluster import CONTROLLER, TOPICS, parse_topic
from highwater.reference.drivers.simulation.disk import SimulatedDisk
from highwater.reference.drivers.simulation.wire import through_the_wire
from highwater.reference.drivers.simulation.world import World
from highwater.reference.effects import STORE, Node, broker_peer
from highwater.reference.replication.partition import Partition, Role
from highwater.reference.replication.states import PartitionState, state_path
from highwater.reference.store.metadata_store import MetadataStore
from highwater.reference.wire.errors import ErrorCode

TOPIC = "t"
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
UNCLEAN_LEAVES = "UncleanRestartLeavesIsr"

# Quick time-outs: a run of some virtual seconds sees sessions expire, ISRs shrink and leaders change.
QUICK: dict[str, Any] = {
    "metadata_store_session_timeout_ms": 900,
    "replica_lag_time_max_ms": 600,
    "replica_fetch_wait_max_ms": 100,
    "replica_fetch_backoff_ms": 50,
    "high_watermark_checkpoint_interval_ms": 700,
    "log_flush_interval_ms": 250,
    "request_timeout_ms": 1_000,
    "offsets_topic_num_partitions": 1,
    "group_min_session_timeout_ms": 500,
    "transaction_state_log_num_partitions": 1,
    "log_segment_bytes": 4096,
    "log_index_interval_bytes": 512,
}


@dataclass(frozen=True, slots=True)
class Load:
    """How many clients of which kind; `members` each by their assignors; every `twins` of them share an instance id."""

    producers: int = 2
    idempotent: int = 0
    transactional: int = 0
    members: tuple[str, ...] = ()
    twins: int = 0
    commits: bool = True  # or the members keep offsets elsewhere
    old_consumers: int = 0  # of 0.7: those of one group, over a store and no broker of today
    administrator: bool = False
    deletes: bool = False  # the administrator makes and deletes a topic, too
    moves_side: bool = False  # or makes, moves and deletes that one, in turn, and asks every broker
    hurries: bool = False  # the administrator asks every broker, and soon the next thing


@dataclass(frozen=True, slots=True)
class Focus:
    """Which faults are drawn. `kinds`: of those alone; `messages`: broken links are of these alone; `story`: of those
    faults, each some hundreds of milliseconds later, and no others."""

    kinds: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    story: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """What one run is made of; everything else follows from the seed. `replication_factor` 0: one on every broker.

    `swarm`: the seed also draws the clients (unless `load` says), how an ISR is changed, and what may overtake what.
    """

    swarm: bool = False
    brokers: int = 3
    partitions: int = 1
    replication_factor: int = 0
    load: Load | None = None
    min_insync_replicas: int = 2
    truncation: str = "kip320"
    guards_off: tuple[str, ...] = ()
    spread_ms: int = 4
    loss_per_mille: int = 0
    reorder: bool = False  # each kind of request has a connection of its own
    wire: bool = False  # every message is encoded and decoded
    assigned: tuple[int, ...] = ()
    racks: tuple[str, ...] = ()
    broker_settings: dict[str, Any] = field(default_factory=dict)
    node_settings: dict[str, dict[str, Any]] = field(default_factory=dict)  # by broker id
    focus: Focus = Focus()

    @property
    def clients(self) -> Load:
        return self.load or Load()

    @property
    def replicas(self) -> int:
        return self.replication_factor or self.brokers


class SimulatedCluster:
    def __init__(self, seed: int, settings: Settings, *, tracing: bool = False) -> None:
        self.settings = settings
        self.world = World(
            seed, spread_ms=settings.spread_ms, loss_per_mille=settings.loss_per_mille, reorder=settings.reorder
        )
        if settings.wire:
            self.world.network.through_the_wire = through_the_wire
        self.broker_ids = list(range(1, settings.brokers + 1))

        def make_store(disk: SimulatedDisk) -> Node:
            return MetadataStore(StoreConfig(tick_ms=100), disk, tracing=tracing)

        self.world.add(STORE, make_store)
        for broker_id in self.broker_ids:
            config = BrokerConfig(
                broker_id=broker_id,
                port=9091 + broker_id,
                truncation=settings.truncation,  # type: ignore[arg-type]
                min_insync_replicas=settings.min_insync_replicas,
                default_replication_factor=settings.replicas,
                offsets_topic_replication_factor=settings.replicas,
                guards_off=settings.guards_off,
                broker_rack=settings.racks[broker_id - 1] if settings.racks else None,
                **{**QUICK, **settings.broker_settings, **self._of_node(broker_id)},
            )
            self.world.add(broker_peer(broker_id), lambda disk, c=config: Broker(c, disk, tracing=tracing))  # type: ignore[misc]

    def _of_node(self, broker_id: int) -> dict[str, Any]:
        return self.settings.node_settings.get("*", {}) | self.settings.node_settings.get(str(broker_id), {})

    def start(self) -> None:
        """Start everything and create the topic; ends when every broker knows its leaders."""
        self.world.start(STORE)
        for broker_id in self.broker_ids:
            self.world.start(broker_peer(broker_id))
        self.world.run_until(self.world.now_ms + 300)
        if not self.broker_ids:
            return
        wanted = self.settings
        creator = topic_creator(self.broker_ids, TOPIC, wanted.partitions, wanted.replicas, wanted.assigned)
        self.ask("client:admin", creator, patience_ms=20_000)
        if not creator.done:
            raise AssertionError("the simulated cluster did not come up within 20 virtual seconds")

    def ask(self, name: str, client: Asker, *, patience_ms: int) -> None:
        """Let a client ask until it has its answer, or for this long."""
        self.world.add(name, lambda disk: client)
        self.world.start(name)
        end_ms = self.world.now_ms + patience_ms
        while not client.done and self.world.now_ms < end_ms:
            self.world.run_until(self.world.now_ms + 10)

    # -- looking inside ----------------------------------------------------------------------------

    def store(self) -> MetadataStore:
        node = self.world.hosts[STORE].node
        assert isinstance(node, MetadataStore), "the store is down"
        return node

    def store_if_up(self) -> MetadataStore | None:
        return self.store() if self.world.is_up(STORE) else None

    def broker(self, broker_id: int) -> Broker | None:
        node = self.world.hosts[broker_peer(broker_id)].node
        return node if isinstance(node, Broker) else None

    def is_settled(self, broker_id: int) -> bool:
        """Running, and not about to leave every ISR: the controller has dealt with its unclean start, if it had one."""
        broker = self.broker(broker_id)
        return broker is not None and (broker.replicas.started_clean or UNCLEAN_LEAVES in self.settings.guards_off)

    def replica(self, broker_id: int, partition: int) -> Partition | None:
        broker = self.broker(broker_id)
        return broker.replicas.partitions.get((TOPIC, partition)) if broker else None

    def stored(self, partition: int, topic: str = TOPIC) -> PartitionState | None:
        """What the metadata store holds of a partition."""
        return self.store().peek(state_path(topic, partition), PartitionState.from_bytes)

    def assigned(self, partition: int) -> tuple[int, ...]:
        """The replicas that the metadata store assigns; none when the topic is gone."""
        topic = self.store().peek(f"{TOPICS}/{TOPIC}", lambda data, version: parse_topic(data))
        return topic.assignment[partition] if topic else ()

    def controller(self) -> int:
        """The broker whose claim the store holds, or -1."""
        return self.store().peek(CONTROLLER, lambda data, version: int(from_json(data)["brokerid"])) or -1

    def coordinator_of(self, group: str) -> int:
        """The running broker that takes itself for the group's coordinator in the newest leader epoch, or -1."""
        found = {-1: -1}
        for broker_id in self.broker_ids:
            broker = self.broker(broker_id)
            if broker is not None and broker.groups.check(group) is ErrorCode.NONE:
                log = broker.replicas.partitions[OFFSETS_TOPIC, broker.groups.partition_for(group)]
                found[log.leader_epoch] = broker_id
        return found[max(found)]

    def leader(self, partition: int) -> int:
        """The broker that acts as leader in the epoch that the store holds, or -1."""
        state = self.stored(partition)
        if state is None or state.leader < 0:
            return -1
        replica = self.replica(state.leader, partition)
        acting = replica is not None and replica.role is Role.LEADER and replica.leader_epoch == state.leader_epoch
        return state.leader if acting else -1
