"""Draws schedules that search for the loss of KIP-101: a follower restarts while its dead leader still has a session.

Each race kills two brokers within one fetch of each other and restarts the first before the session of the other
expires. How the follower truncates its log then decides which records survive.
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
"""How long a follower's fetch may wait: a follower killed within this time may lack the last committed records."""
BOUNCE_MS: Final = 1_000
SETTLED_MS: Final = 12_000
"""Time after a bounce in which a JVM starts, catches up and leads its preferred partitions again."""
EARLY_RESTARTS_MS: Final = (500, 1_500, 2_500)
LATE_RESTART_MS: Final = 14_000
"""After this time the longest session has expired and the next leader is elected."""
FIRST_AT_MS: Final = 1_000
EVERY_MS: Final = SETTLED_MS + FETCH_MS + LATE_RESTART_MS + 2_000


def race_settings(seed: int, brokers: int) -> dict[str, dict[str, Option]]:
    """Return settings with one partition, preferred leader election every second and one broker with a long session."""
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
    """Return the index of the broker that has the long session and restarts last."""
    return chance.draw("late", 0, brokers)


def draw_races(
    seed: int, seconds: float, nodes: Sequence[str], node_settings: dict[str, dict[str, Option]]
) -> Schedule:
    """Return a schedule with as many races as end within `seconds`, at least one; `nodes` needs two brokers."""
    chance, brokers = Chance(seed), [node for node in nodes if node.isdigit()]
    duration_ms = max(int(seconds * 1000), FIRST_AT_MS + EVERY_MS)
    faults: list[Fault] = []
    for race in range((duration_ms - FIRST_AT_MS) // EVERY_MS):
        faults += _race(chance, race, FIRST_AT_MS + race * EVERY_MS, brokers)
    in_order = tuple(sorted(faults, key=lambda fault: fault.at_ms))
    return Schedule(seed=seed, duration_ms=duration_ms, faults=in_order, node_settings=node_settings)


def _race(chance: Chance, n: int, at_ms: int, brokers: Sequence[str]) -> list[Fault]:
    """Return the faults of one race.

    In three of four races the late broker is bounced first, so that another broker becomes the controller and sends
    LeaderAndIsr to the early one.
    """
    late = _late(chance, len(brokers))
    early = (late + 1 + chance.draw("early", n, len(brokers) - 1)) % len(brokers)
    late_at, early_at = (at_ms + SETTLED_MS + chance.draw(f"killed {number}", n, FETCH_MS) for number in range(2))
    restart_ms = EARLY_RESTARTS_MS[chance.draw("soon", n, len(EARLY_RESTARTS_MS))]
    bounced = brokers[early if chance.draw("bounced", n, 4) == 0 else late]
    return [
        Fault(at_ms=at_ms, for_ms=BOUNCE_MS, kind="bounce", nodes=(bounced,)),
        Fault(at_ms=late_at, for_ms=LATE_RESTART_MS, kind="kill", nodes=(brokers[late],)),
        Fault(at_ms=early_at, for_ms=restart_ms, kind="kill", nodes=(brokers[early],)),
    ]
