"""Histories of other things than logs: registers, sets and counters, by key.

A register whose writes are distinct is judged by zones (Gibbons and Korach): for each value from the earliest return
to the latest invocation of its operations. Otherwise all orders are searched (Wing, Gong, Lowe), with a limit on the
states that are looked at; beyond it the verdict is unknown.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, Final, NamedTuple

from highwater.errors import UsageError, Verdict, worst
from highwater.reports.anomalies import Severity
from highwater.reports.columns import UNKNOWN
from highwater.reports.importers.formats import History
from highwater.reports.ingest.builder import text_of
from highwater.reports.verdicts import WITNESSES_SHOWN, AuditResult, Evidence, Finding, Witness
from highwater.spec.formats.history import Config, Event

STATES: Final = 200_000
NEVER: Final = 1 << 62
INITIAL: Final = None


class Op(NamedTuple):
    """One operation on one object; `returned` is `NEVER` where nobody knows whether it happened."""

    f: str
    value: Any
    invoked: int
    returned: int
    process: int | str = 0


class Judged(NamedTuple):
    """`ops` are the two that show it, or the one that nothing explains."""

    verdict: Verdict
    what: str = ""
    ops: tuple[Op, ...] = ()
    operations: int = 0


HELD = Judged(Verdict.VALID)


def objects(events: Iterable[Event]) -> dict[str, list[Op]]:
    """Operations by key; what failed did not happen, and a read of unknown outcome tells nothing."""
    opened: dict[int | str, Event] = {}
    found: dict[str, list[Op]] = {}

    def close(invoke: Event, done: Event | None) -> None:
        unknown = done is None or done.type == "info"
        if (done is not None and done.type == "fail") or (unknown and invoke.f == "read"):
            return
        value = invoke.value if invoke.f != "read" or done is None else done.value
        end = NEVER if done is None or unknown else done.index
        found.setdefault(text_of(invoke.key), []).append(Op(invoke.f, value, invoke.index, end, invoke.process))

    for event in events:
        if event.type == "invoke":
            if event.process in opened:
                close(opened.pop(event.process), None)
            opened[event.process] = event
        elif event.process in opened:
            close(opened.pop(event.process), event)
        elif event.f in {"read", "write", "cas", "add"}:
            raise UsageError(f"line {event.index + 1}: process {event.process} completes {event.f!r} without an invoke")
    for invoke in opened.values():
        close(invoke, None)
    return found


def judge(config: Config, events: Iterable[Event]) -> dict[str, Judged]:
    """The verdict on each object."""
    judges = JUDGES[config.workload]
    return {key: judges(ops)._replace(operations=len(ops)) for key, ops in sorted(objects(events).items())}


# -- registers ---------------------------------------------------------------------------------------


def register(ops: list[Op]) -> Judged:
    writes = [text_of(op.value) for op in ops if op.f == "write"]
    distinct = len(set(writes)) == len(writes) and repr(INITIAL) not in writes
    return zones(ops) if distinct and all(op.f != "cas" for op in ops) else search(ops)


def zones(ops: list[Op]) -> Judged:
    """With distinct writes: O(n log n). A value's operations all lie in one stretch of time without others."""
    writes = {text_of(op.value): op for op in ops if op.f == "write"}
    writes[repr(INITIAL)] = Op("write", INITIAL, -2, -1)
    reads: dict[str, list[Op]] = {}
    for op in ops:
        if op.f != "read":
            continue
        write = writes.get(text_of(op.value))
        if write is None or op.returned < write.invoked:
            what = "read what nobody wrote" if write is None else "read it before it was written"
            return Judged(Verdict.INVALID, what, (op,) if write is None else (op, write))
        reads.setdefault(text_of(op.value), []).append(op)
    # Without a reader a write of unknown outcome need not have been.
    seen = [
        (write, reads.get(value, [])) for value, write in writes.items() if write.returned < NEVER or value in reads
    ]
    stretches = [_zone([write, *of]) for write, of in seen]
    forward = sorted((zone for zone in stretches if zone[0] < zone[1]), key=lambda zone: zone[0])
    backward = sorted((zone for zone in stretches if zone[0] >= zone[1]), key=lambda zone: zone[1])
    for before, after in pairwise(forward):
        if after[0] < before[1]:
            return Judged(
                Verdict.INVALID, "two values were each there before and after the other", (before[2], after[2])
            )
    place = 0
    for end, begin, op in backward:
        while place < len(forward) and forward[place][1] < begin:
            place += 1
        if place < len(forward) and forward[place][0] < begin and end < forward[place][1]:
            return Judged(Verdict.INVALID, "it came and went while another value stayed", (op, forward[place][2]))
    return HELD


def _zone(ops: list[Op]) -> tuple[int, int, Op]:
    """(earliest return, latest invocation, who was invoked last)."""
    last = max(ops, key=lambda op: op.invoked)
    return min(op.returned for op in ops), last.invoked, last


