"""Fields of AddPartitionsToTxn, TxnOffsetCommit, DescribeProducers and WriteTxnMarkers."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from highwater.conformance.broker import Broker, expect, only
from highwater.conformance.cases.fields.partitions import (
    INT32_MAX,
    INT64_MAX,
    Item,
    by_topic,
    item,
    somewhere,
)
from highwater.conformance.cases.fields.producers import (
    FENCED,
    OLD_FENCED,
    OTHER_ID,
    WRONG_EPOCHS,
    WRONG_IDS,
    World,
    expect_state_if_known,
    fenced,
    identity,
    send_call,
    transactional_id,
)
from highwater.conformance.cases.fields.table import Answers, Api, Call, Row, calls, check_all, later, no_items, shared
from highwater.conformance.cases.support.committed_offsets import committed_topics
from highwater.conformance.cases.support.transactions import COMMIT, Transactional, describe_transaction
from highwater.conformance.clause import clause
from highwater.conformance.cluster import Cluster
from highwater.conformance.defects import Reply, defect, increment
from highwater.conformance.failures import TargetFailure, Unsupported
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    DescribeProducersRequest,
    TopicRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

UNKNOWN, NOT_ATTEMPTED, NO_GROUP_NAME, TOO_LARGE, NO_MEMBER = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INVALID_GROUP_ID,
    ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.UNKNOWN_MEMBER_ID,
)  # fmt: skip
OBSERVED: Final = "3.9"
"""The first release that was seen to answer as in some rows; 2.8 does not."""
CLASSIC: Final = (0, 3)
"""The versions of AddPartitionsToTxn for clients."""
BATCHED: Final = (4, None)
ABORTABLE_SINCE: Final = 5


@pytest.fixture
def world(cluster: Cluster) -> World:
    return World(cluster)


def partition_key(each: Any) -> tuple[str, int]:
    return each[0], each[1]


# -- AddPartitionsToTxn for one transaction ----------------------------------------------------------------


def classic(producer: Transactional, topics: tuple[AddPartitionsToTxnTopic, ...], **fields: Any) -> Any:
    """Return a request in a version for clients; the fields have the names that they have in other requests."""
    named = {f"v3_and_below_{name}": value for name, value in identity(producer, fields).items()}
    return AddPartitionsToTxnRequest(v3_and_below_topics=topics, **named)


def additions(*partitions: int, together: bool = True, **fields: Any) -> Callable[[World], Any]:
    """Return a builder of a request of a new producer, with a struct for each partition unless `together`."""

    def build(world: World) -> Any:
        groups = [partitions] if together else [(partition,) for partition in partitions]
        topics = tuple(AddPartitionsToTxnTopic(name=world.topic.name, partitions=group) for group in groups)
        return classic(world.producer(), topics, **fields)

    return build


def no_topics(world: World) -> Any:
    return classic(world.producer(), ())


def send_additions(world: World, items: Sequence[Item], version: int) -> Answers:
    request = classic(world.producer(), by_topic(items, AddPartitionsToTxnTopic, "name"))
    return {
        (topic.name, part.partition_index): part.partition_error_code
        for topic in world.call(request, version).results_by_topic_v3_and_below
        for part in topic.results_by_partition
    }


def read_additions(reply: Any) -> list[tuple[int, int]]:
    """Return partition and error code of each answer, by partition."""
    return sorted(
        (part.partition_index, part.partition_error_code)
        for topic in reply.results_by_topic_v3_and_below
        for part in topic.results_by_partition
    )


def contains(*partitions: int) -> Callable[[World, Any], None]:
    """Return a check of the partitions of the transaction of a request."""

    def stored(world: World, request: Any) -> None:
        found = describe_transaction(Transactional(world.cluster, transactional_id(request) or ""))
        expect("partitions of the transaction", list(partitions), sorted(n for t in found.topics for n in t.partitions))

    return stored


def begins_none(world: World, request: Any) -> None:
    """Check that the producer of the request, if it exists, has no transaction."""
    expect_state_if_known(world, request.v3_and_below_transactional_id, "Empty")


ADD_PARTITIONS: Final = Api(
    AddPartitionsToTxnRequest, lambda world: item(next(world.others))(world), send_additions, partition_key,
    call=send_call,
)  # fmt: skip
ADDED: Final[list[Row | Call]] = [
    *(replace(row, versions=CLASSIC, others=NOT_ATTEMPTED) for row in somewhere(int, UNKNOWN)),
    Call("topics empty", no_topics, [], read_additions, CLASSIC),
    Call("partitions empty", additions(), [], read_additions, CLASSIC),
    *(
        Call(name, request, [(part, 0) for part in parts], read_additions, CLASSIC, since, contains(*set(parts)))
        for name, request, parts, since in [
            ("partition twice", additions(0, 1, 0), (0, 0, 1), OBSERVED),
            ("topic twice", additions(0, 1, together=False), (0, 1), ""),
            ("partition in two structs of its topic", additions(1, 1, together=False), (1, 1), OBSERVED),
        ]
    ),
    *(
        Call(name, additions(0, 2, **changed), [(0, error), (2, error)], read_additions, CLASSIC, stored=begins_none)
        for name, changed, error in WRONG_IDS
    ),
    *(
        row
        for name, epoch in WRONG_EPOCHS
        for row in fenced(
            Call(name, additions(0, producer_epoch=epoch), 0, read_additions, CLASSIC, stored=begins_none),
            2,
            lambda code: [(0, code)],
        )
    ),
]  # fmt: skip


@clause("FLD-8", "AddPartitionsToTxn")
@defect(Reply(AddPartitionsToTxnRequest, "results_by_topic_v3_and_below.results_by_partition.partition_error_code", 1))
@pytest.mark.parametrize("rows", shared(*ADDED))
def test_fields_of_an_addition_of_partitions(world: World, rows: Sequence[Row | Call]) -> None:
    check_all(ADD_PARTITIONS, rows, world, world.broker)


# -- AddPartitionsToTxn for several transactions -----------------------------------------------------------


def batch(*wanted: tuple[int, ...], verify_only: bool = True, **fields: Any) -> Callable[[World], Any]:
    """Return a builder of a request with a transaction for each tuple of partitions, all of one producer.

    The last transaction has the changed fields. The transaction of the producer contains the last partition.
    """

    def build(world: World) -> Any:
        producer = world.open_producer()
        found = [
            AddPartitionsToTxnTransaction(
                **identity(producer, fields if number == len(wanted) - 1 else {}), verify_only=verify_only,
                topics=(AddPartitionsToTxnTopic(name=world.topic.name, partitions=partitions),),
            )
            for number, partitions in enumerate(wanted)
        ]  # fmt: skip
        return AddPartitionsToTxnRequest(transactions=tuple(found))

    return build


def send_batch(world: World, request: Any, version: int) -> Any:
    reply = world.call(request, version)
    if reply.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise Unsupported("the client may not send AddPartitionsToTxn as brokers do")
    return reply


def read_batch(reply: Any) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return for each transaction the partition and error code of each answer, all in order."""
    return tuple(sorted(
        tuple(sorted(
            (part.partition_index, part.partition_error_code)
            for topic in result.topic_results
            for part in topic.results_by_partition
        ))
        for result in reply.results_by_transaction
    ))  # fmt: skip


