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
    Began,
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
LIMITS: Final = ("retention_ms", "transaction_timeout_ms", "patience_ms", "started_ms")
SCHEMA: Final = ", ".join(
    [
        "history bigint, row bigint, told_txn boolean",
        *(f"{name} boolean" for name in PROMISED),
        *(f"{name} bigint" for name in (*LIMITS, *ROW_COLUMNS)),
        *(f"{name} array<bigint>" for name in RECORDS),
    ]
)
OK, FAIL, INFO = Status.OK, Status.FAIL, Status.INFO
WRITER: Final = "struct(row, status, fate, txn, invoked, key)"
CERTAIN: Final = f"(txn = {UNKNOWN} or fate = {Fate.COMMITTED})"
REPLICA: Final = f"if(node = {UNKNOWN}, if(leader_epoch = {UNKNOWN}, null, leader_epoch + (1L << 32)), node)"
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
        select history, value, row, place, offset, status, isolation, txn, invoked, returned, replica,
            coalesce(exact, writer) as writer, status = {OK} and isolation <> {Isolation.READ_UNCOMMITTED} as committed
        from (
            select history, row, status, isolation, txn, invoked, returned, place, {REPLICA} as replica,
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
        select *, if(group = {UNKNOWN}, -2 - process, group) as who,
            case when position <> {UNKNOWN} then position else coalesce(before.last + 1, {UNKNOWN}) end as begins
        from (
            select *, lag(struct(row, first, last, fate, txn)) over (
                partition by history, process, run order by row) as before
            from (
                select *, record_offset[0] as first, element_at(record_offset, -1) as last
                from ops where kind = {Kind.READ} and status = {OK} and record_count > 0))""",
    "covered": f"""
        select history, isolation, start,
            if(quiet = 1 and high_watermark <> {UNKNOWN} and end >= high_watermark, {NEVER}, end) as end
        from (
            select history, isolation, quiet, high_watermark,
                if(begins = {UNKNOWN} or retention, first, begins) as start, last + 1 as end from reading
            union all
            select history, isolation, quiet, high_watermark, position, position from ops
            where kind = {Kind.READ} and status = {OK} and record_count = 0 and position <> {UNKNOWN})""",
    "solid": f"""
        select * from (select *, bool_or(committed) over (partition by history, value) as visible from told)
        where status = {OK} and (writer is null or writer.txn = {UNKNOWN} or writer.fate = {Fate.COMMITTED}
            or isolation = {Isolation.READ_COMMITTED} or visible)""",
    "known": """
        select history, offset, min(returned) as earliest, max(returned) as latest from solid
        group by history, offset""",
    "gaps": f"""
        select history, process, run, row, returned, replica, compaction, offset, offset > first as inside,
            (position <> {UNKNOWN} or quiet = 1) and earliest < invoked and latest <= invoked as gone
        from (
            select r.history, process, run, row, first, position, quiet, invoked, returned, {REPLICA} as replica,
                compaction, k.offset, earliest, latest
            from reading r join starts s on r.history = s.history join known k on r.history = k.history
                and k.offset >= greatest(start, if(begins = {UNKNOWN} or retention, first, begins))
                and k.offset <= last
            where not array_contains(record_offset, k.offset))""",
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
    "stuck": f"""
        select history, last.row as end, row, offset
        from (
            select s.history, row, offset, last, patience_ms,
                greatest(0, max(at_ms) over (partition by s.history)) as at
            from acked s join (
                select history, max_by(struct(row, leader_epoch, high_watermark, calm_ms, at_ms), returned) as last
                from ops
                where kind <> {Kind.DUMP} and status = {OK} and quiet = 1 and high_watermark <> {UNKNOWN}
                    and leader_epoch <> {UNKNOWN}
                group by history having count(distinct leader_epoch) = 1) q on s.history = q.history
                and leader_epoch = last.leader_epoch and quiet = 0)
        where offset >= last.high_watermark and least(last.calm_ms, last.at_ms - at) > patience_ms
            and patience_ms >= 0""",
    "passed": """
        select m.history, m.row, m.offset from missing m left semi join covered c
            on m.history = c.history and start <= m.offset and m.offset < end
            left anti join stuck on m.history = stuck.history and m.row = stuck.row""",
    "begun": f"""
        select history, txn, min_by(struct(row, place), struct(place, row)) as first,
            max(greatest(if(fate = {Fate.COMMITTED}, ended, {UNKNOWN}), if(status = {OK}, after, {UNKNOWN}))) as latest
        from (
            select s.history, s.row, s.place, s.txn, s.fate, s.status, s.ended,
                if(any_value(s.unclean_election) or not any_value(s.acks_all), s.invoked,
                    greatest(s.invoked, max(t.invoked))) as after
            from sends s left join sends t on s.history = t.history and t.place <= s.place
                and t.status <> {FAIL} and t.place <> {UNKNOWN}
            where s.txn <> {UNKNOWN} and s.place <> {UNKNOWN}
            group by s.history, s.row, s.place, s.txn, s.fate, s.status, s.ended, s.invoked)
        group by history, txn""",
    "released": f"""
        select history, row, txn, returned, last + 1 as z from reading where isolation = {Isolation.READ_COMMITTED}
        union all
        select history, row, txn, returned, last_stable_offset from ops
        where kind <> {Kind.SEND} and status = {OK} and last_stable_offset <> {UNKNOWN}""",
    "dead": f"select * from acked where value = {TOMBSTONE} and key <> {UNKNOWN} and {CERTAIN}",
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

KEPT: Final = ("told", "sends", "reading", "gaps")
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
    "4": "select history, 4, row, offset, false from passed",
    "5": "select history, 5, row, offset, true from missing left anti join passed using (history, row)",
    "6": """
        select history, 6, min_by(row, struct(process, run, row)), offset, false from gaps where gone and not compaction
        group by history, offset""",
    "7": f"""
        select history, 7, row, first, false from reading
        where first <= before.last and position = {UNKNOWN}
            and not (before.fate = {Fate.ABORTED} and before.txn <> txn)""",
    "8, 9": """
        select history, if(inside, 9, 8), row, min(offset), false from gaps where not gone and not compaction
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
    "11": f"""
        select b.history, 11, b.row, b.offset, true
        from (
            select *, lag(offset) over (partition by history, txn order by offset, row) as previous
            from acked where txn <> {UNKNOWN}) b
        left semi join acked s on s.history = b.history and s.offset > previous and s.offset < b.offset""",
    "12": f"""
        select history, 12, row, offset, false
        from (
            select *, lag(struct(offset, sequence)) over (
                partition by history, producer order by sequence, row) as before
            from acked where producer <> {UNKNOWN} and sequence <> {UNKNOWN})
        where before.sequence < sequence and offset < before.offset""",
    "18": f"""
        select history, 18, first.row, first.offset, false
        from (
            select history, min_by(struct(row, offset), struct(row, place)) as first
            from told where committed and txn <> {UNKNOWN} and txn = writer.txn group by history, writer.row)""",
    "19": f"""
        with early as (
            select t.history, writer.txn, min_by(struct(t.row, s.place), struct(t.row, t.place)) as first
            from told t join sends s on t.history = s.history and writer.row = s.row
            where committed and writer.txn <> {UNKNOWN} and writer.fate <> {Fate.ABORTED} and t.txn <> writer.txn
                and t.returned < s.ended
            group by t.history, writer.txn)
        select history, 19, first.row, first.place, false from early
        union all
        select b.history, 19, max_by(r.row, struct(z, -returned, -r.row)), any_value(first.place), false
        from (select * from begun left anti join early using (history, txn)) b join released r
            on b.history = r.history and returned < latest and z > first.place and r.txn <> b.txn
        group by b.history, b.txn""",
    "20": f"""
        select s.history, 20, s.row, s.place, false
        from sends s join starts b on s.history = b.history
            left semi join covered c on s.history = c.history and c.start <= place and place < end
                and c.isolation = {Isolation.READ_COMMITTED}
            left anti join told t on s.history = t.history and committed and s.value = t.value
                and (s.value <> {TOMBSTONE} or s.status = {OK} and s.offset = t.offset)
        where s.txn <> {UNKNOWN} and s.fate <> {Fate.ABORTED} and place >= b.start""",
    "22": f"""
        select history, 22, row, min(offset), false
        from (
            select t.history, t.row, t.offset, r.txn,
                lag(r.txn) over (partition by t.history, group, t.offset order by r.txn, t.row, t.place) as before
            from told t join reading r on t.history = r.history and t.row = r.row
            where fate = {Fate.COMMITTED} and group <> {UNKNOWN})
        where txn <> before group by history, row""",
    "23": f"""
        select history, 23, row, first, true from reading
        where before.fate = {Fate.ABORTED} and before.txn <> txn and first <> before.first""",
    "29": f"""
        select history, 29, max_by(row, struct(returned, row)), last_stable_offset, false
        from (
            select *, first_value(struct(at_ms, high_watermark)) over (
                partition by history, last_stable_offset order by returned, row) as first
            from ops
            where status = {OK} and last_stable_offset <> {UNKNOWN} and high_watermark <> {UNKNOWN}
                and last_stable_offset < high_watermark)
        where least(at_ms - first.at_ms, calm_ms) > transaction_timeout_ms and transaction_timeout_ms >= 0
            and high_watermark > first.high_watermark
        group by history, last_stable_offset""",
    "30": "select history, 30, any_value(end), min_by(offset, row), false from stuck group by history",
    "33": f"""
        select history, 33, row, min(offset), false
        from (
            select r.history, r.who, r.row, any_value(r.first) as first,
                greatest(max(m.last) + 1, any_value(start)) as due
            from reading r join starts s on r.history = s.history join reading m on r.history = m.history
                and r.who = m.who and m.returned < r.invoked
            where r.began = {Began.RESUMED} and r.before is null
            group by r.history, r.who, r.row having max(m.last) + 1 < any_value(r.first)) jump
        join known using (history)
        left anti join (select history, who, explode(record_offset) as offset from reading) given
            using (history, who, offset)
        where due <= offset and offset < first
        group by history, row""",
    "34": f"""
        select history, 34, min(row), min_by(youngest.offset, row), false
        from (
            select t.history, t.row, t.log_start_offset, any_value(t.retention) as retention,
                max_by(struct(w.timestamp_ms, w.offset), struct(w.timestamp_ms, -w.offset, -w.row)) as youngest,
                any_value(t.started_ms + t.at_ms) as now, any_value(t.retention_ms) as limit
            from ops t join acked w on t.history = w.history and w.offset < t.log_start_offset
                and (not t.retention or w.timestamp_ms <> {UNKNOWN})
            left anti join ops d on t.history = d.history and d.kind = {Kind.DELETE} and d.status <> {FAIL}
                and d.invoked < t.returned and d.offset >= t.log_start_offset
            where t.status = {OK} and t.log_start_offset > 0 and not (t.retention and t.retention_ms < 0)
            group by t.history, t.row, t.log_start_offset)
        where not retention or now - youngest.timestamp_ms < limit
        group by history, log_start_offset""",
    "35, again": """
        with back as (
            select g.history, g.process, g.run, g.row, g.offset, max(if(g.replica = s.replica, s.row, null)) as same,
                max_by(s.invoked, if(g.replica = s.replica, s.row, null)) > any_value(g.returned) as is_same,
                max(s.row) as other, max_by(s.invoked, s.row) > any_value(g.returned) as is_other
            from gaps g join solid s on g.history = s.history and g.offset = s.offset
            where g.compaction
            group by g.history, g.process, g.run, g.row, g.offset),
        violations as (
            select history, offset, min_by(same, struct(process, run, row)) as row from back where is_same
            group by history, offset)
        select history, 35, row, offset, false from violations
        union all
        select history, 35, min_by(other, struct(process, run, row)), offset, true
        from back left anti join violations using (history, offset) where is_other
        group by history, offset""",
    "35, outlived": f"""
        select r.history, 35, r.row, newest.offset, false
        from (
            select t.history, t.row, t.key, max_by(struct(t.offset, t.value), t.place) as newest
            from (
                select told.history, row, place, told.offset, value,
                    if(value = {TOMBSTONE}, of_dead, writer.key) as key
                from told left join (
                    select history, offset, min(key) as of_dead from dead group by history, offset) d
                    on told.history = d.history and told.offset = d.offset
                where status = {OK}) t
            group by t.history, t.row, t.key) n
        join reading r on n.history = r.history and n.row = r.row
        left semi join dead on n.history = dead.history and n.key = dead.key
            and dead.offset > newest.offset and dead.offset <= r.last
        where compaction and newest.value <> {TOMBSTONE}""",
    "36": f"""
        with dumps as (
            select history, row, high_watermark as high, compaction,
                greatest(position, if(retention, start, 0)) as begin
            from ops join starts using (history)
            where kind = {Kind.DUMP} and status = {OK} and high_watermark <> {UNKNOWN}),
        held as (
            select * from (
                select history, row, place, record.record_offset as offset, record.record_value as value
                from ops lateral view posexplode(arrays_zip(record_offset, record_value)) as place, record
                where kind = {Kind.DUMP})
            join dumps using (history, row) where offset < high),
        differing as (
            select history, offset, min(if(row <> first.row, row, null)) as row
            from (
                select *, first_value(struct(row, value)) over (
                    partition by history, offset order by row, place) as first from held)
            group by history, offset having bool_or(value <> first.value) and bool_or(row <> first.row)),
        lacking as (
            select h.history, h.offset, min(d.row) as row
            from held h join dumps d on h.history = d.history and d.begin <= h.offset and h.offset < d.high
                left anti join held mine on mine.history = d.history and mine.row = d.row and mine.offset = h.offset
            where not d.compaction
            group by h.history, h.offset)
        select history, 36, row, offset, false from differing
        union all
        select history, 36, row, offset, false from lacking left anti join differing using (history, offset)""",
}
"""By rule, and what of it: (history, rule, culprit's row, offset, information)."""
RULES: Final = frozenset({*range(1, 21), 22, 23, 29, 30, 33, 34, 35, 36, 38})


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
    columns |= {name: np.repeat([getattr(view.promise, name) for view in views], sizes) for name in PROMISED + LIMITS}
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
