"""The command-line tools against our brokers and against Apache Kafka."""

import itertools
import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from confluent_kafka import Consumer, Producer
from typer.testing import CliRunner, Result

from highwater.commands.doctor import doctor_command
from highwater.conformance.targets.apache_kafka import apache_kafka
from highwater.errors import ExitCode, UsageError
from highwater.reference.client.cluster import ClusterClient
from highwater.reference.drivers.cluster import Cluster
from highwater.reference.tools import elect, groups, reassign, replicas, state_changes, topics
from highwater.reference.tools.health import lacking
from highwater.reference.tools.plans import Plan, propose, read_plan
from highwater.reference.wire.messages.metadata import MetadataResponsePartition
from highwater.toolchain import java

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(600)]  # the first time there is much to fetch
HIGHWATER = typer.Typer()
for tool in (topics, groups, reassign, elect, replicas, state_changes):
    HIGHWATER.add_typer(tool.app, name=tool.__name__.rpartition(".")[2].replace("_", "-"))
HIGHWATER.command("doctor")(doctor_command)
NAMES = itertools.count()


@pytest.fixture(scope="module")
def theirs() -> Iterator[str]:
    if shutil.which("mvn") is None:
        pytest.skip("mvn is not on PATH: apt-get install maven")
    try:
        java()
        with apache_kafka(brokers=2) as cluster:
            yield ",".join(cluster.addresses.values())
    except UsageError as refused:
        pytest.skip(str(refused))


@pytest.fixture(params=["ours", "theirs"])
def brokers(request: pytest.FixtureRequest) -> str:
    """Return bootstrap addresses of our cluster or Apache Kafka's; brokers 1 and 2 are alive in both."""
    bootstrap: str = request.getfixturevalue("bootstrap" if request.param == "ours" else "theirs")
    return bootstrap


def run(bootstrap: str, *arguments: str, code: ExitCode = ExitCode.HELD) -> Result:
    result = CliRunner().invoke(HIGHWATER, [*arguments, "--bootstrap-server", bootstrap], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def run_json(bootstrap: str, *arguments: str, code: ExitCode = ExitCode.HELD) -> Any:
    return json.loads(run(bootstrap, *arguments, "--json", code=code).stdout)


def eventually(step: Callable[[], bool]) -> None:
    """Wait for a condition: brokers receive the changes of the controller with a delay."""
    deadline = time.monotonic() + 60
    while not step():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def create(bootstrap: str, *options: str) -> str:
    topic = f"tools-{next(NAMES)}"
    run(bootstrap, "topics", "create", topic, *options)
    eventually(lambda: topic in run_json(bootstrap, "topics", "list")["topics"])
    return topic


def fill(bootstrap: str, topic: str, count: int = 30) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(30) == 0


def test_a_topic_is_created_shown_grown_and_deleted(brokers: str) -> None:
    topic = create(brokers, "--replica-assignment", "1:2,2:1", "--config", "retention.ms=60000")
    run(brokers, "topics", "alter", topic, "--partitions", "3", "--config", "cleanup.policy=compact",
        "--delete-config", "retention.ms")  # fmt: skip
    changed = {"cleanup.policy": "compact"}
    eventually(lambda: run_json(brokers, "topics", "describe", topic)["configs"][topic] == changed)
    parts = run_json(brokers, "topics", "describe", topic)["partitions"]
    assert [part["replicas"] for part in parts][:2] == [[1, 2], [2, 1]]
    assert len(parts) == 3
    run(brokers, "topics", "delete", topic)
    eventually(lambda: topic not in run_json(brokers, "topics", "list")["topics"])


def test_the_error_of_a_broker_is_printed(brokers: str) -> None:
    topic = create(brokers, "--partitions", "1", "--replication-factor", "1")
    with pytest.raises(UsageError, match="TOPIC_ALREADY_EXISTS"):
        run(brokers, "topics", "create", topic)
    with pytest.raises(UsageError, match="no-such-topic: UNKNOWN_TOPIC_OR_PARTITION"):
        run(brokers, "topics", "describe", "no-such-topic")
    with pytest.raises(UsageError, match="INVALID_PARTITIONS"):
        run(brokers, "topics", "alter", topic, "--partitions", "1")
    with pytest.raises(UsageError, match="this group does not exist"):
        run(brokers, "groups", "describe", "no-such-group")


def test_reassignment_moves_replicas_as_planned(brokers: str, tmp_path: Path) -> None:
    topic = create(brokers, "--replica-assignment", "1")
    fill(brokers, topic)
    proposed = run_json(brokers, "reassign", "generate", topic, "--brokers", "2")
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(proposed["proposed"]))
    run(brokers, "reassign", "verify", str(plan), code=ExitCode.VIOLATED)
    run(brokers, "reassign", "execute", str(plan), "--wait", "60")
    assert run_json(brokers, "reassign", "verify", str(plan))["partitions"][0]["state"] == "done"
    eventually(lambda: run_json(brokers, "topics", "describe", topic)["partitions"][0]["leader"] == 2)


