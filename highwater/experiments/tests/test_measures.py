"""Measures on a broker of the reference: what clients are asked to do, and what becomes of their answers."""

import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from highwater.experiments.clients import Clients, Read, Reading, Sending, Sent
from highwater.experiments.conditions import Condition, Measurement, Setting
from highwater.experiments.measures import dispatch
from highwater.experiments.measures import load as load_module
from highwater.experiments.measures.failures import FIRST_S, FailureMeasure
from highwater.experiments.measures.load import PACED_RECORDS, LoadMeasure, await_replication, quantiles
from highwater.experiments.measures.observed import Observed
from highwater.experiments.measures.producing import STAMP
from highwater.experiments.measures.rebalance import CLASSIC, SETTINGS, Member
from highwater.experiments.plans import EAGER, SCALES, SYNC
from highwater.experiments.run import Plan, run
from highwater.experiments.targets import Bench, open_bench
from highwater.spec.formats.history import read_history

SCALE = replace(SCALES["tiny"], seconds=0.5, records_to_read=60)


class FixedClients(Clients):
    """Returns the same answers to every measurement, since the figures of real clients are not known in advance."""

    def __init__(self, sent: list[Sent], found: list[Read]) -> None:
        self.sent, self.found = sent, found
        self.reading: list[Reading] = []

    def run(self, sending: list[Sending], reading: list[Reading]) -> tuple[list[Sent], list[Read]]:
        self.reading = reading
        return self.sent[: len(sending)], self.found[: len(reading)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Bench]:
    with open_bench("reference:1") as bench:
        yield bench


def load(experiment: str = "clients", **settings: Setting) -> Condition:
    topic: dict[str, Setting] = {"acks": "1", "partitions": 6, "replicas": 1, "min_insync_replicas": 0}
    return Condition(experiment=experiment, settings={**topic, "record_bytes": 100, **settings})


def test_records_of_all_producers_are_added(broker: Bench) -> None:
    clients = FixedClients([Sent(100), Sent(200, {"LATE": 1}), Sent(300, {"LATE": 2})], [])
    found = LoadMeasure(clients, SCALE, "add").measure(broker, load(clients="producers", producers=3))
    assert found.metrics == {
        "records_per_second": 1_200, "megabytes_per_second": pytest.approx(0.12), "error LATE": 3
    }  # fmt: skip


def test_of_a_pair_the_records_read_count(broker: Bench) -> None:
    clients = FixedClients([Sent(300)], [Read(100, 0.5)])
    found = LoadMeasure(clients, SCALE, "pair").measure(broker, load(clients="pair", producers=1))
    assert found.metrics["records_per_second"] == 200
    assert [one.partitions for one in clients.reading] == [[*range(6)]]


def test_consumers_share_the_partitions_and_the_slowest_counts(broker: Bench) -> None:
    clients = FixedClients([], [Read(30, 1.0), Read(30, 2.0)])
    found = LoadMeasure(clients, SCALE, "share").measure(broker, load(clients="consumers", consumers=2))
    assert sorted(number for one in clients.reading for number in one.partitions) == [*range(6)]
    assert [one.records for one in clients.reading] == [30, 30]
    assert found.metrics["records_per_second"] == 30


def test_the_latencies_of_the_producer_are_those_of_acknowledgements(broker: Bench) -> None:
    half = int(PACED_RECORDS * SCALE.latency_s / 2)
    clients = FixedClients([Sent(2 * half, {}, [1.0, 3.0] * half)], [Read(2, 1.0, [20.0, 40.0])])
    found = LoadMeasure(clients, SCALE, "latency").measure(broker, load("latency")).metrics
    assert (found["producer_average"], found["producer_maximum"]) == (2, 3)
    assert (found["consumer_average"], found["consumer_minimum"]) == (30, 20)


@pytest.mark.parametrize("late", [0.06, 1.0])
def test_the_latency_of_a_broker_that_does_not_keep_up_is_none(broker: Bench, late: float) -> None:
    due = int(PACED_RECORDS * SCALE.latency_s)
    latencies = [3.0] * (due - int(due * late)) + [3_000.0] * int(due * late)
    clients = FixedClients([Sent(due, {}, latencies)], [Read(2, 1.0, [20.0, 40.0])])
    with pytest.raises(TimeoutError, match="do not keep up with 100 records/s"):
        LoadMeasure(clients, SCALE, "behind").measure(broker, load("latency"))


def test_percentiles() -> None:
    found = quantiles([float(number) for number in range(1_000)])
    assert found == {"average": 499.5, "minimum": 0, "maximum": 999, "p50": 500, "p99": 990}


def test_partitions_of_a_closed_member_are_not_revoked() -> None:
    observed = Observed(4)
    observed.assign("a", {0, 1})
    observed.assign("b", {2, 3})
    observed.revoke("a", {1, 2})
    assert observed.revoked == 1, "partition 2 belonged to another member"
    observed.leave("b")
    observed.revoke("b", {2, 3})
    assert observed.revoked == 1


def test_closing_a_member_revokes_nothing(broker: Bench) -> None:
    """librdkafka calls the callback of a revocation when it is closed."""
    topic, observed = "closing", Observed(2)
    broker.create_topic(topic, 2, 1)
    member = Member("a", {**broker.client_settings, "group.id": topic, **CLASSIC, **SETTINGS[EAGER]}, topic, observed)
    deadline = time.monotonic() + 60
    while not observed.settled(1) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert observed.settled(1)
    member.close()
    assert (observed.revoked, observed.owned) == (0, {})


