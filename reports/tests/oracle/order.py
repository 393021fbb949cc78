"""Rules about the order of sends, and about the ends of the log: 10 to 14, 16, 30, 34, 36, 39 and 40."""

from collections.abc import Iterator
from typing import Final

from highwater.reports.columns import EPOCH_BITS, UNKNOWN_EPOCH, Kind, Status
from highwater.reports.rules.findings import Weight
from highwater.reports.rules.rule import Rule
from highwater.reports.tests.oracle.findings import Findings
from highwater.reports.tests.oracle.history import History, Row
from highwater.reports.tests.oracle.log_start import deletions

LAST_SEQUENCE: Final = (1 << 31) - 1


def disordered_sends(history: History, found: Findings) -> None:
    for later in out_of_order(history):
        found.add(Rule.NONMONOTONIC_SEND, Weight.VIOLATION, later.row)


def previous_in_transaction(history: History, later: Row) -> tuple[Row, int] | None:
    """Return the previous send of the process in the same transaction that may be in the log, with its place."""
    mine = [
        (send, place)
        for send, place in written(history)
        if send.txn == later.txn is not None and send.process == later.process and send.invoked < later.invoked
    ]
    return max(mine, key=lambda pair: pair[0].invoked, default=None)


def out_of_order(history: History) -> list[Row]:
    """Return sends whose offset is not larger than that of the previous one of their process, or transaction."""
    found = []
    for later in history.acknowledged:
        mine = [send for send in history.acknowledged if send.process == later.process and send.precedes(later)]
        in_transaction = [send for send in history.acknowledged if _sent_before_in_transaction(send, later)]
        last_in_transaction = sorted(in_transaction, key=lambda send: send.sequence or 0)[-1:]
        for earlier in [send for send in mine if send.offset is not None][-1:] + last_in_transaction:
            if later.offset is not None and earlier.offset is not None and later.offset <= earlier.offset:
                found.append(later)
    for later, place in written(history):
        previous = previous_in_transaction(history, later)
        if previous is not None and previous[1] > place:
            found.append(later)
    return found


def _sent_before_in_transaction(earlier: Row, later: Row) -> bool:
    if later.txn is None or earlier.txn != later.txn or earlier.offset is None:
        return False
    if earlier.producer is not None or later.producer is not None:  # then rule 12 compares their sequences
        return False
    return earlier.sequence is not None and later.sequence is not None and earlier.sequence < later.sequence


def interleaved_sends(history: History, found: Findings) -> None:
    """Between two successive records of a transaction is one that does not belong to it."""
    known = [(send.offset, send) for send in history.acknowledged if send.offset is not None]
    for offset, send in known:
        before = [other for other, sibling in known if sibling.txn == send.txn and other < offset]
        again = any(other == offset and sibling.row < send.row for other, sibling in known if sibling.txn == send.txn)
        if send.txn is None or not before or again:
            continue
        if any(max(before) < other < offset and stranger.txn != send.txn for other, stranger in known):
            found.add(Rule.INT_SEND_SKIP, Weight.INFORMATION, send.row)


def reordered_sends(history: History, found: Findings) -> None:
    """A send is before the previous one of its producer: among the acknowledged ones, or among all with a place."""
    all_sends = list(sends_with_places(history))
    for sends in ([(send, place) for send, place in all_sends if send.acknowledged], all_sends):
        for later, place in sends:
            previous = previous_of_producer(sends, later)
            if previous is not None and previous[1] > place:
                found.add(Rule.PRODUCER_REORDER, weight_of_order(history, previous[0], later), later.row)


def fenced_sends(history: History, found: Findings) -> None:
    """A send of an older producer epoch is behind one of a newer epoch of the same producer id."""
    known = [
        (send, *divmod(send.producer, 1 << EPOCH_BITS), send.offset)
        for send in history.acknowledged
        if send.producer is not None and send.offset is not None
    ]
    for later, number, epoch, offset in known:
        for _, other_number, newer, other_offset in known:
            if number == other_number and epoch < newer != UNKNOWN_EPOCH and other_offset < offset:
                certain = not later.gave_up or history.kept_its_epoch(later)
                found.add(Rule.PRODUCER_REORDER, Weight.VIOLATION if certain else Weight.UNDECIDED, later.row)


def written(history: History) -> Iterator[tuple[Row, int]]:
    """Return (send, place) of each send that was not rejected and whose place is known."""
    for send in history.sends:
        place = history.place(send)
        if place is not None and not send.rejected:
            yield send, place


