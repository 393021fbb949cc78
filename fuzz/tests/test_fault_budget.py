"""Runs that once broke an invariant with all guards on: a broker restarted, lost its session, or was assigned another
replica at a bad time."""

import pytest

from highwater.fuzz.schedule import Fault, Schedule
from highwater.fuzz.simulator.cluster import Load, Settings
from highwater.fuzz.simulator.search import run_seed

DELETES = Settings(swarm=True, load=Load(producers=1, administrator=True, deletes=True))
MOVES = Settings(
    brokers=4,
    replication_factor=3,
    load=Load(producers=1, administrator=True),
    broker_settings={"isr_update": "alter_partition", "replica_lag_time_max_ms": 300},
)


def kill(at_ms: int, for_ms: int, node: str, lose: str) -> Fault:
    return Fault(at_ms=at_ms, for_ms=for_ms, kind="kill", nodes=(node,), options={"lose": lose})


def broken_link(at_ms: int, for_ms: int, node: str, direction: str) -> Fault:
    """No follower's fetch goes through."""
    options: dict[str, str | int] = {"direction": direction, "of": "brokers", "what": "FetchRequest"}
    return Fault(at_ms=at_ms, for_ms=for_ms, kind="cut", nodes=(node,), options=options)


def test_a_second_tail_is_not_lost_though_the_leader_has_everything() -> None:
    """It leaves before anybody has noticed that both others died, and the ISR is large enough on paper."""
    bounce = Fault(at_ms=565, for_ms=64, kind="bounce", nodes=("leader(t,0)",))
    faults = (kill(406, 204, "followers(t,0)", "unflushed"), bounce)
    result = run_seed(671, Settings(swarm=True), schedule=Schedule(seed=671, duration_ms=1500, faults=faults))
    assert str(result.violation) == "None"
    assert sum("loses its unflushed data" in line for line in result.faults) == 1, result.faults
    assert sum("beyond the fault budget" in line for line in result.faults) == 2, result.faults


def test_the_leader_counts_what_a_follower_had_stored_until_it_hears_of_the_crash() -> None:
    """2 lags, 1 loses its tail; when 2 is out of the ISR, all that 1 fetched is committed."""
    faults = (broken_link(800, 3000, "2", "out"), kill(1300, 100, "1", "unflushed"))
    settings = Settings(broker_settings={"log_flush_interval_ms": 10_000})
    result = run_seed(1, settings, schedule=Schedule(seed=1, duration_ms=4000, faults=faults))
    assert str(result.violation) == "None"
    assert {"lost tail", "isr shrink"} <= result.situations.keys()


def test_an_eligible_replica_leads_and_not_the_last_member_that_lost_its_tail() -> None:
    """The leader of an ISR of one is the controller, too: the next one finds it restarted."""
    faults = (broken_link(800, 3000, "leader(t,0)", "in"), kill(2200, 100, "controller", "unflushed"))
    settings = Settings(broker_settings={"isr_update": "alter_partition", "log_flush_interval_ms": 10_000})
    result = run_seed(4, settings, schedule=Schedule(seed=4, duration_ms=4000, faults=faults))
    assert str(result.violation) == "None"
    assert {"lost tail", "isr of one", "controller change"} <= result.situations.keys()


def test_who_restarted_uncleanly_holds_nothing_until_the_controller_has_dealt_with_it() -> None:
    """4 loses nothing that was committed, and leaves the ISR all the same: 2 is the last that may not lose its tail."""
    faults = (
        kill(390, 201, "1", "unflushed"),
        kill(597, 2033, "store", "nothing"),
        kill(2968, 2047, "store", "nothing"),
        kill(5650, 45, "4", "unflushed"),
        kill(5764, 2055, "2", "unflushed"),
    )
    result = run_seed(5, DELETES, schedule=Schedule(seed=5, duration_ms=6000, faults=faults))
    assert str(result.violation) == "None"
    assert "skipped for 2: beyond the fault budget" in result.faults[-2], result.faults


def test_one_that_is_let_in_by_what_its_former_life_fetched_goes_again() -> None:
    """1 dies between the leader's proposal to let it in and the store's taking it."""
    faults = (
        kill(154, 756, "1", "nothing"),
        kill(1549, 744, "controller", "torn"),
        kill(3351, 65, "1", "torn"),
        kill(4000, 176, "followers(t,0)", "unflushed"),
    )
    result = run_seed(49, DELETES, schedule=Schedule(seed=49, duration_ms=6000, faults=faults))
    assert str(result.violation) == "None"
    assert sum("loses its unflushed data" in line for line in result.faults) == 5, result.faults


@pytest.mark.parametrize(("seed", "node", "at_ms"), [(4, "1", 448), (12, "1", 744)])
def test_a_broker_that_lost_its_session_drops_what_was_moved_away_meanwhile(seed: int, node: str, at_ms: int) -> None:
    """In the second run it registers just before the store forgets that it was a replica."""
    pause = Fault(at_ms=at_ms, for_ms=2000, kind="pause", nodes=(node,))
    result = run_seed(seed, MOVES, schedule=Schedule(seed=seed, duration_ms=4000, faults=(pause,)))
    assert str(result.violation) == "None"
    assert {"pause", "isr expansion"} <= result.situations.keys()


@pytest.mark.parametrize(
    ("seed", "duration_ms"),
    [
        pytest.param(9, 600, id="who is moved away counts for the high watermark until it is out of the ISR"),
        pytest.param(33, 1_500, id="another wish waits while the replicas of the last one are deleted"),
    ],
)
def test_moves_in_quick_succession_end_well(seed: int, duration_ms: int) -> None:
    settings = Settings(swarm=True, load=Load(idempotent=1, administrator=True, hurries=True))
    result = run_seed(seed, settings, schedule=Schedule(seed=seed, duration_ms=duration_ms))
    assert str(result.violation) == "None"
