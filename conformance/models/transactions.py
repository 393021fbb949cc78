"""What coordinators list and describe of a transactional producer (KIP-664)."""

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from highwater.conformance.models.comparison import ANYTHING
from highwater.reference.wire.messages.transactions import ListedTransactionState, TopicData, TransactionState

EMPTY, ONGOING, COMMITTED, ABORTED = "Empty", "Ongoing", "CompleteCommit", "CompleteAbort"


class Identified(Protocol):
    """What a coordinator knows of a producer."""

    id: str
    producer_id: int
    epoch: int
    timeout_ms: int


class Located(Protocol):
    """A partition of a topic."""

    @property
    def name(self) -> str: ...

    @property
    def partition(self) -> int: ...


P = TypeVar("P", bound=Identified)


@dataclass(frozen=True, slots=True)
class ModelTransaction(Generic[P]):
    """A transactional producer, the state of its last transaction, and the partitions of an open one."""

    producer: P
    state: str
    topics: tuple[Located, ...] = ()

    @property
    def listed(self) -> ListedTransactionState:
        return ListedTransactionState(
            transactional_id=self.producer.id, producer_id=self.producer.producer_id, transaction_state=self.state
        )

    @property
    def described(self) -> TransactionState:
        anything: Any = ANYTHING
        epoch = self.producer.epoch
        by_name = {topic.name: (topic.partition,) for topic in self.topics}
        return TransactionState(
            transactional_id=self.producer.id, transaction_state=self.state, producer_epoch=epoch,
            producer_id=self.producer.producer_id, transaction_timeout_ms=self.producer.timeout_ms,
            transaction_start_time_ms=anything,
            topics=tuple(TopicData(topic=name, partitions=numbers) for name, numbers in by_name.items()),
        )  # fmt: skip
