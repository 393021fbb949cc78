"""Rules about transactions: 19, 22, 23 and 29."""

from highwater.reports.columns import Kind
from highwater.reports.rules.findings import Weight
from highwater.reports.rules.rule import Rule
from highwater.reports.tests.oracle.findings import Findings
from highwater.reports.tests.oracle.history import History, Row


def early_reads(history: History, found: Findings) -> None:
    """A reader was beyond a record of a transaction, or returned one, before its commit can have been requested."""
    for send in history.sends:
        if send.txn is None or send.ended is None:
            continue
        last_sent = begin_of_commit(history, send)
        for row in history.rows:
            if row.txn == send.txn:  # of its own records: rule 18
                continue
            beyond, returned = is_beyond(history, row, send), returned_as_committed(history, row, send)
            # The coordinator may have aborted a transaction that was not committed, so that readers may pass it.
            early = row.returned < send.ended and ((beyond and send.committed) or (returned and not send.aborted))
            if early or (row.returned < last_sent and beyond):
                found.add(Rule.EARLY_READ, Weight.VIOLATION, send.txn)


def begin_of_commit(history: History, send: Row) -> int:
    """Return when the commit of a transaction can have been requested at the earliest, if it is not stated.

    All its sends have begun then, and so have those whose records are before one of its records in the log.
    """
    siblings = [other for other in history.sends if other.txn == send.txn and not other.rejected]
    place = max((at for at in map(history.place, siblings) if at is not None), default=None)
    sent = [0]
    keeps_records = history.promise.acks_all and not history.promise.unclean_election
    for other in history.sends:
        offset = history.place(other)
        if offset is None or other.rejected or (not other.acknowledged and send.ended == 0):
            continue
        is_before = other.acknowledged and not send.rejected and place is not None and offset <= place
        if other.txn == send.txn or (is_before and keeps_records):
            sent.append(other.invoked)
    return max(sent)


def is_beyond(history: History, row: Row, send: Row) -> bool:
    """Return whether a reply proves that the last stable offset was above the place of a send."""
    place = history.place(send)
    if place is None or not row.replies_as_leader:
        return False
    if row.records and history.is_read_committed(row) and row.last >= place:
        return True
    return row.last_stable_offset is not None and row.last_stable_offset > place


def returned_as_committed(history: History, row: Row, send: Row) -> bool:
    if row.kind is not Kind.READ or not row.succeeded or not history.may_be_read_committed(row):
        return False
    writers = [history.writers(offset, value) for offset, value in row.records]
    return any(send in sends and all(other.txn == send.txn for other in sends) for sends in writers)


def double_processing(history: History, found: Findings) -> None:
    for again in history.reads:
        for before in history.reads:
            if not (again.committed and before.committed) or again.txn == before.txn or before.row > again.row:
                continue
            shared = set(again.offsets) & set(before.offsets)
            if again.group is None or again.group != before.group:
                continue
            if any(_first_to_process(history, again, offset) != again.txn for offset in shared):
                assert again.txn is not None
                found.add(Rule.DOUBLE_PROCESSING, Weight.VIOLATION, again.txn)


def _first_to_process(history: History, read: Row, offset: int) -> int | None:
    return next(row.txn for row in history.reads if row.committed and row.group == read.group and offset in row.offsets)


def continued_after_abort(history: History, found: Findings) -> None:
    for read in history.reads:
        previous = history.previous_read(read)
        if previous is None or not previous.aborted or previous.txn == read.txn or not read.succeeded:
            continue
        if read.first != previous.first:
            found.add(Rule.ABORT_REWIND, Weight.INFORMATION, read.row)


def hanging_transactions(history: History, found: Findings) -> None:
    timeout = history.promise.transaction_timeout_ms
    for number, again in enumerate(history.replies):
        for before in history.replies[:number]:
            if timeout >= 0 and _hangs(history.replies[:number], before, again, timeout):
                assert again.last_stable_offset is not None
                found.add(Rule.HANGING_TRANSACTION, Weight.VIOLATION, again.last_stable_offset)


def _hangs(earlier: list[Row], before: Row, again: Row, timeout: int) -> bool:
    """Return whether a transaction was open at both replies, longer than it may be without faults, and the log grew."""
    if before.at_ms is None or again.at_ms is None or before.high_watermark is None or again.high_watermark is None:
        return False
    stable = before.last_stable_offset
    if stable is None or stable != again.last_stable_offset or again.calm_ms is None or again.calm_ms <= timeout:
        return False
    ends = [row.high_watermark for row in earlier if row.last_stable_offset == stable and row.at_ms is not None]
    grew = all(end is None or end < again.high_watermark for end in ends)
    return stable < before.high_watermark and grew and again.at_ms - before.at_ms > timeout


RULES = (early_reads, double_processing, continued_after_abort, hanging_transactions)
