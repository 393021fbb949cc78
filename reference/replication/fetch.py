"""Serve Fetch (key 1), v0-12, for consumers and followers.

The broker answers at once if max_wait_ms <= 0, no partition is requested, min_bytes are available, a partition has an
error or records in a segment that is not its newest, or a follower's log diverges. Otherwise the request waits in the
purgatory until enough records are appended (for followers) or committed (for consumers), or until max_wait_ms has
passed.

An incremental fetch (KIP-227) reads only the pending partitions of its session (`fetch_sessions`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from highwater.reference.context import Context
from highwater.reference.effects import Request
from highwater.reference.guards import Guards
from highwater.reference.procedures import Pending
from highwater.reference.replication.fetch_sessions import NO_SESSION, FetchContext, FetchSessions, Session
from highwater.reference.replication.partition import Diverging, Partition, Waiter
from highwater.reference.replication.purgatory import Purgatory
from highwater.reference.replication.replica_manager import ReplicaManager
from highwater.reference.replication.states import NO_LEADER
from highwater.reference.storage.log import OffsetOutOfRangeError
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import EncodeError, ErrorCode, WireError
from highwater.reference.wire.log_entries import down_convert, entries
from highwater.reference.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

Aborted = tuple[AbortedTransaction, ...]

CONSUMER = -1
NO_EPOCH = -1
FETCH_MAX_BYTES = 55 * 1024 * 1024
"""The most that a broker returns, whatever a request asks for (`fetch.max.bytes`)."""
RACKS_SINCE = 11
DEBUGGING_CONSUMER = -2  # compares replicas, so followers answer it too
READ_COMMITTED = 1
ISOLATION_LEVELS = (0, READ_COMMITTED)
TIMESTAMPS_SINCE = 2
RECORD_BATCHES_SINCE = 4
ZSTD_SINCE = 10

RESULT_OF_ERROR = {
    ErrorCode.NONE: "records",
    ErrorCode.FENCED_LEADER_EPOCH: "fenced",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "unknown_epoch",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "not_leader",
    ErrorCode.KAFKA_STORAGE_ERROR: "not_leader",  # an offline replica is no longer the leader
    ErrorCode.OFFSET_OUT_OF_RANGE: "out_of_range",
}


@dataclass(slots=True)
class ReadPass:
    """One pass over the partitions of a request, and its results; `bytes_left` bounds what may still be added.

    A follower's fetch offset updates its state only in the pass on arrival (`first_pass`), not when the request is
    tried again (KIP-903).
    """

    body: FetchRequest
    session: Session | None
    any_replica: bool
    first_pass: bool
    bytes_left: int
    partitions: dict[str, list[PartitionData]] = field(default_factory=dict)
    size: int = 0
    urgent: bool = False
    parked: dict[tuple[str, int], tuple[Partition, FetchPartition]] = field(default_factory=dict)

    @property
    def responses(self) -> tuple[FetchableTopicResponse, ...]:
        """Return the response of every topic that was read."""
        return tuple(
            FetchableTopicResponse(topic=topic, partitions=tuple(parts)) for topic, parts in self.partitions.items()
        )

    def add(self, topic: str, data: PartitionData, *, urgent: bool) -> None:
        """Add the response of one partition, and count its bytes."""
        size = len(data.records or b"")
        self.bytes_left = max(self.bytes_left - size, 0)
        self.size += size
        self.urgent |= urgent
        self.partitions.setdefault(topic, []).append(data)


def _may_read_any_replica(body: FetchRequest, version: int) -> bool:
    """Return whether a follower may serve this request: consumers with racks (KIP-392) and the replica verifier."""
    return body.replica_id == DEBUGGING_CONSUMER or (body.replica_id == CONSUMER and version >= RACKS_SINCE)


class FetchHandler:
    def __init__(
        self, context: Context, replicas: ReplicaManager, purgatory: Purgatory, rack_of: Callable[[int], str | None]
    ) -> None:
        self._context, self._replicas, self._purgatory, self._rack_of = context, replicas, purgatory, rack_of
        self._sessions = FetchSessions(context)

    async def fetch(self, request: Request) -> FetchResponse:
        if request.body.isolation_level not in ISOLATION_LEVELS:
            return _whole_error(request, ErrorCode.UNKNOWN_SERVER_ERROR)
        fetch_context = self._sessions.open(_as_meant(request.body))
        if fetch_context.error is not ErrorCode.NONE:
            return FetchResponse(error_code=fetch_context.error)
        body = fetch_context.body
        any_replica = _may_read_any_replica(body, request.api_version)
        deadline_ms = self._context.now.monotonic_ms + body.max_wait_ms
        read_pass = self._read(fetch_context, any_replica, first_pass=True)
        while not _can_complete(fetch_context, read_pass):
            wait_ms = deadline_ms - self._context.now.monotonic_ms
            in_time = wait_ms > 0 and await self._wait_for_data(fetch_context, wait_ms)
            read_pass = self._read(fetch_context, any_replica, first_pass=False)
            if not in_time:
                break
        responses = fetch_context.filter_response(read_pass.responses)
        self._trace_returned(read_pass, responses)
        meter = "BytesOutPerSec" if body.replica_id < 0 else "ReplicationBytesOutPerSec"
        self._context.meters.mark(meter, read_pass.size)
        if request.api_version < ZSTD_SINCE:
            responses = _map_partitions(responses, _without_zstd)
        if request.api_version < RECORD_BATCHES_SINCE:
            # Clients older than 0.11 read message sets, not record batches (KIP-98).
            magic = int(request.api_version >= TIMESTAMPS_SINCE)
            responses = _map_partitions(self._refuse_conversion(responses), lambda part: _down_converted(part, magic))
        session_id = fetch_context.session.session_id if fetch_context.session else NO_SESSION
        return FetchResponse(session_id=session_id, responses=responses)

    def _refuse_conversion(self, topics: tuple[FetchableTopicResponse, ...]) -> tuple[FetchableTopicResponse, ...]:
        """Replace the records of topics with message.downconversion.enable=false by UNSUPPORTED_VERSION (KIP-283)."""

        def change(topic: str, part: PartitionData) -> PartitionData:
            partition = self._replicas.partitions.get((topic, part.partition_index))
            if partition is None or part.error_code or partition.log.config.message_downconversion_enable:
                return part
            return replace(part, records=b"", error_code=ErrorCode.UNSUPPORTED_VERSION)

        return tuple(
            replace(topic, partitions=tuple(change(topic.topic, part) for part in topic.partitions)) for topic in topics
        )

    def _wait_for_data(self, fetch_context: FetchContext, wait_ms: int) -> Pending[bool]:
        """Resolve with True when a partition has new readable records, with False after `wait_ms`."""
        pending: Pending[bool] = Pending()
        session = fetch_context.session
        if session is not None and session.moved:  # by the read pass itself, such as an append after a commit
            pending.resolve(True)
            return pending
        waiting = self._waiters(fetch_context.body) if session is None else [session.waiters]
        ticket = self._purgatory.park(wait_ms, lambda: wake(moved=False))

        def wake(*, moved: bool) -> None:
            for waiters in waiting:
                waiters.pop(ticket, None)
            self._purgatory.finish(ticket)
            pending.resolve(moved)

        for waiters in waiting:
            waiters[ticket] = partial(wake, moved=True)
        return pending

    def _waiters(self, body: FetchRequest) -> list[dict[str, Waiter]]:
        """Return the waiters of all requested partitions, for a fetch without a session."""
        keys = ((topic.topic, requested.partition) for topic in body.topics for requested in topic.partitions)
        found = [self._replicas.partitions[key] for key in keys if key in self._replicas.partitions]
        return [partition.commit_waiters if body.replica_id < 0 else partition.append_waiters for partition in found]

    def _read(self, fetch_context: FetchContext, any_replica: bool, *, first_pass: bool) -> ReadPass:
        body, session = fetch_context.body, fetch_context.session
        read_pass = ReadPass(body, session, any_replica, first_pass, min(body.max_bytes, FETCH_MAX_BYTES))
        if session is not None:
            session.moved = False
        for topic, requested in fetch_context.requests():
            partition = self._replicas.partitions.get((topic, requested.partition))
            if partition is None:
                error = self._replicas.not_leader(topic, requested.partition)
                read_pass.add(topic, _error_data(requested, error), urgent=True)
                continue
            if requested.partition_max_bytes < 0:  # LogSegment.read throws IllegalArgumentException
                read_pass.add(topic, _error_data(requested, ErrorCode.UNKNOWN_SERVER_ERROR), urgent=True)
                continue
            if session is not None:
                session.watch((topic, requested.partition), partition)
            data, urgent = self._read_one(read_pass, partition, requested)
            read_pass.add(topic, data, urgent=urgent)
            if session is not None and not urgent and self._is_settled(session, partition, requested, body):
                session.settle((topic, requested.partition), data)
        return read_pass

    def _is_settled(
        self, session: Session, partition: Partition, requested: FetchPartition, body: FetchRequest
    ) -> bool:
        """Return whether only a call of a partition's waiters can change what the next read pass finds in it."""
        if requested.fetch_offset < _readable_until(partition, body, self._context.guards):
            return False  # it has records, which the response may have had no space for
        if session.is_replica:
            return partition.is_settled(session.replica_id)
        return not self._by_rack(body)  # another replica may become the preferred one

    def _by_rack(self, body: FetchRequest) -> bool:
        """Return whether a consumer asks for the replica in its rack (KIP-392)."""
        rack_aware = self._context.config.replica_selector == "rack_aware"
        return rack_aware and body.replica_id == CONSUMER and bool(body.rack_id)

    def _read_one(
        self, read_pass: ReadPass, partition: Partition, requested: FetchPartition
    ) -> tuple[PartitionData, bool]:
        """Read one partition; return its part of the response, and whether the request must complete at once."""
        body = read_pass.body
        error = partition.check_epoch(requested.current_leader_epoch, from_follower=read_pass.any_replica)
        if error is ErrorCode.NONE and self._by_rack(body):
            preferred = partition.preferred_read_replica(body.rack_id, requested.fetch_offset, self._rack_of)
            if preferred != NO_LEADER:
                return _partition_data(partition, preferred_read_replica=preferred), True  # redirect (KIP-392)
        if error is ErrorCode.NONE and body.replica_id >= 0 and body.replica_id not in partition.remotes:
            # The broker that asks may know a newer assignment (Partition.followerReplicaOrThrow).
            has_epoch = requested.current_leader_epoch != NO_EPOCH
            error = ErrorCode.UNKNOWN_LEADER_EPOCH if has_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
        diverging: Diverging | None = None
        records = b""
        if error is ErrorCode.NONE:
            try:
                with partition.storage():
                    diverging = partition.diverging(requested.last_fetched_epoch, requested.fetch_offset)
                    if diverging is None:
                        size = min(requested.partition_max_bytes, read_pass.bytes_left)
                        records = partition.log.read(
                            requested.fetch_offset, size, _readable_until(partition, body, self._context.guards),
                            at_least_one=read_pass.size == 0,
                        )  # fmt: skip
                error = ErrorCode.KAFKA_STORAGE_ERROR if partition.offline else error
            except OffsetOutOfRangeError:
                error = ErrorCode.OFFSET_OUT_OF_RANGE
        if body.replica_id >= 0:
            parked = error is ErrorCode.NONE and diverging is None and not records
            if parked:
                read_pass.parked[partition.topic, partition.partition] = (partition, requested)
            self._update_follower(read_pass, partition, requested, error, diverging, parked=parked)
        if error is not ErrorCode.NONE:
            return _error_data(requested, error), True
        if diverging is not None:
            end = EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.end_offset)
            return _partition_data(partition, diverging_epoch=end), True
        # A read ends with its segment: without this, each segment smaller than min_bytes costs max_wait_ms
        # (DelayedFetch, case F).
        until = _readable_until(partition, body, self._context.guards)
        urgent = bool(records) and partition.log.on_older_segment(requested.fetch_offset, until)
        if body.isolation_level == READ_COMMITTED and self._context.guards.hide_aborted:
            aborted = _aborted(partition, requested.fetch_offset, records)
            return _partition_data(partition, records=records, aborted_transactions=aborted), urgent
        return _partition_data(partition, records=records), urgent

    def _update_follower(
        self,
        read_pass: ReadPass,
        partition: Partition,
        requested: FetchPartition,
        error: ErrorCode,
        diverging: Diverging | None,
        *,
        parked: bool,
    ) -> None:
        """Update the leader's state of a follower from its fetch offset; may advance the high watermark and the ISR."""
        replica = read_pass.body.replica_id
        accepted = read_pass.first_pass and error is ErrorCode.NONE and diverging is None
        advanced = False
        if accepted:
            advanced = partition.update_follower_state(replica, requested.fetch_offset, read_pass.session)
            if replica in partition.remotes:
                partition.remotes[replica].log_start_offset = requested.log_start_offset
        result = "diverging" if diverging else "parked" if parked else RESULT_OF_ERROR[error]
        end_offset = diverging.end_offset if diverging else partition.log.log_end_offset
        if read_pass.first_pass or not parked:
            self._trace(partition, replica, requested, result, end_offset)
        if accepted:
            partition.maybe_expand_isr(replica)
        if advanced:
            partition.complete_committed()

    def _trace_returned(self, read_pass: ReadPass, responses: tuple[FetchableTopicResponse, ...]) -> None:
        """Trace the partitions that are returned without records; the others of the session stay parked."""
        if not read_pass.parked or not self._context.out.tracing:
            return
        for topic in responses:
            for data in topic.partitions:
                found = read_pass.parked.get((topic.topic, data.partition_index))
                if found is not None:
                    partition, requested = found
                    end_offset = partition.log.log_end_offset
                    self._trace(partition, read_pass.body.replica_id, requested, "records", end_offset)

    def _trace(
        self, partition: Partition, follower: int, requested: FetchPartition, result: str, end_offset: int
    ) -> None:
        if not self._context.out.tracing:  # the most frequent step of all: do not build its arguments for nothing
            return
        self._context.trace(
            partition.entity,
            "LeaderServeFetch",
            choices={
                "follower": follower,
                "fetch_offset": requested.fetch_offset,
                "result": result,
                "end_offset": end_offset,
            },
            high_watermark=partition.high_watermark,
            log_end_offset=partition.log.log_end_offset,
        )


