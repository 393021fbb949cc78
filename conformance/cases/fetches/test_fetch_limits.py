"""Fetch: size limits, several partitions, followers, and diverging epochs."""

import pytest

from highwater.conformance.cases.support.reassignments import replicas_of
from highwater.conformance.cases.support.replicas import FOLLOWERS_SERVE_SINCE, produce_acknowledged
from highwater.conformance.clause import clause, sweep
from highwater.conformance.client.broker import LATEST, Broker, Topic, batch, fetch_request, records_of
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, Silence, defect, increment
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import TargetFailure, Unsupported
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from highwater.reference.wire.records import batch_headers
from highwater.reference.wire.registry import api_of

READ_COMMITTED = 1
SIZE = 1000
WAIT_MS = 400
NO_CONVERSION_SINCE = 4
DEBUGGING_CONSUMER = -2
LAST_WITH_REPLICA_ID = 14
DELETED_S = 20.0
NO_LONGER_HERE = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID}


def fill(leader: Broker, topic: Topic, batches: int = 10) -> None:
    for _ in range(batches):
        expect("error code of Produce", 0, leader.produce(topic, batch(b"x" * SIZE)).error_code)


def fetch_all(leader: Broker, topics: list[Topic], max_bytes: int) -> dict[str, int]:
    """Fetch all topics and return the number of bytes by topic."""
    reply = leader.call(fetch_request(*topics, max_wait_ms=0, min_bytes=1, max_bytes=max_bytes))
    return {response.topic: len(only(response.partitions).records or b"") for response in reply.responses}


@clause("FET-27", "partition")
@defect(Request(FetchRequest, "topics.partitions.partition_max_bytes", 1 << 20))
def test_a_partition_brings_no_more_than_its_limit(leader: Broker, topic: Topic) -> None:
    fill(leader, topic)
    request = fetch_request(topic, part_bytes=3 * SIZE, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20)
    records = only(only(leader.call(request).responses).partitions).records or b""
    expect("there are records, within the limit", True, 0 < len(records) <= 3 * SIZE)


@clause("FET-27", "all")
@defect(Request(FetchRequest, "max_bytes", 1 << 20))
def test_all_partitions_share_the_limit_of_the_request(cluster: Cluster) -> None:
    node = min(cluster.target.addresses)
    topics = [cluster.create_topic(assignment=[node]) for _ in range(3)]
    leader = cluster.leader(topics[0])
    for topic in topics:
        fill(leader, topic, 3)
    found = fetch_all(leader, topics, 4 * SIZE)
    expect("partitions of the reply", 3, len(found))
    expect("there are records, within the limit", True, 0 < sum(found.values()) <= 4 * SIZE)


@clause("FET-28")
@defect(Request(FetchRequest, "min_bytes", 1))
def test_too_few_bytes_do_not_wake_a_fetch(leader: Broker, topic: Topic) -> None:
    leader.produce(topic, batch(b"v"))
    began = leader.clock.monotonic()
    answer = leader.fetch(topic, 0, max_wait_ms=WAIT_MS, min_bytes=1 << 19)
    waited_ms = (leader.clock.monotonic() - began) * 1000
    expect("number of records at the end of the wait", 1, len(records_of(answer.records)))
    if waited_ms < WAIT_MS * 0.9:
        raise TargetFailure(f"expected a reply after {WAIT_MS} ms, actual {waited_ms:.0f} ms")


@clause("FET-29")
@defect(Request(FetchRequest, "min_bytes", 1 << 19))
def test_min_bytes_0_does_not_wait(leader: Broker, topic: Topic) -> None:
    answer = leader.fetch(topic, 0, max_wait_ms=60_000, min_bytes=0)
    expect("error code and records", (0, b""), (answer.error_code, answer.records or b""))


