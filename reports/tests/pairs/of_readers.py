"""Pairs of the rules about the records that one reader received, and when."""

from highwater.reports.tests.histories import History
from highwater.reports.tests.pairs.scenario import (
    KEY,
    anomaly,
    begin,
    end,
    event,
    fetched,
    join,
    leave,
    near_miss,
    op,
    read_all,
    sent,
)


@anomaly(6)
def two_records_are_missing(h: History) -> None:
    sent(h, 3)
    read_all(h, 3)
    h.fetch(0, (2, 3), end=3)


@near_miss(6)
def deleted_records_are_missing(h: History) -> None:
    sent(h, 3)
    read_all(h, 3)
    op(h, 3, "delete_records", offset=2)
    h.fetch(0, (2, 3), end=3)


@anomaly(6, "of a key", compaction=True)
def the_latest_record_of_a_key_is_missing(h: History) -> None:
    _cleaned(h, "other")


@near_miss(6, "of a key", compaction=True)
def a_superseded_record_of_a_key_is_missing(h: History) -> None:
    _cleaned(h, "k")


def _cleaned(h: History, key: str) -> None:
    h.send(1, 0, key="k")
    h.send(2, 1, key=key)
    read_all(h, 2)
    h.fetch(0, (1, 2), end=2)


@anomaly(7)
def a_member_receives_a_record_twice_in_one_assignment(h: History) -> None:
    sent(h, 2)
    join(h, 51, (0, 1), (1, 2))
    h.poll((1, 2), process=51)


@near_miss(7)
def a_crashed_process_starts_again(h: History) -> None:
    sent(h, 2)
    h.assign(position=0)
    h.poll((0, 1), (1, 2))
    event(h, 50, "crash")
    h.assign(position=0)
    h.poll((0, 1))


@anomaly(8)
def a_record_after_a_marker_is_skipped(h: History) -> None:
    _over_a_marker(h, 3)


@near_miss(8)
def only_a_marker_is_skipped(h: History) -> None:
    _over_a_marker(h, 2)


def _over_a_marker(h: History, there: int) -> None:
    begin(h, 1)
    h.send(1, 0, txn=1)
    end(h, 1)
    h.send(2, 2)
    h.send(3, 3)
    h.assign(position=0)
    h.poll((0, 1))
    h.poll(*((2, 2), (3, 3))[there - 2 :])
    h.fetch(0, (0, 1), (2, 2), (3, 3), end=4)


@anomaly(9)
def a_response_has_an_offset_twice(h: History) -> None:
    sent(h, 2)
    h.assign(position=0)
    h.poll((0, 1), (0, 1), (1, 2))


@near_miss(9)
def a_response_omits_an_aborted_record(h: History) -> None:
    begin(h, 1)
    h.send(1, 0)
    h.send(2, 1, txn=1)
    end(h, 1, "abort")
    h.send(3, 3)
    fetched(h, (0, 1), (1, 2), (3, 3), isolation="read_uncommitted")
    h.fetch(0, (0, 1), (3, 3), end=4)


@anomaly(14)
def an_empty_response_after_an_acknowledgement(h: History) -> None:
    h.send(1, 0, leader_epoch=3)
    h.fetch(0, end=0, epoch=3)
    read_all(h, 1)


@near_miss(14)
def an_empty_response_of_the_next_leader(h: History) -> None:
    h.send(1, 0, leader_epoch=3)
    h.fetch(0, end=0, epoch=4)
    h.fetch(0, (0, 1), end=1, epoch=4)


@anomaly(15)
def an_earlier_response_had_a_larger_end_offset(h: History) -> None:
    h.list_offsets(3)
    h.send(1, 1)
    h.fetch(1, (1, 1), end=3)


@near_miss(15)
def a_poll_returns_while_the_send_is_in_flight(h: History) -> None:
    h.begin(1, "send", value=1)
    h.assign(position=0)
    h.poll((0, 1))
    h.end(1, offset=0)


@anomaly(16)
def the_last_stable_offset_falls(h: History) -> None:
    _stable(h, (1, 5), (1, 4))


@near_miss(16)
def the_last_stable_offset_of_another_leader_is_smaller(h: History) -> None:
    _stable(h, (1, 5), (2, 4))


def _stable(h: History, *replies: tuple[int, int]) -> None:
    for epoch, end_ in replies:
        fetched(h, position=0, leader_epoch=epoch, last_stable_offset=end_)


@anomaly(33)
def a_group_resumes_two_records_too_far(h: History) -> None:
    _resumes(h, (4, 5))


@near_miss(33)
def a_group_resumes_at_the_position_of_another_member(h: History) -> None:
    _resumes(h, (2, 3))


def _resumes(h: History, then: tuple[int, int]) -> None:
    sent(h, 5)
    read_all(h, 5)
    join(h, 51, (0, 1), (1, 2))
    op(h, 51, "commit", {KEY: 2}, {KEY: 2}, group="g")
    leave(h, 51)
    join(h, 52, then)
