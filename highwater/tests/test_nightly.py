"""A nightly run fails on a violation, and is undecided if a required situation never occurred."""

from collections import Counter

import pytest

from highwater.errors import ExitCode
from highwater.fuzz.machines.store import StoreMachine
from highwater.fuzz.simulator.steered import STEERED_SCENARIOS, steered_runs
from highwater.soak import nightly


def nightly_exit_code(monkeypatch: pytest.MonkeyPatch, must: tuple[str, ...]) -> int | str | None:
    """Run the rounds of the metadata store only and return the exit code."""
    monkeypatch.setattr(nightly, "PARTS", {"metadata store": nightly.PARTS["metadata store"]})
    monkeypatch.setattr(nightly, "LEAST_ROUNDS", 2)
    monkeypatch.setattr(nightly, "MUST_HAPPEN", {"metadata store": must})
    with pytest.raises(SystemExit) as ended:
        nightly.main(minutes=0, seed=1)
    return ended.value.code


def test_a_clean_run_prints_the_situations(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert nightly_exit_code(monkeypatch, ("session expired",)) == ExitCode.HELD
    assert "session expired" in capsys.readouterr().out


@pytest.mark.long
def test_a_situation_that_never_occurred_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert nightly_exit_code(monkeypatch, ("a comet",)) == ExitCode.UNDECIDED
    printed = capsys.readouterr().out
    assert "0  a comet  NEVER HAPPENED" in printed
    assert "2 rounds, seeds 1 to 2" in printed


def test_a_violation_is_printed_with_its_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(StoreMachine, "_stored", lambda self: {"/": Counter()})
    assert nightly_exit_code(monkeypatch, ()) == ExitCode.VIOLATED
    printed = capsys.readouterr().out
    assert "state.begin()" in printed
    assert "to repeat: python -m highwater.soak.nightly --minutes 0.1 --seed 1" in printed


@pytest.mark.long
@pytest.mark.sample(3)
@pytest.mark.parametrize("situation", STEERED_SCENARIOS)
def test_a_steered_scenario_reaches_its_situation(situation: str) -> None:
    """A nightly run has two runs of each scenario per round, and more rounds while a situation is missing."""
    runs = steered_runs(situation, nightly.APART, 4 * nightly.STEERED_A_ROUND)
    assert any(situation in result.situations for result in runs if result.violation is None)
