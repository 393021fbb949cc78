"""Audits of small histories in which deletions, compaction, replica dumps or unknown sends decide the verdict.

Most are the shortest form of an anomaly that the auditor did not find before, with the closest history without it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from highwater.reports.tests.histories import History
from highwater.reports.tests.test_excuses import audited, delete, poll, sent, severities

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
