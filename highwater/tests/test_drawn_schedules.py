"""Whole runs whose schedules Hypothesis draws and shrinks."""

from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, given

from highwater.fuzz.machines.all import count_events
from highwater.fuzz.schedule import Schedule, check, read_schedule
from highwater.fuzz.simulator.cluster import Settings
from highwater.fuzz.simulator.search import run_seed
from highwater.soak.drawn_schedules import schedules, search_for_violation

SWARM = Settings(swarm=True)


@pytest.mark.soak
def test_drawn_runs_hold() -> None:
    with count_events() as tally:
        assert search_for_violation(SWARM, seed=3, runs=6) is None
    assert tally["first leader"] == 6


@hypothesis.settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(schedules(SWARM))
def test_drawn_schedules_are_valid(schedule: Schedule) -> None:
    check(schedule, ["store", "1", "2", "3", "4", *(f"member:{number}" for number in range(3))])


def test_a_guard_that_is_off_is_found_and_shrunk(tmp_path: Path) -> None:
    """The printed command reproduces it; `python -m highwater.soak.nightly` tests other guards."""
    guard = "HwNeedsWholeIsr"
    found = search_for_violation(Settings(swarm=True, guards_off=(guard,)), seed=1, runs=60)
    assert found is not None
    assert len(found.schedule.faults) <= 2
    found.save(tmp_path)
    lines = found.lines(tmp_path)
    assert lines[1].strip() == f"again:  highwater simulate --schedule {tmp_path}/schedule.json --guard-off {guard}"
    again = run_seed(
        found.schedule.seed,
        Settings(swarm=True, guards_off=(guard,)),
        schedule=read_schedule(tmp_path / "schedule.json"),
    )
    assert again.violation == found.violation
