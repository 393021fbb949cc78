"""The node that runs probes: it sends requests, waits for responses, and judges how a probe ended.

A probe is a coroutine (`highwater.reference.procedures`); it continues when a response arrives or a timer fires. A
request without a response within its time, or on a connection that closes, ends the probe with `Unanswered`. That, and
an answer that the probe does not expect (`Unexpected`), is a violation only if the cluster was calm: no fault within
`SETTLE_MS` before the probe began, and none until it ended. Faults that the probe itself requests do not count.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from highwater.fuzz.simulator.cluster import SimulatedCluster
from highwater.fuzz.simulator.faults import Injector
from highwater.fuzz.simulator.invariants.violations import About, SituationCounts, Violated
from highwater.fuzz.simulator.probes.client.phases import Barrier
from highwater.reference.effects import CancelTimer, Effect, Instant, Request, Response, Send, SetTimer, broker_peer
from highwater.reference.procedures import Pending, spawn

if TYPE_CHECKING:
    from highwater.fuzz.simulator.probes.client.session import Session

REQUEST_TIMEOUT_MS: Final = 2_500
SETTLE_MS: Final = 2_500
"""After so long without a fault, sessions have expired or been renewed, and every ISR is complete again."""


class Unanswered(Exception):
    """A request has no response."""


class Unexpected(Exception):
    """An answer that a correct cluster gives only because of a fault."""


Program = Callable[["Session"], Awaitable[None]]


class Needs(Enum):
    """What a probe needs of its run.

    Nothing, only probes of fields beside it, a rolling restart, an outage of one broker, or to be alone.
    """

    NOTHING = auto()
    FIELDS = auto()
    RESTART = auto()
    OUTAGE = auto()
    ALONE = auto()


@dataclass(frozen=True, slots=True)
class Probe:
    """A named program with the clauses that it checks."""

    name: str
    clauses: tuple[str, ...]
    run: Program
    needs: Needs = Needs.NOTHING


PROBES: Final[list[Probe]] = []
"""All probes, in the order of their modules."""


def probe(*clauses: str, needs: Needs = Needs.NOTHING) -> Callable[[Program], Program]:
    """Add a coroutine function to `PROBES`; its name is that of the probe."""

    def add(run: Program) -> Program:
        PROBES.append(Probe(run.__name__.replace("_", " "), clauses, run, needs))
        return run

    return add


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What probes of one run share: the cluster, its faults, and where findings go."""

    cluster: SimulatedCluster
    injector: Injector
    situations: SituationCounts
    violated: Violated
    barrier: Barrier
    until_ms: int
    """No probe begins after this virtual time."""


class Prober:
    """Runs probes one after the other; `done` counts those that ended."""

    def __init__(
        self, name: str, probes: Sequence[Probe], surroundings: Surroundings, new_session: "Callable[..., Session]"
    ) -> None:
        self.name, self.surroundings = name, surroundings
        self._probes, self._new_session = probes, new_session
        self.now = Instant(0, 0)
        self._out: list[Effect] = []
        self._serial = 0
        self._requests: dict[int, tuple[str, Pending[Any]]] = {}
        self._timers: dict[str, Pending[None]] = {}
        self.done = 0
        self.closures = 0  # how often a broker has closed the connection

    # -- for sessions --------------------------------------------------------------------------------

    def send(self, broker_id: int, body: Any, version: int, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Pending[Any]:
        """Send a request; the result is the body of the response, or None if there is none."""
        self._serial += 1
        serial, peer, pending = self._serial, broker_peer(broker_id), Pending[Any]()
        self._requests[serial] = peer, pending
        self._out.append(Send(peer, Request(serial, version, body, self.name)))
        timer = f"request {serial}"
        self._timers[timer] = expired = Pending[None]()
        expired.add_done_callback(lambda: self._answer(serial, None))
        self._out.append(SetTimer(timer, self.now.monotonic_ms + timeout_ms))
        return pending

    def sleep(self, delay_ms: int) -> Pending[None]:
        """Return what is resolved after so many milliseconds."""
        self._serial += 1
        timer = f"sleep {self._serial}"
        self._timers[timer] = pending = Pending[None]()
        self._out.append(SetTimer(timer, self.now.monotonic_ms + delay_ms))
        return pending

    # -- a node ---------------------------------------------------------------------------------------

    def start(self, now: Instant) -> list[Effect]:
        self.now = now
        spawn(self._run())
        return self._drain()

    def receive(self, now: Instant, source: str, message: Response) -> list[Effect]:
        self.now = now
        self._answer(message.correlation_id, message.body)
        return self._drain()

    def fire(self, now: Instant, timer: str) -> list[Effect]:
        self.now = now
        self._timers.pop(timer).resolve(None)
        return self._drain()

    def complete(self, now: Instant, token: str) -> list[Effect]:
        return []

    def closed(self, now: Instant, peer: str) -> list[Effect]:
        self.now = now
        self.closures += 1
        for serial in [serial for serial, (other, _) in self._requests.items() if other == peer]:
            self._answer(serial, None)
        return self._drain()

    def resume(self, pending: Pending[None], now: Instant) -> list[Effect]:
        """Continue a probe that waits for something else than an event of this node."""
        self.now = now
        pending.resolve(None)
        return self._drain()

    def _answer(self, serial: int, body: Any) -> None:
        peer_and_pending = self._requests.pop(serial, None)
        if peer_and_pending is not None:
            if self._timers.pop(f"request {serial}", None) is not None:
                self._out.append(CancelTimer(f"request {serial}"))
            peer_and_pending[1].resolve(body)

    def _drain(self) -> list[Effect]:
        effects, self._out = self._out, []
        return effects

    # -- probes -----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        world = self.surroundings.cluster.world
        for number, probe in enumerate(self._probes):
            if world.now_ms > self.surroundings.until_ms:
                break
            began_ms = world.now_ms
            try:
                await probe.run(self._new_session(self, f"{self.name.replace(':', '')}-{number}"))
                self.surroundings.situations.add(f"probe {probe.name}")
            except (Unanswered, Unexpected) as error:
                self._judge(probe, began_ms, str(error))
            except (LookupError, AttributeError, ValueError) as missing:  # another name: compiled, each has one type
                # A probe reads an entry that a response lacks, one of several, or a field of one that did not arrive.
                self._judge(probe, began_ms, f"an answer is incomplete: {missing!r}")
            self.done += 1
        self.surroundings.barrier.probers -= 1
        self.surroundings.barrier.check()

    def _judge(self, probe: Probe, began_ms: int, what: str) -> None:
        """Report a violation, unless a fault may explain what the probe met."""
        if self.surroundings.injector.disturbed_until_ms + SETTLE_MS <= began_ms:
            clauses = ", ".join(probe.clauses)
            self.surroundings.violated(
                "AnswersFitModel", f"probe {probe.name} ({clauses}): {what}", About(node=self.name)
            )
