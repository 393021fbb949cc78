"""Check linearizability of registers, sets and counters, by key.

A register with distinct writes is checked with zones (Gibbons, Korach): for each value the interval from the earliest
return to the latest invocation of its operations. Otherwise all orders are searched (Wing, Gong, Lowe), up to `STATES`
states; beyond that limit the verdict is unknown.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, Final, NamedTuple

from highwater.errors import UsageError, Verdict, worst
from highwater.reports.anomalies import Severity
from highwater.reports.columns import UNKNOWN, Status
from highwater.reports.importers.formats import History
from highwater.reports.ingest.builder import text_of
from highwater.reports.ingest.history import status_of
from highwater.reports.rules.rule import Rule
from highwater.reports.verdicts import WITNESSES_SHOWN, AuditResult, Evidence, Finding, RuleRow, RuleVerdict, Witness
from highwater.spec.formats.history import Config, Event

STATES: Final = 200_000
NEVER: Final = 1 << 62
INITIAL: Final = None


class Op(NamedTuple):
    """One operation on one object; `returned` is `NEVER` if its outcome is unknown."""

    f: str
    value: Any
    invoked: int
    returned: int
    process: int | str = 0


class ObjectVerdict(NamedTuple):
    """Verdict on one object; `ops` are the two operations that contradict each other, or one without an explanation."""

    verdict: Verdict
    what: str = ""
    ops: tuple[Op, ...] = ()
    operations: int = 0


LINEARIZABLE = ObjectVerdict(Verdict.VALID)


def objects(events: Iterable[Event]) -> dict[str, list[Op]]:
    """Return operations by key; failed operations and reads of unknown outcome are left out."""
    opened: dict[int | str, Event] = {}
    operations: dict[str, list[Op]] = {}

    def close(invoke: Event, done: Event | None) -> None:
        status = status_of(invoke, done)  # a write that failed with a timeout may have happened
        unknown = status is Status.INFO
        if status is Status.FAIL or (unknown and invoke.f == "read"):
            return
        value = invoke.value if invoke.f != "read" or done is None else done.value
        end = NEVER if done is None or unknown else done.index
        operations.setdefault(text_of(invoke.key), []).append(Op(invoke.f, value, invoke.index, end, invoke.process))

    for event in events:
        if event.type == "invoke":
            if event.process in opened:
                close(opened.pop(event.process), None)
            opened[event.process] = event
        elif event.process in opened:
            close(opened.pop(event.process), event)
        elif event.f in {"read", "write", "cas", "append", "add"}:
            raise UsageError(f"line {event.index + 1}: process {event.process} completes {event.f!r} without an invoke")
    for invoke in opened.values():
        close(invoke, None)
    return operations


def judge(config: Config, events: Iterable[Event]) -> dict[str, ObjectVerdict]:
    """Return the verdict on each object, by key."""
    check = CHECKERS[config.workload]
    return {key: check(ops)._replace(operations=len(ops)) for key, ops in sorted(objects(events).items())}


# -- registers ---------------------------------------------------------------------------------------


def register(ops: list[Op]) -> ObjectVerdict:
    """Check a register: by zones if writes are distinct and no operation depends on the value, else by search."""
    writes = [text_of(op.value) for op in ops if op.f == "write"]
    distinct = len(set(writes)) == len(writes) and repr(INITIAL) not in writes
    return zones(ops) if distinct and all(op.f in {"read", "write"} for op in ops) else search(ops)


def zones(ops: list[Op]) -> ObjectVerdict:
    """Check a register with distinct writes by zones, in O(n log n): zones of different values must not conflict."""
    writes = {text_of(op.value): op for op in ops if op.f == "write"}
    writes[repr(INITIAL)] = Op("write", INITIAL, -2, -1)
    reads: dict[str, list[Op]] = {}
    for op in ops:
        if op.f != "read":
            continue
        write = writes.get(text_of(op.value))
        if write is None or op.returned < write.invoked:
            what = "read what nobody wrote" if write is None else "read it before it was written"
            return ObjectVerdict(Verdict.INVALID, what, (op,) if write is None else (op, write))
        reads.setdefault(text_of(op.value), []).append(op)
    # A write of unknown outcome that no read returned need not have happened.
    observed = [
        (write, reads.get(value, [])) for value, write in writes.items() if write.returned < NEVER or value in reads
    ]
    stretches = [_zone([write, *of]) for write, of in observed]
    forward = sorted((zone for zone in stretches if zone[0] < zone[1]), key=lambda zone: zone[0])
    backward = sorted((zone for zone in stretches if zone[0] >= zone[1]), key=lambda zone: zone[1])
    for before, after in pairwise(forward):
        if after[0] < before[1]:
            return ObjectVerdict(
                Verdict.INVALID, "two values were each there before and after the other", (before[2], after[2])
            )
    place = 0
    for end, begin, op in backward:
        while place < len(forward) and forward[place][1] < begin:
            place += 1
        if place < len(forward) and forward[place][0] < begin and end < forward[place][1]:
            return ObjectVerdict(
                Verdict.INVALID, "it came and went while another value stayed", (op, forward[place][2])
            )
    return LINEARIZABLE


def _zone(ops: list[Op]) -> tuple[int, int, Op]:
    """Return (earliest return, latest invocation, operation with the latest invocation)."""
    last = max(ops, key=lambda op: op.invoked)
    return min(op.returned for op in ops), last.invoked, last


def search(ops: list[Op], states: int = STATES) -> ObjectVerdict:
    """Search depth first for a linearization, caching (operations, value); INVALID names the blocking operation."""
    ops = sorted(ops, key=lambda op: op.invoked)
    certain = sum(1 << n for n, op in enumerate(ops) if op.returned < NEVER)
    visited = set[tuple[int, str]]()
    stack: list[tuple[int, Any]] = [(0, INITIAL)]
    furthest = 0
    while stack:
        done, value = stack.pop()
        if done & certain == certain:
            return LINEARIZABLE
        if (done, text_of(value)) in visited:
            continue
        if len(visited) >= states:
            return ObjectVerdict(Verdict.UNKNOWN, f"looked at {states:,} states")
        visited.add((done, text_of(value)))
        furthest = max(furthest, done & certain, key=lambda mask: mask.bit_count())
        stack += _following(ops, done, value)
    stuck = next(op for n, op in enumerate(ops) if certain >> n & 1 and not furthest >> n & 1)
    return ObjectVerdict(Verdict.INVALID, "no order of the operations explains it", (stuck,))


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
        elif op.f == "append" and _may_become(appended := _text(value) + _text(op.value), ops, done):
            yield done | 1 << n, appended
        elif op.f == "read" and text_of(op.value) == text_of(value):
            yield done | 1 << n, value


def _may_become(value: str, ops: list[Op], done: int) -> bool:
    """Return False if a remaining read, which no remaining write can precede, returned something else.

    Without this the search visits every order of concurrent appends before it reaches the read that fixes the order.
    """
    remaining = [op for n, op in enumerate(ops) if not done >> n & 1]
    written = min((op.invoked for op in remaining if op.f == "write"), default=NEVER)
    return all(op.returned > written or _text(op.value).startswith(value) for op in remaining if op.f == "read")


def _text(value: Any) -> str:
    return "" if value is None else str(value)


# -- sets and counters -------------------------------------------------------------------------------


def grow_only_set(ops: list[Op]) -> ObjectVerdict:
    """Check that every element added or read is in all later reads, and that reads return only added elements."""
    adds: dict[str, Op] = {}
    proved: dict[str, Op] = {}  # for each element the operation that proved it first
    reads = sorted((op for op in ops if op.f == "read"), key=lambda op: op.invoked)
    for op in ops:
        if op.f == "add":
            first = adds.setdefault(text_of(op.value), op)
            adds[text_of(op.value)] = min(first, op, key=lambda candidate: candidate.invoked)
        for element in map(repr, op.value or ()) if op.f == "read" else (text_of(op.value),):
            proved[element] = min(proved.get(element, op), op, key=lambda candidate: candidate.returned)
    for read in reads:
        elements = set(map(repr, read.value or ()))
        for element in sorted(elements):
            add = adds.get(element)
            if add is None or read.returned < add.invoked:
                return ObjectVerdict(Verdict.INVALID, f"read {element}, which nobody had added", (read,))
        lost = next((e for e, op in proved.items() if op.returned < read.invoked and e not in elements), None)
        if lost is not None:
            return ObjectVerdict(Verdict.INVALID, f"read without {lost}", (read, proved[lost]))
    return LINEARIZABLE


def counter(ops: list[Op]) -> ObjectVerdict:
    """Check that each read is between the certain and the possible sum of additions."""
    adds = [op for op in ops if op.f == "add"]
    for read in (op for op in ops if op.f == "read"):
        certain = [op.value for op in adds if op.returned < read.invoked]
        possible = [op.value for op in adds if op.invoked < read.returned and not op.returned < read.invoked]
        low = sum(certain) + sum(value for value in possible if value < 0)
        high = sum(certain) + sum(value for value in possible if value > 0)
        if not low <= read.value <= high:
            return ObjectVerdict(Verdict.INVALID, f"read {read.value}, which is not from {low} to {high}", (read,))
    return LINEARIZABLE


CHECKERS: Final[dict[str, Callable[[list[Op]], ObjectVerdict]]] = {
    "register": register, "set": grow_only_set, "counter": counter,
}  # fmt: skip


# --------------------------------------------------------------------------------------------------
# The audit of registers, sets and counters: one rule, and one finding for all objects that break it.


NAMES: Final = {"register": "not-linearizable", "set": "set-lost-or-invented", "counter": "counter-out-of-bounds"}


RULE_VERDICTS: Final = {
    Verdict.VALID: RuleVerdict.HELD, Verdict.INVALID: RuleVerdict.VIOLATED, Verdict.UNKNOWN: RuleVerdict.UNDECIDED,
}  # fmt: skip


def audit_objects(history: History, where: str) -> AuditResult:
    """Audit each object by itself; an unknown verdict or a quarantined line that matters makes the result unknown."""
    workload = history.config.workload
    judged = judge(history.config, history.events)
    broken = {key: verdict for key, verdict in judged.items() if verdict.verdict is Verdict.INVALID}
    severity, verdict = Severity.VIOLATION, worst([verdict.verdict for verdict in judged.values()])
    if not judged or history.quarantine.mattering:  # an unreadable line may be the write that explains a read
        severity, verdict = Severity.UNDECIDED, Verdict.UNKNOWN
    sentence = f"No {workload} gives all these answers."
    finding = Finding(
        rule=Rule.NOT_LINEARIZABLE,
        name=NAMES[workload],
        severity=severity,
        sentence=sentence,
        expected=False,
        count=len(broken),
        rows=len(broken),
        witnesses=[_evidence(key, broken[key]) for key in list(broken)[:WITNESSES_SHOWN]],
    )
    counts = {severity: len(broken)} if broken else {}
    row = RuleRow(
        rule=Rule.NOT_LINEARIZABLE, name=NAMES[workload], sentence=sentence, verdict=RULE_VERDICTS[verdict],
        why="" if judged else "the history has no operation on an object", counts=counts,
    )  # fmt: skip
    return AuditResult(
        verdict=verdict,
        operations=sum(verdict.operations for verdict in judged.values()),
        history=where,
        format=history.format,
        config=history.config,
        quarantine=history.quarantine,
        rules=[row],
        findings=[finding] if broken else [],
    )


def _evidence(key: str, judged: ObjectVerdict) -> Evidence:
    roles = (judged.what, "against this")
    return Evidence(
        partition="the one object" if key == str(None) else f"key {key}",
        offset=UNKNOWN,
        operations=[_witness(*witness) for witness in zip(roles, judged.ops, strict=False)],
    )


def _witness(role: str, op: Op) -> Witness:
    returned = op.returned if op.returned < NEVER else None
    process = op.process if isinstance(op.process, int) else UNKNOWN
    return Witness(role=role, invoked=op.invoked, returned=returned, process=process, words=f"{op.f} {op.value!r}")
