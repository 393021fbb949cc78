"""A night fails if something broke, and decides nothing if what must come up never did."""

from collections import Counter

import pytest

from fuzz import nightly
from fuzz.machines.store import StoreMachine
from spec.formats.verdict import ExitCode


def night(monkeypatch: pytest.MonkeyPatch, must: tuple[str, ...]) -> int | str | None:
    """One round of the metadata store alone."""
    monkeypatch.setattr(nightly, "PARTS", ("metadata store",))
    monkeypatch.setattr(nightly, "MUST_HAPPEN", {"metadata store": must})
    with pytest.raises(SystemExit) as ended:
        nightly.main(minutes=0, seed=1)
    return ended.value.code


def test_a_clean_night_tells_what_came_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert night(monkeypatch, ("session expired",)) == ExitCode.HELD
    assert "session expired" in capsys.readouterr().out


def test_what_never_came_up_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert night(monkeypatch, ("a comet",)) == ExitCode.UNDECIDED
    assert "0  a comet  NEVER HAPPENED" in capsys.readouterr().out


def test_what_broke_is_told_with_its_steps(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(StoreMachine, "_stored", lambda self: {"/": Counter()})
    assert night(monkeypatch, ()) == ExitCode.VIOLATED
    told = capsys.readouterr().out
    assert "state.begin()" in told
    assert "again with: python -m fuzz.nightly --minutes 0.1 --seed 1" in told
