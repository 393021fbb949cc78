"""Each rule of a partition, in NumPy and in plain Python: the same culprits on random histories."""

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
    """Values that the second told of the offset, and the first of another."""
    values = []
    for first, second, offset in zip(found.first, found.second, found.offset, strict=True):
        here = {value for at, value in _told(ops, second) if at == offset}
        values += [value for at, value in _told(ops, first) if at != offset and value in here and value != TOMBSTONE]
    return np.array(values, np.int64)


def _told(ops: Operations, row: int) -> list[tuple[int, int]]:
    """(offset, value) of each record that an operation told."""
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
"""What one finding of a rule is about; of the others it is the first row."""


def culprits(ops: Operations, promise: Promise) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {number: set() for number in RULES}
    for each in check(ops, promise):
        if each.information and each.rule in {14, 16, 35}:
            continue
        if each.rule in found:
            culprit = CULPRITS.get(each.rule)
            found[each.rule] |= set((culprit(ops, each) if culprit else each.first).tolist())
    return found


def disagreements(ops: Operations, promise: Promise) -> dict[int, tuple[set[int], set[int]]]:
    """Rules on which both differ: (NumPy's culprits, plain Python's)."""
    told, brute = culprits(ops, promise), Brute(ops, promise)
    expected = {number: judge(brute) for number, judge in RULES.items()}
    return {rule: (told[rule], expected[rule]) for rule in RULES if told[rule] != expected[rule]}


@given(st.randoms(use_true_random=False))
@settings(max_examples=400, deadline=None, database=None)
def test_numpy_and_plain_python_agree_on_every_rule(chance: random.Random) -> None:
    ops, promise = random_operations(chance)
    assert disagreements(ops, promise) == {}


def test_random_histories_show_every_rule_and_none() -> None:
    chance = random.Random(1)
    seen = np.zeros(40, int)
    for _ in range(20_000):
        found = [rule for rule, each in culprits(*random_operations(chance)).items() if each]
        seen[found or [0]] += 1
        if all(seen[rule] for rule in RULES):
            break
    assert [rule for rule in RULES if not seen[rule]] == []
    assert seen[0] > 20, "no healthy ones among them"


def test_a_dump_that_tells_an_offset_twice_still_differs_from_another() -> None:
    def dump(moment: int, *values: int) -> dict[str, object]:
        row = {"kind": Kind.DUMP, "status": Status.OK, "position": 0, "high_watermark": 1, "process": moment}
        return row | {"invoked": moment, "returned": moment + 1, "records": [(0, value) for value in values]}

    for first, second, differ in [((7, 8), (8,), True), ((8,), (7, 8), True), ((7, 8), (), False), ((8,), (8,), False)]:
        dumps = [dump(0, *first), *([dump(2, *second)] if second else [])]
        assert bool(culprits(operations(dumps), Promise())[36]) == differ
