"""Rules of a partition in Spark SQL: said once more as windows and joins, and held to the NumPy form row by row.

Many small histories lie side by side, told apart by the column `history`. Audit.md, section 6, shape a.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reports.columns import (
    NEVER,
    RECORDS,
    ROW_COLUMNS,
    TOMBSTONE,
    UNKNOWN,
    Fate,
    Ints,
    Isolation,
    Kind,
    Operations,
    Status,
)
from reports.rules.found import Promise
from reports.rules.partition import check
from reports.rules.view import View


class Finding(NamedTuple):
    history: int
    rule: int
    row: int
    offset: int
    information: bool


PROMISED: Final = ("acks_all", "unclean_election", "retention", "compaction")
SCHEMA: Final = ", ".join(
    [
        "history bigint, row bigint, told_txn boolean",
        *(f"{name} boolean" for name in PROMISED),
        *(f"{name} bigint" for name in ROW_COLUMNS),
        *(f"{name} array<bigint>" for name in RECORDS),
    ]
)
OK, FAIL, INFO = Status.OK, Status.FAIL, Status.INFO
WRITER: Final = "struct(row, status, fate, txn, invoked)"
IN_VAIN: Final = f"(status = {FAIL} or fate = {Fate.ABORTED})"

VIEWS: Final = {
    "acked": f"select * from ops where kind = {Kind.SEND} and status = {OK} and offset <> {UNKNOWN}",
    "writers": f"""
        select history, value, min_by({WRITER}, struct({IN_VAIN}, row)) as writer
        from ops where kind = {Kind.SEND} and value <> {TOMBSTONE} group by history, value""",
    "told_so": f"""
        select history, value, offset, min_by({WRITER}, row) as exact from acked
        where value <> {TOMBSTONE} group by history, value, offset""",
    "told": f"""
        select history, value, row, place, offset, status, isolation, invoked, returned,
            coalesce(exact, writer) as writer, status = {OK} and isolation <> {Isolation.READ_UNCOMMITTED} as committed
        from (
            select history, row, status, isolation, invoked, returned, place,
                record.record_offset as offset, record.record_value as value
            from ops lateral view posexplode(arrays_zip(record_offset, record_value)) as place, record
            where kind = {Kind.READ})
        left join writers using (history, value) left join told_so using (history, value, offset)""",
    "seen": """
        select history, row, offset, value, struct(0 as read, row, 0 as place) as at from acked
        union all select history, row, offset, value, struct(1 as read, row, place) as at from told""",
    "values_told": f"""
        select history, value, max(offset) as last_offset from seen where value <> {TOMBSTONE}
        group by history, value""",
    "values_read": f"""
        select history, value, bool_or(status <> {OK}) as unsure, bool_or(status = {OK}) as certain from told
        group by history, value""",
    "sends": f"""
        select *, max(place) over (partition by history, key) as furthest_of_key
        from (
            select ops.*, last_offset, if(offset = {UNKNOWN}, coalesce(last_offset, {UNKNOWN}), offset) as place
            from ops left join values_told using (history, value) where kind = {Kind.SEND})""",
    "starts": f"""
        select history,
            greatest(0, max(log_start_offset), max(if(kind = {Kind.DELETE} and status <> {FAIL}, offset, 0))) as start
        from ops group by history""",
    "reading": f"""
        select *, case when position <> {UNKNOWN} then position else coalesce(before.last + 1, {UNKNOWN}) end as begins
        from (
            select *, lag(struct(row, last, fate, txn)) over (partition by history, process, run order by row) as before
            from (
                select *, record_offset[0] as first, element_at(record_offset, -1) as last
                from ops where kind = {Kind.READ} and status = {OK} and record_count > 0))""",
    "covered": f"""
        select history, start,
            if(quiet = 1 and high_watermark <> {UNKNOWN} and end >= high_watermark, {NEVER}, end) as end
        from (
            select history, quiet, high_watermark, if(begins = {UNKNOWN} or retention, first, begins) as start,
                last + 1 as end from reading
            union all
            select history, quiet, high_watermark, position, position from ops
            where kind = {Kind.READ} and status = {OK} and record_count = 0 and position <> {UNKNOWN})""",
    "known": f"""
        select history, offset, min(returned) as earliest, max(returned) as latest
        from (select *, bool_or(committed) over (partition by history, value) as visible from told)
        where status = {OK} and (writer is null or writer.txn = {UNKNOWN} or writer.fate = {Fate.COMMITTED}
            or isolation = {Isolation.READ_COMMITTED} or visible)
        group by history, offset""",
    "gaps": f"""
        select history, process, run, row, offset, offset > first as inside,
            (position <> {UNKNOWN} or quiet = 1) and earliest < invoked and latest <= invoked as gone
        from (
            select r.history, process, run, row, first, position, quiet, invoked, k.offset, earliest, latest
            from reading r join starts s on r.history = s.history join known k on r.history = k.history
                and k.offset >= greatest(start, if(begins = {UNKNOWN} or retention, first, begins))
                and k.offset <= last
            where not compaction and not array_contains(record_offset, k.offset))""",
    "missing": f"""
        select s.history, row, last_offset as offset
        from sends s join starts b on s.history = b.history
            left join values_read r on s.history = r.history and s.value = r.value
        where s.value <> {TOMBSTONE} and last_offset >= start
            and (status = {OK} or status = {INFO} and coalesce(unsure, false))
            and not coalesce(certain, false)
            and (txn = {UNKNOWN} or fate = {Fate.COMMITTED})
            and (not compaction or key <> {UNKNOWN} and furthest_of_key <= last_offset)
        union all
        select s.history, row, offset
        from sends s join starts b on s.history = b.history left anti join (
            select history, offset from told where value = {TOMBSTONE} and status = {OK}) t
            on s.history = t.history and s.offset = t.offset
        where value = {TOMBSTONE} and status = {OK} and offset <> {UNKNOWN} and offset >= start and not compaction
            and (txn = {UNKNOWN} or fate = {Fate.COMMITTED})""",
    "own_disorder": f"""
        select history, row, min_by(other, inside) as other, offset
        from (
            select history, row, before.row as other, offset, false as inside
            from (
                select *, lag(struct(row, offset, returned)) over (partition by history, process order by row) as before
                from acked)
            where offset <= before.offset and before.returned < invoked
            union all
            select history, row, before.row as other, offset, true as inside
            from (
                select *, lag(struct(row, offset)) over (partition by history, txn order by sequence, row) as before
                from acked where producer = {UNKNOWN} and sequence <> {UNKNOWN} and txn <> {UNKNOWN})
            where offset <= before.offset)
        group by history, row, offset""",
    "doubtful": f"""
        select history, value from sends group by history, value
        having bool_or(gave_up = 1) or count(distinct if(producer = {UNKNOWN}, null, producer)) > 1
            or count(*) > 1 and bool_or(fate = {Fate.ABORTED})""",
    "free": f"""
        select history, offset as z
        from (
            select *, txn = {UNKNOWN} or row_number() over (partition by history, txn order by offset, row) > 1 as later
            from acked where told_txn)
        group by history, offset having bool_and(later)""",
}

KEPT: Final = ("told", "sends", "reading")
"""Views that many findings need: worked out once."""


def _answers(end: str) -> str:
    return f"""
        select * from ops
        where kind in ({Kind.READ}, {Kind.LIST_OFFSETS}) and status = {OK} and {end} <> {UNKNOWN}"""


# -- bounds of a register ------------------------------------------------------------------------------

BOUNDS: Final = "history, row, leader_epoch, time, z"


def _bounds(source: str, time: str, z: str, where: str = "true") -> str:
    return f"select history, row, leader_epoch, {time} as time, {z} as z from ({source}) where {where}"


APPENDED = _bounds("select * from acked", "returned", "offset + 1")
SENT = _bounds("select * from sends", "invoked", "place", f"status <> {FAIL} and place <> {UNKNOWN}")
READ_TO = _bounds("select * from reading", "returned", "last + 1")
READ_COMMITTED_TO = _bounds("select * from reading", "returned", "last + 1", f"isolation = {Isolation.READ_COMMITTED}")
HIGH = f"{_bounds('select * from acked', 'returned', 'offset + 1', 'acks_all')} union all {READ_TO}"


def _ends(end: str, time: str, where: str = "true") -> str:
    return _bounds(_answers(end), time, end, where)


def _sweep(lower: str, upper: str, by: str = "history") -> str:
    """Upper rows with a larger lower row strictly before them; of those the first of the largest is the witness."""
    return f"""
        select history, row, -most.row as witness, z
        from (
            select *, max(low) over (partition by {by} order by time, below
                rows between unbounded preceding and 1 preceding) as most
            from (
                select {BOUNDS}, 0 as below, null as low from ({upper})
                union all
                select {BOUNDS}, 1 as below, struct(z, -time as time, -row as row) as low from ({lower})))
        where below = 0 and most.z > z"""


def _split(rule: int, lower: str, upper: str) -> str:
    """Within a leader epoch a violation, over all of them information."""
    known = f"leader_epoch <> {UNKNOWN}"
    within = _sweep(lower, f"select * from ({upper}) where {known}", "history, leader_epoch")
    return f"""
        select history, {rule}, row, z, false from ({within})
        union all
        select history, {rule}, row, z, true
        from ({_sweep(lower, upper)}) left anti join ({within}) using (history, row)"""


def _first_pairs(major: str, minor: str) -> str:
    """Of each `major` that two different `minor` stand with: the first two neighbours that differ."""
    following = f"lead({minor}) over (partition by history, {major} order by at)"
    return f"""
        select history, subject, pair.row, pair.next
        from (
            select history, {major} as subject, min_by(struct(row, next), at) as pair
            from (select *, {following} as next from seen) where next <> {minor} group by history, {major})"""


STABLE, HIGH_WATERMARK = "last_stable_offset", "high_watermark"
HIGH_ENDS, STABLE_ENDS = _ends(HIGH_WATERMARK, "returned"), _ends(STABLE, "returned")

FINDINGS: Final = {
    "1": f"select history, 1, row, subject, false from ({_first_pairs('offset', 'value')})",
    "2": f"""
        select p.history, 2, row, next, d.value is not null
        from ({_first_pairs("value", "offset")}) p left join doubtful d
            on p.history = d.history and p.subject = d.value
        where p.subject <> {TOMBSTONE}""",
    "3, 38": f"""
        select history, if(former.value is null, 3, 38), first.row, first.offset, false
        from (
            select history, value, min_by(struct(row, offset), struct(row, place)) as first
            from told where writer is null and value <> {TOMBSTONE} group by history, value)
        left join (select distinct history, value from ops where kind = {Kind.FORMER}) former using (history, value)""",
    "4": """
        select m.history, 4, row, offset, false from missing m left semi join covered c
        on m.history = c.history and start <= offset and offset < end""",
    "5": """
        select m.history, 5, row, offset, true from missing m left anti join covered c
        on m.history = c.history and start <= offset and offset < end""",
    "6": """
        select history, 6, min_by(row, struct(process, run, row)), offset, false from gaps where gone
        group by history, offset""",
    "7": f"""
        select history, 7, row, first, false from reading
        where first <= before.last and position = {UNKNOWN}
            and not (before.fate = {Fate.ABORTED} and before.txn <> txn)""",
    "8, 9": """
        select history, if(inside, 9, 8), row, min(offset), false from gaps where not gone
        group by history, row, inside""",
    "9": """
        select history, 9, row, min_by(offset, place), false
        from (select *, lag(offset) over (partition by history, row order by place) as previous from told)
        where offset <= previous group by history, row""",
    "10": "select history, 10, row, offset, false from own_disorder",
    "13": f"""
        with blamed as (select history, row from own_disorder union select history, other from own_disorder)
        select history, 13, row, z, false
        from ({_sweep(APPENDED, SENT)}) left anti join blamed using (history, row)
            left anti join (select history, row as witness from blamed) using (history, witness)""",
    "14": _split(14, HIGH, _ends(HIGH_WATERMARK, "invoked")),
    "14, read_committed": _split(14, READ_COMMITTED_TO, _ends(STABLE, "invoked")),
    "14, not held": _split(
        14, HIGH, f"select * from ({_ends(STABLE, 'invoked')}) left semi join free using (history, z)"
    ),
    "15": f"""
        select history, 15, row, place, false
        from sends left semi join (
            select history, writer.row from told where returned < writer.invoked
            union
            select history, row
            from ({_sweep(f"{HIGH_ENDS} union all {STABLE_ENDS} union all {READ_TO}", SENT)})
            left semi join (select history from ops where not unclean_election) using (history)
        ) using (history, row)""",
    "16": _split(16, HIGH_ENDS, _ends(HIGH_WATERMARK, "invoked")),
    "16, listed": f"""
        select late.history, 16, late.row, late.high_watermark, false
        from ops late left semi join ops early on late.history = early.history
            and early.kind = late.kind and early.status = {OK} and early.leader_epoch <> {UNKNOWN}
            and early.returned < late.invoked and early.high_watermark > late.high_watermark
            and early.leader_epoch < late.leader_epoch
        where late.kind = {Kind.LIST_OFFSETS} and late.status = {OK} and late.high_watermark <> {UNKNOWN}""",
    "16, stable": _split(16, STABLE_ENDS, _ends(STABLE, "invoked")),
    "17": f"""
        select history, 17, first.row, first.offset, false
        from (
            select history, min_by(struct(row, offset), struct(row, place)) as first
            from told where committed and (writer.status = {FAIL} or writer.fate = {Fate.ABORTED})
            group by history, writer.row)""",
}
"""By rule, and what of it: (history, rule, culprit's row, offset, information)."""
RULES: Final = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14, 15, 16, 17, 38})


