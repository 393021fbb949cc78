"""Audits of correct histories, and of the same histories with the smallest change that makes an anomaly."""

from pathlib import Path
from typing import Any

import pytest

from highwater.reports.tests.histories import History
from highwater.reports.tests.scenarios import KEY, Row, Scenarios, begin, check, end, event, leave, member, op

SCENARIOS = Scenarios()
scenario = SCENARIOS.scenario


# Values that were sent more than once.


@scenario()
def resent_after_a_time_out(h: History) -> None:
    h.send(1, kind="info")
    h.send(1, 0)
    h.assign(position=0)
    h.poll((0, 1))


@scenario()
def resent_after_a_rejection(h: History) -> None:
    h.send(1, kind="fail")
    h.send(1, 0)
    h.assign(position=0)
    h.poll((0, 1))


@scenario(41)
def rejected_each_time_and_read(h: History) -> None:
    h.send(1, kind="fail")
    h.send(1, kind="fail")
    h.fetch(0, (0, 1), end=1)


@scenario()
def resent_in_another_transaction(h: History) -> None:
    for txn, offset, how in ((1, 0, "abort"), (2, 2, "commit")):
        begin(h, txn)
        h.send(1, offset, txn=txn)
        end(h, txn, how)
    h.fetch(0, (2, 1), end=4)


def _skipped_after_two_attempts(h: History, how: str, isolation: str) -> None:
    """Record two sends of one value in transactions, a reader that receives it, and one that skips it."""
    h.send(1, 0)
    for txn, ends in ((1, "commit"), (2, how)):
        begin(h, txn)
        h.send(7, txn=txn, kind="info")
        end(h, txn, ends)
    h.send(2, 2)
    h.poll((0, 1), (1, 7), (2, 2), process=51)
    h.begin(52, "poll", isolation=isolation)
    h.end(52, value={"t-0": [[0, 1], [2, 2]]})


@scenario(9, isolation="read_uncommitted")
def a_record_of_one_of_two_committed_transactions_is_skipped(h: History) -> None:
    _skipped_after_two_attempts(h, "commit", "read_committed")


@scenario(9, isolation="read_uncommitted")
def a_read_uncommitted_reader_skips_a_record_perhaps_of_an_aborted_transaction(h: History) -> None:
    _skipped_after_two_attempts(h, "abort", "read_uncommitted")


@scenario(isolation="read_uncommitted")
def a_record_perhaps_of_an_aborted_transaction_is_skipped(h: History) -> None:
    _skipped_after_two_attempts(h, "abort", "read_committed")


@scenario(17)
def the_aborted_attempt_is_read(h: History) -> None:
    for txn, offset, how in ((1, 0, "abort"), (2, 2, "commit")):
        begin(h, txn)
        h.send(1, offset, txn=txn)
        end(h, txn, how)
    h.fetch(0, (0, 1), end=4)


@scenario()
def an_aborted_record_that_was_seen_is_sent_again_by_a_client_without_offsets(h: History) -> None:
    for txn, position, isolation in ((1, 0, "read_uncommitted"), (2, 2, "read_committed")):
        begin(h, txn)
        h.send(1, txn=txn)
        h.begin(60, "fetch", position=position, isolation=isolation)
        if txn == 1:
            h.end(60, value=[[0, 1]], high_watermark=1)
        end(h, txn, "abort" if txn == 1 else "commit")
        if txn == 2:
            h.end(60, value=[[2, 1]], high_watermark=4)


@scenario(4)
def lost_although_sent_twice(h: History) -> None:
    h.send(1, kind="info")
    h.send(1, 0)
    h.send(2, 1)
    h.fetch(0, (1, 2), end=2)


def _aborted_and_committed(h: History, committed: int) -> None:
    """Record one value in an aborted transaction and in a committed one, which read_committed has at an offset."""
    for txn, how in ((1, "abort"), (2, "commit")):
        begin(h, txn)
        h.send(7, txn=txn, kind="info")
        if txn == 1:
            h.begin(60, "fetch", position=0, isolation="read_uncommitted")
            h.end(60, value=[[0, 7]], high_watermark=1)
        end(h, txn, how)
    h.send(1, 1)
    h.begin(61, "fetch", position=committed, isolation="read_committed")
    h.end(61, value=[[committed, 7]], high_watermark=4)
    h.fetch(0, (1, 1), end=5)


