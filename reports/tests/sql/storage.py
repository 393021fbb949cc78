"""Rules about storage: 30 (for an end offset), 34, 35 within one read, and 36."""

from typing import Final

from highwater.reports.columns import UNKNOWN, Kind
from highwater.reports.tests.sql.words import DEAD, FAIL, LIVE, OK, records_of

FINDINGS: Final = {
    "30": "select history, 30, any_value(end), min_by(offset, row), false from stuck group by history",
    # The log start passed a record that is too young for retention, or retention is off.
    "34": f"""
        with passed as (
            select t.history, t.row, t.log_start_offset, any_value(t.retention) as retention,
                max_by(struct(w.timestamp_ms, w.offset), struct(w.timestamp_ms, -w.offset, -w.row)) as youngest,
                any_value(t.started_ms + t.at_ms) as now, any_value(t.retention_ms) as allowed
            from ops t join acked w on t.history = w.history and w.offset < t.log_start_offset
                and (not t.retention or w.timestamp_ms <> {UNKNOWN})
            left anti join ops d on t.history = d.history and d.kind = {Kind.DELETE} and d.status <> {FAIL}
                and d.invoked < t.returned and d.offset >= t.log_start_offset
            where t.status = {OK} and t.log_start_offset > 0 and not (t.retention and t.retention_ms < 0)
            group by t.history, t.row, t.log_start_offset)
        select history, 34, min(row), min_by(youngest.offset, row), false
        from passed where not retention or now - youngest.timestamp_ms < allowed
        group by history, log_start_offset""",
    # A record without its later tombstone: the cleaner removes a tombstone only after the records that it deletes.
    "35, outlived": f"""
        with keyed as (
            select t.history, t.row, t.place, t.offset, t.value, if(t.{DEAD}, d.key, writer.key) as key
            from read_records t
                left join (select history, offset, min(key) as key from tombstones group by history, offset) d
                    on t.history = d.history and t.offset = d.offset
            where status = {OK})
        select r.history, 35, r.row, newest.offset, false
        from (
            select history, row, key, max_by(struct(offset, value), place) as newest
            from keyed group by history, row, key) n
        join reading r on n.history = r.history and n.row = r.row
        left semi join tombstones d
            on n.history = d.history and n.key = d.key and newest.offset < d.offset and d.offset <= r.last
        where compaction and newest.{LIVE}""",
    # Two dumps differ at an offset below both high watermarks, or one of them lacks a record.
    "36": f"""
        with dumps as (
            select history, row, high_watermark as high, compaction,
                greatest(position, if(retention, start, 0)) as begin
            from ops join starts using (history)
            where kind = {Kind.DUMP} and status = {OK} and high_watermark <> {UNKNOWN}),
        held as (select * from ({records_of(Kind.DUMP, "row")}) join dumps using (history, row) where offset < high),
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
