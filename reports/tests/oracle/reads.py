"""Rules about what a reader received or skipped: 4 to 9, 20, 33 and 35."""

from collections.abc import Iterator

from highwater.reports.columns import TOMBSTONE, Began, Status
from highwater.reports.rules.findings import Weight
from highwater.reports.rules.rule import Rule
from highwater.reports.tests.oracle.findings import Findings
from highwater.reports.tests.oracle.history import History, Row
from highwater.reports.tests.oracle.log_start import (
    log_start_of,
    passed,
    passed_up_to_last,
    proved_log_starts,
    weight_of_gap,
)
from highwater.reports.tests.oracle.order import stuck_replies


def is_latest_of_key(history: History, send: Row) -> bool:
    """Return whether no record of its key is known to be later, and it is no tombstone; True without compaction."""
    if not history.promise.compaction:
        return True
    place = history.place(send)
    if send.value == TOMBSTONE or send.key is None:
        return False
    later = [history.place(other) for other in history.sends if other.key == send.key and is_in_log(other)]
    return not any(place is not None and other is not None and other > place for other in later)


def may_be_replaced(history: History, send: Row) -> bool:
    """Return whether a send of the same key whose place is unknown, or a retry, may be later in a compacted topic."""
    return history.promise.compaction and any(
        other.gave_up
        or (other is not send and history.place(other) is None and not (other.acknowledged and other.precedes(send)))
        for other in history.sends
        if other.key == send.key and is_in_log(other)
    )


def is_in_log(send: Row) -> bool:
    """Return whether compaction may count a send."""
    return not send.rejected and not send.aborted


def lost_writes(history: History, found: Findings) -> None:
    for send in history.sends:
        place = history.place(send)
        if not counts_as_acknowledged(history, send) or not is_latest_of_key(history, send):
            continue
        if place is None:
            is_lost = is_passed_everywhere(history, send)
            if is_unseen_anywhere(history, send) and (is_lost or is_for_all(send)):
                found.add(Rule.LOST_WRITE if is_lost else Rule.UNSEEN, Weight.VIOLATION, send.row)
        elif history.was_read(send):
            continue
        elif is_passed(history, send, place) and not may_be_absent(history, send, place):
            found.add(Rule.LOST_WRITE, Weight.VIOLATION, send.row)
        elif is_for_all(send) and not is_deleted(history, send, place):
            found.add(Rule.UNSEEN, Weight.VIOLATION, send.row)


def is_for_all(send: Row) -> bool:
    """Return whether readers of either isolation level must see a record that was acknowledged."""
    return send.txn is None or send.committed


def is_passed_everywhere(history: History, send: Row) -> bool:
    """Return whether reads that did not precede a send passed each offset at which its record may be."""
    if send.value == TOMBSTONE or history.promise.compaction or stuck_replies(history):
        return False
    offsets = {at for row in history.rows for at in (*row.offsets, row.position, row.high_watermark) if at is not None}
    return all(is_passed(history, send, at) for at in {0, *offsets, *(offset + 1 for offset in offsets)})


def may_be_absent(history: History, send: Row, place: int) -> bool:
    return may_be_replaced(history, send) or is_beyond_stuck_end(history, place)


def counts_as_acknowledged(history: History, send: Row) -> bool:
    """Return whether a send was acknowledged, or a read that did not succeed received its value."""
    received = any(
        value == send.value != TOMBSTONE for row in history.reads if not row.succeeded for _, value in row.records
    )
    return send.acknowledged or (send.status is Status.INFO and received)


def is_unseen_anywhere(history: History, send: Row) -> bool:
    """Return whether fewer records of the value were received than were acknowledged without an offset."""
    acknowledged = [other for other in history.sends_of(send.value or 0) if other.acknowledged]
    named = {other.offset for other in acknowledged}
    offsets = {at for row in history.reads for at, value in row.records if value == send.value and at not in named}
    return len(offsets) < sum(other.offset is None for other in acknowledged)


def is_beyond_stuck_end(history: History, offset: int) -> bool:
    return any(reply.high_watermark is not None and offset >= reply.high_watermark for reply in stuck_replies(history))


def proves_loss(history: History, row: Row, offset: int) -> bool:
    """Return whether a read passed a record that is not in it, and that the log start cannot have passed."""
    return passed(history, row, offset) and log_start_of(history, row)[1] <= offset


def is_passed(history: History, send: Row, offset: int) -> bool:
    rows = [row for row in history.rows if is_for_all(send) or history.sees_uncommitted(row)]
    return any(proves_loss(history, row, offset) and not row.precedes(send) for row in rows)


def is_deleted(history: History, send: Row, offset: int) -> bool:
    """Return whether an operation that had not returned before a send shows that the log start passed its record."""
    return any(offset < start and not row.precedes(send) for row, start in proved_log_starts(history))


def due_offsets(history: History, reader: Row, *, is_end: bool = False) -> set[int]:
    """Return where another successful read has a record that a reader must see; `is_end`: if it is below the end."""
    sees_all = history.sees_uncommitted(reader) or (is_end and not history.promise.compaction)
    return {
        offset
        for read in history.reads
        if read is not reader and read.succeeded
        for offset, value in read.records
        if sees_all or is_durable(history, offset, value)
    }