@clause("FET-29", "no partitions")
@defect(Silence(FetchRequest), Reply(FetchRequest, "error_code", ErrorCode.INVALID_REQUEST))
def test_a_fetch_without_partitions_does_not_wait(leader: Broker) -> None:
    reply = leader.call(FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20))
    expect("error code and number of topics", (0, 0), (reply.error_code, len(reply.responses)))


@clause("FET-30")
@defect(Request(FetchRequest, "topics.partitions.fetch_offset", 0), Silence(FetchRequest))
def test_an_error_is_not_kept_waiting(leader: Broker, topic: Topic) -> None:
    answer = leader.fetch(topic, 1000, max_wait_ms=4_000, min_bytes=1 << 19, timeout_s=2.0)
    expect("error code", 1, answer.error_code)


@clause("FET-30", "deleted topic")
@defect(Silence(FetchRequest), Reply(FetchRequest, "responses.partitions.error_code", 0))
def test_a_fetch_waits_no_longer_when_its_topic_is_deleted(cluster: Cluster, leader: Broker, topic: Topic) -> None:
    version = leader.version_of(FetchRequest)
    number = leader.send(fetch_request(topic, max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20), version)
    cluster.delete_topics(topic.name)
    reply = leader.receive(api_of(FetchRequest), version, number, DELETED_S)
    expect("error code", NO_LONGER_HERE, only(only(reply.responses).partitions).error_code)


@clause("FET-31")
@sweep(FetchRequest, 4)
@defect(Reply(FetchRequest, "responses.partitions.last_stable_offset", 0))
def test_without_transactions_all_is_stable(leader: Broker, topic: Topic, version: int) -> None:
    leader.produce(topic, batch(b"a", b"b"))
    answer = leader.fetch(topic, 0, version=version, isolation_level=READ_COMMITTED)
    expect("last stable offset and high watermark", (2, 2), (answer.last_stable_offset, answer.high_watermark))
    expect("number of records", 2, len(records_of(answer.records)))
    expect("aborted transactions", 0, len(answer.aborted_transactions or ()))


@clause("FET-12")
@defect(Reply(FetchRequest, "responses.partitions.error_code", 0))
def test_zstd_is_not_for_readers_before_version_10(cluster: Cluster) -> None:
    topic = cluster.create_topic(configs={"compression.type": "zstd"})
    leader = cluster.leader(topic)
    leader.need(FetchRequest, 9)
    if leader.advertised[api_of(FetchRequest).key][0] >= NO_CONVERSION_SINCE:
        raise Unsupported("a broker without Fetch 0 to 3 converts no records (KIP-896)")
    expect("error code of Produce", 0, leader.produce(topic, batch(b"v")).error_code)
    expect("error code", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, leader.fetch(topic, 0, version=9).error_code)


@clause("FET-15")
@defect(Reply(FetchRequest, "responses.partitions.preferred_read_replica", 2))
def test_a_reader_without_rack_is_sent_nowhere(leader: Broker, topic: Topic) -> None:
    leader.produce(topic, batch(b"v"))
    answer = leader.fetch(topic, 0, version=leader.version_of(FetchRequest, 11))
    expect("preferred replica", -1, answer.preferred_read_replica)
    expect("number of records", 1, len(records_of(answer.records)))


@clause("FET-33")
@sweep(FetchRequest, 11)
@defect(Reply(FetchRequest, "responses.partitions.records", b""))
def test_an_in_sync_follower_serves_readers(cluster: Cluster, version: int) -> None:
    cluster.need_brokers(3)
    topic = cluster.create_topic(replicas=3)
    cluster.leader(topic).produce(topic, batch(b"v"))
    follower = next(address for node, address in cluster.target.addresses.items() if node != topic.leader_id)
    reader = cluster.connect(follower)

    def values() -> bool:
        answer = reader.fetch(topic, 0, version=version)
        return [record.value for record in records_of(answer.records)] == [b"v"] and answer.high_watermark == 1

    cluster.eventually("the record in a fetch from a follower", values)