@scenario()
def the_aborted_one_of_two_equal_values_is_skipped(h: History) -> None:
    _aborted_and_committed(h, 3)


@scenario(6)
def the_committed_one_of_two_equal_values_is_skipped(h: History) -> None:
    _aborted_and_committed(h, 0)


def _in_one_transaction(h: History, *offsets: int) -> None:
    """Record two sends of a transaction, the first of unknown outcome, and their records."""
    begin(h, 1)
    h.send(1, txn=1, kind="info")
    h.send(2, offsets[1], txn=1)
    end(h, 1)
    h.fetch(0, *sorted(zip(offsets, (1, 2), strict=True)), end=3)


@scenario(10)
def a_record_of_a_transaction_is_before_that_of_an_earlier_send(h: History) -> None:
    _in_one_transaction(h, 1, 0)


@scenario()
def the_records_of_a_transaction_are_in_the_order_of_its_sends(h: History) -> None:
    _in_one_transaction(h, 0, 1)


def _twice(h: History, txn: int | None) -> None:
    """Record a send that is acknowledged at offset 0, and read there and at offset 1."""
    begin(h, 1)
    h.send(1, 0, txn=txn)
    end(h, 1)
    h.fetch(0, (0, 1), (1, 1), end=3)


@scenario(2, idempotence=False)
def a_record_of_a_transaction_is_there_twice(h: History) -> None:
    _twice(h, 1)


@scenario(idempotence=False)
def a_record_outside_of_transactions_is_there_twice(h: History) -> None:
    _twice(h, None)


@scenario(28)
def a_former_leader_acknowledges_a_later_send_without_an_offset(h: History) -> None:
    _acknowledged_without_an_offset(h, 1)


@scenario()
def a_leader_acknowledges_a_later_send_without_an_offset(h: History) -> None:
    _acknowledged_without_an_offset(h, 2)


def _acknowledged_without_an_offset(h: History, epoch: int) -> None:
    """Record an aborted send that is acknowledged by the leader of this epoch, after a reply of epoch 2."""
    h.fetch(0, end=0, epoch=2)
    begin(h, 1)
    h.begin(0, "send", value=1, txn=1)
    h.end(0, leader_epoch=epoch)
    end(h, 1, "abort")


@scenario(4, idempotence=False)
def an_acknowledged_record_is_read_elsewhere_only(h: History) -> None:
    h.send(1, 1)
    h.send(2, 2, process=2)
    h.fetch(0, (0, 1), (2, 2), end=3)


@scenario(idempotence=False)
def an_acknowledged_record_is_read_elsewhere_too(h: History) -> None:
    h.send(1, 1)
    h.send(2, 2, process=2)
    h.fetch(0, (0, 1), (1, 1), (2, 2), end=3)


def _assigned_at(h: History, position: int) -> None:
    h.send(1, 0)
    h.send(2, 1)
    h.assign(position=position)
    h.poll((0, 1), (1, 2))


@scenario(7)
def a_poll_begins_below_its_assigned_position(h: History) -> None:
    _assigned_at(h, 1)


@scenario()
def a_poll_begins_at_its_assigned_position(h: History) -> None:
    _assigned_at(h, 0)


# Transactions and the last stable offset.


def _passed_by_the_stable_offset(h: History, following: int) -> None:
    """Record a last stable offset behind a transaction, and a record that is sent after that reply."""
    begin(h, 1)
    h.send(1, 0, txn=1, process=1)
    h.send(2, 1, process=2)
    h.fetch(0, (1, 2), end=following, last_stable_offset=2)
    h.send(9, following, process=9)
    h.fetch(0, (1, 2), (following, 9), end=following + 1)


