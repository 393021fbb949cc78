"""Whether the two operations that a finding names show the anomaly, from the definitions only.

A finding names a first and a second operation, whose roles are in `spec/anomalies.toml`, and an offset. `PREDICATES`
has a function for each rule of one partition, which repeats the sentence and the roles of the rule, with the terms of
docs/audit/rules.md. `comparison.py` compares which findings there are; this module decides whether a finding is shown
by its own witnesses. A rule that finds the right culprit and names a wrong witness fails only here.

The offset is that of the record which the anomaly concerns: the one that was read, lost or skipped, or that the first
operation sent. In rules 14, 16 and 29 it is the end that the first operation returned.

Absent on purpose: which of several right witnesses is named, unless a definition says it; and the order in time, where
no definition states one.
"""

from collections.abc import Callable, Iterator
from typing import Final

from highwater.reports.columns import EPOCH_BITS, TOMBSTONE, UNKNOWN, UNKNOWN_EPOCH, Began, Kind, Operations, Status
from highwater.reports.rules.findings import NO_ROW, Promise, RuleFindings, Weight
from highwater.reports.rules.rule import Rule
from highwater.reports.tests.oracle.entries import has_room_before, is_at_or_above, unexplained_offset
from highwater.reports.tests.oracle.history import History, Row
from highwater.reports.tests.oracle.log_start import (
    deletions,
    final_end,
    log_start_of,
    passed,
    passed_up_to_last,
    proved_log_starts,
    weight_of_gap,
)
from highwater.reports.tests.oracle.order import (
    counts_of_acknowledgements,
    end_below,
    in_order,
    is_behind,
    lists_end_below,
    previous_in_transaction,
)
from highwater.reports.tests.oracle.reads import (
    durable_values,
    existing_offsets,
    is_below_its_assignment,
    is_durable,
    is_latest_of_key,
    is_latest_record,
    is_passed_everywhere,
    is_unseen_anywhere,
    may_be_absent,
    may_be_compacted,
)
from highwater.reports.tests.oracle.transactions import begin_of_commit

Pair = Callable[[Row, Row, int, History], bool]
Predicate = Callable[[Row, Row | None, int, History], bool]


def misleading(findings: list[RuleFindings], ops: Operations, promise: Promise) -> list[str]:
    """Return a description of each finding whose witnesses do not show it, or show less than its weight claims."""
    history, found = History(ops, promise), []
    for part in findings:
        for first, second, offset in zip(part.first.tolist(), part.second.tolist(), part.offset.tolist(), strict=True):
            if part.rule in PREDICATES and not shows(part.rule, part.weight, (first, second, offset), history):
                found.append(f"{part.rule.name} {part.weight.name}: rows {first} and {second}, offset {offset}")
    return found


def shows(rule: Rule, weight: Weight, finding: tuple[int, int, int], history: History) -> bool:
    """Return whether the rows of a finding (first, second, offset) show the anomaly, with that weight."""
    first, offset = history.rows[finding[0]], finding[2]
    second = None if finding[1] == NO_ROW else history.rows[finding[1]]
    if not PREDICATES[rule](first, second, offset, history):
        return False
    return rule not in WEIGHTS or WEIGHTS[rule](first, second, offset, history) is weight


# -- the value of a record, and its writer -----------------------------------------------------------


def _values_at(row: Row, offset: int) -> set[int]:
    """Return the values that a read returned at an offset, or that was acknowledged there."""
    if row.acknowledged and row.offset == offset and row.value is not None:
        return {row.value}
    return {value for at, value in row.records if at == offset and row.kind is Kind.READ}


def _offsets_of(row: Row, value: int) -> set[int]:
    acknowledged = row.acknowledged and row.value == value and row.offset is not None
    return {row.offset or 0} if acknowledged else {at for at, other in row.records if other == value}


def _have_two_values(first: Row, second: Row, offset: int, history: History) -> bool:
    two_sends = first is not second and first.acknowledged and second.acknowledged
    pairs = [(one, other) for one in _values_at(first, offset) for other in _values_at(second, offset)]
    return any(one != other or two_sends for one, other in pairs)


def _is_duplicate(first: Row, second: Row, offset: int, history: History) -> bool:
    """Both returned a value, the second at the offset, which no acknowledgement names, and the first elsewhere."""
    for value in (_values_at(first, offset) | _values_at(second, offset)) - {TOMBSTONE}:
        named = any(send.offset == offset and send.acknowledged for send in history.sends_of(value))
        if not named and offset in _offsets_of(second, value) and _offsets_of(first, value) - {offset}:
            return True
    return False


def _is_phantom(first: Row, second: Row | None, offset: int, history: History) -> bool:
    if second is not None or first.kind is not Kind.READ:
        return False
    values = _values_at(first, offset)
    if TOMBSTONE in values and not history.writers(offset, TOMBSTONE):
        return True  # how many there may be is a question of the culprits, not of the witness
    former = {send.value for send in history.former}
    return any(not history.sends_of(value) and value not in former for value in values - {TOMBSTONE})


