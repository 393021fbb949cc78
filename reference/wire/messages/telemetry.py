"""Metrics of clients, which brokers collect (KIP-714)."""

from highwater.reference.wire.schema import (
    ZERO_UUID,
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    String,
    Uuid,
    message,
)

# --------------------------------------------------------------------------------------------------
# GetTelemetrySubscriptions (key 71): which metrics the broker wants from a client, and how often.


@message(api_key=71, versions="0", flexible_from=0)
class GetTelemetrySubscriptionsRequest:
    """The zero id asks for a new one."""

    client_instance_id: Uuid = ZERO_UUID


@message(api_key=71, versions="0", flexible_from=0)
class GetTelemetrySubscriptionsResponse:
    """No requested metric means that nothing is wanted; an empty name asks for all."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: Uuid = ZERO_UUID
    subscription_id: Int32 = 0
    accepted_compression_types: tuple[Int8, ...] = ()
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: Bool = False
    requested_metrics: tuple[String, ...] = ()


# --------------------------------------------------------------------------------------------------
# PushTelemetry (key 72): metrics of a client, as OTLP, perhaps compressed.


@message(api_key=72, versions="0", flexible_from=0)
class PushTelemetryRequest:
    """`terminating` announces the last push of a client."""

    client_instance_id: Uuid = ZERO_UUID
    subscription_id: Int32 = 0
    terminating: Bool = False
    compression_type: Int8 = 0
    metrics: Bytes = b""


@message(api_key=72, versions="0", flexible_from=0)
class PushTelemetryResponse:
    """An error code."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
