"""Rules about the records of the log: 1 to 5, 10, 12, 13 and 38."""

from typing import Final

from highwater.reports.columns import UNKNOWN, Kind
from highwater.reports.tests.sql.register import APPENDED, SENT, sweep
from highwater.reports.tests.sql.words import LIVE


def _first_pairs(major: str, minor: str) -> str:
    """Return, for each `major` with two different `minor`, the first two adjacent rows that differ."""
    following = f"lead({minor}) over (partition by history, {major} order by at)"
    return f"""
        select history, subject, pair.row, pair.next
        from (
            select history, {major} as subject, min_by(struct(row, next), at) as pair
            from (select *, {following} as next from all_records) where next <> {minor} group by history, {major})"""


FINDINGS: Final = {
    "1": f"select history, 1, row, subject, false from ({_first_pairs('offset', 'value')})",
    "2": f"""
        select p.history, 2, row, next, d.value is not null
        from (select *, subject as value from ({_first_pairs("value", "offset")})) p
            left join doubtful d on p.history = d.history and p.value = d.value
        where p.{LIVE}""",
    "3, 38": f"""
        select history, if(former.value is null, 3, 38), first.row, first.offset, false
        from (
            select history, value, min_by(struct(row, offset), struct(row, place)) as first
            from read_records where writer is null and {LIVE} group by history, value)
        left join (select distinct history, value from ops where kind = {Kind.FORMER}) former using (history, value)""",
    # Reads passed the offset: lost. No read passed it: unread. The high watermark is stuck below it: rule 30.
    "4, 5": """
        select m.history, if(count(c.start) > 0 and count(stuck.row) = 0, 4, 5) as rule, m.row, m.offset,
            false
        from missing m
            left join covered c on m.history = c.history and c.start <= m.offset and m.offset < c.end
            left join stuck on m.history = stuck.history and m.row = stuck.row
        group by m.history, m.row, m.offset""",
    "10": "select history, 10, row, offset, false from own_disorder",
    "12": f"""
        select history, 12, row, offset, false
        from (
            select *, lag(struct(offset, sequence)) over (
                partition by history, producer order by sequence, row) as before
            from acked where producer <> {UNKNOWN} and sequence <> {UNKNOWN})
        where before.sequence < sequence and offset < before.offset""",
    # Sends that rule 10 reports are not reported again.
    "13": f"""
        with reported as (select history, row from own_disorder union select history, other from own_disorder)
        select history, 13, row, z, false
        from ({sweep(APPENDED, SENT)}) left anti join reported using (history, row)
            left anti join (select history, row as witness from reported) using (history, witness)""",
}
