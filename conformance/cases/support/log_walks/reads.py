"""Fetch, ListOffsets, OffsetForLeaderEpoch and DescribeProducers of many partitions, compared with the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from highwater.conformance.cases.support.log_walks.walk import Key, Walk, answers, compare, grouped
from highwater.conformance.client.broker import BY_ID_SINCE, CONSUMER, SHORT_WAIT_MS, Broker
from highwater.conformance.client.requests import message
from highwater.conformance.expectations import expect
from highwater.conformance.models.batches import NONE, Stored
from highwater.conformance.models.log import EpochEnd, Listed, ModelLog
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchRequest, PartitionData
from highwater.reference.wire.messages.offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from highwater.reference.wire.messages.transactions import DescribeProducersRequest, TopicRequest
from highwater.reference.wire.records import batch_headers

UNLIMITED: Final = 1 << 30
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
START_SINCE, EPOCH_SINCE, LAST_EPOCH_SINCE = 5, 9, 12
"""First versions of Fetch with the start of the log, the reader's leader epoch, and the epoch of its last record."""
ZSTD_FETCH_SINCE: Final = 10
LEADER_SINCE: Final = 16
LISTED_EPOCH_SINCE, LISTED_ISOLATION_SINCE = 4, 2
SPECIAL_SINCE: Final = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9}
"""By special timestamp, the first version of ListOffsets that defines it."""


@dataclass(frozen=True, slots=True)
class Read:
    """A part of a Fetch."""

    key: Key
    offset: int
    limit: int = UNLIMITED
    leader_epoch: int = NONE
    last_epoch: int = NONE


class Room:
    """What the limits of a Fetch leave for the next partition; its first batch is returned whatever its size."""

    def __init__(self, max_bytes: int) -> None:
        self.left, self.is_empty = max_bytes, True

    def take(self, what: str, read: Read, data: bytes, available: list[Stored]) -> None:
        """Check that the limits allow these bytes, and that bytes within the limits were not left out."""
        limit, size = min(read.limit, self.left), len(data)
        first = len(available[0].raw) if available else 0
        if not data:
            must = bool(available) and (self.is_empty or 0 < first <= limit)
            compare(what, there_are_records=(must, False))
        elif not (self.is_empty and size == first):
            compare(what, bytes_are_within_the_limits=(True, size <= limit))
        self.is_empty &= not data
        self.left = max(self.left - size, 0)


def fetch_request(
    walk: Walk, reads: Sequence[Read], version: int, *, max_bytes: int = UNLIMITED, **fields: Any
) -> FetchRequest:  # fmt: skip
    """Build a Fetch; `fields` as in FetchRequest."""
    topics = [
        {
            "topic": name,
            "partitions": [
                {
                    "partition": read.key[1],
                    "fetch_offset": read.offset,
                    "partition_max_bytes": read.limit,
                    "current_leader_epoch": read.leader_epoch,
                    "last_fetched_epoch": read.last_epoch if version >= LAST_EPOCH_SINCE else NONE,
                }
                for read in of_topic
            ],
            **walk.identity(name),
        }
        for name, of_topic in grouped(reads).items()
    ]
    return message(FetchRequest, max_wait_ms=SHORT_WAIT_MS, min_bytes=1, max_bytes=max_bytes, topics=topics, **fields)


def fetch(
    walk: Walk, reads: Sequence[Read], *, version: int | None = None, isolation: int = READ_UNCOMMITTED,
    max_bytes: int = UNLIMITED,
) -> dict[Key, int]:  # fmt: skip
    """Send a Fetch without a session, compare the reply, and return where the next read of each partition begins."""
    following: dict[Key, int] = {}
    for broker, parts in walk.by_leader(reads):
        chosen = walk.version(FetchRequest) if version is None else version
        what = walk.step(f"Fetch v{chosen}, isolation {isolation}")
        reply = broker.call(fetch_request(walk, parts, chosen, max_bytes=max_bytes, isolation_level=isolation), chosen)
        compare(what, error_code=(0, reply.error_code), session=(0, reply.session_id))
        leaders = {leader_named(walk, read, chosen)[0] for read in parts} - {NONE}
        compare(what, nodes_are_leaders=(True, {node.node_id for node in reply.node_endpoints} <= leaders))
        room = Room(max_bytes)
        for read, part in answers(what, parts, results(walk, reply.responses, chosen, parts)):
            following[read.key] = compare_read(walk, what, read, part, chosen, isolation, room)
    return following


