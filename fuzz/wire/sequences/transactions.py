"""Transactions: aborted records are never seen by a committed reader, committed ones are, in whole."""

from highwater.fuzz.wire.sequences.context import Abandoned, Stage, Violation
from highwater.fuzz.wire.sequences.logs import COMMITTED, Log, Producer, append, fetched, idempotent, produced
from highwater.reference.client.connection import Connection
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import FindCoordinatorRequest
from highwater.reference.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
)

TRANSACTION = 1
ENDS = (1, 3)
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def play(stage: Stage) -> None:
    """Some transactions, each committed or aborted; in the end, perhaps, a second life that fences the first."""
    line = stage.line()
    topic, name = stage.topic(line), f"fuzz-transaction-{stage.chance.randrange(50)}"
    stage.claim(name)
    stage.call(
        line, FindCoordinatorRequest(key=name, key_type=TRANSACTION), stage.version(FindCoordinatorRequest, at_least=1)
    )
    producer = idempotent(stage, line, name)
    log = Log(topic, stage.end(line, topic))
    part, _ = fetched(stage, line, topic, log.end, COMMITTED)
    if part.last_stable_offset not in (log.end, -1):
        raise Abandoned("somebody else's transaction is open")
    _craft(stage, line, log, producer)
    for _ in stage.steps(*ENDS):
        _transact(stage, line, log, producer)
    if stage.chance.random() < 0.3:
        _fence(stage, line, producer)


def _craft(stage: Stage, line: Connection, log: Log, producer: Producer) -> None:
    """A batch of the transaction, in a request that does not name it: refused (TXN-12, CVE-2018-17196)."""
    part = produced(stage, line, log.topic, producer.batch(stage, [b"crafted"]))
    try:
        stage.require(part.error_code != 0, "a transactional batch in a request without transactional id is taken")
    except Violation:
        stage.ask(line, end_request(producer, committed=False))  # or it would stay open, and stop those who come next
        raise


def _transact(stage: Stage, line: Connection, log: Log, producer: Producer) -> None:
    stage.accepted(add_partition(stage, line, log.topic, producer))
    before = log.end
    offsets = [offset for _ in range(stage.chance.choice((1, 2))) for offset in append(stage, line, log, producer)]
    part, seen = fetched(stage, line, log.topic, before, COMMITTED)
    stage.require(not seen, "a committed reader is given records of an open transaction")
    stage.require(
        part.last_stable_offset <= before, f"last stable offset {part.last_stable_offset}, open since {before}"
    )
    committed = stage.chance.random() < 0.5
    answer = stage.call(line, end_request(producer, committed=committed))
    stage.accepted(answer.error_code)
    log.end = _await_marker(stage, line, log)
    _, seen = fetched(stage, line, log.topic, before, COMMITTED)
    expected = [(offset, log.rows[offset]) for offset in offsets] if committed else []
    word = "committed" if committed else "aborted"
    stage.require(seen == expected, f"{len(seen)} of {len(offsets)} {word} records are given to a committed reader")


def add_partition(stage: Stage, line: Connection, topic: str, producer: Producer) -> int:
    """The error code."""
    answer = stage.call(
        line,
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.transactional_id or "",
            v3_and_below_producer_id=producer.producer_id, v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=topic, partitions=(0,)),),
        ),
    )  # fmt: skip
    return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


def end_request(producer: Producer, *, committed: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=producer.transactional_id or "", producer_id=producer.producer_id,
        producer_epoch=producer.epoch, committed=committed,
    )  # fmt: skip


def _await_marker(stage: Stage, line: Connection, log: Log) -> int:
    """The marker is written after the answer; it takes one offset."""
    for _ in range(200):
        end = stage.end(line, log.topic)
        stage.require(log.end <= end <= log.end + 1, f"end offset {end}: {log.end} and one marker were written")
        if end == log.end + 1:
            part, _ = fetched(stage, line, log.topic, end, COMMITTED)
            if part.last_stable_offset in (end, -1):
                return end
    raise Abandoned("no marker yet")


def _fence(stage: Stage, line: Connection, producer: Producer) -> None:
    """A second life under the same id has a higher epoch, and the first can end nothing any more."""
    second = idempotent(stage, line, producer.transactional_id)
    stage.require(
        (second.producer_id, second.epoch) > (producer.producer_id, producer.epoch),
        f"producer {second.producer_id} epoch {second.epoch} after {producer.producer_id} epoch {producer.epoch}",
    )
    answer = stage.call(line, end_request(producer, committed=True))
    done = stage.accepted(answer.error_code, *FENCED, ErrorCode.INVALID_TXN_STATE)
    stage.require(not done, "a fenced producer ends a transaction")
