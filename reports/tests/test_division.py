"""A partition that is divided shows what the whole shows: the same findings, with the same witnesses."""

import random

import numpy as np
import pytest

from reports.columns import Operations, joined, picked
from reports.division import plan, survey
from reports.division.chunks import Parted
from reports.division.divided import Divided
from reports.rules.found import Found
from reports.rules.partition import check
from reports.tests.random_ops import random_operations

SEED = 20261122
HISTORIES = 400


def told(found: list[Found]) -> list[tuple[object, ...]]:
    return [(f.rule, f.information, *(c.tolist() for c in (f.first, f.second, f.offset))) for f in found]


def in_order(ops: Operations) -> Operations:
    """Of their completion, as they stand in a dataset."""
    order = np.argsort(ops.returned, kind="stable")
    return joined([picked(ops, order[place : place + 1]) for place in range(len(order))])


def test_divided_or_not_the_findings_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (plan, survey):
        monkeypatch.setattr(module, "EVERY", 1)
    chance = random.Random(SEED)
    rules = set()
    for number in range(HISTORIES):
        ops, promise = random_operations(chance)
        ops = in_order(ops)
        starts = sorted({0, *(chance.randrange(len(ops)) for _ in range(chance.randint(1, 4)))})
        divided = Divided.of(Parted(ops, starts), promise, size=chance.randint(1, 8))
        if divided is None:
            assert promise.compaction
            continue
        whole = check(ops, promise)
        assert told(divided.look()) == told(whole), f"seed {SEED}, history {number}, chunks at {starts}"
        rules |= {each.rule for each in whole}
    assert len(rules) >= 20, rules
