"""Compares the real-time rules with an exhaustive search for an order of effects that explains all responses.

An operation takes effect at one moment between its invocation and its response. An append returns the log end of its
moment as its offset and increments it; a report returns the log end of its moment. The histories are small and random
with a fixed seed; a failure prints the seed and the history.
"""

import random
from functools import cache

import numpy as np

from highwater.reports.columns import Kind, Operations
from highwater.reports.rules.findings import Promise
from highwater.reports.rules.partition import check

SEED = 20261121
HISTORIES = 2_000
Op = tuple[int, int, bool, int]  # invoked, returned, is append, offset or reported end


def linearizable(ops: list[Op]) -> bool:
    """Search all orders that respect real time; appends outside the history may grow the log."""

    @cache
    def go(done: int, end: int) -> bool:
        if done == (1 << len(ops)) - 1:
            return True
        left = [n for n in range(len(ops)) if not done >> n & 1]
        first_return = min(ops[n][1] for n in left)
        for n in left:
            invoked, _, append, z = ops[n]
            if invoked < first_return and z >= end and go(done | 1 << n, z + 1 if append else z):
                return True
        return False

    return go(0, 0)


def random_history(chance: random.Random) -> list[Op]:
    count = chance.randint(2, 6)
    moments = list(range(2 * count))
    chance.shuffle(moments)
    pairs = [sorted((moments[2 * n], moments[2 * n + 1])) for n in range(count)]
    offsets = chance.sample(range(8), count)
    return [(a, b, chance.random() < 0.6, z) for (a, b), z in zip(pairs, offsets, strict=True)]


def columns(ops: list[Op]) -> Operations:
    """Appends as sends that were acknowledged, reports as list_offsets, all of one epoch, ordered by invocation."""
    rows = sorted(ops)
    ints = {"dtype": np.int64}
    append = np.array([op[2] for op in rows])
    z = np.array([op[3] for op in rows], np.int64)
    zero, unknown = np.zeros(len(rows), np.int64), np.full(len(rows), -1, np.int64)
    return Operations(
        invoked=np.array([op[0] for op in rows], np.int64),
        returned=np.array([op[1] for op in rows], np.int64),
        process=np.arange(len(rows), **ints),  # type: ignore[call-overload]
        run=zero,
        kind=np.where(append, np.int64(Kind.SEND), np.int64(Kind.LIST_OFFSETS)),
        status=zero,
        offset=np.where(append, z, -1),
        value=np.where(append, np.arange(len(rows)), -1),
        position=unknown,
        high_watermark=np.where(append, -1, z),
        leader_epoch=zero,
        quiet=zero,
        record_count=zero,
        record_offset=np.zeros(0, np.int64),
        record_value=np.zeros(0, np.int64),
    )


def broken_by_the_kernel(ops: list[Op]) -> bool:
    """Rules 13, 14 and 16; and a report before an append, which is rule 15 once the value is read."""
    found = [f for f in check(columns(ops), Promise()) if f.rule in {13, 14, 16} and not f.information]
    late_append = any(a[2] and not b[2] and b[1] < a[0] and b[3] > a[3] for a in ops for b in ops)
    return bool(found) or late_append


def test_the_sweep_agrees_with_an_exhaustive_search() -> None:
    chance = random.Random(SEED)
    bad = 0
    for number in range(HISTORIES):
        ops = random_history(chance)
        expected = not linearizable(ops)
        bad += expected
        assert broken_by_the_kernel(ops) == expected, f"seed {SEED}, history {number}: {sorted(ops)}"
    assert HISTORIES * 0.05 < bad < HISTORIES * 0.95, "too few valid or invalid histories"