def test_a_preferred_election_makes_the_preferred_replica_leader(brokers: str, tmp_path: Path) -> None:
    topic = create(brokers, "--replica-assignment", "1:2")
    plan = tmp_path / "plan.json"
    part = {"topic": topic, "partition": 0, "replicas": [2, 1]}
    plan.write_text(json.dumps({"version": 1, "partitions": [part]}))
    run(brokers, "reassign", "execute", str(plan), "--wait", "60")
    elected = run_json(brokers, "elect", "preferred", f"{topic}-0")["partitions"]
    assert elected[0]["result"] in {"elected", "ELECTION_NOT_NEEDED"}
    eventually(lambda: run_json(brokers, "topics", "describe", topic)["partitions"][0]["leader"] == 2)
    with pytest.raises(UsageError, match="expected TOPIC-PARTITION"):
        run(brokers, "elect", "unclean", "nonsense")
    run(brokers, "elect", "unclean", f"{topic}-7", code=ExitCode.VIOLATED)


def test_the_doctor_finds_every_partition_of_a_healthy_cluster(brokers: str) -> None:
    run(brokers, "topics", "create", f"healthy-{next(NAMES)}", "--partitions", "3", "--replication-factor", "2")
    eventually(lambda: "each has a leader, and all replicas in the ISR" in run(brokers, "doctor").stdout)
    found = run_json(brokers, "doctor")
    assert found["partitions"] >= 3
    assert found["problems"] == []


def test_the_doctor_says_what_a_partition_lacks() -> None:
    part = MetadataResponsePartition(
        partition_index=0, leader_id=-1, replica_nodes=(1, 2, 3), isr_nodes=(3,), offline_replicas=(2, 3)
    )
    lacks = [what for what, _ in lacking(part)]
    assert lacks == ["a leader", "replica 2: it is offline", "replica 3: it is offline", "replica 1 in the ISR"]
    assert list(lacking(replace(part, leader_id=3, isr_nodes=(1, 2, 3), offline_replicas=()))) == []


def test_a_group_is_described_and_its_offsets_are_reset(brokers: str) -> None:
    topic, group = create(brokers, "--partitions", "1", "--replication-factor", "2"), f"group-{next(NAMES)}"
    fill(brokers, topic)
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": brokers, **settings})
    consumer.subscribe([topic])
    seen = 0
    while seen < 30:
        seen += sum(message.error() is None for message in consumer.consume(30, timeout=30))
    consumer.commit(asynchronous=False)
    shown = run_json(brokers, "groups", "describe", group)
    assert shown["state"] == "Stable"
    (row,) = shown["offsets"]
    assert (row["committed"], row["log_end_offset"], row["lag"]) == (30, 30, 0)
    assert row["member"]
    with pytest.raises(UsageError, match=r"the group has members \(state Stable\); stop its members"):
        run(brokers, "groups", "reset-offsets", group, "--topic", topic, "--to", "earliest")
    consumer.close()
    for place, offset in (("earliest", 0), ("latest", 30), ("7", 7), ("99", 30), ("@1", 0), ("@99999999999999", 30)):
        arguments = ("groups", "reset-offsets", group, "--topic", topic, "--to", place)
        assert run_json(brokers, *arguments)["offsets"][0]["new_offset"] == offset, place
    run(brokers, "groups", "reset-offsets", group, "--topic", topic, "--to", "7", "--execute")
    assert run_json(brokers, "groups", "describe", group)["offsets"][0]["lag"] == 23
    assert group in [each["group"] for each in run_json(brokers, "groups", "list")["groups"]]