def _as_meant(body: FetchRequest) -> FetchRequest:
    """Return the request with the values that Apache Kafka takes instead of some others.

    A partition counts once, with its last entry (FetchRequest.fetchData); there is no negative epoch but -1
    (FetchRequest.optionalEpoch); a reader does not wait for more than `max_bytes` (KafkaApis.handleFetchRequest).
    """
    last = {(topic.topic, part.partition): part for topic in body.topics for part in topic.partitions}
    if all(map(_is_plain, last.values())) and len(last) == sum(len(topic.partitions) for topic in body.topics):
        if body.min_bytes <= body.max_bytes:
            return body  # the usual request; a copy would cost as much as half a read
        topics = body.topics
    else:
        topics = tuple(FetchTopic(topic=name, partitions=(_plain(part),)) for (name, _), part in last.items())
    return replace(body, topics=topics, min_bytes=min(body.min_bytes, body.max_bytes))


def _is_plain(part: FetchPartition) -> bool:
    return part.current_leader_epoch >= NO_EPOCH and part.last_fetched_epoch >= NO_EPOCH


def _plain(part: FetchPartition) -> FetchPartition:
    return replace(
        part,
        current_leader_epoch=max(part.current_leader_epoch, NO_EPOCH),
        last_fetched_epoch=max(part.last_fetched_epoch, NO_EPOCH),
    )


