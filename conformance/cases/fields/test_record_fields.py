"""Fields of ListOffsets, OffsetForLeaderEpoch, DeleteRecords, Fetch and Produce.

The first partition of a topic is for the row, the others are for ordinary items; each has one batch of three records.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from highwater.conformance.broker import CONSUMER, LATEST, Broker, Topic, batch, expect, records_of
from highwater.conformance.cases.fields.partitions import (
    INT16_MIN,
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    PARTITIONS,
    Item,
    by_topic,
    item,
    somewhere,
)
from highwater.conformance.cases.fields.table import Answers, Api, Call, Row, check_all, shared
from highwater.conformance.clause import clause
from highwater.conformance.cluster import Cluster
from highwater.conformance.defects import Reply, defect, increment
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from highwater.reference.wire.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from highwater.reference.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

UNKNOWN, OUT_OF_RANGE, FENCED, SERVER, INVALID = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_REQUEST,
)  # fmt: skip
RECORDS: Final = 3


@dataclass
class World:
    """A topic of three partitions that one broker leads."""

    cluster: Cluster
    topic: Topic = field(init=False)
    leader: Broker = field(init=False)
    others: Iterator[int] = field(init=False)
    written: set[int] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        node = min(self.cluster.target.addresses)
        self.topic = self.cluster.create_topic(partitions=PARTITIONS, assignment=[node])
        self.leader, self.others = self.cluster.leader(self.topic), itertools.cycle([1, 2])
        self.cluster.eventually("records in every partition", self._are_written)

    def _are_written(self) -> bool:
        """Write to the partitions without records: a broker may learn one after another which ones it leads."""
        for partition in sorted(set(range(PARTITIONS)) - self.written):
            if not self.leader.produce(self.topic, batch(*[b"v"] * RECORDS), partition=partition).error_code:
                self.written.add(partition)
        return len(self.written) == PARTITIONS


@pytest.fixture
def world(cluster: Cluster) -> World:
    return World(cluster)


# -- ListOffsets -------------------------------------------------------------------------------------------


def time(partition: int, timestamp: int = LATEST, epoch: int = -1) -> ListOffsetsPartition:
    return ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)


def list_offsets(*parts: ListOffsetsPartition, together: bool = True, **fields: Any) -> Callable[[World], Any]:
    """Return a builder of a request for partitions of the topic, each in a struct of its own unless `together`."""

    def build(world: World) -> ListOffsetsRequest:
        groups = [parts] if together else [(part,) for part in parts]
        topics = tuple(ListOffsetsTopic(name=world.topic.name, partitions=group) for group in groups)
        return ListOffsetsRequest(**{"replica_id": CONSUMER, "topics": topics, **fields})

    return build


def read_times(reply: Any) -> list[tuple[int, ...]]:
    """Return partition, error code, timestamp and offset of each answer, by partition."""
    return sorted(
        (part.partition_index, part.error_code, part.timestamp, part.offset)
        for topic in reply.topics
        for part in topic.partitions
    )


def send_times(world: World, items: Sequence[Item], version: int) -> Answers:
    request = ListOffsetsRequest(replica_id=CONSUMER, topics=by_topic(items, ListOffsetsTopic, "name"))
    return {
        (topic.name, part.partition_index): (part.error_code, part.timestamp, part.offset)
        for topic in world.leader.call(request, version).topics
        for part in topic.partitions
    }


LIST_OFFSETS: Final = Api(
    ListOffsetsRequest, lambda world: item(time(next(world.others)))(world), send_times,
    lambda each: (each[0], each[1].partition_index), (0, -1, RECORDS),
)  # fmt: skip
END: Final = (0, -1, RECORDS)
TIMES: Final[list[Row | Call]] = [
    *(replace(row, versions=(1, None)) for row in somewhere(time, (UNKNOWN, -1, -1))),
    Row(
        "timestamp smallest",
        item(time(0, INT64_MIN)),
        (ErrorCode.UNSUPPORTED_VERSION, -1, -1),
        versions=(1, None),
        since="3.9",
    ),
    Row("timestamp largest", item(time(0, INT64_MAX)), (0, -1, -1), versions=(1, None)),
    Row("current_leader_epoch -2", item(time(0, epoch=-2)), (FENCED, -1, -1), versions=(4, None)),
    Row("current_leader_epoch smallest", item(time(0, epoch=INT32_MIN)), (FENCED, -1, -1), versions=(4, None)),
    Call("replica_id -2", list_offsets(time(0), replica_id=-2), [(0, *END)], read_times, (1, None)),
    Call("replica_id of no broker", list_offsets(time(0), replica_id=999), [(0, *END)], read_times, (1, None)),
    Call(
        "isolation_level 2",
        list_offsets(time(0), time(1), isolation_level=2),
        [(0, SERVER, -1, -1), (1, SERVER, -1, -1)],
        read_times,
        (2, None),
    ),
    Call(
        "isolation_level negative",
        list_offsets(time(0), isolation_level=-1),
        [(0, SERVER, -1, -1)],
        read_times,
        (2, None),
    ),
    Call("timeout_ms 0", list_offsets(time(0), timeout_ms=0), [(0, *END)], read_times, (10, None)),
    Call("timeout_ms negative", list_offsets(time(0), timeout_ms=-1), [(0, *END)], read_times, (10, None)),
    Call("topics empty", list_offsets(topics=()), [], read_times, (1, None)),
    Call("partitions empty", list_offsets(), [], lambda reply: list(reply.topics), (1, None), since="4.0"),
    Call(
        "partition twice",
        list_offsets(time(0), time(1), time(0, 0)),
        [(0, INVALID, -1, -1), (1, *END)],
        read_times,
        (1, None),
        since="4.0",
    ),
    Call(
        "partition in two structs of its topic",
        list_offsets(time(0), time(1), time(0), together=False),
        [(0, INVALID, -1, -1), (1, *END)],
        read_times,
        (1, None),
        since="4.0",
    ),
    Call(
        "topic twice",
        list_offsets(time(0), time(1), together=False),
        [(0, *END), (1, *END)],
        read_times,
        (1, None),
    ),
]


@clause("FLD-6", "ListOffsets")
@defect(Reply(ListOffsetsRequest, "topics.partitions.error_code", increment))
@pytest.mark.parametrize("rows", shared(*TIMES))
def test_fields_of_a_search_for_offsets(world: World, rows: Sequence[Row | Call]) -> None:
    check_all(LIST_OFFSETS, rows, world, world.leader)


# -- OffsetForLeaderEpoch ----------------------------------------------------------------------------------


def epoch(partition: int, requested: int = 0, current: int = -1) -> OffsetForLeaderPartition:
    return OffsetForLeaderPartition(partition=partition, leader_epoch=requested, current_leader_epoch=current)


def epochs(*parts: OffsetForLeaderPartition, together: bool = True, **fields: Any) -> Callable[[World], Any]:
    def build(world: World) -> OffsetForLeaderEpochRequest:
        groups = [parts] if together else [(part,) for part in parts]
        topics = tuple(OffsetForLeaderTopic(topic=world.topic.name, partitions=group) for group in groups)
        return OffsetForLeaderEpochRequest(**{"replica_id": CONSUMER, "topics": topics, **fields})

    return build


def read_epochs(reply: Any) -> list[tuple[int, ...]]:
    """Return partition, error code, epoch and end offset of each answer."""
    return [
        (part.partition, part.error_code, part.leader_epoch, part.end_offset)
        for topic in reply.topics
        for part in topic.partitions
    ]


def send_epochs(world: World, items: Sequence[Item], version: int) -> Answers:
    request = OffsetForLeaderEpochRequest(replica_id=CONSUMER, topics=by_topic(items, OffsetForLeaderTopic, "topic"))
    return {
        (topic.topic, part.partition): (part.error_code, part.leader_epoch, part.end_offset)
        for topic in world.leader.call(request, version).topics
        for part in topic.partitions
    }


EPOCH_END: Final = (0, 0, RECORDS)
OFFSET_FOR_LEADER_EPOCH: Final = Api(
    OffsetForLeaderEpochRequest, lambda world: item(epoch(next(world.others)))(world), send_epochs,
    lambda each: (each[0], each[1].partition), EPOCH_END,
)  # fmt: skip
BY_EPOCH: Final[list[Row | Call]] = [
    *(replace(row, versions=(2, None)) for row in somewhere(epoch, (UNKNOWN, -1, -1))),
    Row("leader_epoch -1", item(epoch(0, -1)), (0, -1, -1), versions=(2, None)),
    Row("leader_epoch -2", item(epoch(0, -2)), (0, -2, 0), versions=(2, None)),
    Row("leader_epoch smallest", item(epoch(0, INT32_MIN)), (0, INT32_MIN, 0), versions=(2, None)),
    Row("leader_epoch largest", item(epoch(0, INT32_MAX)), (0, -1, -1), versions=(2, None)),
    Row("current_leader_epoch -2", item(epoch(0, current=-2)), (FENCED, -1, -1), versions=(2, None)),
    Call("replica_id -2", epochs(epoch(0), replica_id=-2), [(0, *EPOCH_END)], read_epochs, (3, None)),
    Call("replica_id of no broker", epochs(epoch(0), replica_id=999), [(0, *EPOCH_END)], read_epochs, (3, None)),
    Call("topics empty", epochs(topics=()), [], read_epochs, (2, None)),
    Call("partition twice", epochs(epoch(0), epoch(0)), [(0, *EPOCH_END)] * 2, read_epochs, (2, None)),
    Call(
        "partition twice with several epochs",
        epochs(epoch(0), epoch(0, -1)),
        [(0, *EPOCH_END), (0, 0, -1, -1)],
        read_epochs,
        (2, None),
    ),
]


@clause("FLD-6", "OffsetForLeaderEpoch")
@defect(Reply(OffsetForLeaderEpochRequest, "topics.partitions.error_code", increment))
@pytest.mark.parametrize("rows", shared(*BY_EPOCH))
def test_fields_of_a_search_for_the_end_of_an_epoch(world: World, rows: Sequence[Row | Call]) -> None:
    check_all(OFFSET_FOR_LEADER_EPOCH, rows, world, world.leader)


# -- DeleteRecords -----------------------------------------------------------------------------------------


def until(partition: int, offset: int = 1) -> DeleteRecordsPartition:
    return DeleteRecordsPartition(partition_index=partition, offset=offset)


def delete(*parts: DeleteRecordsPartition, together: bool = True, **fields: Any) -> Callable[[World], Any]:
    def build(world: World) -> DeleteRecordsRequest:
        groups = [parts] if together else [(part,) for part in parts]
        topics = tuple(DeleteRecordsTopic(name=world.topic.name, partitions=group) for group in groups)
        return DeleteRecordsRequest(**{"topics": topics, "timeout_ms": 4000, **fields})

    return build


def read_deleted(reply: Any) -> list[tuple[int, ...]]:
    """Return partition, error code and low watermark of each answer, by partition."""
    return sorted(
        (part.partition_index, part.error_code, part.low_watermark)
        for topic in reply.topics
        for part in topic.partitions
    )


def send_deletions(world: World, items: Sequence[Item], version: int) -> Answers:
    request = DeleteRecordsRequest(topics=by_topic(items, DeleteRecordsTopic, "name"), timeout_ms=4000)
    return {
        (topic.name, part.partition_index): (part.error_code, part.low_watermark)
        for topic in world.leader.call(request, version).topics
        for part in topic.partitions
    }


DELETE_RECORDS: Final = Api(
    DeleteRecordsRequest, lambda world: item(until(next(world.others)))(world), send_deletions,
    lambda each: (each[0], each[1].partition_index), (0, 1),
)  # fmt: skip
DELETED: Final[list[Row | Call]] = [
    *somewhere(until, (UNKNOWN, -1)),
    Row("offset 0", item(until(0, 0)), (0, 0)),
    Row("offset -2", item(until(0, -2)), (OUT_OF_RANGE, -1)),
    Row("offset smallest", item(until(0, INT64_MIN)), (OUT_OF_RANGE, -1)),
    Row("offset largest", item(until(0, INT64_MAX)), (OUT_OF_RANGE, -1)),
    Call("timeout_ms 0", delete(until(0), timeout_ms=0), [(0, 0, 1)], read_deleted),
    Call("timeout_ms negative", delete(until(0), timeout_ms=-1), [(0, 0, 1)], read_deleted),
    Call("topics empty", delete(topics=()), [], read_deleted),
    Call("partitions empty", delete(), [], lambda reply: list(reply.topics)),
    Call("topic twice", delete(until(0), until(1), together=False), [(0, 0, 1), (1, 0, 1)], read_deleted),
    Call("partition twice", delete(until(0, 3), until(0, 2)), [(0, 0, 2)], read_deleted),
    Call("partition twice, then not", delete(until(0, 3), until(0, -2)), [(0, OUT_OF_RANGE, -1)], read_deleted),
    Call("partition not, then twice", delete(until(0, -2), until(0, 3)), [(0, 0, 3)], read_deleted),
]


@clause("FLD-6", "DeleteRecords")
@defect(Reply(DeleteRecordsRequest, "topics.partitions.error_code", increment))
@pytest.mark.parametrize("rows", shared(*DELETED))
def test_fields_of_a_deletion_of_records(world: World, rows: Sequence[Row | Call]) -> None:
    check_all(DELETE_RECORDS, rows, world, world.leader)


# -- Fetch -------------------------------------------------------------------------------------------------

READ: Final = 4
"""The first version that reads record batches without conversion."""
NAMED: Final = 12
"""The last version that names topics."""
LONG_MS: Final = 60_000
SESSION_NOT_FOUND: Final = ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def start(partition: int, offset: int = 0, **fields: Any) -> FetchPartition:
    return FetchPartition(**{"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20, **fields})


def fetch(*parts: FetchPartition, together: bool = True, **fields: Any) -> Callable[[World], Any]:
    """Return a builder of a request that could wait for a minute if it had to."""

    def build(world: World) -> FetchRequest:
        groups = [parts] if together else [(part,) for part in parts]
        topics = tuple(FetchTopic(topic=world.topic.name, partitions=group) for group in groups)
        return FetchRequest(**{"max_wait_ms": LONG_MS, "min_bytes": 1, "topics": topics, **fields})

    return build


def read_fetched(reply: Any) -> tuple[Any, ...]:
    """Return the error code, then partition, error code and number of records of each answer, in their order."""
    return reply.error_code, *(
        (part.partition_index, part.error_code, len(records_of(part.records)))
        for topic in reply.responses
        for part in topic.partitions
    )


def send_fetch(world: World, items: Sequence[Item], version: int) -> Answers:
    request = FetchRequest(max_wait_ms=LONG_MS, min_bytes=1, topics=by_topic(items, FetchTopic, "topic"))
    reply = world.leader.call(request, version)
    expect("error code of Fetch", 0, reply.error_code)
    return {
        (topic.topic, part.partition_index): (part.error_code, part.high_watermark, len(records_of(part.records)))
        for topic in reply.responses
        for part in topic.partitions
    }


FETCHED: Final = (0, RECORDS, RECORDS)
FETCH: Final = Api(
    FetchRequest, lambda world: item(start(next(world.others)))(world), send_fetch,
    lambda each: (each[0], each[1].partition), FETCHED,
)  # fmt: skip


def in_order(*counts: int) -> tuple[Any, ...]:
    """Return what `read_fetched` returns for partitions from 0 with this many records."""
    return 0, *((number, 0, count) for number, count in enumerate(counts))


def since_version(first: int) -> tuple[int, int]:
    return first, NAMED


NOT_SERVED: Final = (SERVER, (0, SERVER, 0))
ALL: Final = [start(0), start(1), start(2)]
READS: Final[list[Row | Call]] = [
    *(replace(row, versions=since_version(READ)) for row in somewhere(start, (UNKNOWN, -1, 0))),
    Row("fetch_offset -1", item(start(0, -1)), (OUT_OF_RANGE, -1, 0), versions=since_version(READ)),
    Row("fetch_offset largest", item(start(0, INT64_MAX)), (OUT_OF_RANGE, -1, 0), versions=since_version(READ)),
    Row(
        "partition_max_bytes negative",
        item(start(0, partition_max_bytes=-1)),
        (SERVER, -1, 0),
        versions=since_version(READ),
    ),
    Row("log_start_offset largest", item(start(0, log_start_offset=INT64_MAX)), FETCHED, versions=since_version(5)),
    Row("log_start_offset smallest", item(start(0, log_start_offset=INT64_MIN)), FETCHED, versions=since_version(5)),
    Row("current_leader_epoch -2", item(start(0, current_leader_epoch=-2)), FETCHED, versions=since_version(9)),
    Row("last_fetched_epoch -2", item(start(0, last_fetched_epoch=-2)), FETCHED, versions=since_version(12)),
    Row(
        "last_fetched_epoch largest",
        item(start(0, last_fetched_epoch=INT32_MAX)),
        (OUT_OF_RANGE, -1, 0),
        versions=since_version(12),
    ),
    Call("max_bytes 0", fetch(*ALL, max_bytes=0), in_order(3, 0, 0), read_fetched, since_version(READ)),
    Call("max_bytes 1", fetch(*ALL, max_bytes=1), in_order(3, 0, 0), read_fetched, since_version(READ)),
    Call(
        "partition_max_bytes 0",
        fetch(*(start(number, partition_max_bytes=0) for number in range(3))),
        in_order(3, 0, 0),
        read_fetched,
        since_version(READ),
    ),
    Call(
        "partitions not in order",
        fetch(start(2), start(0), start(1)),
        (0, (2, 0, 3), (0, 0, 3), (1, 0, 3)),
        read_fetched,
        since_version(READ),
    ),
    Call("max_wait_ms negative", fetch(start(0, 3), max_wait_ms=-1), in_order(0), read_fetched, since_version(READ)),
    Call("min_bytes negative", fetch(start(0, 3), min_bytes=-1), in_order(0), read_fetched, since_version(READ)),
    Call(
        "min_bytes more than max_bytes",
        fetch(start(0), min_bytes=INT32_MAX, max_bytes=10),
        in_order(3),
        read_fetched,
        since_version(READ),
    ),
    Call(
        "isolation_level 2",
        fetch(start(0), isolation_level=2),
        (SERVER, (0, SERVER, 0)),
        read_fetched,
        since_version(7),
    ),
    Call(
        "isolation_level negative",
        fetch(start(0), isolation_level=-1),
        (SERVER, (0, SERVER, 0)),
        read_fetched,
        since_version(7),
    ),
    Call("replica_id -2", fetch(start(0), replica_id=-2), in_order(3), read_fetched, since_version(READ)),
    Call("rack_id of no broker", fetch(start(0), rack_id="no such"), in_order(3), read_fetched, since_version(11)),
    Call("cluster_id of another", fetch(start(0), cluster_id="no such"), in_order(3), read_fetched, since_version(12)),
    Call("topic twice", fetch(*ALL, together=False), in_order(3, 3, 3), read_fetched, since_version(READ)),
    Call(
        "partition twice, then not in range",
        fetch(start(0), start(1), start(0, 1000)),
        (0, (0, OUT_OF_RANGE, 0), (1, 0, 3)),
        read_fetched,
        since_version(READ),
    ),
    Call(
        "partition not in range, then twice",
        fetch(start(0, 1000), start(1), start(0)),
        in_order(3, 3),
        read_fetched,
        since_version(READ),
    ),
    Call(
        "session_epoch 5 without a session",
        fetch(start(0), session_epoch=5),
        (SESSION_NOT_FOUND,),
        read_fetched,
        since_version(7),
    ),
    Call(
        "session_epoch -2",
        fetch(start(0), session_epoch=-2),
        (SESSION_NOT_FOUND,),
        read_fetched,
        since_version(7),
    ),
    Call(
        "session_id unknown with session_epoch 0",
        fetch(start(0), session_id=7, session_epoch=0),
        in_order(3),
        read_fetched,
        since_version(7),
    ),
    Call(
        "session_id unknown with session_epoch -1",
        fetch(start(0), session_id=7, session_epoch=-1),
        (0, (0, 0, 3), 0),
        lambda reply: (*read_fetched(reply), reply.session_id),
        since_version(7),
    ),
    Call(
        "session_id negative",
        fetch(start(0), session_id=-1, session_epoch=1),
        (SESSION_NOT_FOUND,),
        read_fetched,
        since_version(7),
    ),
    Call(
        "forgotten_topics_data without a session",
        lambda world: replace(fetch(start(0))(world), forgotten_topics_data=(forgotten(world.topic.name, 0),)),
        in_order(3),
        read_fetched,
        since_version(7),
    ),
    Call(
        "forgotten_topics_data of a new session",
        lambda world: replace(
            fetch(start(0), session_epoch=0)(world), forgotten_topics_data=(forgotten(world.topic.name, 0),)
        ),
        in_order(3),
        read_fetched,
        since_version(7),
    ),
]


def forgotten(topic: str, *partitions: int) -> ForgottenTopic:
    return ForgottenTopic(topic=topic, partitions=partitions)


@clause("FLD-6", "Fetch")
@defect(Reply(FetchRequest, "responses.partitions.error_code", increment))
@pytest.mark.parametrize("rows", shared(*READS))
def test_fields_of_a_fetch(world: World, rows: Sequence[Row | Call]) -> None:
    check_all(FETCH, rows, world, world.leader)


# -- Produce -----------------------------------------------------------------------------------------------

BATCHES: Final = 3
"""The first version of Produce with record batches."""
INVALID_RECORD: Final = ErrorCode.INVALID_RECORD


def data(partition: int, records: bytes | None = None) -> PartitionProduceData:
    return PartitionProduceData(index=partition, records=batch(b"v") if records is None else records)


def produce(*parts: PartitionProduceData, together: bool = True, **fields: Any) -> Callable[[World], Any]:
    def build(world: World) -> ProduceRequest:
        groups = [parts] if together else [(part,) for part in parts]
        topics = tuple(TopicProduceData(name=world.topic.name, partition_data=group) for group in groups)
        return ProduceRequest(**{"acks": -1, "timeout_ms": 4000, "topic_data": topics, **fields})

    return build


def read_produced(reply: Any) -> list[tuple[int, int]]:
    """Return partition and error code of each answer, by partition."""
    return sorted((part.index, part.error_code) for topic in reply.responses for part in topic.partition_responses)


def send_records(world: World, items: Sequence[Item], version: int) -> Answers:
    topics = by_topic(items, TopicProduceData, "name", "partition_data")
    reply = world.leader.call(ProduceRequest(acks=-1, timeout_ms=4000, topic_data=topics), version)
    return {
        (topic.name, part.index): (part.error_code, part.base_offset >= 0)
        for topic in reply.responses
        for part in topic.partition_responses
    }


PRODUCE: Final = Api(
    ProduceRequest, lambda world: item(data(next(world.others)))(world), send_records,
    lambda each: (each[0], each[1].index), (0, True),
)  # fmt: skip
FLIPPED: Final = batch(b"v")[:-1] + b"\x7f"
WRITES: Final[list[Row | Call]] = [
    *(replace(row, versions=since_version(BATCHES)) for row in somewhere(data, (UNKNOWN, False))),
    Row("records empty", item(data(0, b"")), (INVALID_RECORD, False), versions=since_version(BATCHES)),
    Row("records of two batches", item(data(0, batch(b"v") * 2)), (INVALID_RECORD, False), versions=since_version(3)),
    Row(
        "records with a wrong checksum",
        item(data(0, FLIPPED)),
        (ErrorCode.CORRUPT_MESSAGE, False),
        versions=since_version(BATCHES),
    ),
    Row(
        "base offset and epoch in the batch",
        item(data(0, batch(b"v", base_offset=1000, partition_leader_epoch=1000))),
        (INVALID_RECORD, False),
        versions=since_version(BATCHES),
    ),
    Call("timeout_ms 0", produce(data(0), timeout_ms=0), [(0, 0)], read_produced, since_version(BATCHES)),
    Call("timeout_ms negative", produce(data(0), timeout_ms=-1), [(0, 0)], read_produced, since_version(BATCHES)),
    Call("timeout_ms smallest", produce(data(0), timeout_ms=INT32_MIN), [(0, 0)], read_produced, since_version(3)),
    Call(
        "acks smallest",
        produce(data(0), data(1), acks=INT16_MIN),
        [(0, ErrorCode.INVALID_REQUIRED_ACKS), (1, ErrorCode.INVALID_REQUIRED_ACKS)],
        read_produced,
        since_version(BATCHES),
    ),
    Call("transactional_id empty", produce(data(0), transactional_id=""), [(0, 0)], read_produced, since_version(3)),
    Call(
        "transactional_id without transactional records",
        produce(data(0), transactional_id="no such"),
        [(0, 0)],
        read_produced,
        since_version(3),
    ),
    Call("topic_data empty", produce(topic_data=()), [], read_produced, since_version(BATCHES)),
    Call("partition_data empty", produce(), [], read_produced, since_version(BATCHES)),
    Call("topic twice", produce(data(0), data(1), together=False), [(0, 0), (1, 0)], read_produced, since_version(3)),
    Call("partition twice", produce(data(0), data(1), data(0)), [(0, 0), (1, 0)], read_produced, since_version(3)),
    Call(
        "partition twice, then not valid",
        produce(data(0), data(0, FLIPPED)),
        [(0, ErrorCode.CORRUPT_MESSAGE)],
        read_produced,
        since_version(BATCHES),
    ),
    Call("partition not valid, then twice", produce(data(0, FLIPPED), data(0)), [(0, 0)], read_produced, (3, NAMED)),
]


@clause("FLD-6", "Produce")
@defect(Reply(ProduceRequest, "responses.partition_responses.error_code", increment))
@pytest.mark.parametrize("rows", shared(*WRITES))
def test_fields_of_a_produce(world: World, rows: Sequence[Row | Call]) -> None:
    check_all(PRODUCE, rows, world, world.leader)
