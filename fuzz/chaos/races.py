"""Schedules for a search: again and again two brokers are killed within a fetch of each other, and the first is back
while the other's session lives: a follower restarts while it is in the ISR of a leader that is dead and not known to
be. What it does with its log then decides what is kept (KIP-101).
"""

from collections.abc import Sequence
from typing import Final

from highwater.fuzz.chaos.settings import BALANCE, CHECKPOINT, SESSION
from highwater.fuzz.schedule import Fault, Option, Schedule
from highwater.reference.drivers.simulation.chance import Chance

SHORT_MS: Final = 1_500
LONG_MS: Final = (9_000, 12_000)
CHECKPOINTS_MS: Final = (1_000, 5_000)
FETCH_MS: Final = 500
"""How long a follower's fetch may wait: who dies within that of the leader may lack what was just committed."""
BOUNCE_MS: Final = 1_000
SETTLED_MS: Final = 12_000
"""After a bounce: a JVM has started, caught up, and leads again what it is preferred for."""
SOON_MS: Final = (500, 1_500, 2_500)
LATE_MS: Final = 14_000
"""The longest session is over, and the next leader elected."""
FIRST_AT_MS: Final = 1_000
EVERY_MS: Final = SETTLED_MS + FETCH_MS + LATE_MS + 2_000


def race_settings(seed: int, brokers: int) -> dict[str, dict[str, Option]]:
    """One partition, whose leader goes back to its first replica within a second, and one session that lives long."""
    chance = Chance(seed)
    common: dict[str, Option] = {
        "num.partitions": 1,
        CHECKPOINT: CHECKPOINTS_MS[chance.draw("checkpoint", 0, len(CHECKPOINTS_MS))],
        "auto.leader.rebalance.enable": "true",
        BALANCE: 1,
    }
    sessions: dict[str, dict[str, Option]] = {str(node): {SESSION: SHORT_MS} for node in range(1, brokers + 1)}
    sessions[str(1 + _late(chance, brokers))] = {SESSION: LONG_MS[chance.draw("session", 0, len(LONG_MS))]}
    return {"*": common, **sessions}


def _late(chance: Chance, brokers: int) -> int:
    """Whose session outlives it, and who comes back last."""
    return chance.draw("late", 0, brokers)


def draw_races(
    seed: int, seconds: float, nodes: Sequence[str], node_settings: dict[str, dict[str, Option]]
) -> Schedule:
    """At least one race, and as many as end in time; `nodes` has two brokers or more."""
    chance, brokers = Chance(seed), [node for node in nodes if node.isdigit()]
    duration_ms = max(int(seconds * 1000), FIRST_AT_MS + EVERY_MS)
    faults: list[Fault] = []
    for race in range((duration_ms - FIRST_AT_MS) // EVERY_MS):
        faults += _race(chance, race, FIRST_AT_MS + race * EVERY_MS, brokers)
    in_order = tuple(sorted(faults, key=lambda fault: fault.at_ms))
    return Schedule(seed=seed, duration_ms=duration_ms, faults=in_order, node_settings=node_settings)


def _race(chance: Chance, n: int, at_ms: int, brokers: Sequence[str]) -> list[Fault]:
    """Mostly the late one is bounced first: then another is the controller, which tells the early one what to do."""
    late = _late(chance, len(brokers))
    early = (late + 1 + chance.draw("early", n, len(brokers) - 1)) % len(brokers)
    late_at, early_at = (at_ms + SETTLED_MS + chance.draw(f"killed {each}", n, FETCH_MS) for each in range(2))
    soon_ms = SOON_MS[chance.draw("soon", n, len(SOON_MS))]
    bounced = brokers[early if chance.draw("bounced", n, 4) == 0 else late]
    return [
        Fault(at_ms=at_ms, for_ms=BOUNCE_MS, kind="bounce", nodes=(bounced,)),
        Fault(at_ms=late_at, for_ms=LATE_MS, kind="kill", nodes=(brokers[late],)),
        Fault(at_ms=early_at, for_ms=soon_ms, kind="kill", nodes=(brokers[early],)),
    ]