def test_a_record_that_arrives_after_the_kill_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The producer is killed at once, so that the reader polls for the first time after that."""
    read = dispatch.OldReader.poll

    def stamped(reader: dispatch.OldReader) -> list[bytes]:
        return [time.monotonic_ns().to_bytes(STAMP) + payload[STAMP:] for payload in read(reader)]

    monkeypatch.setattr(dispatch.OldReader, "poll", stamped)
    settings: dict[str, Setting] = {"dispatch": SYNC, "queue_time_ms": 0, "record_bytes": 100}
    condition = Condition(experiment="dispatch", settings=settings)
    found = dispatch.DispatchMeasure(0.05, 0.0, "late").measure(None, condition)
    assert found.metrics["accepted"] > 0
    assert found.metrics["lost"] == 0
    assert min(found.samples["delay"]) >= 0, "a record arrives before its delay is taken"


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", SCALES)
def test_every_scale_measures_before_a_failure(scale: str, tmp_path: Path, broker: Bench) -> None:
    measure = FailureMeasure(SCALES[scale], tmp_path)
    for killed in ("all but two", "all but one, restarted", "all, restarted"):
        schedule = measure.schedule(broker, Condition(experiment="failures", settings={"killed": killed}))
        (fault,) = schedule.faults
        assert fault.at_ms >= (FIRST_S + 1) * 1_000
        assert fault.at_ms + max(1_000, fault.for_ms) <= schedule.duration_ms


@pytest.mark.long
@pytest.mark.parametrize(
    ("experiment", "killed", "nodes"),
    [("failures", "all but two", {3}), ("durability", "all, restarted", {1, 2, 3})],
)
def test_brokers_are_killed_under_load(experiment: str, killed: str, nodes: set[int], tmp_path: Path) -> None:
    settings: dict[str, Setting] = {"acks": "all", "min_insync_replicas": 2, "partitions": 2, "killed": killed}
    with open_bench("reference:3") as bench:
        condition = Condition(experiment=experiment, settings=settings)
        found = FailureMeasure(SCALES["tiny"], tmp_path).measure(bench, condition, 1)
    assert found.metrics["records_before"] > 0
    assert found.metrics["acknowledged"] > 0
    assert (found.metrics["lost"], found.metrics["unseen"]) == (0, 0)
    (history,) = tmp_path.glob("histories/*/history.ndjson")
    _, events = read_history(history)
    assert {int(event.node or 0) for event in events if event.f == "kill"} == nodes


def test_what_a_target_lacks_is_reported_once_for_each_target(tmp_path: Path, broker: Bench) -> None:
    """Three conditions in three repetitions on two clusters, each of which has too few brokers."""
    targets = [broker.bootstrap, "reference:2"]
    plan = Plan(targets=targets, experiments=["failures"], scale="full", repetitions=1, seed=1)
    found = run(plan, tmp_path).measurements
    assert plan.sizes.pause_repetitions == 3
    assert [(one.target, one.repetition) for one in found] == [(targets[0], 1), (targets[1], 1)] * 3
    assert {(one.target, one.unsupported) for one in found} == {
        (targets[0], "needs 3 brokers; this cluster has 1"), (targets[1], "needs 3 brokers; this cluster has 2")
    }  # fmt: skip


@pytest.mark.soak
def test_brokers_are_restarted_after_a_measurement_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(targets=["reference:1"], experiments=["durability"], scale="tiny", repetitions=1, seed=1)
    serving = []

    def fail(self: FailureMeasure, bench: Bench, condition: Condition, repetition: int) -> None:
        serving.append(len(bench.admin.list_topics(timeout=10).brokers))
        bench.cluster.stop_node(1)
        raise TimeoutError("stopped")

    monkeypatch.setattr(FailureMeasure, "measure", fail)
    found: list[Measurement] = run(plan, tmp_path).measurements
    assert [one.failed for one in found] == ["stopped"] * 3
    assert serving == [1] * 3


def test_a_measurement_begins_when_every_replica_of_the_topic_fetches(broker: Bench) -> None:
    broker.create_topic("replicated", 2, 1)
    await_replication(broker, "replicated", 2)
    found = broker.admin.list_offsets({TopicPartition("replicated", number): OffsetSpec.latest() for number in (0, 1)})
    assert [one.result().offset for one in found.values()] == [1, 1]
    with pytest.raises(TimeoutError, match="not every partition"):
        await_replication(broker, "replicated", 3)


def test_a_follower_that_does_not_fetch_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_module, "FILL_S", 1.0)
    with open_bench("reference:2") as cluster:
        cluster.create_topic("followed", 1, 2)
        await_replication(cluster, "followed", 1)
        cluster.cluster.pause_node(2)
        with pytest.raises(TimeoutError, match="not every partition"):
            await_replication(cluster, "followed", 1)


def test_a_topic_is_created_by_the_next_controller(broker: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    create = broker.admin.create_topics

    def create_topics(new: list[NewTopic], **options: Any) -> Any:
        asked.append(new[0].topic)
        if len(asked) > 1:
            return create(new, **options)
        refused: Future[None] = Future()
        refused.set_exception(KafkaException(KafkaError(KafkaError.NOT_CONTROLLER)))
        return {new[0].topic: refused}

    monkeypatch.setattr(broker.admin, "create_topics", create_topics)
    broker.create_topic("elsewhere", 1, 1)
    assert asked == ["elsewhere"] * 2
    assert "elsewhere" in broker.admin.list_topics(timeout=10).topics