def is_durable(history: History, offset: int, value: int) -> bool:
    """Return whether a record is outside transactions, of a committed one, or was read as committed.

    It is identified by its value, or by its offset if the value was sent several times, or is none.
    """
    writers = history.writers(offset, value)
    by_offset = value == TOMBSTONE or len(history.sends_of(value)) > 1
    outside = all(send.txn is None or send.committed for send in writers)
    committed = [row for row in history.reads if row.succeeded and history.is_read_committed(row)]
    return outside or any(
        value == other and (not by_offset or at == offset) for row in committed for at, other in row.records
    )


def skipped_records(history: History, found: Findings) -> None:
    for row in history.rows:
        for offset in sorted(due_offsets(history, row, is_end=True)):
            if not passed(history, row, offset) or offset in row.offsets:
                continue
            if passed_up_to_last(history, row, offset) and offset not in due_offsets(history, row):
                continue
            weight = weight_of_gap(history, row, offset)
            if weight is not None:
                _blame(history, found, row, offset, weight)


def is_latest_record(history: History, offset: int, value: int) -> bool:
    """Return whether compaction must keep a record: of a known writer, with a key of which none is known to be later.

    Of a value that was sent several times the writer is not known.
    """
    writers = history.writers(offset, value)
    if value == TOMBSTONE or len(writers) != 1 or writers[0].key is None:
        return False
    places = [history.place(other) for other in sends_of_key(history, writers[0])]
    return not any(place is not None and place > offset for place in places)


def may_be_compacted(history: History, offset: int, value: int) -> bool:
    """Return whether a send of the same key whose place is unknown, or a retry, may be after a record."""
    (writer,) = history.writers(offset, value)
    return not history.promise.idempotence or any(
        other.gave_up or (history.place(other) is None and not (other.acknowledged and other.precedes(writer)))
        for other in sends_of_key(history, writer)
    )


def sends_of_key(history: History, writer: Row) -> list[Row]:
    """Return the sends of the key of a send that may be in the log."""
    return [send for send in history.sends if send.key == writer.key and is_in_log(send)]


def weight_of_truncation(history: History, row: Row, offset: int) -> Weight | None:
    """Return the weight of a record that was read before, and that a read passed and lacks; None if that may be."""
    weight = weight_of_gap(history, row, offset)
    if weight is None or not history.promise.compaction:
        return weight
    values = durable_values(history, offset)
    if not all(is_latest_record(history, offset, value) for value in values):
        return None
    may_be = any(may_be_compacted(history, offset, value) for value in values)
    return max(weight, Weight.UNDECIDED) if may_be else weight


def durable_values(history: History, offset: int) -> set[int]:
    """Return the values that successful reads have at an offset, and that must stay."""
    values = {value for read in history.reads if read.succeeded for at, value in read.records if at == offset}
    return {value for value in values if is_durable(history, offset, value)}


def _blame(history: History, found: Findings, row: Row, offset: int, weight: Weight) -> None:
    having = [read for read in history.reads if had_record(history, read, offset)]
    had = any(read.precedes(row) for read in having)
    has_later = any(read.returned > row.invoked for read in having)
    if (row.position is not None or row.quiet) and had and not has_later:
        truncated = weight_of_truncation(history, row, offset)
        if truncated is not None:
            found.add(Rule.TRUNCATED_AFTER_READ, truncated, offset)
    elif history.promise.compaction or not passed_up_to_last(history, row, offset):
        return
    elif offset < row.first:
        found.add(Rule.POLL_SKIP, weight, row.row)
    else:
        found.add(Rule.INT_NONMONOTONIC_POLL, weight, row.row)


def had_record(history: History, read: Row, offset: int) -> bool:
    """Return whether a successful read has a record at an offset, in a compacted topic one that must stay."""
    return read.succeeded and any(
        at == offset and (not history.promise.compaction or is_durable(history, at, value))
        for at, value in read.records
    )


def disordered_reads(history: History, found: Findings) -> None:
    for read in history.reads:
        if any(after <= before for before, after in zip(read.offsets, read.offsets[1:], strict=False)):
            found.add(Rule.INT_NONMONOTONIC_POLL, Weight.VIOLATION, read.row)


def repeated_reads(history: History, found: Findings) -> None:
    """A poll returned an offset that it, or its assignment or seek, had passed; a read at a position may go back."""
    for read in history.reads:
        if is_below_its_assignment(read):
            found.add(Rule.NONMONOTONIC_POLL, Weight.VIOLATION, read.row)
        previous = history.previous_read(read)
        if previous is None or read.position is not None or not read.succeeded:
            continue
        rewinds = previous.aborted and read.txn != previous.txn  # after an abort the consumer returns to its start
        if read.first <= previous.last and not rewinds:
            found.add(Rule.NONMONOTONIC_POLL, Weight.VIOLATION, read.row)


