"""What a producer holds for one partition: batches in order, of which the first few are under way."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from reference.storage.producer_state import SEQUENCE_MODULUS
from reference.wire.records import NewRecord, build_batch

RECORD_OVERHEAD: Final = 21
"""Lengths, deltas and attributes of a record, at most; a bound is enough to close a batch in time."""
NO_PRODUCER_ID: Final = -1


@dataclass(slots=True, eq=False)
class Batch:
    """Once sent it never changes: identity, sequence and records are what the broker knows it by."""

    created_ms: int
    records: list[NewRecord] = field(default_factory=list)
    size: int = 0
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    sequence: int = -1
    sent: bool = False
    in_flight: bool = False
    retry_ms: int = 0

    def add(self, record: NewRecord) -> None:
        self.records.append(record)
        self.size += size_of(record)

    def encode(self) -> bytes:
        return build_batch(
            self.records,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.sequence,
        )


def size_of(record: NewRecord) -> int:
    _, key, value, headers = record
    return RECORD_OVERHEAD + len(key or b"") + len(value or b"") + sum(len(n) + len(v or b"") for n, v in headers)


@dataclass(slots=True)
class PartitionQueue:
    """Batches are sent in order, and a later one only while all before it are done or under way.

    So no retry overtakes, and the broker's sequences tell duplicates from gaps.
    """

    topic: str
    partition: int
    batches: deque[Batch] = field(default_factory=deque)
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    next_sequence: int = 0
    retired: list[int] = field(default_factory=list)  # producer ids whose sequences broke off here

    def append(self, record: NewRecord, now_ms: int, batch_size: int) -> bool:
        """True when the record did not fit and began another batch."""
        last = self.batches[-1] if self.batches else None
        if last is not None and not last.sent and last.size + size_of(record) <= batch_size:
            last.add(record)
            return False
        self.batches.append(Batch(now_ms))
        self.batches[-1].add(record)
        return last is not None and not last.sent

    def ready(self, now_ms: int, linger_ms: int, batch_size: int, max_in_flight: int) -> Iterator[Batch]:
        """Batches to be sent now, oldest first."""
        under_way = sum(batch.in_flight for batch in self.batches)
        for position, batch in enumerate(list(self.batches)):
            if batch.in_flight:
                continue
            behind = position + 1 < len(self.batches)
            waiting = not batch.sent and not behind and batch.size < batch_size
            too_soon = batch.retry_ms > now_ms or (waiting and now_ms < batch.created_ms + linger_ms)
            if too_soon or under_way >= max_in_flight:
                return
            under_way += 1
            yield batch

    def identify(self, batch: Batch) -> None:
        """The sequence is given at the first send, and kept by every retry."""
        batch.producer_id, batch.producer_epoch = self.producer_id, self.producer_epoch
        batch.sequence = self.next_sequence
        self.next_sequence = (self.next_sequence + len(batch.records)) % SEQUENCE_MODULUS

    def retire_identity(self) -> None:
        """A sent batch was given up: its sequence may or may not be taken, so nobody can go on after it."""
        self.retired.append(self.producer_id)
        self.producer_id, self.next_sequence = NO_PRODUCER_ID, 0