def sends_with_places(history: History) -> Iterator[tuple[Row, int]]:
    """Return (send, place) of the sends that rule 12 compares: acknowledged with an offset, or of unknown outcome."""
    for send in history.sends:
        place = send.offset if send.acknowledged else history.place(send) if send.status is Status.INFO else None
        if place is not None and send.producer is not None and send.sequence is not None:
            yield send, place


def previous_of_producer(sends: list[tuple[Row, int]], later: Row) -> tuple[Row, int] | None:
    """Return the previous send of a producer by sequence, with its place."""
    mine = [(send, place) for send, place in sends if send.producer == later.producer]
    order = in_order([send.sequence or 0 for send, _ in mine])
    before = [each for each in mine if order.index(each[0].sequence or 0) < order.index(later.sequence or 0)]
    return max(before, key=lambda send_and_place: order.index(send_and_place[0].sequence or 0), default=None)


def in_order(sequences: list[int]) -> list[int]:
    """Return the sequences of a producer from the first to the last, which is before the largest gap on the circle."""
    known = sorted(set(sequences))
    turns = [known, *([*known[place:], *known[:place]] for place in range(len(known) - 1, 0, -1))]
    if known[-1] >= LAST_SEQUENCE + 1:
        return known
    return max(turns, key=lambda turn: (turn[0] - turn[-1]) % (LAST_SEQUENCE + 1) or LAST_SEQUENCE + 1)


def weight_of_order(history: History, previous: Row, later: Row) -> Weight:
    """Return UNDECIDED if a library may have sent one of two records again under a new producer epoch."""
    unknown = [send for send in (previous, later) if not send.acknowledged]
    return Weight.VIOLATION if all(history.kept_its_epoch(send) for send in unknown) else Weight.UNDECIDED


def decreasing_epochs(history: History, found: Findings) -> None:
    """An operation of one leader epoch has a record of a newer one at or below the last offset that it proves.

    Or it has records at or above the end that ListOffsets of a newer leader returned.
    """
    promise = history.promise
    if (promise.acks_known and not promise.acks_all) or (promise.unclean_known and promise.unclean_election):
        return
    certain = Weight.VIOLATION if promise.acks_all and not promise.unclean_election else Weight.UNDECIDED
    for row in history.epoch_statements:
        if any(lists_end_below(listed, row) for listed in history.replies):
            found.add(Rule.EPOCH_SAFETY, certain, row.row)
        if any(is_behind(history, other, row) for other in history.epoch_statements):
            found.add(Rule.EPOCH_SAFETY, certain, row.row)
        for send in history.sends:
            place = history.place(send)
            if send.rejected or place is None or place >= end_below(row):
                continue
            if any(other.precedes(send) and is_newer(other, row) for other in history.epoch_statements):
                found.add(Rule.EPOCH_SAFETY, certain, row.row)
            elif send.acknowledged and is_newer(send, row):
                found.add(Rule.EPOCH_SAFETY, Weight.UNDECIDED, row.row)


def is_behind(history: History, newer: Row, row: Row) -> bool:
    """Return whether an operation is an acknowledgement of a send that began after a newer epoch was stated.

    The place of its record is unknown.
    """
    return row.acknowledged and history.place(row) is None and newer.precedes(row) and is_newer(newer, row)


def lists_end_below(listed: Row, row: Row) -> bool:
    """Return whether ListOffsets of a newer leader states an end below the records of an operation, not after it."""
    if listed.kind is not Kind.LIST_OFFSETS or listed.high_watermark is None or row.precedes(listed):
        return False
    return is_newer(listed, row) and listed.high_watermark < end_below(row)


def end_below(row: Row) -> int:
    """Return below which offset the leader of an operation has the whole log, as the operation shows."""
    if row.acknowledged:
        return -1 if row.offset is None else row.offset + 1
    ends = [row.high_watermark or 0] if row.replies_as_leader else []
    return max([*ends, row.last + 1 if row.kind is Kind.READ and row.records else 0])


def is_newer(one: Row, other: Row) -> bool:
    return one.leader_epoch is not None and other.leader_epoch is not None and one.leader_epoch > other.leader_epoch


def inverted_sends(history: History, found: Findings) -> None:
    of_rule_10 = out_of_order(history)
    for later in [send for send in history.sends if not send.rejected]:
        place = history.place(later)
        for earlier in history.acknowledged:
            if earlier.offset is None or place is None or not earlier.precedes(later) or place > earlier.offset:
                continue
            if later not in of_rule_10 or earlier.process != later.process:
                found.add(Rule.APPEND_INVERSION, Weight.VIOLATION, later.row)


