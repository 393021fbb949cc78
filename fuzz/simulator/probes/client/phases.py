"""What the probes of a run wait for together: a rolling restart, or an outage of one broker.

Each phase begins when every prober of the run waits for it or has ended, so that no probe meets it half way.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from highwater.fuzz.schedule import Fault, Option
from highwater.fuzz.simulator.cluster import SimulatedCluster
from highwater.fuzz.simulator.faults import Injector
from highwater.reference.procedures import Pending

if TYPE_CHECKING:
    from highwater.fuzz.simulator.probes.client.node import Prober

RESTART_MS: Final = 150
RECOVERY_MS: Final = 1_700
"""After a restart the ISRs become complete within so much time."""
SETTLED_MS: Final = 700
"""So much later the controller has handled the unclean start of the last broker, in a new leader epoch."""
NOTICE_MS: Final = 150
"""So long before a broker stops the probes are resumed, to send requests that it interrupts."""
ELECTION_MS: Final = 1_600
"""A broker that stops is noticed, and its partitions have leaders, within so much time."""
LAST_OF_OUTAGE: Final = 3
MINUTE_MS: Final = 60_000
CLOCK_STEPS: Final = (7, 4, 115, 60)
"""Minutes by which clocks advance. Producers expire after 6 minutes, offsets after 10, transactional ids after 120."""
CHECKED_MS: Final = 1_300
"""Every periodic check of a broker has run twice after so much time."""
OUTAGES: Final = (
    ("pause", True), ("kill", False), ("pause", False), ("kill", True), ("bounce", False), ("bounce", True),
)  # fmt: skip
"""How a broker stops, and whether it is the controller: a paused one keeps its memory while others take over."""


class Barrier:
    """Probers that wait; `_begin` is called when all of the run do."""

    def __init__(self, cluster: SimulatedCluster, injector: Injector) -> None:
        self._cluster, self._injector = cluster, injector
        self.probers = 0
        self._waiting: list[tuple[Prober, Pending[None]]] = []

    def wait(self, prober: "Prober") -> Pending[None]:
        """Return what is resolved after the next phase has begun."""
        pending: Pending[None] = Pending()
        self._waiting.append((prober, pending))
        self.check()
        return pending

    def check(self) -> None:
        """Begin if every prober waits."""
        if self._waiting and len(self._waiting) >= self.probers:
            self._cluster.world.schedule(1, self._begin)

    def _begin(self) -> None:
        raise NotImplementedError

    def _resume(self) -> None:
        waiting, self._waiting = self._waiting, []
        for prober, pending in waiting:
            self._cluster.world.enter(prober.name, partial(prober.resume, pending))


class Restart(Barrier):
    """A rolling restart of all brokers: each is killed or shut down, as `kinds` says."""

    def __init__(self, cluster: SimulatedCluster, injector: Injector, kinds: Sequence[str]) -> None:
        super().__init__(cluster, injector)
        self._kinds = kinds

    def _begin(self) -> None:
        self._restart_next(0)

    def _restart_next(self, done: int) -> None:
        world = self._cluster.world
        if done == len(self._cluster.broker_ids):
            world.schedule(SETTLED_MS, self._resume)
            return
        _stop(self._injector, self._cluster.broker_ids[done], self._kinds[done % len(self._kinds)], RESTART_MS)
        world.schedule(RESTART_MS + RECOVERY_MS, self._restart_next, done + 1)


class Outage(Barrier):
    """One broker stops for a while; then time passes: the phases are notice, outage, return, and the steps of clocks.

    `of_controller`: the broker that stops is the controller, else a drawn one that is not.
    """

    def __init__(
        self, cluster: SimulatedCluster, injector: Injector, kind: str, drawn: int, *, of_controller: bool
    ) -> None:
        super().__init__(cluster, injector)
        self.kind, self._drawn, self._of_controller = kind, drawn, of_controller
        self._victim, self._fault, self._stops_ms = 0, 0, 0
        self._phase = 0
        self.passed_ms = 0  # by how much the clocks of all brokers were set forward

    @property
    def victim(self) -> int:
        """Return the broker that stops."""
        if not self._victim:
            controller = self._cluster.controller()
            others = [each for each in self._cluster.broker_ids if each != controller]
            self._victim = controller if self._of_controller else others[self._drawn % len(others)]
        return self._victim

    def _begin(self) -> None:
        self._phase += 1
        world = self._cluster.world
        if self._phase == 1:
            self._stops_ms = world.now_ms + NOTICE_MS
            world.schedule(NOTICE_MS, self._stop)
            self._resume()
        elif self._phase == 2:
            world.at(max(self._stops_ms + ELECTION_MS, world.now_ms), self._resume)
        elif self._phase > LAST_OF_OUTAGE:
            by_ms = MINUTE_MS * CLOCK_STEPS[self._phase - LAST_OF_OUTAGE - 1]
            self.passed_ms += by_ms
            options: dict[str, Option] = {"by_ms": by_ms, "back": 0}
            self._injector.begin(Fault(at_ms=0, kind="clock", nodes=("all",), options=options))
            world.schedule(CHECKED_MS, self._resume)
        else:
            self._injector.end(self._fault)
            world.schedule(RECOVERY_MS + SETTLED_MS, self._resume)

    def _stop(self) -> None:
        self._fault = _stop(self._injector, self.victim, self.kind, 0)


def _stop(injector: Injector, broker_id: int, kind: str, for_ms: int) -> int:
    options: dict[str, Option] = {"lose": "nothing"} if kind == "kill" else {}
    return injector.begin(Fault(at_ms=0, for_ms=for_ms, kind=kind, nodes=(str(broker_id),), options=options))
