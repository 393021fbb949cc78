"""CreateTopics, CreatePartitions and DeleteTopics."""

from collections.abc import Sequence
from contextlib import suppress

import pytest

from highwater.conformance.cases.support.admin import (
    DEFAULT_COUNTS_SINCE,
    TIMEOUT_MS,
    config,
    controller,
    create,
    create_error,
    new_topic,
)
from highwater.conformance.clause import KRAFT, clause, era, sweep
from highwater.conformance.client.broker import LATEST, Broker, Topic, batch
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.requests import message
from highwater.conformance.defects import Reply, Request, defect
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import Unsupported
from highwater.conformance.models.settings import TOPIC_SOURCE
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import MetadataRequest, MetadataResponseTopic
from highwater.reference.wire.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from highwater.reference.wire.schema import ZERO_UUID

UNKNOWN_BROKER = 999
BY_STATE = 6
CREATED_TOPIC_DETAILS_SINCE = 5
TOPIC_ID_SINCE = 7
MANY = 250
REPORTS_SUCCESS = pytest.mark.defect(Reply(CreateTopicsRequest, "topics.error_code", 0))
IGNORES_VALIDATE_ONLY = pytest.mark.defect(Request(CreateTopicsRequest, "validate_only", False))

AUTO_CREATION_FLAG_SINCE = 4


def topic_of(cluster: Cluster, name: str) -> MetadataResponseTopic:
    with cluster.connect() as broker:
        found: MetadataResponseTopic = only(broker.metadata(name).topics)
    return found


def assert_missing(cluster: Cluster, name: str) -> None:
    cluster.connect().version_of(MetadataRequest, AUTO_CREATION_FLAG_SINCE)
    cluster.eventually(
        f"{name} to be deleted", lambda: topic_of(cluster, name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


def eventually_has(cluster: Cluster, name: str, partitions: int) -> None:
    cluster.eventually(
        f"{name} to have {partitions} partitions", lambda: len(topic_of(cluster, name).partitions) == partitions
    )


# -- create ----------------------------------------------------------------------------------------------


@clause("ADM-11")
@defect(Request(CreateTopicsRequest, "topics.num_partitions", 1), Reply(CreateTopicsRequest, "topics.name", "another"))
@sweep(CreateTopicsRequest)
def test_a_topic_is_created(cluster: Cluster, version: int) -> None:
    name = cluster.topic_name()
    created = create(cluster, new_topic(name, partitions=3), version=version)
    expect(
        "names and error codes",
        [(name, 0)],
        [(created_name, found.error_code) for created_name, found in created.items()],
    )
    eventually_has(cluster, name, 3)
    numbers = {part.partition_index for part in topic_of(cluster, name).partitions}
    expect("partitions", True, numbers == {0, 1, 2})


@clause("ADM-11", "defaults")
@defect(Reply(CreateTopicsRequest, "topics.error_code", ErrorCode.INVALID_PARTITIONS))
def test_minus_one_asks_for_the_brokers_defaults(cluster: Cluster, broker: Broker) -> None:
    broker.version_of(CreateTopicsRequest, DEFAULT_COUNTS_SINCE)
    name = cluster.topic_name()
    expect("error code", 0, create(cluster, new_topic(name, -1, -1))[name].error_code)
    cluster.eventually("a partition", lambda: bool(topic_of(cluster, name).partitions))
    parts = topic_of(cluster, name).partitions
    for setting, count in (("num_partitions", len(parts)), ("default_replication_factor", len(parts[0].replica_nodes))):
        with suppress(Unsupported):
            expect(setting.replace("_", "."), cluster.setting(setting), count)


@clause("ADM-12")
@defect(
    Reply(CreateTopicsRequest, "topics.num_partitions", 1),
    Reply(CreateTopicsRequest, "topics.configs", ()),
    Reply(CreateTopicsRequest, "topics.topic_id", ZERO_UUID),
)
def test_the_answer_tells_what_came_to_be(cluster: Cluster, broker: Broker) -> None:
    broker.version_of(CreateTopicsRequest, TOPIC_ID_SINCE)
    name = cluster.topic_name()
    created = create(cluster, new_topic(name, 3, configs={"retention.ms": "12345"}))[name]
    expect("partitions, replicas", (3, 1), (created.num_partitions, created.replication_factor))
    settings = {setting.name: (setting.value, setting.config_source) for setting in created.configs or ()}
    expect("value and source of the requested config", ("12345", TOPIC_SOURCE), settings.get("retention.ms"))
    expect("other configs are in the reply", True, "cleanup.policy" in settings)
    eventually_has(cluster, name, 3)
    expect("topic id of Metadata", topic_id(cluster, name), created.topic_id)


def topic_id(cluster: Cluster, name: str) -> bytes:
    with cluster.connect() as broker:
        found: bytes = only(broker.metadata(name, version=10).topics).topic_id
    return found


@clause("ADM-1", "exists")
@defect(Reply(CreateTopicsRequest, "topics.error_code", 0))
def test_a_topic_that_exists_is_not_created(cluster: Cluster, topic: Topic) -> None:
    expect("error code", ErrorCode.TOPIC_ALREADY_EXISTS, create_error(cluster, new_topic(topic.name)))


@clause("ADM-1", "name")
@defect(Reply(CreateTopicsRequest, "topics.error_code", 0))
@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * MANY], ids=lambda name: repr(name[:5]))
def test_a_name_that_cannot_be_one_is_refused(cluster: Cluster, name: str) -> None:
    with controller(cluster) as broker:
        reply = broker.call(CreateTopicsRequest(topics=(new_topic(name),), timeout_ms=TIMEOUT_MS))
    expect("error code", ErrorCode.INVALID_TOPIC_EXCEPTION, only(reply.topics).error_code)


