"""Run a scenario: a file with one command on each line and, after `----`, the golden output.

=====================================  =======================================================================
cluster N [key=value ...]              start N brokers and topic t (one partition); keys: truncation,
                                       min_insync_replicas, guards_off, assigned, or any broker setting
produce V ... [patience=MS] [at=N]     write these values with acks=all, one by one, to N or to the leader; wait
                                       for each acknowledgement, at most MS (3,000)
hold A -> B / release A -> B           hold the messages of a link / deliver them all
deliver A -> B / drop A -> B           deliver or lose the oldest held message
deliver A -> B until ACTION            deliver one after the other until this protocol step
crash N [lose=unflushed]               crash a broker; it loses unflushed data only with lose=unflushed
restart N / pause N / resume N
fill N / free N                        the disk of a broker is full / has space again
expire N                               the metadata store ends the session of the broker now
leave N                                controlled shutdown
run MS                                 let MS virtual milliseconds pass
until ACTION [key=value]               run until this protocol step, at most 10 s
reassign A B ...                       ask the controller to move the partition to these brokers
elect preferred|unclean                ask the controller for an election
delete                                 ask the controller to delete the topic
alter KEY=VALUE                        change a setting of the topic
show                                   every replica: role, epoch, log, high watermark, and the stored state
stored                                 assigned replicas, leader, ISR and eligible replicas in the store
read                                   the records that a consumer reads from the leader
=====================================  =======================================================================

N may be `leader` or `controller`: the broker that has the role at that time.

After each command the runner prints the protocol steps since the last one, with the names of the TLA+ actions.
`python -m highwater.fuzz.scenarios --rewrite` rewrites the golden output; review the diff.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from highwater.fuzz.simulator.clients.producers import Producer, RetryingClient
from highwater.fuzz.simulator.cluster import TOPIC, Settings, SimulatedCluster
from highwater.reference.broker import Broker
from highwater.reference.effects import STORE, broker_peer
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from highwater.reference.wire.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from highwater.reference.wire.messages.topics import DeleteTopicsRequest
from highwater.reference.wire.records import batch_headers, decode_records
from highwater.spec.formats.trace import Step

Command = Callable[..., None]


def run_script(
    script: str, commands: Mapping[str, Command], write: Callable[[str], None], after_each: Callable[[], None]
) -> None:
    """Run one command for each line; `#` begins a comment. Writes each command before it runs.

    Raises KeyError with the command if it is unknown.
    """
    for line in script.splitlines():
        text = line.split("#")[0].strip()
        if text:
            write(f"> {text}")
            verb, *words = text.split()
            commands[verb](*words)
            after_each()


SEPARATOR = "----"
SEED = 0
PATIENCE_MS = 3_000
LONG_PATIENCE_MS = 10_000
MANY = 100
TOPIC_RESOURCE = 2
HIDDEN_ACTIONS = {"SendFetch", "LeaderServeFetch", "Claim"}
HIDDEN_FIELDS = {
    "BecomeLeader": {"min_insync_replicas", "controller_epoch", "partition_epoch"},
    "BecomeFollower": {"controller_epoch", "partition_epoch"},
    "ReassignmentStep": {"target"},
}


class Scenario:
    """Runs the commands of one script on a simulated cluster and collects the output."""

    def __init__(self) -> None:
        self._cluster: SimulatedCluster | None = None
        self._lines: list[str] = []
        self._printed_steps = 0
        self._acked: list[int] = []
        self._producers = 0
        self._appended: dict[int | str, dict[str, Any]] = {}
        self._commands: dict[str, Callable[..., None]] = {
            "cluster": self._start,
            "produce": self._produce,
            "hold": lambda a, _, b: self.cluster.world.hold(_peer(a), _peer(b)),
            "release": lambda a, _, b: self.cluster.world.release(_peer(a), _peer(b)),
            "deliver": self._deliver,
            "drop": lambda a, _, b: self._print(f"dropped {_name(self.cluster.world.drop(_peer(a), _peer(b)))}"),
            "crash": self._crash,
            "restart": lambda n: self.cluster.world.start(_peer(n)),
            "pause": lambda n: self.cluster.world.pause(self._resolve_node(n)),
            "resume": lambda n: self.cluster.world.resume(_peer(n)),
            "fill": lambda n: setattr(self.cluster.world.hosts[self._resolve_node(n)].disk, "full", True),
            "free": lambda n: setattr(self.cluster.world.hosts[_peer(n)].disk, "full", False),
            "expire": self._expire_session,
            "leave": self._leave,
            "until": self._until,
            "reassign": self._reassign,
            "elect": self._elect,
            "delete": self._delete,
            "alter": self._alter,
            "stored": self._stored,
            "run": lambda ms: self.cluster.world.run_until(self.cluster.world.now_ms + int(ms)),
            "show": self._show,
            "read": self._read,
        }

    @property
    def cluster(self) -> SimulatedCluster:
        """Return the cluster; raises AssertionError before the command `cluster`."""
        assert self._cluster is not None, "a scenario begins with: cluster N"
        return self._cluster

    def run(self, script: str) -> str:
        """Run a script and return its output."""
        run_script(script, self._commands, self._lines.append, self._print_steps)
        return "\n".join(self._lines) + "\n"

    def _print(self, line: str) -> None:
        self._lines.append(line)

    def _print_steps(self) -> None:
        for step in self.cluster.world.steps[self._printed_steps :]:
            if step.action not in HIDDEN_ACTIONS and not self._is_idle(step):
                self._print(f"  {_describe(step)}")
        self._printed_steps = len(self.cluster.world.steps)

    def _is_idle(self, step: Step) -> bool:
        """Return whether the step is a follower's fetch that changed nothing."""
        if step.action != "FollowerAppend":
            return False
        before = self._appended.get(step.node)
        self._appended[step.node] = step.state
        return before == step.state

    # -- commands --------------------------------------------------------------------------------

    def _start(self, size: str, *words: str) -> None:
        options = dict(word.split("=", 1) for word in words)
        settings = Settings(
            brokers=int(size),
            truncation=options.pop("truncation", "kip320"),
            min_insync_replicas=int(options.pop("min_insync_replicas", "1")),
            guards_off=tuple(filter(None, options.pop("guards_off", "").split(","))),
            spread_ms=0,
            assigned=tuple(int(member) for member in options.pop("assigned", "").split(",") if member),
            broker_settings={key: _setting(value) for key, value in options.items()},
        )
        self._cluster = SimulatedCluster(SEED, settings, tracing=True)
        self._cluster.start()
        self._printed_steps = len(self._cluster.world.steps)

    def _produce(self, *words: str) -> None:
        """Write the values one after the other, each with a new client."""
        world, values = self.cluster.world, [word for word in words if "=" not in word]
        options = dict(word.split("=") for word in words if "=" in word)
        patience_ms = int(options.get("patience", PATIENCE_MS))
        for value in values:
            acked: list[int] = []
            number = int(value.lstrip("m"))
            producer = Producer(
                self.cluster.broker_ids, "t", 0, first=number, stride=0, pause_ms=10 * PATIENCE_MS,
                on_ack=lambda partition, offset, written, acked=acked: acked.append(offset),  # type: ignore[misc]
                leader=int(options.get("at", -1)),
            )  # fmt: skip
            self._producers += 1
            client = f"client:{self._producers}"
            world.add(client, lambda disk, p=producer: p)  # type: ignore[misc]
            world.start(client)
            end_ms = world.now_ms + patience_ms
            while not acked and world.now_ms < end_ms:
                world.run_until(world.now_ms + 1)
            producer.stopped = True
            self._print(f"  {value} {'acknowledged at offset ' + str(acked[0]) if acked else 'not acknowledged'}")

    def _deliver(self, source: str, _arrow: str, target: str, *words: str) -> None:
        world = self.cluster.world
        first = len(world.steps)
        for _ in range(MANY if words else 1):
            self._print(f"  delivered {_name(world.deliver(_peer(source), _peer(target)))}")
            if words:
                world.run_until(world.now_ms + 5)  # time for the response and the messages that follow it
            if any(step.action == words[-1] for step in world.steps[first:] if words):
                return

    def _resolve_node(self, word: str) -> str:
        """Return the name of a node, identified by its number or its current role."""
        roles = {"leader": lambda: self.cluster.leader(0), "controller": self.cluster.controller}
        if word not in roles:
            return _peer(word)
        broker_id = roles[word]()
        self._print(f"  {word} is {broker_id}")
        return broker_peer(broker_id)

    def _crash(self, broker: str, *words: str) -> None:
        self.cluster.world.crash(self._resolve_node(broker), lose_unflushed="lose=unflushed" in words)

    def _expire_session(self, broker: str) -> None:
        """End the session of the broker as after a session time-out, without waiting for it."""
        store, peer = self.cluster.world.hosts[STORE].node, self._resolve_node(broker)
        self.cluster.world.enter(STORE, lambda now: store.expire(now, peer))  # type: ignore[union-attr]

    def _leave(self, broker: str) -> None:
        """Shut the broker down as SIGTERM does: move its leaders, end its session, then stop it."""
        world, peer = self.cluster.world, self._resolve_node(broker)
        node = world.hosts[peer].node
        assert isinstance(node, Broker)
        world.enter(peer, node.shut_down)
        end_ms = world.now_ms + PATIENCE_MS
        while not node.may_stop and world.now_ms < end_ms:
            world.run_until(world.now_ms + 1)
        world.enter(peer, node.stop)
        world.crash(peer, lose_unflushed=False)

    def _until(self, action: str, *words: str) -> None:
        """Run until the step; with `key=value` the choices or the state of the step must contain that."""
        world, (key, _, value) = self.cluster.world, "".join(words).partition("=")
        end_ms = world.now_ms + LONG_PATIENCE_MS
        checked = self._printed_steps
        while world.now_ms < end_ms:
            for step in world.steps[checked:]:
                if step.action == action and (not key or str({**step.choices, **step.state}.get(key)) == value):
                    return
            checked = len(world.steps)
            world.run_until(world.now_ms + 1)
        self._print(f"  {action} did not happen")

    def _reassign(self, *brokers: str) -> None:
        partition = ReassignablePartition(partition_index=0, replicas=tuple(int(broker) for broker in brokers))
        topic = ReassignableTopic(name=TOPIC, partitions=(partition,))
        self._send_to_controller(AlterPartitionReassignmentsRequest(topics=(topic,)), 0)

    def _elect(self, kind: str) -> None:
        election_type = {"preferred": 0, "unclean": 1}[kind]
        self._send_to_controller(ElectLeadersRequest(election_type=election_type, topic_partitions=None), 2)

    def _delete(self) -> None:
        self._send_to_controller(DeleteTopicsRequest(topic_names=(TOPIC,), timeout_ms=100), 3)

    def _alter(self, setting: str) -> None:
        key, _, value = setting.partition("=")
        changed = IncrementalAlterableConfig(name=key, value=value)
        topic = IncrementalAlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configs=(changed,))
        self._send_to_controller(IncrementalAlterConfigsRequest(resources=(topic,)), 0)

    def _send_to_controller(self, request: Any, version: int) -> None:
        retriable = {ErrorCode.NOT_CONTROLLER}

        def is_final(reply: Any) -> bool:
            codes = [getattr(reply, "error_code", ErrorCode.NONE)]
            codes += [part.error_code for part in getattr(reply, "responses", ()) if hasattr(part, "error_code")]
            return not retriable.intersection(codes)

        self._producers += 1
        retrying = RetryingClient(self.cluster.broker_ids, request, version, is_final)
        self.cluster.run_client(f"client:{self._producers}", retrying, patience_ms=LONG_PATIENCE_MS)
        if not retrying.done:
            self._print("  no controller answered")

    def _stored(self) -> None:
        assigned, state = self.cluster.assigned(0), self.cluster.stored(0)
        if state is None:
            self._print("  no such topic")
            return
        leader = f"leader {state.leader} epoch {state.leader_epoch} isr {_set(state.isr)}"
        leader += f" eligible {_set(state.elr)}" if state.elr else ""
        self._print(f"  assigned {_set(assigned)}  {leader}")

    def _show(self) -> None:
        for broker_id in self.cluster.broker_ids:
            replica = self.cluster.replica(broker_id, 0)
            if replica is None:
                up = self.cluster.world.is_up(broker_peer(broker_id))
                self._print(f"  {broker_id} {'has no replica' if up else 'down'}")
                continue
            log = " ".join(value for value in _values(self.cluster, broker_id))
            self._print(
                f"  {broker_id} {replica.role} epoch {replica.leader_epoch} log [{log}] "
                f"high watermark {replica.high_watermark}"
            )
        state = self.cluster.stored(0)
        if state is not None:
            self._print(f"  stored: leader {state.leader} epoch {state.leader_epoch} isr {_set(state.isr)}")

    def _read(self) -> None:
        leader = self.cluster.leader(0)
        if leader < 0:
            self._print("  nobody leads")
            return
        replica = self.cluster.replica(leader, 0)
        high_watermark = replica.high_watermark if replica else 0
        self._print(f"  from {leader}: [{' '.join(_values(self.cluster, leader)[:high_watermark])}]")