def beside(*errors: int) -> frozenset[Any]:
    """Return the answers to a request for the last partition, beside a transaction with one of these errors."""
    return frozenset(tuple(sorted([((2, 0),), ((1, error),)])) for error in errors)


NOT_ADDED: Final = ErrorCode.TRANSACTION_ABORTABLE
ELSEWHERE: Final = ErrorCode.NOT_COORDINATOR
"""An unknown transactional id may have another coordinator."""
FENCED_BATCH: Final = frozenset({(((1, FENCED),),), (((1, OLD_FENCED),),)})
# Apache Kafka 4.3.1 never answers a request without transactions.
BATCHES: Final = [
    Call("partitions empty", batch(()), frozenset({((),), ()}), read_batch, BATCHED),
    Call("partition negative", batch((-1, 2)), (((-1, UNKNOWN), (2, NOT_ATTEMPTED)),), read_batch, BATCHED),
    Call("partition largest", batch((INT32_MAX,)), (((INT32_MAX, UNKNOWN),),), read_batch, BATCHED),
    Call("partition beside another", batch((0, 2)), (((0, NOT_ADDED), (2, 0)),), read_batch, (ABORTABLE_SINCE, None)),
    *(
        Call(name, batch((2,), (1,), **changed), beside(error, ELSEWHERE), read_batch, BATCHED)
        for name, changed, error in WRONG_IDS[:3]
    ),
    *(
        Call(name, batch((2,), **changed), (((2, error),),), read_batch, BATCHED)
        for name, changed, error in WRONG_IDS[3:]
    ),
    *(
        Call(name, batch((1,), producer_epoch=epoch), FENCED_BATCH, read_batch, BATCHED)
        for name, epoch in WRONG_EPOCHS
    ),
    Call(
        "verify_only false", batch((0, 2), verify_only=False), (((0, 0), (2, 0)),), read_batch, BATCHED,
        stored=contains(0, 2),
    ),
    *(
        Call(f"{name}, to be added", batch((1,), verify_only=False, **changed), (((1, error),),), read_batch, BATCHED)
        for name, changed, error in WRONG_IDS[-4:]
    ),
]  # fmt: skip


