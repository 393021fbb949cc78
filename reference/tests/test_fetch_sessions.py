"""Fetch sessions (KIP-227): whoever adds up what it is told knows what a whole fetch would have told."""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from reference.replication.fetch_sessions import LAST_EPOCH
from reference.tests.simulated import Simulated
from reference.wire.errors import ErrorCode
from reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from reference.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from reference.wire.records import batch_headers, build_batch

PARTITIONS = 3


def request(offsets: dict[int, int], session: int = 0, epoch: int = -1, forget: tuple[int, ...] = ()) -> FetchRequest:
    parts = tuple(
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
        for number, offset in offsets.items()
    )
    return FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_id=session, session_epoch=epoch,
        topics=(FetchTopic(topic="t", partitions=parts),) if parts else (),
        forgotten_topics_data=(ForgottenTopic(topic="t", partitions=forget),) if forget else (),
    )  # fmt: skip


def parts_of(reply: FetchResponse) -> dict[int, Any]:
    return {data.partition_index: data for topic in reply.responses for data in topic.partitions}


class Cluster(Simulated):
    def __init__(self, **settings: Any) -> None:
        super().__init__(1, **settings)
        self.create("t", partitions=PARTITIONS)

    def fetch(self, *given: Any, **named: Any) -> FetchResponse:
        reply: FetchResponse = self.ask(request(*given, **named), 12)
        return reply

    def write(self, partition: int) -> None:
        data = PartitionProduceData(index=partition, records=build_batch([(0, None, b"v", ())]))
        topics = (TopicProduceData(name="t", partition_data=(data,)),)
        reply = self.ask(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=topics), 9)
        assert reply.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def test_a_session_tells_all_once_and_then_what_is_new() -> None:
    cluster = Cluster()
    first = cluster.fetch({0: 0, 1: 0}, epoch=0)
    assert first.session_id > 0
    assert set(parts_of(first)) == {0, 1}
    nothing = cluster.fetch({}, session=first.session_id, epoch=1)
    assert (nothing.session_id, nothing.error_code, nothing.responses) == (first.session_id, ErrorCode.NONE, ())
    cluster.write(1)
    assert set(parts_of(cluster.fetch({}, session=first.session_id, epoch=2))) == {1}
    moved = cluster.fetch({1: 1, 2: 0}, session=first.session_id, epoch=3, forget=(0,))
    assert set(parts_of(moved)) == {2}, "1 is read to its end, 2 is new"
    cluster.write(0)
    assert parts_of(cluster.fetch({}, session=first.session_id, epoch=4)) == {}


def test_errors_are_told_each_time() -> None:
    cluster = Cluster()
    first = cluster.fetch({0: 99}, epoch=0)
    for epoch in (1, 2):
        (told,) = parts_of(cluster.fetch({}, session=first.session_id, epoch=epoch)).values()
        assert told.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_session_that_is_not_there_and_an_epoch_that_is_not_next() -> None:
    cluster = Cluster()
    assert cluster.fetch({}, session=7, epoch=1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    session = cluster.fetch({0: 0}, epoch=0).session_id
    assert cluster.fetch({}, session=session, epoch=2).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cluster.fetch({}, session=session, epoch=1).error_code == ErrorCode.NONE
    ended = cluster.fetch({0: 0}, session=session, epoch=-1)
    assert (ended.session_id, set(parts_of(ended))) == (0, {0})
    assert cluster.fetch({}, session=session, epoch=2).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_there_are_only_so_many_and_the_one_silent_longest_gives_way() -> None:
    cluster = Cluster(max_incremental_fetch_session_cache_slots=2, fetch_session_eviction_ms=1_000)
    one, other = (cluster.fetch({0: 0}, epoch=0).session_id for _ in range(2))
    assert cluster.fetch({0: 0}, epoch=0).session_id == 0, "none for the third: both are young"
    cluster.run(1_100)
    assert cluster.fetch({}, session=one, epoch=1).error_code == ErrorCode.NONE
    assert cluster.fetch({0: 0}, epoch=0).session_id > 0
    assert cluster.fetch({}, session=other, epoch=1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cluster.fetch({}, session=one, epoch=2).error_code == ErrorCode.NONE


def test_after_the_last_epoch_comes_the_first() -> None:
    cluster = Cluster()
    session = cluster.fetch({0: 0}, epoch=0).session_id
    cluster.broker().served[1].handler.__self__._sessions._sessions[session].epoch = LAST_EPOCH  # type: ignore[attr-defined]
    assert cluster.fetch({}, session=session, epoch=LAST_EPOCH).error_code == ErrorCode.NONE
    assert cluster.fetch({}, session=session, epoch=1).error_code == ErrorCode.NONE


class Fetching(RuleBasedStateMachine):
    """A fetcher with a session beside one without: what the first adds up is what the second is told."""

    @initialize()
    def start(self) -> None:
        self.cluster = Cluster()
        self.offsets: dict[int, int] = {}
        self.told: dict[int, tuple[int, int]] = {}
        reply = self.cluster.fetch({}, epoch=0)
        self.session, self.epoch = reply.session_id, 1

    @rule(partition=st.integers(0, PARTITIONS - 1))
    def write(self, partition: int) -> None:
        self.cluster.write(partition)

    @rule(
        change=st.dictionaries(st.integers(0, PARTITIONS - 1), st.integers(0, 3), max_size=2),
        forget=st.sets(st.integers(0, PARTITIONS - 1), max_size=1),
    )
    def fetch(self, change: dict[int, int], forget: set[int]) -> None:
        forget = forget - set(change)
        reply = self.cluster.fetch(change, session=self.session, epoch=self.epoch, forget=tuple(forget))
        assert reply.error_code == ErrorCode.NONE
        self.epoch += 1
        self.offsets = {key: offset for key, offset in {**self.offsets, **change}.items() if key not in forget}
        self.told = {key: known for key, known in self.told.items() if key in self.offsets}
        whole = parts_of(self.cluster.fetch(self.offsets))
        heard = parts_of(reply)
        for partition, data in heard.items():
            self.told[partition] = (data.error_code, data.high_watermark)
        for partition, data in whole.items():
            assert self.told[partition] == (data.error_code, data.high_watermark)
            assert bool(data.records) == bool(partition in heard and heard[partition].records)
        assert set(self.told) == set(self.offsets)

    @invariant()
    def records_are_whole(self) -> None:
        for partition, offset in self.offsets.items() if hasattr(self, "offsets") else ():
            data = parts_of(self.cluster.fetch({partition: offset}))[partition]
            assert sum(1 for _ in batch_headers(data.records or b"")) == max(data.high_watermark - offset, 0)


TestFetching = Fetching.TestCase
TestFetching.settings = settings(
    max_examples=20, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)
