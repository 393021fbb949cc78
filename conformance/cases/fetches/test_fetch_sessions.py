"""Fetch sessions (KIP-227): partitions are named once, and replies contain only changed ones."""

from typing import Any

import pytest

from highwater.conformance.cases.support.admin import create, create_error, new_topic
from highwater.conformance.cases.support.offsets import delete_records
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import LATEST, Broker, Topic, batch, records_of
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import HangUp, Reply, Request, defect, without_error
from highwater.conformance.expectations import expect
from highwater.conformance.failures import Unsupported
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

NO_SESSION, FIRST_EPOCH, LAST_EPOCH = 0, 0, -1
SESSIONS_SINCE = 7


class SessionReader:
    """A fetch session with its epoch."""

    def __init__(self, broker: Broker) -> None:
        self.broker, self.session_id, self.epoch = broker, NO_SESSION, FIRST_EPOCH

    def begin(self, *topics: Topic) -> None:
        self.session_id = self.fetch(*topics).session_id
        if self.session_id == NO_SESSION:
            raise Unsupported("the broker opens no fetch session")

    def fetch(
        self, *topics: Topic, offset: int = 0, epoch: int | None = None, forget: tuple[Topic, ...] = (),
        max_bytes: int = 1 << 30, partition_max_bytes: int = 1 << 20,
    ) -> Any:  # fmt: skip
        request = FetchRequest(
            session_id=self.session_id, session_epoch=self.epoch if epoch is None else epoch, max_wait_ms=0,
            max_bytes=max_bytes,
            topics=tuple(
                FetchTopic(
                    topic=topic.name,
                    partitions=(
                        FetchPartition(
                            partition=topic.partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes
                        ),
                    ),
                )
                for topic in topics
            ),
            forgotten_topics_data=tuple(
                ForgottenTopic(topic=name, partitions=tuple(topic.partition for topic in forget if topic.name == name))
                for name in dict.fromkeys(topic.name for topic in forget)
            ),
        )  # fmt: skip
        reply: FetchResponse = self.broker.call(request, self.broker.version_of(FetchRequest, SESSIONS_SINCE))
        self.epoch += epoch is None
        return reply


def reported_topics(reply: FetchResponse) -> tuple[str, ...]:
    """Return the topics of a reply."""
    return tuple(topic.topic for topic in reply.responses)


@pytest.fixture
def topics(cluster: Cluster) -> tuple[Topic, Topic]:
    """Create two topics with the same leader."""
    node = min(cluster.target.addresses)
    return cluster.create_topic(assignment=[node]), cluster.create_topic(assignment=[node])


@pytest.fixture
def reader(cluster: Cluster, topics: tuple[Topic, Topic]) -> SessionReader:
    return SessionReader(cluster.leader(topics[0]))


@clause("FET-21", "opened")
@defect(Reply(FetchRequest, "session_id", NO_SESSION))
def test_a_fetch_of_epoch_0_opens_a_session(reader: SessionReader, topics: tuple[Topic, Topic]) -> None:
    reply = reader.fetch(*topics)
    expect("error code", 0, reply.error_code)
    expect("there is a session id", True, reply.session_id > NO_SESSION)
    expect("topics of the first reply", True, set(reported_topics(reply)) == {topic.name for topic in topics})


@clause("FET-21", "none")
@defect(Reply(FetchRequest, "session_id", 7))
def test_a_fetch_of_epoch_minus_1_opens_none(reader: SessionReader, topics: tuple[Topic, Topic]) -> None:
    expect("session id", NO_SESSION, reader.fetch(*topics, epoch=LAST_EPOCH).session_id)


@clause("FET-22", "no news")
@defect(Request(FetchRequest, "session_epoch", FIRST_EPOCH))
def test_a_reply_without_news_is_empty(reader: SessionReader, topics: tuple[Topic, Topic]) -> None:
    reader.begin(*topics)
    for _ in range(3):
        reply = reader.fetch()
        expect("error code and session id", (0, reader.session_id), (reply.error_code, reply.session_id))
        expect("topics without changes", (), reported_topics(reply))


@clause("FET-22", "records")
@defect(Reply(FetchRequest, "responses", ()))
def test_records_are_news(reader: SessionReader, topics: tuple[Topic, Topic]) -> None:
    reader.begin(*topics)
    reader.broker.produce(topics[1], batch(b"v"))
    reply = reader.fetch()
    expect("changed topics", (topics[1].name,), reported_topics(reply))
    expect("values", True, [r.value for r in records_of(reply.responses[0].partitions[0].records)] == [b"v"])


@clause("FET-22", "read")
@defect(Request(FetchRequest, "topics.partitions.fetch_offset", 0))
def test_a_position_that_moves_is_taken_over(reader: SessionReader, topics: tuple[Topic, Topic]) -> None:
    reader.broker.produce(topics[0], batch(b"v"))
    reader.begin(*topics)
    reply = reader.fetch(topics[0], offset=1)
    expect("topics when all records are read", (), reported_topics(reply))


