"""Regressions: runs that once broke an invariant with all guards on.

In each of them a broker restarts, loses its session or is reassigned a replica at a critical time.
"""

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
    """Return a fault that drops all fetches of followers on the links of a broker."""
    options: dict[str, str | int] = {"direction": direction, "of": "brokers", "what": "FetchRequest"}
    return Fault(at_ms=at_ms, for_ms=for_ms, kind="cut", nodes=(node,), options=options)


def test_a_second_follower_does_not_lose_its_tail_although_the_leader_has_all_records() -> None:
    """The leader stops before the controller notices that both followers died, so the stored ISR is large enough."""
    bounce = Fault(at_ms=565, for_ms=64, kind="bounce", nodes=("leader(t,0)",))
    faults = (kill(406, 204, "followers(t,0)", "unflushed"), bounce)
    settings = Settings(swarm=True, load=Load(administrator=True, deletes=True, readers=2))
    result = run_seed(671, settings, schedule=Schedule(seed=671, duration_ms=1500, faults=faults))
    assert str(result.violation) == "None"
    assert sum("loses its unflushed data" in line for line in result.faults) == 1, result.faults
    assert sum("beyond the fault budget" in line for line in result.faults) == 2, result.faults


def test_the_last_complete_member_of_an_isr_does_not_stop_while_a_dead_one_stays_in_it() -> None:
    """1 lost its tail, and its session goes on when 2 and 3 stop: without eligible leader replicas it would lead."""
    bounces = (
        Fault(at_ms=19_320, for_ms=6_060, kind="bounce", nodes=("controller",)),
        Fault(at_ms=23_130, for_ms=60_690, kind="bounce", nodes=("controller",)),
    )
    faults = (kill(17_640, 22_200, "followers(t,0)", "torn"), *bounces)
    schedule = Schedule(seed=7413, duration_ms=60_000, faults=faults)
    result = run_seed(7413, Settings(swarm=True, pace=30), schedule=schedule)
    assert str(result.violation) == "None"
    assert any("beyond the fault budget" in line for line in result.faults), result.faults


def test_the_leader_counts_the_records_of_a_follower_until_it_learns_of_its_crash() -> None:
    """2 lags and 1 loses its tail; once 2 is out of the ISR, all records that 1 fetched are committed."""
    faults = (broken_link(800, 3000, "2", "out"), kill(1300, 100, "1", "unflushed"))
    settings = Settings(broker_settings={"log_flush_interval_ms": 10_000})
    result = run_seed(1, settings, schedule=Schedule(seed=1, duration_ms=4000, faults=faults))
    assert str(result.violation) == "None"
    assert {"lost tail", "isr shrink"} <= result.situations.keys()


def test_an_eligible_replica_is_elected_instead_of_the_last_isr_member_that_lost_its_tail() -> None:
    """The leader of an ISR of one is also the controller; the next controller finds it restarted."""
    faults = (broken_link(800, 3000, "leader(t,0)", "in"), kill(2200, 100, "controller", "unflushed"))
    settings = Settings(broker_settings={"isr_update": "alter_partition", "log_flush_interval_ms": 10_000})
    result = run_seed(4, settings, schedule=Schedule(seed=4, duration_ms=4000, faults=faults))
    assert str(result.violation) == "None"
    assert {"lost tail", "isr of one", "controller change"} <= result.situations.keys()


def test_an_uncleanly_restarted_replica_does_not_count_until_the_controller_has_processed_it() -> None:
    """4 loses no committed record but leaves the ISR, so 2 is the last replica, which may not lose its tail."""
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


def test_a_replica_added_to_the_isr_for_fetches_of_its_earlier_process_is_removed_again() -> None:
    """1 dies between the proposal of the leader to add it to the ISR and the write to the store."""
    faults = (
        kill(154, 756, "1", "nothing"),
        kill(1549, 744, "controller", "torn"),
        kill(3351, 65, "1", "torn"),
        kill(4000, 176, "followers(t,0)", "unflushed"),
    )
    result = run_seed(49, DELETES, schedule=Schedule(seed=49, duration_ms=6000, faults=faults))
    assert str(result.violation) == "None"
    assert sum("loses its unflushed data" in line for line in result.faults) == 5, result.faults


def test_the_session_of_the_last_sound_replica_does_not_end_while_the_other_one_has_lost_its_tail() -> None:
    """The leader dies with its tail, and its session goes on: without the other replica it would be left alone."""
    rot = Fault(at_ms=9_150, for_ms=5_310, kind="rot_file", nodes=("3",),
                options={"file": "offset index", "bit": 129, "of": "data"})  # fmt: skip
    expire = Fault(at_ms=46_110, kind="expire", nodes=("controller",))
    faults = (rot, kill(34_440, 21_330, "leader(t,0)", "unflushed"), expire)
    settings = Settings(swarm=True, pace=30)
    result = run_seed(10_502, settings, schedule=Schedule(seed=10_502, duration_ms=50_000, faults=faults))
    assert str(result.violation) == "None"
    assert any("loses its unflushed data" in line for line in result.faults), result.faults
    assert any("beyond the fault budget" in line for line in result.faults), result.faults


@pytest.mark.parametrize("kind", ["bounce", "expire"])
def test_a_broker_may_leave_while_the_store_is_down(kind: str) -> None:
    """What the ISRs are is not known then; that matters only if a broker has lost its tail."""
    leaves = Fault(at_ms=1_000, for_ms=200 * (kind == "bounce"), kind=kind, nodes=("followers(t,0)",))
    faults = (kill(600, 1_500, "store", "nothing"), leaves)
    result = run_seed(1, Settings(), schedule=Schedule(seed=1, duration_ms=3_000, faults=faults))
    assert str(result.violation) == "None"
    assert not any("beyond the fault budget" in line for line in result.faults), result.faults


@pytest.mark.parametrize(("seed", "node", "at_ms"), [(4, "1", 448), (12, "1", 744)])
def test_a_broker_that_lost_its_session_deletes_replicas_reassigned_meanwhile(seed: int, node: str, at_ms: int) -> None:
    """In the second run the broker registers just before it is removed from the assignment in the store."""
    pause = Fault(at_ms=at_ms, for_ms=2000, kind="pause", nodes=(node,))
    result = run_seed(seed, MOVES, schedule=Schedule(seed=seed, duration_ms=4000, faults=(pause,)))
    assert str(result.violation) == "None"
    assert {"pause", "isr expansion"} <= result.situations.keys()


@pytest.mark.parametrize(
    ("seed", "duration_ms"),
    [
        pytest.param(9, 600, id="a removed replica counts for the high watermark until it is out of the ISR"),
        pytest.param(33, 1_500, id="a reassignment waits until the replicas of the previous one are deleted"),
    ],
)
def test_reassignments_in_quick_succession_violate_nothing(seed: int, duration_ms: int) -> None:
    settings = Settings(swarm=True, load=Load(idempotent=1, administrator=True, hurries=True))
    result = run_seed(seed, settings, schedule=Schedule(seed=seed, duration_ms=duration_ms))
    assert str(result.violation) == "None"
