"""Compares each rule of a partition in NumPy with plain Python: both report the same findings on random histories."""

import random
from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.reports.columns import TOMBSTONE, Ints, Kind, Operations, Status
from highwater.reports.rules.findings import Promise, RuleFindings
from highwater.reports.rules.partition import check
from highwater.reports.tests.brute import RULES, Brute
from highwater.reports.tests.random_ops import operations, random_operations


def _at_two_offsets(ops: Operations, found: RuleFindings) -> Ints:
    """Return the values that the second operation has at the offset and the first one at another."""
    values = []
    for first, second, offset in zip(found.first, found.second, found.offset, strict=True):
        here = {value for at, value in _records(ops, second) if at == offset}
        values += [value for at, value in _records(ops, first) if at != offset and value in here and value != TOMBSTONE]
    return np.array(values, np.int64)


def _records(ops: Operations, row: int) -> list[tuple[int, int]]:
    """Return (offset, value) of each record of an operation."""
    if ops.kind[row] == Kind.SEND:
        return [(int(ops.offset[row]), int(ops.value[row]))]
    end = int(np.cumsum(ops.record_count)[row])
    mine = slice(end - int(ops.record_count[row]), end)
    return list(zip(ops.record_offset[mine].tolist(), ops.record_value[mine].tolist(), strict=True))


CULPRITS: dict[int, Callable[[Operations, RuleFindings], Ints]] = {
    1: lambda ops, found: found.offset,
    2: _at_two_offsets,
    34: lambda ops, found: ops.log_start_offset[found.first],
    38: lambda ops, found: ops.value[found.second],
    6: lambda ops, found: found.offset,
    22: lambda ops, found: ops.txn[found.first],
    29: lambda ops, found: found.offset,
    35: lambda ops, found: found.offset,
    36: lambda ops, found: found.offset,
    17: lambda ops, found: found.second,
    18: lambda ops, found: found.second,
    19: lambda ops, found: ops.txn[found.second],
}
"""The column that identifies a finding of a rule; for other rules it is the first row."""


def culprits(ops: Operations, promise: Promise) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {number: set() for number in RULES}
    for findings in check(ops, promise):
        if findings.information and findings.rule in {14, 16, 35}:
            continue
        if findings.rule in found:
            culprit = CULPRITS.get(findings.rule)
            found[findings.rule] |= set((culprit(ops, findings) if culprit else findings.first).tolist())
    return found


def disagreements(ops: Operations, promise: Promise) -> dict[int, tuple[set[int], set[int]]]:
    """Return the rules on which both differ: (findings of NumPy, findings of plain Python)."""
    numpy, brute = culprits(ops, promise), Brute(ops, promise)
    expected = {number: judge(brute) for number, judge in RULES.items()}
    return {rule: (numpy[rule], expected[rule]) for rule in RULES if numpy[rule] != expected[rule]}


@given(st.randoms(use_true_random=False))
@settings(max_examples=400, deadline=None, database=None)
def test_numpy_and_plain_python_agree_on_every_rule(chance: random.Random) -> None:
    ops, promise = random_operations(chance)
    assert disagreements(ops, promise) == {}


def test_random_histories_violate_every_rule_and_none() -> None:
    chance = random.Random(1)
    counts = np.zeros(40, int)
    for _ in range(20_000):
        found = [rule for rule, rows in culprits(*random_operations(chance)).items() if rows]
        counts[found or [0]] += 1
        if all(counts[rule] for rule in RULES):
            break
    assert [rule for rule in RULES if not counts[rule]] == []
    assert counts[0] > 20, "too few valid histories"


def test_a_dump_with_a_repeated_offset_still_differs_from_another_dump() -> None:
    def dump(moment: int, *values: int) -> dict[str, object]:
        row = {"kind": Kind.DUMP, "status": Status.OK, "position": 0, "high_watermark": 1, "process": moment}
        return row | {"invoked": moment, "returned": moment + 1, "records": [(0, value) for value in values]}

    for first, second, differ in [((7, 8), (8,), True), ((8,), (7, 8), True), ((7, 8), (), False), ((8,), (8,), False)]:
        dumps = [dump(0, *first), *([dump(2, *second)] if second else [])]
        assert bool(culprits(operations(dumps), Promise())[36]) == differ
