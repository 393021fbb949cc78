"""Walks that create, extend and delete topics: each reply, and what brokers describe, are compared with a model."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from highwater.conformance.cases.support.admin import TIMEOUT_MS, controller, new_topic
from highwater.conformance.cases.support.polling import eventually_equal, spread
from highwater.conformance.clause import KRAFT, clause
from highwater.conformance.client.broker import Broker
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect, without_error
from highwater.conformance.models.comparison import Where, compare, one_of
from highwater.conformance.models.topics import TopicModel, absent_in_metadata, absent_in_pages
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    TopicRequest,
)
from highwater.reference.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicResult,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from highwater.reference.wire.schema import ZERO_UUID

UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
UNKNOWN_BROKER: Final = 1_000
UNKNOWN_ID: Final = b"\x01" * 16
LONGEST: Final = 249
VALIDATION_SINCE, DEFAULTS_SINCE, BY_ID_SINCE, NO_CREATION_SINCE = 1, 4, 6, 4
RETENTION: Final = {"retention.ms": "12345", "cleanup.policy": "compact,delete"}


class TopicWalk:
    """Keeps the models of the topics that a case creates, and the names that do not exist, and compares them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.broker, self.controller = cluster, cluster.connect(), controller(cluster)
        self.nodes = sorted(cluster.target.addresses)
        self.topics: dict[str, TopicModel] = {}
        self.absent: list[str] = []
        self.invalid: list[str] = []
        self.steps = 0

    def call(self, request: object, version: int) -> Any:
        return self.controller.call(request, version, TIMEOUT_MS / 1000 + 5)

    # -- create ----------------------------------------------------------------------------------------

    def create(
        self, wanted: Sequence[tuple[CreatableTopic, int]], version: int, *, validate_only: bool = False
    ) -> None:
        """Create topics in one request; each is created, or rejected with its error."""
        request = CreateTopicsRequest(
            topics=tuple(topic for topic, _ in wanted), timeout_ms=TIMEOUT_MS, validate_only=validate_only
        )
        reply = self.call(request, version)
        results = {topic.name: self._created(topic, error, validate_only) for topic, error in wanted}
        compare(f"CreateTopics {version}", CreateTopicsResponse(topics=tuple(results.values())), reply, version)
        ids = {result.name: result.topic_id for result in reply.topics}
        for topic, error in wanted:
            if not error and not validate_only:
                given: list[Any] = [each.broker_ids for each in topic.assignments]
                replicas = given or [None] * topic.num_partitions
                self.topics[topic.name] = TopicModel(topic.name, _factor(topic), replicas, ids[topic.name])
        self.check()

    def _created(self, topic: CreatableTopic, error: int, validate_only: bool) -> CreatableTopicResult:
        nothing, chosen = Where("no settings", lambda value: not value), one_of(ZERO_UUID)
        if error:
            known: Any = Where("any id of an existing topic", lambda _: True)
            is_known = error == ErrorCode.TOPIC_ALREADY_EXISTS
            fields: dict[str, Any] = {"topic_id": known if is_known else chosen, "configs": nothing}
            return CreatableTopicResult(name=topic.name, error_code=error, **fields)
        own = {setting.name: setting.value for setting in topic.configs}

        def are_settings(found: Any) -> bool:
            values = {setting.name: (setting.value, setting.config_source) for setting in found or ()}
            return all(values.get(name) == (value, 1) for name, value in own.items()) and "segment.ms" in values

        fields = {
            "topic_id": Where("an id", lambda found: validate_only or found != ZERO_UUID),
            "num_partitions": len(topic.assignments) or topic.num_partitions,
            "replication_factor": _factor(topic),
            "configs": Where(f"all settings, among them {own} of the topic", are_settings),
        }  # fmt: skip
        return CreatableTopicResult(name=topic.name, **fields)

    # -- extend and delete -----------------------------------------------------------------------------

    def extend(
        self, wanted: Sequence[tuple[CreatePartitionsTopic, int]], version: int, *, validate_only: bool = False
    ) -> None:
        """Add partitions to topics in one request."""
        request = CreatePartitionsRequest(
            topics=tuple(topic for topic, _ in wanted), timeout_ms=TIMEOUT_MS, validate_only=validate_only
        )
        results = tuple(CreatePartitionsTopicResult(name=topic.name, error_code=error) for topic, error in wanted)
        what = f"CreatePartitions {version}"
        compare(what, CreatePartitionsResponse(results=results), self.call(request, version), version)
        for topic, error in wanted:
            if not error and not validate_only:
                model = self.topics[topic.name]
                new = [each.broker_ids for each in topic.assignments or ()]
                model.replicas += new or [None] * (topic.count - len(model.replicas))
        self.check()

    def delete(self, wanted: Sequence[tuple[str | None, bytes, int]], version: int) -> None:
        """Delete topics by name, or from version 6 on by name or id."""
        by_id = version >= BY_ID_SINCE
        states = tuple(DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id, _ in wanted)
        request = DeleteTopicsRequest(
            timeout_ms=TIMEOUT_MS,
            **{"topics": states} if by_id else {"topic_names": tuple(name for name, _, _ in wanted)},
        )
        results = tuple(self._deleted(*each) for each in wanted)
        reply = self.call(request, version)
        compare(f"DeleteTopics {version}", DeleteTopicsResponse(responses=results), reply, version)
        for name, topic_id, error in wanted:
            if not error:
                found = next(each for each in self.topics.values() if name == each.name or topic_id == each.topic_id)
                del self.topics[found.name]
                self.absent.append(found.name)
        self.check()

    def _deleted(self, name: str | None, topic_id: bytes, error: int) -> DeletableTopicResult:
        if error:
            return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error)
        found = next(each for each in self.topics.values() if name == each.name or topic_id == each.topic_id)
        return DeletableTopicResult(name=found.name, topic_id=found.topic_id)

    # -- what is described -----------------------------------------------------------------------------

    def check(self) -> None:
        """Compare Metadata of all brokers, in the versions in turn, and the pages of DescribeTopicPartitions."""
        self.steps += 1
        versions = spread(self.broker, MetadataRequest, NO_CREATION_SINCE)
        for number, address in enumerate(self.cluster.target.addresses.values()):
            with self.cluster.connect(address) as broker:
                self._check_metadata(broker, versions[(self.steps + number) % len(versions)])
        if 75 in self.broker.advertised:
            for limit in (1, 2, 2000):
                self._check_pages(limit)

    def _check_metadata(self, broker: Broker, version: int) -> None:
        names = [*self.topics, *self.absent, *self.invalid]
        request = MetadataRequest(
            topics=tuple(MetadataRequestTopic(name=name) for name in names), allow_auto_topic_creation=False
        )
        anything: Any = Where("any value", lambda _: True)
        nodes = frozenset(self.nodes)
        hosts = [(node, address.rsplit(":", 1)) for node, address in self.cluster.target.addresses.items()]
        invalid = [absent_in_metadata(name, ErrorCode.INVALID_TOPIC_EXCEPTION) for name in self.invalid]
        expected = MetadataResponse(
            brokers=tuple(
                MetadataResponseBroker(node_id=node, host=host, port=int(port), rack=anything)
                for node, (host, port) in hosts
            ),
            cluster_id=anything, controller_id=one_of(*nodes),  # type: ignore[arg-type]
            topics=(
                *(topic.in_metadata(nodes) for topic in self.topics.values()), *map(absent_in_metadata, self.absent),
                *invalid,
            ),
        )  # fmt: skip
        what = f"after change {self.steps}, Metadata {version} of {broker.address}"
        eventually_equal(self.cluster, what, expected, lambda: broker.call(request, version), version)

    def _check_pages(self, limit: int) -> None:
        """Compare all pages together; each but the last has exactly as many partitions as the limit allows."""
        nodes = frozenset(self.nodes)
        expected = DescribeTopicPartitionsResponse(
            topics=(
                *(topic.in_pages(nodes) for topic in self.topics.values()), *map(absent_in_pages, self.absent),
            )
        )  # fmt: skip
        what = f"after change {self.steps}, DescribeTopicPartitions with {limit} partitions a page"
        eventually_equal(self.cluster, what, expected, lambda: self._pages(limit), 0)

    def _pages(self, limit: int) -> DescribeTopicPartitionsResponse:
        """Return the topics of all pages, the parts of each put together."""
        topics = tuple(TopicRequest(name=name) for name in (*self.topics, *self.absent))
        cursor: DescribeTopicPartitionsRequestCursor | None = None
        found: dict[str, Any] = {}
        while True:
            reply = self.broker.call(
                DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)
            )
            for topic in reply.topics:
                before = found.get(topic.name, replace(topic, partitions=()))
                found[topic.name] = replace(topic, partitions=(*before.partitions, *topic.partitions))
            if reply.next_cursor is None:
                return DescribeTopicPartitionsResponse(topics=tuple(found.values()))
            after = (reply.next_cursor.topic_name, reply.next_cursor.partition_index)
            if cursor is not None and after <= (cursor.topic_name, cursor.partition_index):
                return DescribeTopicPartitionsResponse(topics=tuple(found.values()))
            cursor = DescribeTopicPartitionsRequestCursor(topic_name=after[0], partition_index=after[1])


