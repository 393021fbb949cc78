"""Replicate all partitions that follow one leader: one Fetch request at a time (ReplicaFetcherThread).

The fetcher keeps a fetch session with its leader (KIP-227), so that a request costs nothing for an idle partition. It
is registered in `commit_waiters` of its partitions, which every append, truncation and new log start calls, and
compares only those with what it last sent.

A partition with an error stays in the session: the leader returns it when it moves, for example when the broker becomes
the leader. Otherwise the fetcher names it again after replica.fetch.backoff.ms.
"""

from functools import partial
from typing import Any

from highwater.reference.context import Context
from highwater.reference.peers import Peers
from highwater.reference.procedures import spawn
from highwater.reference.replication.fetch_session_handler import SESSION_ERRORS, FetchSessionHandler, Key, Sent
from highwater.reference.replication.partition import Diverging, Partition, Role
from highwater.reference.replication.purgatory import Purgatory
from highwater.reference.storage.log import CorruptBatchError
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest
from highwater.reference.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

FETCH_VERSION = 12
LIST_OFFSETS_VERSION = 5
EARLIEST, LATEST = -2, -1
RESPONSE_MAX_BYTES = 10 * 1024 * 1024


class Fetcher:
    """Fetches from one leader while it has partitions.

    `_changed` holds the partitions whose request may differ from the one that was sent; True: name it in any case.
    `_delayed` holds those with an error, until they are named again; the value identifies the delay. `_answered` holds
    those of the last response.
    """

    def __init__(self, context: Context, peers: Peers, purgatory: Purgatory, leader: int) -> None:
        self._context, self._peers, self._purgatory = context, peers, purgatory
        self._leader = leader
        self._partitions: dict[Key, Partition] = {}
        self._session: FetchSessionHandler[Partition] = FetchSessionHandler({})
        self._changed: dict[Key, bool] = {}
        self._delayed: dict[Key, object] = {}
        self._answered: list[Key] = []
        self._running = False

    def add(self, partition: Partition) -> None:
        """Fetch a partition, in its leader epoch, from the next request on."""
        key = (partition.topic, partition.partition)
        self._partitions[key] = partition
        partition.commit_waiters[self._ticket] = partial(self._mark, key)
        self._delayed.pop(key, None)
        self._mark(key)
        if not self._running:
            self._running = True
            spawn(self._run())

    def remove(self, partition: Partition) -> None:
        """Stop fetching a partition; the next request lists it as forgotten."""
        key = (partition.topic, partition.partition)
        partition.commit_waiters.pop(self._ticket, None)
        self._delayed.pop(key, None)
        if self._partitions.pop(key, None) is not None:
            self._mark(key)

    @property
    def _ticket(self) -> str:
        return f"fetcher:{self._leader}"

    def _mark(self, key: Key) -> None:
        self._changed.setdefault(key, False)

    async def _run(self) -> None:
        while self._partitions:
            request = self._request()
            if request is None:
                await self._backoff()
                continue
            reply = await self._peers.call(self._leader, request, FETCH_VERSION)
            if reply is None:
                self._session.handle_error()
                await self._backoff()
            elif self._session.handle_response(ErrorCode(reply.error_code), reply.session_id):
                self._apply_response(reply)
            elif reply.error_code not in SESSION_ERRORS:
                await self._backoff()
        self._running = False

    async def _backoff(self) -> None:
        await self._purgatory.sleep(self._context.config.replica_fetch_backoff_ms)

    # -- requests --------------------------------------------------------------------------------

    def _request(self) -> FetchRequest | None:
        """Return the next request; None if it would be full and all partitions are delayed after an error."""
        config = self._context.config
        full = self._session.is_full
        changed = dict.fromkeys(self._partitions, True) if full else self._changed
        self._changed = {}
        named = {key: sent for key, must in changed.items() if (sent := self._must_name(key, must=must, full=full))}
        if full and not named:
            return None
        # A shorter wait, or a partition that must be named again would wait for this request.
        wait_ms = min(config.replica_fetch_wait_max_ms, config.replica_fetch_backoff_ms if self._delayed else 1 << 31)
        body = FetchRequest(
            replica_id=self._context.broker_id,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=RESPONSE_MAX_BYTES,
            isolation_level=0,
        )
        request = self._session.complete(body, named, [key for key in changed if key not in self._partitions])
        self._trace_requests(named)
        return request

    def _must_name(self, key: Key, *, must: bool, full: bool) -> Sent[Partition] | None:
        """Return the request for one partition, or None if the leader has it already or need not have it yet."""
        partition = self._partitions.get(key)
        if partition is None or (full and key in self._delayed):
            return None
        wanted = Sent(partition, self._partition_request(partition))
        return wanted if must or wanted != self._session.sent.get(key) else None

    def _partition_request(self, partition: Partition) -> FetchPartition:
        log = partition.log
        return FetchPartition(
            partition=partition.partition,
            current_leader_epoch=partition.leader_epoch,
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=log.epochs.latest_epoch if self._context.guards.truncate_by_epoch else -1,
            log_start_offset=log.log_start_offset,
            partition_max_bytes=self._context.config.replica_fetch_max_bytes,
        )

    def _trace_requests(self, named: dict[Key, Sent[Partition]]) -> None:
        """Trace the fetch of each named partition, and of those that the last response has answered.

        The others of the session have an earlier fetch in the trace that was not answered yet.
        """
        if not self._context.out.tracing:
            return
        answered = {key: self._session.sent[key] for key in self._answered if key in self._session.sent}
        self._answered = []
        for partition, requested in {**named, **answered}.values():
            self._context.trace(
                partition.entity,
                "SendFetch",
                choices={
                    "leader": self._leader,
                    "fetch_offset": requested.fetch_offset,
                    "leader_epoch": requested.current_leader_epoch,
                    "last_fetched_epoch": requested.last_fetched_epoch,
                },
            )

    # -- responses -------------------------------------------------------------------------------

    def _apply_response(self, reply: Any) -> None:
        """Apply the response to every partition unchanged since the request."""
        self._answered = []
        for topic in reply.responses:
            for data in topic.partitions:
                key = (topic.topic, data.partition_index)
                sent = self._session.sent.get(key)
                if sent is None:
                    continue
                self._answered.append(key)
                if self._is_current(key, sent):
                    self._delayed.pop(key, None)
                    if not self._apply(sent.partition, data):
                        self._delay(key)

    def _is_current(self, key: Key, sent: Sent[Partition]) -> bool:
        partition = sent.partition
        if self._partitions.get(key) is not partition or partition.role is not Role.FOLLOWER:
            return False
        requested = (sent.request.current_leader_epoch, sent.request.fetch_offset)
        return requested == (partition.leader_epoch, partition.log.log_end_offset)

    def _delay(self, key: Key) -> None:
        """Name a partition again after the backoff, or at once if its request changes before."""
        delay = self._delayed[key] = object()
        self._purgatory.park(self._context.config.replica_fetch_backoff_ms, partial(self._end_delay, key, delay))

    def _end_delay(self, key: Key, delay: object) -> None:
        if self._delayed.get(key) is delay:
            del self._delayed[key]
            self._changed[key] = True

    def _apply(self, partition: Partition, data: Any) -> bool:
        """Apply one partition's part of the response; False if it must be fetched again after a backoff."""
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            spawn(self._handle_out_of_range(partition, partition.leader_epoch))
            return False
        if data.error_code != ErrorCode.NONE:
            return False
        if data.diverging_epoch.end_offset >= 0:
            diverging = Diverging(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            if self._context.guards.truncate_before_hw:
                partition.truncate_to_epoch_end(diverging)
            else:  # consumers can read records that the delayed truncation will remove (KAFKA-14704)
                partition.raise_high_watermark(data.high_watermark)
                spawn(self._truncate_later(partition, diverging, partition.leader_epoch))
            return True
        try:
            partition.append_fetched(data.records or b"", data.high_watermark)
            if partition.log.log_start_offset < data.log_start_offset <= partition.high_watermark:  # KIP-107
                partition.advance_log_start(data.log_start_offset)
        except CorruptBatchError:
            return False
        return True

    async def _truncate_later(self, partition: Partition, diverging: Diverging, epoch: int) -> None:
        await self._purgatory.sleep(self._context.config.replica_fetch_backoff_ms)
        if (partition.role, partition.leader_epoch) == (Role.FOLLOWER, epoch):
            partition.truncate_to_epoch_end(diverging)

    async def _handle_out_of_range(self, partition: Partition, epoch: int) -> None:
        """Handle OFFSET_OUT_OF_RANGE: truncate to the leader's log end, or restart at the leader's log start."""
        ends = [await self._leader_offset(partition, timestamp) for timestamp in (EARLIEST, LATEST)]
        if None in ends or (partition.role, partition.leader_epoch) != (Role.FOLLOWER, epoch):
            return
        earliest, latest = ends
        if latest is not None and partition.log.log_end_offset > latest:
            partition.truncate_to(latest)
        elif earliest is not None and partition.log.log_end_offset < earliest:
            partition.restart_at(earliest)

    async def _leader_offset(self, partition: Partition, timestamp: int) -> int | None:
        requested = ListOffsetsPartition(
            partition_index=partition.partition, current_leader_epoch=partition.leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=self._context.broker_id,
            topics=(ListOffsetsTopic(name=partition.topic, partitions=(requested,)),),
        )
        reply = await self._peers.call(self._leader, request, LIST_OFFSETS_VERSION)
        if reply is None or reply.topics[0].partitions[0].error_code != ErrorCode.NONE:
            return None
        return int(reply.topics[0].partitions[0].offset)
