"""Fetch sessions of followers at the leader (KIP-227): what a fetch reads, and for which partitions it counts."""

from typing import Any

import pytest

from highwater.reference.effects import Effect, Instant, broker_peer
from highwater.reference.replication.fetch import FetchHandler
from highwater.reference.replication.fetcher import Fetcher
from highwater.reference.replication.partition import Partition
from highwater.reference.replication.states import PartitionState
from highwater.reference.tests.simulated import QUICK, Simulated
from highwater.reference.tests.test_fetch_sessions import parts_of
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from highwater.reference.wire.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from highwater.reference.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from highwater.reference.wire.records import build_batch

LEADER, FOLLOWER, CLIENT = 1, 2, -1
LAG_MS = QUICK["replica_lag_time_max_ms"]


class Leader(Simulated):
    """Broker 1, and broker 2 that does not fetch: the test sends its fetches, with the epoch of the session."""

    def __init__(self, partitions: int = 4, **settings: Any) -> None:
        super().__init__(2, min_insync_replicas=1, **settings)
        self.create("t", partitions)
        self.led = [number for number in range(partitions) if self.leader("t", number) == LEADER]
        self.session_id = self.epoch = 0

    def partition(self, number: int) -> Partition:
        return self.broker(LEADER).replicas.partitions["t", number]

    def body(
        self,
        offsets: dict[int, int],
        forget: tuple[int, ...] = (),
        wait_ms: int = 0,
        replica: int = FOLLOWER,
        max_bytes: int = 1 << 20,
    ) -> FetchRequest:
        parts = tuple(
            FetchPartition(
                partition=number,
                fetch_offset=offset,
                current_leader_epoch=self.partition(number).leader_epoch,
                partition_max_bytes=1 << 20,
            )
            for number, offset in offsets.items()
        )
        return FetchRequest(
            replica_id=replica, max_wait_ms=wait_ms, min_bytes=1, max_bytes=max_bytes,
            session_id=self.session_id, session_epoch=self.epoch,
            topics=(FetchTopic(topic="t", partitions=parts),) if parts else (),
            forgotten_topics_data=(ForgottenTopic(topic="t", partitions=forget),) if forget else (),
        )  # fmt: skip

    def follow(self, *given: Any, **named: Any) -> dict[int, Any]:
        """Return the partitions of the response to the next fetch of the session."""
        return self.returned(self.send_fetch(*given, **named))

    def send_fetch(self, *given: Any, **named: Any) -> int:
        correlation_id = self.send(self.body(*given, **named), 12, LEADER)
        self.epoch += 1
        return correlation_id

    def returned(self, correlation_id: int) -> dict[int, Any]:
        reply: FetchResponse = self.answer(correlation_id)
        assert reply.error_code == ErrorCode.NONE
        self.session_id = reply.session_id
        return parts_of(reply)

    def write(self, number: int) -> None:
        """Append one record with acks=1."""
        data = PartitionProduceData(index=number, records=build_batch([(0, None, b"v", ())]))
        topics = (TopicProduceData(name="t", partition_data=(data,)),)
        reply = self.ask(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=topics), 9, LEADER)
        assert reply.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    def lead_again(self, number: int) -> None:
        """Make the leader the leader of a new leader epoch, as a LeaderAndIsr request does."""
        partition = self.partition(number)
        epoch = partition.leader_epoch + 1
        state = PartitionState(LEADER, epoch, partition.isr, partition.controller_epoch, partition.partition_epoch)

        def become(now: Instant) -> list[Effect]:
            partition.become_leader(state, partition.replicas)
            return self.broker(LEADER)._out.drain()

        self.world.enter(broker_peer(LEADER), become)

    def follow_for(self, wait_ms: int) -> None:
        """Fetch without naming a partition, as the follower of idle partitions does."""
        end_ms = self.world.now_ms + wait_ms
        while self.world.now_ms < end_ms:
            self.follow({}, wait_ms=QUICK["replica_fetch_wait_max_ms"])


