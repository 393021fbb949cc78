"""ListOffsets: empty logs, timestamps inside batches, and brokers that are not the leader."""

import pytest

from highwater.conformance.cases.support.offsets import delete_records
from highwater.conformance.clause import CODECS, clause, sweep
from highwater.conformance.client.broker import CONSUMER, EARLIEST, LATEST, NOW_MS, Broker, Topic, batch
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect, increment
from highwater.conformance.expectations import expect, only
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from highwater.reference.wire.records import build_batch

MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -3, -4, -5
NEGATIVE_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
"""By timestamp the first version of ListOffsets that defines it."""
NONE = -1
OFFSET, TIMESTAMP = "topics.partitions.offset", "topics.partitions.timestamp"


@clause("LST-9")
@pytest.mark.parametrize("requested", [0, NOW_MS, MAX_TIMESTAMP])
@defect(Reply(ListOffsetsRequest, OFFSET, 0), Reply(ListOffsetsRequest, TIMESTAMP, 0))
def test_an_empty_log_has_no_time(leader: Broker, topic: Topic, requested: int) -> None:
    answer = leader.list_offset(
        topic, requested, version=leader.version_of(ListOffsetsRequest, 7 if requested < 0 else 1)
    )
    expect("error, offset, timestamp", (0, NONE, NONE), (answer.error_code, answer.offset, answer.timestamp))


@clause("LST-9", "ends")
@defect(Reply(ListOffsetsRequest, OFFSET, increment))
def test_an_empty_log_begins_where_it_ends(leader: Broker, topic: Topic) -> None:
    ends = tuple(leader.list_offset(topic, timestamp).offset for timestamp in (EARLIEST, LATEST))
    expect("start and end", (0, 0), ends)


@clause("LST-10")
@pytest.mark.parametrize("codec", CODECS)
@defect(Reply(ListOffsetsRequest, OFFSET, 0), Reply(ListOffsetsRequest, TIMESTAMP, NOW_MS))
def test_a_time_is_found_inside_a_batch(leader: Broker, topic: Topic, codec: Compression) -> None:
    records = [(NOW_MS + 1000 * number, b"k", b"v", ()) for number in range(5)]
    leader.produce(topic, build_batch(records, compression=codec))
    answer = leader.list_offset(topic, NOW_MS + 2500)
    expect("offset and its timestamp", (3, NOW_MS + 3000), (answer.offset, answer.timestamp))


@clause("LST-11")
@sweep(ListOffsetsRequest, 4, 10)
@defect(Reply(ListOffsetsRequest, "topics.partitions.leader_epoch", NONE))
def test_a_found_offset_has_the_epoch_of_its_record(leader: Broker, topic: Topic, version: int) -> None:
    leader.produce(topic, batch(b"v"))
    for requested in (EARLIEST, NOW_MS, LATEST):
        answer = leader.list_offset(topic, requested, version=version)
        expect(f"leader epoch for {requested}", topic.leader_epoch, answer.leader_epoch)


@clause("LST-11", "no record")
@sweep(ListOffsetsRequest, 4, 10)
@defect(Reply(ListOffsetsRequest, "topics.partitions.leader_epoch", 0))
def test_where_no_record_is_found_there_is_no_epoch(leader: Broker, topic: Topic, version: int) -> None:
    leader.produce(topic, batch(b"v"))
    answer = leader.list_offset(topic, NOW_MS + 1, version=version)
    found = (answer.error_code, answer.offset, answer.leader_epoch)
    expect("error code, offset and leader epoch", (0, NONE, NONE), found)


@clause("LST-12")
@pytest.mark.parametrize("order", [(1, 3, 2), (3, 1, 2), (3, 3, 1)])
@defect(Reply(ListOffsetsRequest, OFFSET, increment))
def test_a_time_finds_the_first_record_in_the_log_that_is_as_late(
    leader: Broker, topic: Topic, order: tuple[int, ...]
) -> None:
    for number in order:
        leader.produce(topic, batch(b"v", timestamp_ms=NOW_MS + 1000 * number))
    for requested in (1, 2, 3):
        first = next(offset for offset, number in enumerate(order) if number >= requested)
        expect(f"offset for {requested}", first, leader.list_offset(topic, NOW_MS + 1000 * requested).offset)


@clause("LST-12", "after a deletion")
@pytest.mark.parametrize("start", [1, 3, 4])
@defect(Reply(ListOffsetsRequest, OFFSET, 0))
def test_a_time_does_not_find_a_deleted_record(leader: Broker, topic: Topic, start: int) -> None:
    """The log starts inside of a batch, of which the broker still stores all records."""
    batches = ((1, 4, 2), (5, 3, 6))
    for numbers in batches:
        records = build_batch([(NOW_MS + 1000 * number, b"k", b"v", ()) for number in numbers])
        expect("error code of Produce", 0, leader.produce(topic, records).error_code)
    expect("error code and low watermark", (0, start), delete_records(leader, topic, start))
    times = [number for numbers in batches for number in numbers]
    for requested in range(1, 8):
        later = (offset for offset in range(start, len(times)) if times[offset] >= requested)
        found = leader.list_offset(topic, NOW_MS + 1000 * requested).offset
        expect(f"offset for {requested}", next(later, NONE), found)


