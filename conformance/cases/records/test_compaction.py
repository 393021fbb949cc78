"""Compaction keeps the last record of each key at its offset, and removes tombstones later."""

import random

import pytest

from highwater.conformance.cases.support.admin import change_configs, controller
from highwater.conformance.cases.support.replicas import log_of, restart_leader
from highwater.conformance.cases.support.transactions import Transactional, committed_values, eventually_stable
from highwater.conformance.clause import clause, era
from highwater.conformance.client.broker import EARLIEST, NOW_MS, Broker, Topic, batch, now_ms, records_of
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, defect, increment
from highwater.conformance.expectations import expect
from highwater.conformance.models.settings import SET
from highwater.conformance.targets.base import STOP_NODE
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.offsets import ListOffsetsRequest
from highwater.reference.wire.messages.transactions import InitProducerIdRequest
from highwater.reference.wire.records import NewRecord, Record, build_batch

pytestmark = pytest.mark.slow

CLEANED_S = 60.0
"""Log cleaners of Apache Kafka run every 15 seconds by default."""
KEYS, ROUNDS = 3, 4
LARGE = 20_000
DAY_MS = 86_400_000
QUICK_COMPACTION = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "100",
    "delete.retention.ms": "100",
}
LATER_ACCEPTED = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
"""For cases that write later times than the present, which Apache Kafka rejects by default (KIP-937)."""


@pytest.fixture
def compacted(cluster: Cluster) -> Topic:
    return cluster.create_topic(configs=QUICK_COMPACTION)


def write(leader: Broker, topic: Topic, key: bytes, value: bytes | None, at: int = 0) -> None:
    """Produce a record in a new segment; `at` is its timestamp in days, which rolls the segment."""
    record = (NOW_MS + at * 86_400_000, key, value, ())
    expect("error code of Produce", 0, leader.produce(topic, build_batch([record])).error_code)


def fill(leader: Broker, topic: Topic) -> None:
    """Produce several values of each key, and a last record that keeps them out of the active segment."""
    for number in range(KEYS * ROUNDS):
        write(leader, topic, b"k%d" % (number % KEYS), b"v%d" % number, number)
    write(leader, topic, b"last", b"last", KEYS * ROUNDS)


def await_compaction(cluster: Cluster, leader: Broker, topic: Topic, count: int) -> list[Record]:
    """Wait until the log has at most `count` records and return them."""

    def poll() -> list[Record] | None:
        records = log_of(leader, topic)
        return records if len(records) <= count else None

    return cluster.eventually(f"a log of at most {count} records", poll, CLEANED_S)


@pytest.fixture
def accepting_later(cluster: Cluster) -> Topic:
    """Return a compacted topic that accepts timestamps in the future."""
    return cluster.create_topic(configs={**QUICK_COMPACTION, **LATER_ACCEPTED})


@clause("FET-36", "last value")
@defect(Reply(FetchRequest, "responses.partitions.records", b""))
def test_the_last_value_of_each_key_stays_where_it_was(cluster: Cluster, compacted: Topic) -> None:
    leader = cluster.leader(compacted)
    fill(leader, compacted)
    records = await_compaction(cluster, leader, compacted, KEYS + 1)
    last = [(number, b"k%d" % (number % KEYS), b"v%d" % number) for number in range(KEYS * (ROUNDS - 1), KEYS * ROUNDS)]
    found = [(record.offset, record.key, record.value) for record in records]
    expect("offsets, keys and values", True, found == [*last, (KEYS * ROUNDS, b"last", b"last")])


@clause("FET-36", "no key")
@defect(Reply(FetchRequest, "responses.partitions.high_watermark", 0))
def test_records_without_a_key_are_removed(cluster: Cluster) -> None:
    """They are from before the topic became a compacted one, which accepts none (KIP-467)."""
    topic = cluster.create_topic(configs={**QUICK_COMPACTION, "cleanup.policy": "delete"})
    leader = cluster.leader(topic)
    records: list[NewRecord] = [
        (NOW_MS, None, b"v", ()), (NOW_MS, b"k", b"v", ()), (NOW_MS, None, None, ()), (NOW_MS, b"", b"v", ()),
    ]  # fmt: skip
    expect("error code of Produce", 0, leader.produce(topic, build_batch(records)).error_code)
    expect(
        "error code of the change",
        0,
        change_configs(controller(cluster), topic.name, ("cleanup.policy", SET, "compact")),
    )
    for number in range(1, 3):
        write(leader, topic, b"last", b"v", number)
    found = [(each.offset, each.key, each.value) for each in await_compaction(cluster, leader, topic, 4)]
    expect("records", [(1, b"k", b"v"), (3, b"", b"v"), (4, b"last", b"v"), (5, b"last", b"v")], found)
    expect("high watermark", 6, leader.fetch(topic, 0).high_watermark)


