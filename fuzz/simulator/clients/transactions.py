"""A transactional producer inside the simulation: one transaction after the other, each over all partitions."""

from typing import Any, Final

from highwater.fuzz.simulator.clients.producers import METADATA_VERSION, RETRY_MS, Client
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
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
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
    """Values are `txn <producer> <transaction> <partition>`. Of three transactions it aborts one.

    `classic`: AddPartitionsToTxn, and an EndTxn that leaves the epoch as it is; otherwise transaction version 2
    (KIP-890). Whatever goes wrong, it begins anew with InitProducerId, which ends what was open one way or the other.
    """

    def __init__(self, brokers: list[int], number: int, partitions: int, *, classic: bool) -> None:
        super().__init__(brokers)
        self._number, self._partitions, self._classic = number, partitions, classic
        self._name = f"txn{number}"
        self._coordinator = -1
        self._producer = (-1, -1)
        self._leaders: dict[int, int] = {}
        self._sequences: dict[int, int] = {}
        self._written = 0  # partitions of this transaction
        self._added = False
        self.transaction = 0
        self.acked = 0  # transactions whose end was confirmed
        self.stopped = False

    def _go_on(self) -> None:
        if self.stopped and not self._written and not self._added:
            return
        if self._coordinator < 0:
            self._ask(self._next_broker(), FindCoordinatorRequest(key=self._name, key_type=TRANSACTION), 2)
        elif self._producer[0] < 0:
            self._ask(
                self._coordinator,
                InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS),
                4,
            )
        elif len(self._leaders) < self._partitions:
            topic = MetadataRequestTopic(name=TOPIC)
            self._ask(self._next_broker(), MetadataRequest(topics=(topic,)), METADATA_VERSION)
        elif self._classic and not self._added:
            self._add()
        elif self._written < self._partitions:
            self._produce(self._written)
        else:
            producer_id, epoch = self._producer
            body = EndTxnRequest(
                transactional_id=self._name, producer_id=producer_id, producer_epoch=epoch,
                committed=self.transaction % 3 > 0,
            )  # fmt: skip
            self._ask(self._coordinator, body, 3 if self._classic else 5)

    def _add(self) -> None:
        topic = AddPartitionsToTxnTopic(name=TOPIC, partitions=tuple(range(self._partitions)))
        body = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name, v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1], v3_and_below_topics=(topic,),
        )  # fmt: skip
        self._ask(self._coordinator, body, 3)

    def _produce(self, number: int) -> None:
        value = b"txn %d %d %d" % (self._number, self.transaction, number)
        batch = build_batch(
            [(self.now.wall_ms, None, value, ())], producer_id=self._producer[0], producer_epoch=self._producer[1],
            base_sequence=self._sequences.get(number, 0), transactional=True,
        )  # fmt: skip
        data = TopicProduceData(name=TOPIC, partition_data=(PartitionProduceData(index=number, records=batch),))
        body = ProduceRequest(transactional_id=self._name, acks=-1, timeout_ms=600, topic_data=(data,))
        self._ask(self._leaders[number], body, 9 if self._classic else 12)

    # -- answers -----------------------------------------------------------------------------------

    def _timed_out(self) -> None:
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._coordinator, self._producer = -1, (-1, -1)
        self._leaders.clear()
        self._next()

    def _next(self) -> None:
        self.transaction += 1
        self._written, self._added = 0, False

    def _answered(self, body: Any) -> None:
        error = self._take(body)
        if error is ErrorCode.NONE:
            self._wake(PAUSE_MS)
            return
        if error not in BUSY:
            self._begin_anew()
        self._wake(RETRY_MS)

    def _take(self, body: Any) -> ErrorCode:
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
            self._added = error is ErrorCode.NONE
            return error
        error = ErrorCode(body.error_code)
        if error is ErrorCode.NONE:
            self._took(body)
        return error

    def _took(self, body: FindCoordinatorResponse | InitProducerIdResponse | EndTxnResponse) -> None:
        if isinstance(body, FindCoordinatorResponse):
            self._coordinator = body.node_id
            return
        if isinstance(body, EndTxnResponse):
            self.acked += 1
            self._next()
        if isinstance(body, InitProducerIdResponse) or not self._classic:
            self._producer = body.producer_id, body.producer_epoch
            self._sequences.clear()