def _is_future_read(first: Row, second: Row, offset: int, history: History) -> bool:
    """The second had the value, or was beyond the place of the send, before the first, a send, was invoked."""
    if first.kind is not Kind.SEND or not second.precedes(first):
        return False
    beyond = _extends_beyond(second, offset, history) and history.place(first) == offset and not first.rejected
    return beyond or _had_value_before(first, second, offset, history)


def _had_value_before(send: Row, read: Row, offset: int, history: History) -> bool:
    """Return whether a read precedes all writers of its record, of which this send is the first."""
    return any(all(read.precedes(writer) for writer in writers) for writers in _writers_of(read, send, offset, history))


def _extends_beyond(reply: Row, offset: int, history: History) -> bool:
    if history.promise.unclean_election and history.promise.unclean_known:
        return False
    return not reply.acknowledged and max(_ends(reply, history), default=0) > offset


def _ends(reply: Row, history: History) -> Iterator[int]:
    """Return all ends that a reply proves."""
    proofs = [*history.end_proofs, *history.stable_proofs]
    return (end for end, row in proofs if row is reply)


def _is_of_aborted(first: Row, second: Row, offset: int, history: History) -> bool:
    if not history.may_be_read_committed(first):
        return False
    return any(all(send.aborted for send in writers) for writers in _writers_of(first, second, offset, history))


def _is_precommitted(first: Row, second: Row, offset: int, history: History) -> bool:
    if first.txn is None or not history.may_be_read_committed(first):
        return False
    return any(
        all(send.txn == first.txn for send in writers) for writers in _writers_of(first, second, offset, history)
    )


def _writers_of(read: Row, send: Row, offset: int, history: History) -> Iterator[list[Row]]:
    """Return the writers of what a read has at an offset, if this send is the first of them."""
    for value in _values_at(read, offset) if read.kind is Kind.READ else set():
        writers = history.writers(offset, value)
        if writers and send is min(writers, key=lambda writer: writer.invoked):
            yield writers


def _is_reborn(first: Row, second: Row, offset: int, history: History) -> bool:
    return (
        first.kind is Kind.READ
        and second.kind is Kind.FORMER
        and second.value in _values_at(first, offset)
        and not history.sends_of(second.value or 0)
    )


def _is_rejected(first: Row, second: Row, offset: int, history: History) -> bool:
    if first.kind is not Kind.READ or not second.rejected or second.value == TOMBSTONE:
        return False
    sends = history.sends_of(second.value or 0)
    return second.value in _values_at(first, offset) and all(send.rejected for send in sends)


# -- records that a read lacks -----------------------------------------------------------------------


def _must_be_read(send: Row, offset: int, history: History) -> bool:
    """Return whether a send is acknowledged at the offset (or a failed read has it), and no read returned it."""
    received = send.value != TOMBSTONE and history.was_received(send) and not send.rejected
    known = send.acknowledged or (send.kind is Kind.SEND and received)
    if not known or not is_latest_of_key(history, send):
        return False
    return history.place(send) == offset and not history.was_read(send)


def _proves_absence(row: Row, offset: int, history: History) -> bool:
    """Return whether a read passed an offset to which the log start cannot have moved."""
    return passed(history, row, offset) and log_start_of(history, row)[1] <= offset


def _shows_absence(send: Row, row: Row, offset: int, history: History) -> bool:
    """Return whether a read that did not precede a send proves that its record is absent."""
    return _proves_absence(row, offset, history) and not row.precedes(send)


def _is_lost(first: Row, second: Row, offset: int, history: History) -> bool:
    if offset == UNKNOWN:
        return _is_lost_without_place(first, second, history)
    if not _must_be_read(first, offset, history) or may_be_absent(history, first, offset):
        return False
    return _must_see(second, first, history) and _shows_absence(first, second, offset, history)


def _is_lost_without_place(first: Row, second: Row, history: History) -> bool:
    """The first was acknowledged, reads passed all offsets without its value, and the second proves the end."""
    if not first.acknowledged or history.place(first) is not None or not is_unseen_anywhere(history, first):
        return False
    proves_end = final_end(history, second) is not None and not second.precedes(first)
    return proves_end and _must_see(second, first, history) and is_passed_everywhere(history, first)


def _must_see(reader: Row, send: Row, history: History) -> bool:
    return send.txn is None or send.committed or history.sees_uncommitted(reader)


def _is_unseen(first: Row, second: Row | None, offset: int, history: History) -> bool:
    """No read proves that the record is lost, and neither a deletion nor a log start explains its absence."""
    if second is not None or not _must_be_read(first, offset, history) or not (first.txn is None or first.committed):
        return False
    explained = any(offset < start and not row.precedes(first) for row, start in proved_log_starts(history))
    lost = any(_shows_absence(first, row, offset, history) for row in history.rows)
    return not explained and (not lost or may_be_absent(history, first, offset))


