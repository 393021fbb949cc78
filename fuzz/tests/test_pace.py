"""The pace of a run: all times but those of the network are multiplied, and wrong brokers are found as before."""

import pytest

from highwater.fuzz.simulator.cluster import Load, Settings
from highwater.fuzz.simulator.search import run_seed
from highwater.fuzz.simulator.swarm import draw_schedule, settings_of

SEEDS = range(40)
QUICK, SLOW = Settings(swarm=True, load=Load(readers=1)), Settings(swarm=True, load=Load(readers=1), pace=30)


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_keep_their_order_and_last_longer(seed: int) -> None:
    quick, slow = (draw_schedule(seed, settings_of(seed, settings)) for settings in (QUICK, SLOW))
    assert slow.duration_ms == 30 * quick.duration_ms
    for one, other in zip(quick.faults, slow.faults, strict=True):
        assert (other.kind, other.nodes) == (one.kind, one.nodes)
        assert (other.at_ms, other.for_ms) == (30 * one.at_ms, 30 * one.for_ms)
        assert other.options.get("by_ms") == one.options.get("by_ms"), "the clock jumps as far"


def test_all_runs_but_those_of_old_consumers_have_a_pace() -> None:
    drawn = [settings_of(seed, Settings(swarm=True, pace=30)) for seed in SEEDS]
    assert {settings.pace for settings in drawn} == {1, 30}
    assert all(settings.clients.old_consumers for settings in drawn if settings.pace == 1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_the_correct_broker_holds(seed: int) -> None:
    result = run_seed(seed, SLOW)
    assert result.violation is None, str(result.violation)
    assert result.simulated_ms > 30 * 12_000
    assert result.acked > 100


@pytest.mark.long
@pytest.mark.parametrize("guard", ["AckAfterCommit", "UncleanRestartLeavesIsr"])
def test_a_wrong_broker_is_found(guard: str) -> None:
    settings = Settings(swarm=True, pace=30, guards_off=(guard,))
    assert any(run_seed(seed, settings).violation for seed in range(60)), f"no seed in range(60) finds {guard}"
