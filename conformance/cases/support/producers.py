"""Idempotent producers whose sequence numbers a case chooses."""

from dataclasses import dataclass
from typing import Any, Final

from highwater.conformance.client.broker import Broker, Topic, batch, now_ms
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.expectations import expect
from highwater.reference.client.transport import Clock
from highwater.reference.wire.errors import COORDINATOR_UNAVAILABLE, TRANSACTION_NOT_READY
from highwater.reference.wire.messages.produce import PartitionProduceResponse
from highwater.reference.wire.messages.transactions import InitProducerIdRequest

LAST_SEQUENCE: Final = (1 << 31) - 1
"""Sequence numbers continue at 0 after this one."""


def init_producer_id(cluster: Cluster, broker: Broker, version: int | None = None, **fields: Any) -> Any:
    """Send InitProducerId until the coordinator is ready; without a transactional id for an idempotent producer."""
    request = InitProducerIdRequest(**{"transactional_id": None, "transaction_timeout_ms": 60_000, **fields})

    def send_request() -> Any:
        reply = broker.call(request, version)
        # A broker returns NOT_COORDINATOR for a moment after FindCoordinator has named it.
        return None if reply.error_code in TRANSACTION_NOT_READY | COORDINATOR_UNAVAILABLE else reply

    return cluster.eventually("InitProducerId to be ready", send_request, 15.0)


def sequenced(
    clock: Clock, producer_id: int, epoch: int, sequence: int, *values: bytes, transactional: bool = False
) -> bytes:
    """Build a batch with the current time; a restarted broker may expire producers whose batches are old."""
    return batch(
        *values, timestamp_ms=now_ms(clock), producer_id=producer_id, producer_epoch=epoch,
        base_sequence=sequence, transactional=transactional,
    )  # fmt: skip


@dataclass(slots=True)
class IdempotentProducer:
    """A producer of batches for one partition."""

    broker: Broker
    topic: Topic
    producer_id: int
    epoch: int = 0

    @classmethod
    def create(cls, cluster: Cluster, topic: Topic) -> "IdempotentProducer":
        broker = cluster.leader(topic)
        reply = init_producer_id(cluster, broker)
        expect("error code of InitProducerId", 0, reply.error_code)
        return cls(broker, topic, reply.producer_id, reply.producer_epoch)

    def send(
        self, sequence: int, count: int = 1, *, version: int | None = None, topic: Topic | None = None
    ) -> PartitionProduceResponse:
        records = sequenced(self.broker.clock, self.producer_id, self.epoch, sequence, *[b"v"] * count)
        return self.broker.produce(topic or self.topic, records, version=version)

    def send_accepted(self, sequence: int, count: int = 1, *, version: int | None = None) -> int:
        """Send a batch that must be accepted, and return its base offset."""
        answer = self.send(sequence, count, version=version)
        expect(f"error code of sequence {sequence}", 0, answer.error_code)
        return answer.base_offset

    def end_offset(self) -> int:
        return self.broker.end_offset(self.topic)