def _had_durable(read: Row, offset: int, history: History) -> bool:
    is_read = read.kind is Kind.READ and read.succeeded
    return is_read and any(is_durable(history, offset, value) for value in _values_at(read, offset))


def _had(read: Row, offset: int, history: History) -> bool:
    """Return whether a successful read returned a record, in a compacted topic one that must stay."""
    if history.promise.compaction:
        return _had_durable(read, offset, history)
    return read.kind is Kind.READ and read.succeeded and bool(_values_at(read, offset))


def _is_due(reader: Row, offset: int, history: History) -> bool:
    """Return whether a read returned a record that a reader which passes it must see."""
    if history.sees_uncommitted(reader):
        return any(_had(read, offset, history) for read in history.reads)
    return any(_had_durable(read, offset, history) for read in history.reads)


def _is_truncated(first: Row, second: Row, offset: int, history: History) -> bool:
    """The second had the record before the first passed its place, and no read had it afterwards."""
    if not second.precedes(first) or not _had(second, offset, history):
        return False
    if history.promise.compaction and not _is_kept_by_compaction(offset, history):
        return False
    later = any(_had(read, offset, history) and read.returned > first.invoked for read in history.reads)
    is_due = _is_due(first, offset, history) or not passed_up_to_last(history, first, offset)
    return is_due and not later and passed(history, first, offset) and offset not in first.offsets


def _is_kept_by_compaction(offset: int, history: History) -> bool:
    return all(is_latest_record(history, offset, value) for value in durable_values(history, offset))


def _weight_of_truncation(first: Row, second: Row | None, offset: int, history: History) -> Weight | None:
    weight = weight_of_gap(history, first, offset)
    if weight is None or not history.promise.compaction:
        return weight
    undecided = any(may_be_compacted(history, offset, value) for value in durable_values(history, offset))
    return Weight.UNDECIDED if undecided else weight


def _repeats(first: Row, second: Row | None, offset: int, history: History) -> bool:
    """The first, which names no position, returned an offset again that its predecessor had passed.

    Or it is below the position that its assignment or seek states, and there is no other operation.
    """
    if is_below_its_assignment(first):
        return second is None or second is history.previous_read(first)
    if second is None:
        return False
    if first.position is not None or not first.succeeded or second is not history.previous_read(first):
        return False
    rewinds = second.aborted and first.txn != second.txn  # after an abort the consumer returns to its start
    return offset in first.offsets and offset <= second.last and not rewinds


def _skips_before(first: Row, second: Row | None, offset: int, history: History) -> bool:
    """The first began at or below the offset, and its first record is above it; the second is the poll before."""
    if history.promise.compaction or not passed_up_to_last(history, first, offset) or offset >= first.first:
        return False
    is_previous = second is history.previous_read(first) if second else first.position is not None
    return is_previous and _is_due(first, offset, history)


def _skips_within(first: Row, second: Row, offset: int, history: History) -> bool:
    if first.kind is not Kind.READ:
        return False
    pairs = zip(first.offsets, first.offsets[1:], strict=False)
    if second is first:
        return any(after <= before and offset in {before, after} for before, after in pairs)
    lacks = passed_up_to_last(history, first, offset) and offset > first.first and offset not in first.offsets
    return (
        lacks and not history.promise.compaction and _had(second, offset, history) and _is_due(first, offset, history)
    )


def _is_torn(first: Row, second: Row, offset: int, history: History) -> bool:
    """The first sent a record that no reader has, and the second skipped it.

    Another record of the transaction was read, perhaps in another partition, which this history does not contain.
    """
    if first.kind is not Kind.SEND or first.txn is None or first.aborted or first.rejected:
        return False
    readers = [read for read in history.reads if read.succeeded and history.may_be_read_committed(read)]
    if any(history.is_record_of(first, at, value) for read in readers for at, value in read.records):
        return False
    skipped = history.is_read_committed(second) and _shows_absence(first, second, offset, history)
    return history.place(first) == offset and is_latest_of_key(history, first) and skipped


def _is_reset(first: Row, second: Row, offset: int, history: History) -> bool:
    """The first resumed beyond the furthest position of its group, at the second, and no member has what is between."""
    if first.began != Began.RESUMED or not first.succeeded or not first.records or history.promise.compaction:
        return False
    mine = [row for row in history.reads if row.reader == first.reader and row.succeeded]
    furthest = max((row.last for row in mine if row.precedes(first)), default=UNKNOWN)
    if second not in mine or not second.precedes(first) or second.last != furthest:
        return False
    received = {at for row in mine for at in row.offsets}
    return furthest < offset < first.first and offset not in received and offset in existing_offsets(history, first)


