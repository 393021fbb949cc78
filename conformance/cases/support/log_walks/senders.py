"""Idempotent producers of a walk, which repeat, skip and reuse sequence numbers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from highwater.conformance.cases.support.log_walks.choices import records
from highwater.conformance.cases.support.log_walks.walk import Key, Walk
from highwater.conformance.cases.support.log_walks.writes import Write
from highwater.conformance.cases.support.producers import init_producer_id
from highwater.conformance.expectations import require
from highwater.conformance.models.batches import SEQUENCES, Batch
from highwater.conformance.models.log import ProducerState
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import ErrorCode

CODECS: Final = (Compression.NONE, Compression.NONE, Compression.GZIP, Compression.LZ4)
FIRST: Final = (0, 0, 1, 1000, SEQUENCES - 3)
"""First sequence numbers of a producer in a partition; after the last ones they continue at 0."""


class Sender:
    """A producer without transactions; `sent` are the batches of each partition, also those that were refused."""

    def __init__(self, walk: Walk, producer_id: int, epoch: int = 0) -> None:
        self.walk, self.producer_id, self.epoch = walk, producer_id, epoch
        self._sent: dict[Key, list[Batch]] = {}

    @classmethod
    def create(cls, walk: Walk) -> "Sender":
        reply = init_producer_id(walk.cluster, walk.broker(next(iter(walk.topics.values())).leader))
        require("another producer has the id", False, reply.producer_id in walk.producer_ids)
        walk.producer_ids.add(reply.producer_id)
        return cls(walk, reply.producer_id, reply.producer_epoch)

    def next_batch(self, key: Key, *, transactional: bool = False) -> Batch:
        """Return the batch that continues what the partition has of this producer."""
        state = self.walk.logs[key].producers.get(self.producer_id)
        if state is None:
            sequence = 0 if transactional else self.walk.random.choice(FIRST)
        else:
            sequence = state.next_sequence(self.epoch)
        return Batch(
            records(self.walk, self.walk.random.choice((1, 1, 2, 4))), codec=self.walk.random.choice(CODECS),
            producer_id=self.producer_id, epoch=self.epoch, sequence=sequence, transactional=transactional,
        )  # fmt: skip

    def write(self, key: Key) -> Write:
        """Return a batch that continues, repeats, skips or reuses sequence numbers, or has another epoch."""
        batch = self.next_batch(key)
        sent, kind = self._sent.setdefault(key, []), self.walk.random.random()
        if kind < 0.35 and sent:
            batch = self._repetition(sent)
        elif kind < 0.43:
            batch = replace(batch, sequence=(batch.sequence + self.walk.random.choice((1, 2, 1000))) % SEQUENCES)
        elif kind < 0.5:
            batch = replace(batch, sequence=(batch.sequence - 1) % SEQUENCES)
        elif kind < 0.53:
            return Write(key, replace(batch, sequence=-1), errors=frozenset({ErrorCode.INVALID_RECORD}))
        elif kind < 0.58:
            batch = replace(batch, epoch=batch.epoch + 1, sequence=self.walk.random.choice((0, batch.sequence)))
        elif kind < 0.62 and batch.epoch:
            batch = replace(batch, epoch=batch.epoch - 1)
        sent.append(batch)
        return Write(key, batch)

    def learn_epochs(self) -> None:
        """Continue with the newest epoch that any partition has."""
        states = [log.producers.get(self.producer_id, ProducerState()) for log in self.walk.logs.values()]
        self.epoch = max(self.epoch, *(state.epoch for state in states))

    def _repetition(self, sent: Sequence[Batch]) -> Batch:
        """Return one of the last eight batches, sometimes without its last record."""
        batch = sent[-self.walk.random.randint(1, min(8, len(sent)))]
        if batch.count > 1 and self.walk.random.random() < 0.25:
            return replace(batch, records=batch.records[:-1])
        return batch