def results(
    walk: Walk, topics: Sequence[Any], version: int, reads: Sequence[Read]
) -> list[tuple[Key, PartitionData]]:  # fmt: skip
    """Return the partitions of a reply, in order."""
    unknown = next((read.key[0] for read in reads if read.key[0] not in walk.ids), "")
    return [
        ((walk.name_of(topic, version >= BY_ID_SINCE, unknown), part.partition_index), part)
        for topic in topics
        for part in topic.partitions
    ]


def compare_read(
    walk: Walk, what: str, read: Read, part: PartitionData, version: int, isolation: int, room: Room
) -> int:
    """Compare one partition of a reply; return the offset after the last batch, or that of the read."""
    named = f"{what} at {read.offset}, partition {walk.show(read.key)}"
    if part.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE and _may_need_zstd(walk, read, version):
        return read.offset
    wanted = expected_read(walk, read, version)
    compare(
        named, error_code=(wanted.error, part.error_code), preferred_replica=(NONE, part.preferred_read_replica),
        leader=(
            frozenset({(NONE, NONE), leader_named(walk, read, version)}),
            (part.current_leader.leader_id, part.current_leader.leader_epoch),
        ),
        snapshot=((NONE, NONE), (part.snapshot_id.end_offset, part.snapshot_id.epoch)),
        diverging_epoch=(wanted.diverging, (part.diverging_epoch.epoch, part.diverging_epoch.end_offset)),
    )  # fmt: skip
    if wanted.error:
        compare(
            named, high_watermark=(NONE, part.high_watermark), last_stable_offset=(NONE, part.last_stable_offset),
            log_start=(NONE, part.log_start_offset), records=(b"", part.records or b""),
        )  # fmt: skip
        return read.offset
    log = walk.logs[read.key]
    compare(
        named, high_watermark=(log.end, part.high_watermark), last_stable_offset=(log.stable, part.last_stable_offset),
        log_start=(log.start if version >= START_SINCE else NONE, part.log_start_offset),
    )  # fmt: skip
    if wanted.diverging[0] != NONE:
        compare(named, records=(b"", part.records or b""))
        return read.offset
    available = log.from_offset(read.offset, log.limit(bool(isolation)))
    returned = _compare_batches(named, part.records or b"", available)
    room.take(named, read, part.records or b"", available)
    _compare_aborted(named, log, read.offset, part, returned, isolation)
    return returned[-1].next_offset if returned else read.offset


def _may_need_zstd(walk: Walk, read: Read, version: int) -> bool:
    """Whether a broker may refuse a reader because its version is older than zstd (KIP-110)."""
    available = walk.logs[read.key].from_offset(read.offset, UNLIMITED) if read.key in walk.logs else []
    return version < ZSTD_FETCH_SINCE and any(stored.codec is Compression.ZSTD for stored in available)


class Wanted(NamedTuple):
    """The error of a read, and the diverging epoch with its end."""

    error: int
    diverging: tuple[int, int] = (NONE, NONE)


def expected_read(walk: Walk, read: Read, version: int) -> Wanted:
    """Return the error, and the diverging epoch with its end, for a part of a Fetch."""
    if read.key not in walk.logs:
        return Wanted(walk.unknown_error(read.key, version))
    log = walk.logs[read.key]
    error = fenced(log, read.leader_epoch if version >= EPOCH_SINCE else NONE)
    if error:
        return Wanted(error)
    if read.last_epoch != NONE and version >= LAST_EPOCH_SINCE:
        ended = log.epoch_end(read.last_epoch)
        if ended.end_offset == NONE:
            return Wanted(ErrorCode.OFFSET_OUT_OF_RANGE)
        if ended.leader_epoch < read.last_epoch or ended.end_offset < read.offset:
            return Wanted(0, (ended.leader_epoch, ended.end_offset))
    return Wanted(0 if log.start <= read.offset <= log.end else ErrorCode.OFFSET_OUT_OF_RANGE)


def leader_named(walk: Walk, read: Read, version: int) -> tuple[int, int]:
    """Return the leader and its epoch that the reply to a reader with an old epoch may name (KIP-951)."""
    if version < LEADER_SINCE or expected_read(walk, read, version).error != ErrorCode.FENCED_LEADER_EPOCH:
        return NONE, NONE
    return walk.topics[read.key].leader_id, walk.logs[read.key].leader_epoch


