"""The ledger of simulated hours: each seed counts once, nothing is lost, and no violation passes unexplained."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from highwater.errors import UsageError
from highwater.fuzz.schedule import Schedule
from highwater.fuzz.simulator.cluster import Settings
from highwater.fuzz.simulator.invariants.violations import SituationCounts, Violation
from highwater.fuzz.simulator.search import SeedResult, Sweep
from highwater.soak import ledger
from highwater.soak.ledger import Entry, open_entry, read, write

HOUR_MS = 3_600_000
PACED = Settings(swarm=True, pace=30)


def result(seed: int, violation: Violation | None = None) -> SeedResult:
    """Return a run of one simulated hour with ten events."""
    return SeedResult(
        seed,
        10,
        HOUR_MS,
        3,
        0,
        Schedule(seed=seed, duration_ms=1),
        violation,
        situations=SituationCounts({"kill": 2}),
        audited=5,
    )


def command(*arguments: str, path: Path) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(ledger.main)
    done = CliRunner().invoke(app, [*arguments, "--ledger", str(path)])
    return done.exit_code, done.output


def test_sums_are_those_of_the_runs(tmp_path: Path) -> None:
    entries: list[Entry] = []
    entry = open_entry(entries, 30, "a", "2026-01-01")
    entry.add(Sweep([result(0), result(1)]), PACED)
    entry.add(Sweep([result(2)]), PACED)
    assert (entry.first, entry.end, entry.simulated_hours, entry.events) == (0, 3, 3.0, 30)
    assert (entry.acknowledged, entry.audited, entry.seen) == (9, 15, {"kill": 3})
    write(entries, tmp_path / "ledger.json")
    assert read(tmp_path / "ledger.json") == entries


def test_another_version_or_day_continues_after_all_seeds_of_its_pace() -> None:
    entries: list[Entry] = []
    open_entry(entries, 30, "a", "2026-01-01").add(Sweep([result(0)]), PACED)
    assert open_entry(entries, 1, "a", "2026-01-01").first == 0
    other = open_entry(entries, 30, "b", "2026-01-01")
    other.add(Sweep([result(1)]), PACED)
    assert (other.first, open_entry(entries, 30, "b", "2026-01-02").first) == (1, 2)
    again = open_entry(entries, 30, "a", "2026-01-01")  # an older version again: its entry has a gap, so a new one
    assert again is not entries[0]
    assert again.first == 2


def test_a_seed_counts_once() -> None:
    entry = open_entry([], 30, "a", "2026-01-01")
    entry.add(Sweep([result(0)]), PACED)
    with pytest.raises(AssertionError, match="seeds once each"):
        entry.add(Sweep([result(0)]), PACED)


def test_a_violation_needs_an_explanation(tmp_path: Path) -> None:
    path, entries = tmp_path / "ledger.json", []  # type: tuple[Path, list[Entry]]
    violation = Violation("HwNeverFalls", 12, 7, "broker:2", "from 5 to 4")
    open_entry(entries, 30, "a", "2026-01-01").add(Sweep([result(0, violation)]), PACED)
    write(entries, path)
    code, output = command("--show", path=path)
    assert code == 1
    assert "highwater simulate --seeds 0:1 --pace 30: HwNeverFalls at 12 ms" in output
    assert "NOT EXPLAINED" in output
    entries[0].violations[0].explanation = "a mistake of the invariant, repaired"
    write(entries, path)
    assert command("--show", path=path)[0] == 0


def test_what_is_no_ledger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    path.write_text("[{}]")
    with pytest.raises(UsageError, match="not a ledger"):
        read(path)


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    with ledger.alone(path), pytest.raises(UsageError, match="another run adds"), ledger.alone(path):
        pass


@pytest.mark.long
def test_a_run_adds_one_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "BLOCK", 1)
    path = tmp_path / "ledger.json"
    for _ in range(2):
        code, output = command("--minutes", "0", "--pace", "2", "--jobs", "1", path=path)
        assert code == 0, output
    (entry,) = read(path)
    assert (entry.first, entry.end, entry.pace) == (0, 2, 2)
    assert entry.simulated_hours > 2 * 20 / 3_600  # two times as long as at the pace 1
    assert entry.audited > 0