@scenario(19)
def the_marker_of_a_transaction_has_no_place(h: History) -> None:
    _passed_by_the_stable_offset(h, 2)


@scenario()
def the_marker_of_a_transaction_has_a_place(h: History) -> None:
    _passed_by_the_stable_offset(h, 3)


@scenario(19)
def two_markers_have_one_place(h: History) -> None:
    _two_transactions(h, 3)


@scenario()
def two_markers_have_two_places(h: History) -> None:
    _two_transactions(h, 4)


def _two_transactions(h: History, following: int) -> None:
    for txn in (1, 2):
        begin(h, txn)
        h.send(txn, txn - 1, txn=txn, process=txn)
    for txn in (1, 2):
        end(h, txn)
    h.fetch(0, (0, 1), (1, 2), end=following, last_stable_offset=2)
    h.send(9, following, process=9)
    h.fetch(2, (following, 9), end=following + 1)


def _before_its_last_record(h: History, stable: int) -> None:
    """Record a reply while the last record of a transaction is not in the log: the record before it is sent later."""
    begin(h, 1)
    h.send(1, 0, txn=1)
    h.begin(1, "send", value=3, txn=1)
    h.fetch(0, end=1, last_stable_offset=stable)
    h.send(2, 1, process=2)
    h.end(1, offset=2)
    end(h, 1, "abort")
    h.fetch(0, (1, 2), end=4, last_stable_offset=4)


@scenario(19)
def the_stable_offset_passes_a_transaction_whose_last_record_is_appended_later(h: History) -> None:
    _before_its_last_record(h, 1)


@scenario()
def the_stable_offset_is_that_of_a_transaction_whose_last_record_is_appended_later(h: History) -> None:
    _before_its_last_record(h, 0)


@scenario(acks="1")
def a_log_that_may_lose_records_does_not_only_grow(h: History) -> None:
    _before_its_last_record(h, 1)


# Rejected operations.


@scenario()
def a_lost_connection_is_no_rejection(h: History) -> None:
    h.begin(0, "send", value=1)
    h.end(0, "fail", error="NETWORK_EXCEPTION")
    h.fetch(0, (0, 1), end=1)


@scenario()
def fenced_after_a_commit_without_response(h: History) -> None:
    begin(h, 1)
    h.send(1, 0, txn=1)
    end(h, 1, kind="info")
    end(h, 1, kind="fail", error="INVALID_TXN_STATE")
    h.fetch(0, (0, 1), end=2)


@scenario(17)
def a_rejected_commit_has_no_effect(h: History) -> None:
    begin(h, 1)
    h.send(1, 0, txn=1)
    end(h, 1, kind="fail", error="INVALID_TXN_STATE")
    h.fetch(0, (0, 1), end=2)


# Tombstones.


@scenario()
def a_tombstone_of_a_transaction_is_read(h: History) -> None:
    begin(h, 1)
    h.begin(0, "send", value=None, key="k", txn=1)
    h.end(0, offset=0)
    h.send(1, 1, txn=1)
    end(h, 1)
    h.fetch(0, (0, None), (1, 1), end=3)  # type: ignore[arg-type]


@scenario(4)
def a_tombstone_is_lost(h: History) -> None:
    h.send(1, 0, key="k")
    h.begin(0, "send", value=None, key="k")
    h.end(0, offset=1)
    h.send(2, 2, key="other")
    h.fetch(0, (0, 1), (2, 2), end=3)


@scenario(compaction=True)
def a_tombstone_is_aborted(h: History) -> None:
    h.send(1, 0, key="k")
    begin(h, 1)
    h.begin(0, "send", value=None, key="k", txn=1)
    h.end(0, offset=1)
    end(h, 1, "abort")
    h.send(2, 3, key="other")
    h.fetch(0, (0, 1), (3, 2), end=4)


def _deleted_and_written_again(h: History, *records: tuple[int, int]) -> None:
    h.send(1, 0, key="k")
    h.begin(0, "send", value=None, key="k")
    h.end(0, offset=1)
    h.send(2, 2, key="k")
    h.fetch(0, *records, end=3)