def fenced(log: ModelLog, leader_epoch: int) -> int:
    """Return the error for a client that knows this leader epoch (KIP-320)."""
    if leader_epoch in (NONE, log.leader_epoch):
        return 0
    return ErrorCode.FENCED_LEADER_EPOCH if leader_epoch < log.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH


def _compare_batches(what: str, data: bytes, available: list[Stored]) -> list[Stored]:
    """Compare each batch; return those that are complete. The last one may be cut off."""
    headers = list(batch_headers(data))
    expect(f"{what}: batches beyond those that the reader may see", True, len(headers) <= len(available))
    end = 0
    for (position, header), stored in zip(headers, available, strict=False):
        end = position + header.size
        stored.compare(what, data[position:end])
    returned = available[: len(headers)]
    following = available[len(headers)].raw if len(headers) < len(available) else b""
    expect(f"{what}: bytes after the last complete batch", True, len(data) == end or following.startswith(data[end:]))
    return returned


def _compare_aborted(
    what: str, log: ModelLog, offset: int, part: PartitionData, returned: list[Stored], isolation: int
) -> None:
    """A read_committed reply names at least the aborted transactions of its batches, and none that ended before."""
    found = [(each.producer_id, each.first_offset) for each in part.aborted_transactions or ()]
    expect(f"{what}: aborted transactions are named once", sorted(set(found)), sorted(found))
    if not isolation:
        expect(f"{what}: aborted transactions for read_uncommitted", [], found)
        return
    needed = {
        each
        for stored in returned
        if stored.batch.transactional and stored.marker is None
        for each in log.aborted_between(stored.base_offset, stored.last_offset)
        if each.producer_id == stored.batch.producer_id
    }
    named = {each for each in log.aborted_between(offset, log.end) if any(first in found for first in log.firsts(each))}
    missing = sorted(f"producer {each.producer_id} from {each.first_offset}" for each in needed - named)
    known = {first for each in named for first in log.firsts(each)}
    expect(f"{what}: missing and unknown aborted transactions", ([], []), (missing, sorted(set(found) - known)))


def read_everything(walk: Walk, *, isolations: Sequence[int] = (READ_UNCOMMITTED, READ_COMMITTED)) -> None:
    """Read all partitions from each offset before, in and after the log, under each isolation level.

    The first reads follow the batches from the start of the log to its end.
    """
    for isolation in isolations:
        follow(walk, isolation)
    first = min(log.start for log in walk.logs.values()) - 1
    last = max(log.end for log in walk.logs.values()) + 1
    for offset in range(first, last + 1):
        reads = [Read(key, offset) for key, log in walk.logs.items() if log.start - 1 <= offset <= log.end + 1]
        fetch(walk, reads, isolation=walk.random.choice(list(isolations)))


def follow(walk: Walk, isolation: int) -> None:
    """Read all partitions from their start to their end, batch after batch."""
    position = {key: log.start for key, log in walk.logs.items()}
    while position:
        following = fetch(walk, [Read(key, offset) for key, offset in position.items()], isolation=isolation)
        limits = {key: walk.logs[key].limit(bool(isolation)) for key in following}
        position = {key: offset for key, offset in following.items() if offset < limits[key]}


# -- ListOffsets and OffsetForLeaderEpoch ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lookup:
    """A part of a ListOffsets."""

    key: Key
    timestamp: int
    leader_epoch: int = NONE


def list_offsets(
    walk: Walk, lookups: Sequence[Lookup], *, version: int | None = None, isolation: int = READ_UNCOMMITTED
) -> None:
    """Send a ListOffsets with these parts and compare the reply."""
    for broker, parts in walk.by_leader(lookups):
        first = max((SPECIAL_SINCE.get(part.timestamp, 1) for part in parts), default=1)
        chosen = walk.version(ListOffsetsRequest, max(first, 2 * isolation)) if version is None else version
        what = walk.step(f"ListOffsets v{chosen}, isolation {isolation}")
        topics = [
            [name, [[part.key[1], part.leader_epoch, part.timestamp] for part in of_topic]]
            for name, of_topic in grouped(parts).items()
        ]
        request = message(
            ListOffsetsRequest, replica_id=CONSUMER, isolation_level=isolation, topics=topics, timeout_ms=5_000,
        )  # fmt: skip
        reply = broker.call(request, chosen)
        found = [
            ((topic.name, part.partition_index), part) for topic in reply.topics for part in topic.partitions
        ]  # fmt: skip
        for part, result in answers(what, parts, found):
            named = f"{what} for {part.timestamp}, partition {walk.show(part.key)}"
            wanted = _expected_lookup(walk, part, chosen, bool(isolation))
            actual = Listed(result.error_code, result.timestamp, result.offset, result.leader_epoch)
            compare(named, error_timestamp_offset_epoch=(wanted, actual))


