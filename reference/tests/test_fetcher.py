"""The fetch requests of a follower: what they name (KIP-227), and how its session begins again."""

from collections.abc import Callable
from typing import Any

import pytest

from highwater.reference.effects import Effect, Instant, broker_peer
from highwater.reference.peers import Peers
from highwater.reference.replication.fetch import FetchHandler
from highwater.reference.replication.fetch_sessions import FetchSessions, Session
from highwater.reference.replication.partition import Partition
from highwater.reference.replication.states import PartitionState
from highwater.reference.tests.simulated import QUICK, Simulated
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.topics import DeleteTopicsRequest, DeleteTopicState

LEADER, FOLLOWER = 1, 2
Names = list[tuple[str, int]]


class Pair(Simulated):
    """Two brokers; `requests` are the fetches of broker 2 from broker 1."""

    def __init__(self, partitions: int = 6, **settings: Any) -> None:
        super().__init__(2, **settings)
        self.requests: list[FetchRequest] = []
        self.create("t", partitions)
        self.led = [number for number in range(partitions) if self.leader("t", number) == LEADER]
        self.run(500)
        self.requests.clear()

    def partition(self, number: int, broker_id: int = LEADER) -> Partition:
        return self.broker(broker_id).replicas.partitions["t", number]

    @property
    def sessions(self) -> FetchSessions:
        found = self.broker(LEADER).served[1].handler.__self__._sessions  # type: ignore[attr-defined]
        assert isinstance(found, FetchSessions)
        return found

    @property
    def session(self) -> Session:
        (found,) = self.sessions._sessions.values()
        return found

    def named(self) -> Names:
        """Return the partitions that the requests since the last call name, in order."""
        found = [(topic.topic, part.partition) for body in self.requests for topic in body.topics
                 for part in topic.partitions]  # fmt: skip
        self.requests.clear()
        return found

    def replicates(self, number: int) -> bool:
        """Produce one record with acks=all and return whether it was acknowledged and replicated."""
        error = self.produce("t", [b"v"], number).error_code
        ends = {self.partition(number, each).log.log_end_offset for each in (LEADER, FOLLOWER)}
        return error == ErrorCode.NONE and len(ends) == 1

    def enter(self, broker_id: int, change: Callable[[], None]) -> None:
        def step(now: Instant) -> list[Effect]:
            change()
            return self.broker(broker_id)._out.drain()

        self.world.enter(broker_peer(broker_id), step)

    def lead_again(self, number: int) -> None:
        """Make the leader the leader of its leader epoch again, after `Partition.stop`."""
        partition = self.partition(number)
        epoch, isr = partition.leader_epoch, partition.isr
        state = PartitionState(LEADER, epoch, isr, partition.controller_epoch, partition.partition_epoch)
        self.enter(LEADER, lambda: partition.become_leader(state, partition.replicas))


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Pair]:
    call = Peers.call
    pairs: list[Pair] = []

    def record(self: Peers, broker_id: int, body: Any, version: int) -> Any:
        if isinstance(body, FetchRequest) and (broker_id, body.replica_id) == (LEADER, FOLLOWER) and pairs:
            pairs[0].requests.append(body)
        return call(self, broker_id, body, version)

    def begin(*given: Any, **settings: Any) -> Pair:
        monkeypatch.setattr(Peers, "call", record)
        pairs[:] = [Pair(*given, **settings)]
        return pairs[0]

    return begin


@pytest.fixture
def pair(start: Callable[..., Pair]) -> Pair:
    return start()


def test_an_idle_follower_names_no_partition(pair: Pair) -> None:
    pair.run(1_000)
    assert len(pair.requests) >= 1_000 / (2 * QUICK["replica_fetch_wait_max_ms"])
    assert all(body.session_epoch > 0 for body in pair.requests)
    assert pair.named() == []


def test_a_follower_names_the_partition_that_it_appended_to(pair: Pair) -> None:
    assert pair.replicates(pair.led[0])
    assert pair.named() == [("t", pair.led[0])]


