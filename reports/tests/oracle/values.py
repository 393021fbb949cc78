"""Rules about the value of a record and the send that wrote it: 1, 2, 3, 15, 17, 18, 38 and 41."""

from highwater.reports.columns import TOMBSTONE
from highwater.reports.rules.findings import Weight
from highwater.reports.rules.rule import Rule
from highwater.reports.tests.oracle.findings import Findings
from highwater.reports.tests.oracle.history import History, Row


def known_records(history: History) -> set[tuple[int, int]]:
    """Return (offset, value) of everything that was acknowledged or read."""
    acknowledged = {
        (send.offset, send.value) for send in history.acknowledged if send.offset is not None and send.value is not None
    }
    return acknowledged | {record for row in history.reads for record in row.records}


def inconsistent_offsets(history: History, found: Findings) -> None:
    records = known_records(history)
    for offset, value in records:
        sends = [send for send in history.acknowledged if send.offset == offset]
        if len(sends) > 1 or any(other == offset and other_value != value for other, other_value in records):
            found.add(Rule.INCONSISTENT_OFFSETS, Weight.VIOLATION, offset)


def duplicates(history: History, found: Findings) -> None:
    records = known_records(history)
    for value in {value for _, value in records} - {TOMBSTONE}:
        sends = history.sends_of(value)
        named = {send.offset for send in sends if send.acknowledged and send.offset is not None}
        offsets = {offset for offset, other in records if other == value}
        anywhere = [send for send in sends if not send.rejected and send.offset is None]
        if len(offsets) > 1 and len(offsets - named) > len(anywhere):
            unsure = any(send.gave_up and not history.kept_its_epoch(send) for send in sends)
            certain = Weight.CERTAIN if is_of_transactions(history, sends) else Weight.VIOLATION
            found.add(Rule.DUPLICATE, Weight.UNDECIDED if unsure else certain, value)


def is_of_transactions(history: History, sends: list[Row]) -> bool:
    """Return whether the only idempotent producers of a history, those with transactions, sent a value."""
    promise = history.promise
    keeps_records = promise.acks_all and not promise.unclean_election
    return keeps_records and not promise.idempotence and bool(sends) and all(send.txn is not None for send in sends)


def phantoms(history: History, found: Findings) -> None:
    values = {value for row in history.reads for _, value in row.records if value != TOMBSTONE}
    for value in values:
        if history.sends_of(value):
            continue
        if any(send.value == value for send in history.former):
            found.add(Rule.TOPIC_REBORN, Weight.VIOLATION, value)
        else:
            first = next(row for row in history.reads if _has(row, value))
            found.add(Rule.PHANTOM_READ, Weight.VIOLATION, first.row)


def _has(row: Row, value: int) -> bool:
    return any(other == value for _, other in row.records)


def phantom_tombstones(history: History, found: Findings) -> None:
    sent = [send for send in history.sends_of(TOMBSTONE) if not send.rejected]
    unexplained = [send for send in sent if send.offset is None or send.gave_up]
    acknowledged = {send.offset for send in sent if send.acknowledged}
    read = {offset for row in history.reads for offset, value in row.records if value == TOMBSTONE}
    phantom = read - acknowledged
    may_be_retries = bool(sent) and not history.promise.idempotence
    if len(phantom) > len(unexplained) and not may_be_retries:
        for offset in phantom:
            found.add(Rule.PHANTOM_READ, Weight.UNDECIDED if unexplained else Weight.VIOLATION, (offset,))


def future_reads(history: History, found: Findings) -> None:
    """A value was read before its write began."""
    for read in history.reads:
        for offset, value in read.records:
            writers = history.writers(offset, value)
            if writers and all(read.precedes(send) for send in writers):
                first = min(writers, key=lambda send: send.invoked)
                found.add(Rule.FUTURE_READ, Weight.VIOLATION, first.row)


def future_ends(history: History, found: Findings) -> None:
    """The log extended beyond the offset of a record before its write began."""
    promise = history.promise
    if promise.unclean_election and promise.unclean_known:
        return
    weight = Weight.VIOLATION if promise.unclean_known else Weight.UNDECIDED
    stable = [(row.last_stable_offset, row) for row in history.rows if row.replies_as_leader and row.last_stable_offset]
    for send in history.sends:
        for end, proof in [*history.end_proofs, *stable]:
            if proof.acknowledged or send.rejected:  # of two acknowledgements: rules 10 and 13
                continue
            place = history.place(send)
            if place is not None and end > place and proof.precedes(send):
                found.add(Rule.FUTURE_READ, weight, send.row)


def weight_of_receipt(history: History, read: Row) -> Weight:
    """Return UNDECIDED if neither the read nor the history states the isolation level."""
    return Weight.VIOLATION if history.is_read_committed(read) else Weight.UNDECIDED


def aborted_reads(history: History, found: Findings) -> None:
    for read in history.reads:
        if not history.may_be_read_committed(read):
            continue
        for offset, value in read.records:
            writers = history.writers(offset, value)
            if writers and all(send.aborted for send in writers):
                first = min(writers, key=lambda send: send.invoked)
                found.add(Rule.ABORTED_READ, weight_of_receipt(history, read), first.row)


def precommitted_reads(history: History, found: Findings) -> None:
    for read in history.reads:
        if read.txn is None or not history.may_be_read_committed(read):
            continue
        for offset, value in read.records:
            writers = history.writers(offset, value)
            if writers and all(send.txn == read.txn for send in writers):
                first = min(writers, key=lambda send: send.invoked)
                found.add(Rule.PRECOMMITTED_READ, weight_of_receipt(history, read), first.row)


def rejected_records(history: History, found: Findings) -> None:
    """A value was read of which all sends were rejected; the first read of it counts."""
    for value in {value for read in history.reads for _, value in read.records if value != TOMBSTONE}:
        sends = history.sends_of(value)
        if sends and all(send.rejected for send in sends):
            first = next(row for row in history.reads if _has(row, value))
            found.add(Rule.REJECTED_RECORD_READ, Weight.VIOLATION, first.row)


RULES = (
    inconsistent_offsets, duplicates, phantoms, phantom_tombstones, future_reads, future_ends, aborted_reads,
    precommitted_reads, rejected_records,
)  # fmt: skip
