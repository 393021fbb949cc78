"""Metrics that clients push to brokers: subscriptions, pushes and their limits (KIP-714)."""

import uuid
from typing import Any

import pytest

from highwater.conformance.cases.support.admin import change_configs, controller
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import Broker
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect, increment, without_error
from highwater.conformance.expectations import expect
from highwater.conformance.failures import Unsupported
from highwater.conformance.models.settings import DELETE, SET
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.framing import encode_request
from highwater.reference.wire.messages.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from highwater.reference.wire.registry import api_of
from highwater.reference.wire.schema import ZERO_UUID

CLIENT_METRICS = 16
"""The resource type of client metrics subscriptions."""
SHORT_INTERVAL_MS = 1_000
LONG_INTERVAL_MS = 10_000
"""Less than the interval of a client without a subscription, so that a second request certainly comes too early."""
NO_COMPRESSION, NO_SUCH_COMPRESSION = 0, 99
SUBSCRIPTION = api_of(GetTelemetrySubscriptionsRequest)


class MetricsClient:
    """A client with an id that no other case uses, and its subscription as the broker returned it."""

    def __init__(self, broker: Broker, client_id: str = "") -> None:
        """Ask for the subscription with a new instance id; raises Unsupported if the broker has no such request."""
        self.broker, self._client_id = broker, client_id
        self.id = uuid.uuid4().bytes
        self.subscription = self.ask()
        expect("error code of GetTelemetrySubscriptions", 0, self.subscription.error_code)

    def ask(self) -> Any:
        """Send GetTelemetrySubscriptions, with the client's own id in the header if it has one."""
        request = GetTelemetrySubscriptionsRequest(client_instance_id=self.id)
        if not self._client_id:
            return self.broker.call(request)
        self.broker.need(GetTelemetrySubscriptionsRequest, 0)
        correlation_id = self.broker.next_correlation_id()
        self.broker.send_bytes(encode_request(request, 0, correlation_id, self._client_id))
        return self.broker.receive(SUBSCRIPTION, 0, correlation_id)

    def push(self, **changed: Any) -> int:
        """Push an empty set of metrics and return the error code; `changed` are fields of the request."""
        usual = {"client_instance_id": self.id, "subscription_id": self.subscription.subscription_id}
        return int(self.broker.call(PushTelemetryRequest(**(usual | changed))).error_code)


@pytest.fixture
def client(broker: Broker) -> MetricsClient:
    return MetricsClient(broker)


def need_long_interval(client: MetricsClient) -> None:
    """Raise Unsupported if this client may push so often that the next request could be in time."""
    if client.subscription.push_interval_ms < LONG_INTERVAL_MS:
        raise Unsupported(f"the target's clients push every {client.subscription.push_interval_ms} ms")


# -- subscriptions ---------------------------------------------------------------------------------------


@clause("TEL-1")
@defect(
    Reply(GetTelemetrySubscriptionsRequest, "client_instance_id", ZERO_UUID),
    Reply(GetTelemetrySubscriptionsRequest, "client_instance_id", bytes(range(16))),
)
def test_a_client_without_an_id_gets_a_new_one(broker: Broker) -> None:
    first, second = (broker.call(GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID)) for _ in range(2))
    expect("error code", 0, first.error_code)
    ids = {first.client_instance_id, second.client_instance_id, ZERO_UUID}
    expect("number of different ids, zero included", 3, len(ids))


@clause("TEL-1", "limits")
@defect(
    Reply(GetTelemetrySubscriptionsRequest, "push_interval_ms", 0),
    Reply(GetTelemetrySubscriptionsRequest, "telemetry_max_bytes", 0),
    Reply(GetTelemetrySubscriptionsRequest, "accepted_compression_types", (NO_SUCH_COMPRESSION,)),
    Reply(GetTelemetrySubscriptionsRequest, "client_instance_id", ZERO_UUID),
)
def test_a_client_gets_its_limits(broker: Broker) -> None:
    client = MetricsClient(broker)
    found = client.subscription
    expect("id of a client that has one", client.id, found.client_instance_id)
    expect("there is a push interval", True, found.push_interval_ms > 0)
    expect("metrics may have a size", True, found.telemetry_max_bytes > 0)
    expect("only known compression types", True, set(found.accepted_compression_types) <= set(range(5)))


@clause("TEL-2")
@defect(
    Reply(GetTelemetrySubscriptionsRequest, "requested_metrics", ()),
    Reply(GetTelemetrySubscriptionsRequest, "requested_metrics", ("org.apache.kafka.",)),
    Reply(GetTelemetrySubscriptionsRequest, "push_interval_ms", increment),
    Reply(PushTelemetryRequest, "error_code", 0),
    Reply(PushTelemetryRequest, "error_code", ErrorCode.THROTTLING_QUOTA_EXCEEDED),
)
@pytest.mark.slow
@pytest.mark.cluster_fault  # a changed subscription resets the intervals of all clients
def test_subscriptions_apply_to_the_clients_that_match(cluster: Cluster, broker: Broker) -> None:
    other = MetricsClient(broker, cluster.name("c"))
    name, client_id = cluster.name("s"), cluster.name("c")
    metric = f"org.apache.kafka.{name}."  # no client has it, and no other subscription names it
    settings = {"metrics": metric, "interval.ms": str(SHORT_INTERVAL_MS), "match": f"client_id={client_id}"}
    with controller(cluster) as admin:
        set_all = [(key, SET, value) for key, value in settings.items()]
        expect("error code", 0, change_configs(admin, name, *set_all, kind=CLIENT_METRICS))
        try:
            client = cluster.eventually("the subscription", lambda: subscribed_client(broker, client_id, metric), 5.0)
            found = client.subscription
            expect("push interval", min(SHORT_INTERVAL_MS, other.subscription.push_interval_ms), found.push_interval_ms)
            unchanged = MetricsClient(broker, cluster.name("c")).subscription
            expect("metrics of another client", other.subscription.requested_metrics, unchanged.requested_metrics)
            expect("interval of another client", other.subscription.push_interval_ms, unchanged.push_interval_ms)
            if found.push_interval_ms == SHORT_INTERVAL_MS:
                assert_interval(client)
        finally:
            delete_all = [(key, DELETE, None) for key in settings]
            change_configs(admin, name, *delete_all, kind=CLIENT_METRICS)


