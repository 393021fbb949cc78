"""Rules about transactions: 19, 22, 23 and 29."""

from highwater.reports.columns import Kind
from highwater.reports.rules.findings import Weight
from highwater.reports.rules.rule import Rule
from highwater.reports.tests.oracle.findings import Findings
from highwater.reports.tests.oracle.history import History, Row
from highwater.reports.tests.oracle.values import weight_of_receipt


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
            if beyond and ((row.returned < send.ended and send.committed) or row.returned < last_sent):
                found.add(Rule.EARLY_READ, Weight.VIOLATION, send.txn)
            if returned and row.returned < send.ended and not send.aborted:
                found.add(Rule.EARLY_READ, weight_of_receipt(history, row), send.txn)


def begin_of_commit(history: History, send: Row) -> int:
    """Return when the commit of a transaction can have been requested at the earliest, if it is not stated.

    All its sends have begun then, and so have those whose records are before its marker in the log.
    """
    sent = [other.invoked for other in history.sends if other.txn == send.txn and is_in_log(history, other)]
    if history.promise.acks_all and not history.promise.unclean_election:
        marker = marker_places(history).get(send.txn, 0)
        sent += [
            other.invoked for other in history.sends if is_in_log(history, other) and place_of(history, other) < marker
        ]
    return max(sent, default=0)


def is_in_log(history: History, send: Row) -> bool:
    return not send.rejected and history.place(send) is not None


def place_of(history: History, send: Row) -> int:
    return history.place(send) or 0


def marker_places(history: History) -> dict[int | None, int]:
    """Return where the marker of each transaction is at the earliest, if those with smaller first records have theirs.

    It is behind its records, and behind the end that was proved before its commit was requested.
    """
    sends = [send for send in history.sends if history.place(send) is not None]
    taken = {place_of(history, send) for send in sends if not send.rejected}
    firsts = {txn: min(place_of(history, s) for s in sends if s.txn == txn) for txn in {s.txn for s in sends} - {None}}
    places: dict[int | None, int] = {}
    for txn in sorted(firsts, key=lambda txn: (firsts[txn], txn)):
        mine = [send for send in sends if send.txn == txn]
        behind = [place_of(history, send) + 1 for send in mine if not send.rejected]
        ended = max((send.ended or 0 for send in mine if send.committed), default=0)
        ends = [*history.end_proofs, *stable_ends(history), *acknowledged_ends(history)]
        place = max([0, *behind, *(end for end, proof in ends if proof.returned < ended)])
        while place in taken:
            place += 1
        places[txn] = place
        taken.add(place)
    return places


def stable_ends(history: History) -> list[tuple[int, Row]]:
    return [(row.last_stable_offset, row) for row in history.replies if row.last_stable_offset is not None]


def acknowledged_ends(history: History) -> list[tuple[int, Row]]:
    """Return the ends behind acknowledged records, whose places are known."""
    known = [send for send in history.acknowledged if send.offset is not None or history.is_written_once(send)]
    return [(place_of(history, send) + 1, send) for send in known if history.place(send) is not None]


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
    return send in [history.writer(offset, value) for offset, value in row.records]


def shown_to_commit(history: History) -> set[int]:
    """Return the transactions of unknown outcome of which a read_committed reader shows that they committed.

    It received a record that only such a transaction wrote, after the commit was requested, and not as part of it.
    """
    found = set()
    for read in history.reads:
        for offset, value in read.records if history.is_read_committed(read) else ():
            writers = history.writers(offset, value)
            txns = {send.txn for send in writers} - {read.txn}
            known = all(send.fate is not None or read.returned <= (send.ended or 0) for send in writers)
            if len({send.txn for send in writers}) == 1 and not known:
                found |= {txn for txn in txns if txn is not None}
    return found


def double_processing(history: History, found: Findings) -> None:
    """A record was processed by a transaction of a group, after another one had processed it."""
    committed = [row for row in history.reads if row.committed and row.group is not None]
    for again in committed:
        for offset in again.offsets:
            before = [row for row in committed if row.row < again.row and row.group == again.group]
            earlier = [row for row in before if offset in row.offsets]
            if earlier and earlier[-1].txn != again.txn:
                assert again.txn is not None
                found.add(Rule.DOUBLE_PROCESSING, Weight.VIOLATION, again.txn)


def continued_after_abort(history: History, found: Findings) -> None:
    for read in history.reads:
        previous = history.previous_read(read)
        if previous is None or not previous.aborted or previous.txn == read.txn or not read.succeeded:
            continue
        if read.first != first_of_series(history, previous).first:
            found.add(Rule.ABORT_REWIND, Weight.INFORMATION, read.row)


def first_of_series(history: History, read: Row) -> Row:
    """Return the first of the reads of a transaction that the reader made one after the other."""
    previous = history.previous_read(read)
    return read if previous is None or previous.txn != read.txn else first_of_series(history, previous)


def hanging_transactions(history: History, found: Findings) -> None:
    """A last stable offset did not change since the first reply that stated it, after the last larger one."""
    timeout = history.promise.transaction_timeout_ms
    replies = [row for row in history.replies if row.at_ms is not None and row.high_watermark is not None]
    for again in replies:
        stable = again.last_stable_offset
        if stable is None or timeout < 0:
            continue
        replied = [row for row in history.replies if row.returned <= again.returned]
        since = max((row.returned for row in replied if (row.last_stable_offset or 0) > stable), default=-1)
        same = [row for row in replies if row.last_stable_offset == stable and (row.high_watermark or 0) > stable]
        same = [row for row in same if row.returned >= since]
        if same and _hangs(same[0], again, timeout):
            found.add(Rule.HANGING_TRANSACTION, Weight.VIOLATION, stable)


def _hangs(before: Row, again: Row, timeout: int) -> bool:
    """Return whether a transaction was open at both replies, longer than it may be without faults, and the log grew."""
    if before.at_ms is None or again.at_ms is None or before.high_watermark is None or again.high_watermark is None:
        return False
    stable = before.last_stable_offset
    calm_ms = again.calm_before_ms
    if stable is None or stable != again.last_stable_offset or calm_ms is None or calm_ms <= timeout:
        return False
    return stable < before.high_watermark < again.high_watermark and again.invoked_ms - before.at_ms > timeout


RULES = (early_reads, double_processing, continued_after_abort, hanging_transactions)
