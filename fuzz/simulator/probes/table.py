"""Which probes a run has: the seed draws their order."""

from collections.abc import Sequence
from typing import Final

from highwater.fuzz.simulator.cluster import (
    PROBES_ALONE,
    PROBES_CALM,
    PROBES_FAULTS,
    PROBES_FIELDS,
    PROBES_OUTAGE,
    PROBES_RESTARTS,
    SimulatedCluster,
)
from highwater.fuzz.simulator.faults import Injector
from highwater.fuzz.simulator.invariants.all import Invariants
from highwater.fuzz.simulator.probes import (  # noqa: F401 - each module adds its probes to PROBES
    alone,
    clocks,
    failovers,
    fetch,
    groups,
    offsets,
    outages,
    records,
    remembered,
    restarts,
    takeovers,
    topics,
    transactions,
    trimming,
)
from highwater.fuzz.simulator.probes.client.node import PROBES, Needs, Probe, Prober, Surroundings
from highwater.fuzz.simulator.probes.client.phases import OUTAGES, Barrier, Outage, Restart
from highwater.fuzz.simulator.probes.client.session import Session
from highwater.fuzz.simulator.probes.fields import (  # noqa: F401
    batches,
    changes,
    coordinators,
    fetches,
    identities,
    limits,
    listings,
    lists,
    members,
    messages,
    moves,
    parts,
    producers,
    rebalances,
    refusals,
    settings,
    spellings,
    states,
    versions,
    waiting,
)
from highwater.fuzz.simulator.probes.fields import offsets as offsets_of_fields  # noqa: F401
from highwater.fuzz.simulator.probes.rules import (  # noqa: F401
    commits,
    controllers,
    first_batches,
    forgotten,
    memberships,
    policies,
    replicas,
    starts,
)
from highwater.reference.drivers.simulation.chance import Chance

NEEDS: Final = {
    PROBES_FIELDS: Needs.FIELDS, PROBES_RESTARTS: Needs.RESTART, PROBES_OUTAGE: Needs.OUTAGE, PROBES_ALONE: Needs.ALONE,
}  # fmt: skip
"""What the probes of a kind of run need; those of the other kinds need nothing."""
PROBERS: Final = {
    PROBES_CALM: 20, PROBES_FIELDS: 22, PROBES_FAULTS: 4, PROBES_RESTARTS: 21, PROBES_OUTAGE: 20, PROBES_ALONE: 1,
}  # fmt: skip
TOGETHER: Final = frozenset({PROBES_RESTARTS, PROBES_OUTAGE})
"""Kinds of runs whose probes wait for the same phases: each prober has one probe."""
LAST_START_MS: Final = {
    PROBES_CALM: 7_000, PROBES_FIELDS: 12_000, PROBES_FAULTS: 11_000, PROBES_RESTARTS: 1_000, PROBES_OUTAGE: 1_000,
    PROBES_ALONE: 20_000,
}  # fmt: skip
"""After so much virtual time no probe begins, so that each one ends before the run does."""

FIRST_PROBES: Final = 3
"""So many probes that run alone have the time to end, whatever the network."""


def start_probers(cluster: SimulatedCluster, invariants: Invariants, injector: Injector) -> list[Prober]:
    """Start the clients that run probes, if `Load.probes` names a kind of run."""
    kind = cluster.settings.clients.probes
    if not kind:
        return []
    chance, world = cluster.world.chance, cluster.world
    barrier = _barrier(kind, cluster, injector, chance)
    surroundings = Surroundings(
        cluster, injector, invariants.situations, invariants.violated, barrier, world.now_ms + LAST_START_MS[kind]
    )
    probes = [probe for probe in PROBES if probe.needs is NEEDS.get(kind, Needs.NOTHING)]
    order = (in_turn if kind == PROBES_ALONE else drawn)(chance.seed, probes)
    barrier.probers = count = min(PROBERS[kind], len(order))
    probers = [
        Prober(f"prober:{number}", order[number::count][: 1 if kind in TOGETHER else None], surroundings, Session)
        for number in range(count)
    ]
    for prober in probers:
        world.add(prober.name, lambda disk, made=prober: made)  # type: ignore[misc]
        world.start(prober.name)
    return probers


def _barrier(kind: str, cluster: SimulatedCluster, injector: Injector, chance: Chance) -> Barrier:
    """Return what the probes of the run wait for; consecutive seeds have another kind of outage."""
    if kind == PROBES_OUTAGE:
        how, of_controller = OUTAGES[chance.seed % len(OUTAGES)]
        return Outage(cluster, injector, how, chance.draw("victim", 0, 1 << 10), of_controller=of_controller)
    return Restart(cluster, injector, [("kill", "bounce")[chance.draw("restarts", n, 2)] for n in range(3)])


def drawn(seed: int, probes: Sequence[Probe]) -> list[Probe]:
    """Return the probes in an order that the seed draws."""
    chance = Chance(seed)
    return sorted(probes, key=lambda probe: chance.draw(f"order of {probe.name}", 0, 1 << 30))


def in_turn(seed: int, probes: Sequence[Probe]) -> list[Probe]:
    """Return the probes so that seeds one after the other begin with different ones, until each was among the first."""
    turns = -(-len(probes) // FIRST_PROBES)
    number, turn = divmod(seed, max(turns, 1))
    order = drawn(number, probes)
    first = turn * FIRST_PROBES
    return order[first:] + order[:first]
