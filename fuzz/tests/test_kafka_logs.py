"""The logs of a real cluster are accepted by the models, and refused if they show what the protocol excludes."""

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from highwater.conformance.targets.apache_kafka import ZOOKEEPER_NODE, ApacheKafka
from highwater.errors import UsageError, Verdict
from highwater.fuzz.kafka_logs.check import (
    MODELS,
    Extraction,
    Judgement,
    PartitionTrace,
    check,
    extract,
    write_traces,
)
from highwater.fuzz.kafka_logs.folders import METADATA_LOG, BrokerFolder, Seen, open_folder
from highwater.fuzz.kafka_logs.metadata_log import read_metadata
from highwater.fuzz.kafka_logs.metadata_records import decode_metadata
from highwater.reference.wire.errors import DecodeError
from highwater.releases import NEWEST, fetch_release
from highwater.soak.mutated_kafka_logs import LIVES, MUTATIONS, Life, judge, mutated, read_life
from highwater.toolchain import java

LIFE = LIVES / f"kafka-{NEWEST}.json"


@pytest.fixture(scope="module")
def life() -> Life:
    """The life of a partition of Apache Kafka 4.3.1 in a chaos run of 60 s with 25 faults."""
    return read_life(LIFE)


def test_a_real_life_is_accepted_with_hidden_steps(tmp_path: Path, life: Life) -> None:
    (found,) = judge(life, tmp_path, models=("hw_truncation",))
    assert found.judgement is Judgement.ACCEPTED
    assert 0 < found.hidden.total() < found.found.steps


@pytest.mark.long
def test_with_zookeeper_a_leader_that_registers_again_may_lead_on_in_its_epoch(tmp_path: Path) -> None:
    """A chaos run of 60 s with 26 faults: leader 1 and the controller had new sessions before leader 1 wrote an ISR.

    With the guard, which clusters with KRaft have, it would have to be elected again.
    """
    life = read_life(LIVES / "kafka-2.8.2-leads-again.json")
    models = ("isr_commit", "hw_truncation")
    assert [found.judgement for found in judge(life, tmp_path, models=models)] == [Judgement.ACCEPTED] * 2
    with_guard = msgspec.structs.replace(life, log=METADATA_LOG)
    (refused,) = judge(with_guard, tmp_path, models=("hw_truncation",))
    assert refused.judgement is Judgement.REFUSED


def test_without_the_folder_of_a_broker_it_is_accepted_as_far_as_seen(tmp_path: Path, life: Life) -> None:
    replicas = {node: replica for node, replica in life.replicas.items() if node != 3}
    (found,) = judge(msgspec.structs.replace(life, replicas=replicas), tmp_path, models=("isr_commit",))
    assert found.judgement is Judgement.AS_FAR_AS_SEEN


def test_a_verdict_is_not_positive_when_nothing_was_covered(tmp_path: Path, life: Life) -> None:
    trace = PartitionTrace(life.entity, life.changes[-3:], life.replicas)  # without the creation of the partition
    trace.build()
    found = check(Extraction((1, 2, 3), Seen(), (trace,)), tmp_path)
    assert (found.judgement, found.verdict) == (Judgement.UNDECIDED, Verdict.UNKNOWN)
    assert found.reasons == (f"{life.entity}: its creation is not in {METADATA_LOG}",)


