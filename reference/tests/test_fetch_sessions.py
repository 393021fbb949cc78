"""Fetch sessions (KIP-227): the partial responses of a session add up to a full fetch response."""

from typing import Any

from highwater.reference.replication.fetch_session_handler import FetchSessionHandler
from highwater.reference.replication.fetch_sessions import MAX_EPOCH, Session
from highwater.reference.tests.simulated import Simulated
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from highwater.reference.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from highwater.reference.wire.records import build_batch

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


def test_a_session_returns_every_partition_once_and_then_only_changes() -> None:
    cluster = Cluster()
    first = cluster.fetch({0: 0, 1: 0}, epoch=0)
    assert first.session_id > 0
    assert set(parts_of(first)) == {0, 1}
    nothing = cluster.fetch({}, session=first.session_id, epoch=1)
    assert (nothing.session_id, nothing.error_code, nothing.responses) == (first.session_id, ErrorCode.NONE, ())
    cluster.write(1)
    assert set(parts_of(cluster.fetch({}, session=first.session_id, epoch=2))) == {1}
    moved = cluster.fetch({1: 1, 2: 0}, session=first.session_id, epoch=3, forget=(0,))
    assert set(parts_of(moved)) == {2}, "partition 1 is read to its end, partition 2 is new"
    cluster.write(0)
    assert parts_of(cluster.fetch({}, session=first.session_id, epoch=4)) == {}


def test_a_new_session_ignores_forgotten_topics() -> None:
    assert set(parts_of(Cluster().fetch({0: 0, 1: 0}, epoch=0, forget=(0,)))) == {0, 1}


def test_a_session_without_partitions_ends() -> None:
    """As in Apache Kafka (FetchManager.newContext): the response has the session id 0, and the id is unknown then."""
    cluster = Cluster()
    session = cluster.fetch({0: 0, 1: 0}, epoch=0).session_id
    assert cluster.fetch({}, session=session, epoch=1, forget=(0,)).session_id == session
    ended = cluster.fetch({}, session=session, epoch=2, forget=(1,))
    assert (ended.error_code, ended.session_id, ended.responses) == (ErrorCode.NONE, 0, ())
    after = cluster.fetch({0: 0}, session=session, epoch=3)
    assert after.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_fetcher_whose_session_has_ended_begins_another() -> None:
    handler: FetchSessionHandler[int] = FetchSessionHandler({})
    assert handler.handle_response(ErrorCode.NONE, 7)
    assert (handler.session_id, handler.is_full) == (7, False)
    assert handler.handle_response(ErrorCode.NONE, 0)
    assert (handler.session_id, handler.is_full) == (0, True)


def test_a_partition_forgotten_while_a_fetch_waits_is_not_returned() -> None:
    session = Session(1, 0)
    session.update(request({0: 0, 1: 0}))
    answers = (PartitionData(partition_index=0, high_watermark=1), PartitionData(partition_index=1, high_watermark=1))
    session.update(request({}, forget=(0,)))
    (returned,) = session.changed_partitions((FetchableTopicResponse(topic="t", partitions=answers),))
    assert returned.partitions == answers[1:]


def test_errors_are_returned_in_every_fetch() -> None:
    cluster = Cluster()
    first = cluster.fetch({0: 99}, epoch=0)
    for epoch in (1, 2):
        (returned,) = parts_of(cluster.fetch({}, session=first.session_id, epoch=epoch)).values()
        assert returned.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_unknown_session_and_a_wrong_session_epoch_are_refused() -> None:
    cluster = Cluster()
    assert cluster.fetch({}, session=7, epoch=1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    session = cluster.fetch({0: 0}, epoch=0).session_id
    assert cluster.fetch({}, session=session, epoch=2).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cluster.fetch({}, session=session, epoch=1).error_code == ErrorCode.NONE
    ended = cluster.fetch({0: 0}, session=session, epoch=-1)
    assert (ended.session_id, set(parts_of(ended))) == (0, {0})
    assert cluster.fetch({}, session=session, epoch=2).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_full_session_cache_evicts_the_least_recently_used_session() -> None:
    cluster = Cluster(max_incremental_fetch_session_cache_slots=2, fetch_session_eviction_ms=1_000)
    one, other = (cluster.fetch({0: 0}, epoch=0).session_id for _ in range(2))
    assert cluster.fetch({0: 0}, epoch=0).session_id == 0, (
        "no session for the third fetch: both sessions are too recent to evict"
    )
    cluster.run(1_100)
    assert cluster.fetch({}, session=one, epoch=1).error_code == ErrorCode.NONE
    assert cluster.fetch({0: 0}, epoch=0).session_id > 0
    assert cluster.fetch({}, session=other, epoch=1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cluster.fetch({}, session=one, epoch=2).error_code == ErrorCode.NONE


def test_the_session_epoch_wraps_to_one() -> None:
    cluster = Cluster()
    session = cluster.fetch({0: 0}, epoch=0).session_id
    cluster.broker().served[1].handler.__self__._sessions._sessions[session].epoch = MAX_EPOCH  # type: ignore[attr-defined]
    assert cluster.fetch({}, session=session, epoch=MAX_EPOCH).error_code == ErrorCode.NONE
    assert cluster.fetch({}, session=session, epoch=1).error_code == ErrorCode.NONE
