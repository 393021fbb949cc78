"""The queue of a producer for one partition: batches in send order, the first few of them in flight."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from highwater.reference.storage.producer_state import SEQUENCE_MODULUS
from highwater.reference.wire.records import NewRecord, build_batch

RECORD_OVERHEAD: Final = 21
"""Upper bound in bytes for the lengths, deltas and attributes of a record; enough to close a batch in time."""
NO_PRODUCER_ID: Final = -1


@dataclass(slots=True, eq=False)
class Batch:
    """One record batch. After the first send its producer id, epoch, sequence and records never change."""

    created_ms: int
    records: list[NewRecord] = field(default_factory=list)
    size: int = 0
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    sequence: int = -1
    sent: bool = False
    in_flight: bool = False
    retry_ms: int = 0
    number: int = -1  # among the batches that were sent

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
    """The batches of one partition. A batch is sent only if all batches before it are done or in flight.

    So no batch overtakes a retry, and the broker can distinguish duplicates from gaps by the sequences.
    """

    topic: str
    partition: int
    batches: deque[Batch] = field(default_factory=deque)
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    next_sequence: int = 0
    retired_ids: list[int] = field(default_factory=list)  # producer ids with a lost batch in this partition
    sent_count: int = 0

    def append(self, record: NewRecord, now_ms: int, batch_size: int) -> bool:
        """Append a record; return True if it did not fit into the last batch and started a new one."""
        last = self.batches[-1] if self.batches else None
        if last is not None and not last.sent and last.size + size_of(record) <= batch_size:
            last.add(record)
            return False
        self.batches.append(Batch(now_ms))
        self.batches[-1].add(record)
        return last is not None and not last.sent

    def ready(self, now_ms: int, linger_ms: int, batch_size: int, max_in_flight: int) -> Iterator[Batch]:
        """Yield the batches to send now, oldest first.

        Of the batches since the oldest that is not done at most `max_in_flight` are sent, whatever is in flight: the
        broker would forget the oldest one (LimitInFlight; Apache Kafka's RecordAccumulator sends one at a time then).
        """
        in_flight_count = sum(batch.in_flight for batch in self.batches)
        for position, batch in enumerate(list(self.batches)):
            if batch.in_flight:
                continue
            has_next = position + 1 < len(self.batches)
            waiting = not batch.sent and not has_next and batch.size < batch_size
            too_soon = batch.retry_ms > now_ms or (waiting and now_ms < batch.created_ms + linger_ms)
            is_beyond = not batch.sent and position > 0 and self.sent_count - self.batches[0].number >= max_in_flight
            if too_soon or is_beyond or in_flight_count >= max_in_flight:
                return
            in_flight_count += 1
            if not batch.sent:
                batch.number = self.sent_count
                self.sent_count += 1
            yield batch

    def identify(self, batch: Batch) -> None:
        """Assign producer id, epoch and sequence to a batch before its first send; retries do not change them."""
        batch.producer_id, batch.producer_epoch = self.producer_id, self.producer_epoch
        batch.sequence = self.next_sequence
        self.next_sequence = (self.next_sequence + len(batch.records)) % SEQUENCE_MODULUS

    def retire_identity(self) -> None:
        """Stop using the producer id here: a sent batch failed, and its sequence may or may not be in the log."""
        self.retired_ids.append(self.producer_id)
        self.producer_id, self.next_sequence = NO_PRODUCER_ID, 0