def _factor(topic: CreatableTopic) -> int:
    return len(topic.assignments[0].broker_ids) if topic.assignments else topic.replication_factor


@clause("ADM-48")
@KRAFT
@defect(
    Reply(CreateTopicsRequest, "topics.error_code", without_error(ErrorCode.INVALID_REPLICATION_FACTOR)),
    Request(CreateTopicsRequest, "topics.num_partitions", 1),
    Reply(CreateTopicsRequest, "topics.configs", ()),
)
def test_topics_that_are_created_follow_the_model(cluster: Cluster) -> None:
    """Each request has valid topics between invalid ones, first to validate them only and then to create them."""
    cluster.connect().version_of(CreateTopicsRequest)
    walk = TopicWalk(cluster)
    walk.invalid += ["a b", "..", "x" * (LONGEST + 1)]
    for version in spread(walk.controller, CreateTopicsRequest):
        wanted = _mixed_topics(walk, cluster)
        walk.absent += [topic.name for topic, error in wanted if error and topic.name not in walk.topics]
        walk.absent = [name for name in walk.absent if name not in walk.invalid]
        new = [topic.name for topic, error in wanted if not error]
        if version >= VALIDATION_SINCE:
            walk.absent += new
            walk.create(wanted, version, validate_only=True)
            walk.absent = [name for name in walk.absent if name not in new]
        walk.create(wanted, version)
        again = [(topic, error or ErrorCode.TOPIC_ALREADY_EXISTS) for topic, error in wanted]
        walk.create(again, version)