def stale_reads(history: History, found: Findings) -> None:
    """A reported end is smaller than one that an earlier acknowledgement or record proved."""
    for reply in history.rows:
        if not reply.replies_as_leader:
            continue
        for end, proof in history.record_proofs:
            below = _is_above(end, reply.high_watermark)
            below_stable = history.has_transactions and _is_at_stable_record(history, reply)
            if below or (below_stable and _is_above(end, reply.last_stable_offset)):
                _compare_epochs(history, found, Rule.STALE_READ, proof, reply)
        for end, proof in counts_of_acknowledgements(history):
            if _is_above(end, reply.high_watermark):
                _compare_epochs(history, found, Rule.STALE_READ, proof, reply)
        for end, proof in history.committed_record_proofs:
            if _is_above(end, reply.last_stable_offset):
                _compare_epochs(history, found, Rule.STALE_READ, proof, reply)


def counts_of_acknowledgements(history: History) -> list[tuple[int, Row]]:
    """Return (count, send): how many sends the leader of the same epoch had acknowledged, each at its own offset."""
    if history.promise.acks_known and not history.promise.acks_all:
        return []
    return [
        (sum(o.returned <= send.returned for o in history.acknowledged if o.leader_epoch == send.leader_epoch), send)
        for send in history.acknowledged
    ]


def _is_at_stable_record(history: History, reply: Row) -> bool:
    """Return whether the last stable offset in a reply is that of a record outside transactions.

    It is the high watermark, or the first offset of an open transaction, which this record is not.
    """
    known = [(send.offset, send.txn) for send in history.acknowledged if send.offset is not None]
    there = [txn for offset, txn in known if offset == reply.last_stable_offset]
    return bool(there) and not any(
        txn is not None and min(at for at, other in known if other == txn) == reply.last_stable_offset for txn in there
    )


def _is_above(end: int, reported: int | None) -> bool:
    return reported is not None and end > reported


def decreased_ends(history: History, found: Findings) -> None:
    for reply in history.rows:
        for before in history.rows:
            if not reply.replies_as_leader or not before.replies_as_leader:
                continue
            high, stable = before.high_watermark, before.last_stable_offset
            if (high is not None and _is_above(high, reply.high_watermark)) or (
                stable is not None and _is_above(stable, reply.last_stable_offset)
            ):
                _compare_epochs(history, found, Rule.HIGH_WATERMARK_REGRESSION, before, reply)


def _compare_epochs(history: History, found: Findings, rule: Rule, larger: Row, smaller: Row) -> None:
    if not larger.precedes(smaller):
        return
    before, after = history.epochs(larger), history.epochs(smaller)
    # A new leader answers ListOffsets only when its high watermark has reached the start of its epoch (KIP-207).
    of_new_leader = smaller.kind is Kind.LIST_OFFSETS and before[1] <= after[0]
    if history.is_of_follower(smaller):
        found.add(rule, Weight.INFORMATION, smaller.row)
    elif of_new_leader or (before == after and before[0] == before[1]):
        found.add(rule, Weight.VIOLATION, smaller.row)
    elif before[1] < after[0] or after[1] < before[0] or may_be_of_two_leaders(history, before, after):
        found.add(rule, Weight.INFORMATION, smaller.row)
    else:
        found.add(rule, Weight.UNDECIDED, smaller.row)


def may_be_of_two_leaders(history: History, before: tuple[int, int], after: tuple[int, int]) -> bool:
    """Return whether two operations may be of two different epochs that the history states."""
    stated = {row.leader_epoch or 0 for row in history.epoch_statements}
    return any(
        one != other and before[0] <= one <= before[1] and after[0] <= other <= after[1]
        for one in stated
        for other in stated
    )


def stuck_high_watermarks(history: History, found: Findings) -> None:
    for reply in stuck_replies(history):
        found.add(Rule.STUCK, Weight.VIOLATION, reply.row)


def stuck_replies(history: History) -> list[Row]:
    """Return the last end of the final phase if it is below a record acknowledged in its epoch long before."""
    patience = history.promise.patience_ms
    replies = [row for row in history.rows if row.replies_as_leader and row.quiet and row.high_watermark is not None]
    epoch = max((row.leader_epoch for row in replies if row.leader_epoch is not None), default=None)
    newest = [row for row in replies if row.leader_epoch == epoch is not None and row.at_ms is not None]
    return [
        reply
        for reply in newest[-1:]
        if reply.calm_before_ms is not None and reply.calm_before_ms > patience >= 0
        for send in history.acknowledged
        if send.offset is not None and reply.high_watermark is not None and send.offset >= reply.high_watermark
        if send.precedes(reply) and send.leader_epoch == reply.leader_epoch and _is_older(send, reply, patience)
    ]


