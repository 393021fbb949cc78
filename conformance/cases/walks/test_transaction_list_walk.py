"""Walks over transactions in different states: what each filter lists, and what is described of each."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from highwater.conformance.cases.support.polling import eventually_equal, spread
from highwater.conformance.cases.support.transactions import ABORT, COMMIT, Transactional
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import Broker, Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect, increment
from highwater.conformance.expectations import expect
from highwater.conformance.models.comparison import ANYTHING, compare
from highwater.conformance.models.transactions import ABORTED, COMMITTED, EMPTY, ONGOING, ModelTransaction
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransactionState,
    ListTransactionsRequest,
    ListTransactionsResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)

DURATION_SINCE, PATTERN_SINCE = 1, 2
HOUR_MS: Final = 3_600_000
STATES: Final[Sequence[tuple[str, ...]]] = (
    (), (EMPTY,), (ONGOING,), (COMMITTED,), (ABORTED,), (ONGOING, ABORTED), ("PrepareCommit", "PrepareAbort", "Dead"),
    ("NoSuchState", ONGOING), ("NoSuchState",), ("ongoing", "Another"), (COMMITTED, COMMITTED, EMPTY),
)  # fmt: skip
KNOWN: Final = {EMPTY, ONGOING, COMMITTED, ABORTED, "PrepareCommit", "PrepareAbort", "Dead", "PrepareEpochFence"}


@clause("TXN-18", "walk")
@defect(
    Request(ListTransactionsRequest, "producer_id_filters", ()),
    Reply(ListTransactionsRequest, "unknown_state_filters", ()),
    Reply(DescribeTransactionsRequest, "transaction_states.transaction_timeout_ms", increment),
)
def test_every_filter_lists_what_the_model_lists(cluster: Cluster) -> None:
    """The transactions of five producers, one without any, are in different states."""
    cluster.connect().version_of(ListTransactionsRequest)
    first, second = (cluster.create_topic(partitions=2) for _ in range(2))
    found = [
        ModelTransaction(Transactional.initialize(cluster), EMPTY),
        ModelTransaction(_begin(cluster, first), ONGOING, (first,)),
        ModelTransaction(_begin(cluster, first, second), ONGOING, (first, second)),
        ModelTransaction(_begin(cluster, second), COMMITTED),
        ModelTransaction(_begin(cluster, second), ABORTED),
    ]
    for each, outcome in ((found[3], COMMIT), (found[4], ABORT)):
        each.producer.end(commit=outcome)
    _check_descriptions(cluster, found)
    for version in spread(cluster.connect(), ListTransactionsRequest):
        for request in _filters(cluster, found, version):
            _check_list(cluster, found, request, version)


def _begin(cluster: Cluster, *topics: Topic) -> Transactional:
    producer = Transactional.initialize(
        cluster, timeout_ms=cluster.within(50_000, at_most="transaction_max_timeout_ms")
    )
    producer.begin(*topics)
    for topic in topics:
        producer.write(topic, 0)
    return producer


def _filters(
    cluster: Cluster, found: Sequence[ModelTransaction[Transactional]], version: int
) -> Iterator[ListTransactionsRequest]:
    ids = [each.producer.producer_id for each in found]
    for states in STATES:
        yield ListTransactionsRequest(state_filters=states)
    for chosen in (ids[:1], ids[1:4], [max(ids) + 1_000_000], [max(ids) + 1_000_000, ids[4], ids[4]]):
        yield ListTransactionsRequest(producer_id_filters=tuple(chosen))
        yield ListTransactionsRequest(producer_id_filters=tuple(chosen), state_filters=(ONGOING, ABORTED))
    if version >= DURATION_SINCE:
        for duration_ms in (-1, 0, HOUR_MS):
            yield ListTransactionsRequest(state_filters=(ONGOING,), duration_filter=duration_ms)
    if version >= PATTERN_SINCE:
        name = re.escape(found[1].producer.id)
        for pattern in (f"{name}|none", f"{cluster.prefix}-.*", "none", f"{name}.+", "", ".*"):
            yield ListTransactionsRequest(transactional_id_pattern=pattern)


def _check_list(
    cluster: Cluster, found: Sequence[ModelTransaction[Transactional]], request: ListTransactionsRequest, version: int
) -> None:
    """Compare what all coordinators together list of the transactions of this case."""
    own, unknown = {each.producer.id for each in found}, set[str]()
    listed: list[ListedTransactionState] = []
    for node, address in cluster.target.addresses.items():
        with cluster.connect(address) as broker:
            reply = broker.call(request, version)
        expect(f"error code of {request} of broker {node}", 0, reply.error_code)
        listed += [each for each in reply.transaction_states if each.transactional_id in own]
        unknown |= set(reply.unknown_state_filters)
    expected = ListTransactionsResponse(
        unknown_state_filters=tuple(sorted(set(request.state_filters) - KNOWN)),
        transaction_states=tuple(each.listed for each in found if _passes(each, request)),
    )
    actual = ListTransactionsResponse(
        unknown_state_filters=tuple(sorted(unknown)), transaction_states=tuple(listed)
    )  # fmt: skip
    compare(f"ListTransactions {version} with {request}", expected, actual, version)


def _passes(each: ModelTransaction[Transactional], request: ListTransactionsRequest) -> bool:
    """An empty filter is none; the pattern must match the whole id (KIP-1152)."""
    pattern = request.transactional_id_pattern
    return (
        (not request.state_filters or each.state in request.state_filters)
        and (not request.producer_id_filters or each.producer.producer_id in request.producer_id_filters)
        and request.duration_filter < HOUR_MS
        and (not pattern or bool(re.fullmatch(pattern, each.producer.id)))
    )


def _check_descriptions(cluster: Cluster, found: Sequence[ModelTransaction[Transactional]]) -> None:
    """Compare the descriptions of all transactions of each coordinator, beside one that does not exist."""
    addresses = {each.producer.coordinator.address for each in found}
    for address in addresses:
        broker = cluster.connect(address)
        own = [each for each in found if each.producer.coordinator.address == address]
        request = DescribeTransactionsRequest(transactional_ids=tuple(each.producer.id for each in own))
        expected = DescribeTransactionsResponse(transaction_states=tuple(each.described for each in own))
        eventually_equal(cluster, "DescribeTransactions", expected, partial(broker.call, request), 0)


@clause("TXN-16", "walk")
@defect(
    Reply(DescribeProducersRequest, "topics.partitions.active_producers.last_sequence", increment),
    Reply(DescribeProducersRequest, "topics.partitions.active_producers.current_txn_start_offset", 0),
)
def test_the_producers_of_each_partition_follow_the_model(cluster: Cluster) -> None:
    """Producers write to some of the partitions of two topics; partitions that do not exist are between them."""
    cluster.connect().version_of(DescribeProducersRequest)
    topics = [cluster.create_topic(partitions=2) for _ in range(2)]
    parts = [cluster.topic(topic.name, partition=number) for topic in topics for number in range(2)]
    first, second = (Transactional.initialize(cluster) for _ in range(2))
    expected: dict[tuple[str, int], dict[int, ProducerState]] = {(part.name, part.partition): {} for part in parts}
    for producer, chosen in ((first, parts[:3]), (second, parts[1:2] + parts[3:])):
        producer.begin(*chosen[:1])
        for part in chosen[1:]:
            producer.begin(part)
        for sequence in range(3):
            for part in chosen:
                base = producer.write(part, sequence)
                known = expected[part.name, part.partition].get(producer.producer_id)
                start = known.current_txn_start_offset if known else base
                expected[part.name, part.partition][producer.producer_id] = _state(producer, sequence, start)
    for leader in {part.leader for part in parts}:
        _check_producers(cluster, [part for part in parts if part.leader == leader], expected)


def _state(producer: Transactional, sequence: int, start: int) -> ProducerState:
    anything: Any = ANYTHING
    return ProducerState(
        producer_id=producer.producer_id, producer_epoch=producer.epoch, last_sequence=sequence,
        last_timestamp=anything, coordinator_epoch=anything, current_txn_start_offset=start,
    )  # fmt: skip


def _check_producers(
    cluster: Cluster, parts: Sequence[Topic], expected: dict[tuple[str, int], dict[int, ProducerState]]
) -> None:
    """Compare what one leader describes of its partitions, beside a partition and a topic that do not exist."""
    broker: Broker = cluster.leader(parts[0])
    wanted = {part.name: sorted(each.partition for each in parts if each.name == part.name) for part in parts}
    absent = cluster.name("absent")
    request = DescribeProducersRequest(
        topics=tuple(
            TopicRequest(name=name, partition_indexes=(1000, *numbers))
            for name, numbers in {absent: [0], **wanted}.items()
        )
    )
    results = tuple(
        TopicResponse(
            name=name,
            partitions=(
                PartitionResponse(partition_index=1000, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                *(
                    PartitionResponse(partition_index=number, active_producers=tuple(expected[name, number].values()))
                    for number in numbers
                ),
            ),
        )
        for name, numbers in wanted.items()
    )
    missing = tuple(
        PartitionResponse(partition_index=number, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for number in (1000, 0)
    )
    whole = DescribeProducersResponse(topics=(TopicResponse(name=absent, partitions=missing), *results))
    compare("DescribeProducers", whole, broker.call(request), 0)
