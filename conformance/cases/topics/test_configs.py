"""Configs of topics and brokers: DescribeConfigs, IncrementalAlterConfigs and AlterConfigs."""

import pytest

from highwater.conformance.cases.support.admin import (
    BROKER,
    DEFAULT_SOURCE,
    change_configs,
    config,
    config_changes,
    controller,
    create_error,
    describe_configs,
    new_topic,
    replace_configs,
)
from highwater.conformance.clause import KRAFT, clause, era, sweep
from highwater.conformance.client.broker import Broker, Topic
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect
from highwater.conformance.expectations import expect
from highwater.conformance.models.settings import APPEND, DELETE, SET, SUBTRACT, TOPIC, TOPIC_SOURCE, Change
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from highwater.reference.wire.messages.topics import CreateTopicsRequest

NOWHERE, NO_SUCH = "no.such.topic", "no.such.config"
VALUES = "results.configs.value"
FIRST_WITH_SYNONYMS, FIRST_WITH_TYPES = 1, 3
LONG, LIST = 5, 7
BROKERS_SOURCES = {2, 3, 4, 5}
"""Sources: dynamic broker config, dynamic default, static file, default."""


@pytest.fixture
def controller_broker(cluster: Cluster) -> Broker:
    """Return a connection to the controller."""
    return controller(cluster)


def eventually_set(cluster: Cluster, broker: Broker, topic: Topic, key: str, value: str) -> None:
    cluster.eventually(f"{key} to be {value}", lambda: config(broker, topic.name, key).value == value)


# -- describe --------------------------------------------------------------------------------------------


@clause("ADM-21")
@defect(Reply(DescribeConfigsRequest, VALUES, "7"), Reply(DescribeConfigsRequest, "results.configs", ()))
@sweep(DescribeConfigsRequest)
def test_null_asks_for_all_settings(cluster: Cluster, broker: Broker, version: int) -> None:
    topic = cluster.create_topic(configs={"retention.ms": "12345"})
    result = describe_configs(broker, topic.name, version=version)
    expect("error code and name", (0, topic.name), (result.error_code, result.resource_name))
    values = {config.name: config.value for config in result.configs}
    expect("value of the changed config", "12345", values.get("retention.ms"))
    expect("value of an unchanged config", "delete", values.get("cleanup.policy"))


@clause("ADM-21", "some")
@defect(Request(DescribeConfigsRequest, "resources.configuration_keys", None))
def test_only_the_settings_that_are_named_are_told(broker: Broker, topic: Topic) -> None:
    result = describe_configs(broker, topic.name, ["cleanup.policy", "retention.ms", NO_SUCH])
    expect("names", True, {config.name for config in result.configs} == {"cleanup.policy", "retention.ms"})


@clause("ADM-22")
@defect(Reply(DescribeConfigsRequest, "results.error_code", 0))
@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        pytest.param(TOPIC, NOWHERE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="unknown topic", marks=era("2.0")),
        pytest.param(0, "x", ErrorCode.INVALID_REQUEST, id="unknown kind"),
        pytest.param(100, "x", ErrorCode.INVALID_REQUEST, id="no kind"),
        pytest.param(BROKER, "not-a-number", ErrorCode.INVALID_REQUEST, id="no broker id"),
    ],
)
def test_a_resource_that_is_not_there_has_no_settings(broker: Broker, kind: int, name: str, error: int) -> None:
    result = describe_configs(broker, name, kind=kind)
    expect("error code", error, result.error_code)
    expect("number of configs", 0, len(result.configs))


@clause("ADM-23")
@defect(Reply(DescribeConfigsRequest, "results.configs.config_source", TOPIC_SOURCE))
def test_the_source_of_a_setting_is_told(cluster: Cluster, broker: Broker) -> None:
    broker.version_of(DescribeConfigsRequest, FIRST_WITH_SYNONYMS)
    topic = cluster.create_topic(configs={"retention.ms": "12345"})
    expect("source of the changed config", TOPIC_SOURCE, config(broker, topic.name, "retention.ms").config_source)
    # The broker's own file may set what the topic does not.
    default = config(broker, topic.name, "cleanup.policy").config_source
    expect("source of a setting without an override", {DEFAULT_SOURCE, *BROKERS_SOURCES}, default)


@clause("ADM-23", "synonyms")
@defect(Reply(DescribeConfigsRequest, "results.configs.synonyms", ()))
def test_synonyms_are_told_in_order(cluster: Cluster, broker: Broker) -> None:
    broker.version_of(DescribeConfigsRequest, FIRST_WITH_SYNONYMS)
    topic = cluster.create_topic(configs={"max.message.bytes": "12345"})
    found = config(broker, topic.name, "max.message.bytes", include_synonyms=True)
    reported = [(synonym.name, synonym.value, synonym.source) for synonym in found.synonyms]
    expect(
        "the first synonym is the effective value", True, reported[:1] == [("max.message.bytes", "12345", TOPIC_SOURCE)]
    )
    sources = {source for *_, source in reported[1:]}
    expect("the other synonyms are configs of the broker", True, sources <= BROKERS_SOURCES)
    without = config(broker, topic.name, "max.message.bytes")
    expect("number of synonyms when not requested", 0, len(without.synonyms))