@scenario(compaction=True)
def a_deleted_record_is_cleaned_with_its_tombstone(h: History) -> None:
    _deleted_and_written_again(h, (2, 2))


@scenario(35, compaction=True)
def a_record_outlives_its_tombstone_though_its_key_was_written_again(h: History) -> None:
    _deleted_and_written_again(h, (0, 1), (2, 2))


@scenario(35, compaction=True)
def a_record_outlives_the_second_of_two_tombstones(h: History) -> None:
    h.send(1, 0, key=1)
    for offset in (1, 2):
        h.begin(0, "send", value=None, key=1)
        h.end(0, offset=offset)
    h.send(4, 3, key=2)
    h.poll((0, 1), (1, None), (3, 4))


def _cleaned_and_back(h: History, epoch: int) -> None:
    h.send(1, 0, key="k")
    h.send(2, 1, key="k")
    h.fetch(0, (0, 1), (1, 2), end=2, epoch=1)
    h.fetch(0, (1, 2), end=2, epoch=1)
    h.fetch(0, (0, 1), (1, 2), end=2, epoch=epoch)


@scenario(compaction=True)
def a_new_leader_has_not_cleaned_yet(h: History) -> None:
    _cleaned_and_back(h, 2)


@scenario(35, compaction=True)
def the_same_leader_returns_a_cleaned_record_again(h: History) -> None:
    _cleaned_and_back(h, 1)


def _two_of_keys(h: History, *keys: dict[str, int]) -> None:
    for offset, key in enumerate(keys):
        h.send(offset + 1, offset, key=key)
    h.fetch(0, (1, 2), end=2)


@scenario(compaction=True)
def a_map_key_is_written_again(h: History) -> None:
    _two_of_keys(h, {"a": 1, "b": 2}, {"b": 2, "a": 1})


@scenario(4, compaction=True)
def different_maps_are_different_keys(h: History) -> None:
    _two_of_keys(h, {"a": 1, "b": 2}, {"a": 2, "b": 1})


# A stuck end.


def _stuck_below(h: History, *offsets: int) -> None:
    for offset in offsets:
        h.send(offset + 1, offset, leader_epoch=0)
    h.phase("final")
    h.list_offsets(1)


@scenario(14, 30, patience_ms=4)
def an_old_acknowledgement_is_beyond_the_end_and_a_new_one(h: History) -> None:
    h.send(9, 0, leader_epoch=0)
    _stuck_below(h, 1, 2, 3, 4)


@scenario(4, 14, patience_ms=40)
def an_end_below_new_acknowledgements_is_stale_and_not_stuck(h: History) -> None:
    _stuck_below(h, 0, 1)


# Polls of unknown outcome.


def _three(h: History) -> None:
    for offset in range(3):
        h.send(offset + 1, offset)
    h.fetch(0, (0, 1), (1, 2), (2, 3), end=3)


@scenario()
def a_poll_of_unknown_outcome_may_have_advanced(h: History) -> None:
    _three(h)
    h.assign(position=0)
    h.poll((0, 1))
    op(h, 50, "poll", "info")
    h.poll((2, 3))


@scenario(8)
def a_failed_poll_does_not_advance(h: History) -> None:
    _three(h)
    h.assign(position=0)
    h.poll((0, 1))
    op(h, 50, "poll", "fail")
    h.poll((2, 3))


@scenario()
def a_transaction_that_failed_does_not_rewind_its_consumer(h: History) -> None:
    _three(h)
    h.assign(position=0)
    h.poll((0, 1))
    op(h, 50, "poll", "fail", txn=1)
    h.poll((2, 3))


@scenario()
def a_crashed_member_may_have_received_more_records(h: History) -> None:
    _three(h)
    member(h, 51, (0, 1))
    h.begin(51, "poll")
    event(h, 51, "crash")
    member(h, 52, (2, 3))


@scenario(33)
def a_group_skips_a_record_that_no_member_received(h: History) -> None:
    _three(h)
    member(h, 51, (0, 1))
    op(h, 51, "commit", argument={KEY: 1}, result={KEY: 1}, group="g")
    leave(h, 51)
    member(h, 52, (2, 3))