def _is_resurrected(first: Row, second: Row, offset: int, history: History) -> bool:
    if first.kind is not Kind.READ or not first.succeeded:
        return False
    if second.kind is Kind.SEND:
        values = _values_at(first, offset) - {TOMBSTONE} if history.promise.compaction else set()
        return any(_is_deleted_by(first, second, offset, value, history) for value in values)
    return _lacked_it(first, second, offset, history) or _had_passed_it(first, second, offset, history)


def _lacked_it(first: Row, second: Row, offset: int, history: History) -> bool:
    """Return whether the second had passed an offset without the record that the first has, in a compacted topic."""
    if not history.promise.compaction or not second.precedes(first) or not _had_durable(first, offset, history):
        return False
    lacked = passed_up_to_last(history, second, offset) and offset not in second.offsets
    return lacked and weight_of_gap(history, second, offset) is not None


def _had_passed_it(first: Row, second: Row, offset: int, history: History) -> bool:
    """Return whether the second proved a log start above the smallest record that the first returned to its user."""
    if not second.precedes(first) or _weight_of_return(first, second, history) is None:
        return False
    is_used = first.position is not None or not first.is_raw
    used = [at for at in first.offsets if first.position is None or at >= first.position]
    passed_it = any(row is second and offset < start for row, start in proved_log_starts(history))
    return passed_it and is_used and offset == min(used, default=None)


def _weight_of_return(first: Row, second: Row, history: History) -> Weight | None:
    """Return the weight of a record below a log start; None if the replies are of two epochs, or one of a follower."""
    (before_low, before_high), (low, high) = history.epochs(second), history.epochs(first)
    is_of_follower = history.is_of_follower(first) or history.is_of_follower(second)
    if is_of_follower or before_high < low or high < before_low:
        return None
    is_one = before_low == before_high == low == high
    return Weight.VIOLATION if is_one else Weight.UNDECIDED


def _is_deleted_by(read: Row, tombstone: Row, offset: int, value: int, history: History) -> bool:
    """Return whether a read passed the tombstone of a record without it; the cleaner removes the record first."""
    if not tombstone.acknowledged or tombstone.value != TOMBSTONE or tombstone.offset is None:
        return False
    keys = {send.key for send in history.writers(offset, value)} - {None}
    passed_it = passed_up_to_last(history, read, tombstone.offset) and (tombstone.offset, TOMBSTONE) not in read.records
    decided = tombstone.txn is None or tombstone.committed
    return tombstone.key in keys and decided and offset < tombstone.offset and passed_it


# -- the order of sends ------------------------------------------------------------------------------


def _is_before_in_transaction(second: Row, first: Row) -> bool:
    """Return whether two sends without a producer are of one transaction, the second at a smaller place."""
    if first.txn is None or first.txn != second.txn or not (first.producer is None and second.producer is None):
        return False
    return first.sequence is not None and second.sequence is not None and second.sequence < first.sequence


def _previous(first: Row, history: History) -> list[Row]:
    """Return the previous acknowledged sends of the process and of the transaction of a send."""
    known = [send for send in history.acknowledged if send.offset is not None]
    of_process = [send for send in known if send.process == first.process and send.precedes(first)]
    in_order = [send for send in known if _is_before_in_transaction(send, first)]
    return of_process[-1:] + sorted(in_order, key=lambda send: send.sequence or 0)[-1:]


def _is_disordered(first: Row, second: Row, offset: int, history: History) -> bool:
    previous = previous_in_transaction(history, first) if first.kind is Kind.SEND else None
    if previous is not None and previous[0] is second and history.place(first) == offset < previous[1]:
        return not first.rejected
    if not first.acknowledged or first.offset != offset or second.offset is None:
        return False
    return second in _previous(first, history) and offset <= second.offset


def _is_interleaved(first: Row, second: Row, offset: int, history: History) -> bool:
    """Between two successive records of a transaction is one that does not belong to it."""
    if first.txn is None or first.txn != second.txn or first.offset != offset or second.offset is None:
        return False
    if not (first.acknowledged and second.acknowledged):
        return False
    between = [
        send for send in history.acknowledged if send.offset is not None and second.offset < send.offset < offset
    ]
    return bool(between) and all(send.txn != first.txn for send in between)


def _is_reordered(first: Row, second: Row, offset: int, history: History) -> bool:
    """The second is the previous one of the producer by sequence, and after the first in the log; or fences it."""
    if _is_fenced(first, second):
        return first.offset == offset
    mine = [send for send in history.sends if send.producer == first.producer is not None]
    sends = [send for send in mine if send.sequence is not None and _place_in_order(send, history) is not None]
    if first not in sends or _place_in_order(first, history) != offset:
        return False
    acknowledged = [send for send in sends if send.acknowledged] if first.acknowledged else []
    previous = [_previous_by_sequence(first, others) for others in (sends, acknowledged)]
    return second in previous and (_place_in_order(second, history) or 0) > offset


