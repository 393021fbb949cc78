"""Chaos: schedules that are drawn, refused and undone; and the loss of KIP-101 by one of them."""

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
from highwater.fuzz.chaos.capabilities import missing, refuse_unsupported, supported
from highwater.fuzz.chaos.cluster import Field, launched
from highwater.fuzz.chaos.draw import draw_schedule, draw_settings
from highwater.fuzz.chaos.nemesis import process_faults
from highwater.fuzz.chaos.races import FETCH_MS, draw_races, race_settings
from highwater.fuzz.chaos.run import chaos, chosen_load
from highwater.fuzz.chaos.settings import SESSION, load_of, of_reference, settings_of, simulate_schedule
from highwater.fuzz.schedule import KINDS, Fault, Option, Schedule, check, read_schedule, write_schedule

KIP101 = Path("fuzz/schedules/kip101.json")
LIMIT_S = 120.0
NODES, CLIENTS = ("1", "2", "3", "store"), ("consumer-1",)


class Nothing:
    """Processes that nobody ever touches."""

    addresses: Final = {1: "127.0.0.1:1"}

    def start_node(self, node: int | str) -> None:
        raise AssertionError(node)

    stop_node = kill_node = pause_node = resume_node = start_node


FIELD = Field(Nothing.addresses, ("1",), process_faults(Nothing()))


def schedule_of(kind: str, *nodes: str, at_ms: int = 1, **options: Option) -> Schedule:
    return Schedule(duration_ms=1_000, faults=(Fault(at_ms=at_ms, kind=kind, nodes=nodes, options=options),))


def test_drawn_schedules_are_sound_and_the_same_for_the_same_seed() -> None:
    kinds = [kind for kind in KINDS if kind not in {"rot", "clock"}]
    seen: set[str] = set()
    for seed in range(200):
        drawn = draw_schedule(seed, 60, kinds, NODES, CLIENTS, draw_settings(seed, 3))
        check(drawn, [*NODES, *CLIENTS])
        assert drawn == draw_schedule(seed, 60, kinds, NODES, CLIENTS, draw_settings(seed, 3))
        assert all(fault.at_ms + fault.for_ms < drawn.duration_ms for fault in drawn.faults)
        seen |= {fault.kind for fault in drawn.faults}
    assert seen == set(kinds)


def test_races_are_sound_and_two_brokers_die_within_a_fetch_of_each_other() -> None:
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


def test_a_search_finds_what_the_high_watermark_loses_and_nothing_under_the_last_rule() -> None:
    losing, sound = (
        [simulate_schedule(draw_races(seed, 30, ("1", "2"), race_settings(seed, 2)), 2, rule).violation
         for seed in (2, 9)]
        for rule in ("high_watermark", "kip320")
    )  # fmt: skip
    assert [str(each)[:19] for each in losing if each] == ["CommittedOnEligible"]
    assert sound == [None, None]


@pytest.mark.parametrize(
    ("schedule", "what"),
    [
        (schedule_of("melt", "1"), "unknown fault 'melt'"),
        (schedule_of("kill", "9"), "unknown node '9'; known: 1, store, or a role"),
        (schedule_of("kill", "1", at_ms=-1), "at_ms is negative"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(schedule: Schedule, what: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="fault 0") as refused:
        chaos("reference:1", schedule, tmp_path, seconds=10, seed=1, workloads="send")
    assert what in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_a_fault_without_its_means_is_named_with_what_it_lacks() -> None:
    assert list(supported(FIELD)) == ["kill", "bounce", "pause", "stall"]
    for kind in set(KINDS) - set(supported(FIELD)):
        with pytest.raises(UsageError, match=f"{kind} is unsupported: it needs ") as refused:
            refuse_unsupported(schedule_of(kind, "1"), FIELD, "here")
        assert missing(FIELD, kind) in str(refused.value)
    with pytest.raises(UsageError, match="a file system of ours below the log"):
        refuse_unsupported(schedule_of("kill", "1", lose="torn"), FIELD, "here")


def test_settings_are_told_to_each_kind_of_cluster_in_its_own_words() -> None:
    schedule = read_schedule(KIP101)
    load = load_of(schedule, 2)
    assert (load.partitions, load.replicas, load.min_insync_replicas) == (1, 2, 1)
    first = of_reference(settings_of(1, schedule))
    assert first["metadata_store_session_timeout_ms"] == 15_000
    assert first["leader_imbalance_check_interval_ms"] == 1_000
    assert first["unclean_leader_election_enable"] is False
    with pytest.raises(UsageError, match="2 replicas on 1 brokers"):
        load_of(schedule, 1)
    with pytest.raises(UsageError, match="no workload 'sleep'; known: send"):
        chosen_load(schedule, 2, "send,sleep", 0)


def test_nodes_are_known_from_the_name_of_the_target() -> None:
    kraft, zookeeper = launched("apache-kafka:4.3.1:2"), launched("apache-kafka:0.10.2.2:2")
    assert kraft is not None
    assert zookeeper is not None
    assert (kraft.nodes, zookeeper.nodes) == (("1", "2"), ("1", "2", "store"))
    assert launched("localhost:9092") is None
    with pytest.raises(UsageError, match="no such target"):
        launched("jocko")


def test_kip_101_loses_by_the_high_watermark_and_by_no_later_rule() -> None:
    schedule = read_schedule(KIP101)
    found = {rule: simulate_schedule(schedule, 2, rule).violation for rule in ("high_watermark", "kip101", "kip320")}
    assert found["high_watermark"] is not None
    assert found["kip101"] is None
    assert found["kip320"] is None


@pytest.mark.xdist_group("cluster")
def test_a_target_that_dies_at_its_start_is_named(tmp_path: Path) -> None:
    schedule = Schedule(duration_ms=1_000, node_settings={"1": {"no.such.setting": 1}})
    with pytest.raises(UsageError, match="the reference cluster did not start"):
        chaos("reference:1", schedule, tmp_path, seconds=10, seed=1, workloads="send")
    assert not [each for each in threading.enumerate() if each.name == "links"]


@pytest.mark.xdist_group("cluster")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_undoes_everything(number: signal.Signals, tmp_path: Path) -> None:
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
        _, complaint = run.communicate(timeout=LIMIT_S)
    except BaseException:
        run.send_signal(signal.SIGABRT)  # it tells where each of its threads stands
        pytest.fail(run.communicate()[1])
    assert (run.returncode, complaint) == (ExitCode.UNDECIDED, "highwater: interrupted\n")
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
