"""The settings that a broker reports about itself (DescribeConfigs), for what the target's file does not say."""

from collections.abc import Mapping
from functools import cache
from typing import Final

from highwater.conformance.client.broker import advertised_versions
from highwater.conformance.client.connection import Access, Connection
from highwater.conformance.failures import TargetFailure
from highwater.reference.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource

DESCRIBE_CONFIGS: Final = 32
BROKER: Final = 4
TIMEOUT_S: Final = 3.0
NAMES: Final = {
    "group_max_session_timeout_ms": "group.max.session.timeout.ms",
    "group_min_session_timeout_ms": "group.min.session.timeout.ms",
    "group_max_size": "group.max.size",
    "offset_metadata_max_bytes": "offset.metadata.max.bytes",
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": (
        "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    ),
    "transaction_max_timeout_ms": "transaction.max.timeout.ms",
    "offsets_retention_check_interval_ms": "offsets.retention.check.interval.ms",
    "group_initial_rebalance_delay_ms": "group.initial.rebalance.delay.ms",
    "num_partitions": "num.partitions",
    "default_replication_factor": "default.replication.factor",
    "replica_selector_class": "replica.selector.class",
    "auto_create_topics_enable": "auto.create.topics.enable",
    "log_message_timestamp_type": "log.message.timestamp.type",
    "compression_type": "compression.type",
    "largest_message_bytes": "message.max.bytes",
    "max_incremental_fetch_session_cache_slots": "max.incremental.fetch.session.cache.slots",
}
"""The settings that cases rely on, with their names in Apache Kafka."""


@cache
def described_settings(node: int, address: str, access: Access) -> Mapping[str, str]:
    """Return the settings of `NAMES` that a broker reports, by their names here; none if it does not say."""
    try:
        newest = advertised_versions(address, TIMEOUT_S, access).get(DESCRIBE_CONFIGS, (-1, -1))[1]
        if newest < 0:
            return {}
        resource = DescribeConfigsResource(
            resource_type=BROKER, resource_name=str(node), configuration_keys=tuple(NAMES.values())
        )
        with Connection(address, timeout_s=TIMEOUT_S, access=access) as connection:
            reply = connection.exchange(DescribeConfigsRequest(resources=(resource,)), min(newest, 4))
    except TargetFailure:
        return {}
    found = {config.name: config.value for result in reply.results for config in result.configs}
    return {name: found[kafka] for name, kafka in NAMES.items() if found.get(kafka) is not None}