def _mixed_topics(walk: TopicWalk, cluster: Cluster) -> list[tuple[CreatableTopic, int]]:
    nodes, brokers = walk.nodes, len(walk.nodes)
    name = cluster.topic_name
    backwards = [list(reversed(nodes)), nodes]
    dotted = name()
    assigned = new_topic(name(), -1, -1, assignment=backwards, configs=dict(RETENTION))
    gap = replace(
        new_topic(name(), -1, -1),
        assignments=(CreatableReplicaAssignment(partition_index=1, broker_ids=tuple(nodes[:1])),),
    )
    both = replace(new_topic(name(), 1, 1), assignments=assigned.assignments)
    known = next(iter(walk.topics), None)
    exists = [(new_topic(known, 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS)] if known else []
    return [
        (new_topic(name(), 0, 1), ErrorCode.INVALID_PARTITIONS),
        (new_topic(name(), 2, brokers), 0),
        (new_topic(walk.invalid[0]), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic(name(), 1, brokers + 1), ErrorCode.INVALID_REPLICATION_FACTOR),
        (assigned, 0),
        (both, ErrorCode.INVALID_REQUEST),
        (gap, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new_topic(name(), -1, -1, assignment=[nodes[:1] * 2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new_topic(name(), -1, -1, assignment=[[UNKNOWN_BROKER]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new_topic(name(), -1, -1, assignment=[nodes[:1], []]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new_topic(walk.invalid[1]), ErrorCode.INVALID_TOPIC_EXCEPTION),
        *exists,
        (new_topic(name(), 3, 1, configs={"cleanup.policy": "compact", "no.such": "1"}), ErrorCode.INVALID_CONFIG),
        (new_topic(name(), 3, 1, configs={"retention.ms": "-2"}), ErrorCode.INVALID_CONFIG),
        (new_topic(dotted + ".x", 3, 1, configs={"retention.ms": "-1"}), 0),
        (new_topic(walk.invalid[2]), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic((name() + "-").ljust(LONGEST, "x"), 1, 1), 0),
    ]


@clause("ADM-48", "extended")
@KRAFT
@defect(
    Reply(CreatePartitionsRequest, "results.error_code", without_error(ErrorCode.INVALID_PARTITIONS)),
    Request(CreatePartitionsRequest, "topics.assignments", None),
    Request(CreatePartitionsRequest, "validate_only", False),
)
def test_topics_that_are_extended_follow_the_model(cluster: Cluster) -> None:
    cluster.connect().version_of(CreatePartitionsRequest)
    walk, nodes = TopicWalk(cluster), sorted(cluster.target.addresses)
    names = [cluster.topic_name() for _ in range(4)]
    newest = spread(walk.controller, CreateTopicsRequest)[-1]
    walk.create([(new_topic(each, number % 2 + 1, 1), 0) for number, each in enumerate(names)], newest)
    walk.absent.append(cluster.name("absent"))
    for version in spread(walk.controller, CreatePartitionsRequest):
        for validate_only in (True, False):
            walk.extend(_mixed_extensions(walk, names, nodes), version, validate_only=validate_only)


def _mixed_extensions(
    walk: TopicWalk, names: Sequence[str], nodes: Sequence[int]
) -> list[tuple[CreatePartitionsTopic, int]]:
    counts = [len(walk.topics[name].replicas) for name in names]
    invalid: list[tuple[int, Any, int]] = [
        (counts[3], None, ErrorCode.INVALID_PARTITIONS), (counts[3] - 1, None, ErrorCode.INVALID_PARTITIONS),
        (counts[3] + 2, [nodes[:1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (counts[3] + 1, [[UNKNOWN_BROKER]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (counts[3] + 1, [[nodes[0]] * 2], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (counts[3] + 1, [nodes[:1], nodes[:1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ]  # fmt: skip
    count, assignment, error = invalid[walk.steps % len(invalid)]
    return [
        (_extension(names[0], counts[0] + 1, [nodes[-1:]]), 0),
        (_extension(names[3], count, assignment), error),
        (_extension(names[1], counts[1] + 2, None), 0),
        (_extension(walk.absent[0], 3, None), UNKNOWN),
        (_extension(names[2], counts[2] + 2, [nodes[-1:], nodes[:1]]), 0),
    ]


def _extension(name: str, count: int, assignment: Sequence[Sequence[int]] | None) -> CreatePartitionsTopic:
    given = None if assignment is None else tuple(CreatePartitionsAssignment(broker_ids=tuple(x)) for x in assignment)
    return CreatePartitionsTopic(name=name, count=count, assignments=given)


@clause("ADM-48", "deleted")
@KRAFT
@defect(
    Reply(DeleteTopicsRequest, "responses.error_code", without_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
    Reply(DeleteTopicsRequest, "responses.name", "another"),
)
def test_topics_that_are_deleted_follow_the_model(cluster: Cluster) -> None:
    """Topics are deleted by name and by id between others that do not exist, and are created again."""
    cluster.connect().version_of(DeleteTopicsRequest, BY_ID_SINCE)
    walk = TopicWalk(cluster)
    names = [cluster.topic_name() for _ in range(4)]
    newest = spread(walk.controller, CreateTopicsRequest)[-1]
    walk.absent.append(cluster.name("absent"))
    for version in spread(walk.controller, DeleteTopicsRequest):
        new = [(new_topic(each, 2, 1), 0) for each in names if each not in walk.topics]
        walk.absent = [name for name in walk.absent if name not in {topic.name for topic, _ in new}]
        walk.create(new, newest)
        first, second, third = ((name, walk.topics[name].topic_id) for name in names[:3])
        by_name = (walk.absent[0], ZERO_UUID, UNKNOWN)
        if version < BY_ID_SINCE:
            walk.delete([(first[0], ZERO_UUID, 0), by_name, (third[0], ZERO_UUID, 0)], version)
        else:
            unknown = (None, UNKNOWN_ID, ErrorCode.UNKNOWN_TOPIC_ID)
            walk.delete([unknown, (None, first[1], 0), by_name, (third[0], ZERO_UUID, 0)], version)
            walk.delete([(None, first[1], ErrorCode.UNKNOWN_TOPIC_ID), (None, second[1], 0)], version)
