"""The simulator: seeds without violations, reproducible runs, and checks that must fail."""

import subprocess
import sys
from dataclasses import replace

import pytest

from highwater.errors import UsageError
from highwater.fuzz.schedule import Fault, Schedule
from highwater.fuzz.simulator.cluster import Focus, Load, Settings
from highwater.fuzz.simulator.disk_faults import LOGS, SILENT_DAMAGE, SILENT_KINDS
from highwater.fuzz.simulator.invariants.loads import LOADS
from highwater.fuzz.simulator.invariants.violations import SituationCounts
from highwater.fuzz.simulator.search import SeedResult, run_seed, sweep_parallel
from highwater.fuzz.simulator.swarm import draw_load, draw_schedule, settings_of
from highwater.reference.drivers.simulation.chance import Chance

GROUP = Settings(partitions=3, load=Load(producers=1, members=("range", "range")))


def test_seeds_violate_nothing_with_all_guards_on() -> None:
    found = sweep_parallel(range(10), Settings(swarm=True), jobs=1)
    assert [str(result.violation) for result in found.findings] == []
    situations = sum((result.situations for result in found.results), SituationCounts())
    assert {
        "kill",
        "lost tail",
        "pause",
        "leader change",
        "truncation",
        "isr shrink",
        "group Stable",
    } <= situations.keys()


def test_a_rejected_stop_replica_is_no_deletion() -> None:
    """In this run a broker restarts while its replicas are deleted, so it returns STALE_BROKER_EPOCH."""
    result = run_seed(5, Settings(swarm=True, load=Load(producers=1, administrator=True, deletes=True)))
    assert str(result.violation) == "None"


def test_a_repeated_isr_proposal_whose_first_copy_was_written_succeeds() -> None:
    """The controller writes the first copy of a proposal while the leader repeats it; the leader waited forever."""
    schedule = draw_schedule(180, settings_of(180, Settings(swarm=True)))
    result = run_seed(180, Settings(swarm=True, partitions=3, load=Load()), schedule=schedule)
    assert str(result.violation) == "None"


@pytest.mark.long
def test_replicas_agree_although_the_log_cleaner_runs_at_different_times() -> None:
    """The cleaner removes batches of the offsets and transaction logs at a different time on every replica."""
    settings = Settings(
        swarm=True,
        load=Load(producers=1, transactional=1, members=("range", "range")),
        broker_settings={"log_cleaner_backoff_ms": 300, "log_segment_bytes": 1024},
    )
    found = sweep_parallel((0, 1, 3), settings, jobs=1)
    assert [str(result.violation) for result in found.findings] == []


