"""Fields of CreateTopics and CreatePartitions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from highwater.conformance.broker import Broker, expect, only
from highwater.conformance.cases.fields.table import Answers, Api, Row, check, check_twice, parameters
from highwater.conformance.cases.support.admin import TIMEOUT_MS, config, controller, describe_configs, new_topic
from highwater.conformance.clause import clause
from highwater.conformance.cluster import Cluster
from highwater.conformance.defects import Reply, defect, increment
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)

INT32_MAX: Final = 2**31 - 1
DEFAULT_COUNTS_SINCE: Final = 4
ASSIGNMENT, INVALID, CONFIG, PARTITIONS, FACTOR, NAME = (
    ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG,
    ErrorCode.INVALID_PARTITIONS, ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_TOPIC_EXCEPTION,
)  # fmt: skip


@dataclass
class World:
    """The cluster of a case, with a connection to the controller."""

    cluster: Cluster
    broker: Broker = field(init=False)
    nodes: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.broker, self.nodes = controller(self.cluster), sorted(self.cluster.target.addresses)


@pytest.fixture
def world(cluster: Cluster) -> World:
    return World(cluster)


# -- CreateTopics ------------------------------------------------------------------------------------------


def topic(**fields: Any) -> Callable[[World], CreatableTopic]:
    """Return a builder of a topic with a new name, one partition and one replica, except for `fields`."""
    return lambda world: replace(new_topic(world.cluster.topic_name()), **fields)


def named(change: Callable[[str], str]) -> Callable[[World], CreatableTopic]:
    return lambda world: new_topic(change(world.cluster.topic_name()))


def assigned(*replicas: tuple[int, Sequence[int]], **fields: Any) -> Callable[[World], CreatableTopic]:
    """Return a builder of a topic with partition numbers and replicas; 1 is a broker, 2 the next one."""

    def build(world: World) -> CreatableTopic:
        assignments = tuple(
            CreatableReplicaAssignment(partition_index=number, broker_ids=_brokers(world, ids))
            for number, ids in replicas
        )
        return topic(**{"num_partitions": -1, "replication_factor": -1, "assignments": assignments, **fields})(world)

    return build


def _brokers(world: World, ids: Sequence[int]) -> tuple[int, ...]:
    if max(ids, default=0) in (2, 3):
        world.cluster.need_brokers(max(ids))
    return tuple(world.nodes[each - 1] if 0 < each <= len(world.nodes) else each for each in ids)


def configured(*settings: tuple[str, str | None]) -> Callable[[World], CreatableTopic]:
    return topic(configs=tuple(CreatableTopicConfig(name=name, value=value) for name, value in settings))


def create(world: World, topics: Sequence[Any], version: int) -> Answers:
    request = CreateTopicsRequest(topics=tuple(topics), timeout_ms=TIMEOUT_MS)
    reply = world.broker.call(request, version, TIMEOUT_MS / 1000 + 5)
    return {result.name: result.error_code for result in reply.topics}


def has_value(name: str, value: str | None) -> Callable[[World, CreatableTopic], None]:
    """Return a check that a new topic has the value of a setting."""

    def stored(world: World, created: CreatableTopic) -> None:
        def is_known() -> bool:
            return not describe_configs(world.broker, created.name, [name]).error_code

        world.cluster.eventually("the new topic", is_known)
        expect(f"{name} of the topic", value, config(world.broker, created.name, name).value)

    return stored


def has_partitions(*leaders: int) -> Callable[[World, CreatableTopic], None]:
    """Return a check that the partitions of a new topic have these first replicas, as in `assigned`."""

    def stored(world: World, created: CreatableTopic) -> None:
        world.cluster.topic(created.name)
        found = only(world.cluster.connect().metadata(created.name).topics)
        first = {part.partition_index: part.replica_nodes[0] for part in found.partitions}
        expected = {number: _brokers(world, [leader])[0] for number, leader in enumerate(leaders)}
        expect("partitions and their first replicas", str(expected), str(dict(sorted(first.items()))))

    return stored


CREATE_TOPICS: Final = Api(CreateTopicsRequest, topic(), create, lambda item: item.name)
CREATED: Final = [
    Row("name in upper case", named(str.upper)),
    Row("name with a blank before it", named(lambda name: " " + name), NAME),
    Row("name with a blank after it", named(lambda name: name + " "), NAME),
    Row("name with a line break", named(lambda name: name + "\n"), NAME),
    Row("name with a comma", named(lambda name: name + ","), NAME),
    Row("name with a colon", named(lambda name: name + ":"), NAME),
    Row("name of dots", named(lambda name: "..." + name)),
    Row("name of 249 characters", named(lambda name: name.ljust(249, "x"))),
    Row("num_partitions -1", topic(num_partitions=-1), versions=(DEFAULT_COUNTS_SINCE, None)),
    Row("replication_factor -1", topic(replication_factor=-1), versions=(DEFAULT_COUNTS_SINCE, None)),
    Row("num_partitions smallest", topic(num_partitions=-(2**31)), PARTITIONS),
    Row("replication_factor smallest", topic(replication_factor=-(2**15)), FACTOR),
    Row("replication_factor largest", topic(replication_factor=2**15 - 1), FACTOR),
    Row("assignments with num_partitions", assigned((0, [1]), num_partitions=1), INVALID),
    Row("assignments with replication_factor", assigned((0, [1]), replication_factor=1), INVALID),
    Row("assignments with num_partitions 0", assigned((0, [1]), num_partitions=0), INVALID),
    Row("partition_index not from 0", assigned((1, [1])), ASSIGNMENT),
    Row("partition_index with a gap", assigned((0, [1]), (2, [1])), ASSIGNMENT),
    Row("partition_index negative", assigned((-1, [1])), ASSIGNMENT, since="3.9"),
    Row("partition_index negative and 0", assigned((-1, [1]), (0, [1])), ASSIGNMENT),
    Row("partition_index twice", assigned((0, [1]), (0, [1])), ASSIGNMENT, since="3.9"),
    Row("partition_index twice with a gap", assigned((0, [1]), (2, [1]), (2, [1])), ASSIGNMENT),
    Row("partition_index not in order", assigned((1, [2]), (0, [1])), stored=has_partitions(1, 2)),
    Row("broker_ids of several lengths", assigned((0, [1]), (1, [1, 2])), ASSIGNMENT),
    Row("broker_ids with none for the second", assigned((0, [1]), (1, [])), ASSIGNMENT),
    Row("broker_ids negative", assigned((0, [-1])), ASSIGNMENT, since="3.9"),
    Row("broker_ids unknown for the second", assigned((0, [1]), (1, [999])), ASSIGNMENT, since="3.9"),
    Row("broker_ids twice for the second", assigned((0, [1, 2]), (1, [2, 2])), ASSIGNMENT),
    Row("config name empty", configured(("", "1")), CONFIG),
    Row("config name in another case", configured(("Retention.ms", "1")), CONFIG),
    Row("config name with a blank", configured(("retention.ms ", "1")), CONFIG),
    Row("config name of brokers", configured(("log.retention.ms", "1")), CONFIG),
    Row("config value with blanks", configured(("retention.ms", " 12345 ")), stored=has_value("retention.ms", "12345")),
    Row("config value empty", configured(("retention.ms", "")), CONFIG),
    Row("config value a float", configured(("retention.ms", "1.0")), CONFIG),
    Row("config value hexadecimal", configured(("retention.ms", "0x10")), CONFIG),
    Row("config value with a sign", configured(("retention.ms", "+12345"))),
    Row("config value larger than int64", configured(("retention.ms", "9223372036854775808")), CONFIG),
    Row("retention.ms -1", configured(("retention.ms", "-1")), stored=has_value("retention.ms", "-1")),
    Row("retention.ms -2", configured(("retention.ms", "-2")), CONFIG),
    Row("max.message.bytes 0", configured(("max.message.bytes", "0")), stored=has_value("max.message.bytes", "0")),
    Row("max.message.bytes -1", configured(("max.message.bytes", "-1")), CONFIG),
    Row("max.message.bytes larger than int32", configured(("max.message.bytes", "2147483648")), CONFIG),
    Row("boolean in upper case", configured(("preallocate", "TRUE"))),
    Row("boolean yes", configured(("preallocate", "yes")), CONFIG),
    Row("boolean 1", configured(("preallocate", "1")), CONFIG),
    Row("list with blanks", configured(("cleanup.policy", " compact , delete "))),
    Row("list with an unknown item", configured(("cleanup.policy", "compact,burn")), CONFIG),
    Row("list in upper case", configured(("cleanup.policy", "COMPACT")), CONFIG),
    Row("list with an item twice", configured(("cleanup.policy", "compact,compact"))),
    Row("list empty", configured(("cleanup.policy", ""))),
    Row("choice in upper case", configured(("compression.type", "GZIP")), CONFIG),
    Row("choice empty", configured(("compression.type", "")), CONFIG),
    Row("message.timestamp.type in lower case", configured(("message.timestamp.type", "logappendtime")), CONFIG),
    Row("ratio 0", configured(("min.cleanable.dirty.ratio", "0"))),
    Row("ratio 1", configured(("min.cleanable.dirty.ratio", "1"))),
    Row("ratio larger than 1", configured(("min.cleanable.dirty.ratio", "1.01")), CONFIG),
    Row(
        "min.insync.replicas more than replicas",
        configured(("min.insync.replicas", "3")),
        stored=has_value("min.insync.replicas", "3"),
    ),
    Row("min.insync.replicas -1", configured(("min.insync.replicas", "-1")), CONFIG),
    Row(
        "config twice",
        configured(("retention.ms", "12345"), ("retention.ms", "54321")),
        stored=has_value("retention.ms", "54321"),
    ),
    Row("valid and invalid config", configured(("retention.ms", "12345"), ("retention.bytes", "x")), CONFIG),
    Row("null and valid config", configured(("retention.ms", None), ("retention.bytes", "5")), CONFIG, since="3.9"),
    Row("throttled replicas all", configured(("leader.replication.throttled.replicas", "*"))),
    Row("throttled replicas invalid", configured(("leader.replication.throttled.replicas", "a")), CONFIG),
]


@clause("FLD-1")
@defect(Reply(CreateTopicsRequest, "topics.error_code", increment))
@pytest.mark.parametrize("row", parameters(CREATED))
def test_fields_of_a_new_topic(world: World, row: Row) -> None:
    check(CREATE_TOPICS, row, world, world.broker)


@clause("FLD-1", "item twice")
@defect(Reply(CreateTopicsRequest, "topics.error_code", ErrorCode.INVALID_REQUEST))
def test_a_new_topic_that_is_given_twice_is_refused_alone(world: World) -> None:
    check_twice(CREATE_TOPICS, world, world.broker, INVALID)


# -- CreatePartitions --------------------------------------------------------------------------------------


def extended(
    count: int, *replicas: Sequence[int], null: bool = False, name: str | None = None
) -> Callable[[World], CreatePartitionsTopic]:
    """Return a builder of a request for `count` partitions of a topic that has two, on one broker."""

    def build(world: World) -> CreatePartitionsTopic:
        added = (
            None if null else tuple(CreatePartitionsAssignment(broker_ids=_brokers(world, each)) for each in replicas)
        )
        existing = world.cluster.create_topic(partitions=2, replicas=1).name if name is None else name
        return CreatePartitionsTopic(name=existing, count=count, assignments=added)

    return build


def extend(world: World, topics: Sequence[Any], version: int) -> Answers:
    request = CreatePartitionsRequest(topics=tuple(topics), timeout_ms=TIMEOUT_MS)
    reply = world.broker.call(request, version, TIMEOUT_MS / 1000 + 5)
    return {result.name: result.error_code for result in reply.results}


CREATE_PARTITIONS: Final = Api(CreatePartitionsRequest, extended(3, null=True), extend, lambda item: item.name)
EXTENDED: Final = [
    Row("assignments null", extended(3, null=True)),
    Row("assignments empty", extended(3), ASSIGNMENT),
    Row("assignments for all partitions", extended(3, [1], [1], [1]), ASSIGNMENT),
    Row("assignments for another number", extended(4, [1]), ASSIGNMENT),
    Row("broker_ids of several lengths", extended(4, [1], [1, 2]), ASSIGNMENT),
    Row("broker_ids more than before", extended(3, [1, 2]), ASSIGNMENT),
    Row("broker_ids negative", extended(3, [-1]), ASSIGNMENT),
    Row("broker_ids unknown for the second", extended(4, [1], [999]), ASSIGNMENT),
    Row("count smallest", extended(-(2**31), null=True), PARTITIONS, since="3.9"),
    Row("count 0 with assignments", extended(0, [1]), PARTITIONS),
    Row("count as before with no assignments", extended(2), PARTITIONS),
    Row("name empty", extended(3, null=True, name=""), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, since="3.9"),
    Row("name invalid", extended(3, null=True, name="a b"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
]


@clause("FLD-2")
@defect(Reply(CreatePartitionsRequest, "results.error_code", increment))
@pytest.mark.parametrize("row", parameters(EXTENDED))
def test_fields_of_more_partitions(world: World, row: Row) -> None:
    check(CREATE_PARTITIONS, row, world, world.broker)


@clause("FLD-2", "item twice")
@defect(Reply(CreatePartitionsRequest, "results.error_code", ErrorCode.INVALID_REQUEST))
def test_an_extended_topic_that_is_given_twice_is_refused_alone(world: World) -> None:
    check_twice(CREATE_PARTITIONS, world, world.broker, INVALID)
