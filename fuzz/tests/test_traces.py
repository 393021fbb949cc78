"""Traces of the simulator and of processes are behaviours of the models; mutated ones are not.

Each check by a model starts TLC, so there are few here; `make soak` (`highwater.soak.mutated_traces`) has more.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
import pytest

from highwater.conformance.targets.reference import ReferenceCluster
from highwater.errors import Verdict
from highwater.fuzz.chaos.workload.run import run_workload
from highwater.fuzz.chaos.workload.topic import GROUP, TOPIC, TopicLoad
from highwater.fuzz.schedule import Fault, Schedule
from highwater.fuzz.simulator.cluster import Load as Members
from highwater.fuzz.simulator.cluster import Settings
from highwater.fuzz.simulator.search import run_seed
from highwater.soak.mutated_traces import RUNS, mutated_trace, run_of, traced, validate_steps
from highwater.spec.formats.trace import read_trace, renumber
from highwater.spec.trace import validate_trace

DRAWS: Final = 25
# Guards whose absence a model detects in the trace of the kept seed.
DETECTED: Final = (
    ("eager_rebalance", "FenceStaleGeneration", "g", "HandleCommit"),
    ("controller_failover", "BumpLeaderEpoch", "t-0", "ElectLeader"),
    ("zk_rebalance", "StopBeforeRelease", "old-group", "Release"),
)
SETTINGS: Final[dict[str, object]] = {
    "metadata_store_session_timeout_ms": 1_500,
    "replica_lag_time_max_ms": 2_000,
    "offsets_topic_num_partitions": 1,
}
LEADER_KILLED: Final = Schedule(
    faults=(Fault(at_ms=1_500, for_ms=1_500, kind="kill", nodes=(f"leader({TOPIC},0)",)),), duration_ms=4_000
)
WORK: Final = TopicLoad(partitions=1, rate=10, kafka_python_producers=0, assigned_consumers=0, raw_readers=0)
PRODUCERS: Final = replace(WORK, replicas=2, group_members=0)


# The traces of processes below cover the other models.
@pytest.mark.parametrize(
    "model", ["cooperative_rebalance", "hw_truncation", "controller_failover", "zk_rebalance", "transactions"]
)
def test_a_run_with_faults_is_a_behaviour_of_the_spec(tmp_path: Path, model: str) -> None:
    found = validate_steps(tmp_path, model, run_of(model))
    assert found.verdict is Verdict.VALID, (found.line, found.reason)
    assert found.steps >= 20


@pytest.mark.parametrize(("model", "guard", "entity", "rejected"), DETECTED)
def test_the_trace_without_a_guard_is_rejected(
    tmp_path: Path, model: str, guard: str, entity: str, rejected: str
) -> None:
    found = validate_steps(tmp_path, model, list(traced(guard, entity, off=True)))
    assert found.verdict is Verdict.INVALID
    assert f" {rejected}" in found.reason


@pytest.mark.sample(3)
@pytest.mark.parametrize("how", ["dropped", "swapped"])
@pytest.mark.parametrize("model", RUNS)
def test_a_missing_or_moved_line_is_detected(tmp_path: Path, model: str, how: str) -> None:
    for seed in range(DRAWS):
        steps, words = mutated_trace(model, how, seed)
        found = validate_steps(tmp_path, model, steps)
        assert (found.verdict, found.model) == (Verdict.INVALID, "seq"), words
        assert found.line is not None
        assert str(found.line) in words.partition(", ")[0]


@pytest.mark.parametrize(
    ("model", "how", "seed"),
    [("isr_commit", "changed", 0), ("eager_rebalance", "changed", 0), ("transactions", "changed", 0)],
)
def test_the_model_detects_a_changed_line(tmp_path: Path, model: str, how: str, seed: int) -> None:
    steps, words = mutated_trace(model, how, seed)
    found = validate_steps(tmp_path, model, renumber(steps))
    assert (found.verdict, found.model) == (Verdict.INVALID, model), words


@pytest.mark.parametrize("model", ["eager_rebalance", "cooperative_rebalance"])
def test_a_commit_for_the_partition_of_another_member_is_detected(tmp_path: Path, model: str) -> None:
    """The coordinator accepts it, since it compares only member and generation."""
    steps = run_of(model)
    at = max(n for n, step in enumerate(steps) if step.action == "HandleCommit" and step.choices["result"] == "NONE")
    own = steps[at].choices["partitions"]
    others = {part for step in steps if step.action == "HandleCommit" for part in step.choices["partitions"]} - {*own}
    changed = msgspec.structs.replace(steps[at], choices={**steps[at].choices, "partitions": sorted(others)[:1]})
    found = validate_steps(tmp_path, model, [*steps[:at], changed, *steps[at + 1 :]])
    assert (found.verdict, found.model) == (Verdict.INVALID, model)
    assert "HandleCommit" in found.reason


def test_the_crash_of_a_member_is_recorded_for_the_member() -> None:
    killed = Schedule(faults=(Fault(at_ms=500, for_ms=100, kind="kill", nodes=("member:1",)),), duration_ms=1_000)
    steps = run_seed(0, Settings(load=Members(members=("range",) * 2)), schedule=killed, tracing=True).steps
    assert [step.node for step in steps if step.action == "Crash"] == ["member:1"]


@pytest.mark.long
@pytest.mark.xdist_group("cluster")
def test_the_traces_of_processes_are_behaviours_of_the_specs(tmp_path: Path) -> None:
    """Two members share a topic whose leader is killed and restarted."""
    with ReferenceCluster(3, settings=SETTINGS, trace=tmp_path / "traces") as cluster:
        run_workload(cluster, cluster.bootstrap, tmp_path, LEADER_KILLED, WORK)
    found = [
        checked
        for model, entity in (("isr_commit", f"{TOPIC}-0"), ("eager_rebalance", GROUP))
        for checked in validate_trace(tmp_path / "traces", model, entity=entity).entities
    ]
    assert [(checked.entity, checked.verdict) for checked in found] == [
        (f"{TOPIC}-0", Verdict.VALID),
        (GROUP, Verdict.VALID),
    ], found
    actions = {path.stem: {step.action for step in read_trace(path)} for path in (tmp_path / "traces").iterdir()}
    assert sorted(path for path in actions if path.endswith(".1"))
    assert "ElectLeader" in actions["store.0"]
    assert {"LeaderAck", "CompleteJoin", "FollowerAppend", "Restart"} <= set().union(*actions.values())


@pytest.mark.long
@pytest.mark.xdist_group("cluster")
def test_the_traces_of_processes_without_a_guard_are_rejected(tmp_path: Path) -> None:
    """Without AckAfterCommit the leader acknowledges records before they are committed."""
    off = ReferenceCluster(2, settings=SETTINGS, trace=tmp_path / "traces", guards_off=["AckAfterCommit"])
    quiet = Schedule(duration_ms=1_000)
    with off as cluster:
        run_workload(cluster, cluster.bootstrap, tmp_path, quiet, PRODUCERS)
    (found,) = validate_trace(tmp_path / "traces", "isr_commit", entity=f"{TOPIC}-0", explain=False).entities
    assert found.verdict is Verdict.INVALID
    assert "LeaderAck" in found.reason
