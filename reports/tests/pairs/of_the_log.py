"""Pairs of the rules about the records of the log and their retention."""

from typing import Any

from highwater.reports.tests.histories import History
from highwater.reports.tests.pairs.scenario import anomaly, begin, end, fetched, near_miss, op, read_all, sent, wait


@anomaly(1)
def a_different_map_is_at_the_same_offset(h: History) -> None:
    _map_then(h, {"x": 1, "y": 3})


@near_miss(1)
def a_map_has_its_entries_in_another_order(h: History) -> None:
    _map_then(h, {"y": 2, "x": 1})


def _map_then(h: History, other: dict[str, int]) -> None:
    h.begin(2, "send", value={"x": 1, "y": 3})
    h.begin(1, "send", value={"x": 1, "y": 2})
    h.end(1, offset=0)
    fetched(h, (0, {"x": 1, "y": 2}))
    fetched(h, (0, other))
    h.end(2, "info")


@anomaly(2)
def a_record_is_acknowledged_at_one_offset_and_read_at_two(h: History) -> None:
    sent(h, 3)
    h.fetch(0, (0, 1), (1, 2), (2, 3), (5, 2), end=6)


@near_miss(2)
def a_text_differs_from_the_same_number(h: History) -> None:
    h.begin(1, "send", value="1")
    h.send(1, 0)
    h.end(1, offset=1)
    fetched(h, (0, 1), (1, "1"))


@anomaly(3)
def a_poll_of_unknown_outcome_returns_a_value_never_sent(h: History) -> None:
    h.send(1, 0)
    h.assign(position=0)
    h.poll((0, 1), (1, 99), kind="info")
    read_all(h, 1)


@near_miss(3)
def a_value_is_read_whose_send_never_returned(h: History) -> None:
    h.send(1, 0)
    h.begin(5, "send", value=99)
    h.fetch(0, (0, 1), (1, 99), end=2)


@anomaly(4)
def a_record_of_a_committed_transaction_is_skipped(h: History) -> None:
    _transaction_is_skipped(h, "ok")


@near_miss(4)
def a_record_of_an_unknown_transaction_may_be_skipped(h: History) -> None:
    _transaction_is_skipped(h, "info")


def _transaction_is_skipped(h: History, outcome: str) -> None:
    begin(h, 1)
    h.send(1, 0, txn=1)
    end(h, 1, kind=outcome)
    h.send(2, 2)
    h.fetch(0, (2, 2), end=3)


@anomaly(5)
def no_reader_reaches_the_last_record(h: History) -> None:
    sent(h, 3)
    h.assign(position=0)
    h.poll((0, 1), (1, 2))


@near_miss(5)
def the_deletion_of_the_record_was_requested(h: History) -> None:
    sent(h, 2)
    op(h, 3, "delete_records", offset=2)
    h.fetch(2, end=2)


@anomaly(5, "below the log start")
def a_record_was_sent_behind_the_deletion_of_its_offset(h: History) -> None:
    sent(h, 1)
    op(h, 3, "delete_records", offset=2)
    h.send(2, 1)
    h.fetch(2, end=2)


@near_miss(5, "below the log start")
def a_record_was_sent_during_the_deletion_of_its_offset(h: History) -> None:
    sent(h, 1)
    h.begin(3, "delete_records", offset=2)
    h.send(2, 1)
    h.end(3)
    h.fetch(2, end=2)


@anomaly(10)
def sends_of_a_transaction_are_appended_in_another_order(h: History) -> None:
    _two_at_once(h, txn=1)


@near_miss(10)
def overlapping_sends_are_appended_in_any_order(h: History) -> None:
    _two_at_once(h)


def _two_at_once(h: History, txn: int | None = None) -> None:
    begin(h, 1)
    for sequence in (0, 1):
        h.begin(sequence, "send", value=sequence + 1, txn=txn, sequence=sequence)
    h.end(0, offset=1)
    h.end(1, offset=0)
    end(h, 1)
    h.fetch(0, (0, 2), (1, 1), end=3)


@anomaly(12)
def the_third_overtakes_the_second(h: History) -> None:
    _pipelined(h, (0, 0, 0), (1, 2, 0), (2, 1, 0))


@near_miss(12)
def a_new_producer_epoch_restarts_the_order(h: History) -> None:
    _pipelined(h, (1, 0, 0), (2, 1, 0), (0, 2, 1))


def _pipelined(h: History, *sends: tuple[int, int, int]) -> None:
    for sequence, _, epoch in sends:
        h.begin(sequence, "send", value=sequence + 1, producer_id=9, producer_epoch=epoch, sequence=sequence)
    for sequence, offset, _ in sends:
        h.end(sequence, offset=offset)
    h.fetch(0, *sorted((offset, sequence + 1) for sequence, offset, _ in sends), end=3)


@anomaly(12, "of unknown outcome")
def a_record_of_unknown_outcome_is_overtaken(h: History) -> None:
    _times_out(h, 1)


