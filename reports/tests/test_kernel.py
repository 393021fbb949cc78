"""Each rule finds a planted anomaly with the operations that prove it, and finds nothing in a near miss."""

from collections.abc import Callable

import pytest

from highwater.reports.anomalies import anomalies
from highwater.reports.rules.findings import NO_ROW, Weight
from highwater.reports.rules.rule import Rule
from highwater.reports.tests.histories import History


def healthy() -> History:
    """Return a valid history of two producers, a consumer and a raw reader."""
    h = History()
    h.send(1, 0)
    h.send(2, 1, process=1)
    h.assign(position=0)
    h.poll((0, 1), (1, 2))
    h.send(3, 2)
    h.fetch(0, (0, 1), (1, 2), (2, 3), end=3)
    h.poll((2, 3))
    return h


def inconsistent(h: History) -> None:
    h.send(4, 2)


def duplicate(h: History) -> None:
    h.fetch(3, (3, 3), end=4)


def phantom(h: History) -> None:
    h.fetch(3, (3, 99), end=4)


def lost(h: History) -> None:
    h.send(4, 3)
    h.send(5, 4)
    h.fetch(3, (4, 5), end=5)


def lost_beyond_the_end(h: History) -> None:
    h.send(4, 3)
    h.phase("final")
    h.fetch(0, (0, 1), (1, 2), (2, 3), end=3, process=61, epoch=None)


def backwards(h: History) -> None:
    h.poll((1, 2), (2, 3))


def skipping(h: History) -> None:
    h.send(4, 3)
    h.send(5, 4)
    h.fetch(3, (3, 4), (4, 5), end=5)
    h.poll((4, 5))


def inverted(h: History) -> None:
    h.send(4, 9)
    h.send(5, 8, process=1)
    h.fetch(3, (8, 5), (9, 4), end=10)


def stale(h: History) -> None:
    h.fetch(2, (2, 3), end=3)
    h.list_offsets(2)


def future(h: History) -> None:
    h.fetch(3, (3, 4), end=4)
    h.send(4, 3)


def regression(h: History) -> None:
    h.send(4, 3)
    h.fetch(3, (3, 4), end=4, epoch=0)
    h.list_offsets(4, epoch=0)
    h.list_offsets(3, epoch=0)


PLANTED: list[tuple[int, Callable[[History], None]]] = [
    (1, inconsistent), (2, duplicate), (3, phantom), (4, lost), (4, lost_beyond_the_end), (7, backwards),
    (8, skipping), (13, inverted), (14, stale), (15, future), (16, regression),
]  # fmt: skip


def test_a_healthy_history_has_no_findings_at_all() -> None:
    assert healthy().found() == []


