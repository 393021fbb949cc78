"""Apache Kafka's own Java tools 4.3.1: console producer and consumer, the verifiable ones, the performance test."""

import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Callable

import pytest

from highwater.errors import UsageError
from highwater.reference.tests.apache_kafka.write_segments import command
from highwater.releases import fetch_release
from highwater.toolchain import java

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(600)]  # the first time there is much to fetch
VERSION = "4.3.1"
NAMES = itertools.count()
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def tool() -> Tool:
    """Run one of the tools with the given standard input and return its standard output."""
    if shutil.which("mvn") is None:
        pytest.skip("mvn is not on PATH: apt-get install maven")
    try:
        fetch_release(VERSION)
        java()
    except UsageError as refused:
        pytest.skip(str(refused))

    def run(name: str, *arguments: str, given: str = "") -> str:
        line = command(VERSION, f"org.apache.kafka.tools.{name}", *arguments)
        ended = subprocess.run(line, input=given, capture_output=True, text=True, timeout=120, check=False)
        assert ended.returncode == 0, ended.stderr[-3_000:] + ended.stdout[-1_000:]
        return ended.stdout

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
