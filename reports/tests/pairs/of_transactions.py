"""Pairs of the rules about transactions within one partition."""

from itertools import pairwise

from highwater.reports.tests.histories import History
from highwater.reports.tests.pairs.scenario import (
    KEY,
    anomaly,
    begin,
    end,
    event,
    fetched,
    near_miss,
    op,
    read_all,
    sent,
    wait,
)


@anomaly(11)
def another_producer_writes_between(h: History) -> None:
    _three_sends(h, None)


@near_miss(11)
def the_transaction_itself_writes_between(h: History) -> None:
    _three_sends(h, 1)


def _three_sends(h: History, middle: int | None) -> None:
    begin(h, 1)
    for value, txn in ((1, 1), (2, middle), (3, 1)):
        h.send(value, value - 1, txn=txn, process=value)
    end(h, 1)
    read_all(h, 3)


@anomaly(17)
def a_poll_returns_an_aborted_record(h: History) -> None:
    begin(h, 1)
    h.send(1, 0, txn=1)
    end(h, 1, "abort")
    h.assign(position=0)
    h.poll((0, 1))


@near_miss(17)
def a_read_uncommitted_fetch_returns_it(h: History) -> None:
    begin(h, 1)
    h.send(1, 0, txn=1)
    end(h, 1, "abort")
    fetched(h, (0, 1), isolation="read_uncommitted")


@anomaly(18)
def a_transaction_polls_what_it_sent(h: History) -> None:
    _own(h, 1)


@near_miss(18)
def a_transaction_polls_what_another_sent(h: History) -> None:
    _own(h, 2)


def _own(h: History, reader: int) -> None:
    begin(h, 1, 2)
    h.send(1, 0, txn=1)
    if reader == 2:
        end(h, 1)
    h.assign(position=0)
    op(h, 50, "poll", result={KEY: [[0, 1]]}, txn=reader)
    if reader == 1:
        end(h, 1)
    end(h, 2)


@anomaly(19)
def the_last_stable_offset_passes_an_open_transaction(h: History) -> None:
    _released(h, early=True)


@near_miss(19)
def it_is_passed_once_its_commit_is_requested(h: History) -> None:
    _released(h, early=False)


def _released(h: History, *, early: bool) -> None:
    begin(h, 1)
    h.send(1, 0, txn=1)
    if not early:
        h.begin(81, "end_txn", txn=1, value="commit")
    fetched(h, position=1, last_stable_offset=1)
    if early:
        h.begin(81, "end_txn", txn=1, value="commit")
    h.end(81)
    read_all(h, 1)


@anomaly(20)
def half_of_a_transaction_is_skipped_in_one_partition(h: History) -> None:
    begin(h, 1)
    sent_in(h, 1, 2)
    end(h, 1, kind="info")
    h.send(3, 3)
    h.fetch(0, (0, 1), (3, 3), end=4)


@near_miss(20)
def the_other_half_is_in_the_next_response(h: History) -> None:
    begin(h, 1)
    sent_in(h, 1, 2)
    end(h, 1, kind="info")
    h.fetch(0, (0, 1), end=3)
    h.fetch(1, (1, 2), end=3)


def sent_in(h: History, txn: int, count: int) -> None:
    for offset in range(count):
        h.send(offset + 1, offset, txn=txn)


@anomaly(22)
def three_transactions_process_one_record(h: History) -> None:
    _processed(h, "commit", "commit", "abort")


@near_miss(22)
def all_but_one_are_aborted(h: History) -> None:
    _processed(h, "abort", "commit", "abort")


def _processed(h: History, *ends: str) -> None:
    sent(h, 1)
    for txn, how in enumerate(ends, 1):
        begin(h, txn)
        event(h, 50 + txn, "assign", value=[KEY], position=0)
        op(h, 50 + txn, "poll", result={KEY: [[0, 1]]}, txn=txn, group="g")
        op(h, 50 + txn, "send_offsets", {KEY: 1}, txn=txn, group="g")
        end(h, txn, how)


@anomaly(23)
def after_an_abort_the_consumer_continues(h: History) -> None:
    _aborted(h, (1, 2))


@near_miss(23)
def after_an_abort_the_consumer_rewinds(h: History) -> None:
    _aborted(h, (0, 1))


def _aborted(h: History, then: tuple[int, int]) -> None:
    sent(h, 2)
    h.assign(position=0)
    for txn, record, how in ((1, (0, 1), "abort"), (2, then, "commit")):
        begin(h, txn)
        op(h, 50, "poll", result={KEY: [list(record)]}, txn=txn, group="g")
        end(h, txn, how)
    read_all(h, 2)


@anomaly(29, transaction_timeout_ms=30)
def the_high_watermark_moves_and_the_last_stable_offset_does_not(h: History) -> None:
    _stable_offset_stays(h, 1, 2, 3)


@near_miss(29, transaction_timeout_ms=30)
def neither_moves(h: History) -> None:
    _stable_offset_stays(h, 1, 1, 1)


def _stable_offset_stays(h: History, *ends: int) -> None:
    begin(h, 1)
    h.send(1, 0, txn=1)
    for before, now in pairwise((1, *ends)):
        if now > before:
            h.send(now, now - 1)
        fetched(h, position=now, high_watermark=now, last_stable_offset=0)
        wait(h, 20)
