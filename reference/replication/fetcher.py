"""Replicate all partitions that follow one leader: one Fetch request at a time (ReplicaFetcherThread)."""

from typing import Any

from highwater.reference.context import Context
from highwater.reference.peers import Peers
from highwater.reference.procedures import spawn
from highwater.reference.replication.partition import Diverging, Partition, Role
from highwater.reference.replication.purgatory import Purgatory
from highwater.reference.storage.log import CorruptBatchError
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from highwater.reference.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

FETCH_VERSION = 12
LIST_OFFSETS_VERSION = 5
EARLIEST, LATEST = -2, -1
RESPONSE_MAX_BYTES = 10 * 1024 * 1024


class Fetcher:
    def __init__(self, context: Context, peers: Peers, purgatory: Purgatory, leader: int) -> None:
        self._context, self._peers, self._purgatory = context, peers, purgatory
        self._leader = leader
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._running = False

    def add(self, partition: Partition) -> None:
        self._partitions[partition.topic, partition.partition] = partition
        if not self._running:
            self._running = True
            spawn(self._run())

    def remove(self, partition: Partition) -> None:
        self._partitions.pop((partition.topic, partition.partition), None)

    async def _run(self) -> None:
        while self._partitions:
            sent = {key: (p, p.leader_epoch, p.log.log_end_offset) for key, p in self._partitions.items()}
            reply = await self._peers.call(self._leader, self._request(), FETCH_VERSION)
            if reply is None or not self._apply_response(reply, sent):
                await self._purgatory.sleep(self._context.config.replica_fetch_backoff_ms)
        self._running = False

    def _request(self) -> FetchRequest:
        config = self._context.config
        topics: dict[str, list[FetchPartition]] = {}
        for (topic, number), partition in self._partitions.items():
            requested = FetchPartition(
                partition=number,
                current_leader_epoch=partition.leader_epoch,
                fetch_offset=partition.log.log_end_offset,
                last_fetched_epoch=partition.log.epochs.latest_epoch if self._context.guards.truncate_by_epoch else -1,
                log_start_offset=partition.log.log_start_offset,
                partition_max_bytes=config.replica_fetch_max_bytes,
            )
            topics.setdefault(topic, []).append(requested)
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
        return FetchRequest(
            replica_id=self._context.broker_id,
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=1,
            max_bytes=RESPONSE_MAX_BYTES,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=tuple(FetchTopic(topic=topic, partitions=tuple(parts)) for topic, parts in topics.items()),
        )

    def _apply_response(self, reply: Any, sent: dict[tuple[str, int], tuple[Partition, int, int]]) -> bool:
        """Apply the response to every partition unchanged since the request; False if none accepted it."""
        succeeded = False
        for topic in reply.responses:
            for data in topic.partitions:
                key = (topic.topic, data.partition_index)
                if key not in sent:
                    continue
                partition, epoch, offset = sent[key]
                current = self._partitions.get(key) is partition and partition.role is Role.FOLLOWER
                if current and (partition.leader_epoch, partition.log.log_end_offset) == (epoch, offset):
                    succeeded |= self._apply(partition, data)
        return succeeded or not self._partitions

    def _apply(self, partition: Partition, data: Any) -> bool:
        """Apply one partition's part of the response; False if the fetch must be retried after a backoff."""
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
