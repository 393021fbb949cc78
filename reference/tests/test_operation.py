"""Operating brokers: metrics, logs, and the settings and folders that they refuse."""

import contextlib
import json
import re
import socket
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from highwater.errors import UsageError
from highwater.ports import Ports
from highwater.reference.configuration.broker import BrokerConfig
from highwater.reference.configuration.checks import CONTRADICTIONS
from highwater.reference.configuration.properties import broker_config, read_config
from highwater.reference.drivers.cluster import Cluster
from highwater.reference.drivers.logs import STATE_CHANGE_FILE
from highwater.reference.tests.fixtures import QUICK
from highwater.reference.tools import state_changes

pytestmark = pytest.mark.xdist_group("operation")
SAMPLE = re.compile(r'(kafka_\w+)(?:\{(\w+="[^"]*"(?:,\w+="[^"]*")*)\})? (\d+)')
RECORDS = 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    metrics = Ports(3)
    settings: dict[str, object] = {**QUICK, "metrics_port": metrics[0], "log_format": "json"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIGHWATER_LOG", "INFO")
        started = Cluster(3, settings=settings)
        try:
            started.start_all()
            started.wait_until_ready()
            yield started
        finally:
            started.stop_all()
            metrics.release()


@pytest.fixture(scope="module")
def topic(cluster: Cluster) -> str:
    bootstrap = ",".join(cluster.addresses.values())
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("metered", 1, 3)])["metered"].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(RECORDS):
        producer.produce("metered", b"%d" % number)
    assert producer.flush(30) == 0
    return "metered"


def url(cluster: Cluster, broker: str) -> str:
    config = tomllib.loads((cluster.folder / f"{broker}.toml").read_text())["broker"]
    return f"http://127.0.0.1:{config['metrics_port']}/metrics"


def scrape(cluster: Cluster, broker: str) -> dict[str, int]:
    """Return metrics summed over labels; every line must be a sample or a type."""
    with urllib.request.urlopen(url(cluster, broker), timeout=30) as reply:
        assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        lines = reply.read().decode().splitlines()
    found: Counter[str] = Counter()
    for line in lines:
        if not line.startswith("# TYPE "):
            sample = SAMPLE.fullmatch(line)
            assert sample is not None, line
            found[sample[1]] += int(sample[3])
    return found


def total(cluster: Cluster, metric: str) -> int:
    return sum(scrape(cluster, broker).get(metric, 0) for broker in cluster.addresses if cluster.is_running(broker))


