"""Pairs of what proves an anomaly, and what does not: isolation levels, invocations, empty replies and outcomes."""

from typing import Any, Final

from highwater.reports.tests.histories import History
from highwater.reports.tests.pairs.scenario import (
    KEY,
    anomaly,
    begin,
    commit,
    committed,
    end,
    event,
    fetched,
    near_miss,
    op,
    read_all,
    sent,
    wait,
)

LAST_SEQUENCE: Final = (1 << 31) - 1


# -- isolation levels --------------------------------------------------------------------------------


@anomaly(6, "of a read_uncommitted reader")
def an_open_record_is_skipped_by_a_read_uncommitted_reader(h: History) -> None:
    _skips_an_open_record(h, "read_uncommitted")


@near_miss(6, "of a read_uncommitted reader")
def an_open_record_is_skipped_by_a_read_committed_reader(h: History) -> None:
    _skips_an_open_record(h, "read_committed")


def _skips_an_open_record(h: History, isolation: str) -> None:
    h.send(1, 0)
    begin(h, 1)
    h.send(2, 1, txn=1)
    fetched(h, (0, 1), (1, 2), isolation="read_uncommitted")
    end(h, 1, "abort")
    h.send(3, 3)
    fetched(h, (0, 1), (3, 3), isolation=isolation)


@anomaly(4, "of an aborted transaction")
def an_acknowledged_record_of_an_aborted_transaction_is_passed_by_a_read_uncommitted_reader(h: History) -> None:
    _passes_an_aborted_record(h, "read_uncommitted")


@near_miss(4, "of an aborted transaction")
def an_acknowledged_record_of_an_aborted_transaction_is_passed_by_a_read_committed_reader(h: History) -> None:
    _passes_an_aborted_record(h, "read_committed")


def _passes_an_aborted_record(h: History, isolation: str) -> None:
    begin(h, 1)
    h.send(1, 0, txn=1)
    end(h, 1, "abort")
    h.send(2, 2)
    fetched(h, (2, 2), isolation=isolation)


@anomaly(33, "of a read_uncommitted group", isolation="read_uncommitted")
def a_read_uncommitted_group_resumes_behind_an_aborted_record(h: History) -> None:
    _resumes_behind_an_aborted_record(h)


@near_miss(33, "of a read_uncommitted group", isolation="read_committed")
def a_read_committed_group_resumes_behind_an_aborted_record(h: History) -> None:
    _resumes_behind_an_aborted_record(h)


def _resumes_behind_an_aborted_record(h: History) -> None:
    h.send(1, 0)
    begin(h, 1)
    h.send(2, 1, txn=1)
    end(h, 1, "abort")
    h.send(3, 3)
    fetched(h, (0, 1), (1, 2), (3, 3), isolation="read_uncommitted")
    event(h, 51, "assign", value=[KEY], group="g")
    h.poll((0, 1), process=51)
    commit(h, 1, process=51)
    event(h, 51, "revoke", value=[KEY], group="g")
    event(h, 52, "assign", value=[KEY], group="g")
    h.poll((3, 3), process=52)


@anomaly(41, "of a committed transaction")
def a_rejected_record_of_a_committed_transaction_is_read(h: History) -> None:
    _sends_in_a_transaction(h, "fail")


@near_miss(41, "of a committed transaction")
def a_record_of_unknown_outcome_of_a_committed_transaction_is_read(h: History) -> None:
    _sends_in_a_transaction(h, "info")


def _sends_in_a_transaction(h: History, outcome: str) -> None:
    begin(h, 1)
    h.send(1, txn=1, kind=outcome)
    end(h, 1)
    fetched(h, (0, 1))


@anomaly(17, "of a read that states its level", isolation=None)
def a_reader_that_states_read_committed_receives_an_aborted_record(h: History) -> None:
    _receives_an_aborted_record(h, "read_committed")


@near_miss(17, "of a read that states its level", isolation=None)
def a_reader_that_states_read_uncommitted_receives_an_aborted_record(h: History) -> None:
    _receives_an_aborted_record(h, "read_uncommitted")


def _receives_an_aborted_record(h: History, isolation: str) -> None:
    begin(h, 1)
    h.send(1, 0, txn=1)
    end(h, 1, "abort")
    fetched(h, (0, 1), isolation=isolation)


@anomaly(20, "of reads that state their level", isolation=None)
def a_reader_that_states_read_committed_skips_half_of_a_transaction(h: History) -> None:
    _half_of_a_transaction(h, 0)


@near_miss(20, "of reads that state their level", isolation=None)
def a_reader_that_states_read_committed_skips_a_transaction(h: History) -> None:
    _half_of_a_transaction(h, 1)


def _half_of_a_transaction(h: History, begin_: int) -> None:
    begin(h, 1)
    for offset in (0, 1):
        h.send(offset + 1, offset, txn=1)
    end(h, 1, kind="info")
    h.send(4, 3)
    fetched(h, *((0, 1), (3, 4))[begin_:], isolation="read_committed")


# -- when an operation was invoked, and what an empty reply proves -----------------------------------------