@clause("ADM-1", "collision")
@defect(Reply(CreateTopicsRequest, "topics.error_code", 0))
@pytest.mark.parametrize("existing", [".a", "_a", ".a.b", "_a.b"])
def test_a_name_that_differs_only_in_dots_and_underscores_is_refused(cluster: Cluster, existing: str) -> None:
    """Metrics are named by topic, and their names cannot contain dots."""
    prefix = cluster.name()
    cluster.create_topic(name=prefix + existing)
    other = prefix + existing.translate(str.maketrans("._", "_."))
    expect("error code", ErrorCode.INVALID_TOPIC_EXCEPTION, create_error(cluster, new_topic(other)))
    assert_missing(cluster, other)


@clause("ADM-1", "counts")
@defect(Reply(CreateTopicsRequest, "topics.error_code", 0))
@pytest.mark.parametrize(
    ("partitions", "factor", "error"),
    [
        pytest.param(0, 1, ErrorCode.INVALID_PARTITIONS, id="no partition"),
        pytest.param(-2, 1, ErrorCode.INVALID_PARTITIONS, id="negative partitions"),
        pytest.param(1, 0, ErrorCode.INVALID_REPLICATION_FACTOR, id="no replica"),
        pytest.param(1, -2, ErrorCode.INVALID_REPLICATION_FACTOR, id="negative replicas"),
        pytest.param(1, 30, ErrorCode.INVALID_REPLICATION_FACTOR, id="more replicas than brokers"),
    ],
)
def test_counts_that_cannot_be_are_refused(cluster: Cluster, partitions: int, factor: int, error: int) -> None:
    name = cluster.topic_name()
    expect("error code", error, create_error(cluster, new_topic(name, partitions, factor)))
    assert_missing(cluster, name)


@clause("ADM-1", "assignment")
@defect(Reply(CreateTopicsRequest, "topics.error_code", 0))
@pytest.mark.parametrize(
    "assignment",
    [
        pytest.param([[UNKNOWN_BROKER]], id="unknown broker", marks=KRAFT),
        pytest.param([[1, 1]], id="a broker twice"),
        pytest.param([[]], id="nobody", marks=KRAFT),
    ],
)
def test_an_assignment_that_cannot_be_is_refused(cluster: Cluster, assignment: Sequence[Sequence[int]]) -> None:
    name, real = cluster.topic_name(), min(cluster.target.addresses)
    ids = [[real if node == 1 else node for node in replicas] for replicas in assignment]
    expect(
        "error code",
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        create_error(cluster, new_topic(name, -1, -1, assignment=ids)),
    )
    assert_missing(cluster, name)


