"""One transaction of one transactional id, and its transitions: what holds now in, what shall hold next out."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from reference.transactions.states import TABLE, TransactionState

NO_EPOCH: Final = -1
NO_PRODUCER_ID: Final = -1
MAX_EPOCH: Final = (1 << 15) - 1
EPOCH_BUMP_VERSION: Final = 2
"""The transaction version from which on the end of a transaction bumps the epoch (KIP-890)."""

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Transaction:
    """As `__transaction_state` holds it, with `last_producer_epoch`, which only a retry of InitProducerId needs."""

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

    def moved_to(self, state: TransactionState, now_ms: int) -> "Transaction":
        """InvalidTransitionError where the table has no such step."""
        TABLE.check(self.state, state)
        return replace(self, state=state, updated_ms=now_ms)

    @property
    def by_topic(self) -> dict[str, list[int]]:
        topics: dict[str, list[int]] = {}
        for topic, number in sorted(self.partitions):
            topics.setdefault(topic, []).append(number)
        return topics

    @property
    def epoch_exhausted(self) -> bool:
        """The largest epoch is kept for the coordinator's own fence."""
        return self.producer_epoch >= MAX_EPOCH - 1

    @property
    def bumps_epoch(self) -> bool:
        return self.client_version >= EPOCH_BUMP_VERSION

    # -- InitProducerId ----------------------------------------------------------------------------

    def is_of(self, producer_id: int, epoch: int) -> bool:
        """May a producer that had this id and epoch go on (KIP-360)? -1 says that it had none."""
        if producer_id == NO_PRODUCER_ID or self.producer_epoch == NO_EPOCH:
            return True
        if producer_id == self.producer_id:
            return epoch in {self.producer_epoch, self.last_producer_epoch}
        return producer_id == self.previous_producer_id and epoch >= MAX_EPOCH - 1

    def initialised(self, timeout_ms: int, expected_epoch: int, now_ms: int) -> "Transaction":
        """The next epoch; a repeated request, known by the epoch before, gets the same answer again."""
        repeated = expected_epoch not in {NO_EPOCH, self.producer_epoch} and self.producer_epoch != NO_EPOCH
        return replace(
            self.moved_to(TransactionState.EMPTY, now_ms),
            producer_epoch=self.producer_epoch + (not repeated),
            last_producer_epoch=self.last_producer_epoch if repeated else expected_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=-1,
        )

    def rotated(self, producer_id: int, timeout_ms: int, expected_epoch: int, now_ms: int) -> "Transaction":
        """Epochs are used up: another producer id, epoch 0."""
        return replace(
            self.moved_to(TransactionState.EMPTY, now_ms),
            previous_producer_id=self.producer_id,
            producer_id=producer_id,
            producer_epoch=0,
            last_producer_epoch=expected_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=-1,
        )

    # -- the transaction ---------------------------------------------------------------------------

    def with_partitions(self, partitions: Iterable[TopicPartition], client_version: int, now_ms: int) -> "Transaction":
        began = self.state is not TransactionState.ONGOING
        return replace(
            self.moved_to(TransactionState.ONGOING, now_ms),
            partitions=self.partitions | frozenset(partitions),
            started_ms=now_ms if began else self.started_ms,
            client_version=client_version,
        )

    def fenced(self, now_ms: int) -> "Transaction":
        """The epoch goes up before the coordinator aborts, so that the producer can add nothing more."""
        return replace(
            self.moved_to(TransactionState.PREPARE_EPOCH_FENCE, now_ms),
            producer_epoch=min(self.producer_epoch + 1, MAX_EPOCH),
            last_producer_epoch=NO_EPOCH,
        )

    def prepared(self, *, commit: bool, client_version: int, next_producer_id: int, now_ms: int) -> "Transaction":
        """The outcome. Under version 2 the epoch goes up with it: whatever was sent before is stale (KIP-890)."""
        state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        moved = replace(self.moved_to(state, now_ms), client_version=client_version, next_producer_id=next_producer_id)
        if self.started_ms < 0:
            moved = replace(moved, started_ms=now_ms)
        if client_version < EPOCH_BUMP_VERSION:
            return moved
        bumped = min(self.producer_epoch + 1, MAX_EPOCH)  # after a fence there may be nothing left to bump
        return replace(moved, producer_epoch=bumped, last_producer_epoch=self.producer_epoch)

    def completed(self, now_ms: int) -> "Transaction":
        """All markers are written; where epochs ran out, the next producer id takes over."""
        commit = self.state is TransactionState.PREPARE_COMMIT
        state = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        done = replace(self.moved_to(state, now_ms), partitions=frozenset(), next_producer_id=NO_PRODUCER_ID)
        if self.next_producer_id == NO_PRODUCER_ID:
            return done
        return replace(done, previous_producer_id=self.producer_id, producer_id=self.next_producer_id, producer_epoch=0)

    @property
    def identity_after(self) -> tuple[int, int]:
        """Producer id and epoch to go on with once the prepared end is complete."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def ended_by(self, producer_id: int, epoch: int) -> bool:
        """Was the last end of a transaction asked for with this identity (a repeated EndTxn 5)?"""
        if not self.bumps_epoch or self.state is TransactionState.EMPTY:
            return False
        overflowed = (self.previous_producer_id, self.producer_epoch, epoch) == (producer_id, 0, MAX_EPOCH - 1)
        return overflowed or (self.producer_id, self.producer_epoch) == (producer_id, epoch + 1)
