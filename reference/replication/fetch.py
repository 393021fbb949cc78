"""Fetch (key 1): v0-12, for consumers and followers.

Answered at once iff max wait <= 0, nothing asked, min bytes there, an error or a diverging epoch; otherwise
parked until enough is appended (followers) or committed (consumers), or the wait is over.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from reference.context import Context
from reference.events import Request
from reference.procedures import Pending
from reference.replication.fetch_sessions import NO_SESSION, FetchSessions
from reference.replication.partition import Diverging, Partition
from reference.replication.purgatory import Purgatory
from reference.replication.replica_manager import ReplicaManager
from reference.replication.states import NO_LEADER
from reference.storage.log import OffsetOutOfRangeError
from reference.wire.compression import Compression
from reference.wire.errors import EncodeError, ErrorCode, WireError
from reference.wire.log_entries import down_convert, entries
from reference.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

Aborted = tuple[AbortedTransaction, ...]

CONSUMER = -1
RACKS_SINCE = 11
DEBUGGING_CONSUMER = -2  # compares replicas, so followers answer it too
READ_COMMITTED = 1
TIMESTAMPS_SINCE = 2
RECORD_BATCHES_SINCE = 4
ZSTD_SINCE = 10

RESULT_OF_ERROR = {
    ErrorCode.NONE: "records",
    ErrorCode.FENCED_LEADER_EPOCH: "fenced",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "unknown_epoch",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "not_leader",
    ErrorCode.KAFKA_STORAGE_ERROR: "not_leader",  # it leads no more
    ErrorCode.OFFSET_OUT_OF_RANGE: "out_of_range",
}


@dataclass(slots=True)
class Reading:
    """One pass over a request, and what it found. `left`: so many bytes may still be added.

    A follower's offset counts when its request has `arrived`, not when it is looked at again (KIP-903).
    """

    body: FetchRequest
    any_replica: bool
    parking: bool
    arrived: bool
    left: int
    responses: list[FetchableTopicResponse] = field(default_factory=list)
    size: int = 0
    urgent: bool = False
    parked: list[tuple[Partition, FetchPartition]] = field(default_factory=list)


def _may_read_any_replica(body: FetchRequest, version: int) -> bool:
    """A consumer that knows racks may read from followers (KIP-392), and so may a tool that compares replicas."""
    return body.replica_id == DEBUGGING_CONSUMER or (body.replica_id == CONSUMER and version >= RACKS_SINCE)


class FetchHandler:
    def __init__(
        self, context: Context, replicas: ReplicaManager, purgatory: Purgatory, rack_of: Callable[[int], str | None]
    ) -> None:
        self._context, self._replicas, self._purgatory, self._rack_of = context, replicas, purgatory, rack_of
        self._sessions = FetchSessions(context)

    async def fetch(self, request: Request) -> FetchResponse:
        opened = self._sessions.open(request.body)
        if opened.error is not ErrorCode.NONE:
            return FetchResponse(error_code=opened.error)
        body = opened.body
        any_replica = _may_read_any_replica(body, request.api_version)
        deadline_ms = self._context.now.monotonic_ms + body.max_wait_ms
        reading = self._read(body, any_replica, parking=body.max_wait_ms > 0, arrived=True)
        while not self._answers(body, reading):
            wait_ms = deadline_ms - self._context.now.monotonic_ms
            if wait_ms <= 0 or not await self._woken(body, wait_ms):
                reading = self._read(body, any_replica, parking=False, arrived=False)
                break
            reading = self._read(body, any_replica, parking=True, arrived=False)
        for partition, asked in reading.parked:  # answered with another that has something to say
            self._trace(partition, body.replica_id, asked, "records", partition.log.log_end_offset)
        responses = tuple(reading.responses)
        meter = "BytesOutPerSec" if body.replica_id < 0 else "ReplicationBytesOutPerSec"
        self._context.meters.mark(meter, reading.size)
        if request.api_version < ZSTD_SINCE:
            responses = _each_part(responses, _without_zstd)
        if request.api_version < RECORD_BATCHES_SINCE:
            # For a client of before 0.11: message sets in place of record batches (KIP-98).
            magic = int(request.api_version >= TIMESTAMPS_SINCE)
            responses = _each_part(responses, lambda part: _down_converted(part, magic))
        session_id = opened.session.session_id if opened.session else NO_SESSION
        return FetchResponse(session_id=session_id, responses=opened.answer(responses))

    def _answers(self, body: FetchRequest, reading: Reading) -> bool:
        if body.max_wait_ms <= 0 or reading.urgent or reading.size >= body.min_bytes:
            return True
        return not any(topic.partitions for topic in body.topics)

    def _woken(self, body: FetchRequest, wait_ms: int) -> Pending[bool]:
        """Resolves with True when one of the partitions moved, False when the wait is over."""
        pending: Pending[bool] = Pending()
        ticket = self._purgatory.park(wait_ms, lambda: wake(moved=False))
        waiting = []
        for topic in body.topics:
            for asked in topic.partitions:
                partition = self._replicas.partitions.get((topic.topic, asked.partition))
                if partition is not None:
                    waiting.append(partition.commit_waiters if body.replica_id < 0 else partition.append_waiters)

        def wake(*, moved: bool) -> None:
            for waiters in waiting:
                waiters.pop(ticket, None)
            self._purgatory.finish(ticket)
            pending.resolve(moved)

        for waiters in waiting:
            waiters[ticket] = partial(wake, moved=True)
        return pending

    def _read(self, body: FetchRequest, any_replica: bool, *, parking: bool, arrived: bool) -> Reading:
        reading = Reading(body, any_replica, parking, arrived, body.max_bytes)
        for topic in body.topics:
            parts = []
            for asked in topic.partitions:
                data, urgent = self._read_one(reading, topic.topic, asked)
                size = len(data.records or b"")
                reading.left = max(reading.left - size, 0)
                reading.size += size
                reading.urgent |= urgent
                parts.append(data)
            reading.responses.append(FetchableTopicResponse(topic=topic.topic, partitions=tuple(parts)))
        return reading

    def _read_one(self, reading: Reading, topic: str, asked: FetchPartition) -> tuple[PartitionData, bool]:
        """One partition's part, and whether it must be told without waiting."""
        body = reading.body
        partition = self._replicas.partitions.get((topic, asked.partition))
        if partition is None:
            return _refused(asked, self._replicas.not_leader(topic, asked.partition)), True
        by_rack = self._context.config.replica_selector == "rack_aware" and body.replica_id == CONSUMER
        error = partition.check_epoch(asked.current_leader_epoch, from_follower=reading.any_replica)
        if error is ErrorCode.NONE and by_rack and body.rack_id:
            preferred = partition.preferred_read_replica(body.rack_id, asked.fetch_offset, self._rack_of)
            if preferred != NO_LEADER:
                return _told(partition, preferred_read_replica=preferred), True  # read there (KIP-392)
        diverging: Diverging | None = None
        records = b""
        if error is ErrorCode.NONE:
            try:
                diverging = partition.diverging(asked.last_fetched_epoch, asked.fetch_offset)
                if diverging is None:
                    until = _readable_until(partition, body)
                    size = min(asked.partition_max_bytes, reading.left)
                    records = partition.log.read(asked.fetch_offset, size, until, at_least_one=reading.size == 0)
            except OffsetOutOfRangeError:
                error = ErrorCode.OFFSET_OUT_OF_RANGE
        if body.replica_id >= 0:
            parked = reading.parking and error is ErrorCode.NONE and diverging is None and not records
            if parked:
                reading.parked.append((partition, asked))
            self._note_follower(reading, partition, asked, error, diverging, parked=parked)
        if error is not ErrorCode.NONE:
            return _refused(asked, error), True
        if diverging is not None:
            end = EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.end_offset)
            return _told(partition, diverging_epoch=end), True
        if body.isolation_level == READ_COMMITTED:
            aborted = _aborted(partition, asked.fetch_offset, records)
            return _told(partition, records=records, aborted_transactions=aborted), False
        return _told(partition, records=records), False

    def _note_follower(
        self,
        reading: Reading,
        partition: Partition,
        asked: FetchPartition,
        error: ErrorCode,
        diverging: Diverging | None,
        *,
        parked: bool,
    ) -> None:
        """Its fetch offset tells what the follower stores; then the high watermark and the ISR may move."""
        replica = reading.body.replica_id
        accepted = reading.arrived and error is ErrorCode.NONE and diverging is None
        if accepted:
            partition.follower_fetched(replica, asked.fetch_offset)
            if replica in partition.remotes:
                partition.remotes[replica].log_start_offset = asked.log_start_offset
        result = "diverging" if diverging else "parked" if parked else RESULT_OF_ERROR[error]
        end_offset = diverging.end_offset if diverging else partition.log.log_end_offset
        self._trace(partition, replica, asked, result, end_offset)
        if accepted:
            partition.follower_settled(replica)

    def _trace(self, partition: Partition, follower: int, asked: FetchPartition, result: str, end_offset: int) -> None:
        if not self._context.out.tracing:  # of all steps this one is the most frequent
            return
        self._context.trace(
            partition.entity,
            "LeaderServeFetch",
            choices={
                "follower": follower,
                "fetch_offset": asked.fetch_offset,
                "result": result,
                "end_offset": end_offset,
            },
            high_watermark=partition.high_watermark,
            log_end_offset=partition.log.log_end_offset,
        )


