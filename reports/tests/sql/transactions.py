"""Rules about read_committed: 17 to 20, 22 and 29; of rule 20 the candidates, which other partitions may confirm."""

from typing import Final

from highwater.reports.columns import UNKNOWN
from highwater.reports.tests.sql.words import ABORTED, COMMITTED, FAIL, LIVE, OK, READ_COMMITTED


def _of_each_send(rule: int, where: str) -> str:
    """Return, for each send whose record was read under `where`, the first read of it."""
    return f"""
        select history, {rule}, first.row, first.offset, false
        from (
            select history, min_by(struct(row, offset), struct(row, place)) as first
            from read_records where committed and {where} group by history, writer.row)"""


FINDINGS: Final = {
    "17": _of_each_send(17, f"(writer.status = {FAIL} or writer.fate = {ABORTED})"),
    "18": _of_each_send(18, f"txn <> {UNKNOWN} and txn = writer.txn"),
    # A record was read, or the last stable offset passed the first record, before the commit was requested.
    "19": f"""
        with early as (
            select t.history, writer.txn, min_by(struct(t.row, s.place), struct(t.row, t.place)) as first
            from read_records t join sends s on t.history = s.history and writer.row = s.row
            where committed and writer.txn <> {UNKNOWN} and writer.fate <> {ABORTED} and t.txn <> writer.txn
                and t.returned < s.ended
            group by t.history, writer.txn)
        select history, 19, first.row, first.place, false from early
        union all
        select b.history, 19, max_by(r.row, struct(z, -returned, -r.row)), any_value(first.place), false
        from (select * from begun left anti join early using (history, txn)) b
            join released r on b.history = r.history and returned < latest and z > first.place and r.txn <> b.txn
        group by b.history, b.txn""",
    "20": f"""
        select s.history, 20, s.row, s.place, false
        from sends s join starts b on s.history = b.history
            left semi join covered c on s.history = c.history and c.start <= place and place < end
                and c.isolation = {READ_COMMITTED}
            left anti join read_records t on s.history = t.history and committed and s.value = t.value
                and (s.{LIVE} or s.status = {OK} and s.offset = t.offset)
        where s.txn <> {UNKNOWN} and s.fate <> {ABORTED} and place >= b.start""",
    # A transaction processes the records that it polls: one finding for each poll.
    "22": f"""
        select history, 22, row, min(offset), false
        from (
            select t.history, t.row, t.offset, r.txn,
                lag(r.txn) over (partition by t.history, group, t.offset order by r.txn, t.row, t.place) as before
            from read_records t join reading r on t.history = r.history and t.row = r.row
            where fate = {COMMITTED} and group <> {UNKNOWN})
        where txn <> before group by history, row""",
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
}
