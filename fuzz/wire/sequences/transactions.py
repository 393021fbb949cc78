"""Transactions: a READ_COMMITTED reader receives all records of a committed transaction, and none of an aborted one."""

from highwater.fuzz.wire.sequences.context import SequenceAbandoned, SequenceContext, Violation
from highwater.fuzz.wire.sequences.logs import (
    COMMITTED,
    Log,
    Producer,
    append,
    fetch_records,
    init_producer,
    produce_batch,
)
from highwater.reference.client.connection import Connection
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import FindCoordinatorRequest
from highwater.reference.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
)

TRANSACTION = 1
TRANSACTIONS = (1, 3)
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def run(context: SequenceContext) -> None:
    """Run some transactions, each committed or aborted; then possibly fence the producer with a second one."""
    connection = context.connect()
    topic, name = context.topic(connection), f"fuzz-transaction-{context.rng.randrange(50)}"
    context.claim(name)
    context.call(
        connection,
        FindCoordinatorRequest(key=name, key_type=TRANSACTION),
        context.version(FindCoordinatorRequest, at_least=1),
    )
    producer = init_producer(context, connection, name)
    log = Log(topic, context.end(connection, topic))
    part, _ = fetch_records(context, connection, topic, log.end, COMMITTED)
    if part.last_stable_offset not in (log.end, -1):
        raise SequenceAbandoned("a transaction of another producer is open")
    _send_crafted_batch(context, connection, log, producer)
    for _ in context.steps(*TRANSACTIONS):
        _transact(context, connection, log, producer)
    if context.rng.random() < 0.3:
        _fence(context, connection, producer)


def _send_crafted_batch(context: SequenceContext, connection: Connection, log: Log, producer: Producer) -> None:
    """Send a transactional batch in a request without transactional id, which must fail (CVE-2018-17196)."""
    part = produce_batch(context, connection, log.topic, producer.batch(context, [b"crafted"]))
    try:
        context.require(part.error_code != 0, "a transactional batch in a request without transactional id is taken")
    except Violation:
        context.send(
            connection, end_request(producer, committed=False)
        )  # an open transaction would block the sequences that follow
        raise


def _transact(context: SequenceContext, connection: Connection, log: Log, producer: Producer) -> None:
    context.accepted(add_partition(context, connection, log.topic, producer))
    before = log.end
    offsets = [
        offset for _ in range(context.rng.choice((1, 2))) for offset in append(context, connection, log, producer)
    ]
    part, visible = fetch_records(context, connection, log.topic, before, COMMITTED)
    context.require(not visible, "a READ_COMMITTED fetch returns records of an open transaction")
    context.require(
        part.last_stable_offset <= before, f"last stable offset {part.last_stable_offset}, open since {before}"
    )
    committed = context.rng.random() < 0.5
    answer = context.call(connection, end_request(producer, committed=committed))
    context.accepted(answer.error_code)
    log.end = _await_marker(context, connection, log)
    _, visible = fetch_records(context, connection, log.topic, before, COMMITTED)
    expected = [(offset, log.rows[offset]) for offset in offsets] if committed else []
    word = "committed" if committed else "aborted"
    context.require(
        visible == expected, f"{len(visible)} of {len(offsets)} {word} records are returned to a READ_COMMITTED fetch"
    )


def add_partition(context: SequenceContext, connection: Connection, topic: str, producer: Producer) -> int:
    """Send AddPartitionsToTxn for partition 0; return the error code."""
    return add_partitions(context, connection, topic, producer, (0,))[0]


def add_partitions(
    context: SequenceContext, connection: Connection, topic: str, producer: Producer, numbers: tuple[int, ...]
) -> list[int]:
    """Send AddPartitionsToTxn; return the error code of each partition."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id or "",
        v3_and_below_producer_id=producer.producer_id, v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=(AddPartitionsToTxnTopic(name=topic, partitions=numbers),),
    )  # fmt: skip
    (found,) = context.call(connection, request).results_by_topic_v3_and_below
    codes = {part.partition_index: part.partition_error_code for part in found.results_by_partition}
    context.require(codes.keys() == set(numbers), f"results for the partitions {sorted(codes)} of {numbers}")
    return [codes[number] for number in numbers]


def end_request(producer: Producer, *, committed: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=producer.transactional_id or "", producer_id=producer.producer_id,
        producer_epoch=producer.epoch, committed=committed,
    )  # fmt: skip


def _await_marker(context: SequenceContext, connection: Connection, log: Log) -> int:
    """Wait for the marker, which is written after the response and takes one offset."""
    for _ in range(200):
        end = context.end(connection, log.topic)
        context.require(log.end <= end <= log.end + 1, f"end offset {end}: {log.end} and one marker were written")
        if end == log.end + 1:
            part, _ = fetch_records(context, connection, log.topic, end, COMMITTED)
            if part.last_stable_offset in (end, -1):
                return end
    raise SequenceAbandoned("the marker is not written yet")


def _fence(context: SequenceContext, connection: Connection, producer: Producer) -> None:
    """Start a second producer with the same id: its epoch is higher, and the first can no longer end a transaction."""
    second = init_producer(context, connection, producer.transactional_id)
    context.require(
        (second.producer_id, second.epoch) > (producer.producer_id, producer.epoch),
        f"producer {second.producer_id} epoch {second.epoch} after {producer.producer_id} epoch {producer.epoch}",
    )
    answer = context.call(connection, end_request(producer, committed=True))
    done = context.accepted(answer.error_code, *FENCED, ErrorCode.INVALID_TXN_STATE)
    context.require(not done, "a fenced producer ends a transaction")
