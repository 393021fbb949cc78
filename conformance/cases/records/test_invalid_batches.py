"""Batches with a right CRC that no reader could decode or believe: what is stored can be read."""

import struct

import pytest

from highwater.conformance.clause import clause
from highwater.conformance.client.broker import NOW_MS, Broker, Topic, batch
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, defect, increment
from highwater.conformance.expectations import expect
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.invalid_batches import InvalidBatch, invalid_batches, with_bytes
from highwater.reference.wire.messages.offsets import ListOffsetsRequest
from highwater.reference.wire.messages.produce import ProduceRequest

OFFSETS_TOPIC = "__consumer_offsets"
MAX_TIMESTAMP_AT = 35
YEAR_MS = 365 * 86_400_000
ACCEPTED = Reply(ProduceRequest, "responses.partition_responses.error_code", 0)


@clause("PRD-36")
@pytest.mark.parametrize("invalid", [pytest.param(each, id=each.name) for each in invalid_batches(NOW_MS)])
@defect(ACCEPTED)
def test_a_batch_that_no_reader_could_decode_is_refused(leader: Broker, topic: Topic, invalid: InvalidBatch) -> None:
    expect("error code", set(map(int, invalid.errors)), leader.produce(topic, invalid.batch).error_code)
    expect("end offset after the error", 0, leader.end_offset(topic))


@clause("PRD-37")
@defect(Reply(ListOffsetsRequest, "topics.partitions.offset", increment))
def test_a_wrong_largest_time_hides_no_record_and_invents_none(leader: Broker, topic: Topic) -> None:
    written = batch(b"v", timestamp_ms=NOW_MS)
    for wrong_ms in (NOW_MS - YEAR_MS, NOW_MS + YEAR_MS):
        leader.produce(topic, with_bytes(written, MAX_TIMESTAMP_AT, struct.pack(">q", wrong_ms)))
    end = leader.end_offset(topic)
    found = [leader.list_offset(topic, requested).offset for requested in (NOW_MS, NOW_MS + 1)]
    expect("offsets for the time of the records, and for a later one", True, found == ([0, -1] if end else [-1, -1]))


@clause("PRD-38")
@defect(ACCEPTED)
def test_clients_do_not_write_to_the_topic_of_committed_offsets(cluster: Cluster) -> None:
    cluster.coordinator(cluster.group())
    topic = cluster.topic(OFFSETS_TOPIC)
    answer = cluster.leader(topic).produce(topic, batch(b"v"))
    expect("error code", ErrorCode.INVALID_TOPIC_EXCEPTION, answer.error_code)