@pytest.fixture
def leader(monkeypatch: pytest.MonkeyPatch) -> Leader:
    monkeypatch.setattr(Fetcher, "add", lambda self, partition: None)
    cluster = Leader()
    assert len(cluster.led) == 2
    return cluster


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list of the partitions of topic t that fetches read, in order."""
    found: list[int] = []
    read_one = FetchHandler._read_one

    def record(self: FetchHandler, read_pass: Any, partition: Partition, requested: FetchPartition) -> Any:
        if partition.topic == "t":
            found.append(partition.partition)
        return read_one(self, read_pass, partition, requested)

    monkeypatch.setattr(FetchHandler, "_read_one", record)
    return found


def test_a_fetch_reads_only_partitions_that_moved(leader: Leader, read: list[int]) -> None:
    one, other = leader.led
    leader.follow({one: 0, other: 0})
    leader.follow({})
    read.clear()
    assert leader.follow({}) == {}
    assert read == []
    leader.write(other)
    assert set(leader.follow({})) == {other}
    assert set(read) == {other}


def test_an_append_ends_the_wait_of_a_fetch_that_does_not_name_the_partition(leader: Leader) -> None:
    one, other = leader.led
    leader.follow({one: 0, other: 0})
    waiting = leader.send_fetch({}, wait_ms=5_000)
    leader.run(100)
    assert waiting not in leader.hand.answers
    leader.write(one)
    leader.run(100)
    assert set(leader.returned(waiting)) == {one}


def test_a_new_high_watermark_is_returned_once(leader: Leader) -> None:
    one, other = leader.led
    leader.follow({one: 0, other: 0})
    leader.write(one)
    assert leader.follow({})[one].high_watermark == 0
    assert leader.follow({one: 1})[one].high_watermark == 1, "this fetch itself commits the record"
    assert leader.follow({}) == {}


def test_records_that_did_not_fit_are_returned_by_the_next_fetch(leader: Leader) -> None:
    one, other = leader.led
    leader.follow({one: 0, other: 0})
    for number in (one, other):
        leader.write(number)
    assert {number for number, data in leader.follow({}, max_bytes=1).items() if data.records} == {one}
    leader.write(one)
    fetched = leader.follow({one: 1}, max_bytes=1)
    assert {number for number, data in fetched.items() if data.records} == {other}, "each partition has its turn"


def test_an_idle_follower_is_caught_up_at_the_last_fetch_of_its_session(leader: Leader) -> None:
    one, other = leader.led
    leader.follow({one: 0, other: 0})
    leader.follow_for(3 * LAG_MS)
    fetched_ms = leader.broker(LEADER)._context.now.monotonic_ms
    leader.write(one)
    assert fetched_ms - 2 * QUICK["replica_fetch_wait_max_ms"] <= leader.partition(one).remotes[FOLLOWER].caught_up_ms
    leader.run(LAG_MS // 3)
    assert leader.partition(one).isr == (LEADER, FOLLOWER), "without session fetches it would have left the ISR"
    leader.run(2 * LAG_MS)
    assert leader.partition(one).isr == (LEADER,)


def test_a_follower_that_stops_fetching_leaves_the_isr(leader: Leader) -> None:
    one, other = leader.led
    leader.follow({one: 0, other: 0})
    leader.follow_for(LAG_MS)
    leader.run(3 * LAG_MS)
    assert leader.partition(one).isr == (LEADER, FOLLOWER), "nothing is missing in its log"
    leader.write(one)
    leader.run(LAG_MS)
    assert leader.partition(one).isr == (LEADER,)


def test_the_session_does_not_count_for_a_forgotten_partition(leader: Leader) -> None:
    one, other = leader.led
    leader.follow({one: 0, other: 0})
    leader.follow({}, forget=(one,))
    leader.follow_for(3 * LAG_MS)
    for number in (one, other):
        leader.write(number)
    leader.run(LAG_MS * 3 // 4)  # the ISR is checked twice in LAG_MS, and the other follower is late after LAG_MS
    assert leader.partition(one).isr == (LEADER,)
    assert leader.partition(other).isr == (LEADER, FOLLOWER)


def test_a_follower_outside_the_isr_joins_it_again_without_naming_the_partition(leader: Leader) -> None:
    one, other = leader.led
    leader.follow({one: 0, other: 0})
    leader.write(one)
    leader.run(3 * LAG_MS)
    assert leader.partition(one).isr == (LEADER,)
    leader.partition(one).is_alive = lambda broker_id: False  # as until the follower has registered
    leader.follow({one: 1})
    leader.follow({})
    assert leader.partition(one).isr == (LEADER,)
    leader.partition(one).is_alive = lambda broker_id: True
    leader.follow_for(200)
    assert leader.partition(one).isr == (LEADER, FOLLOWER)


def test_a_follower_that_restarts_replaces_its_session(leader: Leader) -> None:
    one, other = leader.led
    leader.follow({one: 0, other: 0})
    before = leader.session_id
    waiting = leader.send(leader.body({}, wait_ms=5_000), 12, LEADER)
    leader.run(50)
    leader.session_id = leader.epoch = 0
    leader.follow({one: 0, other: 0})
    assert leader.session_id not in {0, before}
    leader.run(50)
    assert waiting in leader.hand.answers, "the fetch of the earlier process does not wait any longer"
    waiters = (leader.partition(one).append_waiters, leader.partition(one).commit_waiters)
    assert [set(each) for each in waiters] == [{f"session:{leader.session_id}"}] * 2
    leader.session_id, leader.epoch = before, 2
    refused = leader.ask(leader.body({}), 12, LEADER)
    assert refused.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_waiting_fetch_is_fenced_when_the_leader_epoch_changes(leader: Leader) -> None:
    one, other = leader.led
    leader.follow({one: 0, other: 0})
    waiting = leader.send_fetch({}, wait_ms=5_000)
    leader.run(50)
    leader.lead_again(one)
    leader.run(50)
    assert waiting in leader.hand.answers
    assert {number: data.error_code for number, data in leader.returned(waiting).items()} == {
        one: ErrorCode.FENCED_LEADER_EPOCH
    }


def test_a_new_log_start_is_returned(leader: Leader) -> None:
    one, other = leader.led
    leader.follow({one: 0, other: 0})
    leader.write(one)
    leader.follow({one: 1})
    leader.follow({})
    topics = (DeleteRecordsTopic(name="t", partitions=(DeleteRecordsPartition(partition_index=one, offset=1),)),)
    leader.send(DeleteRecordsRequest(topics=topics, timeout_ms=100), 2, LEADER)
    leader.run(20)
    assert leader.follow({})[one].log_start_offset == 1
    assert leader.follow({}) == {}


def test_a_partition_that_stops_is_read_again(leader: Leader) -> None:
    one, other = leader.led
    leader.follow({one: 0, other: 0})
    leader.partition(other).stop()
    assert leader.follow({})[other].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.follow({}) == {}, "an error is returned once, or the follower would fetch in a loop"
    assert set(leader.follow({other: 0})) == {other}
    leader.lead_again(other)
    assert set(leader.follow({})) == {other}


def test_a_follower_may_evict_a_session_of_a_client_but_not_the_reverse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fetcher, "add", lambda self, partition: None)
    leader = Leader(max_incremental_fetch_session_cache_slots=1)
    one = leader.led[0]
    leader.follow({one: 0}, replica=CLIENT)
    client = leader.session_id
    leader.session_id = leader.epoch = 0
    leader.follow({one: 0})
    assert leader.session_id not in {0, client}
    leader.session_id = leader.epoch = 0
    leader.follow({one: 0}, replica=CLIENT)
    assert leader.session_id == 0
