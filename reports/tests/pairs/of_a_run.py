"""Pairs of the rules over transactions, groups and the cluster."""

from highwater.reports.tests.histories import History
from highwater.reports.tests.pairs.scenario import (
    KEY,
    anomaly,
    begin,
    commit,
    committed,
    end,
    event,
    join,
    leave,
    near_miss,
    op,
    sent,
    wait,
)


@anomaly(21)
def three_transactions_read_in_a_circle(h: History) -> None:
    _reads_of_one_another(h, (1, 2), (2, 3), (3, 1))


@near_miss(21)
def three_transactions_read_in_a_chain(h: History) -> None:
    _reads_of_one_another(h, (2, 1), (3, 2))
    h.fetch(1, (1, 1), (2, 2), (3, 3), end=4)


def _reads_of_one_another(h: History, *pairs: tuple[int, int]) -> None:
    """Record transactions that read from each other, as (reader, writer); all commits begin before the polls end.

    Transaction n sends value n to offset n.
    """
    begin(h, 1, 2, 3)
    for txn in (1, 2, 3):
        h.send(txn, txn, txn=txn)
    for reader, writer in pairs:
        event(h, 50 + reader, "assign", value=[KEY], position=writer)
        h.begin(50 + reader, "poll", txn=reader)
    for txn in (1, 2, 3):
        end(h, txn)
    for reader, writer in pairs:
        h.end(50 + reader, value={KEY: [[writer, writer]]})


@anomaly(24)
def a_poll_returned_one_record_and_three_are_committed(h: History) -> None:
    _commits_behind(h, 3)


@near_miss(24)
def a_poll_returned_one_record_and_its_marker_is_committed_too(h: History) -> None:
    _commits_behind(h, 2)


def _commits_behind(h: History, offset: int) -> None:
    begin(h, 1)
    h.send(1, 0, txn=1)
    end(h, 1)
    h.send(2, 2)
    h.fetch(0, (0, 1), (2, 2), end=3)
    h.assign(position=0)
    h.poll((0, 1))
    commit(h, offset, process=50)


@anomaly(25)
def a_member_resumes_below_what_is_committed(h: History) -> None:
    _resumes_at_one(h, committed_=3)


@near_miss(25)
def a_member_resumes_at_what_is_committed(h: History) -> None:
    _resumes_at_one(h, committed_=1)


def _resumes_at_one(h: History, committed_: int) -> None:
    sent(h, 3)
    join(h, 51, (0, 1), (1, 2), (2, 3))
    commit(h, committed_, process=51)
    leave(h, 51)
    join(h, 52, (1, 2), (2, 3))


@anomaly(26)
def a_member_commits_between_two_commits_of_another(h: History) -> None:
    _commits_of(h, "a", "b", "a")


@near_miss(26)
def another_member_takes_over_within_a_generation(h: History) -> None:
    _commits_of(h, "a", "b", "b")


def _commits_of(h: History, *members: str) -> None:
    for offset, member in enumerate(members):
        commit(h, offset, process=ord(member), generation_id=4, member_id=member)


@anomaly(27)
def the_older_generation_commits_last(h: History) -> None:
    _generations(h, 6)


@near_miss(27)
def a_client_outside_the_group_commits_last(h: History) -> None:
    _generations(h, -1)


def _generations(h: History, last: int) -> None:
    commit(h, 9, generation_id=7, member_id="new")
    commit(h, 5, generation_id=last, member_id="" if last < 0 else "old")


@anomaly(28)
def a_broker_returns_an_older_epoch(h: History) -> None:
    _epochs(h, ("1", 3), ("1", 2))


@near_miss(28)
def another_broker_knows_only_an_older_epoch(h: History) -> None:
    _epochs(h, ("1", 3), ("2", 2))


def _epochs(h: History, *replies: tuple[str, int]) -> None:
    for node, epoch in replies:
        op(h, 7, "metadata", result={KEY: [epoch, epoch]}, node=node)


@anomaly(30, patience_ms=50)
def a_rebalance_goes_from_one_half_to_the_other_for_ever(h: History) -> None:
    _states(h, "PreparingRebalance", "CompletingRebalance", "PreparingRebalance", "CompletingRebalance")


@near_miss(30, patience_ms=50)
def a_rebalance_ends_between(h: History) -> None:
    _states(h, "PreparingRebalance", "CompletingRebalance", "Stable", "PreparingRebalance")


def _states(h: History, *states: str) -> None:
    for state in states:
        op(h, 3, "group", result={"state": state, "members": []}, group="g")
        wait(h, 20)


@anomaly(31)
def two_instances_of_one_name_get_the_same_epoch(h: History) -> None:
    _producers(h, 0, 0)


@near_miss(31)
def two_instances_of_one_name_get_two_epochs(h: History) -> None:
    _producers(h, 0, 1)


def _producers(h: History, *epochs: int) -> None:
    for process, epoch in enumerate(epochs):
        op(h, process, "init_producer", "name", producer_id=7, producer_epoch=epoch)


@anomaly(32)
def a_returned_commit_is_gone(h: History) -> None:
    committed(h, 4)
    committed(h, -1)


@near_miss(32)
def a_returned_commit_was_deleted(h: History) -> None:
    committed(h, 4)
    op(h, 3, "delete_offsets", [KEY], group="g")
    committed(h, -1)


@anomaly(37)
def offsets_of_an_aborted_transaction_replace_the_committed_ones(h: History) -> None:
    _offsets(h, "abort")


@near_miss(37)
def offsets_of_a_committed_transaction_replace_them(h: History) -> None:
    _offsets(h, "commit")


def _offsets(h: History, how: str) -> None:
    commit(h, 3)
    begin(h, 1)
    op(h, 4, "send_offsets", {KEY: 7}, txn=1, group="g")
    end(h, 1, how)
    committed(h, 7)
