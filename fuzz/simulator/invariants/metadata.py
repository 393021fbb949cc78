"""What the metadata store holds of controllers and partitions, and what may never become of it."""

from collections.abc import Callable, Iterable
from typing import Any

from highwater.fuzz.simulator.cluster import SimulatedCluster
from highwater.fuzz.simulator.invariants.violations import Seen
from highwater.reference.controller.cluster import BROKERS, CONTROLLER, CONTROLLER_EPOCH
from highwater.reference.replication.states import PartitionState, state_path

FENCED_TOO_LONG_MS = 3_000
"""A controller of so many milliseconds has had the time to take a broker without a session out of every ISR."""

Key = tuple[str, int]
Violated = Callable[[str, str], None]


class StoredState:
    """Follows the store. `states` holds the newest state of each partition, `tell(partition, before)` each change."""

    def __init__(
        self, cluster: SimulatedCluster, keys: Iterable[Key], seen: Seen, violated: Violated,
        tell: Callable[[Key, PartitionState | None], None],
    ) -> None:  # fmt: skip
        self._cluster, self._world, self._seen, self._violated, self._tell = (
            cluster,
            cluster.world,
            seen,
            violated,
            tell,
        )
        self.states: dict[Key, PartitionState] = {}
        self._paths = {key: state_path(*key) for key in keys}
        self._raw: dict[str, Any] = {}
        self._terms: dict[int, int] = {}  # controller epoch -> who claimed it
        self._leaders: dict[tuple[Key, int], int] = {}  # (partition, leader epoch) -> who was elected
        self._claim: tuple[bytes, int] | None = None
        self._since_ms = 0  # the present controller
        self._unregistered: dict[int, int] = {}  # broker without a registration -> since when

    def after_event(self) -> None:
        store = self._cluster.store()
        self._look_at_controller()
        for key, path in self._paths.items():
            raw = store.peek(path, lambda data, version: (data, version))
            if raw != self._raw.get(path):
                self._raw[path] = raw
                if raw is not None:
                    self._changed(key, PartitionState.from_bytes(*raw))
        self._look_for_fenced()

    def _look_at_controller(self) -> None:
        """OneControllerPerEpoch: every claim has a controller epoch of its own."""
        claim = self._cluster.store().peek(CONTROLLER, lambda data, version: data)
        if claim is None:
            self._claim = None
            return
        claimed = claim, self.controller_epoch
        if claimed == self._claim:
            return
        self._claim, self._since_ms = claimed, self._world.now_ms
        self._seen.add("controller change" if self._terms else "first controller")
        holder = self._cluster.controller()
        if claimed[1] in self._terms:
            self._violated(
                "OneControllerPerEpoch", f"{holder} claims epoch {claimed[1]}, which {self._terms[claimed[1]]} had"
            )
        self._terms[claimed[1]] = holder

    @property
    def controller_epoch(self) -> int:
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
                    f"{state.leader} is elected for leader epoch {state.leader_epoch} after {other}",
                )
        if before is not None and elected and state.controller_epoch < self.controller_epoch:
            self._violated(
                "ZombiesWriteNothing",
                f"{before} became {state}, written by a controller of epoch {state.controller_epoch} "
                f"while the store holds {self.controller_epoch}",
            )
        if before is not None and len(state.isr) != len(before.isr):
            self._seen.add("isr shrink" if len(state.isr) < len(before.isr) else "isr expansion")
        if before is not None:
            self._look_at_election(before, state, elected=elected)
        self._tell(key, before)

    def _look_at_election(self, before: PartitionState, state: PartitionState, *, elected: bool) -> None:
        if len(state.isr) == 1 < len(before.isr):
            self._seen.add("isr of one")
        if elected and state.leader < 0:
            self._seen.add("no leader")
        if elected and state.leader >= 0 and state.leader not in (*before.isr, *before.elr):
            self._seen.add("unclean election")

    def _look_for_fenced(self) -> None:
        """NoFencedMember: whoever lost its session leaves the ISR, once a controller has had the time to notice."""
        now_ms, store = self._world.now_ms, self._cluster.store()
        for broker_id in self._cluster.broker_ids:
            if store.peek(f"{BROKERS}/{broker_id}", lambda data, version: True):
                self._unregistered.pop(broker_id, None)
                continue
            since_ms = max(self._unregistered.setdefault(broker_id, now_ms), self._since_ms)
            if self._claim is None or now_ms - since_ms < FENCED_TOO_LONG_MS:
                continue
            for (topic, number), state in self.states.items():
                if state.leader >= 0 and state.leader != broker_id and broker_id in state.isr:
                    self._violated(
                        "NoFencedMember",
                        f"{broker_id} is in the ISR {state.isr} of {topic}-{number}, "
                        f"and has had no session for {now_ms - since_ms} ms",
                    )
