"""Choose what the report of a violation follows: a transaction, a group, an offset, a client, or the last steps."""

from collections.abc import Sequence
from typing import Final

from highwater.fuzz.simulator.causes.groups import lines_of_group
from highwater.fuzz.simulator.causes.lines import COLUMNS, Line, by_time, shortened
from highwater.fuzz.simulator.causes.offsets import lines_of_offset
from highwater.fuzz.simulator.causes.transactions import lines_of_transaction
from highwater.fuzz.simulator.causes.words import line_of
from highwater.fuzz.simulator.cluster import OFFSETS_TOPIC
from highwater.fuzz.simulator.exchanges import SimulatedExchange
from highwater.fuzz.simulator.invariants.violations import CONTROLLER_ENTITY, About, Violation
from highwater.spec.formats.trace import Step

OF_TRANSACTIONS: Final = {
    "TransactionsAreAtomic", "CommitsAreAsked", "NoneHangs", "EveryMarkerIsWritten", "LastStableOffset",
    "AbortedStaysHidden", "TransformedOnce",
}  # fmt: skip


def cause_of(violation: Violation, exchanges: Sequence[SimulatedExchange], steps: Sequence[Step]) -> list[str]:
    """Return a header and at most `SHOWN` lines by time, empty if nothing was recorded."""
    lines = _lines(violation, exchanges, steps)
    return [COLUMNS, *lines] if lines else []


def _lines(violation: Violation, exchanges: Sequence[SimulatedExchange], steps: Sequence[Step]) -> list[str]:
    about = violation.about
    if violation.invariant in OF_TRANSACTIONS and (lines := lines_of_transaction(violation.message, exchanges)):
        return list(map(str, lines))
    if about.group:
        return shortened(lines_of_group(about.group, about.partition, exchanges, steps, f"{OFFSETS_TOPIC}-0"), first=0)
    if about.partition:
        return shortened(lines_of_offset(about.partition, about.offset, about.node, exchanges, steps, violation.at_ms))
    if about.entity:
        return shortened(_of_entity(about, exchanges, steps), first=0)
    if about.node and (of_node := [each for each in exchanges if about.node in {each.source, each.target}]):
        return shortened(by_time(line_of(each, left_out=()) for each in of_node), first=0)
    return []


def _of_entity(about: About, exchanges: Sequence[SimulatedExchange], steps: Sequence[Step]) -> list[Line]:
    """Return the steps of an entity; for the controller its elections, and what it asked of the broken node."""
    if about.entity != CONTROLLER_ENTITY:
        return by_time(_step(step) for step in steps if step.entity == about.entity)
    claims = [_step(step) for step in steps if step.action == "Claim"]
    requests = [each for each in exchanges if each.target == about.node and hasattr(each.body, "controller_epoch")]
    return by_time([*claims, *map(line_of, requests)])


def _step(step: Step) -> Line:
    words = " ".join(f"{name}={value}" for name, value in {**step.choices, **step.state}.items())
    return Line(step.time_ns // 1_000_000, str(step.node), f"{step.action} {words}".rstrip())
