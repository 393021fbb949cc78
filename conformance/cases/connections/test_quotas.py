"""Quotas: throttle times in replies, muted connections, and the configuration of quotas."""

from dataclasses import fields
from typing import Any

import pytest

from highwater.conformance.cases.support.admin import TIMEOUT_MS, controller, new_topic
from highwater.conformance.cases.support.request_rows import HARMLESS
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import Broker, Topic, batch, fetch_request, produce_request
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect
from highwater.conformance.expectations import expect, only
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.framing import encode_request
from highwater.reference.wire.messages.configs import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterEntityData,
    ComponentData,
    DescribeClientQuotasRequest,
    OpData,
)
from highwater.reference.wire.messages.fetch import FetchRequest
from highwater.reference.wire.messages.metadata import ApiVersionsRequest
from highwater.reference.wire.messages.produce import ProduceRequest
from highwater.reference.wire.messages.topics import CreateTopicsRequest
from highwater.reference.wire.registry import APIS, api_of

CLIENT, USER = "client-id", "user"
PRODUCED, FETCHED, MUTATIONS = "producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate"
EXACTLY, DEFAULT, ANY = range(3)
WINDOWS_S = 10
"""Rates are averages over this many seconds, so a burst above ten times the rate violates a quota."""
RATE = 5_500
BURST = 60_000
SLACK = 0.8
"""Fraction of a throttle time that must pass; brokers round it and measure in windows."""
FIRST_STRICT = 6


