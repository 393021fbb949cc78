"""One transaction of one transactional id and its transitions: each method returns a changed copy."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from highwater.reference.transactions.states import TABLE, TransactionState

NO_EPOCH: Final = -1
NO_PRODUCER_ID: Final = -1
MAX_EPOCH: Final = (1 << 15) - 1
EPOCH_BUMP_VERSION: Final = 2
"""The first transaction version in which EndTxn bumps the epoch (KIP-890)."""

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction as stored in `__transaction_state`; `last_producer_epoch` serves retries of InitProducerId only.

    Times are wall clock milliseconds.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_EPOCH
    last_producer_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    timeout_ms: int = 0
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = -1
    updated_ms: int = -1
    client_version: int = 0
    max_epoch: int = MAX_EPOCH
    """Not stored: a smaller one lets tests and the simulator exhaust the epochs of a producer id."""

    def with_state(self, state: TransactionState, now_ms: int) -> "Transaction":
        """Return a copy in this state; raise InvalidTransitionError if the table has no such transition."""
        TABLE.check(self.state, state)
        return replace(self, state=state, updated_ms=now_ms)

    @property
    def by_topic(self) -> dict[str, list[int]]:
        """Return the partition numbers by topic, sorted."""
        topics: dict[str, list[int]] = {}
        for topic, number in sorted(self.partitions):
            topics.setdefault(topic, []).append(number)
        return topics

    @property
    def epoch_exhausted(self) -> bool:
        """Return whether a producer may not use the next epoch: the largest one is reserved for fencing."""
        return self.producer_epoch >= self.max_epoch - 1

    @property
    def bumps_epoch(self) -> bool:
        return self.client_version >= EPOCH_BUMP_VERSION

    # -- InitProducerId ----------------------------------------------------------------------------

    def may_continue(self, producer_id: int, epoch: int) -> bool:
        """Return whether a producer with this id and epoch may continue (KIP-360); a new producer has id -1."""
        if producer_id == NO_PRODUCER_ID or self.producer_epoch == NO_EPOCH:
            return True
        if producer_id == self.producer_id:
            return epoch in {self.producer_epoch, self.last_producer_epoch}
        is_previous = producer_id == self.previous_producer_id and epoch >= self.max_epoch - 1
        return is_previous and epoch == self.last_producer_epoch  # later instances have set another one

    def repeats_init(self, epoch: int) -> bool:
        """Return whether an InitProducerId with this epoch repeats the one that was answered last."""
        return epoch not in {NO_EPOCH, self.producer_epoch} and self.producer_epoch != NO_EPOCH

    def initialised(self, timeout_ms: int, expected_epoch: int, now_ms: int, *, bumps: bool) -> "Transaction":
        """Return a copy with the next epoch; a repeated request, recognised by the previous epoch, keeps the epoch.

        With `bumps` False only the first request gets another epoch.
        """
        is_first = self.producer_epoch == NO_EPOCH
        repeated = self.repeats_init(expected_epoch)
        return replace(
            self.with_state(TransactionState.EMPTY, now_ms),
            producer_epoch=min(self.producer_epoch + (is_first or (bumps and not repeated)), self.max_epoch),
            last_producer_epoch=self.last_producer_epoch if repeated else expected_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=-1,
        )

    def rotated(self, producer_id: int, timeout_ms: int, expected_epoch: int, now_ms: int) -> "Transaction":
        """Return a copy with a new producer id and epoch 0, because the epochs of the old id are exhausted."""
        return replace(
            self.with_state(TransactionState.EMPTY, now_ms),
            previous_producer_id=self.producer_id,
            producer_id=producer_id,
            producer_epoch=0,
            last_producer_epoch=expected_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=-1,
        )

    # -- transitions of the open transaction -------------------------------------------------------

    def with_partitions(self, partitions: Iterable[TopicPartition], client_version: int, now_ms: int) -> "Transaction":
        began = self.state is not TransactionState.ONGOING
        return replace(
            self.with_state(TransactionState.ONGOING, now_ms),
            partitions=self.partitions | frozenset(partitions),
            started_ms=now_ms if began else self.started_ms,
            client_version=client_version,
        )

    def fenced(self, now_ms: int) -> "Transaction":
        """Return a copy with the next epoch: the coordinator fences the producer before it aborts."""
        return replace(
            self.with_state(TransactionState.PREPARE_EPOCH_FENCE, now_ms),
            producer_epoch=min(self.producer_epoch + 1, self.max_epoch),
            last_producer_epoch=NO_EPOCH,
        )

    def prepared(self, *, commit: bool, client_version: int, next_producer_id: int, now_ms: int) -> "Transaction":
        """Return a copy with the outcome; transaction version 2 also bumps the epoch, which fences old requests."""
        state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        prepared = replace(
            self.with_state(state, now_ms), client_version=client_version, next_producer_id=next_producer_id
        )
        if self.started_ms < 0:
            prepared = replace(prepared, started_ms=now_ms)
        if client_version < EPOCH_BUMP_VERSION:
            return prepared
        bumped = min(self.producer_epoch + 1, self.max_epoch)  # `fenced` may already have used the largest epoch
        return replace(prepared, producer_epoch=bumped, last_producer_epoch=self.producer_epoch)

    def completed(self, now_ms: int) -> "Transaction":
        """Return a copy in the complete state, with the next producer id if the epochs are exhausted."""
        commit = self.state is TransactionState.PREPARE_COMMIT
        state = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        done = replace(self.with_state(state, now_ms), partitions=frozenset(), next_producer_id=NO_PRODUCER_ID)
        if self.next_producer_id == NO_PRODUCER_ID:
            return done
        return replace(done, previous_producer_id=self.producer_id, producer_id=self.next_producer_id, producer_epoch=0)

    @property
    def next_identity(self) -> tuple[int, int]:
        """Return the producer id and epoch for the next transaction."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def has_promised(self, producer_id: int) -> bool:
        """Return whether this is the id of the next transaction, while the last one still lacks markers.

        A request may name -1, which stands for no next id.
        """
        return producer_id == self.next_producer_id != NO_PRODUCER_ID

    def is_repeated_end(self, producer_id: int, epoch: int, *, knows_previous_id: bool) -> bool:
        """Return whether an EndTxn 5 with this id and epoch repeats the one that ended the last transaction.

        Without `knows_previous_id` one that exhausted the epochs of its producer id is not recognised.
        """
        if not self.bumps_epoch or self.state is TransactionState.EMPTY:
            return False
        last = self.max_epoch - 1
        overflowed = (self.previous_producer_id, self.producer_epoch, epoch) == (producer_id, 0, last)
        return (knows_previous_id and overflowed) or (self.producer_id, self.producer_epoch) == (producer_id, epoch + 1)