@clause("FLD-8", "AddPartitionsToTxn in batches")
@defect(Reply(AddPartitionsToTxnRequest, "results_by_transaction.topic_results", ()))
@pytest.mark.parametrize("rows", shared(*BATCHES))
def test_fields_of_an_addition_to_several_transactions(world: World, rows: Sequence[Call]) -> None:
    check_all(no_items(AddPartitionsToTxnRequest, send_batch), rows, world, world.broker)


# -- TxnOffsetCommit ---------------------------------------------------------------------------------------

OFFSET: Final = 5
LIMIT: Final = "offset_metadata_max_bytes"


@dataclass
class OffsetWorld(World):
    """Also a group, to whose coordinator the requests are sent."""

    group: str = field(init=False)
    coordinator: Broker = field(init=False)
    last: Transactional = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.group = self.cluster.group()
        self.coordinator = self.cluster.coordinator(self.group)

    def adding_producer(self) -> Transactional:
        """Return a new producer with an open transaction to which the group is added."""
        self.last = self.producer()
        expect("error code of AddOffsetsToTxn", 0, self.last.add_offsets(self.group))
        return self.last


def offset(partition: int, committed: int = OFFSET, **fields: Any) -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=committed, **fields)


def described(length: int) -> Callable[[OffsetWorld], Item]:
    """Return a builder of an item whose metadata has the largest length plus `length`."""
    return lambda world: item(offset(0, committed_metadata="m" * (world.cluster.setting(LIMIT) + length)))(world)


def commits(
    *parts: TxnOffsetCommitRequestPartition, together: bool = True, **fields: Any
) -> Callable[[OffsetWorld], Any]:
    """Return a builder of a request of a new producer, with a struct for each partition unless `together`."""

    def build(world: OffsetWorld) -> Any:
        producer = world.adding_producer()
        groups = [parts] if together else [(part,) for part in parts]
        topics = tuple(TxnOffsetCommitRequestTopic(name=world.topic.name, partitions=group) for group in groups)
        return TxnOffsetCommitRequest(**identity(producer, fields, group_id=world.group, topics=topics))

    return build


def commits_first(**fields: Any) -> Callable[[OffsetWorld], Any]:
    """Return a builder of a request for the first partition."""
    return commits(offset(0), **fields)


