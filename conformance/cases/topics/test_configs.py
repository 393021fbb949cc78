"""Settings of topics and brokers: what is told of them, and what changes them."""

import pytest

from highwater.conformance.broker import Broker, Topic, expect
from highwater.conformance.cases.support.admin import (
    APPEND,
    BROKER,
    DEFAULT_SOURCE,
    DELETE,
    SET,
    SUBTRACT,
    TOPIC,
    TOPIC_SOURCE,
    Change,
    change_configs,
    changed_resource,
    config,
    controller,
    described,
    replace_configs,
)
from highwater.conformance.clause import KRAFT, clause, era, sweep
from highwater.conformance.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)

NOWHERE, NO_SUCH = "no.such.topic", "no.such.config"
VALUES = "results.configs.value"
FIRST_WITH_SYNONYMS, FIRST_WITH_TYPES = 1, 3
LONG, LIST = 5, 7
BROKERS_SOURCES = {2, 3, 4, 5}
"""Set for one broker, for all, in the file of the broker, or by default."""


@pytest.fixture
def boss(cluster: Cluster) -> Broker:
    """A connection to the controller."""
    return controller(cluster)


def eventually_set(cluster: Cluster, broker: Broker, topic: Topic, key: str, value: str) -> None:
    cluster.eventually(f"{key} to be {value}", lambda: config(broker, topic.name, key).value == value)


# -- describe --------------------------------------------------------------------------------------------


@clause("ADM-21")
@defect(Reply(DescribeConfigsRequest, VALUES, "7"), Reply(DescribeConfigsRequest, "results.configs", ()))
@sweep(DescribeConfigsRequest)
def test_null_asks_for_all_settings(cluster: Cluster, broker: Broker, version: int) -> None:
    topic = cluster.create_topic(configs={"retention.ms": "12345"})
    result = described(broker, topic.name, version=version)
    expect("error code and name", (0, topic.name), (result.error_code, result.resource_name))
    values = {each.name: each.value for each in result.configs}
    expect("what was set", "12345", values.get("retention.ms"))
    expect("what was not", "delete", values.get("cleanup.policy"))


@clause("ADM-21", "some")
@defect(Request(DescribeConfigsRequest, "resources.configuration_keys", None))
def test_only_the_settings_that_are_named_are_told(broker: Broker, topic: Topic) -> None:
    result = described(broker, topic.name, ["cleanup.policy", "retention.ms", NO_SUCH])
    expect("names", True, {each.name for each in result.configs} == {"cleanup.policy", "retention.ms"})


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
    result = described(broker, name, kind=kind)
    expect("error code", error, result.error_code)
    expect("number of settings", 0, len(result.configs))


@clause("ADM-23")
@defect(Reply(DescribeConfigsRequest, "results.configs.config_source", TOPIC_SOURCE))
def test_the_source_of_a_setting_is_told(cluster: Cluster, broker: Broker) -> None:
    broker.version_of(DescribeConfigsRequest, FIRST_WITH_SYNONYMS)
    topic = cluster.create_topic(configs={"retention.ms": "12345"})
    expect("source of what was set", TOPIC_SOURCE, config(broker, topic.name, "retention.ms").config_source)
    expect("source of a default", DEFAULT_SOURCE, config(broker, topic.name, "cleanup.policy").config_source)


@clause("ADM-23", "synonyms")
@defect(Reply(DescribeConfigsRequest, "results.configs.synonyms", ()))
def test_synonyms_are_told_in_order(cluster: Cluster, broker: Broker) -> None:
    broker.version_of(DescribeConfigsRequest, FIRST_WITH_SYNONYMS)
    topic = cluster.create_topic(configs={"max.message.bytes": "12345"})
    found = config(broker, topic.name, "max.message.bytes", include_synonyms=True)
    told = [(each.name, each.value, each.source) for each in found.synonyms]
    expect("the first is the one that counts", True, told[:1] == [("max.message.bytes", "12345", TOPIC_SOURCE)])
    sources = {source for *_, source in told[1:]}
    expect("behind it stands what the broker has", True, bool(sources) and sources <= BROKERS_SOURCES)
    without = config(broker, topic.name, "max.message.bytes")
    expect("number of synonyms when none are asked for", 0, len(without.synonyms))


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
    expect("documentation unasked", None, config(broker, topic.name, "retention.ms").documentation)


