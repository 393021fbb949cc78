"""SQL expressions that several rules share."""

from typing import Final

from highwater.reports.columns import TOMBSTONE, UNKNOWN, Fate, Isolation, Kind, Status

OK, FAIL, INFO = Status.OK, Status.FAIL, Status.INFO
COMMITTED, ABORTED = Fate.COMMITTED, Fate.ABORTED
READ_UNCOMMITTED, READ_COMMITTED = Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED

LIVE, DEAD = f"value <> {TOMBSTONE}", f"value = {TOMBSTONE}"
NO_EFFECT: Final = f"(status = {FAIL} or fate = {ABORTED})"
CERTAIN: Final = f"(txn = {UNKNOWN} or fate = {COMMITTED})"
"""The record is in no transaction, or in a committed one."""
REPLICA: Final = f"if(node = {UNKNOWN}, if(leader_epoch = {UNKNOWN}, null, leader_epoch + (1L << 32)), node)"
"""The replica that responded: a node, or the leader of an epoch; null if neither is recorded."""


def records_of(kind: Kind, *columns: str) -> str:
    """Return a query for each record of the operations of a kind, with its position in the response."""
    return f"""
        select history, {", ".join(columns)}, place, record.record_offset as offset, record.record_value as value
        from ops lateral view posexplode(arrays_zip(record_offset, record_value)) as place, record
        where kind = {kind}"""
