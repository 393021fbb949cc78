"""Audits of groups: what a coordinator may do to offsets and generations, and the closest that it must not do.

Most were found by an author who had read no rule: the auditor missed them, or called a correct Kafka wrong.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from highwater.reports.audit import audit
from highwater.reports.tests.histories import PROMISED, History
from highwater.reports.tests.pairs import PAIRS
from highwater.reports.tests.scenarios import KEY, Row, Scenarios, begin, check, end, event, leave, member, op

SCENARIOS = Scenarios()
scenario = SCENARIOS.scenario
LATER_MS = 600_000


def records(h: History, count: int = 4) -> None:
    """Send values from 1 on, which a reader without a group reads."""
    for value in range(1, count + 1):
        h.send(value, value - 1)
    h.assign(position=0, process=49)
    h.poll(*((value - 1, value) for value in range(1, count + 1)), process=49)


def commit(h: History, offset: int, kind: str = "ok", *, process: int = 51, **fields: Any) -> None:
    op(h, process, "commit", kind, argument={KEY: offset}, result={KEY: offset}, group="g", **fields)


def committed(h: History, offset: int) -> None:
    op(h, 60, "committed", result={KEY: offset}, group="g")


def sync(h: History, generation: int, name: str, key: str = KEY) -> None:
    op(h, 70, "sync", result=[key], group="g", generation_id=generation, member_id=name, node="1")


def process_in_transaction(h: History, txn: int, process: int, *, sends: bool = True, offset: int = 1) -> None:
    """Process the first record in a transaction, which sends an offset of the group, and commit it."""
    begin(h, txn)
    op(h, process, "poll", result={KEY: [[0, 1]]}, txn=txn, group="g")
    if sends:
        op(h, process, "send_offsets", argument={KEY: offset}, txn=txn, group="g")
    end(h, txn)


# Where a member begins.


def _skips(h: History, *, reset: bool) -> None:
    leave(h, 51)
    event(h, 52, "assign", "ok", value=[KEY], group="g")
    if reset:
        event(h, 52, "reset", value=[KEY])
    h.poll((3, 4), process=52)


@scenario()
def a_group_that_committed_nothing_begins_at_the_end(h: History) -> None:
    records(h)
    member(h, 51, (0, 1))
    committed(h, -1)
    _skips(h, reset=True)


@scenario(33)
def a_group_that_committed_does_not_begin_at_the_end(h: History) -> None:
    records(h)
    member(h, 51, (0, 1))
    commit(h, 1)
    _skips(h, reset=True)


@scenario()
def a_group_whose_offset_was_deleted_begins_at_the_end(h: History) -> None:
    records(h)
    member(h, 51, (0, 1))
    commit(h, 1)
    leave(h, 51)
    op(h, 60, "delete_offsets", argument=[KEY], group="g")
    _skips(h, reset=True)


@scenario(33)
def a_consumer_that_had_a_position_is_not_reset(h: History) -> None:
    records(h)
    member(h, 51, (0, 1))
    event(h, 51, "reset", value=[KEY])
    h.poll((3, 4), process=51)


@scenario()
def a_consumer_that_was_killed_without_a_commit_begins_anywhere(h: History) -> None:
    records(h)
    member(h, 51, (0, 1))
    event(h, 51, "crash")
    event(h, 51, "assign", "ok", value=[KEY], group="g")
    event(h, 51, "reset", value=[KEY])
    h.poll((3, 4), process=51)


@scenario()
def a_consumer_that_was_killed_has_no_position(h: History) -> None:
    records(h)
    member(h, 51, (0, 1))
    event(h, 51, "crash")
    event(h, 51, "reset", value=[KEY])
    h.poll((3, 4), process=51)


@scenario(verdict="unknown")
def whether_the_group_had_committed_is_not_recorded(h: History) -> None:
    records(h)
    member(h, 51, (0, 1))
    _skips(h, reset=False)


# Records that are processed again.


@scenario(22)
def a_record_is_processed_twice(h: History) -> None:
    records(h)
    event(h, 51, "assign", "ok", value=[KEY], group="g")
    process_in_transaction(h, 1, 51)
    event(h, 52, "assign", "ok", value=[KEY], group="g")
    process_in_transaction(h, 2, 52)


@scenario()
def a_record_is_processed_again_after_a_seek(h: History) -> None:
    records(h)
    event(h, 51, "assign", "ok", value=[KEY], group="g")
    process_in_transaction(h, 1, 51)
    event(h, 51, "seek", "ok", value=[KEY], position=0)
    process_in_transaction(h, 2, 51)


@scenario()
def a_record_is_processed_again_after_the_offset_was_reset(h: History) -> None:
    records(h)
    event(h, 51, "assign", "ok", value=[KEY], group="g")
    process_in_transaction(h, 1, 51)
    commit(h, 0, process=60)
    event(h, 52, "assign", "ok", value=[KEY], group="g")
    process_in_transaction(h, 2, 52)


@scenario()
def a_record_is_processed_again_whose_offset_was_never_sent(h: History) -> None:
    records(h)
    event(h, 51, "assign", "ok", value=[KEY], group="g")
    process_in_transaction(h, 1, 51, sends=False)
    event(h, 52, "assign", "ok", value=[KEY], group="g")
    process_in_transaction(h, 2, 52)


@scenario(verdict="unknown")
def whether_offsets_were_sent_is_not_recorded(h: History) -> None:
    records(h)
    for txn in (1, 2):
        event(h, 50 + txn, "assign", "ok", value=[KEY], group="g")
        process_in_transaction(h, txn, 50 + txn, sends=False)


# Offsets that must not be fetched.


@scenario(37)
def a_rejected_commit_is_fetched(h: History) -> None:
    records(h)
    commit(h, 2, "fail")
    committed(h, 2)


@scenario()
def a_rejected_commit_that_was_repeated_is_fetched(h: History) -> None:
    records(h)
    commit(h, 2, "fail")
    commit(h, 2)
    committed(h, 2)


@scenario(37)
def a_deleted_offset_is_fetched(h: History) -> None:
    records(h)
    commit(h, 2)
    op(h, 60, "delete_offsets", argument=[KEY], group="g")
    committed(h, 2)


@scenario()
def an_offset_is_committed_again_after_its_deletion(h: History) -> None:
    records(h)
    commit(h, 2)
    op(h, 60, "delete_offsets", argument=[KEY], group="g")
    commit(h, 2)
    committed(h, 2)


@scenario(32)
def the_only_group_need_not_be_named(h: History) -> None:
    records(h)
    commit(h, 2)
    op(h, 60, "committed", result={KEY: -1})


# Offsets of transactions.


def _sent(h: History, *offsets: int) -> None:
    """Send offsets in one transaction each, of one transactional id."""
    for txn, offset in enumerate(offsets, 1):
        event(h, 80 + txn, "begin_txn", txn=txn, value="id")
        op(h, 80 + txn, "send_offsets", argument={KEY: offset}, txn=txn, group="g")
        end(h, txn)


@scenario(25)
def the_offset_of_the_transaction_before_returns(h: History) -> None:
    records(h)
    _sent(h, 1, 2)
    committed(h, 2)
    committed(h, 1)


@scenario()
def the_offset_of_the_last_transaction_is_visible_later(h: History) -> None:
    records(h)
    _sent(h, 2, 1)
    committed(h, 2)
    committed(h, 1)


@scenario(32, patience_ms=10_000)
def the_offset_of_a_transaction_is_missing_long_after_its_commit(h: History) -> None:
    records(h)
    _sent(h, 1)
    h.wait(LATER_MS)
    committed(h, -1)


@scenario(verdict="unknown")
def how_long_a_commit_may_take_is_not_stated(h: History) -> None:
    records(h)
    _sent(h, 1)
    h.wait(LATER_MS)
    committed(h, -1)


@scenario(patience_ms=10_000)
def the_offset_of_a_transaction_is_not_yet_visible(h: History) -> None:
    records(h)
    _sent(h, 1)
    committed(h, -1)


# Generations.


@scenario(27)
def a_coordinator_returns_to_an_old_generation(h: History) -> None:
    records(h)
    sync(h, 3, "a")
    commit(h, 1, generation_id=3, member_id="a")
    sync(h, 2, "a")


@scenario()
def a_group_without_offsets_begins_again(h: History) -> None:
    records(h)
    sync(h, 3, "a")
    sync(h, 1, "b")
    commit(h, 1, generation_id=1, member_id="b")


@scenario()
def a_group_whose_offset_was_deleted_begins_again(h: History) -> None:
    records(h)
    sync(h, 3, "a")
    commit(h, 1, generation_id=3, member_id="a")
    op(h, 60, "delete_offsets", argument=[KEY], group="g")
    sync(h, 1, "b")
    commit(h, 1, generation_id=1, member_id="b")


@scenario(27)
def an_old_generation_of_a_group_that_began_again(h: History) -> None:
    records(h)
    for generation, name in ((3, "a"), (1, "b"), (2, "c")):
        sync(h, generation, name)
    commit(h, 1, generation_id=1, member_id="b")


@scenario(offset_expiry=True)
def a_group_whose_offsets_expired_begins_again(h: History) -> None:
    records(h)
    sync(h, 3, "a")
    commit(h, 1, generation_id=3, member_id="a")
    h.wait(LATER_MS)
    sync(h, 1, "b")
    commit(h, 1, generation_id=1, member_id="b")


@scenario(27)
def a_commit_of_an_old_generation_took_effect_though_its_reply_was_lost(h: History) -> None:
    records(h)
    sync(h, 1, "a")
    sync(h, 2, "b")
    commit(h, 2, generation_id=2, member_id="b")
    commit(h, 1, "info", generation_id=1, member_id="a")
    committed(h, 1)


@scenario()
def a_lost_commit_of_an_old_generation_had_no_effect(h: History) -> None:
    records(h)
    sync(h, 1, "a")
    sync(h, 2, "b")
    commit(h, 2, generation_id=2, member_id="b")
    commit(h, 1, "info", generation_id=1, member_id="a")
    committed(h, 2)


@scenario()
def another_member_committed_the_same_offset_as_the_lost_commit(h: History) -> None:
    records(h)
    sync(h, 1, "a")
    sync(h, 2, "b")
    commit(h, 1, generation_id=2, member_id="b")
    commit(h, 1, "info", generation_id=1, member_id="a")
    committed(h, 1)


@scenario(verdict="unknown")
def members_of_a_consumer_group_have_epochs_of_their_own(h: History) -> None:
    records(h)
    sync(h, 1, "a")
    sync(h, 2, "b", "t-1")
    commit(h, 1, generation_id=1, member_id="a")


# Producers that were fenced.


def initialised(h: History, process: int, producer_id: int, epoch: int) -> None:
    op(h, process, "init_producer", argument="id", producer_id=producer_id, producer_epoch=epoch)


def _commits(h: History, txn: int, epoch: int) -> None:
    event(h, 80 + txn, "begin_txn", txn=txn, value="id", producer_id=7, producer_epoch=epoch)
    end(h, txn)


@scenario(27)
def a_fenced_producer_commits(h: History) -> None:
    initialised(h, 81, 7, 0)
    initialised(h, 90, 7, 1)
    _commits(h, 1, 0)


@scenario(27)
def a_producer_with_an_old_id_commits(h: History) -> None:
    initialised(h, 81, 7, 0)
    initialised(h, 90, 8, 0)
    _commits(h, 1, 0)


@scenario(27)
def a_fenced_producer_repeats_its_commit(h: History) -> None:
    initialised(h, 81, 7, 0)
    event(h, 81, "begin_txn", txn=1, value="id", producer_id=7, producer_epoch=0)
    initialised(h, 90, 7, 1)
    end(h, 1, kind="info")
    end(h, 1)


@scenario()
def the_newest_producer_commits(h: History) -> None:
    initialised(h, 90, 7, 0)
    initialised(h, 81, 7, 1)
    _commits(h, 1, 1)


@scenario()
def the_epoch_grows_with_each_commit(h: History) -> None:
    initialised(h, 81, 7, 0)
    _commits(h, 1, 0)
    _commits(h, 1, 1)


@scenario()
def a_commit_is_accepted_while_another_producer_begins(h: History) -> None:
    initialised(h, 81, 7, 0)
    event(h, 81, "begin_txn", txn=1, value="id", producer_id=7, producer_epoch=0)
    h.begin(81, "end_txn", txn=1, value="commit")
    initialised(h, 90, 7, 1)
    h.end(81)


@scenario(31)
def a_transactional_id_receives_an_older_epoch(h: History) -> None:
    initialised(h, 81, 7, 5)
    initialised(h, 90, 7, 3)


@pytest.mark.parametrize("row", SCENARIOS, ids=[row.name for row in SCENARIOS])
def test_a_group_violates_exactly_its_rules(row: Row, tmp_path: Path) -> None:
    check(row, tmp_path)


def test_the_second_witness_of_a_commit_ahead_is_the_poll_before_it(tmp_path: Path) -> None:
    write, config = PAIRS[24, ""]["anomaly"]
    history = History(msgspec.structs.replace(PROMISED, **config))
    write(history)
    (finding,) = [each for each in audit(history.write(tmp_path / "history.ndjson")).findings if each.rule == 24]
    ((commit, poll),) = [evidence.operations for evidence in finding.witnesses]
    assert (history.events[commit.invoked].f, history.events[poll.invoked].f) == ("commit", "poll")
    assert poll.returned is not None
    assert poll.returned < commit.invoked
