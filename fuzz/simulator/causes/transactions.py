"""Follow a transaction across nodes: which requests about it were sent, and what was answered."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from highwater.fuzz.simulator.causes.lines import SHOWN, Line, by_time
from highwater.fuzz.simulator.exchanges import SimulatedExchange
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

BEFORE: Final = 4
"""Messages of the same producer before the first Produce: AddPartitions, and the markers of the transaction before."""
ENDS: Final = 2
"""Earlier EndTxn requests that are shown too: a late copy of one may have ended the transaction."""
EPOCH: Final = re.compile(r"(\S+) with epoch (\d+)")
NAMED: Final = re.compile(r"txn (\d+) (\d+)")
UNKNOWN: Final = (-1, -1)


class CauseStep(NamedTuple):
    """What a request does to a transaction; `values` are the records of a Produce."""

    name: str
    producer: tuple[int, int]
    detail: str = ""
    values: tuple[bytes, ...] = ()


def _produce(body: ProduceRequest) -> Iterator[CauseStep]:
    for topic in body.topic_data if body.transactional_id is not None else ():
        for part in topic.partition_data:
            batch = bytes(part.records or b"")
            for _, header in batch_headers(batch):
                values = tuple(record.value or b"" for record in decode_records(batch)[1])
                detail = f"{topic.name}-{part.index} {values[0].decode() if values else ''}"
                yield CauseStep("Produce", (header.producer_id, header.producer_epoch), detail, values)


def _add_partitions(body: AddPartitionsToTxnRequest) -> Iterator[CauseStep]:
    own = (body.v3_and_below_producer_id, body.v3_and_below_producer_epoch, body.v3_and_below_topics)
    several = [(txn.producer_id, txn.producer_epoch, txn.topics) for txn in body.transactions]
    for producer_id, epoch, topics in several or [own]:
        names = " ".join(f"{topic.name}-{number}" for topic in topics for number in topic.partitions)
        yield CauseStep("AddPartitions", (producer_id, epoch), names)


def _markers(body: WriteTxnMarkersRequest) -> Iterator[CauseStep]:
    for marker in body.markers:
        names = " ".join(f"{topic.name}-{number}" for topic in marker.topics for number in topic.partition_indexes)
        result = "commit" if marker.transaction_result else "abort"
        yield CauseStep("WriteTxnMarkers", (marker.producer_id, marker.producer_epoch), f"{result} {names}")


STEPS: Final[dict[type, Callable[[Any], Iterator[CauseStep]]]] = {
    InitProducerIdRequest: lambda body: iter([CauseStep("InitProducerId", UNKNOWN, body.transactional_id or "")]),
    AddPartitionsToTxnRequest: _add_partitions,
    AddOffsetsToTxnRequest: lambda body: iter(
        [CauseStep("AddOffsets", (body.producer_id, body.producer_epoch), body.group_id)]
    ),
    ProduceRequest: _produce,
    TxnOffsetCommitRequest: lambda body: iter(
        [CauseStep("TxnOffsetCommit", (body.producer_id, body.producer_epoch), body.group_id)]
    ),
    EndTxnRequest: lambda body: iter(
        [CauseStep("EndTxn", (body.producer_id, body.producer_epoch), "commit" if body.committed else "abort")]
    ),
    WriteTxnMarkersRequest: _markers,
}


def lines_of_transaction(message: str, exchanges: Iterable[SimulatedExchange]) -> list[Line]:
    """Return at most `SHOWN` lines about the transaction that a violation names, else about the newest ones."""
    sent = [(each, step) for each in exchanges for step in _steps_of(each)]
    named = NAMED.search(message)
    prefix = f"txn {named[1]} {named[2]} ".encode() if named else b""
    first = next((at for at in sent if named and any(value.startswith(prefix) for value in at[1].values)), None)
    if first is None:
        return by_time(_line(*each) for each in _of_epoch(message, sent))[-SHOWN:]
    of_producer = [each for each in sent if each[1].producer[0] == first[1].producer[0]]
    start = max(of_producer.index(first) - BEFORE, 0)
    ends = [each for each in of_producer[:start] if each[1].name == "EndTxn"][-ENDS:]
    lines = by_time(_line(*each) for each in of_producer[start:])
    return [*(_line(*each) for each in ends), *lines[: SHOWN - len(ends)]]


def _of_epoch(
    message: str, sent: list[tuple[SimulatedExchange, CauseStep]]
) -> list[tuple[SimulatedExchange, CauseStep]]:
    """Return what concerns the transactional id and epoch that a violation names, else everything."""
    named = EPOCH.search(message)
    if named is None:
        return sent
    ids = {step.producer[0] for _, step in sent if step.name == "InitProducerId" and step.detail == named[1]}
    epochs = {int(named[2]) - 1, int(named[2])}
    return [each for each in sent if each[1].producer[0] in ids and each[1].producer[1] in epochs]


def _steps_of(exchange: SimulatedExchange) -> Iterator[CauseStep]:
    steps = STEPS.get(type(exchange.body))
    for step in steps(exchange.body) if steps is not None else ():
        if isinstance(answer := exchange.answer, InitProducerIdResponse):
            yield step._replace(producer=(answer.producer_id, answer.producer_epoch))
        else:
            yield step


def _line(exchange: SimulatedExchange, step: CauseStep) -> Line:
    producer_id, epoch = step.producer
    outcome = f"{exchange.error} at {exchange.answered_ms}" if exchange.answer is not None else exchange.error
    what = f"{step.name:<15} producer {producer_id} epoch {epoch} {step.detail}".rstrip()
    key = f"{what} {exchange.error}" if exchange.error not in {"NONE", "no response"} else ""
    return Line(exchange.at_ms, f"{exchange.source} -> {exchange.target}", f"{what}: {outcome}", key)
