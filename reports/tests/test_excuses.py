"""Every excuse has a time and a witness: histories that were called valid, or invalid, by an excuse without one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from highwater.reports.audit import audit
from highwater.reports.tests.histories import PROMISED, History
from highwater.reports.verdicts import AuditResult


def audited(write: Callable[[History], None], folder: Path, **config: Any) -> AuditResult:
    history = History(msgspec.structs.replace(PROMISED, **config))
    write(history)
    return audit(history.write(folder / "history.ndjson"))


def severities(result: AuditResult) -> dict[str, str]:
    return {finding.name: str(finding.severity) for finding in result.findings}


def delete(h: History, offset: int, kind: str = "ok", **reply: int) -> None:
    h.begin(40, "delete_records", offset=offset)
    h.end(40, kind, **reply)


def sent(h: History, *values: int) -> None:
    for value in values:
        h.send(value, value)


def poll(h: History, *values: int, process: int = 50, position: int | None = 0) -> None:
    h.assign(process, position)
    h.poll(*((value, value) for value in values), process=process)


# -- log start ---------------------------------------------------------------------------------------


def lost_then_deleted(h: History) -> None:
    sent(h, 0, 1, 2, 3)
    poll(h, 0, 2, 3)
    delete(h, 4)


def deleted_then_read(h: History) -> None:
    sent(h, 0, 1, 2, 3)
    delete(h, 2)
    poll(h, 2, 3)


def perhaps_deleted_then_read(h: History) -> None:
    sent(h, 0, 1, 2, 3)
    poll(h, 0, 1, 2, 3)
    delete(h, 2, "info")
    poll(h, 2, 3, process=51)


def deleted_to_the_high_watermark(h: History) -> None:
    sent(h, 0, 1)
    delete(h, -1)
    sent(h, 2, 3)
    poll(h, 2, 3, position=None)


def lost_after_a_deletion_to_the_high_watermark(h: History) -> None:
    sent(h, 0, 1)
    delete(h, -1, log_start_offset=2)
    sent(h, 2, 3, 4)
    poll(h, 2, 4, position=2)


@pytest.mark.parametrize(
    ("write", "verdict", "found"),
    [
        (lost_then_deleted, "invalid", {"lost-write": "violation"}),
        (deleted_then_read, "valid", {}),
        (perhaps_deleted_then_read, "unknown", {"truncated-after-read": "undecided"}),
        (deleted_to_the_high_watermark, "valid", {}),
        (lost_after_a_deletion_to_the_high_watermark, "invalid", {"lost-write": "violation"}),
    ],
)
def test_a_deletion_excuses_only_later_reads(
    write: Callable[[History], None], verdict: str, found: dict[str, str], tmp_path: Path
) -> None:
    result = audited(write, tmp_path)
    assert (result.verdict, severities(result)) == (verdict, found)


def test_retention_excuses_nothing_above_the_log_start_that_the_reply_states(tmp_path: Path) -> None:
    def write(h: History, start: int) -> None:
        sent(h, 0, 1, 2)
        h.fetch(0, (0, 0), (1, 1), (2, 2), end=3)
        h.fetch(0, (2, 2), end=3, log_start_offset=start)

    retention = {"retention": True, "retention_ms": 1}
    kept = audited(lambda h: write(h, 0), tmp_path, **retention)
    assert severities(kept) == {"truncated-after-read": "violation"}
    assert severities(audited(lambda h: write(h, 2), tmp_path, **retention)) == {}


def test_retention_without_log_starts_leaves_a_gap_at_the_beginning_undecided(tmp_path: Path) -> None:
    def write(h: History) -> None:
        sent(h, 0, 1, 2)
        poll(h, 0, 1, 2)
        poll(h, 2, process=51)

    result = audited(write, tmp_path, retention=True)
    assert (result.verdict, severities(result)) == ("unknown", {"truncated-after-read": "undecided"})
    (row,) = [row for row in result.rules if row.name == "truncated-after-read"]
    assert "log start offsets" in row.why


# -- what a reader may receive -----------------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_rejected_record_is_never_readable(isolation: str, tmp_path: Path) -> None:
    def write(h: History) -> None:
        h.send(7, kind="fail", error="MESSAGE_TOO_LARGE")
        h.fetch(0, (0, 7), end=1)

    result = audited(write, tmp_path, isolation=isolation)
    assert (result.verdict, severities(result)) == ("invalid", {"rejected-record-read": "violation"})


@pytest.mark.parametrize(
    ("ends", "name"),
    [
        ({"end": 1}, "read-beyond-end"),
        ({"end": 2, "last_stable_offset": 3}, "stable-offset-beyond-end"),
    ],
)
@pytest.mark.parametrize("proved", [True, False])
def test_a_reply_that_contradicts_its_own_ends_is_undecided(
    ends: dict[str, int], name: str, proved: bool, tmp_path: Path
) -> None:
    """The leader reads its ends before the records, so they may have advanced; what proved them before is a witness."""

    def write(h: History) -> None:
        for process, value in enumerate((0, 1, 2)):
            h.begin(process, "send", value=value)
        if proved:
            for process in range(3):
                h.end(process, offset=process)
        h.fetch(0, (0, 0), (1, 1), epoch=1, **ends)
        if not proved:
            for process in range(3):
                h.end(process, offset=process)
        h.fetch(0, (0, 0), (1, 1), (2, 2), end=3, epoch=1)

    result = audited(write, tmp_path)
    assert severities(result)[name] == "undecided"
    (finding,) = [finding for finding in result.findings if finding.name == name]
    assert [len(evidence.operations) for evidence in finding.witnesses] == [2 if proved else 1]


def test_a_tombstone_that_no_client_sent_is_a_phantom(tmp_path: Path) -> None:
    def write(h: History, *, timed_out: bool) -> None:
        h.send(1, 0)
        if timed_out:
            h.send(None, kind="info", process=1)  # type: ignore[arg-type]
        h.fetch(0, (0, 1), (1, None), end=2)  # type: ignore[arg-type]

    assert severities(audited(lambda h: write(h, timed_out=False), tmp_path)) == {"phantom-read": "violation"}
    assert severities(audited(lambda h: write(h, timed_out=True), tmp_path)) == {}


# -- a consumer's position ---------------------------------------------------------------------------


def test_a_raw_fetch_does_not_move_the_consumer_of_its_process(tmp_path: Path) -> None:
    def write(h: History, *polled: int) -> None:
        sent(h, 0, 1, 2, 3)
        poll(h, 0, 1)
        h.fetch(2, (2, 2), (3, 3), end=4, process=50)
        h.poll(*((value, value) for value in polled))

    assert severities(audited(lambda h: write(h, 2, 3), tmp_path)) == {}
    assert severities(audited(lambda h: write(h, 1, 2, 3), tmp_path)) == {"nonmonotonic-poll": "violation"}
    assert severities(audited(lambda h: write(h, 3), tmp_path)) == {"poll-skip": "violation"}


# -- the end of the log ------------------------------------------------------------------------------


def in_the_final_phase(read: Callable[[History], None]) -> Callable[[History], None]:
    def write(h: History) -> None:
        sent(h, 0, 1, 2)
        poll(h, 0, 1)
        h.kill()
        h.phase("final")
        read(h)

    return write


@pytest.mark.parametrize(
    "read",
    [
        lambda h: h.list_offsets(2, epoch=None),
        lambda h: h.fetch(2, end=2, epoch=None),
        lambda h: h.fetch(1, (1, 1), end=2, epoch=None),
    ],
    ids=["ListOffsets", "an empty fetch", "a fetch"],
)
def test_evidence_of_the_end_turns_an_unread_record_into_a_lost_one(
    read: Callable[[History], None], tmp_path: Path
) -> None:
    result = audited(in_the_final_phase(read), tmp_path)
    assert severities(result)["lost-write"] == "violation"
    assert result.verdict == "invalid"


@pytest.mark.parametrize(
    ("read", "verdict"), [(lambda h: h.poll(), "unknown"), (lambda h: (h.poll(), h.poll((2, 2))), "valid")]
)
def test_an_empty_poll_is_no_evidence(read: Callable[[History], None], verdict: str, tmp_path: Path) -> None:
    assert audited(in_the_final_phase(read), tmp_path).verdict == verdict


# -- leader and producer epochs ----------------------------------------------------------------------


def test_a_smaller_end_without_leader_epochs_is_undecided(tmp_path: Path) -> None:
    def write(h: History) -> None:
        sent(h, 0, 1, 2)
        h.fetch(0, (0, 0), (1, 1), (2, 2), end=3, epoch=None)
        h.list_offsets(1, epoch=None)

    result = audited(write, tmp_path)
    assert (result.verdict, set(severities(result).values())) == ("unknown", {"undecided"})


def test_an_end_beyond_a_record_that_was_not_sent_is_undecided_if_unclean_elections_are_unknown(tmp_path: Path) -> None:
    def write(h: History) -> None:
        h.list_offsets(5)
        sent(h, 0)
        poll(h, 0)

    assert severities(audited(write, tmp_path)) == {"future-read": "violation"}
    assert severities(audited(write, tmp_path, unclean_election=None)) == {"future-read": "undecided"}
    assert severities(audited(write, tmp_path, unclean_election=True)) == {}


@pytest.mark.parametrize(("later_epoch", "severity"), [(0, "violation"), (1, "undecided"), (None, "undecided")])
def test_a_timed_out_record_at_two_offsets_needs_a_new_producer_epoch(
    later_epoch: int | None, severity: str, tmp_path: Path
) -> None:
    def write(h: History) -> None:
        h.send(7, kind="info", producer_id=9, producer_epoch=0, client="c")
        if later_epoch is not None:
            h.send(8, 2, process=1, producer_id=9, producer_epoch=later_epoch, client="c")
        h.fetch(0, (0, 7), (1, 7), *(((2, 8),) if later_epoch is not None else ()), end=3)

    assert severities(audited(write, tmp_path))["duplicate"] == severity


# -- the account of the input ------------------------------------------------------------------------


def test_a_history_that_is_cut_at_a_line_end_is_unknown(tmp_path: Path) -> None:
    history = History(PROMISED)
    sent(history, 0, 1)
    poll(history, 0, 1)
    path = history.write(tmp_path / "history.ndjson")
    assert audit(path).verdict == "valid"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    cut = audit(path)
    assert cut.verdict == "unknown"
    assert "trailer is missing" in cut.quarantine.lines[0].reason


def test_the_unread_records_of_a_topic_are_excused_only_if_it_was_deleted(tmp_path: Path) -> None:
    def write(h: History, *deletions: str, again: bool = False) -> None:
        sent(h, 0, 1)
        for kind in deletions:
            h.begin(30, "delete_topic")
            h.end(30, kind)
        if again:
            h.begin(30, "create_topic")
            h.end(30)
            sent(h, 0)

    assert audited(lambda h: write(h, "ok"), tmp_path).verdict == "valid"
    assert audited(lambda h: write(h, "info"), tmp_path).verdict == "unknown"
    assert audited(lambda h: write(h, "fail"), tmp_path).verdict == "unknown"
    result = audited(lambda h: write(h, "info", "ok", again=True), tmp_path)
    assert result.verdict == "unknown", "the record of the new topic was not read"
    assert result.coverage is not None
    assert result.coverage.unread == 3


def test_an_acknowledged_send_without_offset_is_reported_once(tmp_path: Path) -> None:
    def write(h: History) -> None:
        h.send(7, -1)
        h.poll((0, 7), kind="info")

    (finding,) = audited(write, tmp_path).findings
    assert (finding.name, finding.count) == ("unseen", 1)


@pytest.mark.parametrize(("used_later", "severity"), [(False, "undecided"), (True, "violation")])
def test_a_client_that_gave_up_may_have_sent_the_record_in_a_newer_epoch(
    used_later: bool, severity: str, tmp_path: Path
) -> None:
    """KIP-360: its library may have written it again; a later send of the older epoch proves that it had no other."""

    def write(h: History) -> None:
        h.begin(0, "send", value=1, producer_id=9, producer_epoch=0, client="c")
        h.begin(1, "send", value=2, producer_id=9, producer_epoch=0, client="c")
        h.begin(2, "send", value=3, producer_id=9, producer_epoch=1, client="d")
        h.end(1, "info")
        h.end(2, offset=0)
        h.end(0, offset=1)
        if used_later:
            h.begin(3, "send", value=4, producer_id=9, producer_epoch=0, client="c")
            h.end(3, "fail")
        h.fetch(0, (0, 3), (1, 1), end=2)

    assert severities(audited(write, tmp_path))["producer-reorder"] == severity