@clause("FET-36", "offsets")
@defect(Reply(ListOffsetsRequest, "topics.partitions.offset", increment))
def test_compaction_moves_neither_end_of_the_log(cluster: Cluster, compacted: Topic) -> None:
    leader = cluster.leader(compacted)
    fill(leader, compacted)
    await_compaction(cluster, leader, compacted, KEYS + 1)
    ends = leader.list_offset(compacted, EARLIEST).offset, leader.end_offset(compacted)
    expect("start and end", (0, KEYS * ROUNDS + 1), ends)
    is_removed = leader.fetch(compacted, 1)
    expect("error code at a removed offset", 0, is_removed.error_code)
    expect("next remaining offset", KEYS * (ROUNDS - 1), records_of(is_removed.records)[0].offset)
    answer = leader.produce(compacted, batch(b"v"))
    expect("base offset of the next batch", KEYS * ROUNDS + 1, answer.base_offset)


@clause("FET-37")
@era("3.1")  # KIP-534 defines when tombstones are removed
@defect(Reply(FetchRequest, "responses.partitions.high_watermark", 0))
def test_a_key_that_was_deleted_is_gone_in_the_end(cluster: Cluster, compacted: Topic) -> None:
    leader = cluster.leader(compacted)
    write(leader, compacted, b"k", b"v", 0)
    write(leader, compacted, b"k", None, 1)
    days = iter(range(2, 10_000))

    def is_removed() -> bool:
        write(leader, compacted, b"other", b"v", next(days))  # closes a segment, which the cleaner can then compact
        return all(record.key != b"k" for record in log_of(leader, compacted))

    cluster.eventually("the removal of value and tombstone", is_removed, CLEANED_S)
    expect("the high watermark has not moved back", True, leader.fetch(compacted, 0).high_watermark > 2)


@clause("FET-37", "kept")
@defect(Reply(FetchRequest, "responses.partitions.records", b""))
def test_a_tombstone_is_kept_for_delete_retention(cluster: Cluster) -> None:
    topic = cluster.create_topic(configs={**QUICK_COMPACTION, "delete.retention.ms": str(30 * DAY_MS)})
    leader = cluster.leader(topic)
    write(leader, topic, b"k", b"v", 0)
    write(leader, topic, b"k", None, 1)
    for number in range(2, 6):
        write(leader, topic, b"other", b"v", number)
    records = await_compaction(cluster, leader, topic, 3)
    found = [(record.offset, record.value, record.timestamp) for record in records if record.key == b"k"]
    expect(f"offset, value and time of the tombstone: {found}", True, found == [(1, None, NOW_MS + DAY_MS)])


@clause("FET-36", "lag")
@defect(Reply(FetchRequest, "responses.partitions.records", b""))
def test_records_younger_than_the_compaction_lag_stay(cluster: Cluster, compacted: Topic) -> None:
    """The second topic shows that the cleaner has run."""
    topic = cluster.create_topic(configs={**QUICK_COMPACTION, "min.compaction.lag.ms": str(365 * DAY_MS)})
    leader = cluster.leader(topic)
    now = cluster.now_ms()
    for number in range(6):
        record = (now + DAY_MS * (number - 6), b"k", b"%d" % number, ())
        expect("error code", 0, leader.produce(topic, build_batch([record])).error_code)
    other = cluster.leader(compacted)
    fill(other, compacted)
    await_compaction(cluster, other, compacted, KEYS + 1)
    expect("number of records", 6, len(log_of(leader, topic)))


@clause("FET-36", "transactions")
@pytest.mark.parametrize("outcome", ["open", "aborted"])
@defect(Reply(FetchRequest, "responses.partitions.records", b""))
def test_an_uncommitted_value_removes_no_committed_one(cluster: Cluster, accepting_later: Topic, outcome: str) -> None:
    leader = cluster.leader(accepting_later)
    leader.version_of(InitProducerIdRequest)
    write(leader, accepting_later, b"k0", b"old", 0)
    write(leader, accepting_later, b"k0", b"committed", 1)
    producer = Transactional.initialize(cluster)
    producer.begin(accepting_later)
    producer.write(accepting_later, 0, b"uncommitted")  # the key of the first record of a batch is k0
    if outcome == "aborted":
        producer.end(commit=False)
        eventually_stable(cluster, leader, accepting_later, 4)
    close_segments(leader, accepting_later, 3)

    def is_compacted() -> bool:
        values = [record.value for record in log_of(leader, accepting_later) if record.key == b"k0"]
        expect("the committed value is there", True, b"committed" in values)
        return b"old" not in values

    cluster.eventually("the removal of the first value", is_compacted, CLEANED_S)
    if outcome == "open":
        producer.end(commit=False)
    eventually_stable(cluster, leader, accepting_later, 7)
    expect("values of read_committed", True, b"committed" in committed_values(leader, accepting_later))


def close_segments(leader: Broker, topic: Topic, count: int) -> None:
    """Write records of another key in new segments, after those of transactions, whose timestamps are current."""
    today = now_ms(leader.clock) // DAY_MS - NOW_MS // DAY_MS
    for number in range(1, count + 1):
        write(leader, topic, b"last", b"last", today + number)