@clause("ADM-25")
@defect(Reply(DescribeConfigsRequest, "results.configs.is_sensitive", True))
def test_sensitive_values_are_not_told(cluster: Cluster, broker: Broker) -> None:
    node = next(node for node, address in cluster.target.addresses.items() if address == broker.address)
    result = described(broker, str(node), kind=BROKER)
    expect("error code", 0, result.error_code)
    expect("there are settings", True, bool(result.configs))
    told = [each.name for each in result.configs if each.is_sensitive and each.value is not None]
    expect("sensitive settings with a value", True, told == [])
    expect("a setting of the broker that is no secret", True, any(each.value for each in result.configs))


# -- change (KIP-339) ------------------------------------------------------------------------------------


@clause("ADM-5", "set, delete")
@defect(Reply(IncrementalAlterConfigsRequest, "responses.error_code", ErrorCode.INVALID_CONFIG))
@sweep(IncrementalAlterConfigsRequest)
def test_a_setting_is_set_and_goes_back(
    cluster: Cluster, broker: Broker, boss: Broker, topic: Topic, version: int
) -> None:
    default = config(broker, topic.name, "retention.ms").value
    for change, value in ((("retention.ms", SET, "12345"), "12345"), (("retention.ms", DELETE, None), default or "")):
        expect("error code", 0, change_configs(boss, topic.name, change, version=version))
        eventually_set(cluster, broker, topic, "retention.ms", value)


@clause("ADM-5", "others stay")
@defect(Reply(DescribeConfigsRequest, VALUES, "7"))
def test_other_settings_stay(cluster: Cluster, broker: Broker, boss: Broker) -> None:
    topic = cluster.create_topic(configs={"retention.ms": "12345"})
    expect("error code", 0, change_configs(boss, topic.name, ("segment.ms", SET, "54321")))
    eventually_set(cluster, broker, topic, "segment.ms", "54321")
    expect("the other", "12345", config(broker, topic.name, "retention.ms").value)


@clause("ADM-5", "lists")
@defect(Reply(DescribeConfigsRequest, VALUES, "delete"))
def test_a_list_grows_and_shrinks(cluster: Cluster, broker: Broker, boss: Broker, topic: Topic) -> None:
    expect("error code of APPEND", 0, change_configs(boss, topic.name, ("cleanup.policy", APPEND, "compact")))
    eventually_set(cluster, broker, topic, "cleanup.policy", "delete,compact")
    expect("error code of SUBTRACT", 0, change_configs(boss, topic.name, ("cleanup.policy", SUBTRACT, "delete")))
    eventually_set(cluster, broker, topic, "cleanup.policy", "compact")


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
def test_a_change_that_cannot_be_is_refused(boss: Broker, topic: Topic, changes: list[Change], error: int) -> None:
    before = config(boss, topic.name, "retention.ms").value
    expect("error code", error, change_configs(boss, topic.name, ("segment.ms", SET, "54321"), *changes))
    expect("retention.ms afterwards", before, config(boss, topic.name, "retention.ms").value)


