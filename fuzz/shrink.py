"""Fewer faults, same violation: times are absolute and chance is keyed, so each fault can be left out alone."""

from fuzz.faults import draw_schedule
from fuzz.search import run_seed
from fuzz.simulated_cluster import Settings
from spec.formats.schedule import Fault, Schedule

UNDOES = {"kill": "restart", "pause": "resume"}


def pairs(schedule: Schedule) -> list[tuple[Fault, ...]]:
    """Each fault with what undoes it."""
    left = list(schedule.in_order())
    found: list[tuple[Fault, ...]] = []
    while left:
        fault = left.pop(0)
        undo = next((f for f in left if f.target == fault.target and f.verb == UNDOES.get(fault.verb)), None)
        if undo is not None:
            left.remove(undo)
        found.append((fault, undo) if undo else (fault,))
    return found


def shrink(seed: int, settings: Settings, invariant: str) -> Schedule:
    """Leave out one pair after the other as long as the same invariant breaks."""
    schedule = draw_schedule(seed, settings.brokers)
    kept = pairs(schedule)
    for pair in list(kept):
        fewer = [other for other in kept if other is not pair]
        candidate = _schedule(fewer, schedule.duration_ms)
        result = run_seed(seed, settings, schedule=candidate)
        if result.violation is not None and result.violation.invariant == invariant:
            kept = fewer
    return _schedule(kept, schedule.duration_ms)


def _schedule(kept: list[tuple[Fault, ...]], duration_ms: int) -> Schedule:
    faults = sorted((fault for pair in kept for fault in pair), key=lambda fault: fault.at_ms)
    return Schedule(faults=tuple(faults), duration_ms=duration_ms)
