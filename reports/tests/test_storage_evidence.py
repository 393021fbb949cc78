"""Audits of small histories in which deletions, compaction, replica dumps or unknown sends decide the verdict.

Most are the shortest form of an anomaly that the auditor did not find before, with the closest history without it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from highwater.reports.execution.division.chunks import InMemoryChunks
from highwater.reports.execution.division.run import DividedPartition
from highwater.reports.rules import partition
from highwater.reports.rules.findings import Promise
from highwater.reports.tests.histories import PROMISED, History
from highwater.reports.tests.test_excuses import audited, delete, poll, sent, severities
from highwater.soak.division import by_completion, finding_rows

Case = tuple[Callable[[History], None], dict[str, Any], str, dict[str, str]]


def check(case: Case, folder: Path) -> None:
    """Assert the verdict and the findings of a case: what to write, the settings, the verdict, the findings."""
    write, config, verdict, found = case
    result = audited(write, folder, **config)
    assert (str(result.verdict), severities(result)) == (verdict, found)


# -- rules 4 and 5: explanations by the log start ----------------------------------------------------


def deleted_then_sent(h: History) -> None:
    """A record is acknowledged below the log start that a deletion had reached before its send began."""
    sent(h, 0, 1)
    delete(h, 3)
    sent(h, 2, 3)
    poll(h, 3, position=None)


def sent_then_deleted(h: History) -> None:
    sent(h, 0, 1, 2)
    delete(h, 3)
    sent(h, 3)
    poll(h, 3, position=None)


def reported_after_the_send(h: History) -> None:
    """The same log start is reported before the send and after it; the second report explains the absence."""
    sent(h, 0, 1)
    delete(h, 3)
    sent(h, 2, 3)
    h.fetch(3, (3, 3), end=4, log_start_offset=3)


@pytest.mark.parametrize(
    "case",
    [
        (deleted_then_sent, {}, "unknown", {"unseen": "undecided"}),
        (sent_then_deleted, {}, "valid", {}),
        (reported_after_the_send, {}, "valid", {}),
    ],
    ids=lambda case: case[0].__name__,
)
def test_a_deletion_that_returned_before_a_send_does_not_explain_its_absence(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


# -- the log start after DeleteRecords(-1) -----------------------------------------------------------


def removed_behind_a_finished_deletion(h: History) -> None:
    """The high watermark to which the deletion went cannot be above a record that was sent later."""
    _deleted_to_the_high_watermark(h, log_start_offset=3)


def removed_up_to_the_high_watermark(h: History) -> None:
    _deleted_to_the_high_watermark(h, log_start_offset=2)


def removed_by_an_unknown_deletion(h: History) -> None:
    """A deletion that timed out before the send may have happened after it."""
    _deleted_to_the_high_watermark(h, log_start_offset=3, kind="info")


def _deleted_to_the_high_watermark(h: History, *, log_start_offset: int, kind: str = "ok") -> None:
    sent(h, 0, 1)
    delete(h, -1, kind)
    sent(h, 2, 3)
    records = [(value, value) for value in (2, 3) if value >= log_start_offset]
    h.fetch(log_start_offset, *records, end=4, log_start_offset=log_start_offset)


@pytest.mark.parametrize(
    "case",
    [
        (removed_behind_a_finished_deletion, {}, "invalid", {"early-retention": "violation"}),
        (removed_behind_a_finished_deletion, {"unclean_election": True}, "valid", {}),
        (removed_behind_a_finished_deletion, {"acks": "1"}, "valid", {}),
        (removed_up_to_the_high_watermark, {}, "valid", {}),
        (removed_by_an_unknown_deletion, {}, "valid", {}),
    ],
    ids=lambda case: case[0].__name__,
)
def test_a_deletion_to_the_high_watermark_ends_below_later_records(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


# -- the latest record of a key ----------------------------------------------------------------------


def compacted(*later: dict[str, Any], final: bool = False) -> Callable[[History], None]:
    """Return a scenario: the record of a key is read, then `later` is sent, then a read does not return the record."""

    def write(h: History) -> None:
        h.send(1, 0, key="k")
        h.send(2, 1, key="j")
        h.fetch(0, (0, 1), (1, 2), end=2)
        for number, send in enumerate(later):
            h.send(**{"value": 3 + number, "key": "k", "process": 1, **send})
        if final:
            h.kill()
            h.phase("final")
            h.list_offsets(1, epoch=None)
        else:
            h.fetch(0, (1, 2), end=3, epoch=1)
            h.fetch(2, *((2, send.get("value", 3)) for send in later if "offset" in send), end=3, epoch=1)

    return write


COMPACTED = {"compaction": True}
LATEST_OF_A_KEY: dict[str, Case] = {
    "the only record of its key": (compacted(), COMPACTED, "invalid", {"truncated-after-read": "violation"}),
    "superseded": (compacted({"offset": 2}), COMPACTED, "valid", {}),
    "superseded by a record of another key": (
        compacted({"offset": 2, "key": "j"}), COMPACTED, "invalid", {"truncated-after-read": "violation"},
    ),
    "superseded by a rejected record": (
        compacted({"kind": "fail"}), COMPACTED, "invalid", {"truncated-after-read": "violation"},
    ),
    "perhaps superseded": (compacted({"kind": "info"}), COMPACTED, "unknown", {"truncated-after-read": "undecided"}),
    "deleted by a tombstone": (compacted({"value": None, "offset": 2}), COMPACTED, "valid", {}),
    "perhaps superseded by a retry": (
        compacted(), COMPACTED | {"idempotence": False}, "unknown", {"truncated-after-read": "undecided"},
    ),
    "perhaps removed by retention": (
        compacted(), COMPACTED | {"retention": True, "retention_ms": 1}, "unknown",
        {"truncated-after-read": "undecided"},
    ),
    "beyond the end": (
        compacted(final=True), COMPACTED | {"unclean_election": None}, "unknown",
        {"truncated-after-read": "undecided", "high-watermark-regression": "undecided", "stale-read": "undecided"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LATEST_OF_A_KEY)
def test_a_compacted_topic_keeps_the_latest_record_of_each_key(name: str, tmp_path: Path) -> None:
    check(LATEST_OF_A_KEY[name], tmp_path)


# -- deleted records that come back ------------------------------------------------------------------


def back_in(
    *, asked: bool = True, start: int | None = 1, epoch: int | None = 0, position: int | None = 0, node: str = "1"
) -> Callable[[History], None]:
    """Return a scenario: records below 1 are deleted, a fetch reports that, and a later fetch returns record 0."""

    def write(h: History) -> None:
        sent(h, 0, 1)
        if asked:
            delete(h, 1)
        if epoch == 1:
            h.kill()
        if start is not None:
            h.fetch(1, (1, 1), end=2, log_start_offset=start)
        where = {"position": position, "leader_epoch": epoch, "node": node}
        h.begin(61, "fetch", **where)
        h.end(61, "ok", value=[[0, 0], [1, 1]], high_watermark=2)

    return write


def polled_again(h: History) -> None:
    sent(h, 0, 1)
    delete(h, 1)
    poll(h, 0, 1, position=None)


def fetched_while_they_were_deleted(h: History) -> None:
    sent(h, 0, 1)
    h.begin(61, "fetch", position=0, leader_epoch=0)
    delete(h, 1, log_start_offset=1)
    h.end(61, "ok", value=[[0, 0], [1, 1]], high_watermark=2)


VIOLATED, UNDECIDED = {"resurrected-record": "violation"}, {"resurrected-record": "undecided"}
BACK: dict[str, Case] = {
    "within the leader epoch": (back_in(), {}, "invalid", VIOLATED),
    "after retention": (back_in(asked=False), {"retention": True}, "invalid", VIOLATED),
    "after an election": (back_in(epoch=1), {}, "unknown", UNDECIDED),  # the deletion states no leader epoch
    "after an unclean election": (
        back_in(epoch=1), {"unclean_election": True}, "valid", {"resurrected-record": "expected"},
    ),
    "without a report": (back_in(start=None), {}, "unknown", UNDECIDED),
    "from a follower": (back_in(epoch=None, node="2"), {}, "valid", {}),
    "below the position": (back_in(position=1), {}, "valid", {}),
    "in a fetch without a position": (back_in(position=None), {}, "valid", {}),
    "in a poll": (polled_again, {}, "unknown", UNDECIDED),
    "during the deletion": (fetched_while_they_were_deleted, {}, "valid", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", BACK)
def test_deleted_records_do_not_come_back(name: str, tmp_path: Path) -> None:
    check(BACK[name], tmp_path)


# -- replica dumps and what clients know -------------------------------------------------------------


def dumped(
    *records: tuple[int, int], end: int = 2, start: int | None = 0, read: bool = False
) -> Callable[[History], None]:
    """Return a scenario: values 0 and 1 are acknowledged, and perhaps read; a replica holds `records`."""

    def write(h: History) -> None:
        h.begin(9, "send", value=9)
        h.end(9, "info")
        sent(h, 0, 1)
        h.fetch(0, (0, 0), (1, 1), end=2) if read else h.fetch(2, end=2)
        h.begin(30, "log_dump", node="3", position=start)
        h.end(30, value=[list(record) for record in records], high_watermark=end)
        poll(h, 0, 1)

    return write


DIVERGED = {"replica-divergence": "violation"}
DUMPED: dict[str, Case] = {
    "another value": (dumped((0, 9), (1, 1)), {}, "invalid", DIVERGED),
    "another value above its high watermark": (dumped((0, 0), (1, 9), end=1), {}, "valid", {}),
    "a record is missing": (dumped((0, 0)), {}, "invalid", DIVERGED),
    "below its log start": (dumped((1, 1), start=1), {}, "valid", {}),
    "below its first record": (dumped((1, 1), start=None), {}, "valid", {}),
    "missing in a compacted topic": (dumped((0, 0)), COMPACTED, "valid", {}),
    "another value in a compacted topic": (dumped((0, 9), (1, 1)), COMPACTED, "invalid", DIVERGED),
    "unclean elections unknown": (
        dumped((0, 9), (1, 1)), {"unclean_election": None}, "unknown", {"replica-divergence": "undecided"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DUMPED)
def test_a_replica_holds_what_clients_know(name: str, tmp_path: Path) -> None:
    check(DUMPED[name], tmp_path)


@pytest.mark.parametrize(("acks", "read", "found"), [("all", False, True), ("1", False, False), ("1", True, True)])
def test_an_acknowledgement_of_the_leader_alone_is_no_evidence(
    acks: str, read: bool, found: bool, tmp_path: Path
) -> None:
    def write(h: History) -> None:
        dumped((0, 9), (1, 1), read=read)(h)
        del h.events[-3:]  # the last poll

    assert ("replica-divergence" in severities(audited(write, tmp_path, acks=acks))) == found


# -- the order of a producer -------------------------------------------------------------------------


def unknown_overtaken(*later: int, epoch: int = 0, offset: int = 1) -> Callable[[History], None]:
    """Return a scenario: the first of two records of a producer has an unknown outcome, and is read behind the second.

    Then records of the producer epochs `later` are sent.
    """

    def write(h: History) -> None:
        for sequence, of in enumerate((0, epoch)):
            h.begin(sequence, "send", value=sequence, producer_id=9, producer_epoch=of, sequence=sequence)
        h.end(1, offset=1 - offset)
        h.end(0, "info")
        for number, of in enumerate(later):
            h.send(2 + number, 2 + number, producer_id=9, producer_epoch=of, sequence=2 + number)
        poll(h, *[1, 0][:: 1 if offset else -1], *range(2, 2 + len(later)))

    def at_offsets(h: History) -> None:
        write(h)
        records = h.events[-1].value["t-0"]
        records[:] = [[place, value] for place, (_, value) in enumerate(records)]

    return at_offsets


REORDERED: dict[str, Case] = {
    "perhaps sent again": (unknown_overtaken(), {}, "unknown", {"producer-reorder": "undecided"}),
    "the producer epoch was used later": (unknown_overtaken(0), {}, "invalid", {"producer-reorder": "violation"}),
    "a new producer epoch": (unknown_overtaken(1), {}, "unknown", {"producer-reorder": "undecided"}),
    "of two producer epochs": (unknown_overtaken(epoch=1), {}, "valid", {}),
    "in order": (unknown_overtaken(0, offset=0), {}, "valid", {}),
}


@pytest.mark.parametrize("name", REORDERED)
def test_a_record_of_unknown_outcome_has_its_place_in_the_order_of_its_producer(name: str, tmp_path: Path) -> None:
    check(REORDERED[name], tmp_path)


# -- divided partitions ------------------------------------------------------------------------------

EVERY: dict[str, Case] = {
    "deleted, then sent": (deleted_then_sent, {}, "", {}),
    **{f"back: {name}": case for name, case in BACK.items()},
    **{f"dumped: {name}": case for name, case in DUMPED.items() if case[1] != COMPACTED},
    **{f"reordered: {name}": case for name, case in REORDERED.items()},
}


@pytest.mark.parametrize("name", EVERY)
def test_the_findings_are_the_same_in_a_divided_partition(name: str) -> None:
    write, config, _, _ = EVERY[name]
    settings = msgspec.structs.replace(PROMISED, **config)
    history = History(settings)
    write(history)
    ops, promise = by_completion(history.operations()), Promise.of(settings)
    for cut in range(1, len(ops)):
        for size in (1, 2, 8):
            divided = DividedPartition.of(InMemoryChunks(ops, [0, cut]), promise, size=size)
            assert divided is not None
            assert finding_rows(divided.check()) == finding_rows(partition.check(ops, promise)), (cut, size)
