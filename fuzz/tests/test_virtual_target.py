"""The target `simulator`: brokers as over TCP, runs that repeat exactly, and what breaks behind right replies."""

import json
import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from highwater.conformance.client.broker import advertised_versions, batch
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.connection import Connection, access_to
from highwater.conformance.failures import Disconnected, NoReply, TargetFailure
from highwater.conformance.targets import check_target, launch_target
from highwater.errors import UsageError
from highwater.fuzz.virtual import target as virtual
from highwater.fuzz.virtual.target import SimulatorTarget
from highwater.processes import python_command
from highwater.reference.broker import Broker
from highwater.reference.replication.partition import Partition
from highwater.reference.wire.messages.metadata import MetadataRequest

CASES = ("PRD-1", "TXN-16[walk]", "FRM-5", "SEC-9", "REP-21[cut]")
"""A write, a walk with sets of names, broken frames, a login, and a fault of links."""


def cluster_of(target: SimulatorTarget) -> Cluster:
    address = next(iter(target.addresses.values()))
    return Cluster(target, advertised_versions(address, access=access_to(target)), prefix="test")


@pytest.fixture
def target() -> SimulatorTarget:
    return SimulatorTarget(3)


# -- as over TCP ---------------------------------------------------------------------------------------------


def test_what_is_written_is_read_and_takes_no_time(target: SimulatorTarget) -> None:
    cluster = cluster_of(target)
    topic = cluster.create_topic(partitions=2)
    leader, before = cluster.leader(topic), cluster.clock.monotonic()
    assert leader.produce(topic, batch(b"v")).base_offset == 0
    assert b"v" in (leader.fetch(topic, 0).records or b"")
    assert 0 < cluster.clock.monotonic() - before < 1


def test_a_stopped_broker_refuses_connections_and_comes_back(target: SimulatorTarget) -> None:
    cluster = cluster_of(target)
    broker = cluster.connect(target.addresses[2])
    target.kill_node(2)
    with pytest.raises(Disconnected):
        broker.call(MetadataRequest())
    with pytest.raises(Disconnected):
        Connection(target.addresses[2], access=access_to(target))
    cluster.start(2)
    assert len(cluster.connect(target.addresses[2]).call(MetadataRequest()).brokers) == 3


def test_a_paused_broker_is_silent_and_answers_later(target: SimulatorTarget) -> None:
    cluster = cluster_of(target)
    broker = cluster.connect(target.addresses[2])
    target.pause_node(2)
    correlation_id = broker.send(MetadataRequest(), 8)
    with pytest.raises(NoReply):
        broker.receive_frame(1.0)
    target.resume_node(2)
    frame = broker.receive_frame(1.0)
    assert int.from_bytes(frame[:4], "big") == correlation_id


def test_a_login_is_required_at_its_listener(target: SimulatorTarget) -> None:
    with Connection(target.sasl.address, access=access_to(target)) as connection, pytest.raises(Disconnected):
        connection.exchange(MetadataRequest(), 8)


@pytest.mark.parametrize("name", ["simulator:0", "simulator:10", "simulator:x", "simulator:4.3.1"])
def test_a_number_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no such target"):
        check_target(name)


def test_nine_brokers_are_launched() -> None:
    assert len(launch_target("simulator:9").addresses) == 9


# -- the same run again ----------------------------------------------------------------------------------------


def report_of(*, jobs: int, hash_seed: str) -> dict[str, Any]:
    """Run some cases in a process of its own and return its report on the target."""
    options = [part for case in CASES for part in ("--clause", case)]
    command = python_command("-m", "highwater", "conform", "simulator:3", "--json", "--jobs", str(jobs), *options)
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    report: dict[str, Any] = json.loads(ended.stdout)["targets"][0]
    return report


def test_runs_with_other_processes_and_hashes_have_equal_fingerprints() -> None:
    first, second = report_of(jobs=1, hash_seed="1"), report_of(jobs=2, hash_seed="2")
    found = [{case["case"]: case["fingerprint"] for case in report["cases"]} for report in (first, second)]
    assert first["verdicts"] == second["verdicts"]
    assert first["verdicts"]["pass"] == len(first["cases"])
    assert len(found[0]) > len(CASES)
    assert found[0] == found[1]
    assert len(set(found[0].values())) > len(CASES) / 2, "different cases have different events"


def test_a_change_of_the_case_changes_the_fingerprint(target: SimulatorTarget) -> None:
    fingerprints = []
    for count in (1, 1, 2):
        target.begin_case("PRD-1")
        cluster = cluster_of(target)
        topic = cluster.create_topic()
        for _ in range(count):
            cluster.leader(topic).produce(topic, batch(b"v"))
        fingerprints.append(target.end_case().fingerprint)
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]


# -- what breaks behind right replies ---------------------------------------------------------------------------


def produce(target: SimulatorTarget) -> None:
    cluster = cluster_of(target)
    topic = cluster.create_topic(replicas=3)
    for _ in range(3):
        cluster.leader(topic).produce(topic, batch(b"v"))


def test_an_invariant_that_breaks_is_reported(target: SimulatorTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower's high watermark above its log is visible in no reply of the leader."""
    produce(target)
    assert not target.end_case().broken
    target.begin_case("again")
    fetched: Callable[..., Any] = Partition.__dict__["become_follower"]

    def ahead(self: Partition, *arguments: Any, **named: Any) -> Any:
        found = fetched(self, *arguments, **named)
        self.high_watermark = self.log.log_end_offset + 5
        return found

    monkeypatch.setattr(Partition, "become_follower", ahead)
    with pytest.raises(TargetFailure, match="HwWithinLog"):
        produce(target)
    assert "HwWithinLog" in target.end_case().broken


def test_a_node_that_raises_is_reported(target: SimulatorTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Broker, *arguments: object) -> None:
        raise KeyError("gone")

    monkeypatch.setattr(Broker, "receive", broken)
    with pytest.raises(TargetFailure, match="KeyError"):
        cluster_of(target)
    assert "KeyError" in target.end_case().broken


def test_a_case_that_does_not_end_is_reported(target: SimulatorTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual, "LIMIT_MS", 60_000)
    cluster = cluster_of(target)
    target.pause_node(1)
    waiting = cluster.connect(target.addresses[1])
    waiting.send(MetadataRequest(), 8)
    with pytest.raises(TargetFailure, match=r"did not end within 1 virtual minutes; open: MetadataRequest"):
        cluster.clock.sleep(3600)
