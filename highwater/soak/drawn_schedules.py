"""Draw fault schedules with Hypothesis and run the simulator: a seed, fault kinds, times and nodes.

Times are absolute and every other choice depends on the seed alone. Removing a fault therefore changes no other fault,
and a failing schedule shrinks to the fewest faults that still break the invariant.
"""

from typing import Final

import hypothesis
from hypothesis import HealthCheck, Phase, event, given, target
from hypothesis import strategies as st

from highwater.fuzz.schedule import KINDS, Choices, Fault, Option, Schedule
from highwater.fuzz.simulator.cluster import Settings
from highwater.fuzz.simulator.findings import SeedFinding
from highwater.fuzz.simulator.invariants.violations import SituationCounts
from highwater.fuzz.simulator.search import SeedResult, run_seed
from highwater.fuzz.simulator.swarm import ALL_KINDS, LOAD_MS, OF_CLIENTS, OF_ONE_BROKER, ROLES, settings_of

SEEDS: Final = 1 << 16
MAX_KINDS: Final = 4
MAX_FAULTS: Final = 6
LONGEST_MS: Final = 3_000
LARGEST: Final = {"per_mille": 900, "ms": 800, "spread_ms": 300, "by_ms": 3_600_000, "bit": 8 * 4096}
"""The largest value of each option that is a number."""

MESSAGES: Final = ("FetchRequest", "ProduceRequest", "LeaderAndIsrRequest", "AlterPartitionRequest", "EndTxnRequest")
"""Message types to which a fault may be limited."""

TARGETS: Final = ("records truncated", "leader change", "controller change", "isr shrink", "group PreparingRebalance")
"""Hypothesis maximises the counts of these: diverging logs, elections, rebalances."""


@st.composite
def schedules(draw: st.DrawFn, base: Settings, of: tuple[str, ...] = ALL_KINDS) -> Schedule:
    """Draw kinds from `of` (swarm testing), then faults; clients are hit only if the seed has any."""
    seed = draw(st.integers(0, SEEDS - 1))
    settings = settings_of(seed, base)
    members = [f"member:{number}" for number in range(len(settings.clients.members))]
    known = [kind for kind in dict.fromkeys(of) if kind != "stall" or members]
    kinds = draw(st.lists(st.sampled_from(known), min_size=1, max_size=MAX_KINDS, unique=True))
    brokers = [str(number) for number in range(1, settings.brokers + 1)]
    drawn = st.sampled_from(kinds).flatmap(lambda kind: faults(kind, brokers, members))
    return Schedule(seed=seed, duration_ms=LOAD_MS, faults=tuple(draw(st.lists(drawn, max_size=MAX_FAULTS))))


def faults(kind: str, brokers: list[str], members: list[str]) -> st.SearchStrategy[Fault]:
    """Return a strategy for faults of one kind, at any time of a run."""
    nodes = [*brokers, *ROLES[:1], *ROLES[2:3]] if kind in OF_ONE_BROKER else [*brokers, *ROLES]
    if kind == "stall":
        nodes = members
    elif kind in OF_CLIENTS:
        nodes = [*nodes, *members]
    return st.builds(
        Fault,
        at_ms=st.integers(0, LOAD_MS),
        kind=st.just(kind),
        nodes=st.sampled_from(nodes).map(lambda node: (node,)),
        for_ms=st.integers(1, LONGEST_MS) if KINDS[kind].lasts else st.just(0),
        options=st.fixed_dictionaries(
            {name: _option(name, choices, brokers) for name, choices in KINDS[kind].options.items()}
        ),
    )


def _option(name: str, choices: Choices, brokers: list[str]) -> st.SearchStrategy[Option]:
    if name == "of" and len(choices) == 1:  # the other ends of a link
        return st.sampled_from(["others", "brokers", "clients", "store", *brokers])
    if name == "what":
        return st.sampled_from([*choices, *MESSAGES])
    if len(choices) > 1:
        return st.sampled_from(choices)
    return st.integers(0, LARGEST[name])


class BrokenError(AssertionError):
    """A drawn run broke an invariant."""

    def __init__(self, result: SeedResult) -> None:
        super().__init__(str(result.violation))
        self.result = result


def search_for_violation(
    base: Settings, *, seed: int, runs: int, of: tuple[str, ...] = ALL_KINDS
) -> SeedFinding | None:
    """Run `runs` drawn schedules; return the first violation, shrunk by Hypothesis and run with a trace.

    `seed` is that of Hypothesis; every situation of a run is reported as an `event()`.
    """

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=runs, deadline=None, database=None, report_multiple_bugs=False,
        phases=(Phase.generate, Phase.target, Phase.shrink), suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(schedules(base, of))
    def every_run_holds(schedule: Schedule) -> None:
        result = run_seed(schedule.seed, base, schedule=schedule)
        _report_situations(result.situations)
        if result.violation is not None:
            raise BrokenError(result)

    try:
        every_run_holds()
    except BrokenError as broken:
        schedule = broken.result.schedule
        return SeedFinding(run_seed(schedule.seed, base, schedule=schedule, tracing=True), schedule, base)
    return None


def _report_situations(situations: SituationCounts) -> None:
    for situation in situations:
        event(situation)
    for name in TARGETS:
        target(float(situations[name]), label=name)
