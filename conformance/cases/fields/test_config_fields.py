"""Fields of DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from highwater.conformance.broker import Broker, expect
from highwater.conformance.cases.fields.table import Answers, Api, Row, check, check_twice, parameters
from highwater.conformance.cases.support.admin import (
    APPEND,
    BROKER,
    DELETE,
    SET,
    SUBTRACT,
    TOPIC,
    Change,
    config,
    config_changes,
    controller,
    create,
    describe_configs,
    new_topic,
)
from highwater.conformance.clause import clause, era
from highwater.conformance.cluster import Cluster
from highwater.conformance.defects import Reply, defect, increment
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)

INVALID, CONFIG, UNKNOWN, NAME = (
    ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
)  # fmt: skip
CLIENT_METRICS, GROUP = 16, 32
OR_ALL: Final = frozenset({(INVALID,), (0, "delete.retention.ms")})
"""An unknown type of resource makes Apache Kafka reject the whole request."""
NO_OPERATION: Final = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR, INVALID})
"""For an unknown operation Apache Kafka rejects the whole request, with the former code."""
FEW: Final = 3
OWN: Final = {"cleanup.policy": "compact,delete", "delete.retention.ms": "12345"}


@dataclass
class World:
    """Three topics with settings of their own: the first is for the row, the others are for ordinary items."""

    cluster: Cluster
    broker: Broker = field(init=False)
    topics: list[str] = field(init=False)
    others: Iterator[str] = field(init=False)

    def __post_init__(self) -> None:
        self.broker, self.topics = controller(self.cluster), [self.cluster.topic_name() for _ in range(3)]
        own: dict[str, str | None] = {**OWN}
        created = create(self.cluster, *(new_topic(name, configs=own) for name in self.topics))
        expect("error codes of CreateTopics", [0] * len(created), [each.error_code for each in created.values()])
        self.cluster.eventually("the new topics", self._are_known)
        self.others = itertools.cycle(self.topics[1:])

    def _are_known(self) -> bool:
        return not any(describe_configs(self.broker, name, []).error_code for name in self.topics)


@pytest.fixture
def world(cluster: Cluster) -> World:
    return World(cluster)


def has(name: str, value: str | None) -> Callable[[World, Any], None]:
    """Return a check that the setting of the first topic gets this value."""

    def stored(world: World, resource: Any) -> None:
        world.cluster.eventually(
            f"{name} to be {value}", lambda: config(world.broker, world.topics[0], name).value == value
        )

    return stored


def resource_key(resource: Any) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


POLICY, RETENTION = "cleanup.policy", "delete.retention.ms"
POLICY_STAYS, RETENTION_STAYS = has(POLICY, "compact,delete"), has(RETENTION, "12345")


# -- DescribeConfigs ---------------------------------------------------------------------------------------


def described(
    keys: Sequence[str] | None, kind: int = TOPIC, name: str | None = None, change: Callable[[str], str] = str
) -> Callable[[World], DescribeConfigsResource]:
    """Return a builder of a resource, by default the first topic; `change` maps its name."""
    requested = None if keys is None else tuple(keys)
    return lambda world: DescribeConfigsResource(
        resource_type=kind, resource_name=change(world.topics[0] if name is None else name),
        configuration_keys=requested,
    )  # fmt: skip


def describe(world: World, resources: Sequence[Any], version: int) -> Answers:
    """Return error codes and the names of the settings, or their number if there are many."""
    reply = world.broker.call(DescribeConfigsRequest(resources=tuple(resources)), version)
    return {
        resource_key(result): (
            result.error_code,
            *(sorted(each.name for each in result.configs) if len(result.configs) < FEW else ["many"]),
        )
        for result in reply.results
    }  # fmt: skip


DESCRIBE_CONFIGS: Final = Api(
    DescribeConfigsRequest,
    lambda world: described(["delete.retention.ms"], name=next(world.others))(world), describe, resource_key,
    (0, "delete.retention.ms"),
)  # fmt: skip
DESCRIBED: Final = [
    Row("configuration_keys empty", described([]), (0, "many")),
    Row("configuration_keys null", described(None), (0, "many")),
    Row(
        "configuration_keys with a name twice",
        described(["delete.retention.ms", "delete.retention.ms"]),
        (0, "delete.retention.ms"),
    ),
    Row("configuration_keys with an empty name", described([""]), (0,)),
    Row("configuration_keys in another case", described(["Delete.retention.ms"]), (0,)),
    Row("configuration_keys with a blank", described(["delete.retention.ms "]), (0,)),
    Row("configuration_keys of brokers", described(["log.cleaner.delete.retention.ms"]), (0,)),
    Row(
        "configuration_keys with an unknown name",
        described(["no.such", "delete.retention.ms"]),
        (0, "delete.retention.ms"),
    ),
    Row("resource_name empty", described(None, name=""), (NAME,)),
    Row("resource_name invalid", described(None, name="a b"), (NAME,)),
    Row("resource_name in upper case", described(None, change=str.upper), (UNKNOWN,)),
    Row("resource_name with a blank", described(None, change=lambda name: name + " "), (NAME,)),
    Row("resource_type 0", described(None, 0), (INVALID,), others=OR_ALL),
    Row("resource_type 1", described(None, 1), (INVALID,), others=OR_ALL),
    Row("resource_type 3", described(None, 3), (INVALID,), others=OR_ALL),
    Row("resource_type negative", described(None, -1), (INVALID,), others=OR_ALL),
    Row("resource_type largest", described(None, 127), (INVALID,), others=OR_ALL),
    Row("broker without a name", described(["delete.retention.ms"], BROKER, ""), (0,)),
    Row("broker unknown", described(None, BROKER, "999"), (INVALID,)),
    Row("broker negative", described(None, BROKER, "-1"), (INVALID,)),
    Row("broker with a blank", described(None, BROKER, " "), (INVALID,)),
    Row("client metrics without a name", described(None, CLIENT_METRICS, ""), (INVALID,), since="3.7"),
    Row("group without a name", described(None, GROUP, ""), (INVALID,), since="4.0"),
]


@clause("FLD-3")
@defect(Reply(DescribeConfigsRequest, "results.error_code", increment))
@pytest.mark.parametrize("row", parameters(DESCRIBED))
def test_fields_of_a_description_of_settings(world: World, row: Row) -> None:
    check(DESCRIBE_CONFIGS, row, world, world.broker)


# -- IncrementalAlterConfigs -------------------------------------------------------------------------------


def changed(
    *changes: Change, kind: int = TOPIC, name: str | None = None, change: Callable[[str], str] = str
) -> Callable[[World], IncrementalAlterConfigsResource]:
    return lambda world: config_changes(change(world.topics[0] if name is None else name), *changes, kind=kind)


def alter(world: World, resources: Sequence[Any], version: int) -> Answers:
    reply = world.broker.call(IncrementalAlterConfigsRequest(resources=tuple(resources)), version)
    return {resource_key(result): result.error_code for result in reply.responses}


ALTER: Final = Api(
    IncrementalAlterConfigsRequest,
    lambda world: changed(("delete.retention.ms", SET, "7"), name=next(world.others))(world),
    alter, resource_key,
)  # fmt: skip
CHANGED: Final = [
    Row("config_operation 4", changed((RETENTION, 4, "1")), NO_OPERATION, RETENTION_STAYS, others=NO_OPERATION | {0}),
    Row("config_operation -1", changed((RETENTION, -1, "1")), NO_OPERATION, RETENTION_STAYS, others=NO_OPERATION | {0}),
    Row(
        "config_operation largest",
        changed((RETENTION, 127, "1")),
        NO_OPERATION,
        RETENTION_STAYS,
        others=NO_OPERATION | {0},
    ),
    Row("delete with a value", changed((RETENTION, DELETE, "1")), stored=has(RETENTION, "86400000")),
    Row("delete of a setting without override", changed(("segment.ms", DELETE, None))),
    Row("delete of an unknown setting", changed(("no.such", DELETE, None))),
    Row("append null", changed((POLICY, APPEND, None)), INVALID, POLICY_STAYS),
    Row("subtract null", changed((POLICY, SUBTRACT, None)), INVALID, POLICY_STAYS),
    Row("append empty", changed((POLICY, APPEND, "")), CONFIG, since="3.9"),
    Row("subtract empty", changed((POLICY, SUBTRACT, "")), stored=POLICY_STAYS),
    Row("append an item that is there", changed((POLICY, APPEND, "delete")), stored=POLICY_STAYS, since="3.9"),
    Row("append an unknown item", changed((POLICY, APPEND, "burn")), CONFIG, POLICY_STAYS, since="3.9"),
    Row("subtract an item that is not there", changed((POLICY, SUBTRACT, "burn")), stored=POLICY_STAYS),
    Row("subtract an item in another case", changed((POLICY, SUBTRACT, "Delete")), stored=POLICY_STAYS),
    Row("subtract one item", changed((POLICY, SUBTRACT, "delete")), stored=has(POLICY, "compact")),
    Row("subtract a part of a number", changed((RETENTION, SUBTRACT, "12345")), CONFIG, RETENTION_STAYS, since="3.9"),
    Row("set empty", changed((RETENTION, SET, "")), CONFIG, RETENTION_STAYS, since="3.9"),
    Row("set with blanks", changed((RETENTION, SET, " 54321 ")), stored=has(RETENTION, "54321")),
    Row(
        "set and delete of one setting",
        changed((RETENTION, SET, "1"), (RETENTION, DELETE, None)),
        INVALID,
        RETENTION_STAYS,
    ),
    Row(
        "valid and invalid change",
        changed((RETENTION, SET, "1"), ("segment.ms", SET, "x")),
        CONFIG,
        RETENTION_STAYS,
        since="3.9",
    ),
    Row(
        "invalid and valid change",
        changed(("segment.ms", SET, "x"), (RETENTION, SET, "1")),
        CONFIG,
        RETENTION_STAYS,
        since="3.9",
    ),
    Row("null and valid change", changed(("segment.ms", SET, None), (RETENTION, SET, "1")), INVALID, RETENTION_STAYS),
    Row("configs empty", changed(), stored=RETENTION_STAYS),
    Row("name empty", changed(("", SET, "1")), CONFIG),
    Row("name in another case", changed(("Delete.retention.ms", SET, "1")), CONFIG, RETENTION_STAYS),
    Row("name with a blank", changed(("delete.retention.ms ", SET, "1")), CONFIG, RETENTION_STAYS),
    Row("name of brokers", changed(("log.cleaner.delete.retention.ms", SET, "1")), CONFIG),
    Row("resource_name empty", changed((RETENTION, SET, "1"), name=""), INVALID),
    Row("resource_name invalid", changed((RETENTION, SET, "1"), name="a b"), NAME, since="3.9"),
    Row("resource_name in upper case", changed((RETENTION, SET, "1"), change=str.upper), UNKNOWN),
    Row("resource_type 0", changed((RETENTION, SET, "1"), kind=0), INVALID, since="3.9"),
    Row("resource_type 3", changed((RETENTION, SET, "1"), kind=3), INVALID, since="3.9"),
    Row("resource_type negative", changed((RETENTION, SET, "1"), kind=-1), INVALID, since="3.9"),
    Row(
        "broker not a number", changed(("log.cleaner.delete.retention.ms", SET, "1"), kind=BROKER, name="one"), INVALID
    ),
    Row("broker negative", changed(("log.cleaner.delete.retention.ms", SET, "1"), kind=BROKER, name="-1"), INVALID),
    Row(
        "client metrics with an unknown setting",
        changed(("no.such", SET, "1"), kind=CLIENT_METRICS, name="m"),
        INVALID,
        since="3.7",
    ),
    Row(
        "client metrics without a name",
        changed(("interval.ms", SET, "1000"), kind=CLIENT_METRICS, name=""),
        INVALID,
        since="3.7",
    ),
    Row(
        "group with an unknown setting",
        changed(("no.such", SET, "1"), kind=GROUP, name="g"),
        frozenset({CONFIG, INVALID}),
        since="4.0",
    ),
    Row(
        "group without a name",
        changed(("consumer.session.timeout.ms", SET, "45000"), kind=GROUP, name=""),
        INVALID,
        since="4.0",
    ),
]


@clause("FLD-4")
@defect(Reply(IncrementalAlterConfigsRequest, "responses.error_code", increment))
@pytest.mark.parametrize("row", parameters(CHANGED))
def test_fields_of_a_change_of_settings(world: World, row: Row) -> None:
    check(ALTER, row, world, world.broker)


@clause("FLD-4", "item twice")
@era("3.9")
@defect(Reply(IncrementalAlterConfigsRequest, "responses.error_code", INVALID))
def test_a_changed_resource_that_is_given_twice_is_refused_alone(world: World) -> None:
    check_twice(ALTER, world, world.broker, INVALID)


# -- AlterConfigs ------------------------------------------------------------------------------------------


def replaced(
    *settings: tuple[str, str | None], kind: int = TOPIC, name: str | None = None, change: Callable[[str], str] = str
) -> Callable[[World], AlterConfigsResource]:
    configs = tuple(AlterableConfig(name=key, value=value) for key, value in settings)
    return lambda world: AlterConfigsResource(
        resource_type=kind, resource_name=change(world.topics[0] if name is None else name), configs=configs
    )


def replace_all(world: World, resources: Sequence[Any], version: int) -> Answers:
    reply = world.broker.call(AlterConfigsRequest(resources=tuple(resources)), version)
    return {resource_key(result): result.error_code for result in reply.responses}


REPLACE: Final = Api(
    AlterConfigsRequest, lambda world: replaced((RETENTION, "7"), name=next(world.others))(world), replace_all,
    resource_key,
)  # fmt: skip
REPLACED: Final = [
    Row("configs empty", replaced(), stored=has(RETENTION, "86400000")),
    Row("one setting", replaced((POLICY, "compact")), stored=has(RETENTION, "86400000")),
    Row("value empty", replaced((RETENTION, "")), CONFIG, RETENTION_STAYS, since="3.9"),
    Row("value with blanks", replaced((RETENTION, " 54321 ")), stored=has(RETENTION, "54321")),
    Row("name empty", replaced(("", "1")), CONFIG, RETENTION_STAYS),
    Row("name in another case", replaced(("Delete.retention.ms", "1")), CONFIG, RETENTION_STAYS),
    Row("setting twice", replaced((RETENTION, "1"), (RETENTION, "2")), INVALID, RETENTION_STAYS, since="3.9"),
    Row(
        "valid and invalid setting",
        replaced((RETENTION, "1"), ("segment.ms", "x")),
        CONFIG,
        RETENTION_STAYS,
        since="3.9",
    ),
    Row("resource_name empty", replaced((RETENTION, "1"), name=""), INVALID, since="3.9"),
    Row("resource_name in upper case", replaced((RETENTION, "1"), change=str.upper), UNKNOWN),
    Row("resource_type 0", replaced((RETENTION, "1"), kind=0), INVALID, since="3.9"),
    Row("resource_type negative", replaced((RETENTION, "1"), kind=-1), INVALID, since="3.9"),
    Row("broker not a number", replaced(("log.cleaner.delete.retention.ms", "1"), kind=BROKER, name="one"), INVALID),
]


@clause("FLD-5")
@defect(Reply(AlterConfigsRequest, "responses.error_code", increment))
@pytest.mark.parametrize("row", parameters(REPLACED))
def test_fields_of_settings_that_replace_all(world: World, row: Row) -> None:
    check(REPLACE, row, world, world.broker)