def _is_older(send: Row, reply: Row, patience: int) -> bool:
    return send.at_ms is None or reply.at_ms is None or reply.invoked_ms - send.at_ms > patience


def early_retention(history: History, found: Findings) -> None:
    for report in history.rows:
        if not report.succeeded or report.log_start_offset is None:
            continue
        for send, place in written(history):
            if place >= report.log_start_offset:
                continue
            requested = any(row.invoked < report.returned and most > place for row, _, most in deletions(history))
            if not requested and is_young(history, send, report):
                found.add(Rule.EARLY_RETENTION, Weight.VIOLATION, report.log_start_offset)


def is_young(history: History, send: Row, report: Row) -> bool:
    """Return whether retention must still keep a record when a log start is reported."""
    promise = history.promise
    if not promise.retention:
        return True
    if promise.retention_ms < 0 or send.timestamp_ms is None or report.at_ms is None:
        return False
    return promise.started_ms + report.at_ms - send.timestamp_ms < promise.retention_ms


def diverged_replicas(history: History, found: Findings) -> None:
    for one in history.dumps:
        for other in history.dumps:
            if one.high_watermark is None or other.high_watermark is None:
                continue
            for offset in {*one.offsets, *other.offsets}:
                if offset < min(one.high_watermark, other.high_watermark) and _differ(history, one, other, offset):
                    found.add(Rule.REPLICA_DIVERGENCE, Weight.VIOLATION, offset)


def _differ(history: History, one: Row, other: Row, offset: int) -> bool:
    mine = {value for at, value in one.records if at == offset}
    theirs = {value for at, value in other.records if at == offset}
    if mine and theirs:
        return mine != theirs
    return _must_contain(history, one if not mine else other, offset)


def _must_contain(history: History, dump: Row, offset: int) -> bool:
    """Return whether a dump without records at an offset lacks one: the offset is not below its log start."""
    begin = dump.position if dump.position is not None else (dump.first if dump.records else offset + 1)
    return not history.promise.compaction and offset >= begin


def unknown_to_replicas(history: History, found: Findings) -> None:
    """A dump has another value than a client knows, or lacks its record, below its own high watermark."""
    for dump in history.dumps:
        for offset, values in known_to_clients(history):
            if dump.high_watermark is None or offset >= dump.high_watermark:
                continue
            held = {value for at, value in dump.records if at == offset}
            if held != values if held else _must_contain(history, dump, offset):
                found.add(Rule.REPLICA_DIVERGENCE, Weight.VIOLATION, offset)


def known_to_clients(history: History) -> Iterator[tuple[int, set[int]]]:
    """Return (offset, values) of each acknowledged send, with `acks=all`, and of each successful read."""
    for send in history.acknowledged:
        if history.promise.acks_all and send.offset is not None and send.value is not None:
            yield send.offset, {send.value}
    for read in history.reads:
        for offset in set(read.offsets) if read.succeeded else set():
            yield offset, {value for at, value in read.records if at == offset}


def reads_beyond_end(history: History, found: Findings) -> None:
    for read in history.reads:
        if not read.succeeded:
            continue
        if read.high_watermark is not None and read.last >= read.high_watermark:
            found.add(Rule.READ_BEYOND_END, Weight.UNDECIDED, read.row)
        if not history.is_read_committed(read) or read.last_stable_offset is None:
            continue
        if read.last >= read.last_stable_offset:
            found.add(Rule.READ_BEYOND_END, Weight.UNDECIDED, read.row)


def stable_offsets_beyond_end(history: History, found: Findings) -> None:
    for reply in history.rows:
        if not reply.replies_as_leader or reply.high_watermark is None or reply.last_stable_offset is None:
            continue
        if reply.last_stable_offset > reply.high_watermark:
            found.add(Rule.STABLE_OFFSET_BEYOND_END, Weight.UNDECIDED, reply.row)


RULES = (
    disordered_sends, interleaved_sends, reordered_sends, fenced_sends, inverted_sends, decreasing_epochs, stale_reads,
    decreased_ends,
    stuck_high_watermarks, early_retention, diverged_replicas, unknown_to_replicas, reads_beyond_end,
    stable_offsets_beyond_end,
)  # fmt: skip