def _is_fenced(first: Row, second: Row) -> bool:
    """Both were acknowledged, and the second has a newer epoch of the same producer id and a smaller offset."""
    if first.producer is None or second.producer is None or first.offset is None or second.offset is None:
        return False
    (older_id, older), (newer_id, newer) = (divmod(send.producer or 0, 1 << EPOCH_BITS) for send in (first, second))
    known = older_id == newer_id and UNKNOWN_EPOCH not in {older, newer}
    return known and older < newer and second.offset < first.offset and first.acknowledged and second.acknowledged


def _previous_by_sequence(first: Row, sends: list[Row]) -> Row | None:
    order = in_order([send.sequence or 0 for send in [first, *sends]])
    before = [send for send in sends if order.index(send.sequence or 0) < order.index(first.sequence or 0)]
    return max(before, key=lambda send: order.index(send.sequence or 0), default=None)


def _place_in_order(send: Row, history: History) -> int | None:
    """Return the acknowledged offset of a send, or the place of one of unknown outcome."""
    return send.offset if send.acknowledged else history.place(send) if send.status is Status.INFO else None


def _weight_of_order(first: Row, second: Row | None, offset: int, history: History) -> Weight:
    """Return UNDECIDED if the outcome of one send is unknown, and no later send proves that its epoch was kept."""
    unknown = [send for send in (first, second) if send is not None and not send.acknowledged]
    if second is not None and _is_fenced(first, second):
        unknown = [first] if first.gave_up else []
    kept = [
        any(later.producer == send.producer and send.precedes(later) for later in history.sends) for send in unknown
    ]
    return Weight.VIOLATION if all(kept) else Weight.UNDECIDED


def _is_inverted(first: Row, second: Row, offset: int, history: History) -> bool:
    if first.kind is not Kind.SEND or first.rejected or not second.acknowledged:
        return False
    if second.offset is None:
        shown = is_at_or_above(history, second, offset) or not has_room_before(history, first, offset)
        return history.place(first) == offset and second.precedes(first) and shown
    of_rule_10 = any(_is_disordered(first, other, offset, history) for other in history.sends)
    if of_rule_10 and first.process == second.process:
        return False
    return history.place(first) == offset and second.precedes(first) and second.offset >= offset


# -- ends of the log ---------------------------------------------------------------------------------


def _has_newer_record(first: Row, second: Row, offset: int, history: History) -> bool:
    """The second states a newer epoch: of a record of the first, or before a record of the first was sent.

    Or it lists an end below the records of the first.
    """
    if first.leader_epoch != offset or second.leader_epoch is None or second.leader_epoch <= offset:
        return False
    if is_behind(history, second, first):
        return first in history.epoch_statements and second in history.epoch_statements
    if lists_end_below(second, first):
        return second.replies_as_leader and first in history.epoch_statements
    mine = [send for send in history.sends if not send.rejected and _is_below(history.place(send), end_below(first))]
    return any(second is send or second.precedes(send) for send in mine) and first in history.epoch_statements


def _is_below(place: int | None, end: int) -> bool:
    return place is not None and place < end


def _weight_of_epochs(first: Row, second: Row | None, offset: int, history: History) -> Weight:
    assert second is not None
    mine = [send for send in history.sends if not send.rejected and _is_below(history.place(send), end_below(first))]
    certain = history.promise.acks_all and not history.promise.unclean_election
    shown = any(map(second.precedes, mine)) or lists_end_below(second, first)
    shown = shown or is_behind(history, second, first)
    return Weight.VIOLATION if certain and shown else Weight.UNDECIDED


def _weight_of_receipt(first: Row, second: Row | None, offset: int, history: History) -> Weight:
    return Weight.VIOLATION if history.is_read_committed(first) else Weight.UNDECIDED


def _weight_of_early(first: Row, second: Row | None, offset: int, history: History) -> Weight:
    """Return UNDECIDED if only the isolation level of the reader, which is not stated, makes the read early."""
    assert second is not None
    passed_it = _is_beyond(first, second, history)
    requested = (second.ended or 0) if second.committed else 0
    certain = passed_it and first.returned < max(requested, begin_of_commit(history, second))
    return Weight.VIOLATION if certain or history.is_read_committed(first) else Weight.UNDECIDED


def _is_stale(first: Row, second: Row, offset: int, history: History) -> bool:
    """The first returned the offset as an end, and the second proved a larger one before."""
    if not first.replies_as_leader or not second.precedes(first):
        return False
    counted = any(send is second and count > offset for count, send in counts_of_acknowledgements(history))
    if first.high_watermark == offset and (counted or _proves(history.record_proofs, second, offset)):
        return True
    if first.last_stable_offset != offset:
        return False
    outside = history.has_transactions and _is_outside_transactions(offset, history)
    return _proves(history.committed_record_proofs, second, offset) or (
        outside and _proves(history.record_proofs, second, offset)
    )


