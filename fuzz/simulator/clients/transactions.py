"""A simulated transactional producer: one transaction after the other, each with one record for every partition."""

from typing import Any, Final

from highwater.fuzz.simulator.clients.producers import METADATA_VERSION, RETRY_MS, Client, produce_request
from highwater.fuzz.simulator.cluster import TOPIC
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
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from highwater.reference.wire.records import build_batch

TRANSACTION: Final = 1  # the type of a coordinator's key
BUSY: Final = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
PAUSE_MS: Final = 10
TRANSACTION_TIMEOUT_MS: Final = 60_000


class TransactionalProducer(Client):
    """Writes values `txn <producer> <transaction> <partition>` and aborts every third transaction.

    With `classic` it sends AddPartitionsToTxn, for all partitions or before each record, and EndTxn does not change the
    producer epoch; otherwise it uses transaction version 2 (KIP-890). After an error or a time-out it sends
    InitProducerId again, which ends the open transaction; with `classic` it ends it itself if a Produce timed out.
    """

    def __init__(
        self, brokers: list[int], number: int, partitions: int, *, classic: bool,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    ) -> None:  # fmt: skip
        super().__init__(brokers)
        self.number, self._partitions, self._classic = number, partitions, classic
        self._transaction_timeout_ms = transaction_timeout_ms
        self._name = f"txn{number}"
        self._coordinator = -1
        self._producer = (-1, -1)
        self._leaders: dict[int, int] = {}
        self._sequences: dict[int, int] = {}
        self._written = 0  # partitions with a record of this transaction
        self._added = 0  # partitions that were added to this transaction
        self._aborts = self._is_producing = False
        self.transaction = 0
        self.asked: set[int] = set()  # transactions whose commit was requested
        self.acked = 0  # transactions with a successful EndTxn response
        self.stopped = False

    def _send_next(self) -> None:
        self._is_producing = False
        if self.stopped and not self._written and not self._added and not self._aborts:
            return
        if self._coordinator < 0:
            self._send_request(self._next_broker(), FindCoordinatorRequest(key=self._name, key_type=TRANSACTION), 2)
        elif self._producer[0] < 0:
            self._send_request(
                self._coordinator,
                InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=self._transaction_timeout_ms),
                4,
            )
        elif len(self._leaders) < self._partitions:
            topic = MetadataRequestTopic(name=TOPIC)
            self._send_request(self._next_broker(), MetadataRequest(topics=(topic,)), METADATA_VERSION)
        elif self._aborts:
            self._end(commit=False)
        elif self._classic and self._added <= self._written < self._partitions:
            self._add_partitions()
        elif self._written < self._partitions:
            self._produce(self._written)
        else:
            self._end(commit=self.transaction % 3 > 0)

    def _end(self, *, commit: bool) -> None:
        producer_id, epoch = self._producer
        if commit:
            self.asked.add(self.transaction)
        body = EndTxnRequest(
            transactional_id=self._name, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        self._send_request(self._coordinator, body, 3 if self._classic else 5)

    def _add_partitions(self) -> None:
        last = self._partitions if self.transaction % 2 else self._added + 1
        topic = AddPartitionsToTxnTopic(name=TOPIC, partitions=tuple(range(self._added, last)))
        body = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name, v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1], v3_and_below_topics=(topic,),
        )  # fmt: skip
        self._send_request(self._coordinator, body, 3)

    def _produce(self, number: int) -> None:
        value = b"txn %d %d %d" % (self.number, self.transaction, number)
        batch = build_batch(
            [(self.now.wall_ms, None, value, ())], producer_id=self._producer[0], producer_epoch=self._producer[1],
            base_sequence=self._sequences.get(number, 0), transactional=True,
        )  # fmt: skip
        body = produce_request(TOPIC, number, batch, pace=self.pace, transactional_id=self._name)
        self._send_request(self._leaders[number], body, 9 if self._classic else 12)
        self._is_producing = True

    # -- answers -----------------------------------------------------------------------------------

    def _timed_out(self) -> None:
        if self._classic and self._is_producing:  # the record may be stored: it is aborted, and then fenced (KIP-360)
            self._aborts = True
        else:
            self._restart()

    def _restart(self) -> None:
        self._coordinator, self._producer = -1, (-1, -1)
        self._leaders.clear()
        self._next_transaction()

    def _next_transaction(self) -> None:
        self.transaction += 1
        self._written, self._added, self._aborts = 0, 0, False

    def _handle_reply(self, body: Any) -> None:
        error = self._handle_body(body)
        if error is ErrorCode.NONE:
            self._set_timer(PAUSE_MS)
            return
        if error is ErrorCode.NOT_COORDINATOR:
            self._coordinator = -1  # the next one has the transaction
        elif error not in BUSY:
            self._restart()
        self._set_timer(RETRY_MS)

    def _handle_body(self, body: Any) -> ErrorCode:
        if isinstance(body, MetadataResponse):
            self._leaders = {
                p.partition_index: p.leader_id for t in body.topics for p in t.partitions if p.leader_id > 0
            }
            return ErrorCode.NONE if len(self._leaders) == self._partitions else ErrorCode.LEADER_NOT_AVAILABLE
        if isinstance(body, ProduceResponse):
            answer = body.responses[0].partition_responses[0]
            if answer.error_code == ErrorCode.NONE:
                self._sequences[self._written] = self._sequences.get(self._written, 0) + 1
                self._written += 1
            return ErrorCode(answer.error_code)
        if not isinstance(body, FindCoordinatorResponse | InitProducerIdResponse | EndTxnResponse):
            added = body.results_by_topic_v3_and_below[0].results_by_partition
            error = ErrorCode(max(part.partition_error_code for part in added))
            self._added += len(added) if error is ErrorCode.NONE else 0
            return error
        error = ErrorCode(body.error_code)
        if error is ErrorCode.NONE:
            self._handle_success(body)
        return error

    def _handle_success(self, body: FindCoordinatorResponse | InitProducerIdResponse | EndTxnResponse) -> None:
        if isinstance(body, FindCoordinatorResponse):
            self._coordinator = body.node_id
            return
        if isinstance(body, EndTxnResponse):
            self.acked += 1
            if self._aborts:
                self._restart()
                return
            self._next_transaction()
        if isinstance(body, InitProducerIdResponse) or not self._classic:
            self._producer = body.producer_id, body.producer_epoch
            self._sequences.clear()