@clause("ADM-27", "change")
@defect(Reply(IncrementalAlterConfigsRequest, "responses.error_code", 0))
@pytest.mark.parametrize(
    ("kind", "error"),
    [(TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (0, ErrorCode.INVALID_REQUEST)],
    ids=["topic", "kind"],
)
def test_what_is_not_there_cannot_be_changed(boss: Broker, kind: int, error: int) -> None:
    expect("error code", error, change_configs(boss, NOWHERE, ("retention.ms", SET, "1"), kind=kind))


@clause("ADM-27", "alone")
@defect(Reply(IncrementalAlterConfigsRequest, "responses.error_code", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
def test_a_resource_that_fails_fails_alone(cluster: Cluster, broker: Broker, boss: Broker, topic: Topic) -> None:
    resources = tuple(changed_resource(name, ("retention.ms", SET, "12345")) for name in (NOWHERE, topic.name))
    reply = boss.call(IncrementalAlterConfigsRequest(resources=resources))
    errors = {each.resource_name: each.error_code for each in reply.responses}
    expect("error codes", True, errors == {NOWHERE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic.name: 0})
    eventually_set(cluster, broker, topic, "retention.ms", "12345")


@clause("ADM-27", "named twice")
@KRAFT
@defect(Reply(IncrementalAlterConfigsRequest, "responses.error_code", 0))
def test_a_resource_is_named_once(boss: Broker, topic: Topic) -> None:
    resource = changed_resource(topic.name, ("retention.ms", SET, "12345"))
    reply = boss.call(IncrementalAlterConfigsRequest(resources=(resource, resource)))
    expect("error codes", True, {each.error_code for each in reply.responses} == {ErrorCode.INVALID_REQUEST})


@clause("ADM-14", "change")
@defect(Request(IncrementalAlterConfigsRequest, "validate_only", False))
def test_validation_changes_nothing(cluster: Cluster, broker: Broker, boss: Broker, topic: Topic) -> None:
    before = config(broker, topic.name, "retention.ms").value
    error = change_configs(boss, topic.name, ("retention.ms", SET, "12345"), validate_only=True)
    expect("error code of what is sound", 0, error)
    error = change_configs(boss, topic.name, (NO_SUCH, SET, "1"), validate_only=True)
    expect("error code of what is not", ErrorCode.INVALID_CONFIG, error)
    expect("error code of another change", 0, change_configs(boss, topic.name, ("segment.ms", SET, "54321")))
    eventually_set(cluster, broker, topic, "segment.ms", "54321")
    expect("value afterwards", before, config(broker, topic.name, "retention.ms").value)


# -- replace ---------------------------------------------------------------------------------------------


def with_the_former_one(settings: tuple[AlterableConfig, ...]) -> tuple[AlterableConfig, ...]:
    return (*settings, AlterableConfig(name="segment.ms", value="54321"))


@clause("ADM-28")
@defect(Request(AlterConfigsRequest, "resources.configs", with_the_former_one))
@sweep(AlterConfigsRequest)
def test_what_is_not_named_falls_back(
    cluster: Cluster, broker: Broker, boss: Broker, topic: Topic, version: int
) -> None:
    default = config(broker, topic.name, "segment.ms").value
    expect("error code", 0, change_configs(boss, topic.name, ("segment.ms", SET, "54321")))
    expect("error code", 0, replace_configs(boss, topic.name, {"retention.ms": "12345"}, version=version))
    eventually_set(cluster, broker, topic, "retention.ms", "12345")
    expect("what was not named", default, config(broker, topic.name, "segment.ms").value)


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
    boss: Broker, topic: Topic, settings: dict[str, str | None], error: int
) -> None:
    before = config(boss, topic.name, "retention.ms").value
    expect("error code", error, replace_configs(boss, topic.name, settings))
    expect("value afterwards", before, config(boss, topic.name, "retention.ms").value)


@clause("ADM-27", "replace")
@defect(Reply(AlterConfigsRequest, "responses.error_code", 0))
def test_a_topic_that_is_not_there_keeps_no_settings(boss: Broker) -> None:
    expect("error code", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, replace_configs(boss, NOWHERE, {"retention.ms": "1"}))


@clause("ADM-14", "replace")
@defect(Request(AlterConfigsRequest, "validate_only", False))
def test_validation_replaces_nothing(cluster: Cluster, broker: Broker, boss: Broker) -> None:
    topic = cluster.create_topic(configs={"retention.ms": "12345"})
    expect("error code", 0, replace_configs(boss, topic.name, {}, validate_only=True))
    expect("error code of a change", 0, change_configs(boss, topic.name, ("segment.ms", SET, "54321")))
    eventually_set(cluster, broker, topic, "segment.ms", "54321")
    expect("value afterwards", "12345", config(broker, topic.name, "retention.ms").value)
