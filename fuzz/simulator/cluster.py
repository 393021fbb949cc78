"""Set up a simulated cluster of one metadata store and N brokers, and read its state."""

from dataclasses import dataclass, field
from typing import Any

from highwater.fuzz.schedule import Fault
from highwater.fuzz.simulator.clients.producers import RetryingClient, topic_creator
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
OUTPUT_TOPIC = "out"  # what a consume-transform-produce client writes to
CLASSIC = "classic"  # the value of `Load.transforms` for transactions before KIP-890
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
COMPACTED = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
UNCLEAN_LEAVES = "UncleanRestartLeavesIsr"

# Short time-outs, so that sessions expire, ISRs shrink and leaders change within a few virtual seconds.
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
    """The clients of a run: how many of each kind.

    `members` has the assignors of each group member, joined by `+`. Each `twins` members share a group.instance.id.
    """

    producers: int = 2
    idempotent: int = 0
    transactional: int = 0
    transaction_timeout_ms: int = 60_000
    members: tuple[str, ...] = ()
    twins: int = 0
    commits: bool = True  # members commit offsets
    old_consumers: int = 0  # consumers of Kafka 0.7 in one group; they use only the metadata store
    administrator: bool = False
    deletes: bool = False  # the administrator also creates and deletes the topic `side`
    moves_side: bool = False  # it creates, reassigns and deletes `side` in turn, and sends each request to all brokers
    readers: int = 0  # assigned consumers, in turn read_uncommitted and read_committed
    group_readers: int = 0  # members of another group: they read from its committed offsets and commit their positions
    transforms: str = ""  # a consume-transform-produce client: `classic`, or `v2` for transaction version 2 (KIP-890)
    intruder: bool = False  # a client writes unreadable batches, and records of internal topics
    hurries: bool = False  # it sends each request to all brokers and waits only a quarter of the time


@dataclass(frozen=True, slots=True)
class Focus:
    """Restricts the faults that a seed draws.

    `kinds`: only faults of these kinds. `messages`: link faults affect only messages of these types. `faults`: exactly
    these faults, each up to 300 ms later.
    """

    kinds: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one run; the seed draws the rest. `replication_factor` 0 means one replica on every broker.

    With `swarm` the seed also draws the clients (unless `load` is set), how a leader changes the ISR (ZooKeeper or
    AlterPartition), and whether requests of different types may overtake each other.

    With `pace` 1 the time-outs of brokers and clients are short (`QUICK`); with 30 they are about Kafka's defaults.
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
    pace: int = 1  # multiplies all time-outs, pauses and faults; the delays of the network stay
    reorder: bool = False  # each kind of request has a connection of its own
    wire: bool = False  # every message is encoded and decoded
    programs: int = 0  # clients that run programs of the conformance suite
    assigned: tuple[int, ...] = ()
    racks: tuple[str, ...] = ()
    broker_settings: dict[str, Any] = field(default_factory=dict)
    node_settings: dict[str, dict[str, Any]] = field(default_factory=dict)  # by broker id
    focus: Focus = Focus()

    @property
    def clients(self) -> Load:
        """Return the clients of the run: `load`, or two producers if it is None."""
        return self.load or Load()

    @property
    def internal_topics(self) -> list[str]:
        """Return the internal topics that the clients use."""
        load = self.clients
        return [
            *([OFFSETS_TOPIC] if load.members or load.group_readers or load.transforms else []),
            *([TRANSACTIONS_TOPIC] if load.transactional or load.transforms else []),
        ]

    @property
    def replicas(self) -> int:
        """Return the number of replicas of each partition."""
        return self.replication_factor or self.brokers


class ClusterState:
    """Reads the nodes of a world directly, without messages. `pace` multiplies all time-outs (`Settings.pace`)."""

    def __init__(self, world: World, broker_ids: list[int], pace: int = 1) -> None:
        self.world, self.broker_ids, self.pace = world, broker_ids, pace

    def store(self) -> MetadataStore:
        """Return the metadata store; raises AssertionError while it is down."""
        node = self.world.hosts[STORE].node
        assert isinstance(node, MetadataStore), "the store is down"
        return node

    def store_if_up(self) -> MetadataStore | None:
        """Return the metadata store, None while it is down."""
        return self.store() if self.world.is_up(STORE) else None

    def broker(self, broker_id: int) -> Broker | None:
        """Return the broker, None while it is down."""
        node = self.world.hosts[broker_peer(broker_id)].node
        return node if isinstance(node, Broker) else None

    def stored(self, partition: int, topic: str = TOPIC) -> PartitionState | None:
        """Return the partition state in the metadata store, None if there is none."""
        return self.store().peek(state_path(topic, partition), PartitionState.from_bytes)

    def controller(self) -> int:
        """Return the id of the broker that the metadata store has as controller, or -1."""
        return self.store().peek(CONTROLLER, lambda data, version: int(from_json(data)["brokerid"])) or -1


