"""The progress of long work where standard error is no terminal."""

import time

import pytest

from highwater import results
from highwater.results import Steps, progress


def test_a_log_gets_a_line_when_the_last_one_is_old(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with progress("work", 100) as step:
        for _ in range(9):
            now[0] += 4
            step()
    assert capsys.readouterr().err.splitlines() == [
        f"work: {done} of 100 after {done * 4} s, about {(100 - done) * 4} s more" for done in (3, 6, 9)
    ]


def test_quiet_work_prints_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(results, "LINE_EVERY_S", 0)
    with progress("work", 3, quiet=True) as step:
        step()
    assert capsys.readouterr().err == ""


def test_the_rest_is_unknown_without_a_total() -> None:
    assert "more" not in Steps("work", 0).line()
