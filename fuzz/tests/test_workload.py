"""The workload and the nemesis on a real cluster: one short run, and the contents of its history."""

from collections import Counter
from pathlib import Path

import pytest

from highwater.conformance.targets.reference import ReferenceCluster
from highwater.fuzz.chaos.workload.run import run_workload
from highwater.fuzz.chaos.workload.topic import TOPIC, TopicLoad, with_topic
from highwater.fuzz.schedule import Fault, Schedule
from highwater.spec.formats.history import NEMESIS, read_history

pytestmark = pytest.mark.xdist_group("cluster")
QUICK: dict[str, object] = {"metadata_store_session_timeout_ms": 1_500, "replica_lag_time_max_ms": 2_000}
KILLED = Schedule(
    faults=(
        Fault(at_ms=1_500, for_ms=1_500, kind="kill", nodes=(f"leader({TOPIC},0)",)),
        Fault(at_ms=3_500, for_ms=500, kind="pause", nodes=(f"followers({TOPIC},0)",)),
    ),
    duration_ms=5_000,
)


@pytest.mark.long
def test_a_run_writes_a_complete_history(tmp_path: Path) -> None:
    with ReferenceCluster(3, settings=dict(QUICK)) as cluster:
        path = run_workload(cluster, cluster.bootstrap, tmp_path, KILLED, TopicLoad(partitions=1))
    config, events = read_history(path)
    assert (config.acks, config.min_insync_replicas, config.idempotence) == ("all", 2, True)
    counts: Counter[tuple[str, str]] = Counter()
    open_processes: set[int | str] = set()
    faults: list[str] = []
    phases: list[str] = []
    final_read: list[int] = []
    acknowledged: set[int] = set()
    for event in events:
        counts[event.f, event.type] += 1
        if event.process == NEMESIS:
            (phases if event.f == "phase" else faults).append(event.value if event.f == "phase" else event.f)
        elif event.f in {"assign", "revoke"}:
            continue
        elif event.type == "invoke":
            assert event.process not in open_processes, "a process has one open operation at a time"
            open_processes.add(event.process)
        else:
            assert event.process in open_processes
            open_processes.discard(event.process)
            if event.f == "send" and event.type == "ok":
                acknowledged.add(event.value)
            if phases[-1] == "final" and event.f == "fetch" and event.type == "ok":
                final_read += [value for _, value in event.value]
    assert faults[:2] == ["kill", "restart"]
    assert faults.count("pause") == faults.count("resume") == 2
    assert phases == ["load", "heal", "final", "end"]
    assert acknowledged <= set(final_read), "the final read returns every acknowledged record"
    assert min(counts[f, "ok"] for f in ("send", "poll", "fetch", "list_offsets")) > 0


def test_a_run_takes_another_topic_if_an_earlier_one_has_left_its_own(tmp_path: Path) -> None:
    """A run that is killed cannot delete its topic. Faults of the schedule are about the new one, too."""
    line = f"Fetch response topic={TOPIC}: delay 300 ms"
    message = Fault(at_ms=1, kind="message", nodes=("clients",), options={"line": line})
    renamed = with_topic(Schedule(faults=(*KILLED.faults, message), duration_ms=5_000), f"{TOPIC}-2")
    assert [fault.nodes[0] for fault in renamed.faults] == [
        f"leader({TOPIC}-2,0)",
        f"followers({TOPIC}-2,0)",
        "clients",
    ]
    assert renamed.faults[2].options["line"] == f"Fetch response topic={TOPIC}-2: delay 300 ms"
    load = TopicLoad(
        partitions=1, replicas=1, min_insync_replicas=1, kafka_python_producers=0, assigned_consumers=0, group_members=0
    )
    topics = []
    with ReferenceCluster(1) as cluster:
        for number in ("1", "2"):
            (tmp_path / number).mkdir()
            path = run_workload(cluster, cluster.bootstrap, tmp_path / number, Schedule(duration_ms=300), load)
            topics.append({event.topic for event in read_history(path)[1]} - {None})
    assert topics == [{TOPIC}, {f"{TOPIC}-2"}]
