"""Views that rules share, over the table `ops` with one row for each operation of each history. The order matters."""

from typing import Final

from highwater.reports.columns import NEVER, UNKNOWN, Kind
from highwater.reports.tests.sql.words import (
    ABORTED,
    CERTAIN,
    COMMITTED,
    DEAD,
    FAIL,
    INFO,
    LIVE,
    NO_EFFECT,
    OK,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    REPLICA,
    records_of,
)

WRITER: Final = "struct(row, status, fate, txn, invoked, key)"
ANSWER: Final = ("row", "status", "isolation", "txn", "invoked", "returned", f"{REPLICA} as replica")

VIEWS: Final = {
    # Sends that were acknowledged with an offset.
    "acked": f"select * from ops where kind = {Kind.SEND} and status = {OK} and offset <> {UNKNOWN}",
    # The send that may have written a value, and the send acknowledged for a value at an offset.
    "writers": f"""
        select history, value, min_by({WRITER}, struct({NO_EFFECT}, row)) as possible
        from ops where kind = {Kind.SEND} and {LIVE} group by history, value""",
    "exact_writers": f"""
        select history, value, offset, min_by({WRITER}, row) as exact
        from acked where {LIVE} group by history, value, offset""",
    # Every record of every read of any outcome.
    "read_records": f"""
        select *, coalesce(exact, possible) as writer, status = {OK} and isolation <> {READ_UNCOMMITTED} as committed
        from ({records_of(Kind.READ, *ANSWER)})
        left join writers using (history, value) left join exact_writers using (history, value, offset)""",
    # Every offset and value of acknowledged sends and reads.
    "all_records": """
        select history, row, offset, value, struct(0 as read, row, 0 as place) as at from acked
        union all
        select history, row, offset, value, struct(1 as read, row, place) as at from read_records""",
    # Sends with their offset, which may be known only from a read.
    "value_offsets": f"""
        select history, value, max(offset) as last_offset from all_records where {LIVE} group by history, value""",
    "sends": f"""
        select *, max(place) over (partition by history, key) as furthest_of_key
        from (
            select ops.*, last_offset, if(offset = {UNKNOWN}, coalesce(last_offset, {UNKNOWN}), offset) as place
            from ops left join value_offsets using (history, value) where kind = {Kind.SEND})""",
    # The log start: records below it may be missing.
    "starts": f"""
        select history,
            greatest(0, max(log_start_offset), max(if(kind = {Kind.DELETE} and status <> {FAIL}, offset, 0))) as start
        from ops group by history""",
    # Successful reads with records, with the previous one of the same process and run, and their start offset.
    "reading": f"""
        select *, if(position <> {UNKNOWN}, position, coalesce(before.last + 1, {UNKNOWN})) as begins
        from (
            select *, lag(struct(row, first, last, fate, txn)) over (
                partition by history, process, run order by row) as before
            from (
                select *, record_offset[0] as first, element_at(record_offset, -1) as last
                from ops where kind = {Kind.READ} and status = {OK} and record_count > 0))""",
    # The range of offsets that a read covers; it has no end if the partition is quiet and the read reached its end.
    "covered": f"""
        select history, isolation, start,
            if(quiet = 1 and high_watermark <> {UNKNOWN} and end >= high_watermark, {NEVER}, end) as end
        from (
            select history, isolation, quiet, high_watermark,
                if(begins = {UNKNOWN} or retention, first, begins) as start, last + 1 as end
            from reading
            union all
            select history, isolation, quiet, high_watermark, position, position
            from ops where kind = {Kind.READ} and status = {OK} and record_count = 0 and position <> {UNKNOWN})""",
    # Records that every reader must receive under any isolation level.
    "solid": f"""
        select *
        from (select *, bool_or(committed) over (partition by history, value) as visible from read_records)
        where status = {OK} and (writer is null or writer.txn = {UNKNOWN} or writer.fate = {COMMITTED}
            or isolation = {READ_COMMITTED} or visible)""",
    "known": """
        select history, offset, min(returned) as earliest, max(returned) as latest
        from solid group by history, offset""",
    # Records that a read skipped although it covers them; `gone`: no later read has them.
    "gaps": f"""
        select r.history, process, run, row, invoked, returned, {REPLICA} as replica, compaction, k.offset,
            k.offset > first as inside,
            (position <> {UNKNOWN} or quiet = 1) and earliest < invoked and latest <= invoked as gone
        from reading r join starts s on r.history = s.history join known k on r.history = k.history
            and k.offset >= greatest(start, if(begins = {UNKNOWN} or retention, first, begins)) and k.offset <= last
        where not array_contains(record_offset, k.offset)""",
    # Sends that must be in the log and are in no successful read.
    "values_read": f"""
        select history, value, bool_or(status <> {OK}) as unsure, bool_or(status = {OK}) as certain
        from read_records group by history, value""",
    "missing": f"""
        select s.history, row, last_offset as offset
        from sends s join starts b on s.history = b.history
            left join values_read r on s.history = r.history and s.value = r.value
        where s.{LIVE} and last_offset >= start and {CERTAIN} and not coalesce(certain, false)
            and (status = {OK} or status = {INFO} and coalesce(unsure, false))
            and (not compaction or key <> {UNKNOWN} and furthest_of_key <= last_offset)
        union all
        select s.history, row, offset
        from acked s join starts b on s.history = b.history
            left anti join (select history, offset from read_records where {DEAD} and status = {OK}) t
                on s.history = t.history and s.offset = t.offset
        where {DEAD} and offset >= start and {CERTAIN} and not compaction""",
    # The last high watermark of a quiet partition, and the acknowledged sends beyond it: rule 30.
    "quiet_end": f"""
        select history, max_by(struct(row, leader_epoch, high_watermark, calm_ms, at_ms), returned) as last
        from ops
        where kind <> {Kind.DUMP} and status = {OK} and quiet = 1 and high_watermark <> {UNKNOWN}
            and leader_epoch <> {UNKNOWN}
        group by history having count(distinct leader_epoch) = 1""",
    "stuck": """
        select history, last.row as end, row, offset
        from (
            select *, greatest(0, max(at_ms) over (partition by history)) as last_write
            from acked join quiet_end using (history) where leader_epoch = last.leader_epoch and quiet = 0)
        where offset >= last.high_watermark and least(last.calm_ms, last.at_ms - last_write) > patience_ms
            and patience_ms >= 0""",
    # The last stable offset: until when a transaction was open, and the released offsets.
    "begun": f"""
        select history, txn, min_by(struct(row, place), struct(place, row)) as first,
            max(greatest(if(fate = {COMMITTED}, ended, {UNKNOWN}), if(status = {OK}, after, {UNKNOWN}))) as latest
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
        select history, row, txn, returned, last + 1 as z from reading where isolation = {READ_COMMITTED}
        union all
        select history, row, txn, returned, last_stable_offset
        from ops where kind <> {Kind.SEND} and status = {OK} and last_stable_offset <> {UNKNOWN}""",
    # Offsets at which no transaction can hold the last stable offset back.
    "free": f"""
        select history, offset as z
        from (
            select *, txn = {UNKNOWN} or row_number() over (partition by history, txn order by offset, row) > 1 as later
            from acked where has_txn)
        group by history, offset having bool_and(later)""",
    # Tombstones that are certainly in the log.
    "tombstones": f"select * from acked where {DEAD} and key <> {UNKNOWN} and {CERTAIN}",
    # Rule 10: sequential sends of a process, and sends of a transaction in the order of the calls.
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
    # Values that a client may have written under two producer epochs, or again after an abort.
    "doubtful": f"""
        select history, value from sends group by history, value
        having bool_or(gave_up = 1) or count(distinct if(producer = {UNKNOWN}, null, producer)) > 1
            or count(*) > 1 and bool_or(fate = {ABORTED})""",
}

CACHED: Final = (
    "acked",
    "read_records",
    "all_records",
    "sends",
    "reading",
    "solid",
    "known",
    "gaps",
    "missing",
    "stuck",
)
"""Views that many rules use, and which are cached."""