class SimulatedCluster(ClusterState):
    """One metadata store and `Settings.brokers` brokers in a world of virtual time."""

    def __init__(self, seed: int, settings: Settings, *, tracing: bool = False) -> None:
        self.settings, self.tracing = settings, tracing
        world = World(
            seed, spread_ms=settings.spread_ms, loss_per_mille=settings.loss_per_mille, reorder=settings.reorder
        )
        super().__init__(world, list(range(1, settings.brokers + 1)), settings.pace)
        if settings.wire:
            self.world.network.through_the_wire = through_the_wire
        quick = {name: value * settings.pace if name.endswith("_ms") else value for name, value in QUICK.items()}

        def make_store(disk: SimulatedDisk) -> Node:
            return MetadataStore(StoreConfig(tick_ms=100 * settings.pace), disk, tracing=tracing)

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
                **{**quick, **settings.broker_settings, **self._node_settings(broker_id)},
            )
            self.world.add(broker_peer(broker_id), lambda disk, c=config: Broker(c, disk, tracing=tracing))  # type: ignore[misc]

    def _node_settings(self, broker_id: int) -> dict[str, Any]:
        return self.settings.node_settings.get("*", {}) | self.settings.node_settings.get(str(broker_id), {})

    def start(self) -> None:
        """Start the store and the brokers and create the topic.

        Raises AssertionError if no broker confirms the topic within 20 virtual seconds.
        """
        self.world.start(STORE)
        for broker_id in self.broker_ids:
            self.world.start(broker_peer(broker_id))
        self.world.run_until(self.world.now_ms + 300 * self.settings.pace)
        if not self.broker_ids:
            return
        settings = self.settings
        self._create("client:admin", TOPIC, settings.partitions, settings.assigned)
        if settings.clients.transforms:
            self._create("client:output", OUTPUT_TOPIC, 1, ())

    def _create(self, client: str, topic: str, partitions: int, assigned: tuple[int, ...]) -> None:
        creator = topic_creator(self.broker_ids, topic, partitions, self.settings.replicas, assigned)
        self.run_client(client, creator, patience_ms=20_000 * self.settings.pace)
        if not creator.done:
            raise AssertionError(f"the simulated cluster did not create {topic} in time")

    def run_client(self, name: str, client: RetryingClient, *, patience_ms: int) -> None:
        """Run the client until it is done, but not longer than `patience_ms` of virtual time."""
        client.pace = self.settings.pace
        self.world.add(name, lambda disk: client)
        self.world.start(name)
        end_ms = self.world.now_ms + patience_ms
        while not client.done and self.world.now_ms < end_ms:
            self.world.run_until(self.world.now_ms + 10)

    # -- reading the state -------------------------------------------------------------------------

    def is_restart_handled(self, broker_id: int) -> bool:
        """Return whether the broker runs and the controller has handled its unclean restart, if any (KIP-966)."""
        broker = self.broker(broker_id)
        return broker is not None and (broker.replicas.started_clean or UNCLEAN_LEAVES in self.settings.guards_off)

    def replica(self, broker_id: int, partition: int) -> Partition | None:
        """Return the replica of a partition of topic `t` on a broker, None if there is none; -1 is no broker."""
        broker = self.broker(broker_id) if broker_id > 0 else None
        return broker.replicas.partitions.get((TOPIC, partition)) if broker else None

    def assigned(self, partition: int) -> tuple[int, ...]:
        """Return the replicas that the metadata store assigns, () if the topic does not exist."""
        topic = self.store().peek(f"{TOPICS}/{TOPIC}", lambda data, version: parse_topic(data))
        return topic.assignment[partition] if topic else ()

    def coordinator_of(self, group: str) -> int:
        """Return the running broker that acts as coordinator of the group in the highest leader epoch, or -1."""
        found = {-1: -1}
        for broker_id in self.broker_ids:
            broker = self.broker(broker_id)
            if broker is not None and broker.groups.check(group) is ErrorCode.NONE:
                log = broker.replicas.partitions[OFFSETS_TOPIC, broker.groups.partition_for(group)]
                found[log.leader_epoch] = broker_id
        return found[max(found)]

    def leader(self, partition: int) -> int:
        """Return the broker that acts as leader in the leader epoch of the metadata store, or -1."""
        state = self.stored(partition)
        if state is None or state.leader < 0:
            return -1
        replica = self.replica(state.leader, partition)
        acting = replica is not None and replica.role is Role.LEADER and replica.leader_epoch == state.leader_epoch
        return state.leader if acting else -1