def _is_outside_transactions(offset: int, history: History) -> bool:
    """Return whether the record at an offset cannot hold back the last stable offset."""
    known = [send for send in history.acknowledged if send.offset is not None]
    there = [send for send in known if send.offset == offset]
    firsts = {
        send.txn: min(other.offset or 0 for other in known if other.txn == send.txn)
        for send in there
        if send.txn is not None
    }
    return bool(there) and offset not in firsts.values()


def _proves(proofs: list[tuple[int, Row]], row: Row, reported: int) -> bool:
    return any(end > reported for end, proof in proofs if proof is row)


def _decreases(first: Row, second: Row, offset: int, history: History) -> bool:
    if not (first.replies_as_leader and second.replies_as_leader and second.precedes(first)):
        return False
    high, stable = second.high_watermark, second.last_stable_offset
    of_high = first.high_watermark == offset and high is not None and high > offset
    return of_high or (first.last_stable_offset == offset and stable is not None and stable > offset)


def _hangs(first: Row, second: Row, offset: int, history: History) -> bool:
    """Both returned the offset as last stable offset, none between them a larger one, and the log grew."""
    timeout = history.promise.transaction_timeout_ms
    if not (first.replies_as_leader and second.replies_as_leader) or second.returned >= first.returned or timeout < 0:
        return False
    if first.last_stable_offset != offset or second.last_stable_offset != offset:
        return False
    if first.high_watermark is None or second.high_watermark is None or first.calm_before_ms is None:
        return False
    grew = offset < second.high_watermark < first.high_watermark
    between = [row for row in history.replies if second.precedes(row) and row.precedes(first)]
    advanced = any(row.last_stable_offset is not None and row.last_stable_offset > offset for row in between)
    return grew and not advanced and _is_longer(second, first, timeout) and first.calm_before_ms > timeout


def _is_longer(before: Row, after: Row, limit_ms: int) -> bool:
    return before.at_ms is not None and after.at_ms is not None and after.invoked_ms - before.at_ms > limit_ms


def _is_stuck(first: Row, second: Row, offset: int, history: History) -> bool:
    """The first is the last end of the newest leader; the second was acknowledged there at or above it."""
    patience, end = history.promise.patience_ms, first.high_watermark
    if not first.replies_as_leader or not first.quiet or end is None or first.calm_before_ms is None or patience < 0:
        return False
    final = [row for row in history.replies if row.quiet and row.high_watermark is not None and row.at_ms is not None]
    newest = max((row.leader_epoch for row in final if row.leader_epoch is not None), default=None)
    is_last = [row for row in final if row.leader_epoch == newest][-1:] == [first] and first.calm_before_ms > patience
    beyond = second.acknowledged and second.offset is not None and second.offset >= end
    old = second.precedes(first) and (
        first.at_ms is None or second.at_ms is None or _is_longer(second, first, patience)
    )
    return is_last and beyond and old and second.leader_epoch == newest is not None and offset in {end, second.offset}


def _is_early_retention(first: Row, second: Row, offset: int, history: History) -> bool:
    start = first.log_start_offset
    is_record = second.kind is Kind.SEND and not second.rejected and history.place(second) == offset
    if not first.succeeded or start is None or not is_record or offset >= start:
        return False
    if any(row.invoked < first.returned and most > offset for row, _, most in deletions(history)):
        return False
    promise = history.promise
    if not promise.retention:
        return True
    if promise.retention_ms < 0 or second.timestamp_ms is None or first.at_ms is None:
        return False
    return promise.started_ms + first.at_ms - second.timestamp_ms < promise.retention_ms


def _diverges(first: Row, second: Row, offset: int, history: History) -> bool:
    """Two replicas differ; else one at two times; else a dump and a client's operation."""
    pairs = [(one, other) for one in history.dumps for other in history.dumps]
    if second not in history.dumps:
        of_dumps = any(_differ_in_dumps(*pair, offset, history) for pair in pairs)
        return not of_dumps and _differs_from_client(first, second, offset, history)
    if not _differ_in_dumps(first, second, offset, history):
        return False
    of_two = [pair for pair in pairs if not _is_same_node(*pair)]
    return not _is_same_node(first, second) or not any(_differ_in_dumps(*pair, offset, history) for pair in of_two)


def _differs_from_client(dump: Row, other: Row, offset: int, history: History) -> bool:
    """Return whether a dump has another value than a client's operation at an offset, or lacks its record."""
    end = dump.high_watermark
    if dump not in history.dumps or end is None or offset >= end or not other.succeeded:
        return False
    values = _values_at(other, offset) if history.promise.acks_all or not other.acknowledged else set()
    held = {value for at, value in dump.records if at == offset}
    begin = dump.position if dump.position is not None else min(dump.offsets, default=offset + 1)
    lacks = not held and offset >= begin and not history.promise.compaction
    return bool(values) and (lacks or (bool(held) and held != values))


