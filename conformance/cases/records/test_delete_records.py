"""DeleteRecords (KIP-107) in the replies of Fetch, ListOffsets and Produce: the log start moves, the end does not."""

import pytest

from highwater.conformance.broker import EARLIEST, NOW_MS, Broker, Topic, batch, expect, only, records_of
from highwater.conformance.clause import clause, sweep
from highwater.conformance.defects import Reply, Request, decrement, defect
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsRequest,
)
from highwater.reference.wire.messages.produce import ProduceRequest

ALL = -1
WRITTEN = 5


def delete_records(leader: Broker, topic: Topic, offset: int, version: int | None = None) -> tuple[int, int]:
    """Delete records; return error code and low watermark."""
    part = DeleteRecordsPartition(partition_index=topic.partition, offset=offset)
    request = DeleteRecordsRequest(topics=(DeleteRecordsTopic(name=topic.name, partitions=(part,)),), timeout_ms=4000)
    answer = only(only(leader.call(request, version).topics).partitions)
    return answer.error_code, answer.low_watermark


@pytest.fixture
def filled_topic(leader: Broker, topic: Topic) -> Topic:
    """Return a topic with five batches of one record, whose timestamps are one second apart."""
    leader.version_of(DeleteRecordsRequest)
    for number in range(WRITTEN):
        leader.produce(topic, batch(b"%d" % number, timestamp_ms=NOW_MS + 1000 * number))
    return topic


@clause("FET-11", "below")
@defect(Reply(FetchRequest, "responses.partitions.error_code", 0))
def test_a_deleted_record_is_out_of_range(leader: Broker, filled_topic: Topic) -> None:
    expect("error code and low watermark", (0, 2), delete_records(leader, filled_topic, 2))
    for offset in (0, 1):
        expect(f"error code at {offset}", ErrorCode.OFFSET_OUT_OF_RANGE, leader.fetch(filled_topic, offset).error_code)


@clause("FET-11", "start")
@sweep(FetchRequest, 5, 12)
@defect(Reply(FetchRequest, "responses.partitions.log_start_offset", 0))
def test_the_log_start_is_told_with_what_is_left(leader: Broker, filled_topic: Topic, version: int) -> None:
    delete_records(leader, filled_topic, 2)
    answer = leader.fetch(filled_topic, 2, version=version)
    expect("error code and log start", (0, 2), (answer.error_code, answer.log_start_offset))
    expect("offsets", True, [record.offset for record in records_of(answer.records)] == [2, 3, 4])


@clause("FET-11", "all")
@sweep(DeleteRecordsRequest)
@defect(Reply(DeleteRecordsRequest, "topics.partitions.low_watermark", 0))
def test_minus_1_deletes_up_to_the_high_watermark(leader: Broker, filled_topic: Topic, version: int) -> None:
    expect("error code and low watermark", (0, WRITTEN), delete_records(leader, filled_topic, ALL, version))
    expect("end offset", WRITTEN, leader.end_offset(filled_topic))
    expect("records at the end", b"", leader.fetch(filled_topic, WRITTEN).records or b"")


@clause("FET-11", "beyond")
@defect(Reply(DeleteRecordsRequest, "topics.partitions.error_code", 0))
def test_what_was_not_written_cannot_be_deleted(leader: Broker, filled_topic: Topic) -> None:
    expect("error code", ErrorCode.OFFSET_OUT_OF_RANGE, delete_records(leader, filled_topic, WRITTEN + 1)[0])
    expect("first record", 0, records_of(leader.fetch(filled_topic, 0).records)[0].offset)


@clause("LST-8", "start")
@sweep(ListOffsetsRequest, 1, 10)
@defect(Reply(ListOffsetsRequest, "topics.partitions.offset", 0))
def test_the_earliest_offset_follows(leader: Broker, filled_topic: Topic, version: int) -> None:
    delete_records(leader, filled_topic, 3)
    expect("earliest offset", 3, leader.list_offset(filled_topic, EARLIEST, version=version).offset)


@clause("LST-8", "time")
@defect(Request(ListOffsetsRequest, "topics.partitions.timestamp", EARLIEST))
def test_a_deleted_time_is_answered_by_what_is_left(leader: Broker, filled_topic: Topic) -> None:
    delete_records(leader, filled_topic, 3)
    expect("offset of the first record's time", 3, leader.list_offset(filled_topic, NOW_MS).offset)
    expect("offset of the last record's time", 4, leader.list_offset(filled_topic, NOW_MS + 4000).offset)


@clause("PRD-24")
@sweep(ProduceRequest, 5, 12)
@defect(
    Reply(ProduceRequest, "responses.partition_responses.log_start_offset", 0),
    Reply(ProduceRequest, "responses.partition_responses.base_offset", decrement),
)
def test_a_produce_tells_where_the_log_begins(leader: Broker, filled_topic: Topic, version: int) -> None:
    delete_records(leader, filled_topic, ALL)
    answer = leader.produce(filled_topic, batch(b"v"), version=version)
    expect("base offset and log start", (WRITTEN, WRITTEN), (answer.base_offset, answer.log_start_offset))
