"""Many Fetch and ListOffsets requests with parts at, before and behind every limit, compared with a model."""

import pytest

from highwater.conformance.cases.support.log_walks.choices import around, batch_of_size, current_epochs, plain_batch
from highwater.conformance.cases.support.log_walks.reads import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    SPECIAL_SINCE,
    EpochLookup,
    Lookup,
    Read,
    epoch_ends,
    fetch,
    list_offsets,
    read_everything,
)
from highwater.conformance.cases.support.log_walks.sessions import SESSIONS_SINCE, SessionWalk
from highwater.conformance.cases.support.log_walks.walk import APPEND_TIME, Key, Walk
from highwater.conformance.cases.support.log_walks.writes import Deletion, Write, delete, produce
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import BY_ID_SINCE
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect, increment, without_error
from highwater.conformance.models.log import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.offsets import DeleteRecordsRequest, ListOffsetsRequest

WITHOUT_ZSTD = (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4)
FUTURE_MS = 2**62
SHORT_SEGMENTS = {"segment.ms": "10000"}
"""Batches whose times are further apart are in different segments."""


def lookup(walk: Walk, key: Key) -> Lookup:
    """Return a search for a special timestamp, or for a time at, before or after that of a record."""
    log, special = walk.logs[key], list(SPECIAL_SINCE)
    if log.largest_is_deleted or not walk.supports(ListOffsetsRequest, 7):
        special.remove(MAX_TIMESTAMP)
    for timestamp in (EARLIEST_LOCAL, LATEST_TIERED):
        if not walk.supports(ListOffsetsRequest, SPECIAL_SINCE[timestamp]):
            special.remove(timestamp)
    if walk.random.random() < 0.4:
        timestamp = walk.random.choice(special)
    else:
        times = [timestamp for _, timestamp, _ in log.times()]
        timestamp = around(walk.random, [0, walk.began_ms, FUTURE_MS, *times])
    return Lookup(key, timestamp, walk.random.choice(current_epochs(log)))


@clause("LST-12", "mixed")
@defect(
    Reply(ListOffsetsRequest, "topics.partitions.offset", increment),
    Request(ListOffsetsRequest, "topics.partitions.current_leader_epoch", -1),
)
def test_each_time_and_special_timestamp_finds_its_offset(cluster: Cluster) -> None:
    walk = Walk(cluster, 3, SHORT_SEGMENTS, APPEND_TIME, {})
    for _ in walk.steps(8):
        lookups = [lookup(walk, key) for key in walk.keys]
        list_offsets(walk, lookups)
        written = [key for key in walk.keys if walk.random.random() < 0.8]
        produce(walk, [Write(key, plain_batch(walk, WITHOUT_ZSTD)) for key in written])
    for number in walk.steps(60):
        if number in (20, 40) and walk.supports(DeleteRecordsRequest):
            delete(walk, [Deletion(key, middle(walk, key)) for key in walk.keys if key[0] != walk.names[0]])
        lookups = [lookup(walk, key) for key in walk.keys]
        lookups += [Lookup(key, LATEST) for key in walk.unknown_keys if walk.random.random() < 0.3]
        walk.random.shuffle(lookups)
        list_offsets(walk, lookups, isolation=walk.random.choice((READ_UNCOMMITTED, READ_COMMITTED)))
    for epoch in range(-1, 4):
        for current in (-1, 0, 1):
            ends = [
                EpochLookup(key, epoch + log.leader_epoch, current + log.leader_epoch) for key, log in walk.logs.items()
            ]
            epoch_ends(walk, [each for each in ends if each.leader_epoch >= -1])
    list_offsets(walk, [Lookup(key, EARLIEST) for key in walk.keys])


def middle(walk: Walk, key: Key) -> int:
    """Return the offset in the middle of a log.

    Only for logs of one segment: Apache Kafka looks no further than the first segment with a time that is late enough,
    although all such records of it may be deleted (UnifiedLog.searchOffsetInLocalLog).
    """
    log = walk.logs[key]
    return (log.start + log.end + 1) // 2


def sizes_at(walk: Walk, key: Key, offset: int) -> list[int]:
    """Return the bytes of one, two and three batches from an offset on."""
    log, total, found = walk.logs[key], 0, [0]
    for stored in log.from_offset(offset, log.end)[:3]:
        total += len(stored.raw)
        found.append(total)
    return found