@pytest.mark.parametrize(("rule", "plant"), PLANTED, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_planted_anomaly_is_found(rule: int, plant: Callable[[History], None]) -> None:
    history = healthy()
    plant(history)
    assert rule in history.rules()


@pytest.mark.parametrize(("rule", "plant"), PLANTED, ids=lambda value: getattr(value, "__name__", str(value)))
def test_the_witnesses_of_a_finding_are_operations_of_the_history(rule: int, plant: Callable[[History], None]) -> None:
    history = healthy()
    plant(history)
    rows = len(history.operations())
    (found, *_) = [findings for findings in history.found() if findings.rule == rule and not findings.information]
    assert all(0 <= row < rows for row in found.first)
    assert all(row == NO_ROW or 0 <= row < rows for row in found.second)
    if rule != 3:
        assert all(found.first != found.second)


def test_the_witnesses_of_a_lost_write_are_its_ack_and_the_read_that_passed_it() -> None:
    history = healthy()
    lost(history)
    operations = history.operations()
    (found,) = [findings for findings in history.found() if findings.rule == 4]
    assert operations.value[found.first].tolist() == [4]
    assert found.offset.tolist() == [3]
    assert operations.position[found.second].tolist() == [3]


# Behaviour of a correct Kafka.


def test_an_acks_1_reply_proves_only_the_log_end() -> None:
    h = History()
    h.send(1, 0)
    h.send(2, 1)
    h.list_offsets(1)
    h.fetch(0, (0, 1), (1, 2), end=2)
    assert h.rules(acks_all=False) == set()
    late = History()
    late.send(1, 0, leader_epoch=0)
    late.list_offsets(0, epoch=0)
    assert 14 in late.rules(acks_all=True)


@pytest.mark.parametrize(
    ("gives_up", "client", "weight"),
    [
        ("while it is open", "librdkafka", Weight.UNDECIDED),
        ("while it is open", "another", Weight.VIOLATION),
        ("before", "librdkafka", Weight.VIOLATION),
    ],
)
def test_a_client_with_a_new_producer_epoch_may_resend_its_open_records(
    gives_up: str, client: str, weight: Weight
) -> None:
    """The broker cannot detect duplicates under the new epoch (KIP-360; librdkafka issue 4953)."""
    h = History()
    if gives_up == "before":
        h.send(1, kind="info", client="librdkafka", process=1)
    h.begin(0, "send", value=7, client="librdkafka")
    if gives_up != "before":
        h.begin(1, "send", value=1, client=client)
        h.end(1, "info")
    h.end(0, "ok", offset=3)
    h.fetch(2, (2, 7), (3, 7), end=4)
    assert [found.weight for found in h.found() if found.rule == 2] == [weight]


@pytest.mark.parametrize(
    ("sends", "offsets", "is_found"),
    [
        ((3, 4), (3, 4), False),
        ((3, 4), (3, 5), True),
        ((3, None), (3, 5), False),
        ((3, None), (4, 5), True),
        ((None, None), (4, 5), False),
        ((None, None), (3, 4, 5), True),
        ((None,), (4, 5), True),
    ],
)
def test_equal_values_are_duplicates_at_more_offsets_than_their_sends_explain(
    sends: tuple[int | None, ...], offsets: tuple[int, ...], is_found: bool
) -> None:
    h = History()
    for offset in sends:
        h.send(7, offset, kind="ok" if offset is not None else "info")
    h.fetch(3, *((offset, 7) for offset in offsets), end=6)
    assert (2 in h.rules()) == is_found


def test_a_fetch_between_high_watermark_and_log_end_is_legal_and_empty() -> None:
    h = healthy()
    h.fetch(5, end=3)
    h.fetch(3, end=3)
    assert h.rules() == set()


def test_an_ok_send_without_offset_gives_no_row() -> None:
    h = History()
    h.send(1, -1)
    h.send(2, 1)
    h.fetch(0, (0, 1), (1, 2), end=2)
    assert h.found() == []


def test_a_new_leader_whose_high_watermark_lags_is_information() -> None:
    h = healthy()
    h.fetch(3, end=3, epoch=0)
    h.fetch(0, end=1, epoch=1)
    assert h.rules() == set()
    assert {found.rule for found in h.found()} == {14, 16}


def test_a_follower_may_know_more_than_a_new_leader() -> None:
    """A former leader keeps its high watermark, and answers as a follower between two replies of the new leader."""
    h = healthy()
    h.fetch(0, end=1, epoch=1)
    h.begin(9, "fetch", position=0, node="4")
    h.end(9, value=[[0, 1], [1, 2], [2, 3]], node="4", high_watermark=3)
    h.fetch(0, (0, 1), end=1, epoch=1)
    assert h.rules() == set()


def test_where_the_epoch_is_unknown_a_smaller_end_is_undecided() -> None:
    h = healthy()
    h.fetch(0, end=1, epoch=None)
    assert {(found.rule, found.weight) for found in h.found()} == {(14, Weight.UNDECIDED), (16, Weight.UNDECIDED)}


def test_list_offsets_may_not_fall_from_epoch_to_epoch_but_a_zombie_may_answer() -> None:
    falling = healthy()
    falling.list_offsets(3, epoch=0)
    falling.list_offsets(2, epoch=1)
    assert 16 in falling.rules()
    zombie = History()
    zombie.list_offsets(3, epoch=1)
    zombie.list_offsets(2, epoch=0)
    assert 16 not in zombie.rules()


def test_a_send_of_unknown_outcome_may_be_read_or_not() -> None:
    h = healthy()
    h.send(4, kind="info", process=2)
    assert h.found() == []
    h.fetch(3, (3, 4), end=4)
    assert h.found() == []


def test_an_unknown_send_that_was_read_counts_as_written() -> None:
    h = healthy()
    h.send(4, kind="info", process=2)
    h.send(5, 3)
    h.fetch(3, (3, 5), (4, 4), end=5)
    assert h.found() == []


def test_an_unread_record_is_not_lost() -> None:
    h = healthy()
    h.send(4, 3)
    assert [(found.rule, found.information) for found in h.found()] == [(5, False)]


def test_polls_may_restart_after_a_reassignment_or_seek() -> None:
    h = healthy()
    h.assign()
    h.poll((0, 1), (1, 2), (2, 3))
    assert h.found() == []


def test_a_reader_that_names_its_position_may_go_back() -> None:
    h = healthy()
    h.fetch(0, (0, 1), (1, 2), (2, 3), end=3)
    assert h.found() == []


def test_offsets_without_a_known_record_may_be_skipped() -> None:
    h = History()
    h.send(1, 0)
    h.send(2, 5)
    h.assign(position=0)
    h.poll((0, 1))
    h.poll((5, 2))
    assert h.found() == []


def test_overlapping_operations_have_no_order() -> None:
    h = History()
    h.begin(0, "send", value=1)
    h.begin(1, "send", value=2)
    h.end(0, offset=1)
    h.end(1, offset=0)
    h.fetch(0, (0, 2), (1, 1), end=2)
    assert h.found() == []


def test_large_offsets_need_no_more_memory() -> None:
    h = History()
    h.send(1, 1 << 50)
    h.send(2, (1 << 50) + 1)
    h.fetch(1 << 50, (1 << 50, 1), ((1 << 50) + 1, 2), end=(1 << 50) + 2)
    assert h.found() == []


def test_the_enumeration_of_rules_is_the_catalogue() -> None:
    names = {rule.value: rule.name.replace("_", "-") for rule in Rule if rule}
    assert names == {number: anomaly.name.upper() for number, anomaly in anomalies().items()}
