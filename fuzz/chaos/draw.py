"""Draws fault schedules for real clusters, as the simulator does: first the kinds of fault, then times and nodes.

Every draw has a key, so a seed yields the same faults on every machine, and removing one fault changes no other.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from highwater.fuzz.chaos.settings import CHECKPOINT, SESSION
from highwater.fuzz.chaos.workload.topic import TOPIC
from highwater.fuzz.schedule import KINDS, Fault, Option, Schedule
from highwater.reference.drivers.simulation.chance import Chance

DURATIONS_MS: Final = (300, 1_500, 4_000, 9_000)
EVERY_MS: Final = 4_000
MIN_MS: Final = 10_000
BURST_MS: Final = 2_500
"""The faults of one burst begin within this time: most violations need two faults that overlap."""
SESSIONS_MS: Final = (1_500, 3_000, 3_000, 9_000)
CHECKPOINTS_MS: Final = (1_000, 5_000)
EXTRA_KINDS: Final = ("kill", "kill")
"""Makes a kill three times as likely as other faults: most violations need one."""
DECISIVE: Final = ("kill", "pause", "cut", "expire")
"""Each drawn schedule has one of these, if the cluster supports one: the others alone change no leader."""
LINKS: Final = frozenset({"cut", "clog", "delay", "loss", "disconnect", "throttle"})
VALUES: Final[dict[str, Sequence[Option]]] = {
    "direction": ("both", "both", "out", "in"),
    "ms": (20, 100, 400),
    "spread_ms": (0, 50, 300),
    "per_mille": (10, 50, 200),
    "bytes_per_second": (4_096, 65_536, 1_000_000),
}


def draw_settings(seed: int, brokers: int) -> dict[str, dict[str, Option]]:
    """Return node settings with drawn session time-outs and checkpoint intervals, which decide races in fail-overs."""
    chance = Chance(seed)
    sessions: dict[str, dict[str, Option]] = {
        str(node): {SESSION: SESSIONS_MS[chance.draw("session", node, len(SESSIONS_MS))]}
        for node in range(1, brokers + 1)
    }
    return {"*": {CHECKPOINT: CHECKPOINTS_MS[chance.draw("checkpoint", 0, len(CHECKPOINTS_MS))]}, **sessions}


def draw_schedule(
    seed: int, seconds: float, kinds: Sequence[str], nodes: Sequence[str], clients: Sequence[str],
    node_settings: dict[str, dict[str, Option]],
) -> Schedule:  # fmt: skip
    """Return a schedule with a burst of one to three faults every `EVERY_MS`; all faults end within `seconds`."""
    chance = Chance(seed)
    weighted = [*EXTRA_KINDS, *kinds] if set(EXTRA_KINDS) <= set(kinds) else kinds
    chosen = [kind for n, kind in enumerate(weighted) if chance.draw("kinds", n, 3) == 0] or list(kinds[:1])
    duration_ms = max(MIN_MS, int(seconds * 1000))
    faults: list[Fault] = []
    for burst in range(1, duration_ms // EVERY_MS):
        begins_ms = burst * EVERY_MS
        if "kill" in chosen and chance.draw("everybody", burst, 4) == 0:
            faults += _power_cut(chance, burst, begins_ms, nodes)
            continue
        for number in range((1, 1, 2, 3)[chance.draw("burst", burst, 4)]):
            faults.append(_draw_fault(chance, 3 * burst + number, begins_ms, chosen, nodes, clients))
    in_time = [fault for fault in faults if fault.at_ms + fault.for_ms < duration_ms]
    decisive = [kind for kind in DECISIVE if kind in kinds]
    if decisive and all(fault.kind not in decisive for fault in in_time):
        fault = _draw_fault(chance, 0, EVERY_MS, decisive, nodes, clients)
        in_time.append(replace(fault, for_ms=min(fault.for_ms, duration_ms - fault.at_ms - 1)))
    return Schedule(
        seed=seed, duration_ms=duration_ms, faults=tuple(sorted(in_time, key=lambda fault: fault.at_ms)),
        node_settings=node_settings,
    )  # fmt: skip


def _power_cut(chance: Chance, burst: int, at_ms: int, nodes: Sequence[str]) -> list[Fault]:
    """Return faults that kill all brokers at once and restart each of them after a time of its own."""
    brokers = [node for node in nodes if node.isdigit()]
    return [
        Fault(at_ms=at_ms, for_ms=DURATIONS_MS[chance.draw(f"back {node}", burst, 4)], kind="kill", nodes=(node,))
        for node in brokers
    ]


def _draw_fault(
    chance: Chance, n: int, begins_ms: int, kinds: Sequence[str], nodes: Sequence[str], clients: Sequence[str]
) -> Fault:
    kind = kinds[chance.draw("kind", n, len(kinds))]
    roles = (*nodes, f"leader({TOPIC},0)", f"followers({TOPIC},0)", "controller")
    candidates = clients if kind == "stall" else roles
    options: dict[str, Option] = {}
    if kind in LINKS:
        ends = ("others", "others", "brokers", *nodes)
        options["of"] = ends[chance.draw("of", n, len(ends))]
    for name, values in VALUES.items():
        if name in KINDS[kind].options:
            options[name] = values[chance.draw(name, n, len(values))]
    return Fault(
        at_ms=begins_ms + chance.draw("at", n, BURST_MS),
        for_ms=DURATIONS_MS[chance.draw("lasts", n, len(DURATIONS_MS))] if KINDS[kind].lasts else 0,
        kind=kind,
        nodes=(candidates[chance.draw("hit", n, len(candidates))],),
        options=options,
    )