def _is_same_node(one: Row, other: Row) -> bool:
    return one.node == other.node is not None


def _differ_in_dumps(one: Row, other: Row, offset: int, history: History) -> bool:
    ends = [dump.high_watermark for dump in (one, other) if dump in history.dumps and dump.high_watermark is not None]
    if len(ends) < 2 or offset >= min(ends):
        return False
    mine, theirs = ({value for at, value in dump.records if at == offset} for dump in (one, other))
    lacking = other if mine else one
    begin = lacking.position if lacking.position is not None else min(lacking.offsets, default=offset + 1)
    return mine != theirs and (bool(mine and theirs) or (offset >= begin and not history.promise.compaction))


def _is_beyond_end(first: Row, second: Row | None, offset: int, history: History) -> bool:
    """The last record of the first is beyond an end in the same reply; the second proved before that it was not."""
    if first.kind is not Kind.READ or not first.succeeded or not first.records or first.last != offset:
        return False
    return any(
        end is not None
        and offset >= end
        and (second is None or (second.precedes(first) and _proves(proofs, second, offset)))
        for end, proofs in _own_ends(first, history)
    )


def _own_ends(read: Row, history: History) -> Iterator[tuple[int | None, list[tuple[int, Row]]]]:
    yield read.high_watermark, [*history.end_proofs, *history.record_proofs]
    if history.is_read_committed(read):
        yield read.last_stable_offset, history.stable_proofs


def _is_stable_beyond_end(first: Row, second: Row | None, offset: int, history: History) -> bool:
    stable = first.last_stable_offset
    if not first.replies_as_leader or stable is None or first.high_watermark is None:
        return False
    if not first.high_watermark <= offset < stable:
        return False
    proofs = [*history.end_proofs, *history.record_proofs]
    return second is None or (second.precedes(first) and _proves(proofs, second, stable - 1))


# -- transactions ------------------------------------------------------------------------------------


def _is_early(first: Row, second: Row, offset: int, history: History) -> bool:
    """The first was beyond a record of a transaction, or returned one, before its commit was requested."""
    if second.kind is not Kind.SEND or second.txn is None or first.txn == second.txn:
        return False
    passed_it = _is_beyond(first, second, history)
    returned = _returned(first, second, history)
    ended = second.ended or 0
    early = first.returned < ended and ((passed_it and second.committed) or (returned and not second.aborted))
    early = early or (passed_it and first.returned < begin_of_commit(history, second))
    place = history.place(second)
    return early and offset == (UNKNOWN if place is None else place)


def _is_beyond(reply: Row, send: Row, history: History) -> bool:
    place = history.place(send)
    return place is not None and reply.replies_as_leader and _proves(history.stable_proofs, reply, place)


def _returned(read: Row, send: Row, history: History) -> bool:
    if read.kind is not Kind.READ or not read.succeeded or not history.may_be_read_committed(read):
        return False
    return any(send is history.writer(offset, value) for offset, value in read.records)


def _is_processed_twice(first: Row, second: Row, offset: int, history: History) -> bool:
    if not all(row.kind is Kind.READ and row.committed and offset in row.offsets for row in (first, second)):
        return False
    same_group = first.group is not None and first.group == second.group
    return same_group and first.txn != second.txn and second.row < first.row


def _continues_after_abort(first: Row, second: Row, offset: int, history: History) -> bool:
    """The second is the previous read, of an aborted transaction, and the first is not at that transaction's start."""
    if first not in history.reads or not first.succeeded or first.first != offset:
        return False
    if second is not history.previous_read(first):
        return False
    start = second
    while (before := history.previous_read(start)) is not None and before.txn == second.txn:
        start = before
    return second.aborted and first.txn != second.txn and offset != start.first


# -- weights -----------------------------------------------------------------------------------------


def _weight_of_ends(first: Row, second: Row | None, offset: int, history: History) -> Weight:
    """Return the weight of a smaller end, by the leader epochs of both operations."""
    assert second is not None
    before, after = history.epochs(second), history.epochs(first)
    if history.is_of_follower(first):
        return Weight.INFORMATION
    if first.kind is Kind.LIST_OFFSETS and before[1] <= after[0]:  # a new leader has reached its start (KIP-207)
        return Weight.VIOLATION
    if before == after and before[0] == before[1]:
        return Weight.VIOLATION
    stated = {row.leader_epoch or 0 for row in history.epoch_statements}
    mine = [epoch for epoch in stated if after[0] <= epoch <= after[1]]
    its = [epoch for epoch in stated if before[0] <= epoch <= before[1]]
    differ = before[1] < after[0] or after[1] < before[0] or any(one != other for one in mine for other in its)
    return Weight.INFORMATION if differ else Weight.UNDECIDED