@clause("LST-18")
@sweep(ListOffsetsRequest, 1, 10)
@defect(Reply(ListOffsetsRequest, "topics.partitions.error_code", 0))
def test_a_negative_time_without_meaning_is_refused(leader: Broker, topic: Topic, version: int) -> None:
    leader.produce(topic, batch(b"v"))
    for requested in (-100, *(timestamp for timestamp, since in NEGATIVE_SINCE.items() if version < since)):
        answer = leader.list_offset(topic, requested, version=version)
        found = (answer.error_code, answer.offset)
        expect(f"error code and offset for {requested}", (ErrorCode.UNSUPPORTED_VERSION, NONE), found)


@clause("LST-18")
@pytest.mark.parametrize(
    ("requested", "since"),
    [pytest.param(requested, since, id=f"before v{since}") for requested, since in NEGATIVE_SINCE.items()],
)
@defect(Reply(ListOffsetsRequest, "topics.partitions.error_code", 0))
def test_a_negative_time_is_refused_in_the_version_before_its_first(
    leader: Broker, topic: Topic, requested: int, since: int
) -> None:
    leader.produce(topic, batch(b"v"))
    answer = leader.list_offset(topic, requested, version=since - 1)
    found = (answer.error_code, answer.offset)
    expect("error code and offset", (ErrorCode.UNSUPPORTED_VERSION, NONE), found)


@clause("LST-13", "local")
@sweep(ListOffsetsRequest, 8, 10)
@defect(Reply(ListOffsetsRequest, OFFSET, NONE))
def test_without_tiers_the_local_log_begins_at_the_start(leader: Broker, topic: Topic, version: int) -> None:
    leader.produce(topic, batch(b"v"))
    answer = leader.list_offset(topic, EARLIEST_LOCAL, version=version)
    expect("error code and offset", (0, 0), (answer.error_code, answer.offset))


@clause("LST-13", "tiered")
@sweep(ListOffsetsRequest, 9, 10)
@defect(Reply(ListOffsetsRequest, OFFSET, 0))
def test_without_tiers_nothing_is_tiered(leader: Broker, topic: Topic, version: int) -> None:
    leader.produce(topic, batch(b"v"))
    answer = leader.list_offset(topic, LATEST_TIERED, version=version)
    expect("error code and offset", (0, NONE), (answer.error_code, answer.offset))


@clause("LST-14")
@pytest.mark.parametrize("requested", [EARLIEST, LATEST, NOW_MS])
@defect(Reply(ListOffsetsRequest, "topics.partitions.error_code", 0))
def test_a_broker_that_does_not_lead_answers_no_consumer(cluster: Cluster, topic: Topic, requested: int) -> None:
    cluster.need_brokers(2)
    alone = cluster.create_topic(assignment=[topic.leader_id, *_others(cluster, topic.leader_id)])
    other = cluster.connect(cluster.target.addresses[_others(cluster, topic.leader_id)[0]])
    cluster.eventually(
        "NOT_LEADER_OR_FOLLOWER",
        lambda: other.list_offset(alone, requested).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )


def _others(cluster: Cluster, node: int) -> list[int]:
    return [other for other in cluster.target.addresses if other != node]


@clause("LST-15")
@defect(Request(ListOffsetsRequest, "topics", ()))
def test_several_partitions_are_answered_at_once(cluster: Cluster) -> None:
    node = min(cluster.target.addresses)
    topics = [cluster.create_topic(assignment=[node]) for _ in range(3)]
    leader = cluster.leader(topics[0])
    for count, topic in enumerate(topics):
        leader.produce(topic, batch(*[b"v"] * (count + 1)))
    requested = tuple(
        ListOffsetsTopic(name=written_topic.name, partitions=(ListOffsetsPartition(timestamp=LATEST),))
        for written_topic in topics
    )
    reply = leader.call(ListOffsetsRequest(replica_id=CONSUMER, topics=requested))
    found = {listed_topic.name: only(listed_topic.partitions).offset for listed_topic in reply.topics}
    expect("end offsets", True, found == {topic.name: count + 1 for count, topic in enumerate(topics)})


@clause("LST-16")
@defect(Reply(ListOffsetsRequest, OFFSET, increment))
def test_a_time_before_all_records_finds_the_first(leader: Broker, topic: Topic) -> None:
    leader.produce(topic, batch(b"a", b"b", timestamp_ms=0))
    expect("offset at the epoch's first millisecond", 0, leader.list_offset(topic, 0).offset)
    expect("offset one millisecond later", NONE, leader.list_offset(topic, 1).offset)
