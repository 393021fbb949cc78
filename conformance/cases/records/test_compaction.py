"""Compaction: of each key the last record stays, at its offset and in order; tombstones go in the end."""

import pytest

from highwater.conformance.broker import EARLIEST, NOW_MS, Broker, Topic, batch, expect, records_of
from highwater.conformance.cases.support.replicas import log_of
from highwater.conformance.clause import clause, era
from highwater.conformance.cluster import Cluster
from highwater.conformance.defects import Reply, defect, one_more
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.offsets import ListOffsetsRequest
from highwater.reference.wire.records import Record, build_batch

pytestmark = pytest.mark.slow

CLEANED_S = 60.0
"""A cleaner looks at its logs every fifteen seconds, unless it was told otherwise."""
KEYS, ROUNDS = 3, 4
SOON = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "100",
    "delete.retention.ms": "100",
}


@pytest.fixture
def compacted(cluster: Cluster) -> Topic:
    return cluster.create_topic(configs=SOON)


def write(leader: Broker, topic: Topic, key: bytes, value: bytes | None, at: int = 0) -> None:
    """Each in a segment of its own, for `at` counts days."""
    record = (NOW_MS + at * 86_400_000, key, value, ())
    expect("error code of Produce", 0, leader.produce(topic, build_batch([record])).error_code)


def fill(leader: Broker, topic: Topic) -> None:
    """Some values of each key, and a last record of another, which keeps the others out of the open segment."""
    for number in range(KEYS * ROUNDS):
        write(leader, topic, b"k%d" % (number % KEYS), b"v%d" % number, number)
    write(leader, topic, b"last", b"last", KEYS * ROUNDS)


def cleaned(cluster: Cluster, leader: Broker, topic: Topic, count: int) -> list[Record]:
    """The log once it has no more than so many records."""

    def look() -> list[Record] | None:
        records = log_of(leader, topic)
        return records if len(records) <= count else None

    return cluster.eventually(f"a log of at most {count} records", look, CLEANED_S)


@clause("FET-36", "last value")
@defect(Reply(FetchRequest, "responses.partitions.records", b""))
def test_the_last_value_of_each_key_stays_where_it_was(cluster: Cluster, compacted: Topic) -> None:
    leader = cluster.leader(compacted)
    fill(leader, compacted)
    records = cleaned(cluster, leader, compacted, KEYS + 1)
    last = [(number, b"k%d" % (number % KEYS), b"v%d" % number) for number in range(KEYS * (ROUNDS - 1), KEYS * ROUNDS)]
    found = [(record.offset, record.key, record.value) for record in records]
    expect("offsets, keys and values", True, found == [*last, (KEYS * ROUNDS, b"last", b"last")])


@clause("FET-36", "offsets")
@defect(Reply(ListOffsetsRequest, "topics.partitions.offset", one_more))
def test_compaction_moves_neither_end_of_the_log(cluster: Cluster, compacted: Topic) -> None:
    leader = cluster.leader(compacted)
    fill(leader, compacted)
    cleaned(cluster, leader, compacted, KEYS + 1)
    ends = leader.list_offset(compacted, EARLIEST).offset, leader.end_offset(compacted)
    expect("start and end", (0, KEYS * ROUNDS + 1), ends)
    gone = leader.fetch(compacted, 1)
    expect("error code at an offset that is gone", 0, gone.error_code)
    expect("next offset that is there", KEYS * (ROUNDS - 1), records_of(gone.records)[0].offset)
    answer = leader.produce(compacted, batch(b"v"))
    expect("base offset of the next", KEYS * ROUNDS + 1, answer.base_offset)


@clause("FET-37")
@era("3.1")  # KIP-534 tells how long a tombstone stays
@defect(Reply(FetchRequest, "responses.partitions.high_watermark", 0))
def test_a_key_that_was_deleted_is_gone_in_the_end(cluster: Cluster, compacted: Topic) -> None:
    leader = cluster.leader(compacted)
    write(leader, compacted, b"k", b"v", 0)
    write(leader, compacted, b"k", None, 1)
    days = iter(range(2, 10_000))

    def gone() -> bool:
        write(leader, compacted, b"other", b"v", next(days))  # each closes a segment, for the cleaner to have some
        return all(record.key != b"k" for record in log_of(leader, compacted))

    cluster.eventually("neither value nor tombstone of the key", gone, CLEANED_S)
    expect("the watermark has not moved back", True, leader.fetch(compacted, 0).high_watermark > 2)