def call_group(world: OffsetWorld, request: Any, version: int) -> Any:
    return world.patiently(world.coordinator, request, version)


def send_commits(world: OffsetWorld, items: Sequence[Item], version: int) -> Answers:
    request = replace(commits()(world), topics=by_topic(items, TxnOffsetCommitRequestTopic, "name"))
    return {
        (topic.name, part.partition_index): part.error_code
        for topic in call_group(world, request, version).topics
        for part in topic.partitions
    }


def read_commits(reply: Any) -> list[tuple[int, int]]:
    """Return partition and error code of each answer, by partition."""
    return sorted((part.partition_index, part.error_code) for topic in reply.topics for part in topic.partitions)


def has_committed(committed: int, epoch: int, metadata: str) -> Callable[[OffsetWorld, Any], None]:
    """Return a check of what the commit of the last transaction stores for the first partition."""
    wanted = (committed, epoch, metadata)

    def stored(world: OffsetWorld, sent: Any) -> None:
        world.last.end(commit=COMMIT)
        found: list[tuple[int, int, str]] = []

        def is_stored() -> bool:
            (topic,) = committed_topics(world.coordinator, world.group, world.part(0))
            part = only(topic.partitions)
            found[:] = [(part.committed_offset, part.committed_leader_epoch, part.metadata)]
            return found == [wanted]

        with suppress(TargetFailure):
            world.cluster.eventually("the offset", is_stored)
        expect("offset, leader epoch and metadata", [wanted], found)

    return stored


VERIFIED: Final = "3.9"
"""The first release that was seen to verify the producer of an offset (KIP-890)."""
MEMBER: Final = (3, None)
"""The versions with a member of a group."""
MEMBERS: Final[list[tuple[str, dict[str, Any], list[tuple[int, int]]]]] = [
    ("generation_id -2", {"generation_id": -2}, [(0, 0)]),
    ("generation_id 0", {"generation_id": 0}, [(0, NO_MEMBER)]),
    ("generation_id largest", {"generation_id": INT32_MAX}, [(0, NO_MEMBER)]),
    ("member_id unknown", {"member_id": "m"}, [(0, 0)]),
    ("member_id unknown in a generation", {"member_id": "m", "generation_id": 1}, [(0, NO_MEMBER)]),
    ("group_instance_id unknown", {"group_instance_id": "i"}, [(0, 0)]),
    ("group_instance_id empty", {"group_instance_id": ""}, [(0, 0)]),
]
"""Name of a row, changed fields, and the error for a group without members."""
TXN_OFFSET_COMMIT: Final = Api(
    TxnOffsetCommitRequest, lambda world: item(offset(next(world.others)))(world), send_commits,
    lambda each: (each[0], each[1].partition_index), call=call_group,
)  # fmt: skip
COMMITS: Final[list[Row | Call]] = [
    *somewhere(offset, UNKNOWN),
    Row("committed_offset 0", item(offset(0, 0)), stored=has_committed(0, -1, "")),
    Row("committed_offset largest", item(offset(0, INT64_MAX)), stored=has_committed(INT64_MAX, -1, "")),
    Row("committed_leader_epoch -2", item(offset(0, committed_leader_epoch=-2)), versions=(2, None)),
    Row(
        "committed_leader_epoch largest",
        item(offset(0, committed_leader_epoch=INT32_MAX)),
        stored=has_committed(OFFSET, INT32_MAX, ""),
        versions=(2, None),
    ),
    Row("committed_metadata null", item(offset(0, committed_metadata=None)), stored=has_committed(OFFSET, -1, "")),
    Row(
        "committed_metadata with a line break",
        item(offset(0, committed_metadata="a\n\0b")),
        stored=has_committed(OFFSET, -1, "a\n\0b"),
    ),
    Row("committed_metadata of the largest length", described(0)),
    Row("committed_metadata too long", described(1), TOO_LARGE),
    Call("topics empty", commits(topics=()), [], read_commits),
    Call("partitions empty", commits(), [], read_commits),
    Call("topic twice", commits(offset(0), offset(1), together=False), [(0, 0), (1, 0)], read_commits),
    Call(
        "partition twice", commits(offset(0, 7), offset(0, 6)), [(0, 0), (0, 0)], read_commits, since="4.0",
        stored=has_committed(6, -1, ""),
    ),
    Call("group_id empty", commits(offset(0), group_id=""), [(0, NO_GROUP_NAME)], read_commits),
    *later(OBSERVED, *calls(commits_first, read_commits, MEMBERS, MEMBER)),
    *(
        Call(name, commits_first(**changed), [(0, error)], read_commits, since=VERIFIED)
        for name, changed, error in WRONG_IDS[1:]
    ),
    *(
        Call(name, commits_first(producer_epoch=epoch), [(0, OLD_FENCED)], read_commits, since=VERIFIED)
        for name, epoch in WRONG_EPOCHS
    ),
]  # fmt: skip