def sql_findings(session: Any, folder: Path, histories: Sequence[tuple[Operations, Promise]]) -> Counter[Finding]:
    """In one job; the Parquet file that it reads is put into `folder`."""
    pq.write_table(_table(histories), folder / "histories.parquet")
    session.read.schema(SCHEMA).parquet(str(folder)).createOrReplaceTempView("ops")
    for name, text in VIEWS.items():
        session.sql(text).createOrReplaceTempView(name)
        if name in KEPT:
            session.catalog.cacheTable(name)
    rows = session.sql(" union all ".join(f"({each})" for each in FINDINGS.values())).collect()
    return Counter(Finding(*row) for row in rows)


def _table(histories: Sequence[tuple[Operations, Promise]]) -> pa.Table:
    """One row an operation, with its records as in a dataset; what a configuration promises stands in every row."""
    views = [View(ops, promise) for ops, promise in histories]
    sizes = [len(view.ops) for view in views]

    def joined(name: str) -> Ints:
        return np.concatenate([getattr(view.ops, name) for view in views])

    columns: dict[str, Any] = {name: joined(name) for name in ROW_COLUMNS}
    columns["history"] = np.repeat(np.arange(len(views)), sizes)
    columns["row"] = np.concatenate([np.arange(size) for size in sizes])
    columns["told_txn"] = np.repeat([view.told_txn for view in views], sizes)
    columns |= {name: np.repeat([getattr(view.promise, name) for view in views], sizes) for name in PROMISED}
    ends = pa.array(np.concatenate([[0], np.cumsum(columns["record_count"])]).astype(np.int32))
    columns |= {name: pa.ListArray.from_arrays(ends, pa.array(joined(name))) for name in RECORDS}
    return pa.table(columns)


def kernel_findings(histories: Sequence[tuple[Operations, Promise]]) -> Counter[Finding]:
    """Of the same rules."""
    return Counter(
        Finding(number, found.rule, row, offset, found.information)
        for number, (ops, promise) in enumerate(histories)
        for found in check(ops, promise)
        if found.rule in RULES
        for row, offset in zip(found.first.tolist(), found.offset.tolist(), strict=True)
    )
