"""Chaos runs: drawn schedules, rejected faults, cleanup after an interruption, and the schedule of KIP-101."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from highwater.errors import ExitCode, UsageError
from highwater.fuzz.chaos.capabilities import missing, reject_unsupported, supported
from highwater.fuzz.chaos.cluster import ChaosCluster, launched_target
from highwater.fuzz.chaos.draw import draw_schedule, draw_settings
from highwater.fuzz.chaos.nemesis import process_faults
from highwater.fuzz.chaos.races import FETCH_MS, draw_races, race_settings
from highwater.fuzz.chaos.run import chaos, requested_load
from highwater.fuzz.chaos.settings import (
    SESSION,
    reference_settings,
    schedule_load,
    settings_of_node,
    simulate_schedule,
)
from highwater.fuzz.schedule import KINDS, Fault, Option, Schedule, check, read_schedule, write_schedule

KIP101 = Path("fuzz/schedules/kip101.json")
LIMIT_S = 120.0
NODES, CLIENTS = ("1", "2", "3", "store"), ("consumer-1",)


class UntouchedProcesses:
    """Processes that fail the test if a fault touches them."""

    addresses: Final = {1: "127.0.0.1:1"}

    def start_node(self, node: int | str) -> None:
        raise AssertionError(node)

    stop_node = kill_node = pause_node = resume_node = start_node


CLUSTER = ChaosCluster(UntouchedProcesses.addresses, ("1",), process_faults(UntouchedProcesses()))


def schedule_of(kind: str, *nodes: str, at_ms: int = 1, **options: Option) -> Schedule:
    return Schedule(duration_ms=1_000, faults=(Fault(at_ms=at_ms, kind=kind, nodes=nodes, options=options),))


@pytest.mark.parametrize("seconds", [10, 60])
def test_each_drawn_schedule_has_a_fault_that_may_change_a_leader(seconds: float) -> None:
    kinds = [kind for kind in KINDS if kind not in {"rot", "clock", "message"}]
    for supported_kinds in (kinds, [kind for kind in kinds if kind not in {"kill", "pause", "expire"}]):
        decisive = {"kill", "pause", "cut", "expire"} & set(supported_kinds)
        for seed in range(300):
            drawn = draw_schedule(seed, seconds, supported_kinds, NODES, CLIENTS, draw_settings(seed, 3))
            check(drawn, [*NODES, *CLIENTS])
            assert any(fault.kind in decisive for fault in drawn.faults), seed
            assert all(fault.at_ms + fault.for_ms < drawn.duration_ms for fault in drawn.faults)


def test_drawn_schedules_are_valid_and_depend_only_on_the_seed() -> None:
    kinds = [kind for kind in KINDS if kind not in {"rot", "clock", "message"}]
    kinds_drawn: set[str] = set()
    for seed in range(200):
        drawn = draw_schedule(seed, 60, kinds, NODES, CLIENTS, draw_settings(seed, 3))
        check(drawn, [*NODES, *CLIENTS])
        assert drawn == draw_schedule(seed, 60, kinds, NODES, CLIENTS, draw_settings(seed, 3))
        assert all(fault.at_ms + fault.for_ms < drawn.duration_ms for fault in drawn.faults)
        kinds_drawn |= {fault.kind for fault in drawn.faults}
    assert kinds_drawn == set(kinds)


def test_race_schedules_are_valid_and_kill_two_brokers_within_one_fetch_of_each_other() -> None:
    for seed in range(50):
        settings = race_settings(seed, 3)
        drawn = draw_races(seed, 80, NODES, settings)
        check(drawn, [*NODES, *CLIENTS])
        assert drawn == draw_races(seed, 80, NODES, race_settings(seed, 3))
        kills = [fault for fault in drawn.faults if fault.kind == "kill"]
        assert len(kills) == 4
        assert all(fault.at_ms + fault.for_ms < drawn.duration_ms for fault in drawn.faults)
        for pair in (kills[:2], kills[2:]):
            early, late = sorted(pair, key=lambda fault: fault.for_ms)
            assert abs(early.at_ms - late.at_ms) < FETCH_MS
            session_ms = settings[late.nodes[0]][SESSION]
            assert early.for_ms < int(session_ms) < late.for_ms


def test_race_schedules_lose_records_with_high_watermark_truncation_and_none_with_kip320() -> None:
    high_watermark, kip320 = (
        [simulate_schedule(draw_races(seed, 30, ("1", "2"), race_settings(seed, 2)), 2, rule).violation
         for seed in (2, 9)]
        for rule in ("high_watermark", "kip320")
    )  # fmt: skip
    assert [str(violation)[:19] for violation in high_watermark if violation] == ["CommittedOnEligible"]
    assert kip320 == [None, None]


@pytest.mark.parametrize(
    ("schedule", "what"),
    [
        (schedule_of("melt", "1"), "unknown fault 'melt'"),
        (schedule_of("kill", "9"), "unknown node '9'; known: 1, store, or a role"),
        (schedule_of("kill", "1", at_ms=-1), "at_ms is negative"),
    ],
)
def test_an_invalid_schedule_is_rejected_before_the_target_starts(
    schedule: Schedule, what: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="fault 0") as rejected:
        chaos("reference:1", schedule, tmp_path, seconds=10, seed=1, workloads="send")
    assert what in str(rejected.value)
    assert not list(tmp_path.iterdir())


def test_an_unsupported_fault_is_rejected_with_what_it_needs() -> None:
    assert list(supported(CLUSTER)) == ["kill", "bounce", "pause", "stall", "message"]
    for kind in set(KINDS) - set(supported(CLUSTER)):
        with pytest.raises(UsageError, match=f"{kind} is unsupported: it needs ") as rejected:
            reject_unsupported(schedule_of(kind, "1"), CLUSTER, "here")
        assert missing(CLUSTER, kind) in str(rejected.value)
    with pytest.raises(UsageError, match="a mounted fault-injection file system below the log"):
        reject_unsupported(schedule_of("kill", "1", lose="torn"), CLUSTER, "here")


def test_settings_of_a_schedule_are_converted_for_each_kind_of_cluster() -> None:
    schedule = read_schedule(KIP101)
    load = schedule_load(schedule, 2)
    assert (load.partitions, load.replicas, load.min_insync_replicas) == (1, 2, 1)
    first = reference_settings(settings_of_node(1, schedule))
    assert first["metadata_store_session_timeout_ms"] == 15_000
    assert first["leader_imbalance_check_interval_ms"] == 1_000
    assert first["unclean_leader_election_enable"] is False
    with pytest.raises(UsageError, match="2 replicas on 1 brokers"):
        schedule_load(schedule, 1)
    with pytest.raises(UsageError, match="no workload 'sleep'; known: send"):
        requested_load(schedule, 2, "send,sleep", 0)


def test_the_name_of_a_target_determines_its_nodes() -> None:
    kraft, zookeeper = launched_target("apache-kafka:4.3.1:2"), launched_target("apache-kafka:0.10.2.2:2")
    assert kraft is not None
    assert zookeeper is not None
    assert (kraft.nodes, zookeeper.nodes) == (("1", "2"), ("1", "2", "store"))
    assert launched_target("localhost:9092") is None
    with pytest.raises(UsageError, match="no such target"):
        launched_target("jocko")


def test_the_kip_101_schedule_loses_records_only_with_high_watermark_truncation() -> None:
    schedule = read_schedule(KIP101)
    found = {rule: simulate_schedule(schedule, 2, rule).violation for rule in ("high_watermark", "kip101", "kip320")}
    assert found["high_watermark"] is not None
    assert found["kip101"] is None
    assert found["kip320"] is None


@pytest.mark.xdist_group("cluster")
def test_a_target_that_fails_to_start_is_named_in_the_error(tmp_path: Path) -> None:
    schedule = Schedule(duration_ms=1_000, node_settings={"1": {"no.such.setting": 1}})
    with pytest.raises(UsageError, match="the reference cluster did not start"):
        chaos("reference:1", schedule, tmp_path, seconds=10, seed=1, workloads="send")
    assert not [thread for thread in threading.enumerate() if thread.name == "links"]


@pytest.mark.xdist_group("cluster")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_all_processes_and_removes_its_files(number: signal.Signals, tmp_path: Path) -> None:
    faults = [Fault(at_ms=0, kind=kind, nodes=(node,)) for kind, node in (("pause", "1"), ("kill", "2"), ("cut", "1"))]
    write_schedule(tmp_path / "s.json", Schedule(duration_ms=600_000, faults=tuple(faults)))
    own = {"HIGHWATER_TEST_RUN": tmp_path.name, "TMPDIR": str(tmp_path), "PYTHONFAULTHANDLER": "1"}
    command = [sys.executable, "-m", "highwater", "chaos", "reference:2", "--schedule", "s.json", "--workload", "send"]
    run = subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, **own}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        _await(lambda: _has_cut(tmp_path) or run.poll() is not None)
        os.kill(run.pid, number)
        _, errors = run.communicate(timeout=LIMIT_S)
    except BaseException:
        run.send_signal(signal.SIGABRT)  # faulthandler prints the stack of each thread
        pytest.fail(run.communicate()[1])
    assert (run.returncode, errors) == (ExitCode.UNDECIDED, "highwater: interrupted\n")
    _await(lambda: not _marked_processes(tmp_path.name))
    assert not list(tmp_path.glob("highwater-chaos-*"))


def _has_cut(folder: Path) -> bool:
    return any('"f":"cut"' in path.read_text() for path in folder.glob("results/*/history.ndjson"))


def _await(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _marked_processes(mark: str) -> list[str]:
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and f"HIGHWATER_TEST_RUN={mark}".encode() in (process / "environ").read_bytes():
                found.append(process.name)
        except OSError:
            continue
    return found