def is_below_its_assignment(read: Row) -> bool:
    """Return whether the first poll after an assignment or seek is below the position that this states."""
    return read.succeeded and read.began == Began.ASSIGNED and read.first < (read.position or 0)


def torn_transactions(history: History, found: Findings) -> None:
    for send in history.sends:
        place = history.place(send)
        if send.txn is None or send.aborted or send.rejected or place is None or not is_latest_of_key(history, send):
            continue
        readers = [read for read in history.reads if read.succeeded and history.may_be_read_committed(read)]
        if any(history.is_record_of(send, *record) for read in readers for record in read.records):
            continue
        proofs = [row for row in history.rows if history.is_read_committed(row) and proves_loss(history, row, place)]
        if any(not row.precedes(send) for row in proofs):
            found.add(Rule.TORN_TRANSACTION, Weight.VIOLATION, send.row)


def silent_resets(history: History, found: Findings) -> None:
    for read in history.reads:
        if read.began != Began.RESUMED or history.promise.compaction or not read.succeeded:
            continue
        mine = [row for row in history.reads if row.reader == read.reader and row.succeeded]
        before = [row.last + 1 for row in mine if row.precedes(read)]
        if not before:
            continue
        received = {offset for row in mine for offset in row.offsets}
        for offset in set(existing_offsets(history, read)) - received:
            weight = weight_of_gap(history, read, offset)
            if max(before) <= offset < read.first and weight is not None:
                found.add(Rule.SILENT_RESET, weight, read.row)


def existing_offsets(history: History, read: Row) -> Iterator[int]:
    """Return the offsets of records that a reader must see."""
    yield from due_offsets(history, read)
    for send in history.acknowledged:
        may_be_lost = not history.promise.acks_all or history.promise.unclean_election
        is_due = is_for_all(send) or history.sees_uncommitted(read)
        if send.offset is not None and is_due and not may_be_lost:
            yield send.offset


def resurrected_records(history: History, found: Findings) -> None:
    """A record is read after a read that had passed its offset without it, or without the tombstone that deleted it."""
    if not history.promise.compaction:
        return
    for read in history.reads:
        for offset, value in read.records:
            if not read.succeeded:
                continue
            if value != TOMBSTONE and passed_its_tombstone(history, read, offset, value):
                found.add(Rule.RESURRECTED_RECORD, Weight.VIOLATION, offset)
            if not is_durable(history, offset, value):
                continue
            for missing in history.reads:
                if not missing.precedes(read) or offset in missing.offsets:
                    continue
                if passed_up_to_last(history, missing, offset) and weight_of_gap(history, missing, offset) is not None:
                    same = read.node == missing.node and not (read.node is None and read.leader_epoch is None)
                    same = same and (read.node is not None or read.leader_epoch == missing.leader_epoch)
                    found.add(Rule.RESURRECTED_RECORD, Weight.VIOLATION if same else Weight.INFORMATION, offset)


def passed_its_tombstone(history: History, read: Row, offset: int, value: int) -> bool:
    """Return whether a read has a record, but not the later tombstone of its key, whose offset it passed.

    The cleaner removes a tombstone only after the records that it deletes.
    """
    keys = {send.key for send in history.writers(offset, value)} - {None}
    for tombstone in history.acknowledged:
        if tombstone.value != TOMBSTONE or tombstone.key not in keys or tombstone.offset is None:
            continue
        if tombstone.txn is not None and not tombstone.committed:
            continue
        deleted = offset < tombstone.offset and (tombstone.offset, TOMBSTONE) not in read.records
        if deleted and passed_up_to_last(history, read, tombstone.offset):
            return True
    return False


def deleted_records(history: History, found: Findings) -> None:
    """A record is read below a log start that an operation before had proved."""
    for read in history.reads:
        if not read.succeeded:
            continue
        for proof, start in proved_log_starts(history):
            weight = weight_of_return(history, proof, read)
            if not proof.precedes(read) or weight is None:
                continue
            smallest = min(offsets_from_position(read), default=start)
            if smallest < start:
                found.add(Rule.RESURRECTED_RECORD, weight, smallest)


def offsets_from_position(read: Row) -> list[int]:
    """Return the offsets of the records that a reader uses: a broker returns whole batches, a client filters them."""
    if read.position is not None:
        return [offset for offset in read.offsets if offset >= read.position]
    return [] if read.is_raw else list(read.offsets)


def weight_of_return(history: History, proof: Row, read: Row) -> Weight | None:
    """Return the weight of a record below a proved log start; None if both may be true of their replicas."""
    before, after = history.epochs(proof), history.epochs(read)
    if history.is_of_follower(proof) or history.is_of_follower(read):
        return None
    if before[1] < after[0] or after[1] < before[0]:
        return None
    return Weight.VIOLATION if before == after and before[0] == before[1] else Weight.UNDECIDED


RULES = (
    lost_writes, skipped_records, disordered_reads, repeated_reads, torn_transactions, silent_resets,
    resurrected_records, deleted_records,
)  # fmt: skip