@pytest.mark.parametrize("partitions", [20, 200])
def test_the_cost_of_a_record_does_not_grow_with_the_number_of_partitions(
    start: Callable[..., Pair], partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = start(partitions)
    reads, read_one = [0], FetchHandler._read_one

    def count(self: FetchHandler, *given: Any) -> Any:
        reads[0] += 1
        return read_one(self, *given)

    monkeypatch.setattr(FetchHandler, "_read_one", count)
    for _ in range(10):
        assert pair.replicates(pair.led[0])
    assert reads[0] <= 60
    assert len(pair.named()) <= 20


def test_the_high_watermark_reaches_the_follower_without_another_record(pair: Pair) -> None:
    number = pair.led[0]
    assert pair.replicates(number)
    pair.run(2 * QUICK["replica_fetch_wait_max_ms"])
    assert pair.partition(number, FOLLOWER).high_watermark == 1


def test_a_partition_that_the_follower_no_longer_has_is_forgotten(pair: Pair) -> None:
    pair.create("u", 2)
    pair.run(500)
    body = DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),), topic_names=("t",), timeout_ms=1_000)
    pair.ask(body, 5, pair.broker(FOLLOWER).cache.controller_id)
    pair.run(1_000)
    forgotten = [part for body in pair.requests for topic in body.forgotten_topics_data for part in topic.partitions]
    assert sorted(forgotten) == pair.led
    assert {topic for topic, _ in pair.session.partitions} == {"u"}


def test_a_session_that_the_leader_evicted_begins_again(pair: Pair) -> None:
    evicted = pair.session.session_id
    pair.enter(LEADER, lambda: pair.sessions._close(evicted))
    assert pair.replicates(pair.led[0])
    assert pair.session.session_id != evicted
    assert set(pair.named()) == {("t", number) for number in pair.led}


def test_a_session_with_another_epoch_is_closed_and_begins_again(pair: Pair) -> None:
    before = pair.session
    before.epoch += 1
    assert pair.replicates(pair.led[0])
    assert pair.session is not before
    assert before.partitions == {}
    assert pair.session.partitions.keys() == {("t", number) for number in pair.led}


def test_a_lost_response_begins_the_session_again(pair: Pair) -> None:
    before = pair.session
    pair.world.hold(broker_peer(LEADER), broker_peer(FOLLOWER))
    pair.run(200)
    pair.world.held[broker_peer(LEADER), broker_peer(FOLLOWER)].clear()
    pair.world.release(broker_peer(LEADER), broker_peer(FOLLOWER))
    pair.run(2 * QUICK["request_timeout_ms"])
    assert pair.replicates(pair.led[0])
    assert pair.session is not before


def test_a_leader_that_restarts_gets_a_full_fetch(pair: Pair) -> None:
    before = pair.session.session_id
    pair.world.crash(broker_peer(LEADER))
    pair.run(100)
    pair.world.start(broker_peer(LEADER))
    pair.wait(lambda: pair.leader("t", pair.led[0]) > 0)
    pair.wait(lambda: pair.produce("t", [b"v"], pair.led[0]).error_code == ErrorCode.NONE)
    assert before not in pair.sessions._sessions


def test_a_follower_that_restarts_has_one_session(pair: Pair) -> None:
    before = pair.session
    pair.world.crash(broker_peer(FOLLOWER))
    pair.run(100)
    pair.world.start(broker_peer(FOLLOWER))
    pair.wait(lambda: pair.produce("t", [b"v"], pair.led[0]).error_code == ErrorCode.NONE)
    assert pair.session is not before
    assert pair.replicates(pair.led[0])


def test_a_follower_without_a_session_fetches_all_partitions(start: Callable[..., Pair]) -> None:
    pair = start(max_incremental_fetch_session_cache_slots=0)
    assert pair.replicates(pair.led[0])
    assert {body.session_epoch for body in pair.requests} == {0}
    assert set(pair.named()) == {("t", number) for number in pair.led}


def test_a_partition_with_an_error_is_named_again_after_the_backoff(pair: Pair) -> None:
    one, other = pair.led[:2]
    pair.enter(LEADER, pair.partition(one).stop)
    pair.run(1_000)
    tries = pair.named().count(("t", one))
    assert 3 <= tries <= 1_000 / QUICK["replica_fetch_backoff_ms"], "it neither gives up nor fetches in a loop"
    assert pair.replicates(other)
    pair.lead_again(one)
    assert pair.replicates(one)


def test_a_partition_with_an_error_is_fetched_as_soon_as_the_broker_leads_it(start: Callable[..., Pair]) -> None:
    pair = start(replica_fetch_backoff_ms=5_000)
    one = pair.led[0]
    pair.enter(LEADER, pair.partition(one).stop)
    pair.run(100)
    pair.lead_again(one)
    assert pair.replicates(one)
    assert pair.world.now_ms < 5_000
