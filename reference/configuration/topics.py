"""Topic settings: the overrides in the store, on top of the broker's defaults."""

from collections.abc import Callable, Mapping

from highwater.reference.configuration.brokers import BrokerConfigs, ConfigSource, Layer
from highwater.reference.configuration.topic_values import SETTINGS, UNLIMITED
from highwater.reference.context import from_json
from highwater.reference.storage.log import LogConfig
from highwater.reference.store.client import StoreClient
from highwater.reference.store.messages import WatchEvent

ROOT = "/config/topics"


def config_path(topic: str) -> str:
    return f"{ROOT}/{topic}"


class TopicConfigs:
    """A cache of topic overrides, updated by a watch; keys and values are strings, as in CreateTopics."""

    def __init__(self, broker: BrokerConfigs) -> None:
        self._broker = broker
        self._topics: dict[str, dict[str, str]] = {}
        self._log_configs: dict[str, LogConfig] = {}  # of the topics that were asked for since their last change
        self.defaults: dict[str, str] = {}
        """Every topic setting with its value for a topic without overrides."""
        self.loaded = False
        """Whether all overrides were read: before, a topic would have settings that are not its own."""
        self.refresh_defaults()

    def refresh_defaults(self) -> None:
        """Read the settings of the broker again, after a change."""
        defaults = {name: self._default_layers(name)[0].value for name in SETTINGS}
        if defaults != self.defaults:
            self.defaults = defaults
            self._log_configs.clear()

    def _default_layers(self, name: str) -> list[Layer]:
        setting = SETTINGS[name]
        return self._broker.layers(setting.broker) or [Layer(setting.default, ConfigSource.DEFAULT)]

    def synonyms(self, name: str, overrides: Mapping[str, str]) -> list[tuple[str, Layer]]:
        """Return the values of a topic setting, the one in effect first, each with the name it is set by (KIP-226)."""
        own = [(name, Layer(overrides[name], ConfigSource.TOPIC))] if name in overrides else []
        broker = SETTINGS[name].broker or name
        return own + [(broker, layer) for layer in self._default_layers(name)]

    def overrides(self, topic: str) -> dict[str, str]:
        return self._topics.get(topic, {})

    def value(self, topic: str, key: str) -> str:
        return self.overrides(topic).get(key, self.defaults[key])

    def is_true(self, topic: str, key: str) -> bool:
        return self.value(topic, key) == "true"

    def min_insync_replicas(self, topic: str) -> int:
        return int(self.value(topic, "min.insync.replicas"))

    def timestamp_limits_ms(self, topic: str) -> tuple[int, int]:
        """Return how much older, and how much newer, than the broker's clock a timestamp may be (KIP-937).

        The older setting, one limit for both, applies where the newer one has its default (Apache
        Kafka 3.9, LogConfig).
        """
        both = self.value(topic, "message.timestamp.difference.max.ms")
        before, after = (
            self.value(topic, f"message.timestamp.{side}.max.ms").replace(UNLIMITED, both)
            for side in ("before", "after")
        )
        return int(before), int(after)

    def max_message_bytes(self, topic: str) -> int:
        return int(self.value(topic, "max.message.bytes"))

    def log_config(self, topic: str) -> LogConfig:
        """Return the settings of a topic's log; a value that is not a number is replaced by the default."""
        found = self._log_configs.get(topic)
        if found is None:
            found = self._log_configs[topic] = self._read_log_config(topic)
        return found

    def _read_log_config(self, topic: str) -> LogConfig:
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
            max_compaction_lag_ms=number("max.compaction.lag.ms"),
            segment_jitter_ms=number("segment.jitter.ms"),
            flush_messages=number("flush.messages"),
            message_downconversion_enable=self.is_true(topic, "message.downconversion.enable"),
            min_cleanable_dirty_ratio=self._number(topic, "min.cleanable.dirty.ratio", float),
        )

    def _number(self, topic: str, key: str, kind: Callable[[str], float]) -> float:
        try:
            return kind(self.value(topic, key))
        except ValueError:
            return kind(self.defaults[key])

    async def load(self, store: StoreClient) -> None:
        """Read the settings of all topics; `loaded` is True once that has succeeded."""
        found = await store.children(ROOT)
        errors = [found.error, *[await self.refresh(store, topic) for topic in found.children]]
        self.loaded = self.loaded or set(errors) <= {"", "NoNode"}

    async def refresh(self, store: StoreClient, topic: str) -> str:
        """Read the settings of one topic; return the error of the store, or an empty string."""
        reply = await store.get(config_path(topic))
        if reply.data:
            self._topics[topic] = parsed(from_json(reply.data))
            self._log_configs.pop(topic, None)
        return reply.error

    async def on_event(self, store: StoreClient, event: WatchEvent) -> None:
        if not event.path.startswith(ROOT + "/"):
            return
        topic = event.path.removeprefix(ROOT + "/")
        if event.kind == "deleted":
            self._topics.pop(topic, None)
            self._log_configs.pop(topic, None)
        else:
            await self.refresh(store, topic)


def parsed(settings: dict[str, str]) -> dict[str, str]:
    """Return the settings of a topic as they apply: a client may have set " 5 " or "TRUE"."""
    return {name: SETTINGS[name].parse(value) if name in SETTINGS else value for name, value in settings.items()}
