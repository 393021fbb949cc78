"""Pauses, conditions and files of a bench, and one bench of a real broker that is interrupted and resumed."""

import csv
import json
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from highwater.errors import UsageError
from highwater.experiments.conditions import MEASUREMENTS, Condition, Measurement, Setting, Store, read_measurements
from highwater.experiments.documents import claims, matches, tables
from highwater.experiments.measures.availability import AvailabilityMeasure, unavailability
from highwater.experiments.measures.dispatch import DispatchMeasure
from highwater.experiments.measures.failures import audited, throughput_around
from highwater.experiments.measures.load import quantiles
from highwater.experiments.measures.simulated import simulated_pauses
from highwater.experiments.pauses import found_in_steps, pauses
from highwater.experiments.plans import ASYNC, COOPERATIVE, EAGER, EXPERIMENTS, SCALES, STATIC, SYNC, rebalance
from highwater.experiments.run import Plan, read_plan, tasks
from highwater.fuzz.schedule import Fault, Schedule
from highwater.reports.rules.rule import Rule
from highwater.reports.synth.write import synth
from highwater.spec.formats.history import Config, Event, HistoryWriter

PLAN = Plan(targets=["a", "b"], experiments=list(EXPERIMENTS), scale="tiny", repetitions=3, seed=1)


def every(step: float, begin: float, end: float) -> list[float]:
    return [begin + step * number for number in range(int((end - begin) / step) + 1)]


# -- pauses ----------------------------------------------------------------------------------------


def test_without_a_gap_there_is_no_pause() -> None:
    found = pauses({0: every(0.1, 0, 10), 1: every(0.1, 0, 10)}, 0, 10)
    assert set(found.values()) == {0.0}


def test_the_definitions_of_a_pause_differ() -> None:
    """Partition 0 pauses from 2 to 4 s and partition 1 from 3 to 6 s: nothing is consumed for one second."""
    received = {0: every(0.1, 0, 2) + every(0.1, 4, 10), 1: every(0.1, 0, 3) + every(0.1, 6, 10)}
    found = pauses(received, 0, 10)
    assert found["pause_group_wide"] == pytest.approx(1_000, abs=1)
    assert found["pause_sum"] == pytest.approx(5_000, abs=1)
    assert found["pause_longest"] == pytest.approx(3_000, abs=1)


def test_a_partition_without_a_record_is_paused_all_the_time() -> None:
    assert pauses({0: [], 1: every(0.1, 0, 10)}, 0, 10)["pause_longest"] == 10_000


def test_two_pauses_of_a_partition_are_not_one() -> None:
    found = pauses({0: every(0.1, 0, 2) + every(0.1, 4, 6) + every(0.1, 7, 10)}, 0, 10)
    assert found["pause_sum"] == pytest.approx(3_000, abs=1)
    assert found["pause_longest"] == pytest.approx(2_000, abs=1)


@pytest.mark.parametrize(("step", "is_paused"), [(0.24, False), (0.26, True)])
def test_a_pause_is_longer_than_a_quarter_of_a_second(step: float, is_paused: bool) -> None:
    assert (pauses({0: every(step, 0, 10)}, 0, 10)["pause_sum"] > 0) is is_paused


def test_records_outside_of_the_span_do_not_count() -> None:
    assert pauses({0: [-1.0, *every(0.1, 0, 10), 11.0]}, 0, 10)["pause_sum"] == 0


def test_steps_are_added_but_for_the_longest() -> None:
    found = found_in_steps([{"pause_sum": 5, "pause_longest": 3}, {"pause_sum": 7, "pause_longest": 2}])
    assert found.metrics == {"pause_sum": 12, "pause_longest": 3}
    assert found.samples["pause_sum"] == [5, 7]


def test_simulated_pauses_repeat_and_differ_by_protocol() -> None:
    by_protocol = {one.settings["protocol"]: one for one in rebalance(SCALES["tiny"])}
    static = next(one for one in rebalance(SCALES["default"]) if one.settings["protocol"] == STATIC)
    eager, cooperative = (simulated_pauses(by_protocol[name], 1).metrics for name in (EAGER, COOPERATIVE))
    assert simulated_pauses(by_protocol[EAGER], 1).metrics == eager
    assert cooperative["revoked"] < eager["revoked"]
    assert cooperative["pause_sum"] < eager["pause_sum"]
    assert simulated_pauses(static, 1).metrics["revoked"] == 0


# -- availability and latency ----------------------------------------------------------------------