@clause("FET-36", "two producers")
@defect(Reply(FetchRequest, "responses.partitions.records", b""))
def test_an_abort_removes_no_record_of_another_producer(cluster: Cluster, accepting_later: Topic) -> None:
    leader = cluster.leader(accepting_later)
    leader.version_of(InitProducerIdRequest)
    write(leader, accepting_later, b"k0", b"old", 0)
    aborting, committing = (Transactional.initialize(cluster) for _ in range(2))
    aborting.begin(accepting_later)
    aborting.write(accepting_later, 0, b"aborted")
    committing.begin(accepting_later)
    committing.write(accepting_later, 0, b"committed")
    committing.end(commit=True)
    cluster.eventually("the marker of the commit", lambda: leader.end_offset(accepting_later) == 4)
    aborting.end(commit=False)
    eventually_stable(cluster, leader, accepting_later, 5)
    close_segments(leader, accepting_later, 3)
    cluster.eventually(
        "the removal of the first value",
        lambda: b"old" not in [record.value for record in log_of(leader, accepting_later)],
        CLEANED_S,
    )
    found = committed_values(leader, accepting_later)
    expect(f"values of read_committed: {found}", True, b"committed" in found and b"aborted" not in found)


@clause("FET-45")
@defect(Reply(FetchRequest, "responses.partitions.records", b""))
def test_an_old_value_goes_when_it_is_older_than_the_maximum_lag(cluster: Cluster) -> None:
    """Neither the share of dirty bytes nor segment.ms would let the log be compacted."""
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": "1000"}
    topic = cluster.create_topic(configs=settings)
    leader = cluster.leader(topic)
    for number in range(3):
        write(leader, topic, b"k", b"v%d" % number, number)
    write(leader, topic, b"last", b"last", 3)
    records = await_compaction(cluster, leader, topic, 2)
    expect("keys", True, [record.key for record in records] == [b"k", b"last"])
    expect("value", b"v2", records[0].value)


@clause("FET-45", "constant traffic")
@defect(Reply(FetchRequest, "responses.partitions.records", b""))
def test_an_old_value_goes_although_a_closed_segment_is_younger(cluster: Cluster) -> None:
    """The limit is set when all is written: before, no share of dirty bytes is large enough."""
    settings = {
        **LATER_ACCEPTED, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1", "segment.ms": str(DAY_MS // 2)
    }  # fmt: skip
    topic = cluster.create_topic(configs=settings)
    leader = cluster.leader(topic)
    for number in range(3):
        write(leader, topic, b"k", b"v%d" % number, number)
    young: list[NewRecord] = [(cluster.now_ms(), b"young", b"v", ())]
    expect("error code of Produce", 0, leader.produce(topic, build_batch(young)).error_code)
    close_segments(leader, topic, 1)
    changed = change_configs(controller(cluster), topic.name, ("max.compaction.lag.ms", SET, str(DAY_MS // 2)))
    expect("error code of the change", 0, changed)
    records = await_compaction(cluster, leader, topic, 3)
    expect("first key and value", [(b"k", b"v2")], [(record.key, record.value) for record in records[:1]])


@clause("FET-37", "compacted often")
@era("3.1")
@defect(Reply(FetchRequest, "responses.partitions.high_watermark", 0))
def test_a_tombstone_goes_although_the_log_is_compacted_again_and_again(cluster: Cluster) -> None:
    topic = cluster.create_topic(configs={**QUICK_COMPACTION, "delete.retention.ms": "3000"})
    leader = cluster.leader(topic)
    write(leader, topic, b"k", None, 0)
    days = iter(range(1, 10_000))

    def is_removed() -> bool:
        write(leader, topic, b"other", b"v", next(days))
        return all(record.key != b"k" for record in log_of(leader, topic))

    cluster.eventually("the removal of the tombstone", is_removed, CLEANED_S)
    expect("the high watermark has not moved back", True, leader.fetch(topic, 0).high_watermark > 1)


@clause("FET-48")
@pytest.mark.cluster_fault
@pytest.mark.parametrize("restarts", [False, True], ids=["running", "restarted"])
@defect(Reply(FetchRequest, "responses.partitions.records", lambda data: data[1:]))
def test_a_mostly_compacted_log_is_left_alone(cluster: Cluster, restarts: bool) -> None:
    """That the cleaner has been at work since the last record shows in another log, whose share of dirty bytes is 1."""
    if restarts:
        cluster.need(STOP_NODE)
    topic = cluster.create_topic(replicas=1, configs={**QUICK_COMPACTION, "min.cleanable.dirty.ratio": "0.5"})
    leader = cluster.leader(topic)
    for number in range(2):
        write(leader, topic, b"large", random.Random(number).randbytes(LARGE), number)
    write(leader, topic, b"last", b"v", 2)
    await_compaction(cluster, leader, topic, 2)
    for number in range(3, 5):
        write(leader, topic, b"small", b"v%d" % number, number)
    write(leader, topic, b"last", b"v", 5)
    offsets = [record.offset for record in log_of(leader, topic)]
    if restarts:
        topic, leader = restart_leader(cluster, topic)
    for _ in range(2):
        witness = cluster.create_topic(assignment=[topic.leader_id], configs=QUICK_COMPACTION)
        fill(leader, witness)
        await_compaction(cluster, leader, witness, KEYS + 1)
    expect("offsets", offsets, [record.offset for record in log_of(leader, topic)])
