"""Real-time rules 14 to 16, and the sweep that finds a larger lower bound before a smaller upper bound."""

from typing import Final

from highwater.reports.columns import UNKNOWN, Kind
from highwater.reports.tests.sql.words import FAIL, OK, READ_COMMITTED

BOUNDS: Final = "history, row, leader_epoch, time, z"


def _bounds(source: str, time: str, z: str, where: str = "true") -> str:
    return f"select history, row, leader_epoch, {time} as time, {z} as z from {source} where {where}"


def _ends(end: str, time: str) -> str:
    """Return the bounds from the end offsets that readers recorded."""
    condition = f"kind in ({Kind.READ}, {Kind.LIST_OFFSETS}) and status = {OK} and {end} <> {UNKNOWN}"
    return _bounds("ops", time, end, condition)


def sweep(lower: str, upper: str, by: str = "history") -> str:
    """Return upper rows with a larger lower row strictly before them; the witness is the first of the largest."""
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
    """Return the findings of a sweep: violations within a leader epoch, information across epochs."""
    known = f"leader_epoch <> {UNKNOWN}"
    within = sweep(lower, f"select * from ({upper}) where {known}", "history, leader_epoch")
    return f"""
        select history, {rule}, row, z, false from ({within})
        union all
        select history, {rule}, row, z, true
        from ({sweep(lower, upper)}) left anti join ({within}) using (history, row)"""


APPENDED: Final = _bounds("acked", "returned", "offset + 1")
SENT: Final = _bounds("sends", "invoked", "place", f"status <> {FAIL} and place <> {UNKNOWN}")
READ_TO: Final = _bounds("reading", "returned", "last + 1")
READ_COMMITTED_TO: Final = _bounds("reading", "returned", "last + 1", f"isolation = {READ_COMMITTED}")
HIGH: Final = f"{_bounds('acked', 'returned', 'offset + 1', 'acks_all')} union all {READ_TO}"
"""Records that were read, and with acks=all those acknowledged, are below the high watermark."""
HIGH_ENDS, STABLE_ENDS = _ends("high_watermark", "returned"), _ends("last_stable_offset", "returned")
HIGH_AGAIN, STABLE_AGAIN = _ends("high_watermark", "invoked"), _ends("last_stable_offset", "invoked")

FINDINGS: Final = {
    "14": _split(14, HIGH, HIGH_AGAIN),
    "14, read_committed": _split(14, READ_COMMITTED_TO, STABLE_AGAIN),
    "14, not held": _split(14, HIGH, f"select * from ({STABLE_AGAIN}) left semi join free using (history, z)"),
    "15": f"""
        select history, 15, row, place, false
        from sends left semi join (
            select history, writer.row from read_records where returned < writer.invoked
            union
            select history, row
            from ({sweep(f"{HIGH_ENDS} union all {STABLE_ENDS} union all {READ_TO}", SENT)})
            left semi join (select history from ops where not unclean_election) using (history)
        ) using (history, row)""",
    "16": _split(16, HIGH_ENDS, HIGH_AGAIN),
    # A new leader's answers wait for the start of its epoch (KIP-207).
    "16, listed": f"""
        select late.history, 16, late.row, late.high_watermark, false
        from ops late left semi join ops early on late.history = early.history
            and early.kind = late.kind and early.status = {OK} and early.leader_epoch <> {UNKNOWN}
            and early.returned < late.invoked and early.high_watermark > late.high_watermark
            and early.leader_epoch < late.leader_epoch
        where late.kind = {Kind.LIST_OFFSETS} and late.status = {OK} and late.high_watermark <> {UNKNOWN}""",
    "16, stable": _split(16, STABLE_ENDS, STABLE_AGAIN),
}