@clause("ADM-1", "assignment and counts")
@defect(Reply(CreateTopicsRequest, "topics.error_code", 0))
def test_an_assignment_stands_instead_of_counts(cluster: Cluster) -> None:
    name, node = cluster.topic_name(), min(cluster.target.addresses)
    expect("error code", ErrorCode.INVALID_REQUEST, create_error(cluster, new_topic(name, 1, 1, assignment=[[node]])))
    assert_missing(cluster, name)


@clause("ADM-1", "configs")
@era("2.0")
@defect(Reply(CreateTopicsRequest, "topics.error_code", 0))
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"no.such.config": "1"}, id="unknown"),
        pytest.param({"retention.ms": "soon"}, id="not a number"),
        pytest.param({"cleanup.policy": "burn"}, id="not a policy"),
        pytest.param({"retention.ms": None}, id="null", marks=KRAFT),
        pytest.param({"min.insync.replicas": "0"}, id="too small"),
    ],
)
def test_settings_that_cannot_be_are_refused(cluster: Cluster, settings: dict[str, str | None]) -> None:
    name = cluster.topic_name()
    expect("error code", ErrorCode.INVALID_CONFIG, create_error(cluster, new_topic(name, configs=settings)))
    assert_missing(cluster, name)


@clause("ADM-1", "named twice")
@defect(Reply(CreateTopicsRequest, "topics.error_code", 0))
def test_a_topic_that_is_named_twice_is_refused(cluster: Cluster) -> None:
    duplicate, once = cluster.topic_name(), cluster.topic_name()
    created = create(cluster, new_topic(duplicate), new_topic(once), new_topic(duplicate))
    expect("error codes", (ErrorCode.INVALID_REQUEST, 0), (created[duplicate].error_code, created[once].error_code))
    assert_missing(cluster, duplicate)


@clause("ADM-13")
@defect(Reply(CreateTopicsRequest, "topics.error_code", 0))
def test_a_topic_that_fails_keeps_none_from_being_created(cluster: Cluster) -> None:
    bad, good = cluster.topic_name(), cluster.topic_name()
    created = create(cluster, new_topic(bad, 0), new_topic(good))
    expect("error codes", (ErrorCode.INVALID_PARTITIONS, 0), (created[bad].error_code, created[good].error_code))
    eventually_has(cluster, good, 1)


@clause("ADM-14", "create")
@pytest.mark.parametrize(
    ("partitions", "error"),
    [
        pytest.param(1, 0, id="sound", marks=IGNORES_VALIDATE_ONLY),
        pytest.param(0, ErrorCode.INVALID_PARTITIONS, id="not sound", marks=REPORTS_SUCCESS),
    ],
)
def test_validation_creates_nothing(cluster: Cluster, partitions: int, error: int) -> None:
    name = cluster.topic_name()
    created = create(cluster, new_topic(name, partitions), validate_only=True)
    expect("error code", error, created[name].error_code)
    expect("error code of creating it", 0, create(cluster, new_topic(name))[name].error_code)


@clause("ADM-15")
@defect(Request(CreateTopicsRequest, "topics.assignments", ()))
def test_an_assignment_is_followed(cluster: Cluster) -> None:
    cluster.need_brokers(3)
    name, nodes = cluster.topic_name(), sorted(cluster.target.addresses)
    wanted = [[nodes[2], nodes[0]], [nodes[1], nodes[2]]]
    expect("error code", 0, create_error(cluster, new_topic(name, -1, -1, assignment=wanted)))
    eventually_has(cluster, name, 2)
    found = sorted((part.partition_index, part.replica_nodes) for part in topic_of(cluster, name).partitions)
    expect("replicas, in order", True, [list(replicas) for _, replicas in found] == wanted)


@clause("ADM-16")
@defect(Request(CreateTopicsRequest, "topics.configs", ()))
def test_settings_are_kept(cluster: Cluster, broker: Broker) -> None:
    topic = cluster.create_topic(configs={"retention.ms": "12345"})
    found = config(broker, topic.name, "retention.ms")
    expect("value and source", ("12345", TOPIC_SOURCE), (found.value, found.config_source))


@clause("ADM-2")
@defect(Reply(CreateTopicsRequest, "topics.error_code", ErrorCode.INVALID_REQUEST))
def test_any_broker_creates_or_says_that_it_does_not(cluster: Cluster) -> None:
    errors = []
    for address in cluster.target.addresses.values():
        name = cluster.topic_name()
        request = CreateTopicsRequest(topics=(new_topic(name),), timeout_ms=TIMEOUT_MS)
        errors.append(only(cluster.connect(address).call(request).topics).error_code)
    expect(
        "error codes are 0 or NOT_CONTROLLER, and one is 0",
        True,
        0 in errors and set(errors) <= {0, ErrorCode.NOT_CONTROLLER},
    )


