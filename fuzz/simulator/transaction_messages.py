"""Follow a transaction across nodes: which requests about it were sent, and what was answered."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from highwater.reference.effects import Request, Response
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.produce import ProduceRequest
from highwater.reference.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from highwater.reference.wire.records import batch_headers, decode_records

SHOWN: Final = 15
BEFORE: Final = 4
"""Messages of the same producer before the first Produce: AddPartitions, and the markers of the transaction before."""
ENDS: Final = 2
"""Earlier EndTxn requests that are shown too: a late copy of one may have ended the transaction."""
NAMED: Final = re.compile(r"txn (\d+) (\d+)")
ERROR_FIELDS: Final = {"error_code", "partition_error_code"}
UNKNOWN: Final = (-1, -1)


class Step(NamedTuple):
    """What a request does to a transaction; `values` are the records of a Produce."""

    name: str
    producer: tuple[int, int]
    detail: str = ""
    values: tuple[bytes, ...] = ()


@dataclass(slots=True)
class TransactionMessage:
    """A request about a transaction, and its response if one was sent."""

    at_ms: int
    source: str
    target: str
    step: Step
    outcome: str = "no response"

    def __str__(self) -> str:
        producer_id, epoch = self.step.producer
        link = f"{self.source} -> {self.target}"
        return (
            f"{self.at_ms:>7} {link:<27} {self.step.name:<15} producer {producer_id} epoch {epoch} {self.step.detail}"
        ).rstrip() + f": {self.outcome}"


def _produce(body: ProduceRequest) -> Iterator[Step]:
    for topic in body.topic_data if body.transactional_id is not None else ():
        for part in topic.partition_data:
            batch = bytes(part.records or b"")
            for _, header in batch_headers(batch):
                values = tuple(record.value or b"" for record in decode_records(batch)[1])
                detail = f"{topic.name}-{part.index} {values[0].decode() if values else ''}"
                yield Step("Produce", (header.producer_id, header.producer_epoch), detail, values)


def _add_partitions(body: AddPartitionsToTxnRequest) -> Iterator[Step]:
    own = (body.v3_and_below_producer_id, body.v3_and_below_producer_epoch, body.v3_and_below_topics)
    several = [(txn.producer_id, txn.producer_epoch, txn.topics) for txn in body.transactions]
    for producer_id, epoch, topics in several or [own]:
        names = " ".join(f"{topic.name}-{number}" for topic in topics for number in topic.partitions)
        yield Step("AddPartitions", (producer_id, epoch), names)


def _markers(body: WriteTxnMarkersRequest) -> Iterator[Step]:
    for marker in body.markers:
        names = " ".join(f"{topic.name}-{number}" for topic in marker.topics for number in topic.partition_indexes)
        result = "commit" if marker.transaction_result else "abort"
        yield Step("WriteTxnMarkers", (marker.producer_id, marker.producer_epoch), f"{result} {names}")


STEPS: Final[dict[type, Callable[[Any], Iterator[Step]]]] = {
    InitProducerIdRequest: lambda body: iter([Step("InitProducerId", UNKNOWN, body.transactional_id or "")]),
    AddPartitionsToTxnRequest: _add_partitions,
    AddOffsetsToTxnRequest: lambda body: iter(
        [Step("AddOffsets", (body.producer_id, body.producer_epoch), body.group_id)]
    ),
    ProduceRequest: _produce,
    TxnOffsetCommitRequest: lambda body: iter(
        [Step("TxnOffsetCommit", (body.producer_id, body.producer_epoch), body.group_id)]
    ),
    EndTxnRequest: lambda body: iter(
        [Step("EndTxn", (body.producer_id, body.producer_epoch), "commit" if body.committed else "abort")]
    ),
    WriteTxnMarkersRequest: _markers,
}


@dataclass(slots=True)
class TransactionMessages:
    """The requests about transactions of a traced run, in the order in which they were sent."""

    sent: list[TransactionMessage] = field(default_factory=list)
    _open: dict[tuple[str, str, int], list[TransactionMessage]] = field(default_factory=dict)

    def on_message(self, at_ms: int, source: str, target: str, message: Any) -> None:
        """Record a request about a transaction, or the response to one."""
        if isinstance(message, Request) and type(message.body) in STEPS:
            found = [
                TransactionMessage(at_ms, source, target, step) for step in STEPS[type(message.body)](message.body)
            ]
            self.sent += found
            self._open[source, target, message.correlation_id] = found
        elif isinstance(message, Response):
            for request in self._open.pop((target, source, message.correlation_id), ()):
                request.outcome = f"{_error_of(message.body)} at {at_ms}"
                if isinstance(message.body, InitProducerIdResponse):
                    producer = message.body.producer_id, message.body.producer_epoch
                    request.step = request.step._replace(producer=producer)

    def about(self, message: str) -> list[str]:
        """Return at most `SHOWN` lines about the transaction that a violation names, else about the newest ones."""
        named = NAMED.search(message)
        prefix = f"txn {named[1]} {named[2]} ".encode() if named else b""
        first = next((m for m in self.sent if named and any(v.startswith(prefix) for v in m.step.values)), None)
        if first is None:
            return [str(request) for request in self.sent[-SHOWN:]]
        of_producer = [request for request in self.sent if request.step.producer[0] == first.step.producer[0]]
        start = max(next(n for n, request in enumerate(of_producer) if request is first) - BEFORE, 0)
        ends = [request for request in of_producer[:start] if request.step.name == "EndTxn"][-ENDS:]
        return [str(request) for request in [*ends, *of_producer[start : start + SHOWN - len(ends)]]]


def _error_of(body: Any) -> str:
    """Return the first error code in a response, at whatever depth; `NONE` if there is none."""
    pending = [body]
    while pending:
        part = pending.pop(0)
        for name in getattr(part, "__dataclass_fields__", ()):
            value = getattr(part, name)
            if name in ERROR_FIELDS and value:
                return ErrorCode(value).name
            if isinstance(value, tuple):
                pending += value
    return ErrorCode.NONE.name
