"""The rules of a partition in Spark SQL, as windows and joins, to compare with the NumPy implementation row by row.

One table has many small histories, distinguished by the column `history`.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from highwater.reports.columns import RECORDS, ROW_COLUMNS, Ints, Operations
from highwater.reports.rules.findings import Promise
from highwater.reports.rules.partition import check
from highwater.reports.rules.view import View
from highwater.reports.tests.sql import log, polls, register, storage, transactions
from highwater.reports.tests.sql.views import CACHED, VIEWS


class Finding(NamedTuple):
    history: int
    rule: int
    row: int
    offset: int
    information: bool


PROMISED: Final = ("acks_all", "unclean_election", "retention", "compaction")
LIMITS: Final = ("retention_ms", "transaction_timeout_ms", "patience_ms", "started_ms")
SCHEMA: Final = ", ".join(
    [
        "history bigint, row bigint, has_txn boolean",
        *(f"{name} boolean" for name in PROMISED),
        *(f"{name} bigint" for name in (*LIMITS, *ROW_COLUMNS)),
        *(f"{name} array<bigint>" for name in RECORDS),
    ]
)
FINDINGS: Final = [
    text for family in (log, polls, register, transactions, storage) for text in family.FINDINGS.values()
]
"""Queries that return (history, rule, row, offset, information) of each finding."""
RULES: Final = frozenset({*range(1, 21), 22, 23, 29, 30, 33, 34, 35, 36, 38})
"""The rules on one partition; rule 21 is not among them, because its cycles span partitions."""


def sql_findings(session: Any, folder: Path, histories: Sequence[tuple[Operations, Promise]]) -> Counter[Finding]:
    """Return the findings of all rules from one Spark job, which reads a Parquet file written to `folder`."""
    pq.write_table(_table(histories), folder / "histories.parquet")
    session.read.schema(SCHEMA).parquet(str(folder)).createOrReplaceTempView("ops")
    for name, text in VIEWS.items():
        session.sql(text).createOrReplaceTempView(name)
        if name in CACHED:
            session.catalog.cacheTable(name)
    rows = session.sql(" union all ".join(f"({query})" for query in FINDINGS)).collect()
    return Counter(Finding(*row) for row in rows)


def _table(histories: Sequence[tuple[Operations, Promise]]) -> pa.Table:
    """Return one row for each operation, with its records as in a dataset, and with the configuration in every row."""
    views = [View(ops, promise) for ops, promise in histories]
    sizes = [len(view.ops) for view in views]

    def joined(name: str) -> Ints:
        return np.concatenate([getattr(view.ops, name) for view in views])

    columns: dict[str, Any] = {name: joined(name) for name in ROW_COLUMNS}
    columns["history"] = np.repeat(np.arange(len(views)), sizes)
    columns["row"] = np.concatenate([np.arange(size) for size in sizes])
    columns["has_txn"] = np.repeat([view.has_transactions for view in views], sizes)
    columns |= {name: np.repeat([getattr(view.promise, name) for view in views], sizes) for name in PROMISED + LIMITS}
    ends = pa.array(np.concatenate([[0], np.cumsum(columns["record_count"])]).astype(np.int32))
    columns |= {name: pa.ListArray.from_arrays(ends, pa.array(joined(name))) for name in RECORDS}
    return pa.table(columns)


def kernel_findings(histories: Sequence[tuple[Operations, Promise]]) -> Counter[Finding]:
    """Return the findings of the NumPy implementation for the same rules."""
    return Counter(
        Finding(number, found.rule, row, offset, found.information)
        for number, (ops, promise) in enumerate(histories)
        for found in check(ops, promise)
        if found.rule in RULES
        for row, offset in zip(found.first.tolist(), found.offset.tolist(), strict=True)
    )