@pytest.fixture
def offset_world(cluster: Cluster) -> OffsetWorld:
    return OffsetWorld(cluster)


@clause("FLD-8", "TxnOffsetCommit")
@defect(Reply(TxnOffsetCommitRequest, "topics.partitions.error_code", increment))
@pytest.mark.parametrize("rows", shared(*COMMITS))
def test_fields_of_a_commit_in_a_transaction(offset_world: OffsetWorld, rows: Sequence[Row | Call]) -> None:
    check_all(TXN_OFFSET_COMMIT, rows, offset_world, offset_world.coordinator)


# -- DescribeProducers -------------------------------------------------------------------------------------


def producers(*partitions: int, together: bool = True, **fields: Any) -> Callable[[World], Any]:
    def build(world: World) -> Any:
        groups = [partitions] if together else [(partition,) for partition in partitions]
        topics = tuple(TopicRequest(name=world.topic.name, partition_indexes=group) for group in groups)
        return DescribeProducersRequest(**{"topics": topics} | fields)

    return build


def read_producers(reply: Any) -> list[tuple[int, int, int]]:
    """Return partition, error code and number of producers of each answer, by partition."""
    return sorted(
        (part.partition_index, part.error_code, len(part.active_producers))
        for topic in reply.topics
        for part in topic.partitions
    )


def send_producers(world: World, items: Sequence[Item], version: int) -> Answers:
    request = DescribeProducersRequest(topics=by_topic(items, TopicRequest, "name", "partition_indexes"))
    return {
        (topic.name, part.partition_index): (part.error_code, len(part.active_producers))
        for topic in world.leader.call(request, version).topics
        for part in topic.partitions
    }


DESCRIBE_PRODUCERS: Final = Api(
    DescribeProducersRequest, lambda world: item(next(world.others))(world), send_producers, partition_key, (0, 1)
)
ILLEGAL: Final = (ErrorCode.INVALID_TOPIC_EXCEPTION, 0)
"""The answer for a name that no topic can have."""
DESCRIBED: Final[list[Row | Call]] = [
    *(replace(row, since=OBSERVED if row.answer == ILLEGAL else "") for row in somewhere(int, (UNKNOWN, 0), ILLEGAL)),
    Row("partition without producers", item(0), (0, 0)),
    Call("topics empty", producers(topics=()), [], read_producers),
    Call("partitions empty", producers(), [], read_producers),
    Call("partition twice", producers(1, 0, 1), [(0, 0, 0), (1, 0, 1), (1, 0, 1)], read_producers),
    Call("topic twice", producers(1, 0, together=False), [(0, 0, 0), (1, 0, 1)], read_producers),
]