# -- add partitions ---------------------------------------------------------------------------------------


def grow(
    cluster: Cluster, name: str, count: int, *, assignment: Sequence[Sequence[int]] | None = None,
    validate_only: bool = False, version: int | None = None,
) -> int:  # fmt: skip
    """Add partitions and return the error code of CreatePartitions."""
    added = None if assignment is None else [[tuple(a)] for a in assignment]
    topic = [name, count, added]
    request = message(CreatePartitionsRequest, topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=validate_only)
    with controller(cluster) as broker:
        return int(only(broker.call(request, version, TIMEOUT_MS / 1000 + 5).results).error_code)


@clause("ADM-44")
@defect(Reply(CreatePartitionsRequest, "results.error_code", 0))
def test_a_topic_that_is_named_twice_does_not_grow(cluster: Cluster) -> None:
    topic, other = cluster.create_topic(), cluster.create_topic()
    requested = [[name, count, None] for name, count in ((topic.name, 2), (other.name, 2), (topic.name, 3))]
    with controller(cluster) as broker:
        reply = broker.call(message(CreatePartitionsRequest, topics=requested, timeout_ms=TIMEOUT_MS))
    errors = {result.name: result.error_code for result in reply.results}
    expect("error codes", True, errors == {topic.name: ErrorCode.INVALID_REQUEST, other.name: 0})
    eventually_has(cluster, other.name, 2)
    eventually_has(cluster, topic.name, 1)


@clause("ADM-17")
@defect(Request(CreatePartitionsRequest, "topics.count", 4))
@sweep(CreatePartitionsRequest)
def test_a_topic_grows(cluster: Cluster, topic: Topic, version: int) -> None:
    expect("error code", 0, grow(cluster, topic.name, 5, version=version))
    eventually_has(cluster, topic.name, 5)


@clause("ADM-3")
@defect(Reply(CreatePartitionsRequest, "results.error_code", 0))
@pytest.mark.parametrize("count", [2, 1, 0, -1], ids=["as many", "fewer", "none", "negative"])
def test_a_topic_does_not_shrink(cluster: Cluster, count: int) -> None:
    topic = cluster.create_topic(partitions=2)
    expect("error code", ErrorCode.INVALID_PARTITIONS, grow(cluster, topic.name, count))
    eventually_has(cluster, topic.name, 2)


@clause("ADM-3", "unknown topic")
@defect(Reply(CreatePartitionsRequest, "results.error_code", 0))
def test_a_topic_that_is_not_there_does_not_grow(cluster: Cluster) -> None:
    expect("error code", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, grow(cluster, cluster.topic_name(), 3))


@clause("ADM-18")
@defect(Reply(CreatePartitionsRequest, "results.error_code", 0))
@pytest.mark.parametrize(
    "assignment",
    [
        pytest.param([[UNKNOWN_BROKER]], id="unknown broker"),
        pytest.param([[1, 1]], id="a broker twice"),
        pytest.param([[]], id="nobody"),
        pytest.param([[1], [1]], id="too many"),
        pytest.param([], id="too few"),
    ],
)
def test_new_partitions_need_replicas_that_can_be(cluster: Cluster, assignment: Sequence[Sequence[int]]) -> None:
    topic = cluster.create_topic(replicas=1)
    real = min(cluster.target.addresses)
    ids = [[real if node == 1 else node for node in replicas] for replicas in assignment]
    expect("error code", ErrorCode.INVALID_REPLICA_ASSIGNMENT, grow(cluster, topic.name, 2, assignment=ids))
    eventually_has(cluster, topic.name, 1)


@clause("ADM-18", "factor")
@defect(Reply(CreatePartitionsRequest, "results.error_code", 0))
@pytest.mark.parametrize("sizes", [[1], [3], [2, 3], [3, 2]], ids=str)
def test_new_partitions_have_the_factor_of_the_topic(cluster: Cluster, sizes: Sequence[int]) -> None:
    cluster.need_brokers(3)
    nodes = sorted(cluster.target.addresses)
    topic = cluster.create_topic(assignment=nodes[:2])
    error = grow(cluster, topic.name, 1 + len(sizes), assignment=[nodes[:size] for size in sizes])
    expect("error code", ErrorCode.INVALID_REPLICA_ASSIGNMENT, error)
    eventually_has(cluster, topic.name, 1)


