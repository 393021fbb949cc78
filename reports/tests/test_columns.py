"""Rules find the same in narrow columns as in wide ones."""

import random
from dataclasses import replace

import numpy as np

from highwater.reports.columns import NARROW, Operations
from highwater.reports.rules.checks.cycles import reads, writes
from highwater.reports.rules.partition import check
from highwater.reports.rules.view import View
from highwater.reports.tests.random_ops import random_operations

HISTORIES = 400


def narrow(ops: Operations) -> Operations:
    return replace(ops, **{name: getattr(ops, name).astype(kind) for name, kind in NARROW.items()})


def test_narrow_columns_yield_the_same_findings() -> None:
    findings = 0
    for seed in range(HISTORIES):
        wide, promise = random_operations(random.Random(seed))
        pairs = [[(f.rule, *map(np.ndarray.tolist, (f.first, f.second, f.offset))) for f in check(ops, promise)]
                 for ops in (wide, narrow(wide))]  # fmt: skip
        assert pairs[0] == pairs[1], f"seed {seed}"
        findings += len(pairs[0])
        for edges in (reads, writes):
            one, other = (edges(View(ops, promise)) for ops in (wide, narrow(wide)))
            assert np.array_equal(one.source, other.source), f"seed {seed}"
            assert np.array_equal(one.first, other.first), f"seed {seed}"
    assert findings > HISTORIES / 2