def test_unavailability_is_the_longest_time_between_two_successes() -> None:
    times = {"send": every(0.1, 0, 10.4) + every(0.1, 13, 30), "fetch": every(0.1, 0, 11) + every(0.1, 12, 30)}
    events = [Event(index=0, time_ns=0, process="nemesis", type="info", f="phase", value="load")]
    events += [
        Event(index=0, time_ns=int(at * 1e9), process=1, type="ok", f=f, topic="t", partition=0)
        for f, found in times.items()
        for at in found
    ]
    events.append(
        Event(index=0, time_ns=int(12e9), process=1, type="info", f="send", topic="t", partition=0, error="LATE")
    )
    events.sort(key=lambda event: event.time_ns)
    schedule = Schedule(
        duration_ms=30_000,
        faults=(Fault(at_ms=10_000, kind="kill", nodes=("1",), for_ms=1_000),
                Fault(at_ms=24_000, kind="pause", nodes=("1",), for_ms=1_000)),
    )  # fmt: skip
    control, kill, pause = unavailability(events, schedule)
    assert kill == pytest.approx({"unavailable_writes": 2_600, "unavailable_reads": 1_000, "error LATE": 1}, abs=1)
    assert max(control.values()) < 150
    assert max(pause.values()) < 150


def attempts(f: Literal["send", "fetch"], partition: int, times: list[float], **result: Any) -> list[Event]:
    fields = {"type": "ok", **result}
    return [
        Event(index=0, time_ns=int(at_s * 1e9), process=1, f=f, topic="t", partition=partition, **fields)
        for at_s in times
    ]


def unavailable(*found: list[Event]) -> list[dict[str, float]]:
    """Return what was unavailable in a run of 40 s with a load since 5 s and faults at 10 and 24 s."""
    phases = [
        Event(index=0, time_ns=int(at_s * 1e9), process="nemesis", type="info", f="phase", value=value)
        for at_s, value in ((5, "load"), (40, "end"))
    ]
    faults = tuple(Fault(at_ms=at_ms, kind="kill", nodes=("1",), for_ms=1_000) for at_ms in (5_000, 19_000))
    events = sorted([*phases, *(event for part in found for event in part)], key=lambda event: event.time_ns)
    return unavailability(events, Schedule(duration_ms=33_000, faults=faults))


def test_each_partition_is_unavailable_on_its_own() -> None:
    """Partition 1 is unavailable from 12 to 17 s, in which partition 0 takes records, and from 30 s on."""
    fetched = attempts("fetch", 0, every(0.1, 5, 40))
    sent = attempts("send", 0, every(0.1, 5, 40)) + attempts("send", 1, every(0.1, 5, 12) + every(0.1, 17, 30))
    refused = attempts("send", 1, [12.5, 13.5, 14.5], type="fail", error="NOT_LEADER_OR_FOLLOWER")
    control, first, last = unavailable(fetched, sent, refused)
    assert control["unavailable_writes"] < 150
    assert first["unavailable_writes"] == pytest.approx(5_000, abs=1)
    assert last["unavailable_writes"] == pytest.approx(10_000, abs=1)
    assert max(first["unavailable_reads"], last["unavailable_reads"]) < 150
    assert [one.get("error NOT_LEADER_OR_FOLLOWER") for one in (control, first, last)] == [None, 3, None]


def test_an_outage_belongs_to_the_fault_in_which_it_begins() -> None:
    fetched = attempts("fetch", 0, every(0.1, 5, 40))
    _, first, last = unavailable(fetched, attempts("send", 0, every(0.1, 5, 22) + every(0.1, 27, 40)))
    assert first["unavailable_writes"] == pytest.approx(5_000, abs=1)
    assert last["unavailable_writes"] < 150


def test_without_a_success_all_the_time_is_unavailable() -> None:
    control, first, last = unavailable(attempts("send", 0, every(0.1, 5, 40)))
    assert control["unavailable_reads"] == pytest.approx(3_000, abs=1)
    assert first["unavailable_reads"] == last["unavailable_reads"] == pytest.approx(14_000, abs=1)


def test_the_schedule_of_availability_leaves_time_between_faults(tmp_path: Path) -> None:
    faults = AvailabilityMeasure(SCALES["default"], tmp_path).schedule(1).faults
    assert {"kill", "bounce", "pause", "cut", "expire"} <= {fault.kind for fault in faults}
    ends = [fault.at_ms + fault.for_ms for fault in faults]
    assert all(end + 5_000 <= later.at_ms for end, later in zip(ends, faults[1:], strict=False))


def test_the_last_percentile_needs_values() -> None:
    assert "p99_99" not in quantiles([1.0] * 9_999)
    assert quantiles([float(number) for number in range(10_000)])["p99_99"] == 9_999


def sent(at_s: float, kind: Literal["invoke", "ok", "info"], value: int, **result: Any) -> Event:
    now_ns = int(at_s * 1e9)
    return Event(
        index=0, time_ns=now_ns, process=1, type=kind, f="send", topic="t", partition=0, value=value, **result
    )  # fmt: skip


