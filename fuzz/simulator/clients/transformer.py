"""A simulated consume-transform-produce client: reads committed records, writes each to another topic exactly once.

Each transaction has the records of one Fetch response and the positions after them (KIP-98, KIP-447). After an error or
a time-out in a transaction the client sends InitProducerId, which ends it, and begins at the committed offsets again.
InitProducerId comes before OffsetFetch: it fences a former process, so that no commit follows the fetched offsets.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from highwater.fuzz.simulator.clients.producers import METADATA_VERSION, PRODUCE_VERSION, RETRY_MS, produce_request
from highwater.fuzz.simulator.clients.readers import FIND_COORDINATOR_VERSION, Reader, ReadObserver
from highwater.fuzz.simulator.clients.transactions import BUSY, TRANSACTION, TRANSACTION_TIMEOUT_MS
from highwater.fuzz.simulator.cluster import OUTPUT_TOPIC, TOPIC
from highwater.reference.clients.fetched_records import FetchedRecords
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from highwater.reference.wire.messages.produce import (
    ProduceResponse,
)
from highwater.reference.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from highwater.reference.wire.records import build_batch

TRANSFORM_GROUP: Final = "transform"
TRANSACTIONAL_ID: Final = "transformer"
NO_PRODUCER: Final = (-1, -1)


class Transformer(Reader):
    """Writes `<partition> <offset> <value>` to `OUTPUT_TOPIC` for each record of `TOPIC` that it delivers.

    With `classic` it sends AddOffsetsToTxn and AddPartitionsToTxn; otherwise it uses transaction version 2 (KIP-890).
    """

    def __init__(
        self, brokers: Sequence[int], name: str, partitions: Sequence[int], observer: ReadObserver, *, classic: bool
    ) -> None:
        super().__init__(brokers, name, partitions, observer, read_committed=True, group=TRANSFORM_GROUP)
        self._classic = classic
        self._transaction_coordinator = self._output_leader = -1
        self._producer = NO_PRODUCER
        self._sequence = 0
        self._buffer: list[tuple[int, int, bytes]] = []  # partition, offset and value of the records to write
        self._step = 0  # of the open transaction
        self._steps: list[Callable[[], None]] = [
            *([self._add_offsets, self._add_partitions] if classic else []),
            self._produce,
            self._commit_offsets,
            self._end,
        ]
        self._handlers |= {
            InitProducerIdResponse: self._handle_producer,
            AddOffsetsToTxnResponse: lambda body: self._step_done([body.error_code]),
            AddPartitionsToTxnResponse: lambda body: self._step_done(
                [
                    part.partition_error_code
                    for topic in body.results_by_topic_v3_and_below
                    for part in topic.results_by_partition
                ]
            ),
            ProduceResponse: self._handle_produced,
            TxnOffsetCommitResponse: lambda body: self._step_done(
                [part.error_code for topic in body.topics for part in topic.partitions]
            ),
            EndTxnResponse: self._handle_ended,
        }

    # -- requests ----------------------------------------------------------------------------------

    def _send_next(self) -> None:
        if self._transaction_coordinator < 0:
            body = FindCoordinatorRequest(key=TRANSACTIONAL_ID, key_type=TRANSACTION)
            self._send_request(self._next_broker(), body, FIND_COORDINATOR_VERSION)
        elif self._producer == NO_PRODUCER:
            init = InitProducerIdRequest(
                transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
            )
            self._send_request(self._transaction_coordinator, init, 4)
        elif self._output_leader < 0:
            topic = MetadataRequestTopic(name=OUTPUT_TOPIC)
            self._send_request(self._next_broker(), MetadataRequest(topics=(topic,)), METADATA_VERSION)
        elif self._buffer:
            self._steps[self._step]()
        else:
            super()._send_next()

    def _add_offsets(self) -> None:
        producer_id, epoch = self._producer
        body = AddOffsetsToTxnRequest(
            transactional_id=TRANSACTIONAL_ID, producer_id=producer_id, producer_epoch=epoch, group_id=TRANSFORM_GROUP
        )
        self._send_request(self._transaction_coordinator, body, 3)

    def _add_partitions(self) -> None:
        producer_id, epoch = self._producer
        body = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTIONAL_ID, v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=OUTPUT_TOPIC, partitions=(0,)),),
        )  # fmt: skip
        self._send_request(self._transaction_coordinator, body, 3)

    def _produce(self) -> None:
        batch = build_batch(
            [(self.now.wall_ms, None, b"%d %d %s" % record, ()) for record in self._buffer],
            producer_id=self._producer[0], producer_epoch=self._producer[1], base_sequence=self._sequence,
            transactional=True,
        )  # fmt: skip
        body = produce_request(OUTPUT_TOPIC, 0, batch, pace=self.pace, transactional_id=TRANSACTIONAL_ID)
        self._send_request(self._output_leader, body, PRODUCE_VERSION if self._classic else 12)

    def _commit_offsets(self) -> None:
        producer_id, epoch = self._producer
        partitions = tuple(
            TxnOffsetCommitRequestPartition(partition_index=number, committed_offset=self.positions[number])
            for number in sorted({number for number, _, _ in self._buffer})
        )
        body = TxnOffsetCommitRequest(
            transactional_id=TRANSACTIONAL_ID, group_id=TRANSFORM_GROUP, producer_id=producer_id, producer_epoch=epoch,
            topics=(TxnOffsetCommitRequestTopic(name=TOPIC, partitions=partitions),),
        )  # fmt: skip
        self._send_request(self._coordinator, body, 3 if self._classic else 5)

    def _end(self) -> None:
        producer_id, epoch = self._producer
        body = EndTxnRequest(
            transactional_id=TRANSACTIONAL_ID, producer_id=producer_id, producer_epoch=epoch, committed=True
        )
        self._send_request(self._transaction_coordinator, body, 3 if self._classic else 5)

    # -- responses ---------------------------------------------------------------------------------

    def _timed_out(self) -> None:
        super()._timed_out()
        self._restart()

    def _restart(self) -> None:
        """Forget the producer and the positions; what was read but not committed is read again."""
        self._transaction_coordinator = self._output_leader = -1
        self._producer = NO_PRODUCER
        self.positions.clear()
        self._buffer.clear()
        self._step = 0

    def _handle_reply(self, body: Any) -> None:
        error = self._handlers[type(body)](body)
        if error is not ErrorCode.NONE and error not in BUSY:
            super()._timed_out()
            self._restart()
        self._set_timer(0 if error is ErrorCode.NONE else RETRY_MS)

    def _deliver(self, number: int, fetched: FetchedRecords) -> None:
        self._buffer += [(number, offset, value) for offset, value in fetched.records]

    def _step_done(self, errors: Sequence[int]) -> ErrorCode:
        error = ErrorCode(next((code for code in errors if code), 0))
        self._step += error is ErrorCode.NONE
        return error

    def _handle_coordinator(self, body: FindCoordinatorResponse) -> ErrorCode:
        if self._transaction_coordinator >= 0:
            return super()._handle_coordinator(body)
        if body.error_code == ErrorCode.NONE:
            self._transaction_coordinator = body.node_id
        return ErrorCode(body.error_code)

    def _handle_metadata(self, body: MetadataResponse) -> ErrorCode:
        if body.topics[0].name != OUTPUT_TOPIC:
            return super()._handle_metadata(body)
        self._output_leader = next((part.leader_id for part in body.topics[0].partitions), -1)
        return ErrorCode.NONE if self._output_leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE

    def _handle_producer(self, body: InitProducerIdResponse) -> ErrorCode:
        if body.error_code == ErrorCode.NONE:
            self._producer, self._sequence = (body.producer_id, body.producer_epoch), 0
        return ErrorCode(body.error_code)

    def _handle_produced(self, body: ProduceResponse) -> ErrorCode:
        error = self._step_done([body.responses[0].partition_responses[0].error_code])
        if error is ErrorCode.NONE:
            self._sequence += len(self._buffer)
        return error

    def _handle_ended(self, body: EndTxnResponse) -> ErrorCode:
        if body.error_code == ErrorCode.NONE:
            self._buffer.clear()
            self._step = 0
            if not self._classic:
                self._producer, self._sequence = (body.producer_id, body.producer_epoch), 0
        return ErrorCode(body.error_code)