def _whole_error(request: Request, error: ErrorCode) -> FetchResponse:
    """Return an error for the request and for each partition (FetchRequest.getErrorResponse)."""
    body: FetchRequest = request.body
    return FetchResponse(
        error_code=error,
        session_id=body.session_id,
        responses=tuple(
            FetchableTopicResponse(
                topic=topic.topic, partitions=tuple(_error_data(requested, error) for requested in topic.partitions)
            )
            for topic in body.topics
        ),
    )


def _can_complete(fetch_context: FetchContext, read_pass: ReadPass) -> bool:
    body = fetch_context.body
    enough = body.max_wait_ms <= 0 or read_pass.urgent or read_pass.size >= body.min_bytes
    return enough or fetch_context.is_empty


def _readable_until(partition: Partition, body: FetchRequest, guards: Guards) -> int:
    """Return the end of the readable offsets: log end (replica), high watermark, or last stable offset."""
    if body.replica_id >= 0:
        return partition.log.log_end_offset
    if body.isolation_level == READ_COMMITTED and guards.stable_before_open:
        return partition.log.producers.last_stable_offset(partition.high_watermark)
    return partition.high_watermark


def _aborted(partition: Partition, offset: int, records: bytes) -> Aborted:
    """Return the aborted transactions that overlap these records, sorted by first offset; consumers skip them."""
    producers = partition.log.producers
    if not producers.aborted or not records:
        return ()
    end = max((header.next_offset for _, header in entries(records)), default=offset + 1)
    found = producers.aborted_between(offset, end)
    return tuple(
        AbortedTransaction(producer_id=transaction.producer_id, first_offset=transaction.first_offset)
        for transaction in sorted(found, key=lambda transaction: transaction.first_offset)
    )


def _map_partitions(
    topics: tuple[FetchableTopicResponse, ...], change: Callable[[PartitionData], PartitionData]
) -> tuple[FetchableTopicResponse, ...]:
    return tuple(replace(topic, partitions=tuple(map(change, topic.partitions))) for topic in topics)


def _without_zstd(part: PartitionData) -> PartitionData:
    """Replace zstd records by UNSUPPORTED_COMPRESSION_TYPE: clients older than 2.1 cannot read them (KIP-110)."""
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


def _partition_data(
    partition: Partition, *, records: bytes = b"", aborted_transactions: Aborted | None = None, **more: Any
) -> PartitionData:
    """Return a successful partition response with the current offsets of the log."""
    return PartitionData(
        partition_index=partition.partition,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.log.producers.last_stable_offset(partition.high_watermark),
        log_start_offset=partition.log.log_start_offset,
        records=records,
        aborted_transactions=aborted_transactions,
        **more,
    )


def _error_data(requested: FetchPartition, error: ErrorCode) -> PartitionData:
    return PartitionData(partition_index=requested.partition, error_code=error, high_watermark=-1, records=b"")
