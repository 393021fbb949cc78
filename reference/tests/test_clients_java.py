"""Apache Kafka's own Java tools 4.3.1: console producer and consumer, the verifiable ones, the performance test."""

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from highwater.reference.tests.apache_kafka.programs import output_of

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(600)]  # the first time there is much to fetch
VERSION = "4.3.1"
CLASSES = {"ConfigCommand": "kafka.admin.ConfigCommand"}
NAMES = itertools.count()
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def tool() -> Tool:
    """Run one of the tools with the given standard input and return its standard output."""

    def run(name: str, *arguments: str, given: str = "") -> str:
        return output_of(CLASSES.get(name, name), *arguments, given=given)

    return run


def topic() -> str:
    return f"java-{next(NAMES)}"


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_the_console_consumer_reads_records_of_the_console_producer(tool: Tool, bootstrap: str, codec: str) -> None:
    name = topic()
    where = ("--bootstrap-server", bootstrap, "--topic", name)
    text = "".join(f"line {number}\n" for number in range(30))
    tool("ConsoleProducer", *where, "--compression-codec", codec, given=text)
    consumer = "consumer.ConsoleConsumer"
    options = ("--from-beginning", "--group", name, "--max-messages", "30", "--timeout-ms", "60000")
    assert tool(consumer, *where, *options) == text


def test_the_verifiable_producer_and_consumer_agree(tool: Tool, bootstrap: str) -> None:
    name = topic()
    sent = tool("VerifiableProducer", "--bootstrap-server", bootstrap, "--topic", name, "--max-messages", "200")
    acknowledged = [line for line in map(json.loads, sent.splitlines()) if line["name"] == "producer_send_success"]
    assert sorted(line["offset"] for line in acknowledged) == list(range(200))
    options = ("--topic", name, "--group-id", name, "--max-messages", "200", "--verbose")
    seen = tool("VerifiableConsumer", "--bootstrap-server", bootstrap, *options)
    lines = list(map(json.loads, seen.splitlines()))
    assert [line["offset"] for line in lines if line["name"] == "record_data"] == list(range(200))
    commits = [line for line in lines if line["name"] == "offsets_committed"]
    assert all(line["success"] for line in commits)
    assert commits[-1]["offsets"][0]["offset"] == 200


def test_the_performance_test_completes(tool: Tool, bootstrap: str) -> None:
    options = ("--num-records", "5000", "--record-size", "100", "--throughput", "-1")
    properties = ("--producer-props", f"bootstrap.servers={bootstrap}", "acks=all", "compression.type=lz4")
    printed = tool("ProducerPerformance", "--topic", topic(), *options, *properties)
    assert re.search(r"^5000 records sent, \d+[\d.,]* records/sec", printed, re.MULTILINE), printed


@pytest.mark.long
def test_the_topic_command_creates_describes_extends_and_deletes(tool: Tool, bootstrap: str) -> None:
    name, where = topic(), ("--bootstrap-server", bootstrap)
    tool("TopicCommand", *where, "--create", "--topic", name, "--partitions", "3")
    tool("TopicCommand", *where, "--alter", "--topic", name, "--partitions", "4")
    described = tool("TopicCommand", *where, "--describe", "--topic", name)
    assert re.search(r"PartitionCount: 4\b", described), described
    assert re.findall(r"Partition: (\d)\tLeader: \d+\t", described) == ["0", "1", "2", "3"]
    tool("TopicCommand", *where, "--delete", "--topic", name)
    assert name not in tool("TopicCommand", *where, "--list").split()


@pytest.mark.long
def test_offsets_and_groups_are_shown_and_reset(tool: Tool, bootstrap: str) -> None:
    name, where = topic(), ("--bootstrap-server", bootstrap)
    tool("TopicCommand", *where, "--create", "--topic", name, "--partitions", "1")
    tool("ConsoleProducer", *where, "--topic", name, given="a\nb\n")
    assert tool("GetOffsetShell", *where, "--topic", name).split() == [f"{name}:0:2"]
    options = ("--from-beginning", "--group", name, "--max-messages", "2", "--timeout-ms", "60000")
    tool("consumer.ConsoleConsumer", *where, "--topic", name, *options)
    groups = "consumer.group.ConsumerGroupCommand"
    assert re.search(
        rf"^{name} +{name} +0 +2 +2 +0 ", tool(groups, *where, "--describe", "--group", name), re.MULTILINE
    )
    reset = ("--reset-offsets", "--to-earliest", "--topic", name, "--execute")
    assert re.search(rf"^{name} +{name} +0 +0 *$", tool(groups, *where, "--group", name, *reset), re.MULTILINE)