def eventually(step: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not step():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_metrics_count_requests_and_records(cluster: Cluster, topic: str) -> None:
    assert total(cluster, "kafka_messages_in_total") == RECORDS
    assert total(cluster, "kafka_bytes_in_total") > RECORDS
    assert total(cluster, "kafka_replication_bytes_out_total") >= 2 * total(cluster, "kafka_bytes_in_total")
    assert total(cluster, "kafka_requests_total") > 5
    assert total(cluster, "kafka_leader_elections_total") >= 1
    assert total(cluster, "kafka_partition_count") == 3
    assert total(cluster, "kafka_leader_count") == 1
    assert total(cluster, "kafka_global_partition_count") == 1
    assert all(scrape(cluster, broker)["kafka_connection_count"] > 0 for broker in cluster.addresses)


def test_exactly_one_broker_is_the_active_controller(cluster: Cluster) -> None:
    assert [scrape(cluster, broker)["kafka_active_controller_count"] for broker in "123"].count(1) == 1


def test_a_stopped_replica_is_counted_as_under_replicated(cluster: Cluster, topic: str) -> None:
    eventually(lambda: total(cluster, "kafka_under_replicated_partitions") == 0)
    leader = next(broker for broker in cluster.addresses if scrape(cluster, broker)["kafka_leader_count"] == 1)
    gone = next(broker for broker in cluster.addresses if broker != leader)
    cluster.kill(gone)
    try:
        eventually(lambda: total(cluster, "kafka_under_replicated_partitions") == 1)
        assert total(cluster, "kafka_offline_partitions_count") == 0
    finally:
        cluster.start(gone)
        cluster.wait_until_ready()
    eventually(lambda: total(cluster, "kafka_under_replicated_partitions") == 0)
    assert total(cluster, "kafka_isr_expands_total") >= 1


def test_the_metrics_port_serves_only_metrics(cluster: Cluster) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(url(cluster, "1").replace("metrics", "secrets"), timeout=30)
    port = int(url(cluster, "1").split(":")[2].split("/")[0])
    with socket.create_connection(("127.0.0.1", port), timeout=30) as hostile:
        hostile.sendall(b"x" * 20_000)
        hostile.settimeout(30)
        with contextlib.suppress(ConnectionResetError):
            assert hostile.recv(100) == b""
    assert scrape(cluster, "1")


def test_state_changes_are_logged_to_a_file_and_merged_by_time(cluster: Cluster, topic: str) -> None:
    tools = typer.Typer()
    tools.add_typer(state_changes.app, name="state-changes")

    def merged_lines() -> list[str]:
        arguments = ["state-changes", "merge", str(cluster.folder), "--topic", topic, "--partition", "0"]
        return CliRunner().invoke(tools, arguments, catch_exceptions=False).stdout.splitlines()

    eventually(lambda: any("leader" in line and "isr" in line for line in merged_lines()))
    lines = merged_lines()
    assert [line[:25] for line in lines] == sorted(line[:25] for line in lines)
    assert all(f"{topic}-0" in line and re.search(r" broker \d controller \d epoch \d+", line) for line in lines)
    assert any((cluster.folder / f"broker-{broker}" / STATE_CHANGE_FILE).stat().st_size for broker in "123")


def test_each_log_line_is_a_json_object(cluster: Cluster, topic: str) -> None:
    lines = [line for broker in "123" for line in (cluster.folder / f"{broker}.log").read_text().splitlines()]
    records = [json.loads(line) for line in lines if not line.startswith("ready ")]
    assert {record["broker"] for record in records} <= {1, 2, 3}
    assert any(record["logger"] == "state.change" and topic in record["message"] for record in records)
    assert all(record.keys() >= {"time", "level", "logger", "message"} for record in records)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_insync_replicas": 2}, "min_insync_replicas > default_replication_factor"),
        ({"group_min_session_timeout_ms": 9, "group_max_session_timeout_ms": 8}, "no consumer could join"),
        ({"replica_fetch_wait_max_ms": 500, "replica_lag_time_max_ms": 500}, "followers of quiet partitions"),
        ({"socket_request_max_bytes": 1 << 30}, "queued_max_request_bytes"),
        ({"message_max_bytes": 2 << 20, "socket_request_max_bytes": 1 << 20}, "could not arrive"),
        ({"message_max_bytes": 2 << 20, "log_segment_bytes": 1 << 20}, "would not fit into a segment"),
        ({"metrics_port": 9092, "port": 9092}, "a port of their own"),
        ({"num_partitions": 0}, "num_partitions; set it to at least 1"),
        ({"guards_off": ["NoSuchGuard"]}, "no guard 'NoSuchGuard'"),
        ({"colour": "red"}, "colour"),
    ],
)  # fmt: skip
def test_contradictory_settings_are_refused_with_a_remedy(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        broker_config({"broker_id": 1, **settings}, "broker.toml")


def test_the_default_settings_have_no_contradiction() -> None:
    assert not [each.keys for each in CONTRADICTIONS if each.applies(BrokerConfig(broker_id=1))]


def test_a_duplicate_key_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text("[broker]\nbroker_id = 1\nport = 1\nport = 2\n")
    with pytest.raises(UsageError, match=r"overwrite a value.*line 4"):
        read_config(path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("broker_id", 2, "broker.id 1, not 2"),
        ("cluster_id", "other", "cluster.id one, not other"),
    ],
)
def test_a_data_folder_of_another_broker_or_cluster_is_refused(
    tmp_path: Path, key: str, value: object, message: str
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text("cluster.id=one\nbroker.id=1\n")
    config = {"broker_id": 1, "cluster_id": "one", "log_dir": str(data), "port": Ports(1)[0], key: value}
    path = tmp_path / "broker.toml"
    path.write_text("[broker]\n" + "".join(f"{name} = {json.dumps(each)}\n" for name, each in config.items()))
    command = [sys.executable, "-m", "highwater", "broker", "--config", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert message in line
    assert "choose another folder" in line