@clause("ADM-18", "followed")
@defect(Reply(CreatePartitionsRequest, "results.error_code", ErrorCode.INVALID_REPLICA_ASSIGNMENT))
def test_the_replicas_of_new_partitions_are_as_asked(cluster: Cluster) -> None:
    topic, node = cluster.create_topic(replicas=1), max(cluster.target.addresses)
    expect("error code", 0, grow(cluster, topic.name, 2, assignment=[[node]]))
    eventually_has(cluster, topic.name, 2)
    replicas = {part.partition_index: part.replica_nodes for part in topic_of(cluster, topic.name).partitions}
    expect("replicas of the new partition", (node,), replicas[1])


@clause("ADM-17", "factor")
@defect(Reply(MetadataRequest, "topics.partitions.replica_nodes", ()))
def test_new_partitions_have_as_many_replicas_as_the_others(cluster: Cluster) -> None:
    topic = cluster.create_topic(replicas=1)
    expect("error code", 0, grow(cluster, topic.name, 3))
    eventually_has(cluster, topic.name, 3)
    factors = {len(part.replica_nodes) for part in topic_of(cluster, topic.name).partitions}
    expect("numbers of replicas", True, factors == {1})


@clause("ADM-14", "grow")
@defect(Request(CreatePartitionsRequest, "validate_only", False))
def test_validation_adds_nothing(cluster: Cluster, topic: Topic) -> None:
    expect("error code", 0, grow(cluster, topic.name, 5, validate_only=True))
    expect("error code of a smaller count afterwards", 0, grow(cluster, topic.name, 4))
    eventually_has(cluster, topic.name, 4)


@clause("ADM-14", "grow, refused")
@defect(Reply(CreatePartitionsRequest, "results.error_code", 0))
@pytest.mark.parametrize("count", [3, 2], ids=["as many", "fewer"])
def test_validation_refuses_a_count_that_is_not_larger(cluster: Cluster, topic: Topic, count: int) -> None:
    error = grow(cluster, topic.name, count, validate_only=True)
    expect("error code", ErrorCode.INVALID_PARTITIONS, error)


# -- delete ----------------------------------------------------------------------------------------------


def delete(cluster: Cluster, *states: DeleteTopicState, version: int | None = None) -> Sequence[DeletableTopicResult]:
    """Delete topics and return the results, in any order."""
    with controller(cluster) as broker:
        chosen = broker.version_of(DeleteTopicsRequest) if version is None else version
        names = tuple(state.name or "" for state in states)
        requested = {"topics": states} if chosen >= BY_STATE else {"topic_names": names}
        reply = broker.call(DeleteTopicsRequest(timeout_ms=TIMEOUT_MS, **requested), chosen, TIMEOUT_MS / 1000 + 5)
    results: Sequence[DeletableTopicResult] = reply.responses
    return results


def delete_error(cluster: Cluster, state: DeleteTopicState) -> int:
    return only(tuple(delete(cluster, state))).error_code


