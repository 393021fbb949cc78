"""A partition that is divided shows what the whole shows: the same findings, with the same witnesses."""

import random

from reports.soak_division import in_order, same_in_slices
from reports.tests.random_ops import random_operations

SEED = 20261122
HISTORIES = 400


def test_divided_or_not_the_findings_are_the_same() -> None:
    chance = random.Random(SEED)
    rules = set[int]()
    for number in range(HISTORIES):
        ops, promise = random_operations(chance)
        same, found = same_in_slices(in_order(ops), promise, chance)
        assert same, f"seed {SEED}, history {number}"
        rules |= found
    assert len(rules) >= 20, rules