@clause("FET-33", "replica verification")
@sweep(FetchRequest, FOLLOWERS_SERVE_SINCE, LAST_WITH_REPLICA_ID)
@defect(
    Reply(FetchRequest, "responses.partitions.records", b""),
    Reply(FetchRequest, "responses.partitions.high_watermark", increment),
)
def test_every_replica_serves_the_verification_of_replicas(cluster: Cluster, version: int) -> None:
    """ReplicaVerificationTool, whose replica id is -2, compares the records of all replicas."""
    cluster.need_brokers(2)
    topic = cluster.create_topic(replicas=2)
    produce_acknowledged(cluster, topic, b"v")
    for node in replicas_of(cluster, topic):
        reader = cluster.connect(cluster.target.addresses[node])

        def is_served(reader: Broker = reader) -> bool:
            answer = reader.fetch(topic, 0, version=version, replica_id=DEBUGGING_CONSUMER)
            return [record.value for record in records_of(answer.records)] == [b"v"] and answer.high_watermark == 1

        cluster.eventually(f"the record at broker {node}", is_served)


def fetch_divergence(leader: Broker, topic: Topic, offset: int, epoch: int) -> tuple[int, int, int]:
    """Fetch with `epoch` as last fetched epoch; return error code, diverging epoch and its end offset."""
    version = leader.version_of(FetchRequest, 12)
    part = FetchPartition(
        partition=topic.partition, fetch_offset=offset, last_fetched_epoch=epoch, partition_max_bytes=1 << 20
    )
    request = FetchRequest(max_wait_ms=0, topics=(FetchTopic(topic=topic.name, partitions=(part,)),))
    answer = only(only(leader.call(request, version).responses).partitions)
    return answer.error_code, answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset


@clause("FET-13", "none")
@defect(Reply(FetchRequest, "responses.partitions.diverging_epoch.end_offset", 0))
def test_a_reader_with_the_leaders_history_hears_of_no_divergence(leader: Broker, topic: Topic) -> None:
    leader.produce(topic, batch(b"a", b"b"))
    expect("error, epoch, end", (0, -1, -1), fetch_divergence(leader, topic, 1, max(topic.leader_epoch, 0)))


@clause("FET-13", "longer")
@defect(Reply(FetchRequest, "responses.partitions.diverging_epoch.end_offset", -1))
def test_a_reader_past_the_end_of_its_epoch_hears_where_that_was(leader: Broker, topic: Topic) -> None:
    leader.produce(topic, batch(b"a", b"b"))
    epoch = max(topic.leader_epoch, 0)
    expect("error, epoch, end", (0, epoch, 2), fetch_divergence(leader, topic, 10, epoch))


@clause("FET-34")
@pytest.mark.parametrize("count", [1, 50])
@defect(Request(FetchRequest, "topics.partitions.fetch_offset", 0))
def test_the_end_of_the_log_is_no_error(leader: Broker, topic: Topic, count: int) -> None:
    leader.produce(topic, batch(*[b"v"] * count))
    end = leader.list_offset(topic, LATEST).offset
    answer = leader.fetch(topic, end)
    expect("error code and records", (0, b""), (answer.error_code, answer.records or b""))
    expect("high watermark", count, answer.high_watermark)


@clause("FET-35")
@defect(Request(FetchRequest, "topics.partitions.fetch_offset", 0))
def test_following_the_batches_reads_each_record_once(leader: Broker, topic: Topic) -> None:
    fill(leader, topic)
    offset, observed = 0, list[int]()
    while offset < 10:
        headers = [
            header for _, header in batch_headers(leader.fetch(topic, offset, max_bytes=3 * SIZE).records or b"")
        ]
        expect("there is progress", True, bool(headers) and len(observed) < 10)
        observed += [header.base_offset for header in headers]
        offset = headers[-1].next_offset
    expect("offsets", True, observed == list(range(10)))