@clause("FET-22", "new topic")
@defect(Reply(FetchRequest, "responses", ()))
def test_records_of_a_topic_that_was_created_again_are_news(cluster: Cluster, reader: SessionReader) -> None:
    """The session names its partitions by the names of their topics, as before Fetch 13."""
    node = min(cluster.target.addresses)
    old = cluster.create_topic(assignment=[node])
    reader.begin(old)
    cluster.delete_topics(old.name)
    gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.eventually(
        "its replica to be gone", lambda: reader.broker.list_offset(old, LATEST).error_code == gone, 15.0
    )
    wanted = new_topic(old.name, -1, -1, assignment=[[node]])
    # The controller may know the old topic for a while after it has answered that it is deleted (2.8).
    cluster.eventually("the topic to be created", lambda: not create_error(cluster, wanted), 15.0)
    new = cluster.topic(old.name)
    cluster.eventually("its leader to lead", lambda: not reader.broker.list_offset(new, LATEST).error_code)
    reader.fetch()
    expect("error code", 0, reader.broker.produce(new, batch(b"v")).error_code)
    values = [record.value for each in reader.fetch().responses for record in records_of(each.partitions[0].records)]
    expect("values", True, values == [b"v"])


@clause("FET-22", "error")
@defect(Reply(FetchRequest, "responses.partitions.error_code", 0), Reply(FetchRequest, "responses", ()))
def test_an_error_is_told_each_time(reader: SessionReader, topics: tuple[Topic, Topic]) -> None:
    nowhere = Topic(topics[0].name, topics[0].leader, topics[0].leader_id, partition=1000)
    reader.begin(topics[1], nowhere)
    for _ in range(2):
        found = [part.error_code for topic in reader.fetch().responses for part in topic.partitions]
        expect("error codes", True, found == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])


@clause("FET-23")
@defect(Request(FetchRequest, "forgotten_topics_data", ()))
def test_a_forgotten_partition_is_not_spoken_of(reader: SessionReader, topics: tuple[Topic, Topic]) -> None:
    reader.begin(*topics)
    reader.fetch(forget=(topics[0],))
    for topic in topics:
        reader.broker.produce(topic, batch(b"v"))
    expect("changed topics", (topics[1].name,), reported_topics(reader.fetch()))


@clause("FET-23", "several partitions")
@defect(Request(FetchRequest, "forgotten_topics_data.partitions", lambda indexes: indexes[:1]))
def test_several_partitions_of_a_topic_are_forgotten(cluster: Cluster) -> None:
    node = min(cluster.target.addresses)
    name = cluster.topic_name()
    created = create(cluster, new_topic(name, assignment=[[node]] * 3, partitions=-1, factor=-1))
    expect("error code of CreateTopics", 0, created[name].error_code)
    parts = [cluster.topic(name, partition=index) for index in range(3)]
    reader = SessionReader(cluster.leader(parts[0]))
    reader.begin(*parts)
    reader.fetch(forget=tuple(parts[1:]))
    for part in parts:
        _produce_when_it_leads(cluster, reader.broker, part)
    reply = reader.fetch()
    found = [part.partition_index for topic in reply.responses for part in topic.partitions]
    expect("partitions of the reply", True, found == [0])


def _produce_when_it_leads(cluster: Cluster, broker: Broker, part: Topic) -> None:
    """Write a record; a leader may learn that it leads a new partition later than the brokers that name it."""
    cluster.eventually("a leader that accepts a record", lambda: not broker.produce(part, batch(b"v")).error_code)


@clause("FET-23", "several topics")
@defect(Request(FetchRequest, "forgotten_topics_data", lambda forgotten: forgotten[:1]))
def test_partitions_of_several_topics_are_forgotten(
    cluster: Cluster, reader: SessionReader, topics: tuple[Topic, Topic]
) -> None:
    kept = cluster.create_topic(assignment=[topics[0].leader_id])
    if kept.leader_id != topics[0].leader_id:
        raise Unsupported("the target places replicas elsewhere than CreateTopics says")
    reader.begin(*topics, kept)
    reader.fetch(forget=topics)
    for topic in (*topics, kept):
        _produce_when_it_leads(cluster, reader.broker, topic)
    expect("changed topics", (kept.name,), reported_topics(reader.fetch()))


