"""Rules about one reader: 6 to 9, 11, 23, 33, and 35 for a record that reappears on the same replica."""

from typing import Final

from highwater.reports.columns import UNKNOWN, Began
from highwater.reports.tests.sql.words import ABORTED

FINDINGS: Final = {
    "6": """
        select history, 6, min_by(row, struct(process, run, row)), offset, false
        from gaps where gone and not compaction group by history, offset""",
    "7": f"""
        select history, 7, row, first, false from reading
        where first <= before.last and position = {UNKNOWN}
            and not (before.fate = {ABORTED} and before.txn <> txn)""",
    "8, 9": """
        select history, if(inside, 9, 8), row, min(offset), false
        from gaps where not gone and not compaction group by history, row, inside""",
    "9": """
        select history, 9, row, min_by(offset, place), false
        from (select *, lag(offset) over (partition by history, row order by place) as previous from read_records)
        where offset <= previous group by history, row""",
    "11": f"""
        select later.history, 11, later.row, later.offset, true
        from (
            select *, lag(offset) over (partition by history, txn order by offset, row) as previous
            from acked where txn <> {UNKNOWN}) later
        left semi join acked other
            on other.history = later.history and previous < other.offset and other.offset < later.offset""",
    "23": f"""
        select history, 23, row, first, true from reading
        where before.fate = {ABORTED} and before.txn <> txn and first <> before.first""",
    # A group resumes beyond its position and skips records that no member received.
    "33": f"""
        with reads as (select *, if(group = {UNKNOWN}, -2 - process, group) as reader from reading),
        jumps as (
            select r.history, r.reader, r.row, any_value(r.first) as first,
                greatest(max(m.last) + 1, any_value(start)) as due
            from reads r join starts s on r.history = s.history
                join reads m on r.history = m.history and r.reader = m.reader and m.returned < r.invoked
            where r.began = {Began.RESUMED} and r.before is null
            group by r.history, r.reader, r.row having max(m.last) + 1 < any_value(r.first))
        select history, 33, row, min(offset), false
        from jumps join known using (history)
            left anti join (select history, reader, explode(record_offset) as offset from reads) received
                using (history, reader, offset)
        where due <= offset and offset < first
        group by history, row""",
    # A record disappears and reappears: on the same replica a violation, on another one information.
    "35, again": """
        with back as (
            select g.history, g.process, g.run, g.row, g.offset,
                max_by(struct(s.row, s.invoked), if(g.replica = s.replica, s.row, null)) as same,
                max_by(struct(s.row, s.invoked), s.row) as other, any_value(g.returned) as returned
            from gaps g join solid s on g.history = s.history and g.offset = s.offset
            where g.compaction
            group by g.history, g.process, g.run, g.row, g.offset),
        violations as (
            select history, offset, min_by(same.row, struct(process, run, row)) as row
            from back where same.invoked > returned group by history, offset)
        select history, 35, row, offset, false from violations
        union all
        select history, 35, min_by(other.row, struct(process, run, row)), offset, true
        from back left anti join violations using (history, offset)
        where other.invoked > returned group by history, offset""",
}
