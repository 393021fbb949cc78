"""What a broker tells of a partition besides its records: who leads it, where it begins, and what stood when."""

from collections.abc import Callable
from typing import Final

from highwater.fuzz.wire.sequences.context import EARLIEST, Stage
from highwater.fuzz.wire.sequences.logs import LOOKS_MAX, Log, Producer, append, ask_fetch, check, fetched
from highwater.reference.client.connection import Connection
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from highwater.reference.wire.messages.offsets import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from highwater.reference.wire.messages.topics import CreatableTopic, CreateTopicsRequest

DELETE_RECORDS: Final = 21
STEPS: Final = (2, 6)
LONG_AGO, NEVER = 0, 2**62
"""Timestamps before the first record, and behind the last."""
NO_SUCH_EPOCH: Final = 2**30
FEW_BYTES: Final = 1


def play(stage: Stage) -> None:
    line = stage.line()
    topic = stage.topic(line)
    log, producer = Log(topic, stage.end(line, topic)), Producer()
    append(stage, line, log, producer)
    steps = [*QUESTIONS, append, *((cut,) if stage.speaks(DELETE_RECORDS) else ())]
    for _ in stage.steps(*STEPS):
        stage.chance.choice(steps)(stage, line, log, producer)
    check(stage, line, log, log.base)


def described(stage: Stage, line: Connection, log: Log, producer: Producer) -> None:
    """A partition that was written to is there, and led by a broker that is there and in sync."""
    asked = MetadataRequest(topics=(MetadataRequestTopic(name=log.topic),))
    for _ in range(LOOKS_MAX):
        answer = stage.call(line, asked)
        topic = next((each for each in answer.topics if each.name == log.topic), None)
        if topic is not None and not topic.error_code:
            break
    else:
        stage.violates(f"{log.topic} was written to, and is not described")
    brokers = [each.node_id for each in answer.brokers]
    stage.require(len(set(brokers)) == len(brokers), f"brokers {brokers}")
    numbers = [part.partition_index for part in topic.partitions]
    stage.require(0 in numbers and len(set(numbers)) == len(numbers), f"partitions {numbers}, 0 was written to")
    part = topic.partitions[numbers.index(0)]
    stage.accepted(part.error_code)
    stage.require(part.leader_id in brokers, f"broker {part.leader_id} leads, there are {brokers}")
    stage.require(
        {part.leader_id} <= set(part.isr_nodes) <= set(part.replica_nodes),
        f"broker {part.leader_id} leads, {part.isr_nodes} are in sync, {part.replica_nodes} are replicas",
    )


def made_again(stage: Stage, line: Connection, log: Log, producer: Producer) -> None:
    """A topic that is there cannot be made."""
    topic = CreatableTopic(name=log.topic, num_partitions=1, replication_factor=1)
    (told,) = stage.call(line, CreateTopicsRequest(topics=(topic,), timeout_ms=1_000)).topics
    done = stage.accepted(told.error_code, ErrorCode.TOPIC_ALREADY_EXISTS)
    stage.require(not done, f"{log.topic} is made once more")


def by_time(stage: Stage, line: Connection, log: Log, producer: Producer) -> None:
    """What stood first is what is found for a time before all, and nothing is found for a time behind all."""
    first, found, none = (stage.listed(line, log.topic, asked) for asked in (EARLIEST, LONG_AGO, NEVER))
    for each in (first, found, none):
        stage.accepted(each.error_code)
    stage.require(
        first.offset <= found.offset <= log.base, f"offset {found.offset} at the time 0, {first.offset} is the first"
    )
    stage.require(none.offset == -1, f"offset {none.offset} of a time that has not come")


def beyond(stage: Stage, line: Connection, log: Log, producer: Producer) -> None:
    """Nothing stands behind the end."""
    _refused(stage, line, log, log.end + stage.chance.choice((1, 1_000, 2**40)))


def in_part(stage: Stage, line: Connection, log: Log, producer: Producer) -> None:
    """However few bytes are asked for, the first batch comes (KIP-74)."""
    start = stage.chance.randint(log.base, log.end - 1)
    _, found = fetched(stage, line, log.topic, start, most_bytes=FEW_BYTES)
    expected = [(offset, row) for offset, row in sorted(log.rows.items()) if offset >= start]
    stage.require(bool(found) and found == expected[: len(found)], f"{len(found)} records from {start} in few bytes")


def of_no_epoch(stage: Stage, line: Connection, log: Log, producer: Producer) -> None:
    """Who knows of a later leader is not answered by an earlier one (KIP-320)."""
    part = ask_fetch(stage, line, log.topic, log.base, epoch=NO_SUCH_EPOCH)
    done = stage.accepted(part.error_code, ErrorCode.UNKNOWN_LEADER_EPOCH)
    stage.require(not done, f"a fetch of leader epoch {NO_SUCH_EPOCH} is served")


def cut(stage: Stage, line: Connection, log: Log, producer: Producer) -> None:
    """Records are deleted up to an offset: there the log begins, and nothing before is served (KIP-107)."""
    offset = stage.chance.randint(log.base, log.end - 1)
    parts = (DeleteRecordsPartition(partition_index=0, offset=offset),)
    request = DeleteRecordsRequest(topics=(DeleteRecordsTopic(name=log.topic, partitions=parts),), timeout_ms=1_000)
    (told,) = stage.call(line, request).topics[0].partitions
    stage.accepted(told.error_code)
    stage.require(told.low_watermark == offset, f"low watermark {told.low_watermark}, deleted up to {offset}")
    first = stage.listed(line, log.topic, EARLIEST)
    stage.accepted(first.error_code)
    stage.require(first.offset == offset, f"the log begins at {first.offset}, deleted up to {offset}")
    log.base, log.rows = offset, {at: row for at, row in log.rows.items() if at >= offset}
    if offset:
        _refused(stage, line, log, offset - 1)


def _refused(stage: Stage, line: Connection, log: Log, offset: int) -> None:
    part = ask_fetch(stage, line, log.topic, offset)
    done = stage.accepted(part.error_code, ErrorCode.OFFSET_OUT_OF_RANGE)
    stage.require(not done, f"a fetch at {offset} is served, the log is from {log.base} to {log.end}")


QUESTIONS: Final[tuple[Callable[[Stage, Connection, Log, Producer], None], ...]] = (
    described, made_again, by_time, beyond, in_part, of_no_epoch,
)  # fmt: skip