def _readable_until(partition: Partition, body: FetchRequest) -> int:
    """A replica reads all there is, a consumer what is committed, or what is decided under read_committed."""
    if body.replica_id >= 0:
        return partition.log.log_end_offset
    if body.isolation_level == READ_COMMITTED:
        return partition.log.producers.last_stable_offset(partition.high_watermark)
    return partition.high_watermark


def _aborted(partition: Partition, offset: int, records: bytes) -> Aborted:
    """The aborted transactions among these records, by their first offset: consumers skip until the marker."""
    producers = partition.log.producers
    if not producers.aborted or not records:
        return ()
    end = max((header.next_offset for _, header in entries(records)), default=offset + 1)
    found = producers.aborted_between(offset, end)
    return tuple(
        AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
        for each in sorted(found, key=lambda each: each.first_offset)
    )


def _each_part(
    topics: tuple[FetchableTopicResponse, ...], change: Callable[[PartitionData], PartitionData]
) -> tuple[FetchableTopicResponse, ...]:
    return tuple(replace(topic, partitions=tuple(map(change, topic.partitions))) for topic in topics)


def _without_zstd(part: PartitionData) -> PartitionData:
    """A client of before 2.1 cannot read it (KIP-110)."""
    if all(header.compression != Compression.ZSTD for _, header in entries(part.records or b"")):
        return part
    return replace(part, records=b"", error_code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


def _down_converted(part: PartitionData, magic: int) -> PartitionData:
    try:
        return replace(part, records=down_convert(part.records or b"", magic))
    except EncodeError:
        return replace(part, records=b"", error_code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    except WireError:
        return replace(part, records=b"", error_code=ErrorCode.CORRUPT_MESSAGE)


def _told(
    partition: Partition, *, records: bytes = b"", aborted_transactions: Aborted | None = None, **more: Any
) -> PartitionData:
    """How far the log goes, and what there is to say beside."""
    return PartitionData(
        partition_index=partition.partition,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.log.producers.last_stable_offset(partition.high_watermark),
        log_start_offset=partition.log.log_start_offset,
        records=records,
        aborted_transactions=aborted_transactions,
        **more,
    )


def _refused(asked: FetchPartition, error: ErrorCode) -> PartitionData:
    return PartitionData(partition_index=asked.partition, error_code=error, high_watermark=-1, records=b"")
