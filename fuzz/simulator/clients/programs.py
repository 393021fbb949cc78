"""Programs of the conformance suite as clients of a simulated run, one after another, several at once.

Each has drawn choices (`conformance/client/draws.py`) and topics and groups of its own. What it finds
counts by what disturbed it:

- what it requires under every fault (`expectations.require`), and that each reply decodes, answers every part of its
  request and has only errors that its API may return, is a violation at any time;
- what a calm cluster answers (`expect`) is one if no fault was active since the program began, and for `SETTLED_MS`
  before that, unless the answer is an error after which a client tries again. Else the program has only ended: `ended`
  counts how.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from highwater.conformance.cases import programs
from highwater.conformance.client.broker import advertised_versions
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.connection import access_to
from highwater.conformance.client.draws import Followed, random_path
from highwater.conformance.failures import Disturbed, NotApplicable, Required, TargetFailure, Unsupported
from highwater.conformance.targets.reference import ReferenceTarget
from highwater.fuzz.simulator.cluster import SimulatedCluster
from highwater.fuzz.wire.oracles.exchanges import misread
from highwater.reference.drivers.simulation.baton import Baton
from highwater.reference.drivers.simulation.clients import LOOPBACK, Port, SimulatedTransport
from highwater.reference.effects import broker_peer
from highwater_kafka import installed_version

SETTLED_MS: Final = 2_000
PAUSE_S: Final = 0.1
INVARIANT: Final = "AnswersFitModel"
CALM, FAULTY = "finished in a calm cluster", "finished under faults"
UNFIT, DISTURBED = "that do not fit", "disturbed"
WasCalm = Callable[[int], bool]
"""Whether nothing has disturbed the cluster since a time in ms."""


@dataclass
class RunTarget:
    """The brokers of a run as a target of the suite; only the schedule stops them."""

    transport: SimulatedTransport
    addresses: Mapping[int, str]
    name: str = "simulator"
    era: str = ReferenceTarget.era
    capabilities: frozenset[str] = frozenset()
    settings: Mapping[str, int] = field(default_factory=dict)
    sasl: None = None
    command_config: Path | None = None
    version: str = installed_version()

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses.values())

    def start_node(self, node: int | str) -> None:
        raise Unsupported("the faults of a run are drawn")

    stop_node = kill_node = pause_node = resume_node = start_node

    def revive(self) -> bool:
        return False

    def close(self) -> None:
        """Do nothing: the run ends it."""


class ProgramClient:
    """Runs drawn programs, one after another, until the run ends; `violated` takes what counts as one."""

    def __init__(
        self, cluster: SimulatedCluster, number: int, was_calm: WasCalm, violated: Callable[[str, str], None]
    ) -> None:  # fmt: skip
        self._cluster, self._number, self._was_calm, self._violated = cluster, number, was_calm, violated
        ports = {9091 + broker_id: Port(broker_id) for broker_id in cluster.broker_ids}
        transport = SimulatedTransport(cluster.world, ports, f"program:{number}")
        addresses = {broker_id: f"{LOOPBACK}:{9091 + broker_id}" for broker_id in cluster.broker_ids}
        self._target = RunTarget(transport, addresses)
        self._baton = Baton(cluster.world, f"program:{number}", self._run)
        transport.step, transport.wake = self._baton.wait, self._baton.wake
        self.ended: Counter[tuple[str, str]] = Counter()
        """By program and outcome."""

    def start(self) -> None:
        self._baton.start()

    def stop(self) -> None:
        self._baton.end()

    def _run(self) -> None:
        draw, names = self._cluster.world.chance.stream(f"program {self._number}"), list(programs.PROGRAMS)
        for turn in range(1, 1_000):
            name = names[draw.draw(turn, len(names))]
            self.ended[name, self._outcome(name, f"{name}:{self._number}.{turn}")] += 1
            self._target.transport.clock.sleep(PAUSE_S)

    def _outcome(self, name: str, seed: str) -> str:
        """Run one program; return how it ended."""
        world = self._cluster.world
        began_ms = world.now_ms
        up = [a for b, a in self._target.addresses.items() if world.is_up(broker_peer(b))]
        try:
            versions = advertised_versions(up[0], access=access_to(self._target)) if up else None
        except TargetFailure:
            versions = None
        if versions is None:
            return DISTURBED
        draws, prefix = Followed(random_path(random.Random(seed))), seed.replace(":", "-")
        cluster = Cluster(self._target, versions, whole_log=True, prefix=prefix, draws=draws, keep=True)
        failure = _failure(name, cluster)
        if (strange := misread(cluster.log)) is not None:
            self._violated(INVARIANT, f"{seed}: {strange.failure.message}")
        if isinstance(failure, Unsupported | NotApplicable):
            return UNFIT
        is_calm = self._was_calm(began_ms - SETTLED_MS * self._cluster.settings.pace)
        if isinstance(failure, Required) or (failure and is_calm and not isinstance(failure, Disturbed)):
            self._violated(INVARIANT, f"{seed}: {failure if isinstance(failure, TargetFailure) else repr(failure)}")
        return DISTURBED if failure else CALM if is_calm else FAULTY


def _failure(name: str, cluster: Cluster) -> Exception | None:
    """Run a program; return what ended it early, also what no program foresaw."""
    try:
        programs.run(name, cluster)
    except (Unsupported, NotApplicable, AssertionError, LookupError, TypeError, ValueError) as failure:
        return failure
    return None
