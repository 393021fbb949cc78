"""Invariants of the controller and the partition states in the metadata store."""

from collections.abc import Callable, Iterable
from typing import Any

from highwater.fuzz.simulator.cluster import ClusterState
from highwater.fuzz.simulator.invariants.violations import CONTROLLER_ENTITY, About, SituationCounts, Violated
from highwater.reference.controller.cluster import BROKERS, CONTROLLER, CONTROLLER_EPOCH
from highwater.reference.drivers.simulation.world import Host
from highwater.reference.replication.states import PartitionState, state_path

FENCED_TOO_LONG_MS = 3_000
"""Within this time a controller removes a broker without a session from every ISR."""

Key = tuple[str, int]


def name_of(key: Key) -> str:
    """Return a partition as it is written, e.g. `t-0`."""
    return f"{key[0]}-{key[1]}"


class AcceptedControllerEpochs:
    """BrokersGoForward: between restarts a broker accepts no controller epoch lower than the previous one."""

    def __init__(self, violated: Violated) -> None:
        self._violated = violated
        self._known: dict[int, tuple[int, int]] = {}  # broker -> its life, and the epoch that it has accepted

    def check(self, host: Host, broker_id: int, epoch: int) -> None:
        """Check the controller epoch of a broker after one of its events."""
        found = host.life, epoch
        life, previous = known = self._known.get(broker_id, (0, -1))
        if found == known:
            return
        if life == host.life and epoch < previous:
            about = About(entity=CONTROLLER_ENTITY, node=host.name)
            self._violated("BrokersGoForward", f"accepts controller epoch {epoch} after {previous}", about)
        self._known[broker_id] = found


class StoredState:
    """Checks every change of the store. `states` has the newest state of each partition.

    Calls `on_change(partition, previous state)` after each change of a partition state.
    """

    def __init__(
        self, cluster: ClusterState, keys: Iterable[Key], situations: SituationCounts, violated: Violated,
        on_change: Callable[[Key, PartitionState | None], None],
    ) -> None:  # fmt: skip
        self._cluster, self._world, self._situations, self._violated, self._on_change = (
            cluster,
            cluster.world,
            situations,
            violated,
            on_change,
        )
        self.states: dict[Key, PartitionState] = {}
        self._paths = {key: state_path(*key) for key in keys}
        self._raw: dict[str, Any] = {}
        self._terms: dict[int, int] = {}  # controller epoch -> its controller
        self._leaders: dict[tuple[Key, int], int] = {}  # (partition, leader epoch) -> its leader
        self._claim: tuple[bytes, int] | None = None
        self._since_ms = 0  # when the current controller was elected
        self._unregistered: dict[int, int] = {}  # broker without a session -> when it was first missing (ms)

    def watch(self, key: Key) -> None:
        """Check the states of another partition, too."""
        self._paths.setdefault(key, state_path(*key))

    def forget(self, key: Key) -> None:
        """Stop to check a partition: its topic is deleted, and a later one of its name begins again."""
        self._paths.pop(key, None)
        self._raw.pop(state_path(*key), None)
        self.states.pop(key, None)
        for known in [known for known in self._leaders if known[0] == key]:
            del self._leaders[known]

    def after_event(self) -> None:
        """Check the store after one of its events."""
        store = self._cluster.store()
        self._check_controller()
        for key, path in list(self._paths.items()):  # a change may end the checks of a partition
            raw = store.peek(path, lambda data, version: (data, version))
            if raw != self._raw.get(path):
                self._raw[path] = raw
                if raw is not None:
                    self._changed(key, PartitionState.from_bytes(*raw))
        self._check_fenced()

    def _check_controller(self) -> None:
        """OneControllerPerEpoch: no two elections have the same controller epoch."""
        claim = self._cluster.store().peek(CONTROLLER, lambda data, version: data)
        if claim is None:
            self._claim = None
            return
        claimed = claim, self.controller_epoch
        if claimed == self._claim:
            return
        self._claim, self._since_ms = claimed, self._world.now_ms
        self._situations.add("controller change" if self._terms else "first controller")
        holder = self._cluster.controller()
        if claimed[1] in self._terms:
            self._violated(
                "OneControllerPerEpoch",
                f"{holder} claims controller epoch {claimed[1]}, which {self._terms[claimed[1]]} had",
                About(entity=CONTROLLER_ENTITY),
            )
        self._terms[claimed[1]] = holder

    @property
    def controller_epoch(self) -> int:
        """Return the controller epoch in the store, 0 before the first election."""
        return self._cluster.store().peek(CONTROLLER_EPOCH, lambda data, version: int(data)) or 0

    def _changed(self, key: Key, state: PartitionState) -> None:
        before = self.states.get(key)
        self.states[key] = state
        elected = before is None or (before.leader, before.leader_epoch) != (state.leader, state.leader_epoch)
        if elected and state.leader >= 0:
            other = self._leaders.setdefault((key, state.leader_epoch), state.leader)
            if other != state.leader:
                self._violated(
                    "OneLeaderPerEpoch",
                    f"{name_of(key)}: {state.leader} is elected for leader epoch {state.leader_epoch} after {other}",
                    About(name_of(key)),
                )
        if before is not None and elected and state.controller_epoch < self.controller_epoch:
            self._violated(
                "ZombiesWriteNothing",
                f"{name_of(key)}: {before} became {state}, written by a controller of epoch {state.controller_epoch} "
                f"while the store holds {self.controller_epoch}",
                About(name_of(key)),
            )
        if before is not None and len(state.isr) != len(before.isr):
            self._situations.add("isr shrink" if len(state.isr) < len(before.isr) else "isr expansion")
        if before is not None:
            self._count_election(before, state, elected=elected)
        self._on_change(key, before)

    def _count_election(self, before: PartitionState, state: PartitionState, *, elected: bool) -> None:
        if len(state.isr) == 1 < len(before.isr):
            self._situations.add("isr of one")
        if elected and state.leader < 0:
            self._situations.add("no leader")
        if elected and state.leader >= 0 and state.leader not in before.isr + before.elr:
            self._situations.add("unclean election")

    def _check_fenced(self) -> None:
        """NoFencedMember: a broker without a session is in no ISR after `FENCED_TOO_LONG_MS`."""
        now_ms, store = self._world.now_ms, self._cluster.store()
        for broker_id in self._cluster.broker_ids:
            if store.peek(f"{BROKERS}/{broker_id}", lambda data, version: True):
                self._unregistered.pop(broker_id, None)
                continue
            since_ms = max(self._unregistered.setdefault(broker_id, now_ms), self._since_ms)
            if self._claim is None or now_ms - since_ms < FENCED_TOO_LONG_MS * self._cluster.pace:
                continue
            for (topic, number), state in self.states.items():
                if state.leader >= 0 and state.leader != broker_id and broker_id in state.isr:
                    self._violated(
                        "NoFencedMember",
                        f"{broker_id} is in the ISR {state.isr} of {topic}-{number}, "
                        f"and has had no session for {now_ms - since_ms} ms",
                        About(f"{topic}-{number}"),
                    )