def _weight_of_gap(first: Row, second: Row | None, offset: int, history: History) -> Weight | None:
    return Weight.VIOLATION if second is first else weight_of_gap(history, first, offset)


def _weight_of_replica(first: Row, second: Row | None, offset: int, history: History) -> Weight:
    assert second is not None
    if second.kind is Kind.SEND:
        return Weight.VIOLATION
    weights = []
    if _had_passed_it(first, second, offset, history):
        weights = [weight for weight in [_weight_of_return(first, second, history)] if weight is not None]
    if _lacked_it(first, second, offset, history):
        by_node = first.node is not None or second.node is not None
        same = first.node == second.node if by_node else first.leader_epoch == second.leader_epoch is not None
        weights.append(Weight.VIOLATION if same else Weight.INFORMATION)
    return min(weights)


def _weight_of_future(first: Row, second: Row | None, offset: int, history: History) -> Weight:
    assert second is not None
    certain = history.promise.unclean_known or _had_value_before(first, second, offset, history)
    return Weight.VIOLATION if certain else Weight.UNDECIDED


WEIGHTS: Final[dict[Rule, Callable[[Row, Row | None, int, History], Weight | None]]] = {
    Rule.TRUNCATED_AFTER_READ: _weight_of_truncation,
    Rule.POLL_SKIP: _weight_of_gap,
    Rule.INT_NONMONOTONIC_POLL: _weight_of_gap,
    Rule.SILENT_RESET: _weight_of_gap,
    Rule.PRODUCER_REORDER: _weight_of_order,
    Rule.STALE_READ: _weight_of_ends,
    Rule.HIGH_WATERMARK_REGRESSION: _weight_of_ends,
    Rule.FUTURE_READ: _weight_of_future,
    Rule.EPOCH_SAFETY: _weight_of_epochs,
    Rule.ABORTED_READ: _weight_of_receipt,
    Rule.PRECOMMITTED_READ: _weight_of_receipt,
    Rule.EARLY_READ: _weight_of_early,
    Rule.RESURRECTED_RECORD: _weight_of_replica,
}


def _of_two(pair: Pair) -> Predicate:
    """Return the predicate of a rule whose findings have two witnesses."""
    return lambda first, second, offset, history: second is not None and pair(first, second, offset, history)


def _has_no_entry(first: Row, second: Row | None, offset: int, history: History) -> bool:
    found = [unexplained_offset(history, weight) for weight in (Weight.VIOLATION, Weight.UNDECIDED)]
    return second is None and (offset, first) in found


PREDICATES: Final[dict[Rule, Predicate]] = {
    Rule.PHANTOM_READ: _is_phantom,
    Rule.UNSEEN: _is_unseen,
    Rule.NONMONOTONIC_POLL: _repeats,
    Rule.UNEXPLAINED_OFFSET: _has_no_entry,
    Rule.POLL_SKIP: _skips_before,
    Rule.READ_BEYOND_END: _is_beyond_end,
    Rule.STABLE_OFFSET_BEYOND_END: _is_stable_beyond_end,
} | {
    rule: _of_two(pair)
    for rule, pair in {
        Rule.INCONSISTENT_OFFSETS: _have_two_values,
        Rule.DUPLICATE: _is_duplicate,
        Rule.LOST_WRITE: _is_lost,
        Rule.TRUNCATED_AFTER_READ: _is_truncated,
        Rule.INT_NONMONOTONIC_POLL: _skips_within,
        Rule.NONMONOTONIC_SEND: _is_disordered,
        Rule.INT_SEND_SKIP: _is_interleaved,
        Rule.PRODUCER_REORDER: _is_reordered,
        Rule.APPEND_INVERSION: _is_inverted,
        Rule.STALE_READ: _is_stale,
        Rule.FUTURE_READ: _is_future_read,
        Rule.HIGH_WATERMARK_REGRESSION: _decreases,
        Rule.ABORTED_READ: _is_of_aborted,
        Rule.PRECOMMITTED_READ: _is_precommitted,
        Rule.EARLY_READ: _is_early,
        Rule.TORN_TRANSACTION: _is_torn,
        Rule.DOUBLE_PROCESSING: _is_processed_twice,
        Rule.ABORT_REWIND: _continues_after_abort,
        Rule.HANGING_TRANSACTION: _hangs,
        Rule.STUCK: _is_stuck,
        Rule.SILENT_RESET: _is_reset,
        Rule.EARLY_RETENTION: _is_early_retention,
        Rule.RESURRECTED_RECORD: _is_resurrected,
        Rule.REPLICA_DIVERGENCE: _diverges,
        Rule.TOPIC_REBORN: _is_reborn,
        Rule.REJECTED_RECORD_READ: _is_rejected,
        Rule.EPOCH_SAFETY: _has_newer_record,
    }.items()
}