class QuotaClient:
    """A client with a unique client id."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.name = cluster, cluster.name("c")

    def ask(self, broker: Broker, request: object, version: int | None = None, timeout_s: float | None = None) -> Any:
        api = api_of(type(request))
        chosen = broker.version_of(type(request)) if version is None else version
        broker.need(type(request), chosen)
        correlation_id = broker.next_correlation_id()
        broker.send_bytes(encode_request(request, chosen, correlation_id, self.name))
        return broker.receive(api, chosen, correlation_id, timeout_s)

    def limit(self, key: str, rate: float) -> None:
        """Set a quota and wait until it is described; raises Unsupported if the target has no quotas."""
        expect("error code of AlterClientQuotas", 0, alter(self.cluster, self.name, (key, rate)))
        self.cluster.eventually("the quota", lambda: quotas(self.cluster, self.name) == {key: rate})

    def unlimited(self, key: str) -> None:
        alter(self.cluster, self.name, (key, None))


def alter(
    cluster: Cluster, name: str | None, *changes: tuple[str, float | None], kind: str = CLIENT,
    validate_only: bool = False,
) -> int:  # fmt: skip
    """Alter the quotas of one entity, removing those that are None, and return the error code."""
    ops = tuple(OpData(key=key, value=rate or 0.0, remove=rate is None) for key, rate in changes)
    entry = AlterClientQuotasRequestEntryData(entity=(AlterEntityData(entity_type=kind, entity_name=name),), ops=ops)
    with controller(cluster) as broker:
        reply = broker.call(AlterClientQuotasRequest(entries=(entry,), validate_only=validate_only))
    return int(only(reply.entries).error_code)


def describe_quotas(
    cluster: Cluster, *components: ComponentData, strict: bool = True
) -> dict[tuple[Any, ...], dict[str, float]]:
    """Return quotas by entity."""
    with cluster.connect() as broker:
        reply = broker.call(DescribeClientQuotasRequest(components=components, strict=strict))
    expect("error code of DescribeClientQuotas", 0, reply.error_code)
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in reply.entries or ()
    }


def quotas(cluster: Cluster, name: str) -> dict[str, float]:
    exactly = ComponentData(entity_type=CLIENT, match_type=EXACTLY, match=name)
    return describe_quotas(cluster, exactly).get(((CLIENT, name),), {})


# -- throttle times --------------------------------------------------------------------------------------


THROTTLE_TIME_REQUESTS = [
    pytest.param(key, id=APIS[key].name, marks=pytest.mark.defect(Reply(APIS[key].request, "throttle_time_ms", 1)))
    for key in sorted(HARMLESS)
    if "throttle_time_ms" in {field.name for field in fields(APIS[key].response)}
]


@clause("QTA-7", "unthrottled")
@pytest.mark.parametrize("key", THROTTLE_TIME_REQUESTS)
def test_who_is_not_throttled_is_told_0(broker: Broker, key: int) -> None:
    request = HARMLESS[key]
    expect("throttle time", 0, broker.exchange(request, broker.version_of(type(request))).throttle_time_ms)


@clause("QTA-7", "Produce")
@defect(Reply(ProduceRequest, "throttle_time_ms", 0))
@pytest.mark.slow
def test_who_writes_too_much_is_muted(cluster: Cluster, topic: Topic) -> None:
    client = QuotaClient(cluster)
    client.limit(PRODUCED, RATE)
    leader = cluster.leader(topic)
    began = cluster.clock.monotonic()
    reply = cluster.eventually("a throttle time above 0", lambda: _throttled_reply(client, leader, topic))
    expect("error code", 0, only(only(reply.responses).partition_responses).error_code)
    request = ApiVersionsRequest(client_software_name="highwater", client_software_version="1.0")
    client.ask(leader, request, timeout_s=reply.throttle_time_ms / 1000 + 10)
    waited_ms = (cluster.clock.monotonic() - began) * 1000
    client.unlimited(PRODUCED)
    expect(
        f"the next reply was delayed by {reply.throttle_time_ms} ms", True, waited_ms > reply.throttle_time_ms * SLACK
    )


def _throttled_reply(client: QuotaClient, leader: Broker, topic: Topic) -> Any:
    """Produce a burst and return the reply if it has a throttle time; a new quota takes effect with a delay."""
    reply = client.ask(leader, produce_request(topic, batch(b"v" * BURST)), timeout_s=30)
    return reply if reply.throttle_time_ms > 0 else None


@clause("QTA-7", "Fetch")
@defect(Reply(FetchRequest, "throttle_time_ms", 0))
@pytest.mark.slow
def test_who_reads_too_much_is_told(cluster: Cluster, topic: Topic) -> None:
    client, leader = QuotaClient(cluster), cluster.leader(topic)
    expect("error code of Produce", 0, leader.produce(topic, batch(b"v" * BURST)).error_code)
    client.limit(FETCHED, RATE)
    request = fetch_request(topic, replica_id=-1, max_wait_ms=0, min_bytes=1)

    def throttled() -> bool:
        return bool(client.ask(leader, request, timeout_s=30).throttle_time_ms > 0)

    cluster.eventually("a throttle time above 0", throttled)
    client.unlimited(FETCHED)


# -- changes of the cluster (KIP-599) --------------------------------------------------------------------


def exhaust_quota(cluster: Cluster, version: int) -> tuple[QuotaClient, Any]:
    """Return a client that has exhausted its mutation quota, and the reply to its next CreateTopics."""
    client = QuotaClient(cluster)
    client.limit(MUTATIONS, 0.1)
    broker = controller(cluster)
    broker.version_of(CreateTopicsRequest, version)

    def create() -> Any:
        topic = new_topic(cluster.topic_name(), partitions=5)
        reply = client.ask(broker, CreateTopicsRequest(topics=(topic,), timeout_ms=TIMEOUT_MS), version, 20.0)
        return reply if reply.throttle_time_ms > 0 or only(reply.topics).error_code else None

    reply = cluster.eventually("a throttle time above 0", create)
    if not only(reply.topics).error_code:
        with controller(cluster) as another:
            topic = new_topic(cluster.topic_name())
            reply = client.ask(another, CreateTopicsRequest(topics=(topic,), timeout_ms=TIMEOUT_MS), version, 60.0)
    client.unlimited(MUTATIONS)
    return client, reply


@clause("QTA-8")
@defect(Reply(CreateTopicsRequest, "topics.error_code", 0))
@pytest.mark.slow
def test_who_changes_too_much_is_refused(cluster: Cluster) -> None:
    _, reply = exhaust_quota(cluster, FIRST_STRICT)
    expect("error code", ErrorCode.THROTTLING_QUOTA_EXCEEDED, only(reply.topics).error_code)
    expect("there is a throttle time", True, reply.throttle_time_ms > 0)


@clause("QTA-8", "old")
@defect(Reply(CreateTopicsRequest, "topics.error_code", ErrorCode.THROTTLING_QUOTA_EXCEEDED))
@pytest.mark.slow
def test_older_clients_are_served_and_throttled(cluster: Cluster) -> None:
    _, reply = exhaust_quota(cluster, FIRST_STRICT - 1)
    expect("error code", 0, only(reply.topics).error_code)
    expect("there is a throttle time", True, reply.throttle_time_ms > 0)


# -- configuration (KIP-546) -----------------------------------------------------------------------------


@clause("QTA-11")
@defect(Reply(DescribeClientQuotasRequest, "entries", ()))
def test_a_quota_is_set_changed_and_removed(cluster: Cluster) -> None:
    name = cluster.name("c")
    for wanted in ({PRODUCED: 1000.0}, {PRODUCED: 2000.0, FETCHED: 500.0}, {FETCHED: 500.0}, {}):
        changes = [(key, wanted.get(key)) for key in (PRODUCED, FETCHED)]
        expect("error code", 0, alter(cluster, name, *changes))
        cluster.eventually(f"quotas to be {wanted}", lambda wanted=wanted: quotas(cluster, name) == wanted)  # type: ignore[misc]


@clause("QTA-12")
@defect(Request(DescribeClientQuotasRequest, "components", ()))
def test_entities_are_found_by_name_and_kind(cluster: Cluster) -> None:
    name, other = cluster.name("c"), cluster.name("c")
    for client_name in (name, other):
        expect("error code", 0, alter(cluster, client_name, (PRODUCED, 1000.0)))
    cluster.eventually("both quotas", lambda: bool(quotas(cluster, name) and quotas(cluster, other)))
    any_client = ComponentData(entity_type=CLIENT, match_type=ANY, match=None)
    expect(
        "both client ids are found",
        True,
        {((CLIENT, name),), ((CLIENT, other),)} <= set(describe_quotas(cluster, any_client)),
    )
    exactly = ComponentData(entity_type=CLIENT, match_type=EXACTLY, match=name)
    expect("entities of that name", True, set(describe_quotas(cluster, exactly)) == {((CLIENT, name),)})
    any_user = ComponentData(entity_type=USER, match_type=ANY, match=None)
    expect("the client id is not found as a user", True, ((CLIENT, name),) not in describe_quotas(cluster, any_user))
    for client_name in (name, other):
        alter(cluster, client_name, (PRODUCED, None))


@clause("QTA-13")
@defect(Reply(AlterClientQuotasRequest, "entries.error_code", 0))
@pytest.mark.parametrize(
    ("kind", "key", "rate"),
    [
        pytest.param(CLIENT, "no_such_rate", 1.0, id="unknown quota"),
        pytest.param("no-such-kind", PRODUCED, 1.0, id="unknown kind"),
        pytest.param(CLIENT, PRODUCED, -1.0, id="negative"),
        pytest.param(CLIENT, PRODUCED, 0.5, id="not whole"),
    ],
)
def test_a_quota_that_cannot_be_is_refused(cluster: Cluster, kind: str, key: str, rate: float) -> None:
    expect("error code", ErrorCode.INVALID_REQUEST, alter(cluster, cluster.name("c"), (key, rate), kind=kind))


@clause("QTA-14")
@defect(Request(AlterClientQuotasRequest, "validate_only", False))
def test_validation_sets_no_quota(cluster: Cluster) -> None:
    name = cluster.name("c")
    expect("error code", 0, alter(cluster, name, (PRODUCED, 1000.0), validate_only=True))
    expect("error code of the second change", 0, alter(cluster, name, (FETCHED, 500.0)))
    cluster.eventually("the other quota", lambda: bool(quotas(cluster, name)))
    expect("quotas", True, quotas(cluster, name) == {FETCHED: 500.0})
    alter(cluster, name, (FETCHED, None))
