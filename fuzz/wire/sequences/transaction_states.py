"""Walk along the state table of a transaction: every request in every state, and the reply that each must have.

The table is `highwater.reference.transactions.states`, which is Kafka's (KIP-98, KIP-360). A state that only the
coordinator leaves is passed by polling. Expected replies come from the same table that the broker uses, so a difference
between table and broker is found.
"""

from dataclasses import dataclass
from typing import Final

from highwater.fuzz.wire.oracles.responses import code_name
from highwater.fuzz.wire.sequences.context import SequenceContext
from highwater.fuzz.wire.sequences.logs import Producer, produce_batch
from highwater.fuzz.wire.sequences.transactions import FENCED, TRANSACTION, add_partition, add_partitions, end_request
from highwater.reference.client.connection import Connection
from highwater.reference.transactions.states import IDLE, STEPS, TransactionState
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import FindCoordinatorRequest
from highwater.reference.wire.messages.produce import ProduceRequest
from highwater.reference.wire.messages.transactions import DescribeTransactionsRequest, InitProducerIdRequest

S = TransactionState
STEPS_OF_A_WALK: Final = (4, 12)
POLLS_MAX: Final = 400
UNKNOWN: Final = 99
LAST_WITHOUT_ADDING: Final = 11
"""Version of Produce, the first that knows TRANSACTION_ABORTABLE; a later one adds the partition to the transaction."""
NOT_ADDED: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED)
ENDS: Final = {True: (S.PREPARE_COMMIT, S.COMPLETE_COMMIT), False: (S.PREPARE_ABORT, S.COMPLETE_ABORT)}
"""By whether EndTxn commits: the state that it leads to, and the final state."""


@dataclass
class TransactionalProducer:
    """A producer and the expected state of its transaction. `fenced` is the producer whose epoch it replaced."""

    context: SequenceContext
    connection: Connection
    topic: str
    producer: Producer
    state: TransactionState = S.EMPTY
    fenced: Producer | None = None

    def initialise(self) -> None:
        """Get a new epoch. While an open transaction is aborted, the broker returns CONCURRENT_TRANSACTIONS."""
        name = self.producer.transactional_id
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        self._allowed(S.EMPTY if self.state in IDLE else S.PREPARE_EPOCH_FENCE)
        for _ in range(POLLS_MAX):
            answer = self.context.call(self.connection, request)
            if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            self.context.require(self.state not in IDLE, "CONCURRENT_TRANSACTIONS without an open transaction")
        self.context.accepted(answer.error_code)
        newer = Producer(answer.producer_id, answer.producer_epoch, transactional_id=name)
        older = self.producer
        self.context.require(
            (newer.producer_id, newer.epoch) > (older.producer_id, older.epoch),
            f"producer {newer.producer_id} epoch {newer.epoch} after {older.producer_id} epoch {older.epoch}",
        )
        self.producer, self.fenced, self.state = newer, older if older.producer_id >= 0 else None, S.EMPTY

    def add(self) -> None:
        self._allowed(S.ONGOING)
        self.context.accepted(add_partition(self.context, self.connection, self.topic, self.producer))
        self.state = S.ONGOING

    def add_unknown(self) -> None:
        """A partition that does not exist is refused, and the one beside it is not added."""
        codes = add_partitions(self.context, self.connection, self.topic, self.producer, (0, UNKNOWN))
        done = [self.context.accepted(code, *NOT_ADDED) for code in codes]
        self.context.require(not any(done), f"partition {UNKNOWN} of {self.topic} or the one beside it is added")

    def produce_without_adding(self) -> None:
        """Produce to a partition outside of the transaction: refused since KIP-890, with an error of that version."""
        self.initialise()
        version = self.context.version(ProduceRequest, at_most=LAST_WITHOUT_ADDING)
        batch = self.producer.batch(self.context, [b"outside"])
        part = produce_batch(
            self.context, self.connection, self.topic, batch, self.producer.transactional_id, version=version
        )
        abortable = (ErrorCode.TRANSACTION_ABORTABLE,) if version == LAST_WITHOUT_ADDING else ()
        self.context.accepted(part.error_code, ErrorCode.INVALID_TXN_STATE, *abortable)

    def commit(self) -> None:
        self._end(committed=True)

    def abort(self) -> None:
        self._end(committed=False)

    def _end(self, *, committed: bool) -> None:
        """End the transaction. If none is open, only a repetition of the last EndTxn succeeds."""
        under_way, complete = ENDS[committed]
        expected = ErrorCode.NONE if self.state in {S.ONGOING, complete} else ErrorCode.INVALID_TXN_STATE
        code = self.context.call(self.connection, end_request(self.producer, committed=committed)).error_code
        self.context.require(
            self.context.accepted(code, ErrorCode.INVALID_TXN_STATE) == (expected is ErrorCode.NONE),
            f"{code_name(code)} to the end of a transaction that is {self.state}, {expected.name} expected",
        )
        if self.state is S.ONGOING:
            self._allowed(under_way)
            self.state = complete

    def act_as_fenced(self) -> None:
        """Requests with an outdated epoch must fail."""
        if self.fenced is None:
            return
        if self.context.rng.random() < 0.5:
            code = add_partition(self.context, self.connection, self.topic, self.fenced)
        else:
            code = self.context.call(self.connection, end_request(self.fenced, committed=True)).error_code
        self.context.require(not self.context.accepted(code, *FENCED), "a request of a fenced producer succeeds")

    def _allowed(self, to: TransactionState) -> None:
        assert (self.state, to) in STEPS, f"the table does not lead from {self.state} to {to}"

    def await_description(self) -> None:
        """Poll DescribeTransactions until the expected state; other states on the way must be in the table."""
        for _ in range(POLLS_MAX):
            name = self.producer.transactional_id or ""
            (description,) = self.context.call(
                self.connection, DescribeTransactionsRequest(transactional_ids=(name,))
            ).transaction_states
            self.context.accepted(description.error_code)
            state = description.transaction_state
            if state == self.state:
                break
            self.context.require((state, self.state) in STEPS, f"{state} on the way to {self.state}")
        self.context.require(state == self.state, f"stays {state}, {self.state} expected")
        self.context.require(
            (description.producer_id, description.producer_epoch) == (self.producer.producer_id, self.producer.epoch),
            f"described as producer {description.producer_id} epoch {description.producer_epoch}",
        )
        partitions = [(topic.topic, *topic.partitions) for topic in description.topics]
        expected = [(self.topic, 0)] if self.state is S.ONGOING else []
        self.context.require(partitions == expected, f"described with partitions {partitions}, {expected} expected")


def run(context: SequenceContext) -> None:
    connection = context.connect()
    topic, name = context.topic(connection), f"fuzz-states-{context.rng.getrandbits(40):x}"
    version = context.version(FindCoordinatorRequest, at_least=1)
    context.call(connection, FindCoordinatorRequest(key=name, key_type=TRANSACTION), version)
    transaction = TransactionalProducer(context, connection, topic, Producer(transactional_id=name))
    transaction.initialise()
    for _ in context.steps(*STEPS_OF_A_WALK):
        context.rng.choice(ACTIONS)(transaction)
        transaction.await_description()
    if transaction.state is S.ONGOING:
        transaction.abort()
        transaction.await_description()
    transaction.produce_without_adding()


ACTIONS: Final = (
    TransactionalProducer.initialise,
    *(TransactionalProducer.add,) * 2,
    TransactionalProducer.add_unknown,
    *(TransactionalProducer.commit,) * 2,
    TransactionalProducer.abort,
    TransactionalProducer.act_as_fenced,
)