@near_miss(12, "of unknown outcome")
def a_record_of_unknown_outcome_is_not_overtaken(h: History) -> None:
    _times_out(h, 0)


def _times_out(h: History, offset: int) -> None:
    producer: dict[str, Any] = {"producer_id": 9, "producer_epoch": 0}
    h.begin(0, "send", value=1, sequence=0, **producer)
    h.begin(1, "send", value=2, sequence=1, **producer)
    h.end(1, offset=1 - offset)
    h.end(0, "info")
    h.send(3, 2, sequence=2, **producer)
    h.fetch(0, *sorted([(offset, 1), (1 - offset, 2), (2, 3)]), end=3)


@anomaly(12, "of an older producer epoch")
def a_fenced_producer_writes_behind_its_successor(h: History) -> None:
    _fenced_at(h, 1)


@near_miss(12, "of an older producer epoch")
def a_producer_wrote_before_its_successor(h: History) -> None:
    _fenced_at(h, 0)


def _fenced_at(h: History, offset: int) -> None:
    h.begin(0, "send", value=1, producer_id=9, producer_epoch=0)
    h.begin(1, "send", value=2, producer_id=9, producer_epoch=1)
    h.begin(2, "send", value=3, producer_id=8, producer_epoch=0)
    h.end(1, offset=1 - offset)
    h.end(0, offset=offset)
    h.end(2, offset=2)
    h.fetch(0, *sorted([(offset, 1), (1 - offset, 2), (2, 3)]), end=3)


@anomaly(13)
def a_reader_returns_the_offset_of_a_send_of_unknown_outcome(h: History) -> None:
    h.send(1, 5)
    h.begin(2, "send", value=2)
    h.end(2, "info")
    h.fetch(4, (4, 2), (5, 1), end=6)


@near_miss(13)
def the_send_had_begun_before(h: History) -> None:
    h.begin(2, "send", value=2)
    h.send(1, 5)
    h.end(2, "info")
    h.fetch(4, (4, 2), (5, 1), end=6)


@anomaly(34, retention=True, retention_ms=30)
def the_log_start_passes_a_young_record(h: History) -> None:
    _retained(h, young=True)


@near_miss(34, retention=True, retention_ms=30)
def the_log_start_passes_old_records(h: History) -> None:
    _retained(h, young=False)


def _retained(h: History, *, young: bool) -> None:
    """Record a fetch whose response has the log start offset but no high watermark."""
    for offset in range(3):
        h.send(offset + 1, offset, timestamp_ms=40 if young and offset == 1 else 0)
    wait(h, 40)
    fetched(h, (2, 3), position=2, log_start_offset=2)


@anomaly(34, "behind the high watermark")
def the_log_start_passes_a_record_that_was_sent_after_the_deletion(h: History) -> None:
    _deleted_to_the_high_watermark(h, 2)


@near_miss(34, "behind the high watermark")
def the_log_start_stops_at_the_record_that_was_sent_after_the_deletion(h: History) -> None:
    _deleted_to_the_high_watermark(h, 1)


def _deleted_to_the_high_watermark(h: History, log_start_offset: int) -> None:
    sent(h, 1)
    op(h, 3, "delete_records", offset=-1)
    h.send(2, 1)
    h.send(3, 2)
    fetched(h, *((1, 2), (2, 3))[log_start_offset - 1 :], position=log_start_offset, log_start_offset=log_start_offset)


@anomaly(35, compaction=True)
def a_cleaned_record_returns(h: History) -> None:
    _cleaned(h, (0, 1), (2, 3))


@near_miss(35, compaction=True)
def the_cleaner_takes_the_tombstone_last(h: History) -> None:
    _cleaned(h, (2, 3))


def _cleaned(h: History, *then: tuple[int, int]) -> None:
    h.send(1, 0, key="k")
    op(h, 0, "send", key="k", offset=1)
    h.send(3, 2, key="other")
    fetched(h, (1, None), (2, 3), leader_epoch=1)
    fetched(h, *then, leader_epoch=1)


@anomaly(35, "below the log start")
def a_deleted_record_returns(h: History) -> None:
    _deleted(h, position=0)


@near_miss(35, "below the log start")
def a_batch_begins_below_the_position(h: History) -> None:
    _deleted(h, position=1)


def _deleted(h: History, position: int) -> None:
    sent(h, 2)
    op(h, 3, "delete_records", offset=1)
    h.fetch(1, (1, 2), end=2, log_start_offset=1)
    h.fetch(position, (0, 1), (1, 2), end=2)


@anomaly(36)
def one_of_three_replicas_holds_another_value(h: History) -> None:
    _dumps(h, (3, 2, 1), 2)


@near_miss(36)
def it_differs_above_its_own_high_watermark(h: History) -> None:
    _dumps(h, (3, 2, 1), 1)