@clause("ADM-23", "overridden")
@defect(Reply(DescribeConfigsRequest, "results.configs.synonyms", lambda synonyms: synonyms[:1]))
def test_the_value_without_the_override_is_a_synonym(cluster: Cluster, broker: Broker, topic: Topic) -> None:
    broker.version_of(DescribeConfigsRequest, FIRST_WITH_SYNONYMS)
    without = config(broker, topic.name, "max.message.bytes").value
    overridden = cluster.create_topic(configs={"max.message.bytes": "12345"})
    found = config(broker, overridden.name, "max.message.bytes", include_synonyms=True)
    expect("first two values", ["12345", without], [synonym.value for synonym in found.synonyms[:2]])


@clause("ADM-24")
@defect(Reply(DescribeConfigsRequest, "results.configs.config_type", 0))
@pytest.mark.parametrize(("key", "kind"), [("retention.ms", LONG), ("cleanup.policy", LIST)])
def test_the_type_of_a_setting_is_told(broker: Broker, topic: Topic, key: str, kind: int) -> None:
    broker.version_of(DescribeConfigsRequest, FIRST_WITH_TYPES)
    expect("type", kind, config(broker, topic.name, key).config_type)


@clause("ADM-24", "documentation")
@defect(Reply(DescribeConfigsRequest, "results.configs.documentation", None))
def test_documentation_is_told_to_who_asks(broker: Broker, topic: Topic) -> None:
    version = broker.version_of(DescribeConfigsRequest, FIRST_WITH_TYPES)
    with_it = config(broker, topic.name, "retention.ms", include_documentation=True, version=version)
    expect("there is documentation", True, bool(with_it.documentation))
    expect("documentation when not requested", None, config(broker, topic.name, "retention.ms").documentation)


@clause("ADM-25")
@defect(Reply(DescribeConfigsRequest, "results.configs.is_sensitive", True))
def test_sensitive_values_are_not_told(cluster: Cluster, broker: Broker) -> None:
    node = next(node for node, address in cluster.target.addresses.items() if address == broker.address)
    result = describe_configs(broker, str(node), kind=BROKER)
    expect("error code", 0, result.error_code)
    expect("there are configs", True, bool(result.configs))
    reported = [config.name for config in result.configs if config.is_sensitive and config.value is not None]
    expect("no sensitive config has a value", True, reported == [])
    expect("there is a config with a value", True, any(config.value for config in result.configs))


# -- change (KIP-339) ------------------------------------------------------------------------------------


@clause("ADM-5", "set, delete")
@defect(Reply(IncrementalAlterConfigsRequest, "responses.error_code", ErrorCode.INVALID_CONFIG))
@sweep(IncrementalAlterConfigsRequest)
def test_a_setting_is_set_and_goes_back(
    cluster: Cluster, broker: Broker, controller_broker: Broker, topic: Topic, version: int
) -> None:
    default = config(broker, topic.name, "retention.ms").value
    for change, value in ((("retention.ms", SET, "12345"), "12345"), (("retention.ms", DELETE, None), default or "")):
        expect("error code", 0, change_configs(controller_broker, topic.name, change, version=version))
        eventually_set(cluster, broker, topic, "retention.ms", value)


@clause("ADM-5", "others stay")
@defect(Reply(DescribeConfigsRequest, VALUES, "7"))
def test_other_settings_stay(cluster: Cluster, broker: Broker, controller_broker: Broker) -> None:
    topic = cluster.create_topic(configs={"retention.ms": "12345"})
    expect("error code", 0, change_configs(controller_broker, topic.name, ("segment.ms", SET, "54321")))
    eventually_set(cluster, broker, topic, "segment.ms", "54321")
    expect("the other config", "12345", config(broker, topic.name, "retention.ms").value)


@clause("ADM-5", "lists")
@defect(Reply(DescribeConfigsRequest, VALUES, "delete"))
def test_a_list_grows_and_shrinks(cluster: Cluster, broker: Broker, controller_broker: Broker, topic: Topic) -> None:
    expect(
        "error code of APPEND", 0, change_configs(controller_broker, topic.name, ("cleanup.policy", APPEND, "compact"))
    )
    eventually_set(cluster, broker, topic, "cleanup.policy", "delete,compact")
    expect(
        "error code of SUBTRACT",
        0,
        change_configs(controller_broker, topic.name, ("cleanup.policy", SUBTRACT, "delete")),
    )
    eventually_set(cluster, broker, topic, "cleanup.policy", "compact")