def _expected_lookup(walk: Walk, part: Lookup, version: int, committed: bool) -> Listed:
    if part.key not in walk.logs:
        return Listed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NONE, NONE, NONE)
    log = walk.logs[part.key]
    error = fenced(log, part.leader_epoch if version >= LISTED_EPOCH_SINCE else NONE)
    if error:
        return Listed(error, NONE, NONE, NONE)
    found = log.listed(part.timestamp, committed=committed)
    return found if version >= LISTED_EPOCH_SINCE else found._replace(leader_epoch=NONE)


@dataclass(frozen=True, slots=True)
class EpochLookup:
    """A part of an OffsetForLeaderEpoch."""

    key: Key
    epoch: int
    leader_epoch: int = NONE


def epoch_ends(walk: Walk, lookups: Sequence[EpochLookup], *, version: int | None = None) -> None:
    """Send an OffsetForLeaderEpoch with these parts and compare the reply."""
    for broker, parts in walk.by_leader(lookups):
        chosen = walk.version(OffsetForLeaderEpochRequest, 2) if version is None else version
        what = walk.step(f"OffsetForLeaderEpoch v{chosen}")
        topics = [
            [name, [[part.key[1], part.leader_epoch, part.epoch] for part in of_topic]]
            for name, of_topic in grouped(parts).items()
        ]
        reply = broker.call(message(OffsetForLeaderEpochRequest, replica_id=CONSUMER, topics=topics), chosen)
        found = [((topic.topic, part.partition), part) for topic in reply.topics for part in topic.partitions]
        for part, result in answers(what, parts, found):
            named = f"{what} for {part.epoch}, partition {walk.show(part.key)}"
            actual = (result.error_code, result.leader_epoch, result.end_offset)
            compare(named, error_epoch_end=(_expected_end(walk, part), actual))


def _expected_end(walk: Walk, part: EpochLookup) -> EpochEnd:
    if part.key not in walk.logs:
        return EpochEnd(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NONE, NONE)
    log = walk.logs[part.key]
    error = fenced(log, part.leader_epoch)
    return EpochEnd(error, NONE, NONE) if error else log.epoch_end(part.epoch)


# -- DescribeProducers ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Described:
    """A part of a DescribeProducers."""

    key: Key


def describe_producers(walk: Walk) -> None:
    """Describe the producers of all partitions and of unknown ones, and compare them; all batches must have been read.

    Does nothing if the broker does not advertise DescribeProducers.
    """
    if not walk.supports(DescribeProducersRequest):
        return
    parts = [Described(key) for key in (*walk.keys, *walk.unknown_keys)]
    for broker, group in walk.by_leader(parts):
        what = walk.step("DescribeProducers")
        topics = tuple(
            TopicRequest(name=name, partition_indexes=tuple(part.key[1] for part in of_topic))
            for name, of_topic in grouped(group).items()
        )
        for part, result in answers(what, group, _described(broker, topics)):
            named = f"{what}, partition {walk.show(part.key)}"
            known = part.key in walk.logs
            compare(named, error_code=(0 if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, result.error_code))
            found = {
                each.producer_id: (
                    each.producer_epoch, each.last_sequence, each.last_timestamp, each.current_txn_start_offset
                )
                for each in result.active_producers
            }  # fmt: skip
            compare(named, number_of_producers=(len(found), len(result.active_producers)))
            wanted = producers_of(walk.logs[part.key]) if known else {}
            expect(f"{named}: epoch, last sequence, last timestamp, start of transaction", wanted, found)


def _described(broker: Broker, topics: tuple[TopicRequest, ...]) -> list[tuple[Key, Any]]:
    reply = broker.call(DescribeProducersRequest(topics=topics))
    return [((topic.name, part.partition_index), part) for topic in reply.topics for part in topic.partitions]


def producers_of(log: ModelLog) -> dict[int, tuple[int, int, int, int]]:
    """Return by producer id: epoch, last sequence, last timestamp and the first offset of the open transaction."""
    return {
        producer_id: (
            state.epoch, state.last_sequence, max(state.last.timestamps) if state.last else NONE,
            NONE if state.open_since is None else state.open_since,
        )
        for producer_id, state in log.producers.items()
    }  # fmt: skip