# Committed offsets.


def _resumes_below(h: History, *, reset: bool) -> None:
    _three(h)
    member(h, 51, (0, 1), (1, 2))
    op(h, 51, "commit", argument={KEY: 2}, result={KEY: 2}, group="g")
    leave(h, 51)
    event(h, 52, "assign", "ok", value=[KEY], group="g")
    if reset:
        event(h, 52, "reset", value=[KEY])
    h.poll((0, 1), process=52)


@scenario(25)
def a_member_resumes_below_the_commit(h: History) -> None:
    _resumes_below(h, reset=False)


@scenario()
def a_member_applies_the_reset_policy(h: History) -> None:
    _resumes_below(h, reset=True)


@scenario()
def deleting_a_topic_deletes_its_commits(h: History) -> None:
    op(h, 1, "commit", argument={KEY: 2}, result={KEY: 2}, group="g")
    op(h, 1, "delete_topic")
    op(h, 1, "committed", result={KEY: -1}, group="g")


@scenario(32)
def a_rejected_deletion_deletes_no_commits(h: History) -> None:
    op(h, 1, "commit", argument={KEY: 2}, result={KEY: 2}, group="g")
    op(h, 1, "delete_topic", "fail")
    op(h, 1, "committed", result={KEY: -1}, group="g")


def _ahead(h: History, committed: int) -> None:
    _three(h)
    event(h, 51, "assign", "ok", value=[KEY], position=1)
    op(h, 51, "commit", argument={KEY: committed}, result={KEY: committed}, group="g")


@scenario()
def a_reader_commits_its_assigned_position(h: History) -> None:
    _ahead(h, 1)


@scenario(24)
def a_reader_commits_ahead_of_its_assigned_position(h: History) -> None:
    _ahead(h, 2)


def _commits(h: History, *offsets: int) -> None:
    """Record records, a member that commits these offsets, and a fetch of the first of them."""
    for offset in range(4):
        h.send(offset + 1, offset)
    member(h, 51, *((offset, offset + 1) for offset in range(4)))
    for offset in offsets:
        op(h, 51, "commit", argument={KEY: offset}, result={KEY: offset}, group="g")


@scenario(25)
def a_replaced_offset_is_fetched(h: History) -> None:
    _commits(h, 3, 2)
    op(h, 9, "committed", result={KEY: 3}, group="g")


@scenario()
def the_last_offset_is_fetched_although_it_is_smaller(h: History) -> None:
    _commits(h, 3, 2)
    op(h, 9, "committed", result={KEY: 2}, group="g")


@scenario(37, complete=True)
def an_offset_is_fetched_that_no_recorded_client_committed(h: History) -> None:
    op(h, 9, "committed", result={KEY: 2}, group="g")


@scenario()
def an_offset_is_fetched_of_clients_that_are_not_recorded(h: History) -> None:
    op(h, 9, "committed", result={KEY: 2}, group="g")
    h.send(1, 0)
    h.fetch(0, (0, 1), end=1)


@scenario(33)
def a_member_resumes_beyond_the_committed_offset(h: History) -> None:
    _commits(h, 2)
    leave(h, 51)
    member(h, 52, (3, 4))


@scenario()
def a_member_resumes_at_the_committed_offset(h: History) -> None:
    _commits(h, 2)
    leave(h, 51)
    member(h, 52, (2, 3), (3, 4))


def _sends_offsets(h: History, isolation: str) -> None:
    """Record a transaction that sends offset 2, and a member that resumes at offset 0 right after its end."""
    for offset in range(3):
        h.send(offset + 1, offset)
    member(h, 51, (0, 1), (1, 2))
    begin(h, 1)
    op(h, 51, "send_offsets", argument={KEY: 2}, group="g", txn=1)
    end(h, 1)
    leave(h, 51)
    event(h, 52, "assign", "ok", value=[KEY], group="g")
    h.begin(52, "poll", isolation=isolation)
    h.end(52, value={KEY: [[0, 1], [1, 2], [2, 3]]})


