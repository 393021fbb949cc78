"""Rule 42, and rule 13 of records whose place is unknown: what may be at the offsets without a known record."""

from highwater.reports.rules.findings import Weight
from highwater.reports.rules.rule import Rule
from highwater.reports.tests.oracle.findings import Findings
from highwater.reports.tests.oracle.history import History, Row
from highwater.reports.tests.oracle.log_start import log_start_of, passed_up_to_last
from highwater.reports.tests.oracle.reads import is_passed_everywhere
from highwater.reports.tests.oracle.transactions import acknowledged_ends, place_of, stable_ends


def unexplained_offsets(history: History, found: Findings) -> None:
    """An offset has no entry: certainly, or unless a client wrote a record again under a new producer epoch."""
    for weight in (Weight.VIOLATION, Weight.UNDECIDED):
        offset, _ = unexplained_offset(history, weight)
        if offset is not None:
            found.add(Rule.UNEXPLAINED_OFFSET, weight, offset)
            return


def unexplained_offset(history: History, weight: Weight) -> tuple[int | None, Row | None]:
    """Return the smallest offset without an entry, and the first operation to prove an end beyond it."""
    ends = ends_of(history)
    taken = {*places(history), *(offset for row in history.reads for offset in row.offsets)}
    last = max((end for end, _ in ends), default=0)
    once = hidden = 0
    is_judged = history.promise.complete and not history.promise.compaction
    once_at_most = history.promise.idempotence and weight is Weight.UNDECIDED
    for offset in sorted({*range(last)} - taken) if is_judged else ():
        proof = min((row for end, row in ends if end > offset), key=lambda row: row.returned)
        seen, passed = is_seen(history, offset), is_passed(history, offset)
        repeated = not once_at_most and may_repeat(history, proof.returned)
        if has_marker(history, offset, proof.returned, taken) or (not passed and repeated):
            continue
        unplaced = [send for send in unplaced_sends(history) if send.invoked < proof.returned]
        once, hidden = once + (not seen), hidden + (passed and not seen)
        invisible = [send for send in unplaced if send.txn is not None and not send.committed]
        if seen or once > len(unplaced) or (passed and hidden > len(invisible)):
            return offset, proof
    return None, None


def ends_of(history: History) -> list[tuple[int, Row]]:
    """Return (end, operation) for each proof that the log has an entry at each offset below the end."""
    reported = [(row.high_watermark, row) for row in history.replies if row.high_watermark is not None]
    return [*reported, *stable_ends(history), *history.read_proofs, *acknowledged_ends(history)]


def places(history: History) -> set[int]:
    known = [send for send in history.sends if not send.rejected and history.place(send) is not None]
    return {place_of(history, send) for send in known}


def unplaced_sends(history: History) -> list[Row]:
    return [send for send in history.sends if not send.rejected and history.place(send) is None]


def may_repeat(history: History, until: int) -> bool:
    """Return whether a record that was sent before this event may be written at any other offset."""
    sends = [send for send in history.sends if not send.rejected and send.invoked < until]
    return not all(map(history.is_written_once, sends))


def is_passed(history: History, offset: int) -> bool:
    """Return whether a reader passed an offset at which it lacks a record."""
    return any(passed_it(history, row, offset) for row in history.rows)


def is_seen(history: History, offset: int) -> bool:
    return any(passed_it(history, row, offset) and history.sees_uncommitted(row) for row in history.rows)


def passed_it(history: History, row: Row, offset: int) -> bool:
    return passed_up_to_last(history, row, offset) and log_start_of(history, row)[1] <= offset


def has_marker(history: History, offset: int, until: int, taken: set[int]) -> bool:
    """Return whether a marker of any transaction may be at an offset, and be appended before this event."""
    for txn in {send.txn for send in history.sends} - {None}:
        mine = [send for send in history.sends if send.txn == txn]
        before = [place_of(history, send) for send in mine if not send.rejected and history.place(send) is not None]
        since = max([min(send.invoked for send in mine), *(send.ended or 0 for send in mine if send.committed)])
        needed = [send for send in mine if send.acknowledged and history.place(send) is None]
        is_excluded = is_passed if mine[0].committed else is_seen
        free = (at for at in range(len(history.rows) * 100) if at not in places(history))
        room = next(at for at in free if at in taken or not is_excluded(history, at))
        behind = max([0, *(at + 1 for at in before), *([room + len(needed)] if needed else [])])
        if behind <= offset and since < until:
            return True
    return False


def crowded_sends(history: History, found: Findings) -> None:
    """A record was sent after others were acknowledged, which have no room before it."""
    if history.promise.compaction:
        return
    for late in history.sends:
        place = history.place(late)
        if late.rejected or place is None:
            continue
        early = [send for send in history.acknowledged if send.offset is None and send.precedes(late)]
        if any(is_at_or_above(history, send, place) for send in early):
            found.add(Rule.APPEND_INVERSION, Weight.VIOLATION, late.row)
        if not has_room_before(history, late, place):
            found.add(Rule.APPEND_INVERSION, Weight.VIOLATION, late.row)


def is_at_or_above(history: History, send: Row, offset: int) -> bool:
    place = history.place(send)
    return place is not None and place >= offset and history.is_written_once(send)


def has_room_before(history: History, late: Row, place: int) -> bool:
    """Return whether each record that was acknowledged before a send can be at a free offset before its place.

    No reader passed that offset which must see the record.
    """
    sends = [send for send in history.acknowledged if history.place(send) is None and send.precedes(late)]
    sends = [send for send in sends if not is_passed_everywhere(history, send)]
    visible = [send for send in sends if send.txn is None or send.committed]
    free = {*range(place)} - places(history) if sends else ()
    received = {offset for row in history.reads for offset in row.offsets}
    unseen = [offset for offset in free if offset in received or not is_seen(history, offset)]
    unpassed = [offset for offset in unseen if offset in received or not is_passed(history, offset)]
    return len(sends) <= len(unseen) and len(visible) <= len(unpassed)


RULES = (unexplained_offsets, crowded_sends)