def subscribed_client(broker: Broker, client_id: str, metric: str) -> MetricsClient | None:
    """Return a new client with this client id if the metric is requested; brokers learn of a subscription later."""
    client = MetricsClient(broker, client_id)
    return client if metric in client.subscription.requested_metrics else None


def assert_interval(client: MetricsClient) -> None:
    """Push at once, too early and after the interval."""
    expect("error code of the first push", 0, client.push())
    clock = client.broker.clock
    before = clock.monotonic()
    too_early = client.push()
    if clock.monotonic() - before < SHORT_INTERVAL_MS / 2000:
        expect("error code of a push that is too early", ErrorCode.THROTTLING_QUOTA_EXCEEDED, too_early)
        clock.sleep(SHORT_INTERVAL_MS / 1000 + 0.02)
        expect("error code of a push after the interval", 0, client.push())


# -- pushes ----------------------------------------------------------------------------------------------


@clause("TEL-3")
@defect(
    Reply(PushTelemetryRequest, "error_code", ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
    Request(PushTelemetryRequest, "subscription_id", increment),
)
def test_a_push_with_the_subscription_id_is_accepted(client: MetricsClient) -> None:
    expect("error code", 0, client.push(metrics=b"\x0a\x00"))


@clause("TEL-3", "another id")
@defect(
    Reply(PushTelemetryRequest, "error_code", 0),
    Reply(GetTelemetrySubscriptionsRequest, "error_code", ErrorCode.THROTTLING_QUOTA_EXCEEDED),
    Reply(GetTelemetrySubscriptionsRequest, "subscription_id", increment),
)
def test_a_push_with_another_subscription_id_is_refused(client: MetricsClient) -> None:
    subscription_id = client.subscription.subscription_id
    unknown = subscription_id - 1 if subscription_id > 0 else subscription_id + 1
    expect("error code", ErrorCode.UNKNOWN_SUBSCRIPTION_ID, client.push(subscription_id=unknown))
    again = client.ask()
    expect("error code of GetTelemetrySubscriptions", 0, again.error_code)
    expect("subscription id", subscription_id, again.subscription_id)


@clause("TEL-4")
@defect(
    Reply(PushTelemetryRequest, "error_code", 0),
    Request(PushTelemetryRequest, "client_instance_id", bytes(range(16))),
    Request(PushTelemetryRequest, "compression_type", NO_COMPRESSION),
    Request(PushTelemetryRequest, "metrics", b""),
)
@pytest.mark.parametrize("fault", ["no id", "compression type", "size"])
def test_an_invalid_push_is_refused(client: MetricsClient, fault: str) -> None:
    largest = client.subscription.telemetry_max_bytes
    faults: dict[str, tuple[dict[str, Any], ErrorCode]] = {
        "no id": ({"client_instance_id": ZERO_UUID}, ErrorCode.INVALID_REQUEST),
        "compression type": ({"compression_type": NO_SUCH_COMPRESSION}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        "size": ({"metrics": bytes(largest + 1)}, ErrorCode.TELEMETRY_TOO_LARGE),
    }
    changes, error = faults[fault]
    expect("error code", error, client.push(**changes))


@clause("TEL-4", "largest")
@defect(Reply(PushTelemetryRequest, "error_code", ErrorCode.TELEMETRY_TOO_LARGE),
        Reply(GetTelemetrySubscriptionsRequest, "telemetry_max_bytes", increment))  # fmt: skip
def test_metrics_of_the_largest_size_are_accepted(broker: Broker) -> None:
    client = MetricsClient(broker)
    expect("error code", 0, client.push(metrics=bytes(client.subscription.telemetry_max_bytes)))


# -- the push interval and the end of a client -----------------------------------------------------------


@clause("TEL-5")
@defect(
    Reply(PushTelemetryRequest, "error_code", without_error(ErrorCode.THROTTLING_QUOTA_EXCEEDED)),
    Reply(PushTelemetryRequest, "error_code", ErrorCode.THROTTLING_QUOTA_EXCEEDED),
)
def test_a_second_push_is_too_early(client: MetricsClient) -> None:
    need_long_interval(client)
    expect("error code of the first push", 0, client.push())
    expect("error code of the second push", ErrorCode.THROTTLING_QUOTA_EXCEEDED, client.push())


@clause("TEL-5", "subscription")
@defect(Reply(GetTelemetrySubscriptionsRequest, "error_code", 0), Reply(PushTelemetryRequest, "error_code", 89))
def test_a_second_request_for_the_subscription_is_too_early(client: MetricsClient) -> None:
    need_long_interval(client)
    throttled = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    expect("error code of the second request", throttled, client.ask().error_code)
    expect("error code of a push", 0, client.push())
    expect("error code of a request after the push", throttled, client.ask().error_code)


@clause("TEL-6")
@defect(
    Reply(PushTelemetryRequest, "error_code", 0),
    Request(PushTelemetryRequest, "terminating", False),
)
def test_the_last_push_is_never_too_early(client: MetricsClient) -> None:
    expect("error code of the first push", 0, client.push())
    expect("error code of the last push", 0, client.push(terminating=True))
    expect("error code after the last push", ErrorCode.INVALID_REQUEST, client.push())
