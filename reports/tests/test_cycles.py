"""Compares the cycles of transactions (rule 21) with plain Python, over two partitions."""

import random
from array import array
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.reports.columns import Fate, Isolation, Kind, Operations, Status
from highwater.reports.rules.checks import cycles as cycles_of_rules
from highwater.reports.rules.findings import Promise, Weight
from highwater.reports.rules.rule import Rule
from highwater.reports.rules.run import _merged, check_run
from highwater.reports.rules.view import View
from highwater.reports.tables import Tables, Transactions
from highwater.reports.tests.random_ops import operations

TRANSACTIONS = 5
Rows = list[dict[str, Any]]
Edges = set[tuple[int, int]]


def random_rows(chance: random.Random, fates: list[int]) -> Rows:
    """Return sends of transactions, each at its own offset, and reads of transactions that return some of them."""
    sent = [chance.randrange(TRANSACTIONS) for _ in range(chance.randint(2, 7))]
    rows: Rows = [
        {"kind": Kind.SEND, "offset": 2 * place, "value": place, "txn": txn} for place, txn in enumerate(sent)
    ]
    for _ in range(chance.randint(1, 6)):
        records = [(2 * place, place) for place in sorted(chance.sample(range(len(sent)), chance.randint(1, 2)))]
        rows.append({"kind": Kind.READ, "txn": chance.choice([-1, *range(TRANSACTIONS)]), "records": records})
    chance.shuffle(rows)
    for place, row in enumerate(rows):
        fate = fates[row["txn"]] if row["txn"] >= 0 else -1
        row |= {"status": Status.OK, "process": place, "invoked": 2 * place, "returned": 2 * place + 1, "fate": fate}
        row |= {"isolation": chance.choice([*[Isolation.READ_COMMITTED] * 4, Isolation.READ_UNCOMMITTED]), "ended": 0}
    return rows


def of_reads(rows: Rows) -> Edges:
    """Return (writer, reader) of each record that another transaction read as committed."""
    writers = {row["value"]: row["txn"] for row in rows if row["kind"] is Kind.SEND}
    return {
        (writers[value], row["txn"])
        for row in rows if row["kind"] is Kind.READ and row["txn"] >= 0 and row["isolation"] is Isolation.READ_COMMITTED
        for _, value in row["records"] if writers[value] != row["txn"]
    }  # fmt: skip


def of_writes(rows: Rows) -> Edges:
    """Return the transactions whose records are neighbours in the log."""
    log = sorted((row["offset"], row["txn"]) for row in rows if row["kind"] is Kind.SEND)
    return {(before, after) for (_, before), (_, after) in pairwise(log) if before != after}


def cycles(edges: Edges) -> Iterator[frozenset[int]]:
    """Return the sets of transactions that reach each other."""
    reach = set(edges)
    for middle in range(TRANSACTIONS):
        reach |= {(a, c) for a, b in reach if b == middle for d, c in reach if d == middle}
    yield from {
        frozenset(b for a, b in reach if a == one and (b, one) in reach) for one, other in reach if one == other
    }


def among_committed(edges: Iterable[tuple[int, int]], fates: list[int]) -> Edges:
    return {edge for edge in edges if all(fates[txn] != Fate.ABORTED for txn in edge)}


@pytest.mark.long
@given(st.randoms(use_true_random=False))
@settings(max_examples=400, deadline=None, database=None)
def test_cycles_of_reads_are_violations_and_those_of_reads_and_writes_are_information(chance: random.Random) -> None:
    fates = [int(chance.choice([Fate.COMMITTED, Fate.COMMITTED, Fate.ABORTED, -1])) for _ in range(TRANSACTIONS)]
    parts = {key: random_rows(chance, fates) for key in ("t-0", "t-1")}
    views = {key: View(operations(rows), Promise()) for key, rows in parts.items()}
    tables = Tables(Transactions([], array("b", fates), array("q", [0] * TRANSACTIONS), array("b", [1] * TRANSACTIONS)))
    found, _ = check_run(
        lambda work, keys=None: [(key, work(key, views[key])) for key in sorted(keys or views)], tables, Promise()
    )

    reads, writes = (
        among_committed({edge for rows in parts.values() for edge in edges(rows)}, fates)
        for edges in (of_reads, of_writes)
    )
    certain = set(cycles(reads))
    known = {txn for circle in certain for txn in circle}
    possible = {circle for circle in cycles(reads | writes) if not circle & known}
    for weight, expected in ((Weight.VIOLATION, certain), (Weight.INFORMATION, possible)):
        named = [
            edge_of(views[key].ops, int(part.first[0]), int(part.second[0]))
            for key, part in found if part.rule is Rule.G1C and part.weight is weight
        ]  # fmt: skip
        assert set(named) <= (reads if weight is Weight.VIOLATION else reads | writes)
        assert sorted(map(sorted, expected)) == sorted(sorted(*(c for c in expected if {*edge} <= c)) for edge in named)


def test_the_edges_of_slices_are_merged_and_each_pair_of_transactions_kept_once() -> None:
    def edges(*pairs: tuple[int, int]) -> cycles_of_rules.Edges:
        source, target = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
        return cycles_of_rules.Edges(source, target, source, target, source, source)

    none = edges((5, 6))
    slices = [(none, edges((0, 1), (1, 0)), edges((2, 3))), (none, edges((1, 0), (4, 1)), edges((3, 2)))]
    certain, reads, writes = _merged(slices)
    assert [*zip(certain.source, certain.target, strict=True)] == [(5, 6)]
    assert [*zip(reads.source, reads.target, strict=True)] == [(0, 1), (1, 0), (4, 1)]
    assert [*zip(writes.source, writes.target, strict=True)] == [(2, 3), (3, 2)]
    assert [len(part.source) for part in _merged([])] == [0, 0, 0]


def edge_of(ops: Operations, first: int, second: int) -> tuple[int, int]:
    """Return (transaction of the second witness, transaction of the first)."""
    return int(ops.txn[second]), int(ops.txn[first])
