"""Transaction markers: control batches that coordinators send and leaders append to end a transaction (KIP-98)."""

from collections.abc import Callable
from typing import Any

from highwater.reference.context import Context
from highwater.reference.effects import Request
from highwater.reference.groups.store import OFFSETS_TOPIC, GroupStore
from highwater.reference.metadata_cache import MetadataCache
from highwater.reference.peers import Peers
from highwater.reference.procedures import Pending, start_procedure
from highwater.reference.replication.partition import Role
from highwater.reference.replication.purgatory import Purgatory
from highwater.reference.replication.replica_manager import ReplicaManager
from highwater.reference.storage.producer_state import Marker, marker_record
from highwater.reference.transactions.states import TransactionState
from highwater.reference.transactions.tracing import trace_marker
from highwater.reference.transactions.transaction import EPOCH_BUMP_VERSION, TopicPartition, Transaction
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from highwater.reference.wire.records import batch_headers, build_batch

MARKERS_VERSION = 2
RETRY_MS = 50

# The leader knows a later epoch of the producer or of the coordinator: this coordinator was replaced, so it stops.
FENCING_ERRORS = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}


class MarkerWriter:
    """Serve WriteTxnMarkers (key 27) as the leader of partitions."""

    def __init__(self, context: Context, replicas: ReplicaManager, groups: GroupStore) -> None:
        self._context, self._replicas, self._groups = context, replicas, groups

    async def write(self, request: Request) -> WriteTxnMarkersResponse:
        """Append the markers and wait until they are committed; return an error code for each partition."""
        body: WriteTxnMarkersRequest = request.body
        started = [
            (marker, [(topic.name, self._begin(marker, topic)) for topic in marker.topics]) for marker in body.markers
        ]
        results = []
        for marker, topics in started:
            topic_results = []
            for name, partitions in topics:
                parts = [
                    WritableTxnMarkerPartitionResult(partition_index=number, error_code=await pending)
                    for number, pending in partitions
                ]
                topic_results.append(WritableTxnMarkerTopicResult(name=name, partitions=tuple(parts)))
            results.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=tuple(topic_results)))
        return WriteTxnMarkersResponse(markers=tuple(results))

    def _begin(self, marker: WritableTxnMarker, topic: WritableTxnMarkerTopic) -> list[tuple[int, Pending[ErrorCode]]]:
        return [
            (number, start_procedure(self._write_one, marker, topic.name, number))
            for number in dict.fromkeys(topic.partition_indexes)  # one that is named twice has one result in Kafka, too
        ]

    async def _write_one(self, marker: WritableTxnMarker, topic: str, number: int) -> ErrorCode:
        partition = self._replicas.partitions.get((topic, number))
        if partition is None:  # also if others have replicas (KafkaApis.handleWriteTxnMarkersRequest)
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition.role is not Role.LEADER:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not partition.has_min_isr(partition.isr):
            return ErrorCode.NOT_ENOUGH_REPLICAS
        key, value = marker_record(Marker(marker.transaction_result, marker.coordinator_epoch))
        batch = build_batch(
            [(self._context.now.wall_ms, key, value, ())],
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transactional=True,
            control=True,
            timestamp_type=self._replicas.timestamp_type(topic),
        )
        ((_, header),) = batch_headers(batch)
        guards, producers = self._context.guards, partition.log.producers
        ends_version_2 = marker.transaction_version >= EPOCH_BUMP_VERSION
        is_repeated = ends_version_2 and guards.answer_repeated_marker and producers.repeats_marker(header)
        if not is_repeated:
            error = producers.check_marker(header, marker.coordinator_epoch, guards, ends_version_2=ends_version_2)
            if error is not ErrorCode.NONE:
                return error
            partition.append(batch, header)
        written = producers.last_marker(header.producer_id)
        error = await partition.committed(written + 1, self._context.config.request_timeout_ms)
        # Behind a marker that was repeated, the producer may meanwhile have begun the next transaction.
        is_last = not is_repeated or producers.repeats_marker(header)
        if error is ErrorCode.NONE and is_last:
            trace_marker(
                self._context, topic, number, header,
                committed=marker.transaction_result, coordinator_epoch=marker.coordinator_epoch,
            )  # fmt: skip
        if error is ErrorCode.NONE and topic == OFFSETS_TOPIC and is_last:
            self._groups.end_transaction(number, marker.producer_id, committed=marker.transaction_result)
        return error


class MarkerSender:
    """Send markers as the coordinator until every partition has one (Apache Kafka: TransactionMarkerChannelManager)."""

    def __init__(
        self, context: Context, cache: MetadataCache, peers: Peers, purgatory: Purgatory, writer: MarkerWriter
    ) -> None:
        self._context, self._cache, self._peers = context, cache, peers
        self._purgatory, self._writer = purgatory, writer

    def pause(self) -> Pending[None]:
        """Wait for the retry interval."""
        return self._purgatory.sleep(RETRY_MS)

    async def send(self, transaction: Transaction, coordinator_epoch: int, is_current: Callable[[], bool]) -> bool:
        """Send until every partition has the marker; return False if this broker is not the coordinator any more.

        `is_current` returns whether this broker is still the coordinator.
        """
        remaining = set(transaction.partitions)
        while remaining and is_current():
            remaining = {partition for partition in remaining if not self._deleted(partition)}
            replies = [
                self._send_marker(leader, _marker(transaction, partitions, coordinator_epoch))
                for leader, partitions in self._by_leader(remaining).items()
            ]
            for reply in replies:
                for partition, error in _errors(await reply):
                    if error in FENCING_ERRORS:
                        return False
                    if error is ErrorCode.NONE:
                        remaining.discard(partition)
            if remaining:
                await self.pause()
        return is_current()

    def _deleted(self, partition: TopicPartition) -> bool:
        """Return whether the topic was deleted; before the first UpdateMetadata this is unknown, so False."""
        return bool(self._cache.topics) and not self._cache.knows(*partition)

    def _by_leader(self, partitions: set[TopicPartition]) -> dict[int, list[TopicPartition]]:
        leaders: dict[int, list[TopicPartition]] = {}
        for partition in sorted(partitions):
            leader = self._cache.leader_of(*partition)
            if leader >= 0:
                leaders.setdefault(leader, []).append(partition)
        return leaders

    def _send_marker(self, leader: int, marker: WritableTxnMarker) -> Pending[Any]:
        body = WriteTxnMarkersRequest(markers=(marker,))
        if leader == self._context.broker_id:
            return start_procedure(self._writer.write, Request(0, MARKERS_VERSION, body))
        return self._peers.call(leader, body, MARKERS_VERSION)


def _marker(transaction: Transaction, partitions: list[TopicPartition], coordinator_epoch: int) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return WritableTxnMarker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_result=transaction.state is TransactionState.PREPARE_COMMIT,
        topics=tuple(WritableTxnMarkerTopic(name=name, partition_indexes=tuple(n)) for name, n in topics.items()),
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction.client_version,
    )


def _errors(response: WriteTxnMarkersResponse | None) -> list[tuple[TopicPartition, ErrorCode]]:
    """Return the error code of each partition; empty if there was no response."""
    if response is None:
        return []
    return [
        ((topic.name, part.partition_index), ErrorCode(part.error_code))
        for marker in response.markers
        for topic in marker.topics
        for part in topic.partitions
    ]
