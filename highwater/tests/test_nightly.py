"""A night fails if something broke, and decides nothing if what must come up never did."""

from collections import Counter

import pytest

from highwater.errors import ExitCode
from highwater.fuzz.machines.store import StoreMachine
from highwater.fuzz.simulator.steered import STEERED_SCENARIOS, steered_runs
from highwater.soak import nightly


def night(monkeypatch: pytest.MonkeyPatch, must: tuple[str, ...]) -> int | str | None:
    """One round of the metadata store alone."""
    monkeypatch.setattr(nightly, "PARTS", {"metadata store": nightly.PARTS["metadata store"]})
    monkeypatch.setattr(nightly, "LEAST_ROUNDS", 2)
    monkeypatch.setattr(nightly, "MUST_HAPPEN", {"metadata store": must})
    with pytest.raises(SystemExit) as ended:
        nightly.main(minutes=0, seed=1)
    return ended.value.code


def test_a_clean_night_tells_what_came_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert night(monkeypatch, ("session expired",)) == ExitCode.HELD
    assert "session expired" in capsys.readouterr().out


def test_what_never_came_up_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert night(monkeypatch, ("a comet",)) == ExitCode.UNDECIDED
    told = capsys.readouterr().out
    assert "0  a comet  NEVER HAPPENED" in told
    assert "2 rounds, seeds 1 to 2" in told


def test_what_broke_is_told_with_its_steps(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(StoreMachine, "_stored", lambda self: {"/": Counter()})
    assert night(monkeypatch, ()) == ExitCode.VIOLATED
    told = capsys.readouterr().out
    assert "state.begin()" in told
    assert "to repeat: python -m highwater.soak.nightly --minutes 0.1 --seed 1" in told


@pytest.mark.parametrize("situation", STEERED_SCENARIOS)
def test_a_story_leads_where_it_should(situation: str) -> None:
    """A night has two runs a round of each, and plays more rounds while something is missing."""
    runs = steered_runs(situation, nightly.APART, 4 * nightly.STEERED_A_ROUND)
    assert any(situation in result.situations for result in runs if result.violation is None)
