"""Consumers read from the replica in their rack (KIP-392)."""

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
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1, rack_id=rack,
        topics=(FetchTopic(topic=TOPIC, partitions=(asked,)),),
    )  # fmt: skip
    asker = RetryingClient([broker], request, 12, lambda reply: True)
    cluster.run_client(f"client:{broker}{rack}", asker, patience_ms=2_000)
    return asker.response.responses[0].partitions[0]


def test_the_leader_sends_a_reader_to_its_rack_and_the_follower_serves_it(cluster: SimulatedCluster) -> None:
    near = cluster.settings.broker_settings["replica_selector"] == "rack_aware"
    told, served = fetch(cluster, 1, "b"), fetch(cluster, 2, "b")
    assert told.preferred_read_replica == (2 if near else -1)
    assert bool(told.records) is not near
    assert (served.error_code, bool(served.records)) == (0, True)  # whoever sent the reader there


def test_who_is_in_the_leaders_rack_or_in_none_reads_there(cluster: SimulatedCluster) -> None:
    for rack in ("a", "d", ""):
        told = fetch(cluster, 1, rack)
        assert (told.preferred_read_replica, bool(told.records)) == (-1, True)


def test_nobody_is_sent_to_a_replica_that_is_out_of_the_isr(cluster: SimulatedCluster) -> None:
    cluster.world.crash("broker:2", lose_unflushed=False)
    cluster.world.run_until(cluster.world.now_ms + 3_000)
    assert fetch(cluster, 1, "b").preferred_read_replica == -1