def _dumps(h: History, values: tuple[int, ...], high_watermark: int) -> None:
    sent(h, 1)
    for value in values:
        h.begin(value, "send", value=value + 10)
    for node, value in enumerate(values):
        held = [[0, 1], [1, value + 10]]
        op(h, 90, "log_dump", result=held, node=str(node), position=0, high_watermark=high_watermark)
    read_all(h, 1)


@anomaly(36, "and a client")
def a_replica_holds_another_value_than_was_read(h: History) -> None:
    _dumped_and_read(h, 3)


@near_miss(36, "and a client")
def a_replica_holds_the_value_that_was_read(h: History) -> None:
    _dumped_and_read(h, 2)


def _dumped_and_read(h: History, value: int) -> None:
    op(h, 5, "send", 3, kind="info")
    sent(h, 2)
    read_all(h, 2)
    op(h, 90, "log_dump", result=[[0, 1], [1, value]], node="1", position=0, high_watermark=2)


@anomaly(38)
def a_record_of_another_id_is_read(h: History) -> None:
    _of_ids(h, (0, 1))


@near_miss(38)
def a_record_of_its_own_id_is_read(h: History) -> None:
    _of_ids(h, (0, 2))


def _of_ids(h: History, read: tuple[int, int]) -> None:
    op(h, 1, "send", 1, offset=0, topic_id="A")
    op(h, 1, "delete_topic")
    op(h, 1, "create_topic", topic_id="B")
    h.begin(5, "send", value=2, topic_id="B")
    fetched(h, read, topic_id="B", high_watermark=1)
    h.end(5, "info")


@anomaly(39)
def a_reply_contains_a_record_beyond_its_own_end(h: History) -> None:
    _reads_two_records(h, 1)


@near_miss(39)
def a_reply_contains_the_last_record_before_its_own_end(h: History) -> None:
    _reads_two_records(h, 2)


def _reads_two_records(h: History, end: int) -> None:
    sent(h, 2)
    h.fetch(0, (0, 1), (1, 2), end=2, epoch=0)
    h.fetch(0, (0, 1), (1, 2), end=end, epoch=1)


@anomaly(40)
def a_last_stable_offset_is_above_the_high_watermark(h: History) -> None:
    _reports_ends(h, 2)


@near_miss(40)
def a_last_stable_offset_is_at_the_high_watermark(h: History) -> None:
    _reports_ends(h, 1)


def _reports_ends(h: History, stable: int) -> None:
    sent(h, 2)
    h.fetch(0, (0, 1), (1, 2), end=2, epoch=0)
    h.fetch(0, (0, 1), end=1, epoch=1, last_stable_offset=stable)


@anomaly(41)
def a_rejected_record_is_read(h: History) -> None:
    _rejected_then(h, "fail")


@near_miss(41)
def a_rejected_record_is_read_after_it_was_sent_again(h: History) -> None:
    _rejected_then(h, "info")


def _rejected_then(h: History, outcome: str) -> None:
    h.send(1, kind="fail")
    h.send(1, kind=outcome)
    h.fetch(0, (0, 1), end=1)


@anomaly(42, complete=True)
def an_offset_before_a_transaction_is_free(h: History) -> None:
    _around_a_transaction(h, 2)


@near_miss(42, complete=True)
def the_offset_behind_a_transaction_has_its_marker(h: History) -> None:
    _around_a_transaction(h, 1)


def _around_a_transaction(h: History, offset: int) -> None:
    """Record a record at offset 0, and a transaction with one at this offset."""
    h.send(2, 0, process=2)
    begin(h, 1)
    h.send(1, offset, txn=1)
    end(h, 1)
    h.fetch(0, (0, 2), (offset, 1), end=offset + 2)


@anomaly(42, "of a repeated record", complete=True, isolation="read_uncommitted")
def a_record_is_written_once_by_an_idempotent_client(h: History) -> None:
    h.send(1, 0)
    h.fetch(0, (0, 1), end=2)


@near_miss(42, "of a repeated record", complete=True, idempotence=False, isolation="read_uncommitted")
def a_record_may_be_written_twice_by_another_client(h: History) -> None:
    h.send(1, 0)
    h.fetch(0, (0, 1), end=2)


@anomaly(13, "of an unknown place")
def a_record_has_no_room_before_a_later_one(h: History) -> None:
    _before_later_ones(h, 0)


@near_miss(13, "of an unknown place")
def a_record_has_room_before_a_later_one(h: History) -> None:
    _before_later_ones(h, 1)


def _before_later_ones(h: History, first: int) -> None:
    """Record an acknowledged send of an aborted transaction whose offset is not known, and later sends."""
    begin(h, 1)
    h.send(1, txn=1)
    end(h, 1, "abort")
    for value in (2, 3):
        h.send(value, first + value - 2, process=2)
    h.fetch(first, (first, 2), (first + 1, 3), end=first + 3)