@clause("FLD-8", "DescribeProducers")
@defect(Reply(DescribeProducersRequest, "topics.partitions.error_code", increment))
@pytest.mark.parametrize("rows", shared(*DESCRIBED))
def test_fields_of_a_description_of_producers(world: World, rows: Sequence[Row | Call]) -> None:
    world.leader.version_of(DescribeProducersRequest)
    producer = world.producer()
    for partition in (1, 2):
        producer.begin(world.part(partition))
        producer.write(world.part(partition), 0)
    check_all(DESCRIBE_PRODUCERS, rows, world, world.leader)


# -- WriteTxnMarkers ---------------------------------------------------------------------------------------


def marker(*topics: WritableTxnMarkerTopic, **fields: Any) -> Any:
    """Return a marker of a producer that has written to no partition."""
    usual: dict[str, Any] = {"producer_id": OTHER_ID, "producer_epoch": 3, "topics": topics}
    return WritableTxnMarker(**usual | fields)


def markers(*partitions: int, **fields: Any) -> Callable[[World], Any]:
    def build(world: World) -> Any:
        topic = WritableTxnMarkerTopic(name=world.topic.name, partition_indexes=partitions)
        return WriteTxnMarkersRequest(**{"markers": (marker(topic),)} | fields)

    return build


def several(*wanted: tuple[Any, ...]) -> Callable[[World], Any]:
    """Return a builder of a request with a marker for each producer id, with a struct for each tuple of partitions."""

    def build(world: World) -> Any:
        found = [
            marker(
                *(WritableTxnMarkerTopic(name=world.topic.name, partition_indexes=each) for each in parts),
                producer_id=producer_id,
            )
            for producer_id, *parts in wanted
        ]
        return WriteTxnMarkersRequest(markers=tuple(found))

    return build


def read_markers(reply: Any) -> list[tuple[int, int]]:
    """Return partition and error code of each answer, by partition."""
    return sorted(
        (part.partition_index, part.error_code)
        for found in reply.markers
        for topic in found.topics
        for part in topic.partitions
    )


def send_markers(world: World, items: Sequence[Item], version: int) -> Answers:
    topics = by_topic(items, WritableTxnMarkerTopic, "name", "partition_indexes")
    reply = world.leader.call(WriteTxnMarkersRequest(markers=(marker(*topics),)), version)
    return {
        (topic.name, part.partition_index): part.error_code
        for found in reply.markers
        for topic in found.topics
        for part in topic.partitions
    }


WRITE_MARKERS: Final = Api(
    WriteTxnMarkersRequest, lambda world: item(next(world.others))(world), send_markers, partition_key
)
# Apache Kafka 4.3.1 never answers a partition twice in one marker, nor a last marker with unknown partitions only.
MARKED: Final[list[Row | Call]] = [
    *somewhere(int, UNKNOWN),
    Call("markers empty", markers(markers=()), [], read_markers),
    Call("topics empty", markers(markers=(marker(),)), [], read_markers),
    Call("partitions empty", markers(), [], read_markers),
    Call("topic twice", several((OTHER_ID, (0,), (1,))), [(0, 0), (1, 0)], read_markers),
    Call("producer twice", several((OTHER_ID, (0,)), (OTHER_ID, (1,))), [(0, 0), (1, 0)], read_markers),
    Call("two producers", several((OTHER_ID, (0,)), (OTHER_ID + 1, (0,))), [(0, 0), (0, 0)], read_markers),
    Call("unknown for one", several((OTHER_ID, (9,)), (OTHER_ID + 1, (0,))), [(0, 0), (9, UNKNOWN)], read_markers),
    Call("producer_id 0", several((0, (0,))), [(0, 0)], read_markers),
    Call("producer_id largest", several((INT64_MAX, (0,))), [(0, 0)], read_markers),
]


@clause("FLD-8", "WriteTxnMarkers")
@defect(Reply(WriteTxnMarkersRequest, "markers.topics.partitions.error_code", increment))
@pytest.mark.parametrize("rows", shared(*MARKED))
def test_fields_of_markers(world: World, rows: Sequence[Row | Call]) -> None:
    check_all(WRITE_MARKERS, rows, world, world.leader)