@clause("FET-22", "log start")
@defect(Reply(FetchRequest, "responses", ()))
def test_a_new_log_start_is_news(reader: SessionReader, topics: tuple[Topic, Topic]) -> None:
    reader.broker.produce(topics[0], batch(b"a"))
    reader.broker.produce(topics[0], batch(b"b"))
    reader.begin(topics[0])
    expect("topics when all records are read", (), reported_topics(reader.fetch(topics[0], offset=2)))
    expect("error code and low watermark", (0, 1), delete_records(reader.broker, topics[0], 1))
    reply = reader.fetch()
    expect("changed topics", (topics[0].name,), reported_topics(reply))
    expect("log start", 1, reply.responses[0].partitions[0].log_start_offset)


@clause("FET-24")
@defect(Reply(FetchRequest, "responses", ()))
def test_a_partition_may_be_added(reader: SessionReader, topics: tuple[Topic, Topic]) -> None:
    reader.begin(topics[0])
    expect("topics after one is added", (topics[1].name,), reported_topics(reader.fetch(topics[1])))
    expect("topics of the next reply", (), reported_topics(reader.fetch()))


@clause("FET-9", "epoch")
@pytest.mark.parametrize("step", [-1, 1, 100])
@defect(Reply(FetchRequest, "error_code", without_error(ErrorCode.INVALID_FETCH_SESSION_EPOCH)))
def test_another_epoch_is_refused(reader: SessionReader, topics: tuple[Topic, Topic], step: int) -> None:
    reader.begin(*topics)
    reader.fetch()
    expect("error code", ErrorCode.INVALID_FETCH_SESSION_EPOCH, reader.fetch(epoch=reader.epoch + step).error_code)
    expect("error code in the current epoch", 0, reader.fetch().error_code)


@clause("FET-25", "closed")
@defect(Reply(FetchRequest, "error_code", without_error(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)))
def test_epoch_minus_1_ends_the_session(reader: SessionReader, topics: tuple[Topic, Topic]) -> None:
    reader.begin(*topics)
    last = reader.fetch(*topics, epoch=LAST_EPOCH)
    expect("error code and session id of the last reply", (0, NO_SESSION), (last.error_code, last.session_id))
    expect("error code after the end of the session", ErrorCode.FETCH_SESSION_ID_NOT_FOUND, reader.fetch().error_code)


@clause("FET-25", "anew")
@defect(Reply(FetchRequest, "error_code", without_error(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)))
def test_epoch_0_begins_another_session(reader: SessionReader, topics: tuple[Topic, Topic]) -> None:
    reader.begin(*topics)
    again = reader.fetch(*topics, epoch=FIRST_EPOCH)
    expect("there is another session", True, again.session_id not in (NO_SESSION, reader.session_id))
    expect("error code of the old session", ErrorCode.FETCH_SESSION_ID_NOT_FOUND, reader.fetch().error_code)


@clause("FET-26")
@defect(HangUp(FetchRequest), Reply(FetchRequest, "error_code", ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
def test_a_session_outlives_its_connection(
    cluster: Cluster, reader: SessionReader, topics: tuple[Topic, Topic]
) -> None:
    reader.begin(*topics)
    reader.broker.close()
    reader.broker = cluster.leader(topics[0])
    expect("error code on a new connection", 0, reader.fetch().error_code)


@clause("FET-22", "turns")
@defect(Reply(FetchRequest, "responses", lambda topics: topics[:1]))
def test_partitions_take_turns_if_the_limit_is_small(reader: SessionReader, topics: tuple[Topic, Topic]) -> None:
    """The first partition alone could fill every response."""
    for _ in range(20):
        expect("error code", 0, reader.broker.produce(topics[0], batch(b"x" * 1000)).error_code)
    reader.begin(*topics)
    reader.broker.produce(topics[1], batch(b"v"))
    found, offset = set[str](), 0
    for _ in range(8):
        reply = reader.fetch(topics[0], offset=offset, max_bytes=1500)
        found |= {topic.topic for topic in reply.responses if topic.partitions[0].records}
        offset += topics[0].name in reported_topics(reply)
    expect("topics of which records were returned", True, found == {topic.name for topic in topics})


@clause("FET-27", "changed in a session")
@defect(Request(FetchRequest, "topics.partitions.partition_max_bytes", 1 << 20))
def test_the_last_limit_of_a_partition_applies(reader: SessionReader, topics: tuple[Topic, Topic]) -> None:
    """A partition that the session knows is named again with another limit and offset."""
    for _ in range(6):
        expect("error code", 0, reader.broker.produce(topics[0], batch(b"x" * 1000)).error_code)
    reader.begin(*topics)
    for offset, limit, count in ((0, 1, 1), (1, 2500, 2), (3, 1 << 20, 3), (2, 1, 1)):
        reply = reader.fetch(topics[0], offset=offset, partition_max_bytes=limit)
        records = [record for topic in reply.responses for record in records_of(topic.partitions[0].records)]
        found = [record.offset for record in records]
        expect(f"offsets within {limit} bytes", True, found == list(range(offset, offset + count)))