def test_throughput_counts_acknowledged_records_before_and_during_a_failure(tmp_path: Path) -> None:
    """Ten records a second for five seconds, then one a second, and two errors; the failure ends after nine."""
    path = tmp_path / "history.ndjson"
    times = [number / 10 for number in range(50)] + [5.5, 6.5, 7.5, 8.5, 9.5]
    with path.open("wb") as file:
        writer = HistoryWriter(file, Config())
        for number, at_s in enumerate(times):
            writer.append(sent(at_s, "invoke", value=number))
            writer.append(sent(at_s, "ok", value=number, offset=number))
        for at_s in (9.6, 9.7):
            writer.append(sent(at_s, "invoke", value=99))
            writer.append(sent(at_s, "info", value=99, error="LATE"))
        writer.finish()
    found = throughput_around(path, 5.0, 9.0)
    assert found.metrics == {"acknowledged": 55, "records_before": 10, "records_during": 1, "error LATE": 2}
    assert found.samples == {"records_before": [10] * 4, "records_during": [1] * 4}


@pytest.mark.parametrize("planted", [{}, {Rule.LOST_WRITE: 2}, {Rule.DUPLICATE: 3}, {Rule.UNSEEN: 4}, {Rule.STUCK: 5}])
def test_the_auditor_counts_what_was_lost_and_stored_twice(tmp_path: Path, planted: dict[int, int]) -> None:
    synth(tmp_path / "history.ndjson", operations=400, seed=1, planted=planted)
    found = audited(tmp_path / "history.ndjson")
    assert found["audited"] >= 300
    assert found["lost"] == planted.get(Rule.LOST_WRITE, 0)
    assert found["duplicated"] == planted.get(Rule.DUPLICATE, 0)
    assert found["unseen"] == planted.get(Rule.UNSEEN, 0)
    assert found["other_violations"] == planted.get(Rule.STUCK, 0), "what was not read again is undecided"


# -- files -----------------------------------------------------------------------------------------


def measurement(number: int, **fields: str) -> Measurement:
    return Measurement(target="a", experiment="size", settings={"record_bytes": number}, repetition=1, **fields)  # type: ignore[arg-type]


