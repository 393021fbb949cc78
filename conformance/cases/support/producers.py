"""Producers by hand: an id, an epoch, and whatever sequence a case likes."""

import time
from dataclasses import dataclass
from typing import Any, Final

from highwater.conformance.broker import Broker, Topic, batch, expect
from highwater.conformance.cluster import Cluster
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.produce import PartitionProduceResponse
from highwater.reference.wire.messages.transactions import InitProducerIdRequest

LAST_SEQUENCE: Final = (1 << 31) - 1
"""The one before 0."""
NOT_READY: Final = (14, 15, 51)
"""The coordinator loads, is not there yet, or still ends the transaction before."""

"""Told for a moment by the one that has just been named as coordinator."""


def init_producer_id(cluster: Cluster, broker: Broker, version: int | None = None, **fields: Any) -> Any:
    """The reply, once the coordinator is ready; null is the transactional id of a merely idempotent producer."""
    request = InitProducerIdRequest(**{"transactional_id": None, "transaction_timeout_ms": 60_000, **fields})

    def ask() -> Any:
        reply = broker.call(request, version)
        return None if reply.error_code in (*NOT_READY, ErrorCode.NOT_COORDINATOR) else reply

    return cluster.eventually("InitProducerId to be ready", ask, 15.0)


def sequenced(producer_id: int, epoch: int, sequence: int, *values: bytes, transactional: bool = False) -> bytes:
    """A batch of now: by its time a broker may forget the producer, when it starts for one."""
    return batch(
        *values, timestamp_ms=int(time.time() * 1000), producer_id=producer_id, producer_epoch=epoch,
        base_sequence=sequence, transactional=transactional,
    )  # fmt: skip


@dataclass(slots=True)
class IdempotentProducer:
    """Writes batches of one or more records to one partition."""

    broker: Broker
    topic: Topic
    producer_id: int
    epoch: int = 0

    @classmethod
    def fresh(cls, cluster: Cluster, topic: Topic) -> "IdempotentProducer":
        broker = cluster.leader(topic)
        reply = init_producer_id(cluster, broker)
        expect("error code of InitProducerId", 0, reply.error_code)
        return cls(broker, topic, reply.producer_id, reply.producer_epoch)

    def send(
        self, sequence: int, count: int = 1, *, version: int | None = None, topic: Topic | None = None
    ) -> PartitionProduceResponse:
        records = sequenced(self.producer_id, self.epoch, sequence, *[b"v"] * count)
        return self.broker.produce(topic or self.topic, records, version=version)

    def sent(self, sequence: int, count: int = 1, *, version: int | None = None) -> int:
        """The base offset of a batch that must be taken."""
        answer = self.send(sequence, count, version=version)
        expect(f"error code of sequence {sequence}", 0, answer.error_code)
        return answer.base_offset

    def end_offset(self) -> int:
        return self.broker.end_offset(self.topic)
