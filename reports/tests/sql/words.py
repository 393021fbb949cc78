"""What the SQL of several rules says again and again."""

from typing import Final

from highwater.reports.columns import TOMBSTONE, UNKNOWN, Fate, Isolation, Kind, Status

OK, FAIL, INFO = Status.OK, Status.FAIL, Status.INFO
COMMITTED, ABORTED = Fate.COMMITTED, Fate.ABORTED
READ_UNCOMMITTED, READ_COMMITTED = Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED

LIVE, DEAD = f"value <> {TOMBSTONE}", f"value = {TOMBSTONE}"
IN_VAIN: Final = f"(status = {FAIL} or fate = {ABORTED})"
CERTAIN: Final = f"(txn = {UNKNOWN} or fate = {COMMITTED})"
"""It is no part of a transaction, or of one that was committed."""
REPLICA: Final = f"if(node = {UNKNOWN}, if(leader_epoch = {UNKNOWN}, null, leader_epoch + (1L << 32)), node)"
"""Who answered: a node, or the leader of an epoch; null where neither was told."""


def records_of(kind: Kind, *columns: str) -> str:
    """Each record that an operation of this kind told, with its place in the answer."""
    return f"""
        select history, {", ".join(columns)}, place, record.record_offset as offset, record.record_value as value
        from ops lateral view posexplode(arrays_zip(record_offset, record_value)) as place, record
        where kind = {kind}"""