@clause("ADM-4", "name")
@defect(Reply(DeleteTopicsRequest, "responses.error_code", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
@sweep(DeleteTopicsRequest)
def test_a_topic_is_deleted_by_name(cluster: Cluster, topic: Topic, version: int) -> None:
    with controller(cluster) as broker:
        broker.need(DeleteTopicsRequest, version)
    result = only(tuple(delete(cluster, DeleteTopicState(name=topic.name), version=version)))
    expect("name and error code", (topic.name, 0), (result.name, result.error_code))
    assert_missing(cluster, topic.name)


@clause("ADM-4", "id of a name")
@KRAFT  # with ZooKeeper a broker repeats the id of the request
@defect(Reply(DeleteTopicsRequest, "responses.topic_id", ZERO_UUID))
def test_a_topic_that_is_deleted_by_name_is_returned_with_its_id(
    cluster: Cluster, broker: Broker, topic: Topic
) -> None:
    broker.version_of(DeleteTopicsRequest, BY_STATE)
    known = topic_id(cluster, topic.name)
    result = only(tuple(delete(cluster, DeleteTopicState(name=topic.name))))
    expect("name, id, error code", (topic.name, known, 0), (result.name, result.topic_id, result.error_code))


@clause("ADM-4", "id")
@defect(Reply(DeleteTopicsRequest, "responses.error_code", ErrorCode.UNKNOWN_TOPIC_ID))
def test_a_topic_is_deleted_by_id(cluster: Cluster, broker: Broker, topic: Topic) -> None:
    broker.version_of(DeleteTopicsRequest, BY_STATE)
    known = topic_id(cluster, topic.name)
    result = only(tuple(delete(cluster, DeleteTopicState(topic_id=known))))
    expect("name, id, error code", (topic.name, known, 0), (result.name, result.topic_id, result.error_code))
    assert_missing(cluster, topic.name)


@clause("ADM-19", "name")
@defect(Reply(DeleteTopicsRequest, "responses.error_code", 0))
def test_an_unknown_topic_is_not_deleted(cluster: Cluster) -> None:
    expect(
        "error code",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        delete_error(cluster, DeleteTopicState(name=cluster.topic_name())),
    )


@clause("ADM-19", "id")
@defect(Reply(DeleteTopicsRequest, "responses.error_code", 0))
def test_an_unknown_id_is_not_deleted(cluster: Cluster, broker: Broker) -> None:
    broker.version_of(DeleteTopicsRequest, BY_STATE)
    expect("error code", ErrorCode.UNKNOWN_TOPIC_ID, delete_error(cluster, DeleteTopicState(topic_id=b"\x11" * 16)))


@clause("ADM-19", "both")
@defect(Reply(DeleteTopicsRequest, "responses.error_code", 0))
def test_name_and_id_together_are_refused(cluster: Cluster, broker: Broker, topic: Topic) -> None:
    broker.version_of(DeleteTopicsRequest, BY_STATE)
    state = DeleteTopicState(name=topic.name, topic_id=topic_id(cluster, topic.name))
    expect("error code", ErrorCode.INVALID_REQUEST, delete_error(cluster, state))
    expect("error code of Metadata", 0, topic_of(cluster, topic.name).error_code)


@clause("ADM-19", "neither")
@KRAFT
@defect(Reply(DeleteTopicsRequest, "responses.error_code", 0))
def test_neither_name_nor_id_is_refused(cluster: Cluster, broker: Broker) -> None:
    broker.version_of(DeleteTopicsRequest, BY_STATE)
    expect("error code", ErrorCode.INVALID_REQUEST, delete_error(cluster, DeleteTopicState()))


@clause("ADM-19", "twice")
@KRAFT
@defect(Reply(DeleteTopicsRequest, "responses.error_code", 0))
def test_a_topic_that_is_named_twice_is_not_deleted(cluster: Cluster, topic: Topic) -> None:
    state = DeleteTopicState(name=topic.name)
    errors = {result.error_code for result in delete(cluster, state, state)}
    expect("error codes", True, errors == {ErrorCode.INVALID_REQUEST})
    expect("error code of Metadata", 0, topic_of(cluster, topic.name).error_code)


@clause("ADM-20")
@KRAFT
@defect(Reply(CreateTopicsRequest, "topics.error_code", ErrorCode.TOPIC_ALREADY_EXISTS))
def test_a_name_may_be_used_again(cluster: Cluster, broker: Broker, topic: Topic) -> None:
    broker.version_of(CreateTopicsRequest, TOPIC_ID_SINCE)
    before, first = topic_id(cluster, topic.name), cluster.topic(topic.name)
    expect("error code of Produce", 0, cluster.leader(first).produce(first, batch(b"old")).error_code)
    expect("error code of the deletion", 0, delete_error(cluster, DeleteTopicState(name=topic.name)))
    assert_missing(cluster, topic.name)
    expect("error code", 0, create(cluster, new_topic(topic.name))[topic.name].error_code)
    again = cluster.topic(topic.name)
    expect("the topic id is a new one", True, topic_id(cluster, topic.name) != before)
    leader = cluster.leader(again)
    cluster.eventually("the leader to serve the new topic", lambda: leader.list_offset(again, LATEST).error_code == 0)
    expect("end offset", 0, leader.end_offset(again))
