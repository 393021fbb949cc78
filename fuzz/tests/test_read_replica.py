"""Consumers fetch from the replica in their rack (KIP-392)."""

from typing import Any

import pytest

from highwater.fuzz.simulator.clients.producers import Producer, RetryingClient
from highwater.fuzz.simulator.cluster import TOPIC, Settings, SimulatedCluster
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

RACKS = ("a", "b", "c")


@pytest.fixture(params=["rack_aware", "leader"])
def cluster(request: pytest.FixtureRequest) -> SimulatedCluster:
    settings = Settings(assigned=(1, 2, 3), racks=RACKS, broker_settings={"replica_selector": request.param})
    started = SimulatedCluster(0, settings)
    started.start()
    acked: list[int] = []
    producer = Producer(
        [1], TOPIC, 0, first=1, stride=1, pause_ms=10, on_ack=lambda partition, offset, value: acked.append(offset)
    )
    started.world.add("client:p", lambda disk: producer)
    started.world.start("client:p")
    started.world.run_until(started.world.now_ms + 500)
    producer.stopped = True
    started.world.run_until(started.world.now_ms + 500)
    assert acked
    return started


def fetch(cluster: SimulatedCluster, broker: int, rack: str) -> Any:
    requested = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1, rack_id=rack,
        topics=(FetchTopic(topic=TOPIC, partitions=(requested,)),),
    )  # fmt: skip
    asker = RetryingClient([broker], request, 12, lambda reply: True)
    cluster.run_client(f"client:{broker}{rack}", asker, patience_ms=2_000)
    return asker.response.responses[0].partitions[0]


def test_the_leader_names_the_replica_in_the_rack_and_that_replica_serves_fetches(
    cluster: SimulatedCluster,
) -> None:
    rack_aware = cluster.settings.broker_settings["replica_selector"] == "rack_aware"
    leader, follower = fetch(cluster, 1, "b"), fetch(cluster, 2, "b")
    assert leader.preferred_read_replica == (2 if rack_aware else -1)
    assert bool(leader.records) is not rack_aware
    assert (follower.error_code, bool(follower.records)) == (0, True), "a follower serves every consumer"


def test_a_consumer_in_the_rack_of_the_leader_or_in_no_rack_reads_from_the_leader(cluster: SimulatedCluster) -> None:
    for rack in ("a", "d", ""):
        response = fetch(cluster, 1, rack)
        assert (response.preferred_read_replica, bool(response.records)) == (-1, True)


def test_the_leader_never_names_a_replica_outside_the_isr(cluster: SimulatedCluster) -> None:
    cluster.world.crash("broker:2", lose_unflushed=False)
    cluster.world.run_until(cluster.world.now_ms + 3_000)
    assert fetch(cluster, 1, "b").preferred_read_replica == -1