@pytest.mark.soak
def test_a_reassignment_is_executed(tool: Tool, bootstrap: str, tmp_path: Path) -> None:
    name, where = topic(), ("--bootstrap-server", bootstrap)
    tool("TopicCommand", *where, "--create", "--topic", name, "--partitions", "1", "--replication-factor", "1")
    described = tool("TopicCommand", *where, "--describe", "--topic", name)
    (current,) = re.findall(r"Replicas: (\d+)", described)
    target = next(broker for broker in (1, 2, 3) if broker != int(current))
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": name, "partition": 0, "replicas": [target]}]}))
    options = ("--reassignment-json-file", str(plan), "--execute")
    assert "Successfully started" in tool("reassign.ReassignPartitionsCommand", *where, *options)
    verified = tool("reassign.ReassignPartitionsCommand", *where, *options[:2], "--verify")
    assert "is still in progress" in verified or "is completed" in verified, verified
    moved = f"Replicas: {target}\t"
    assert any(moved in tool("TopicCommand", *where, "--describe", "--topic", name) for _ in range(10))


@pytest.mark.soak
def test_a_throttled_reassignment_is_verified_and_its_throttles_removed(
    tool: Tool, bootstrap: str, tmp_path: Path
) -> None:
    """The tool sets throttles of brokers and topics; --verify removes them when the reassignment is complete."""
    name, where = topic(), ("--bootstrap-server", bootstrap)
    tool("TopicCommand", *where, "--create", "--topic", name, "--partitions", "1", "--replication-factor", "2")
    described = tool("TopicCommand", *where, "--describe", "--topic", name)
    (current,) = re.findall(r"Replicas: ([\d,]+)", described)
    first, second = map(int, current.split(","))
    (other,) = {1, 2, 3} - {first, second}
    plan = tmp_path / "plan.json"
    moves = [{"topic": name, "partition": 0, "replicas": [first, other]}]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    reassign = ("reassign.ReassignPartitionsCommand", *where, "--reassignment-json-file", str(plan))
    assert "throttle limit was set to 5000000" in tool(*reassign, "--execute", "--throttle", "5000000")
    verified = next(text for text in (tool(*reassign, "--verify") for _ in range(10)) if "is completed" in text)
    assert "Clearing broker-level throttles" in verified
    assert f"Clearing topic-level throttles on topic {name}" in verified
    for resource in (("--topic", name), *(("--broker", str(broker)) for broker in (1, 2, 3))):
        assert "throttled" not in tool("ConfigCommand", *where, *resource, "--describe")


@pytest.mark.soak
def test_the_config_command_alters_and_describes_brokers_and_topics(tool: Tool, bootstrap: str) -> None:
    name, where = topic(), ("--bootstrap-server", bootstrap)
    tool("TopicCommand", *where, "--create", "--topic", name, "--partitions", "1")
    change = ("--alter", "--add-config", "segment.jitter.ms=77,cleanup.policy=[compact,delete]")
    tool("ConfigCommand", *where, "--topic", name, *change)
    described = tool("ConfigCommand", *where, "--topic", name, "--describe")
    assert "segment.jitter.ms=77 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.jitter.ms=77" in described
    assert "cleanup.policy=compact,delete" in described
    for resource, source in (("--broker-defaults",), "DYNAMIC_DEFAULT_BROKER"), (("--broker", "1"), "DYNAMIC_BROKER"):
        tool("ConfigCommand", *where, *resource, "--alter", "--add-config", "log.segment.delete.delay.ms=777")
        described = tool("ConfigCommand", *where, *resource, "--describe")
        assert f"{{{source}_CONFIG:log.segment.delete.delay.ms=777" in described, described
        tool("ConfigCommand", *where, *resource, "--alter", "--delete-config", "log.segment.delete.delay.ms")
        assert "777" not in tool("ConfigCommand", *where, *resource, "--describe")
