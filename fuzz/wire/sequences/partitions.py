"""Properties of a partition besides its records: leader, log start offset, timestamps, leader epoch."""

from collections.abc import Callable
from typing import Final

from highwater.fuzz.wire.sequences.context import EARLIEST, SequenceContext
from highwater.fuzz.wire.sequences.logs import POLLS_MAX, Log, Producer, append, check, fetch_partition, fetch_records
from highwater.reference.client.connection import Connection
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from highwater.reference.wire.messages.offsets import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from highwater.reference.wire.messages.topics import CreatableTopic, CreateTopicsRequest

DELETE_RECORDS: Final = 21
STEPS: Final = (2, 6)
BEFORE_ALL, AFTER_ALL = 0, 2**62
"""Timestamps before the first record and after the last."""
UNKNOWN_EPOCH: Final = 2**30
FEW_BYTES: Final = 1


def run(context: SequenceContext) -> None:
    connection = context.connect()
    topic = context.topic(connection)
    log, producer = Log(topic, context.end(connection, topic)), Producer()
    append(context, connection, log, producer)
    steps = [*CHECKS, append, *((delete_records,) if context.supports(DELETE_RECORDS) else ())]
    for _ in context.steps(*STEPS):
        context.rng.choice(steps)(context, connection, log, producer)
    check(context, connection, log, log.base)


def check_metadata(context: SequenceContext, connection: Connection, log: Log, producer: Producer) -> None:
    """Metadata of a partition with records must name an existing leader that is in sync."""
    request = MetadataRequest(topics=(MetadataRequestTopic(name=log.topic),))
    for _ in range(POLLS_MAX):
        answer = context.call(connection, request)
        topic = next((entry for entry in answer.topics if entry.name == log.topic), None)
        if topic is not None and not topic.error_code:
            break
    else:
        context.violates(f"{log.topic} has records, but Metadata does not return it")
    brokers = [entry.node_id for entry in answer.brokers]
    context.require(len(set(brokers)) == len(brokers), f"brokers {brokers}")
    numbers = [part.partition_index for part in topic.partitions]
    context.require(0 in numbers and len(set(numbers)) == len(numbers), f"partitions {numbers}, 0 was written to")
    part = topic.partitions[numbers.index(0)]
    context.accepted(part.error_code)
    context.require(part.leader_id in brokers, f"broker {part.leader_id} leads, there are {brokers}")
    context.require(
        {part.leader_id} <= set(part.isr_nodes) <= set(part.replica_nodes),
        f"broker {part.leader_id} leads, {part.isr_nodes} are in sync, {part.replica_nodes} are replicas",
    )


def create_existing(context: SequenceContext, connection: Connection, log: Log, producer: Producer) -> None:
    """Creating an existing topic must fail."""
    topic = CreatableTopic(name=log.topic, num_partitions=1, replication_factor=1)
    (result,) = context.call(connection, CreateTopicsRequest(topics=(topic,), timeout_ms=1_000)).topics
    done = context.accepted(result.error_code, ErrorCode.TOPIC_ALREADY_EXISTS)
    context.require(not done, f"{log.topic} is created a second time")


def check_timestamps(context: SequenceContext, connection: Connection, log: Log, producer: Producer) -> None:
    """ListOffsets must return the first record of that time or later, and -1 for a future timestamp (KIP-79).

    Timestamp 0 finds the first record that the log still has. The records of the model are not all that it has.
    """
    first, found, none = (
        context.list_offset(connection, log.topic, request) for request in (EARLIEST, BEFORE_ALL, AFTER_ALL)
    )
    for answer in (first, found, none):
        context.accepted(answer.error_code)
    context.require(
        first.offset <= found.offset <= log.base, f"offset {found.offset} at the time 0, {first.offset} is the first"
    )
    context.require(none.offset == -1, f"offset {none.offset} for a future timestamp")
    wanted = context.rng.choice([row[0] for row in log.rows.values()])
    found = context.list_offset(connection, log.topic, wanted)
    context.accepted(found.error_code)
    last = min(offset for offset, row in log.rows.items() if row[0] >= wanted)
    context.require(
        first.offset <= found.offset <= last, f"offset {found.offset} at a time of {last}, {first.offset} is the first"
    )
    if log.base <= found.offset:
        context.require(
            log.rows[found.offset][0] >= wanted, f"the record at {found.offset} is older than the time {wanted}"
        )


def fetch_beyond_end(context: SequenceContext, connection: Connection, log: Log, producer: Producer) -> None:
    """A fetch beyond the log end offset must fail."""
    _require_out_of_range(context, connection, log, log.end + context.rng.choice((1, 1_000, 2**40)))


def fetch_few_bytes(context: SequenceContext, connection: Connection, log: Log, producer: Producer) -> None:
    """A fetch must return the first batch even if it exceeds the byte limit (KIP-74)."""
    start = context.rng.randint(log.base, log.end - 1)
    _, found = fetch_records(context, connection, log.topic, start, most_bytes=FEW_BYTES)
    expected = [(offset, row) for offset, row in sorted(log.rows.items()) if offset >= start]
    context.require(bool(found) and found == expected[: len(found)], f"{len(found)} records from {start} in few bytes")


def fetch_unknown_epoch(context: SequenceContext, connection: Connection, log: Log, producer: Producer) -> None:
    """A fetch with a leader epoch that the leader does not know must fail (KIP-320)."""
    part = fetch_partition(context, connection, log.topic, log.base, epoch=UNKNOWN_EPOCH)
    done = context.accepted(part.error_code, ErrorCode.UNKNOWN_LEADER_EPOCH)
    context.require(not done, f"a fetch of leader epoch {UNKNOWN_EPOCH} is served")


def delete_records(context: SequenceContext, connection: Connection, log: Log, producer: Producer) -> None:
    """Delete records up to an offset, which becomes the log start offset; earlier fetches must fail (KIP-107)."""
    offset = context.rng.randint(log.base, log.end - 1)
    parts = (DeleteRecordsPartition(partition_index=0, offset=offset),)
    request = DeleteRecordsRequest(topics=(DeleteRecordsTopic(name=log.topic, partitions=parts),), timeout_ms=1_000)
    (result,) = context.call(connection, request).topics[0].partitions
    context.accepted(result.error_code)
    context.require(result.low_watermark == offset, f"low watermark {result.low_watermark}, deleted up to {offset}")
    first = context.list_offset(connection, log.topic, EARLIEST)
    context.accepted(first.error_code)
    context.require(first.offset == offset, f"the log begins at {first.offset}, deleted up to {offset}")
    log.base, log.rows = offset, {at: row for at, row in log.rows.items() if at >= offset}
    if offset:
        _require_out_of_range(context, connection, log, offset - 1)
    check_timestamps(context, connection, log, producer)


def _require_out_of_range(context: SequenceContext, connection: Connection, log: Log, offset: int) -> None:
    part = fetch_partition(context, connection, log.topic, offset)
    done = context.accepted(part.error_code, ErrorCode.OFFSET_OUT_OF_RANGE)
    context.require(not done, f"a fetch at {offset} is served, the log is from {log.base} to {log.end}")


CHECKS: Final[tuple[Callable[[SequenceContext, Connection, Log, Producer], None], ...]] = (
    check_metadata, create_existing, check_timestamps, fetch_beyond_end, fetch_few_bytes, fetch_unknown_epoch,
)  # fmt: skip
