"""A divided partition has the same findings, with the same witnesses, as the whole partition."""

import random

import pytest

from highwater.reports.execution.division.chunks import InMemoryChunks
from highwater.reports.execution.division.run import DividedPartition
from highwater.reports.rules.findings import Promise
from highwater.reports.rules.partition import check
from highwater.reports.tests.histories import PROMISED, History
from highwater.reports.tests.random_ops import random_operations
from highwater.soak.division import by_completion, finding_rows, same_when_divided

SEED = 20261122
HISTORIES = 400
PROMISE = Promise.of(PROMISED)


@pytest.mark.soak
def test_divided_partitions_have_the_same_findings() -> None:
    chance = random.Random(SEED)
    rules = set[int]()
    for number in range(HISTORIES):
        ops, promise = random_operations(chance)
        same, found = same_when_divided(by_completion(ops), promise, chance)
        assert same, f"seed {SEED}, history {number}"
        rules |= found
    assert len(rules) >= 20, rules


def test_the_last_records_of_a_reader_are_carried_to_its_next_chunk() -> None:
    """Another reader is ahead, so only the carried records reveal that this one goes back."""
    history = History()
    for value in range(6):
        history.send(value, value)
    history.poll((0, 0), (1, 1), (2, 2), process=50)
    history.poll(*((value, value) for value in range(6)), process=51)
    history.poll((1, 1), (2, 2), process=50)
    ops = history.operations()
    divided = DividedPartition.of(InMemoryChunks(ops, [0, len(ops) - 1]), PROMISE)
    assert divided is not None
    assert finding_rows(divided.check()) == finding_rows(check(ops, PROMISE))
    assert 7 in {found.rule for found in divided.check()}
