"""What the rules find, in the terms of the second oracle, and the differences between both."""

from collections import defaultdict
from collections.abc import Hashable, Iterator

from highwater.reports.anomalies import Severity, anomalies
from highwater.reports.columns import TOMBSTONE, Operations
from highwater.reports.rules.findings import Promise, RuleFindings, Weight
from highwater.reports.rules.partition import check
from highwater.reports.rules.rule import Rule
from highwater.reports.tests.oracle import find_culprits
from highwater.reports.tests.oracle.findings import Culprits, Findings
from highwater.reports.tests.oracle.history import History, Row

BY_OFFSET = {Rule.INCONSISTENT_OFFSETS, Rule.TRUNCATED_AFTER_READ, Rule.RESURRECTED_RECORD, Rule.REPLICA_DIVERGENCE}
BY_OFFSET |= {Rule.UNEXPLAINED_OFFSET}
BY_VALUE = {Rule.DUPLICATE, Rule.TOPIC_REBORN}
BY_SEND = {Rule.ABORTED_READ, Rule.PRECOMMITTED_READ}
LOST_OR_UNSEEN = {Rule.LOST_WRITE, Rule.UNSEEN}
NOT_COMPARED = {Rule.G1C}  # cycles over several partitions
Difference = dict[str, tuple[list[Hashable], list[Hashable]]]


def differences(ops: Operations, promise: Promise) -> Difference:
    """Return by rule and weight what only the rules find, and what only the oracle finds."""
    history = History(ops, promise)
    found, expected = found_by_rules(ops, promise, history), found_by_oracle(ops, promise, history)
    return {
        f"{rule.name.lower()} {weight.name.lower()}": (
            sorted(found[rule, weight] - expected[rule, weight], key=repr),
            sorted(expected[rule, weight] - found[rule, weight], key=repr),
        )
        for rule, weight in sorted(found.keys() | expected.keys())
        if found[rule, weight] != expected[rule, weight]
    }


def found_by_rules(ops: Operations, promise: Promise, history: History) -> Culprits:
    return _comparable(culprits_of(check(ops, promise), history.rows), history)


def found_by_oracle(ops: Operations, promise: Promise, history: History) -> Culprits:
    return _comparable(find_culprits(ops, promise), history)


def violations(found: Culprits | list[RuleFindings]) -> set[Rule]:
    """Return the rules with a finding that is a violation, by its weight and by the severity of the rule."""
    if isinstance(found, dict):
        weights = {rule_and_weight for rule_and_weight, those in found.items() if those}
    else:
        weights = {(part.rule, part.weight) for part in found if len(part.first)}
    return {
        rule
        for rule, weight in weights
        if rule not in NOT_COMPARED and weight <= Weight.VIOLATION and anomalies()[rule].severity is Severity.VIOLATION
    }


def culprits_of(findings: list[RuleFindings], rows: list[Row]) -> Culprits:
    """Return the culprits of each rule and weight among the findings of the rules."""
    found = Findings()
    for part in findings:
        if part.rule in NOT_COMPARED:
            continue
        for first, second, offset in zip(part.first, part.second, part.offset, strict=True):
            witness = rows[int(second)] if second >= 0 else None
            culprit = _culprit(part.rule, rows[int(first)], witness, int(offset))
            if part.rule is Rule.DUPLICATE and found.has(part.rule, culprit):  # two values at these two offsets
                values = _values(rows[int(first)], witness, int(offset))
                culprit = next((value for value in values if not found.has(part.rule, value)), culprit)
            found.add(part.rule, part.weight, culprit)
    return found.culprits()


def _comparable(culprits: Culprits, history: History) -> Culprits:
    found: Culprits = defaultdict(set)
    for (rule, weight), those in culprits.items():
        if _is_compared(rule, weight):
            found[rule, _weight(rule, weight)] |= those
    if any(len(set(row.offsets)) < len(row.offsets) for row in history.reads):  # its witnesses do not name the value
        found = defaultdict(set, {key: those for key, those in found.items() if key[0] is not Rule.DUPLICATE})
    if any(row.quiet and list(row.offsets) != sorted(row.offsets) for row in history.reads):  # it has no last record
        found = defaultdict(set, {key: those for key, those in found.items() if key[0] not in LOST_OR_UNSEEN})
    # An audit adds acknowledged records without a known place, which check() does not return.
    for rule in LOST_OR_UNSEEN:
        found[rule, Weight.VIOLATION] -= {send.row for send in history.sends if history.place(send) is None}
    return found


def _is_compared(rule: Rule, weight: Weight) -> bool:
    return not (rule is Rule.RESURRECTED_RECORD and weight is Weight.INFORMATION)


def _weight(rule: Rule, weight: Weight) -> Weight:
    """Return the weight; rules without violations have one severity, whatever the weight."""
    return weight if anomalies()[rule].severity is Severity.VIOLATION else Weight.VIOLATION


def _culprit(rule: Rule, first: Row, second: Row | None, offset: int) -> Hashable:
    if rule in BY_OFFSET:
        return offset
    if rule in BY_VALUE:
        return next(_values(first, second, offset), None)
    if rule in BY_SEND or rule is Rule.EARLY_READ:
        assert second is not None
        return second.txn if rule is Rule.EARLY_READ else second.row
    if rule is Rule.PHANTOM_READ and dict(first.records).get(offset) == TOMBSTONE:
        return (offset,)
    cells: dict[Rule, int | None] = {
        Rule.DOUBLE_PROCESSING: first.txn,
        Rule.HANGING_TRANSACTION: first.last_stable_offset,
        Rule.EARLY_RETENTION: first.log_start_offset,
    }
    return cells.get(rule, first.row)


def _values(first: Row, second: Row | None, offset: int) -> Iterator[int]:
    """Return the values of a finding that are possible: one witness has it at the offset, and the other elsewhere."""
    rows = [first] if second is None else [second, first]
    for row in rows:
        for value in (value for at, value in _records(row) if at == offset):
            if all(_has(other, value) for other in rows) and any(
                same == value and at != offset for other in rows for at, same in _records(other)
            ):
                yield value
    yield from (value for row in rows for at, value in _records(row) if at == offset)


def _records(row: Row) -> list[tuple[int | None, int]]:
    """Return the (offset, value) that a read returned or a send wrote."""
    return [*row.records] if row.value is None else [(row.offset, row.value)]


def _has(row: Row, value: int) -> bool:
    return row.value == value or any(other == value for _, other in row.records)