@clause("FET-27", "mixed")
@defect(
    Request(FetchRequest, "topics.partitions.partition_max_bytes", 1 << 20),
    Request(FetchRequest, "max_bytes", 1 << 20),
    Reply(FetchRequest, "responses.partitions.error_code", without_error(ErrorCode.OFFSET_OUT_OF_RANGE)),
)
def test_offsets_and_limits_of_each_partition_apply_to_it_alone(cluster: Cluster) -> None:
    walk = Walk(cluster, 4, {}, SHORT_SEGMENTS)
    for _ in walk.steps(8):
        sizes = {key: walk.random.choice((100, 150, 700, 2000)) for key in walk.keys}
        produce(walk, [Write(key, batch_of_size(walk, size)) for key, size in sizes.items()])
    if walk.supports(DeleteRecordsRequest):
        delete(walk, [Deletion(key, walk.random.choice((0, 1, 2))) for key in walk.keys])
    read_everything(walk, isolations=(READ_UNCOMMITTED,))
    for _ in walk.steps(60):
        read_at_limits(walk)


def read_at_limits(walk: Walk) -> None:
    """Read all partitions and unknown ones, at offsets and with limits and leader epochs that may be just wrong."""
    reads, sizes_of_all = list[Read](), [1]
    for key in walk.keys:
        log = walk.logs[key]
        offset = walk.random.randint(log.start - 1, log.end + 1)
        sizes_of_all += (found := sizes_at(walk, key, offset))
        epoch = walk.random.choice(current_epochs(log))
        last_epoch = walk.random.choice((-1, -1, -1, -1, log.leader_epoch, log.leader_epoch + 1))
        limit = walk.random.choice((1 << 20, around(walk.random, found)))
        reads.append(Read(key, offset, limit, epoch, last_epoch))
    reads += [Read(key, 0) for key in walk.unknown_keys if walk.random.random() < 0.2]
    by_topic = walk.random.sample(walk.names, 2)
    reads.sort(key=lambda read: by_topic.index(read.key[0]) if read.key[0] in by_topic else -1)
    max_bytes = walk.random.choice((1 << 30, around(walk.random, sizes_of_all)))
    isolation = walk.random.choice((READ_UNCOMMITTED, READ_COMMITTED))
    fetch(walk, reads, isolation=isolation, max_bytes=max_bytes)


@clause("FET-22", "mixed")
@pytest.mark.parametrize("by_id", [False, True], ids=["by name", "by id"])
@defect(
    Reply(FetchRequest, "responses", lambda topics: topics[:1]),
    Reply(FetchRequest, "error_code", without_error(ErrorCode.INVALID_FETCH_SESSION_EPOCH)),
)
def test_a_session_returns_each_change_once(cluster: Cluster, by_id: bool) -> None:
    cluster.connect().version_of(FetchRequest, BY_ID_SINCE if by_id else SESSIONS_SINCE)
    walk = Walk(cluster, 5, {}, {})
    broker, keys = walk.led_by_one()
    session = SessionWalk(walk, broker, by_id=by_id)
    session.begin([Read(key, 0) for key in keys[:-1]])
    for number in walk.steps(40):
        written = [key for key in walk.keys if walk.random.random() < 0.15]
        if written:
            produce(walk, [Write(key, plain_batch(walk, (Compression.NONE,))) for key in written])
        if number in (10, 20, 30) and walk.supports(DeleteRecordsRequest):
            delete(walk, [Deletion(key, walk.random.choice((0, 1, -1))) for key in keys[:3]])
        changed, forgotten = session_changes(walk, session, keys)
        session.fetch(changed, forgotten)
        if number % 8 == 7:
            session.refused(session.epoch + walk.random.choice((-1, 1, 5)), ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if number == 25 or not session.reads:
            session.begin([Read(key, walk.logs[key].start) for key in keys])
    session.end()


def session_changes(walk: Walk, session: SessionWalk, keys: list[Key]) -> tuple[list[Read], list[Key]]:
    """Return partitions to name with another position, and partitions to forget; mostly none."""
    changed, forgotten = list[Read](), list[Key]()
    for key in (*keys, walk.unknown_keys[0]):
        log, kind = walk.logs.get(key), walk.random.random()
        if kind < 0.3 and log:
            changed.append(Read(key, walk.random.choice((log.end, log.end, log.end, log.start, log.end + 1))))
        elif kind > 0.95 and not log:
            changed.append(Read(key, 0))
        if walk.random.random() < 0.05:
            forgotten.append(key)  # also one that is named, or not in the session
    if walk.random.random() < 0.05:
        name = walk.random.choice(walk.names)
        forgotten = [key for key in session.reads if key[0] == name]
    return changed, forgotten