@pytest.mark.long
def test_a_seed_yields_the_same_run_with_every_hash_seed() -> None:
    """No order may depend on hashing: interpreters with different hash seeds write the same trace."""
    script = (
        "from highwater.fuzz.simulator.search import run_seed; from highwater.fuzz.schedule import *;"
        "from highwater.fuzz.simulator.cluster import *;"
        "kill = Fault(at_ms=300, for_ms=300, kind='kill', nodes=('leader(t,0)',), options={'lose': 'torn'});"
        "r = run_seed(6, Settings(swarm=True, load=Load(members=('range', 'range'), readers=2, group_readers=2,"
        " transforms='v2')), tracing=True,"
        " schedule=Schedule(duration_ms=900, seed=6, faults=(kill,)));"
        "print(r.events, r.acked, r.fingerprint, r.trace_hash)"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_a_run_is_the_same_with_every_message_encoded_and_decoded() -> None:
    schedule = Schedule(
        duration_ms=1_500, seed=4, faults=(Fault(at_ms=500, for_ms=500, kind="kill", nodes=("leader(t,0)",)),)
    )
    settings = replace(GROUP, load=Load(producers=1, members=("range",), readers=2, group_readers=1, transforms="v2"))
    objects, encoded = (
        run_seed(4, replace(settings, wire=wire), schedule=schedule, tracing=True) for wire in (False, True)
    )
    assert objects.violation is None
    assert (objects.fingerprint, objects.trace_hash) == (encoded.fingerprint, encoded.trace_hash)


def test_a_run_without_progress_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose brokers never restart makes no progress."""
    monkeypatch.setattr("highwater.fuzz.simulator.faults.Injector.heal", lambda self: None)
    schedule = Schedule(duration_ms=1_000, faults=(Fault(at_ms=100, kind="kill", nodes=("1",)),))
    result: SeedResult = run_seed(3, schedule=schedule)
    assert result.violation is not None
    assert result.violation.operator.endswith("liveness)")


def test_an_exception_in_a_node_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("highwater.reference.broker.Broker._on_role_change", broken)
    violation = run_seed(3, schedule=Schedule(duration_ms=100)).violation
    assert violation is not None
    assert violation.invariant == "NodeGoesOn"
    assert "ZeroDivisionError: planted (test_simulation.py:" in violation.message


def test_a_schedule_with_an_unknown_node_is_rejected() -> None:
    schedule = Schedule(duration_ms=100, faults=(Fault(at_ms=1, kind="kill", nodes=("9",)),))
    with pytest.raises(UsageError, match="fault 0: unknown node '9'; known: store, 1, 2, 3"):
        run_seed(1, schedule=schedule)


def test_draws_do_not_depend_on_other_draws() -> None:
    one, other = Chance(5), Chance(5)
    other.draw("delay", 1, 100)
    assert one.draw("loss", 7, 1000) == other.draw("loss", 7, 1000)
    assert [Chance(5).draw("x", n, 10) for n in range(20)] != [Chance(6).draw("x", n, 10) for n in range(20)]


def test_seeds_draw_every_fault_and_every_load() -> None:
    loads = [draw_load(Chance(seed)) for seed in range(120)]
    assert {bool(load.members) for load in loads} == {load.administrator for load in loads} == {True, False}
    for met in LOADS.values():
        assert {bool(met(load)) for load in loads} == {True, False}
    assert {load.members[0] for load in loads if load.members} >= {"range", "cooperative-sticky"}
    faults = [f for seed in range(120) for f in draw_schedule(seed, settings_of(seed, Settings(swarm=True))).faults]
    assert {fault.kind for fault in faults} == {
        "kill", "bounce", "pause", "cut", "clog", "delay", "loss", "disconnect", "duplicate", "slow_flush",
        "fail_flush", "full_disk", "rot", "clock", "expire", "stall", "volatile_disk", "misdirect", "rot_file",
    }  # fmt: skip


def test_seeds_draw_every_silent_damage() -> None:
    """Each row of the table comes up, at each log; a loss of power follows a disk that stores nothing."""
    drawn = [draw_schedule(seed, settings_of(seed, Settings(swarm=True))).faults for seed in range(300)]
    faults = [fault for faults in drawn for fault in faults if fault.kind in SILENT_KINDS]
    for kind, options in SILENT_DAMAGE:
        assert any(fault.kind == kind and options.items() <= fault.options.items() for fault in faults), options
    assert {fault.options["of"] for fault in faults if fault.kind == "misdirect"} == set(LOGS)
    assert 100 < sum(any(fault.kind in SILENT_KINDS for fault in faults) for faults in drawn) < 180
    for faults_of_a_run in drawn:
        kills = [fault for fault in faults_of_a_run if fault.kind == "kill" and fault.options["lose"] == "unflushed"]
        for fault in faults_of_a_run:
            if fault.kind == "volatile_disk":
                until_ms = fault.at_ms + fault.for_ms
                assert any(kill.nodes == fault.nodes and fault.at_ms < kill.at_ms < until_ms for kill in kills)


def test_kinds_of_faults_that_a_run_is_limited_to_leave_silent_damage_out() -> None:
    settings = Settings(swarm=True, load=Load(), focus=Focus(kinds=("kill",)))
    assert {fault.kind for seed in range(20) for fault in draw_schedule(seed, settings).faults} == {"kill"}


@pytest.mark.long
def test_a_replica_whose_log_is_not_read_again_yet_counts_as_stored() -> None:
    """In seed 94051 a leader commits just after a follower with rotten data has started again; once a violation."""
    faults = (
        Fault(at_ms=1638, kind="expire", nodes=("1",)),
        Fault(at_ms=1940, kind="rot", nodes=("2",), for_ms=158, options={"bit": 31223, "of": "data"}),
        Fault(at_ms=4101, kind="clog", nodes=("1",), for_ms=2050, options={"of": "3", "direction": "in"}),
    )
    result = run_seed(94051, Settings(swarm=True), schedule=Schedule(seed=94051, duration_ms=6000, faults=faults))
    assert (result.violation, result.situations["isr shrink"] > 0) == (None, True)