@anomaly(6, "in the final phase")
def a_fetch_of_the_final_phase_ends_before_a_record_that_was_read(h: History) -> None:
    sent(h, 1)
    read_all(h, 1)
    h.phase("final")
    h.fetch(0, end=0, epoch=1)


@near_miss(6, "in the final phase")
def a_fetch_that_began_before_the_record_was_sent_ends_in_the_final_phase(h: History) -> None:
    h.begin(61, "fetch", position=0, leader_epoch=1)
    sent(h, 1)
    read_all(h, 1)
    h.phase("final")
    h.end(61, value=[], high_watermark=0)


@anomaly(6, "an empty reply")
def an_empty_fetch_at_the_end_of_the_log_shows_that_a_record_is_gone(h: History) -> None:
    sent(h, 2)
    read_all(h, 2)
    h.phase("final")
    h.fetch(1, end=1, epoch=1)


@near_miss(6, "an empty reply")
def an_empty_poll_shows_nothing(h: History) -> None:
    sent(h, 2)
    read_all(h, 2)
    h.phase("final")
    h.assign(position=1)
    h.begin(50, "poll")
    h.end(50, value={})


@anomaly(29, "by a late reply", transaction_timeout_ms=30)
def a_transaction_is_still_open_when_a_late_reply_is_requested(h: History) -> None:
    _stays_open(h, before_ms=40, during_ms=0)


@near_miss(29, "by a late reply", transaction_timeout_ms=30)
def a_reply_that_was_requested_in_time_comes_late(h: History) -> None:
    _stays_open(h, before_ms=0, during_ms=40)


def _stays_open(h: History, *, before_ms: int, during_ms: int) -> None:
    begin(h, 1)
    h.send(1, 0, txn=1)
    fetched(h, position=1, high_watermark=1, last_stable_offset=0)
    h.send(2, 1)
    wait(h, before_ms)
    h.begin(61, "fetch", position=2)
    wait(h, during_ms)
    h.end(61, value=[], high_watermark=2, last_stable_offset=0)
    fetched(h, (0, 1), (1, 2), isolation="read_uncommitted")


@anomaly(4, "of an unknown place")
def reads_pass_the_whole_log_without_a_record_that_was_acknowledged_without_an_offset(h: History) -> None:
    _reads_the_whole_log(h, (1, 3))


@near_miss(4, "of an unknown place")
def one_of_the_reads_of_the_whole_log_has_the_record(h: History) -> None:
    _reads_the_whole_log(h, (1, 2))


def _reads_the_whole_log(h: History, second: tuple[int, int]) -> None:
    h.send(1, 0)
    h.send(2)
    h.begin(1, "send", value=3)
    h.end(1, "info")
    h.phase("final")
    h.fetch(0, (0, 1), end=2)
    h.fetch(1, second, end=2)


# -- what an anomaly or a read proves ----------------------------------------------------------------------


@anomaly(25, "at an offset that no client committed")
def an_offset_that_no_client_committed_is_fetched_after_a_larger_commit(h: History) -> None:
    commit(h, 5)
    committed(h, 3)


@near_miss(25, "at an offset that no client committed")
def an_offset_whose_commit_timed_out_is_fetched_after_a_larger_commit(h: History) -> None:
    commit(h, 5)
    op(h, 9, "commit", {KEY: 3}, group="g", kind="info")
    committed(h, 3)


@anomaly(37, "that no client committed")
def an_offset_that_no_client_committed_is_fetched(h: History) -> None:
    commit(h, 5)
    committed(h, 7)


@near_miss(37, "that no client committed")
def an_offset_from_before_the_history_is_fetched(h: History) -> None:
    committed(h, 7)
    commit(h, 9)


@anomaly(22, "of an outcome that a read shows")
def two_transactions_process_a_record_and_the_output_of_both_is_read(h: History) -> None:
    _outputs(h, (1, 11), (3, 12))


@near_miss(22, "of an outcome that a read shows")
def two_transactions_process_a_record_and_only_the_output_of_the_second_is_read(h: History) -> None:
    _outputs(h, (3, 12))


@anomaly(22, "of an outcome that a fetched offset shows")
def two_transactions_process_a_record_and_the_offset_of_the_first_is_fetched(h: History) -> None:
    _outputs(h, (1, 11), (3, 12), isolation="read_uncommitted", fetched_offset=1)


@near_miss(22, "of an outcome that a fetched offset shows")
def two_transactions_process_a_record_and_no_offset_is_fetched(h: History) -> None:
    _outputs(h, (1, 11), (3, 12), isolation="read_uncommitted", fetched_offset=-1)


def _outputs(
    h: History, *read: tuple[int, int], isolation: str = "read_committed", fetched_offset: int | None = None
) -> None:
    """Let two transactions process record 0; the commit of the first times out."""
    h.send(1, 0)
    for txn, kind in ((1, "info"), (2, "ok")):
        begin(h, txn)
        event(h, 50 + txn, "assign", value=[KEY], position=0)
        op(h, 50 + txn, "poll", result={KEY: [[0, 1]]}, txn=txn, group="g")
        h.send(10 + txn, 2 * txn - 1, txn=txn)
        op(h, 50 + txn, "send_offsets", {KEY: txn}, txn=txn, group="g")
        end(h, txn, kind=kind)
        if txn == 1 and fetched_offset is not None:
            committed(h, fetched_offset)
    fetched(h, (0, 1), *read, isolation=isolation)


