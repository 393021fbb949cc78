"""Topic settings: the overrides in the store, on top of the broker's defaults."""

from collections.abc import Callable
from typing import Final

from highwater.reference.configuration.broker import BrokerConfig
from highwater.reference.configuration.topic_values import INT64_MAX
from highwater.reference.context import from_json
from highwater.reference.storage.log import LogConfig
from highwater.reference.store.client import StoreClient
from highwater.reference.store.messages import WatchEvent

ROOT = "/config/topics"


def config_path(topic: str) -> str:
    return f"{ROOT}/{topic}"


class TopicConfigs:
    """A cache of topic overrides, updated by a watch; keys and values are strings, as in CreateTopics."""

    def __init__(self, broker: BrokerConfig) -> None:
        self._topics: dict[str, dict[str, str]] = {}
        # Every topic setting that this broker supports, with its default.
        self.defaults: Final = {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "delete.retention.ms": str(broker.log_cleaner_delete_retention_ms),
            "index.interval.bytes": str(broker.log_index_interval_bytes),
            "max.message.bytes": str(broker.message_max_bytes),
            "message.timestamp.after.max.ms": str(INT64_MAX),
            "message.timestamp.before.max.ms": str(INT64_MAX),
            "message.timestamp.type": broker.log_message_timestamp_type,
            "min.cleanable.dirty.ratio": str(broker.log_cleaner_min_cleanable_ratio),
            "min.compaction.lag.ms": str(broker.log_cleaner_min_compaction_lag_ms),
            "min.insync.replicas": str(broker.min_insync_replicas),
            "retention.bytes": str(broker.log_retention_bytes),
            "retention.ms": str(broker.log_retention_ms),
            "segment.bytes": str(broker.log_segment_bytes),
            "segment.index.bytes": str(broker.log_index_size_max_bytes),
            "segment.ms": str(broker.log_roll_ms),
            "unclean.leader.election.enable": str(broker.unclean_leader_election_enable).lower(),
        }

    def overrides(self, topic: str) -> dict[str, str]:
        return self._topics.get(topic, {})

    def value(self, topic: str, key: str) -> str:
        return self.overrides(topic).get(key) or self.defaults[key]

    def min_insync_replicas(self, topic: str) -> int:
        return int(self.value(topic, "min.insync.replicas"))

    def timestamp_limits_ms(self, topic: str) -> tuple[int, int]:
        """Return how much older, and how much newer, than the broker's clock a timestamp may be (KIP-937)."""
        before, after = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
        return int(self.value(topic, before)), int(self.value(topic, after))

    def max_message_bytes(self, topic: str) -> int:
        return int(self.value(topic, "max.message.bytes"))

    def log_config(self, topic: str) -> LogConfig:
        """Return the settings of a topic's log; a value that is not a number is replaced by the default."""

        def number(key: str) -> int:
            return int(self._number(topic, key, int))

        return LogConfig(
            segment_bytes=number("segment.bytes"),
            index_interval_bytes=number("index.interval.bytes"),
            segment_ms=number("segment.ms"),
            segment_index_bytes=number("segment.index.bytes"),
            cleanup_policy=frozenset(policy.strip() for policy in self.value(topic, "cleanup.policy").split(",")),
            retention_ms=number("retention.ms"),
            retention_bytes=number("retention.bytes"),
            delete_retention_ms=number("delete.retention.ms"),
            min_compaction_lag_ms=number("min.compaction.lag.ms"),
            min_cleanable_dirty_ratio=self._number(topic, "min.cleanable.dirty.ratio", float),
        )

    def _number(self, topic: str, key: str, kind: Callable[[str], float]) -> float:
        try:
            return kind(self.value(topic, key))
        except ValueError:
            return kind(self.defaults[key])

    async def load(self, store: StoreClient) -> None:
        for topic in (await store.children(ROOT)).children:
            await self.refresh(store, topic)

    async def refresh(self, store: StoreClient, topic: str) -> None:
        reply = await store.get(config_path(topic))
        if reply.data:
            self._topics[topic] = from_json(reply.data)

    async def on_event(self, store: StoreClient, event: WatchEvent) -> None:
        topic = event.path.removeprefix(ROOT + "/")
        if event.kind == "deleted":
            self._topics.pop(topic, None)
        elif event.path != ROOT:
            await self.refresh(store, topic)
