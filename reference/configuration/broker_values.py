"""The broker settings that can be altered while the broker runs (KIP-226; DynamicBrokerConfig in Apache Kafka)."""

from dataclasses import replace
from typing import Final

from highwater.reference.configuration.topic_values import INT32_MAX, NO_THROTTLE, SETTINGS, Setting, Type, number

READ_ONLY_DEFAULTS: Final = frozenset({"log.message.format.version"})
"""Defaults of topic settings that Apache Kafka cannot alter while the broker runs."""

# Apache Kafka has throttles only as dynamic settings: a config file cannot contain them (DynamicConfig.Broker).
THROTTLES: Final = {
    name: Setting(Type.LONG, number(0), documentation, unused=NO_THROTTLE)
    for name, documentation in {
        "leader.replication.throttled.rate": "The bytes per second that a leader sends to throttled replicas (KIP-73).",
        "follower.replication.throttled.rate": "The bytes per second that throttled replicas fetch (KIP-73).",
        "replica.alter.log.dirs.io.max.bytes.per.second": "The bytes per second of moves between folders (KIP-113).",
    }.items()
}

TOPIC_DEFAULTS: Final = {
    setting.broker: setting
    for setting in SETTINGS.values()
    if setting.broker and setting.broker not in READ_ONLY_DEFAULTS
}

DYNAMIC: Final[dict[str, Setting]] = {
    **TOPIC_DEFAULTS,
    **THROTTLES,
    "log.flush.interval.ms": replace(TOPIC_DEFAULTS["log.flush.interval.ms"], unused=""),
    "log.cleaner.backoff.ms": Setting(Type.LONG, number(1), "The pause between two checks for a log to compact."),
    "max.connections": Setting(Type.INT, number(1, INT32_MAX), "The largest number of connections (KIP-402)."),
    "max.connections.per.ip": Setting(Type.INT, number(1, INT32_MAX), "The largest number of connections of a host."),
    "producer.id.expiration.ms": Setting(
        Type.INT, number(1, INT32_MAX), "How long a producer id without records is remembered (KIP-854)."
    ),
}
"""One entry for each setting of a broker that AlterConfigs and IncrementalAlterConfigs accept."""
