"""Walk along the state table of a transaction: every request in every state, and the reply that each must have.

The table is `highwater.reference.transactions.states`, which is Kafka's (KIP-98, KIP-360). A state that only the
coordinator leaves is passed by polling. Expected replies come from the same table that the broker uses, so a difference
between table and broker is found.
"""

from dataclasses import dataclass
from typing import Final

from highwater.fuzz.wire.oracles import code_name
from highwater.fuzz.wire.sequences.context import Stage
from highwater.fuzz.wire.sequences.logs import Producer
from highwater.fuzz.wire.sequences.transactions import FENCED, TRANSACTION, add_partition, end_request
from highwater.reference.client.connection import Connection
from highwater.reference.transactions.states import IDLE, STEPS, TransactionState
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import FindCoordinatorRequest
from highwater.reference.wire.messages.transactions import DescribeTransactionsRequest, InitProducerIdRequest

S = TransactionState
STEPS_OF_A_WALK: Final = (4, 12)
LOOKS_MAX: Final = 400
ENDS: Final = {True: (S.PREPARE_COMMIT, S.COMPLETE_COMMIT), False: (S.PREPARE_ABORT, S.COMPLETE_ABORT)}
"""By whether it commits: the state that EndTxn leads to, and where that ends."""


@dataclass
class Life:
    """A producer of one transactional id, whom we know better than the coordinator. `former` lost its epoch to it."""

    stage: Stage
    line: Connection
    topic: str
    producer: Producer
    state: TransactionState = S.EMPTY
    former: Producer | None = None

    def initialise(self) -> None:
        """A new epoch. What was open is aborted before: until then it is asked to come again."""
        name = self.producer.transactional_id
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        self._allowed(S.EMPTY if self.state in IDLE else S.PREPARE_EPOCH_FENCE)
        for _ in range(LOOKS_MAX):
            answer = self.stage.call(self.line, request)
            if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            self.stage.require(self.state not in IDLE, "nothing is open, and it is told to wait")
        self.stage.accepted(answer.error_code)
        newer = Producer(answer.producer_id, answer.producer_epoch, transactional_id=name)
        older = self.producer
        self.stage.require(
            (newer.producer_id, newer.epoch) > (older.producer_id, older.epoch),
            f"producer {newer.producer_id} epoch {newer.epoch} after {older.producer_id} epoch {older.epoch}",
        )
        self.producer, self.former, self.state = newer, older if older.producer_id >= 0 else None, S.EMPTY

    def add(self) -> None:
        self._allowed(S.ONGOING)
        self.stage.accepted(add_partition(self.stage, self.line, self.topic, self.producer))
        self.state = S.ONGOING

    def commit(self) -> None:
        self._end(committed=True)

    def abort(self) -> None:
        self._end(committed=False)

    def _end(self, *, committed: bool) -> None:
        """With nothing open it is a repetition of how the last one ended, or refused."""
        under_way, complete = ENDS[committed]
        expected = ErrorCode.NONE if self.state in {S.ONGOING, complete} else ErrorCode.INVALID_TXN_STATE
        code = self.stage.call(self.line, end_request(self.producer, committed=committed)).error_code
        self.stage.require(
            self.stage.accepted(code, ErrorCode.INVALID_TXN_STATE) == (expected is ErrorCode.NONE),
            f"{code_name(code)} to the end of a transaction that is {self.state}, {expected.name} expected",
        )
        if self.state is S.ONGOING:
            self._allowed(under_way)
            self.state = complete

    def act_as_former(self) -> None:
        """Who has lost its epoch can end and begin nothing."""
        if self.former is None:
            return
        if self.stage.chance.random() < 0.5:
            code = add_partition(self.stage, self.line, self.topic, self.former)
        else:
            code = self.stage.call(self.line, end_request(self.former, committed=True)).error_code
        self.stage.require(not self.stage.accepted(code, *FENCED), "a fenced producer is heard")

    def _allowed(self, to: TransactionState) -> None:
        assert (self.state, to) in STEPS, f"the table does not lead from {self.state} to {to}"

    def agree(self) -> None:
        """The coordinator comes to describe it so, after it has passed through nothing that the table does not have."""
        for _ in range(LOOKS_MAX):
            name = self.producer.transactional_id or ""
            (each,) = self.stage.call(
                self.line, DescribeTransactionsRequest(transactional_ids=(name,))
            ).transaction_states
            self.stage.accepted(each.error_code)
            told = each.transaction_state
            if told == self.state:
                break
            self.stage.require((told, self.state) in STEPS, f"{told} on the way to {self.state}")
        self.stage.require(told == self.state, f"stays {told}, {self.state} expected")
        self.stage.require(
            (each.producer_id, each.producer_epoch) == (self.producer.producer_id, self.producer.epoch),
            f"described as producer {each.producer_id} epoch {each.producer_epoch}",
        )
        partitions = [(topic.topic, *topic.partitions) for topic in each.topics]
        expected = [(self.topic, 0)] if self.state is S.ONGOING else []
        self.stage.require(partitions == expected, f"described with partitions {partitions}, {expected} expected")


def play(stage: Stage) -> None:
    line = stage.line()
    topic, name = stage.topic(line), f"fuzz-states-{stage.chance.getrandbits(40):x}"
    version = stage.version(FindCoordinatorRequest, at_least=1)
    stage.call(line, FindCoordinatorRequest(key=name, key_type=TRANSACTION), version)
    life = Life(stage, line, topic, Producer(transactional_id=name))
    life.initialise()
    for _ in stage.steps(*STEPS_OF_A_WALK):
        stage.chance.choice(ACTIONS)(life)
        life.agree()
    if life.state is S.ONGOING:
        life.abort()


ACTIONS: Final = (
    Life.initialise, Life.add, Life.add, Life.commit, Life.commit, Life.abort, Life.act_as_former,
)  # fmt: skip