def search(ops: list[Op], states: int = STATES) -> Judged:
    """Depth first over who may be next, remembering (who was, value); INVALID names the reader where all ways end."""
    ops = sorted(ops, key=lambda op: op.invoked)
    certain = sum(1 << n for n, op in enumerate(ops) if op.returned < NEVER)
    seen = set[tuple[int, str]]()
    stack: list[tuple[int, Any]] = [(0, INITIAL)]
    furthest = 0
    while stack:
        done, value = stack.pop()
        if done & certain == certain:
            return HELD
        if (done, text_of(value)) in seen:
            continue
        if len(seen) >= states:
            return Judged(Verdict.UNKNOWN, f"looked at {states:,} states")
        seen.add((done, text_of(value)))
        furthest = max(furthest, done & certain, key=lambda mask: mask.bit_count())
        stack += _following(ops, done, value)
    stuck = next(op for n, op in enumerate(ops) if certain >> n & 1 and not furthest >> n & 1)
    return Judged(Verdict.INVALID, "no order of the operations explains it", (stuck,))


def _following(ops: list[Op], done: int, value: Any) -> Iterable[tuple[int, Any]]:
    earliest = min((op.returned for n, op in enumerate(ops) if not done >> n & 1), default=NEVER)
    for n, op in enumerate(ops):
        if op.invoked >= earliest and earliest < NEVER:
            break
        if done >> n & 1:
            continue
        if op.f == "write":
            yield done | 1 << n, op.value
        elif op.f == "cas" and text_of(op.value[0]) == text_of(value):
            yield done | 1 << n, op.value[1]
        elif op.f == "read" and text_of(op.value) == text_of(value):
            yield done | 1 << n, value


# -- sets and counters -------------------------------------------------------------------------------


def grow_only_set(ops: list[Op]) -> Judged:
    """What was added, or read once, is in every later read; nobody reads what was not being added."""
    adds: dict[str, Op] = {}
    proved: dict[str, Op] = {}  # of each element, what returned first of all that proves it
    reads = sorted((op for op in ops if op.f == "read"), key=lambda op: op.invoked)
    for op in ops:
        if op.f == "add":
            first = adds.setdefault(text_of(op.value), op)
            adds[text_of(op.value)] = min(first, op, key=lambda each: each.invoked)
        for element in map(repr, op.value or ()) if op.f == "read" else (text_of(op.value),):
            proved[element] = min(proved.get(element, op), op, key=lambda each: each.returned)
    for read in reads:
        told = set(map(repr, read.value or ()))
        for element in sorted(told):
            add = adds.get(element)
            if add is None or read.returned < add.invoked:
                return Judged(Verdict.INVALID, f"read {element}, which nobody had added", (read,))
        lost = next((e for e, op in proved.items() if op.returned < read.invoked and e not in told), None)
        if lost is not None:
            return Judged(Verdict.INVALID, f"read without {lost}", (read, proved[lost]))
    return HELD


def counter(ops: list[Op]) -> Judged:
    """A read lies between what was certain before it and what may have been until its end."""
    adds = [op for op in ops if op.f == "add"]
    for read in (op for op in ops if op.f == "read"):
        certain = [op.value for op in adds if op.returned < read.invoked]
        possible = [op.value for op in adds if op.invoked < read.returned and not op.returned < read.invoked]
        low = sum(certain) + sum(value for value in possible if value < 0)
        high = sum(certain) + sum(value for value in possible if value > 0)
        if not low <= read.value <= high:
            return Judged(Verdict.INVALID, f"read {read.value}, which is not from {low} to {high}", (read,))
    return HELD


JUDGES: Final[dict[str, Callable[[list[Op]], Judged]]] = {
    "register": register, "set": grow_only_set, "counter": counter,
}  # fmt: skip


# --------------------------------------------------------------------------------------------------
# The audit of registers, sets and counters: one rule, and one finding for all objects that break it.


NAMES: Final = {"register": "not-linearizable", "set": "set-lost-or-invented", "counter": "counter-out-of-bounds"}


def audit_objects(history: History, where: str) -> AuditResult:
    """Every object is judged by itself; one of unknown outcome, or a line that was set aside, leaves all unknown."""
    workload = history.config.workload
    judged = judge(history.config, history.events)
    broken = {key: each for key, each in judged.items() if each.verdict is Verdict.INVALID}
    verdicts = [each.verdict for each in judged.values()]
    if not judged or history.quarantine.mattering:
        verdicts.append(Verdict.UNKNOWN)
    sentence = f"No {workload} gives all these answers."
    finding = Finding(
        rule=0,
        name=NAMES[workload],
        severity=Severity.VIOLATION,
        sentence=sentence,
        expected=False,
        count=len(broken),
        rows=len(broken),
        witnesses=[_evidence(key, broken[key]) for key in list(broken)[:WITNESSES_SHOWN]],
    )
    counts = {Severity.VIOLATION: len(broken)} if broken else {}
    row = {"rule": 0, "name": NAMES[workload], "sentence": sentence, "verdict": worst(verdicts), "counts": counts}
    return AuditResult(
        verdict=worst(verdicts),
        operations=sum(each.operations for each in judged.values()),
        history=where,
        format=history.format,
        config=history.config,
        quarantine=history.quarantine,
        rules=[row],
        findings=[finding] if broken else [],
    )


def _evidence(key: str, judged: Judged) -> Evidence:
    roles = (judged.what, "against this")
    return Evidence(
        partition="the one object" if key == str(None) else f"key {key}",
        offset=UNKNOWN,
        operations=[_witness(*each) for each in zip(roles, judged.ops, strict=False)],
    )


def _witness(role: str, op: Op) -> Witness:
    returned = op.returned if op.returned < NEVER else None
    process = op.process if isinstance(op.process, int) else UNKNOWN
    return Witness(role=role, invoked=op.invoked, returned=returned, process=process, words=f"{op.f} {op.value!r}")