@clause("ADM-5", "several values")
@KRAFT  # with ZooKeeper a value may be in the list twice
@defect(Request(IncrementalAlterConfigsRequest, "resources.configs.value", lambda value: value.split(",")[0]))
def test_each_value_is_added_to_a_list_once_or_removed(cluster: Cluster, broker: Broker, topic: Topic) -> None:
    key, controller_broker = "leader.replication.throttled.replicas", controller(cluster)
    for operation, value, expected in (
        (APPEND, "0:1,0:2", "0:1,0:2"),
        (APPEND, "0:2,0:3,0:1,0:4", "0:1,0:2,0:3,0:4"),
        (SUBTRACT, "0:3,0:5,0:1", "0:2,0:4"),
        (SUBTRACT, "0:2,0:4", ""),
    ):
        expect("error code", 0, change_configs(controller_broker, topic.name, (key, operation, value)))
        eventually_set(cluster, broker, topic, key, expected)


@clause("ADM-26")
@defect(Reply(IncrementalAlterConfigsRequest, "responses.error_code", 0))
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        pytest.param([(NO_SUCH, SET, "1")], ErrorCode.INVALID_CONFIG, id="unknown"),
        pytest.param([("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG, id="not a number", marks=KRAFT),
        pytest.param([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG, id="append to a number", marks=KRAFT),
        pytest.param(
            [("retention.ms", SUBTRACT, "1")], ErrorCode.INVALID_CONFIG, id="subtract from a number", marks=KRAFT
        ),
        pytest.param([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST, id="null"),
        pytest.param([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], ErrorCode.INVALID_REQUEST, id="twice"),
    ],
)
def test_a_change_that_cannot_be_is_refused(
    controller_broker: Broker, topic: Topic, changes: list[Change], error: int
) -> None:
    before = config(controller_broker, topic.name, "retention.ms").value
    expect("error code", error, change_configs(controller_broker, topic.name, ("segment.ms", SET, "54321"), *changes))
    expect("retention.ms afterwards", before, config(controller_broker, topic.name, "retention.ms").value)


MINIMUM_LAG, MAXIMUM_LAG = "min.compaction.lag.ms", "max.compaction.lag.ms"


@clause("ADM-26", "settings that contradict")
@era("2.3")
@defect(
    Reply(IncrementalAlterConfigsRequest, "responses.error_code", 0),
    Reply(AlterConfigsRequest, "responses.error_code", 0),
    Reply(CreateTopicsRequest, "topics.error_code", 0),
)
def test_a_minimum_is_not_above_its_maximum(cluster: Cluster, controller_broker: Broker, topic: Topic) -> None:
    """The settings that the topic already has count, too."""
    contradiction: dict[str, str | None] = {MINIMUM_LAG: "2000", MAXIMUM_LAG: "1000"}
    refused = ErrorCode.INVALID_CONFIG
    created = create_error(cluster, new_topic(cluster.topic_name(), configs=contradiction))
    expect("error code of CreateTopics", refused, created)
    replaced = replace_configs(controller_broker, topic.name, contradiction)
    expect("error code of AlterConfigs", refused, replaced)
    both: list[Change] = [(key, SET, value) for key, value in contradiction.items()]
    expect("error code of both changes", refused, change_configs(controller_broker, topic.name, *both))
    expect("error code of an equal minimum", 0, change_configs(
        controller_broker, topic.name, (MINIMUM_LAG, SET, "1000"), (MAXIMUM_LAG, SET, "1000")
    ))  # fmt: skip
    for change in ((MINIMUM_LAG, SET, "1001"), (MAXIMUM_LAG, SET, "999")):
        expect(f"error code of {change}", refused, change_configs(controller_broker, topic.name, change))
    eventually_set(cluster, controller_broker, topic, MAXIMUM_LAG, "1000")
    expect("minimum", "1000", config(controller_broker, topic.name, MINIMUM_LAG).value)


@clause("ADM-27", "change")
@defect(Reply(IncrementalAlterConfigsRequest, "responses.error_code", 0))
@pytest.mark.parametrize(
    ("kind", "error"),
    [(TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (0, ErrorCode.INVALID_REQUEST)],
    ids=["topic", "kind"],
)
def test_what_is_not_there_cannot_be_changed(controller_broker: Broker, kind: int, error: int) -> None:
    expect("error code", error, change_configs(controller_broker, NOWHERE, ("retention.ms", SET, "1"), kind=kind))


@clause("ADM-27", "alone")
@defect(Reply(IncrementalAlterConfigsRequest, "responses.error_code", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
def test_a_resource_that_fails_fails_alone(
    cluster: Cluster, broker: Broker, controller_broker: Broker, topic: Topic
) -> None:
    resources = tuple(config_changes(name, ("retention.ms", SET, "12345")) for name in (NOWHERE, topic.name))
    reply = controller_broker.call(IncrementalAlterConfigsRequest(resources=resources))
    errors = {response.resource_name: response.error_code for response in reply.responses}
    expect("error codes", True, errors == {NOWHERE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic.name: 0})
    eventually_set(cluster, broker, topic, "retention.ms", "12345")


@clause("ADM-27", "named twice")
@KRAFT
@defect(Reply(IncrementalAlterConfigsRequest, "responses.error_code", 0))
def test_a_resource_is_named_once(controller_broker: Broker, topic: Topic) -> None:
    resource = config_changes(topic.name, ("retention.ms", SET, "12345"))
    reply = controller_broker.call(IncrementalAlterConfigsRequest(resources=(resource, resource)))
    expect("error codes", True, {response.error_code for response in reply.responses} == {ErrorCode.INVALID_REQUEST})


@clause("ADM-14", "change")
@defect(Request(IncrementalAlterConfigsRequest, "validate_only", False))
def test_validation_changes_nothing(cluster: Cluster, broker: Broker, controller_broker: Broker, topic: Topic) -> None:
    before = config(broker, topic.name, "retention.ms").value
    error = change_configs(controller_broker, topic.name, ("retention.ms", SET, "12345"), validate_only=True)
    expect("error code of a valid change", 0, error)
    error = change_configs(controller_broker, topic.name, (NO_SUCH, SET, "1"), validate_only=True)
    expect("error code of an invalid change", ErrorCode.INVALID_CONFIG, error)
    expect(
        "error code of another change", 0, change_configs(controller_broker, topic.name, ("segment.ms", SET, "54321"))
    )
    eventually_set(cluster, broker, topic, "segment.ms", "54321")
    expect("value afterwards", before, config(broker, topic.name, "retention.ms").value)


# -- replace ---------------------------------------------------------------------------------------------


def keep_previous_setting(settings: tuple[AlterableConfig, ...]) -> tuple[AlterableConfig, ...]:
    return (*settings, AlterableConfig(name="segment.ms", value="54321"))


@clause("ADM-28")
@defect(Request(AlterConfigsRequest, "resources.configs", keep_previous_setting))
@sweep(AlterConfigsRequest)
def test_what_is_not_named_falls_back(
    cluster: Cluster, broker: Broker, controller_broker: Broker, topic: Topic, version: int
) -> None:
    default = config(broker, topic.name, "segment.ms").value
    expect("error code", 0, change_configs(controller_broker, topic.name, ("segment.ms", SET, "54321")))
    expect("error code", 0, replace_configs(controller_broker, topic.name, {"retention.ms": "12345"}, version=version))
    eventually_set(cluster, broker, topic, "retention.ms", "12345")
    expect("value of the config that is not named", default, config(broker, topic.name, "segment.ms").value)


@clause("ADM-28", "refused")
@defect(Reply(AlterConfigsRequest, "responses.error_code", 0))
@pytest.mark.parametrize(
    ("settings", "error"),
    [
        pytest.param({NO_SUCH: "1"}, ErrorCode.INVALID_CONFIG, id="unknown"),
        pytest.param({"retention.ms": "soon"}, ErrorCode.INVALID_CONFIG, id="not a number", marks=KRAFT),
        pytest.param({"retention.ms": None}, ErrorCode.INVALID_REQUEST, id="null", marks=KRAFT),
    ],
)
def test_settings_that_cannot_be_replace_none(
    controller_broker: Broker, topic: Topic, settings: dict[str, str | None], error: int
) -> None:
    before = config(controller_broker, topic.name, "retention.ms").value
    expect("error code", error, replace_configs(controller_broker, topic.name, settings))
    expect("value afterwards", before, config(controller_broker, topic.name, "retention.ms").value)


@clause("ADM-27", "replace")
@defect(Reply(AlterConfigsRequest, "responses.error_code", 0))
def test_a_topic_that_is_not_there_keeps_no_settings(controller_broker: Broker) -> None:
    expect(
        "error code",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        replace_configs(controller_broker, NOWHERE, {"retention.ms": "1"}),
    )


@clause("ADM-14", "replace")
@defect(Request(AlterConfigsRequest, "validate_only", False))
def test_validation_replaces_nothing(cluster: Cluster, broker: Broker, controller_broker: Broker) -> None:
    topic = cluster.create_topic(configs={"retention.ms": "12345"})
    expect("error code", 0, replace_configs(controller_broker, topic.name, {}, validate_only=True))
    expect("error code of a change", 0, change_configs(controller_broker, topic.name, ("segment.ms", SET, "54321")))
    eventually_set(cluster, broker, topic, "segment.ms", "54321")
    expect("value afterwards", "12345", config(broker, topic.name, "retention.ms").value)