@scenario(verdict="unknown")
def a_read_committed_member_resumes_below_the_offsets_of_a_transaction(h: History) -> None:
    _sends_offsets(h, "read_committed")


@scenario()
def a_read_uncommitted_member_does_not_wait_for_a_transaction(h: History) -> None:
    _sends_offsets(h, "read_uncommitted")


def _assigned(h: History, process: int, generation: int) -> None:
    event(h, process, "assign", "ok", value=[KEY], group="g", generation_id=generation, member_id=f"m{process}")


def _commits_in(h: History, generation: int) -> None:
    op(h, 51, "commit", argument={KEY: 0}, result={KEY: 0}, group="g", generation_id=generation, member_id="m51")


def _commits_after(h: History, *generations: int) -> None:
    """Record members of these generations; the first of them commits then."""
    for process, generation in enumerate(generations, 51):
        _assigned(h, process, generation)
        event(h, process, "revoke", value=[KEY], group="g")
    _commits_in(h, generations[0])
    h.send(1, 0)
    h.fetch(0, (0, 1), end=1)


@scenario(27)
def a_member_commits_after_another_got_its_partition(h: History) -> None:
    _commits_after(h, 1, 2)


@scenario()
def a_member_commits_in_the_newest_generation(h: History) -> None:
    _commits_after(h, 2, 1)


def _two_of_generation_1(h: History, *, has_offset: bool) -> None:
    """Record members of the generations 1, 2 and 1, and whether the first of them commits."""
    for process, generation in ((51, 1), (52, 2), (53, 1)):
        _assigned(h, process, generation)
        if process == 51 and has_offset:
            _commits_in(h, 1)
        event(h, process, "revoke", value=[KEY], group="g")
    h.send(1, 0)
    h.fetch(0, (0, 1), end=1)


@scenario(26)
def a_generation_comes_again_although_its_group_has_an_offset(h: History) -> None:
    _two_of_generation_1(h, has_offset=True)


@scenario()
def a_generation_comes_again_of_a_group_without_offsets(h: History) -> None:
    _two_of_generation_1(h, has_offset=False)


def _transaction_of_an_old_generation(h: History, **member_fields: Any) -> None:
    begin(h, 1)
    op(h, 3, "sync", result=[KEY], group="g", generation_id=6, member_id="new", node="1")
    op(h, 4, "send_offsets", argument={KEY: 3}, txn=1, group="g", **member_fields)
    end(h, 1)


@scenario()
def offsets_of_a_transaction_without_a_member(h: History) -> None:
    _transaction_of_an_old_generation(h)


@scenario(27)
def offsets_of_a_transaction_of_an_old_generation(h: History) -> None:
    _transaction_of_an_old_generation(h, generation_id=5, member_id="old")


# The end of the log.


def _listed(h: History, *replies: tuple[int, int]) -> None:
    for epoch, high_watermark in replies:
        h.list_offsets(high_watermark, epoch=epoch)


@scenario(16)
def a_listed_offset_is_below_that_of_an_earlier_epoch(h: History) -> None:
    _listed(h, (2, 9), (1, 8), (2, 8), (3, 7))


def _listed_at(h: History, *replies: tuple[str, int | None, int]) -> None:
    for node, epoch, high_watermark in replies:
        h.begin(70, "list_offsets", node=node, leader_epoch=epoch)
        h.end(70, "ok", high_watermark=high_watermark)


def _listed_before(h: History, end: int) -> None:
    """Record an end that the leader of epoch 2 lists while the former one acknowledges a record."""
    h.begin(0, "send", value=1)
    h.list_offsets(end, epoch=2)
    h.end(0, offset=0, leader_epoch=1)
    h.fetch(0, (0, 1), end=1, epoch=2)


@scenario(28)
def a_new_leader_lists_an_end_below_a_record_of_the_former_one(h: History) -> None:
    _listed_before(h, 0)


@scenario()
def a_new_leader_lists_an_end_behind_the_records_of_the_former_one(h: History) -> None:
    _listed_before(h, 1)


