"""Topic ids instead of names (KIP-516) in Fetch, Produce, OffsetCommit and OffsetFetch."""

from dataclasses import replace

import pytest

from highwater.conformance.cases.support.consumer_members import topic_id
from highwater.conformance.clause import clause, sweep
from highwater.conformance.client.broker import Broker, Topic, batch, produce_request, records_of
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.requests import message
from highwater.conformance.defects import Reply, Request, defect, without_error
from highwater.conformance.expectations import expect, only
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import OffsetCommitRequest, OffsetFetchRequest
from highwater.reference.wire.messages.fetch import FetchRequest, PartitionData
from highwater.reference.wire.messages.produce import PartitionProduceResponse, ProduceRequest, TopicProduceData

ANOTHER = b"\xab" * 16
FETCH_BY_ID, PRODUCE_BY_ID, OFFSETS_BY_ID = 13, 13, 10


def fetch_by_id(leader: Broker, requested: bytes, version: int, partition: int = 0) -> PartitionData:
    part = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    request = message(FetchRequest, max_wait_ms=0, min_bytes=0, topics=[{"topic_id": requested, "partitions": [part]}])
    reply = leader.call(request, version)
    expect("topic id of the reply", requested, only(reply.responses).topic_id)
    answer: PartitionData = only(only(reply.responses).partitions)
    return answer


def produce_by_id(leader: Broker, topic: Topic, requested: bytes) -> PartitionProduceResponse:
    request = produce_request(topic, batch(b"v"))
    named = TopicProduceData(topic_id=requested, partition_data=only(request.topic_data).partition_data)
    reply = leader.call(replace(request, topic_data=(named,)), PRODUCE_BY_ID)
    answer: PartitionProduceResponse = only(only(reply.responses).partition_responses)
    return answer


@clause("FET-10", "known")
@sweep(FetchRequest, FETCH_BY_ID)
@defect(Request(FetchRequest, "topics.topic_id", ANOTHER))
def test_a_topic_is_read_by_its_id(leader: Broker, topic: Topic, version: int) -> None:
    leader.need(FetchRequest, version)
    leader.produce(topic, batch(b"v"))
    answer = fetch_by_id(leader, topic_id(leader, topic), version, topic.partition)
    expect("error code and number of records", (0, 1), (answer.error_code, len(records_of(answer.records))))


@clause("FET-10", "unknown")
@sweep(FetchRequest, FETCH_BY_ID)
@defect(Reply(FetchRequest, "responses.partitions.error_code", without_error(ErrorCode.UNKNOWN_TOPIC_ID)))
def test_an_unknown_id_is_not_read(leader: Broker, version: int) -> None:
    leader.need(FetchRequest, version)
    expect("error code", ErrorCode.UNKNOWN_TOPIC_ID, fetch_by_id(leader, ANOTHER, version).error_code)


@clause("FET-10", "session")
@defect(Reply(FetchRequest, "error_code", without_error(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)))
def test_a_session_of_names_is_not_continued_by_ids(leader: Broker, topic: Topic) -> None:
    leader.need(FetchRequest, FETCH_BY_ID)
    part = {"partition": topic.partition, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    named = [topic.name, topic_id(leader, topic), [part]]
    first = leader.call(message(FetchRequest, session_epoch=0, max_wait_ms=0, topics=[named]), FETCH_BY_ID - 1)
    request = message(FetchRequest, session_id=first.session_id, session_epoch=1, max_wait_ms=0, topics=[named])
    expect("error code", ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, leader.call(request, FETCH_BY_ID).error_code)


@clause("PRD-26", "known")
@defect(Request(ProduceRequest, "topic_data.topic_id", ANOTHER))
def test_a_topic_is_written_by_its_id(leader: Broker, topic: Topic) -> None:
    leader.need(ProduceRequest, PRODUCE_BY_ID)
    answer = produce_by_id(leader, topic, topic_id(leader, topic))
    expect("error code and base offset", (0, 0), (answer.error_code, answer.base_offset))
    expect("number of records", 1, len(records_of(leader.fetch(topic, 0).records)))


@clause("PRD-26", "unknown")
@defect(Reply(ProduceRequest, "responses.partition_responses.error_code", without_error(ErrorCode.UNKNOWN_TOPIC_ID)))
def test_an_unknown_id_is_not_written(leader: Broker, topic: Topic) -> None:
    leader.need(ProduceRequest, PRODUCE_BY_ID)
    expect("error code", ErrorCode.UNKNOWN_TOPIC_ID, produce_by_id(leader, topic, ANOTHER).error_code)


def commit_by_id(coordinator: Broker, group: str, requested: bytes, partition: int = 0) -> int:
    part = [partition, 42]
    request = message(OffsetCommitRequest, group_id=group, topics=[{"topic_id": requested, "partitions": [part]}])
    return int(only(only(coordinator.call(request, OFFSETS_BY_ID).topics).partitions).error_code)


@pytest.fixture
def group(cluster: Cluster) -> str:
    broker = cluster.connect()
    broker.need(OffsetCommitRequest, OFFSETS_BY_ID)
    broker.need(OffsetFetchRequest, OFFSETS_BY_ID)
    return cluster.group()


@clause("OFF-12", "known")
@defect(Reply(OffsetFetchRequest, "groups.topics.partitions.committed_offset", 0))
def test_an_offset_is_committed_and_read_by_id(cluster: Cluster, group: str, topic: Topic) -> None:
    broker = cluster.coordinator(group)
    requested = topic_id(broker, topic)
    expect("error code of the commit", 0, commit_by_id(broker, group, requested, topic.partition))
    wanted = [{"topic_id": requested, "partition_indexes": [topic.partition]}]
    request = message(OffsetFetchRequest, groups=[{"group_id": group, "topics": wanted}])
    found = only(only(broker.call(request, OFFSETS_BY_ID).groups).topics)
    expect("topic id and offset", (requested, 42), (found.topic_id, only(found.partitions).committed_offset))


@clause("OFF-12", "unknown")
@defect(Reply(OffsetCommitRequest, "topics.partitions.error_code", without_error(ErrorCode.UNKNOWN_TOPIC_ID)))
def test_no_offset_is_committed_under_an_unknown_id(cluster: Cluster, group: str) -> None:
    expect("error code", ErrorCode.UNKNOWN_TOPIC_ID, commit_by_id(cluster.coordinator(group), group, ANOTHER))