def _values(cluster: SimulatedCluster, broker_id: int) -> list[str]:
    replica = cluster.replica(broker_id, 0)
    if replica is None:
        return []
    end = replica.log.log_end_offset
    data = replica.log.read(replica.log.log_start_offset, 1 << 20, end, at_least_one=True)
    records = [record for position, _ in batch_headers(data) for record in decode_records(data, position)[1]]
    return [f"m{(record.value or b'').decode()}" for record in records]


def _setting(value: str) -> bool | int | str:
    if value in {"true", "false"}:
        return value == "true"
    return int(value) if value.isdigit() else value


def _peer(word: str) -> str:
    return STORE if word == STORE else broker_peer(int(word))


def _name(message: object) -> str:
    body = getattr(message, "body", message)
    return type(body).__name__


def _set(isr: object) -> str:
    assert isinstance(isr, tuple | list)
    return "{" + ",".join(str(member) for member in sorted(isr)) + "}"


def _describe(step: Step) -> str:
    hidden = HIDDEN_FIELDS.get(step.action, set())
    values = {key: value for key, value in {**step.choices, **step.state}.items() if key not in hidden}
    shown = [f"{key} {_set(v) if isinstance(v, tuple | list) else v}" for key, v in values.items()]
    return f"{step.node} {step.action}  {'  '.join(shown)}".rstrip()


def split(text: str) -> tuple[str, str]:
    """Return the script and the golden output of a scenario file."""
    script, _, golden = text.partition(f"{SEPARATOR}\n")
    return script, golden


def run_file(path: Path) -> tuple[str, str]:
    """Run a scenario file; return its output and its golden output."""
    script, golden = split(path.read_text())
    return Scenario().run(script), golden


def files() -> list[Path]:
    """Return the scenario files, sorted by name."""
    return sorted(Path(__file__).parent.glob("*.txt"))
