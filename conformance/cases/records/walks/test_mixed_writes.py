"""Many Produce and DeleteRecords requests with valid and invalid parts; then all that is stored is read."""

import pytest

from highwater.conformance.cases.support.log_walks.choices import batch_of_size, invalid_writes, plain_batch
from highwater.conformance.cases.support.log_walks.reads import Lookup, Read, fetch, list_offsets, read_everything
from highwater.conformance.cases.support.log_walks.walk import APPEND_TIME, Key, Walk
from highwater.conformance.cases.support.log_walks.writes import ALL, LEADER, NO_REPLY, Deletion, Write, delete, produce
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import LATEST
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect, increment
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.offsets import DeleteRecordsRequest
from highwater.reference.wire.messages.produce import ProduceRequest

WITHOUT_ZSTD = (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4)
LIMIT = 1500
"""max.message.bytes of the second topic."""
WRITE_ERROR = "responses.partition_responses.error_code"


def mixed_writes(walk: Walk, codecs: tuple[Compression, ...]) -> list[Write]:
    """Return a write for most partitions, some of them invalid, and for partitions that do not exist."""
    writes = list[Write]()
    for key in walk.keys:
        kind = walk.random.random()
        if kind < 0.55:
            writes.append(Write(key, plain_batch(walk, codecs if key == walk.keys[-1] else codecs[:-1])))
        elif kind < 0.8:
            writes.append(walk.random.choice(invalid_writes(walk, key)))
        elif kind < 0.9 and key[0] == walk.names[-1]:
            writes.append(write_of_size(walk, key, LIMIT + walk.random.choice((-1, 0, 1))))
    writes += [Write(key, plain_batch(walk, codecs)) for key in walk.unknown_keys if walk.random.random() < 0.3]
    walk.random.shuffle(writes)
    return writes


def write_of_size(walk: Walk, key: Key, size: int) -> Write:
    too_large = {ErrorCode.MESSAGE_TOO_LARGE} if size > LIMIT else set()
    return Write(key, batch_of_size(walk, size), errors=frozenset(too_large))


@clause("PRD-20", "mixed")
@pytest.mark.parametrize("codec", ["producer", "uncompressed", "gzip", "lz4"])
@defect(
    Reply(ProduceRequest, WRITE_ERROR, 0),
    Reply(ProduceRequest, "responses.partition_responses.base_offset", increment),
    Request(FetchRequest, "topics.partitions.fetch_offset", 0),
)
def test_each_part_of_a_produce_is_stored_or_refused_by_itself(cluster: Cluster, codec: str) -> None:
    walk = Walk(cluster, 1, {"compression.type": codec}, {**APPEND_TIME, "max.message.bytes": str(LIMIT)})
    codecs = (*WITHOUT_ZSTD, Compression.ZSTD)
    for number in walk.steps(24):
        if number % 6 == 5:
            produce(walk, [Write(key, plain_batch(walk, (Compression.NONE,))) for key in walk.keys], acks=NO_REPLY)
        else:
            produce(walk, mixed_writes(walk, codecs), acks=walk.random.choice((ALL, LEADER)))
    walk.await_ends()
    read_everything(walk)
    list_offsets(walk, [Lookup(key, LATEST) for key in (*walk.keys, *walk.unknown_keys)])


@clause("ADM-6", "mixed")
@defect(
    Reply(DeleteRecordsRequest, "topics.partitions.error_code", 0),
    Reply(DeleteRecordsRequest, "topics.partitions.low_watermark", increment),
)
def test_each_part_of_a_deletion_moves_a_start_or_is_refused(cluster: Cluster) -> None:
    walk = Walk(cluster, 2, {}, APPEND_TIME)
    walk.versions(DeleteRecordsRequest)
    for _ in walk.steps(12):
        produce(walk, [Write(key, plain_batch(walk, WITHOUT_ZSTD)) for key in walk.keys])
        deletions = [Deletion(key, offset_around(walk, key)) for key in walk.keys if walk.random.random() < 0.6]
        deletions += [Deletion(key, 0) for key in walk.unknown_keys if walk.random.random() < 0.5]
        delete(walk, deletions)
        fetch(walk, [Read(key, log.start + walk.random.choice((-1, 0, 1))) for key, log in walk.logs.items()])
    read_everything(walk)
    everything = [Lookup(key, timestamp) for key, timestamp in zip(walk.keys, (-1, -2, 0, -1, -2, 0), strict=False)]
    list_offsets(walk, everything)
    delete(walk, [Deletion(key, -1) for key in walk.keys])
    produce(walk, [Write(key, plain_batch(walk, (Compression.NONE,))) for key in walk.keys])
    read_everything(walk)


def offset_around(walk: Walk, key: Key) -> int:
    """Return an offset near the start or the end of the log, or between them."""
    log = walk.logs[key]
    return walk.random.choice(
        (-1, -2, 0, log.start - 1, log.start, log.start + 1, (log.start + log.end) // 2, log.end, log.end + 1)
    )