def test_a_line_that_was_cut_off_is_left_out_and_a_failure_is_repeated(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(measurement(1))
    store.add(measurement(2, failed="no record was acknowledged"))
    with (tmp_path / MEASUREMENTS).open("a") as file:
        file.write('{"target": "a", "exper')
    assert [one.settings["record_bytes"] for one in read_measurements(tmp_path)] == [1, 2]
    assert {done[1] for done in Store(tmp_path).finished()} == {"size record_bytes=1"}


def test_a_line_that_is_no_measurement_is_named(tmp_path: Path) -> None:
    (tmp_path / MEASUREMENTS).write_text("{}\n")
    with pytest.raises(UsageError, match=f"{MEASUREMENTS}:1"):
        list(read_measurements(tmp_path))


def test_a_folder_without_a_bench_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no bench to resume"):
        read_plan(tmp_path)


def test_each_round_measures_every_condition_on_each_target_in_another_order() -> None:
    quick = [task for task in tasks(PLAN) if task.condition.experiment == "throughput"]
    rounds = [[task for task in quick if task.repetition == number] for number in (1, 2, 3)]
    keys = [[task.condition.key for task in one if task.target == "a"] for one in rounds]
    assert sorted(keys[0]) == sorted(keys[1]) == sorted(keys[2])
    assert keys[0] != keys[1]
    assert all(one[at].target == "a" and one[at + 1].target == "b" for one in rounds for at in range(0, len(one), 2))


def test_a_repetition_that_failed_is_the_only_one_repeated(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for repetition in (1, 2):
        store.add(
            Measurement(target="a", experiment="size", settings={"record_bytes": 1}, repetition=repetition,
                        failed="late" if repetition == 2 else "")
        )  # fmt: skip
    assert store.finished() == {("a", "size record_bytes=1", 1)}


def test_each_round_has_an_order_of_its_own() -> None:
    one_target = msgspec.structs.replace(PLAN, targets=["a"], repetitions=6)
    keys = [[task.condition.key for task in tasks(one_target) if task.repetition == number] for number in range(1, 7)]
    assert len({*map(tuple, keys)}) == 6


def test_conditions_have_names_of_their_own() -> None:
    for scale in SCALES.values():
        keys = [one.key for make in EXPERIMENTS.values() for one in make(scale)]
        assert len(keys) == len({*keys})


@pytest.mark.parametrize("scale", ["default", "full"])
def test_each_claim_has_two_values_that_are_measured(scale: str) -> None:
    """Four partitions were once left out to save time, and a claim about them stayed undecided in every run."""
    planned = {name: [one.settings for one in make(SCALES[scale])] for name, make in EXPERIMENTS.items()}
    by_id = {table.id: table for table in tables()}
    for claim in claims():
        table = by_id[claim.table]
        if not claim.order:
            continue
        settings = [one for one in planned[table.experiment] if matches(one, table.where) and matches(one, claim.where)]
        found = {one.get(claim.along) for one in settings} & {*claim.order}
        assert len(found) >= 2, f"{claim.says}: {claim.along} is {found}"


# -- the command -----------------------------------------------------------------------------------


def bench(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "highwater", "bench", *arguments]


@pytest.mark.long
def test_an_interrupted_bench_goes_on(tmp_path: Path) -> None:
    running = subprocess.Popen(
        bench("reference:1", "-e", "size", "--scale", "tiny", "--out", str(tmp_path)),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not [*tmp_path.glob(f"*/{MEASUREMENTS}")] and time.monotonic() < deadline:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 3, errors
    (folder,) = tmp_path.iterdir()
    assert f"highwater bench --resume {folder}" in errors
    before = (folder / MEASUREMENTS).read_text().splitlines()
    assert 1 <= len(before) < 9
    ended = subprocess.run(bench("--resume", str(folder), "--json"), capture_output=True, text=True, check=False)
    assert ended.returncode in {0, 3}, ended.stderr
    after = (folder / MEASUREMENTS).read_text().splitlines()
    assert after[: len(before)] == before
    done = [json.dumps([row["settings"], row["repetition"]]) for row in map(json.loads, after) if not row["failed"]]
    assert len({*done}) == len(done) == 9
    verdicts = json.loads(ended.stdout)["verdicts"]
    assert {one["target"] for one in verdicts} == {"reference:1"}
    assert "Message Size" in (folder / "index.html").read_text()
    with (folder / "measurements.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["unit"] for row in rows} == {"records/s", "MB/s"}
    assert {row["repeats"] for row in rows} == {"Kafka design principles (0.8), Message Size VS. Throughput"}


@pytest.mark.soak
def test_the_release_of_the_oldest_document_is_measured(tmp_path: Path) -> None:
    """Kafka 0.8 has no CreateTopics, no ApiVersions, and lists no broker before there is a topic."""
    if shutil.which("mvn") is None:
        pytest.skip("mvn is not on PATH")
    options = ["-e", "clients", "--scale", "tiny", "--repetitions", "1", "--out", str(tmp_path)]
    ended = subprocess.run(bench("apache-kafka:0.8.2.2:2", *options), capture_output=True, text=True, check=False)
    assert ended.returncode == 3, ended.stderr  # one repetition decides nothing
    (folder,) = tmp_path.iterdir()
    found = [*read_measurements(folder)]
    assert {one.settings["clients"] for one in found} == {"producers", "consumers", "pair"}
    assert all(one.metrics["records_per_second"] > 0 for one in found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no target"),
        (["nothing"], "no such target"),
        (["127.0.0.1:1"], "no server accepts connections"),
        (["reference:1", "-e", "througput"], "did you mean throughput"),
        (["reference:1", "--scale", "huge"], "no scale 'huge'"),
        (["--resume", "nowhere"], "no bench to resume"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], message: str) -> None:
    ended = subprocess.run(bench(*arguments), capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


# -- synchronous and asynchronous producers --------------------------------------------------------


@pytest.mark.parametrize(("dispatch", "queue_time_ms"), [(SYNC, 0), (ASYNC, 100_000)])
def test_a_killed_producer_of_0_7_loses_what_is_in_its_queue(dispatch: str, queue_time_ms: int) -> None:
    settings: dict[str, Setting] = {"dispatch": dispatch, "queue_time_ms": queue_time_ms, "record_bytes": 100}
    found = DispatchMeasure(0.1, 2.0, "test").measure(None, Condition(experiment="dispatch", settings=settings))
    assert found.metrics["accepted"] > 0
    assert found.metrics["records_per_second"] > 0
    assert (found.metrics["lost"] > 0) == (dispatch == ASYNC)
    assert found.metrics["delay"] == statistics.median_high(found.samples["delay"])
    arrived = found.metrics["accepted"] - found.metrics["lost"]
    assert len(found.samples["delay"]) - arrived in {0, 1}, "the last one may be sent and not yet counted"


def test_the_list_as_json_has_every_claim() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "highwater", "bench", "--list", "--json"], capture_output=True, text=True, check=True
    )
    listed = json.loads(printed.stdout)
    said = [claim for entry in listed for table in entry["tables"] for claim in table["claims"]]
    assert sorted(said) == sorted(claim.says for claim in claims())