@anomaly(26, "in one generation")
def two_members_hold_a_partition_in_one_generation(h: History) -> None:
    _held_by(h, (1, "a"), (1, "b"))


@near_miss(26, "in one generation")
def a_static_member_is_replaced_in_one_generation(h: History) -> None:
    _held_by(h, (1, "a"), (1, "a"))


def _held_by(h: History, *members: tuple[int, str]) -> None:
    for process, (generation, member) in enumerate(members, 51):
        event(h, process, "assign", value=[KEY], group="g", generation_id=generation, instance_id=member)


# -- offsets, epochs and sequences ---------------------------------------------------------------------------


@anomaly(28, "along a log")
def a_record_is_acknowledged_in_an_older_epoch_than_the_one_before_it(h: History) -> None:
    _acknowledged_in(h, 1, 0)


@near_miss(28, "along a log")
def a_record_is_acknowledged_in_a_newer_epoch_than_the_one_before_it(h: History) -> None:
    _acknowledged_in(h, 0, 1)


def _acknowledged_in(h: History, *epochs: int) -> None:
    for offset, epoch in enumerate(epochs):
        h.send(offset + 1, offset, leader_epoch=epoch)
    h.fetch(0, (0, 1), (1, 2), end=2, epoch=None)


@anomaly(28, "in a reply")
def a_reply_of_the_former_leader_has_a_record_that_was_sent_after_the_election(h: History) -> None:
    _replied_in(h, 0)


@near_miss(28, "in a reply")
def a_reply_of_the_former_leader_has_older_records(h: History) -> None:
    _replied_in(h, 1)


def _replied_in(h: History, epoch: int) -> None:
    h.send(1, 0)
    h.list_offsets(1, epoch=1)
    h.fetch(0, (0, 1), end=1, epoch=0)
    h.send(2, 1)
    h.fetch(0, (0, 1), (1, 2), end=2, epoch=epoch)


@anomaly(3, "below the position")
def a_batch_begins_with_a_record_that_no_client_sent(h: History) -> None:
    _batch_of(h, 99)


@near_miss(3, "below the position")
def a_batch_begins_with_a_record_below_the_position(h: History) -> None:
    _batch_of(h, 1)


def _batch_of(h: History, first: int) -> None:
    h.begin(1, "send", value=1)
    h.send(2, 1)
    h.end(1, "info")
    h.fetch(1, (0, first), (1, 2), end=2)


@anomaly(2, "of equal values")
def two_sends_of_one_value_are_read_at_three_offsets(h: History) -> None:
    _equal_values(h, 3)


@near_miss(2, "of equal values")
def two_sends_of_one_value_are_read_at_their_offsets(h: History) -> None:
    _equal_values(h, 2)


@anomaly(4, "of equal values")
def one_of_two_records_of_one_value_is_lost(h: History) -> None:
    _equal_values(h, 1)


@near_miss(4, "of equal values")
def both_records_of_one_value_are_read(h: History) -> None:
    _equal_values(h, 2)


def _equal_values(h: History, count: int) -> None:
    for offset in (0, 1):
        h.send(7, offset)
    h.send(8, 3)
    h.fetch(0, *((offset, 7) for offset in range(count)), (3, 8), end=4)


@anomaly(19, "of equal values")
def a_reader_receives_the_record_at_the_offset_of_an_open_transaction(h: History) -> None:
    _open_beside_an_equal_value(h, 0)


@near_miss(19, "of equal values")
def a_reader_receives_the_record_of_another_send_with_the_value_of_an_open_transaction(h: History) -> None:
    _open_beside_an_equal_value(h, 1)


def _open_beside_an_equal_value(h: History, offset: int) -> None:
    begin(h, 1)
    h.send(4, 0, txn=1)
    h.begin(9, "send", value=4)
    fetched(h, (offset, 4), isolation="read_committed")


@anomaly(12, "where sequences wrap")
def the_first_record_after_a_wrap_overtakes_the_last_one_before_it(h: History) -> None:
    _wrapped(h, 1, 0)


@near_miss(12, "where sequences wrap")
def the_first_record_after_a_wrap_is_behind_the_last_one_before_it(h: History) -> None:
    _wrapped(h, 0, 1)


def _wrapped(h: History, *offsets: int) -> None:
    producer: dict[str, Any] = {"producer_id": 9, "producer_epoch": 0}
    for process, sequence in enumerate((LAST_SEQUENCE, 0)):
        h.begin(process, "send", value=process + 1, sequence=sequence, **producer)
    for process, offset in enumerate(offsets):
        h.end(process, offset=offset)
    h.fetch(0, *sorted((offset, process + 1) for process, offset in enumerate(offsets)), end=2)