@scenario(verdict="unknown")
def a_leader_that_is_cut_off_lists_without_its_epoch(h: History) -> None:
    _listed_at(h, ("3", 2, 9), ("2", None, 8), ("3", 2, 9))


@scenario(16)
def the_leader_lists_a_smaller_offset_without_its_epoch(h: History) -> None:
    _listed_at(h, ("3", 2, 9), ("3", None, 8), ("3", 2, 9))


@scenario()
def a_zombie_leader_lists_a_smaller_offset(h: History) -> None:
    _listed(h, (2, 9), (1, 8))


def _reply_after_an_acknowledgement(h: History, epoch: int) -> None:
    """The send waits while the leader changes; the smaller end comes after its acknowledgement."""
    h.send(1, 0)
    h.fetch(0, (0, 1), end=1, epoch=1)
    h.begin(5, "send", value=2)
    h.fetch(0, (0, 1), end=1, epoch=epoch)
    h.end(5, "ok", offset=1)
    h.fetch(0, (0, 1), end=1, epoch=1, process=61)
    h.fetch(0, (0, 1), (1, 2), end=2, epoch=epoch)


def _two_without_offsets(h: History, end: int) -> None:
    """Record two acknowledgements without offsets, and then this end."""
    for value in (1, 2):
        h.begin(0, "send", value=value)
        h.end(0, leader_epoch=0)
    h.fetch(0, *((offset, offset + 1) for offset in range(end)), end=end)
    h.fetch(0, (0, 1), (1, 2), end=2)


@scenario(14)
def an_end_is_below_the_number_of_acknowledged_records(h: History) -> None:
    _two_without_offsets(h, 1)


@scenario()
def an_end_is_the_number_of_acknowledged_records(h: History) -> None:
    _two_without_offsets(h, 2)


@scenario()
def a_former_leader_that_was_paused_reads_on(h: History) -> None:
    _reply_after_an_acknowledgement(h, epoch=2)


@scenario(14)
def a_leader_reads_on_below_an_acknowledged_record(h: History) -> None:
    _reply_after_an_acknowledgement(h, epoch=1)


def _metadata(h: History, *replies: tuple[int, int, str]) -> None:
    for leader, epoch, topic_id in replies:
        op(h, 7, "metadata", result={KEY: [leader, epoch]}, node="1", topic_id=topic_id)


@scenario()
def epochs_restart_with_a_new_topic_id(h: History) -> None:
    _metadata(h, (1, 3, "A"), (2, 0, "B"))


@scenario(28)
def epochs_do_not_restart_with_the_same_topic_id(h: History) -> None:
    _metadata(h, (1, 3, "A"), (2, 0, "A"))


def _position_of_the_request(h: History, *records: tuple[int, int]) -> None:
    """Record fetches as a raw client does: only the request has the position and the leader epoch."""
    _three(h)
    h.begin(9, "fetch", position=0, leader_epoch=1)
    h.end(9, value=[[0, 1], [1, 2], [2, 3]], position=None, leader_epoch=None, high_watermark=3)
    h.begin(9, "fetch", position=0, leader_epoch=1)
    h.end(9, value=[list(record) for record in records], position=None, leader_epoch=None, high_watermark=2)


@scenario(16, 14)
def the_request_contains_the_epoch(h: History) -> None:
    _position_of_the_request(h, (0, 1), (1, 2))


@scenario(verdict="unknown")
def a_completion_is_about_another_record(h: History) -> None:
    h.begin(0, "send", value=1)
    h.end(0, value=2, offset=0)
    h.assign(position=0)
    h.poll((0, 1))


@scenario(verdict="unknown")
def an_end_that_is_neither_commit_nor_abort(h: History) -> None:
    begin(h, 1)
    end(h, 1, "COMMIT")


@pytest.mark.parametrize("row", SCENARIOS, ids=[row.name for row in SCENARIOS])
def test_a_scenario_violates_exactly_its_rules(row: Row, tmp_path: Path) -> None:
    check(row, tmp_path)
