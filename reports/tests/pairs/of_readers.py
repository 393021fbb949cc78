"""Pairs of the rules about what one reader was given, and when."""

from highwater.reports.tests.histories import History
from highwater.reports.tests.pairs.telling import (
    anomaly,
    begin,
    end,
    event,
    fetched,
    join,
    leave,
    near_miss,
    op,
    seen,
    sent,
)


@anomaly(6)
def two_records_are_there_no_more(h: History) -> None:
    sent(h, 3)
    seen(h, 3)
    h.fetch(0, (2, 3), end=3)


@near_miss(6)
def what_was_deleted_is_there_no_more(h: History) -> None:
    sent(h, 3)
    seen(h, 3)
    op(h, 3, "delete_records", offset=2)
    h.fetch(0, (2, 3), end=3)


@anomaly(7)
def a_member_is_given_them_twice_in_one_assignment(h: History) -> None:
    sent(h, 2)
    join(h, 51, (0, 1), (1, 2))
    h.poll((1, 2), process=51)


@near_miss(7)
def a_process_that_crashed_begins_anew(h: History) -> None:
    sent(h, 2)
    h.assign(position=0)
    h.poll((0, 1), (1, 2))
    event(h, 50, "crash")
    h.assign(position=0)
    h.poll((0, 1))


@anomaly(8)
def behind_a_marker_a_record_is_passed_as_well(h: History) -> None:
    _over_a_marker(h, 3)


@near_miss(8)
def a_marker_is_no_record(h: History) -> None:
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
def an_answer_tells_an_offset_twice(h: History) -> None:
    sent(h, 2)
    h.assign(position=0)
    h.poll((0, 1), (0, 1), (1, 2))


@near_miss(9)
def an_answer_leaves_out_what_was_taken_back(h: History) -> None:
    begin(h, 1)
    h.send(1, 0)
    h.send(2, 1, txn=1)
    end(h, 1, "abort")
    h.send(3, 3)
    fetched(h, (0, 1), (1, 2), (3, 3), isolation="read_uncommitted")
    h.fetch(0, (0, 1), (3, 3), end=4)


@anomaly(14)
def an_empty_answer_after_an_acknowledgement(h: History) -> None:
    h.send(1, 0, leader_epoch=3)
    h.fetch(0, end=0, epoch=3)
    seen(h, 1)


@near_miss(14)
def an_empty_answer_of_the_next_leader(h: History) -> None:
    h.send(1, 0, leader_epoch=3)
    h.fetch(0, end=0, epoch=4)
    h.fetch(0, (0, 1), end=1, epoch=4)


@anomaly(15)
def the_end_was_told_to_be_further_before(h: History) -> None:
    h.list_offsets(3)
    h.send(1, 1)
    h.fetch(1, (1, 1), end=3)


@near_miss(15)
def a_poll_ends_while_the_send_is_under_way(h: History) -> None:
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


def _stable(h: History, *told: tuple[int, int]) -> None:
    for epoch, end_ in told:
        fetched(h, position=0, leader_epoch=epoch, last_stable_offset=end_)


@anomaly(33)
def a_group_resumes_two_records_too_far(h: History) -> None:
    _resumes(h, (4, 5))


@near_miss(33)
def a_group_resumes_where_another_member_had_come_to(h: History) -> None:
    _resumes(h, (2, 3))


def _resumes(h: History, then: tuple[int, int]) -> None:
    sent(h, 5)
    seen(h, 5)
    join(h, 51, (0, 1), (1, 2))
    leave(h, 51)
    join(h, 52, then)