@pytest.mark.parametrize("record", [b"\x02\x05\x00", b"\x01\x7f\x00", b"\x01\x05\x63", b"\x01\x05\x02\x00", b"\x01"])
def test_an_unknown_or_truncated_metadata_record_is_an_error(record: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_metadata(record)


def test_a_folder_of_no_broker_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no meta\.properties"):
        extract([tmp_path])


@pytest.mark.long
def test_an_election_outside_the_isr_is_refused_with_its_conjunct(tmp_path: Path, life: Life) -> None:
    changed = mutated(life, "an election outside ISR and ELR", 0)
    assert changed is not None
    (found,) = judge(changed[0], tmp_path, models=("controller_failover",))
    assert found.judgement is Judgement.REFUSED
    assert found.offset in {change.offset for change in life.changes}
    (conjunct,) = found.found.conjuncts
    assert conjunct.partition(": ")[2].startswith(r"isr \subseteq partition.isr \/ (lastKnown")


@pytest.mark.sample(4)
@pytest.mark.long
@pytest.mark.parametrize("how", MUTATIONS)
def test_a_mutated_life_is_refused_at_a_line(tmp_path: Path, life: Life, how: str) -> None:
    changed = next((drawn for seed in range(20) if (drawn := mutated(life, how, seed))), None)
    assert changed is not None, f"{how} does not apply to {LIFE}"
    last = judge(changed[0], tmp_path, explain=False)[-1]
    assert last.judgement is Judgement.REFUSED, changed[1]
    assert last.found.line is not None


@pytest.mark.sample(3)
@pytest.mark.long
@pytest.mark.parametrize(
    "how",
    [
        "an election outside ISR and ELR",
        "an election whose epoch does not rise",
        "an election by a controller that was replaced",
        "a term that falls",
        "an ISR with a broker without a replica",
        "a truncation one too few",
    ],
)
def test_a_mutated_life_with_zookeeper_is_refused_at_a_line(tmp_path: Path, how: str) -> None:
    changed = mutated(read_life(LIVES / "kafka-2.8.2.json"), how, 0)
    assert changed is not None
    last = judge(changed[0], tmp_path, explain=False)[-1]
    assert last.judgement is Judgement.REFUSED, changed[1]
    assert last.found.line is not None


# A real case, and Apache Kafka's own tool as the oracle of the reader.


def await_true(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.1)


def has_election(copies: Sequence[BrokerFolder], node: int) -> bool:
    """Return whether all copies of the metadata log have an election of the broker, alone in the ISR."""
    changes = [entry.record for entry in read_metadata(copies, Seen()) if entry.kind == "PartitionChangeRecord"]
    return any((change.leader, change.isr) == (node, (node,)) for change in changes)


@pytest.fixture(scope="module")
def unclean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of a KRaft cluster with an unclean election."""
    kept = tmp_path_factory.mktemp("unclean")
    elect_uncleanly(NEWEST, kept)
    return kept


def elect_uncleanly(version: str, kept: Path) -> None:
    """Keep the folders of a cluster in which broker 2 was elected with a log that lacks records of broker 1."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    cluster = ApacheKafka(version, 3, settings={"unclean.leader.election.enable": "true"})
    try:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("t", 1, replica_assignment=[[1, 2]])])["t"].result(30)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})

        def leads(node: int) -> bool:
            topic = admin.list_topics("t", timeout=5).topics["t"]
            return topic.partitions[0].leader == node if topic.partitions else False

        def send(count: int) -> None:
            for _ in range(count):
                producer.produce("t", b"value", partition=0)
            assert producer.flush(30) == 0

        send(5)
        cluster.kill_node(2)
        send(5)
        cluster.kill_node(1)
        cluster.start_node(2)
        await_true(lambda: leads(2), "broker 2 was not elected")
        send(5)
        if not cluster.zookeeper_folder.exists():
            copies = [open_folder(cluster.folder / f"{node}-data") for node in (2, 3)]
            await_true(lambda: has_election(copies, 2), "the election is not in both metadata logs")
        for node in cluster.addresses:
            cluster.kill_node(node)
            (cluster.folder / f"{node}-data").rename(kept / str(node))
        if cluster.zookeeper_folder.exists():
            cluster.kill_node(ZOOKEEPER_NODE)
            cluster.zookeeper_folder.rename(kept / ZOOKEEPER_NODE)
    finally:
        cluster.close()


@pytest.mark.soak
def test_an_unclean_election_of_apache_kafka_is_refused(tmp_path: Path, unclean: Path) -> None:
    extraction = extract(sorted(unclean.iterdir()))
    write_traces(extraction, tmp_path)
    found = check(extraction, tmp_path, "controller_failover", "t-0")
    assert found.judgement is Judgement.REFUSED
    (partition,) = found.checked
    assert "ElectLeader" in partition.found.reason
    assert any(r"isr \subseteq partition.isr" in text for text in partition.found.conjuncts)


@pytest.mark.soak
def test_an_unclean_election_with_zookeeper_is_refused(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    elect_uncleanly("2.8.2", kept)
    extraction = extract(sorted(kept.iterdir()))
    write_traces(extraction, tmp_path)
    for model in MODELS:
        (partition,) = check(extraction, tmp_path, model, "t-0").checked
        assert partition.judgement is Judgement.REFUSED
        assert "ElectLeader of 3 with leader 2" in partition.found.reason
        assert any(r"isr \subseteq" in text for text in partition.found.conjuncts), model


@pytest.mark.soak
def test_the_reader_finds_the_records_that_apache_kafka_prints(unclean: Path) -> None:
    read = [entry for entry in read_metadata([open_folder(unclean / "3")], Seen()) if "Partition" in entry.kind]
    printed = dumped(unclean / "3" / METADATA_LOG)
    assert [entry.offset for entry in read] == list(printed)
    for entry in read:
        fields = printed[entry.offset]
        assert entry.record.partition_id == fields["partitionId"]
        assert list(entry.record.isr) == fields["isr"] if "isr" in fields else entry.record.isr is None
        assert entry.record.leader == fields.get("leader", -2)
        elr = entry.record.eligible_leader_replicas
        assert (None if elr is None else list(elr)) == fields.get("eligibleLeaderReplicas")


def dumped(folder: Path) -> dict[int, dict[str, Any]]:
    """Return the records of partitions that DumpLogSegments prints, by offset."""
    command = [
        str(java().executable), "-cp", f"{fetch_release(NEWEST)}/*", "org.apache.kafka.tools.DumpLogSegments",
        "--cluster-metadata-decoder", "--files", str(next(folder.glob("*.log"))),
    ]  # fmt: skip
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    lines = [line for line in output.splitlines() if "PARTITION_" in line and "payload: " in line]
    payloads = {int(line.split()[2]): json.loads(line.partition("payload: ")[2]) for line in lines}
    return {
        offset: payload["data"]
        for offset, payload in payloads.items()
        if payload["type"] in {"PARTITION_RECORD", "PARTITION_CHANGE_RECORD"}
    }