def test_identical_replicas_are_reported_as_identical(brokers: str) -> None:
    topic = create(brokers, "--replica-assignment", "2:1")
    fill(brokers, topic)
    # A follower receives the high watermark with its next fetch.
    eventually(lambda: run_json(brokers, "replicas", "verify", topic)["partitions"][0]["until"] == 30)
    (seen,) = run_json(brokers, "replicas", "verify", topic)["partitions"]
    assert (seen["replicas"], seen["result"]) == ([2, 1], "same")
    assert seen["batches"] >= 1


def test_a_replica_that_differs_is_reported(shared_cluster: Cluster, bootstrap: str) -> None:
    """One byte of a record on the disk of one broker is flipped while it runs."""
    topic = create(bootstrap, "--replica-assignment", "1:2")
    fill(bootstrap, topic)
    eventually(lambda: run_json(bootstrap, "replicas", "verify", topic)["partitions"][0]["until"] == 30)
    segment = shared_cluster.folder / "broker-2" / f"{topic}-0" / f"{0:020}.log"
    data = bytearray(segment.read_bytes())
    data[17] ^= 1  # in the checksum: the batch can still be decoded
    segment.write_bytes(bytes(data))
    (found,) = run_json(bootstrap, "replicas", "verify", topic, code=ExitCode.VIOLATED)["partitions"]
    assert found["result"] == "[1, 2] differ at offset 0"
    run(bootstrap, "topics", "delete", topic)


def test_a_missing_broker_is_named() -> None:
    with pytest.raises(UsageError, match=r"127\.0\.0\.1:1: cannot connect"):
        ClusterClient("127.0.0.1:1")
    with pytest.raises(UsageError, match="expected HOST:PORT"):
        ClusterClient("localhost")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a plan"),
        ('{"version":2,"partitions":[]}', "expected version 1"),
        ('{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,1]}]}', "t-0 needs distinct replicas"),
        ('{"version":1,"partitions":[{"topic":"t","partition":0}]}', "replicas"),
    ],
)
def test_a_bad_plan_is_refused(tmp_path: Path, text: str, message: str) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_plan(plan)


def test_a_proposal_keeps_the_number_of_replicas() -> None:
    current: Plan = {("t", number): (1, 2) for number in range(6)}
    proposed = propose(current, {4: None, 5: None, 6: None})
    assert proposed.keys() == current.keys()
    assert {len(set(each)) for each in proposed.values()} == {2}
    assert sorted(each[0] for each in proposed.values()) == [4, 4, 5, 5, 6, 6]
    with pytest.raises(UsageError, match="2 replicas need more than the 1 given brokers"):
        propose(current, {4: None})


def test_state_changes_of_several_brokers_are_merged_by_time(tmp_path: Path) -> None:
    first, second = tmp_path / "1.log", tmp_path / "2.log"
    first.write_text(
        "[2026-11-21 14:00:00,001] INFO a orders-0 leader 1\n"
        "[2026-11-21 14:00:02,000] INFO c orders-1 leader 1\n  why\n"
    )
    second.write_text(
        "cut off\n[2026-11-21 14:00:01,500] TRACE b [orders,0] (state)\n[2026-11-21 14:00:03,000] d orders-10 x\n"
    )

    def merged(*options: str) -> list[str]:
        return (
            CliRunner().invoke(state_changes.app, [str(tmp_path / "1.log"), str(second), *options]).output.splitlines()
        )

    assert [line[:25] for line in merged() if line.startswith("[")] == [
        f"[2026-11-21 14:00:0{time}]" for time in ("0,001", "1,500", "2,000", "3,000")
    ]
    assert len(merged()) == 5
    assert len(merged("--topic", "orders", "--partition", "0")) == 2
    assert len(merged("--topic", "orders", "--partition", "1")) == 2  # with its second line
    assert len(merged("--topic", "order")) == 0
    assert len(merged("--start", "2026-11-21 14:00:01", "--end", "2026-11-21 14:00:02")) == 3
