"""Settings of topics: what the store holds over the broker's defaults."""

from typing import Final

from reference.config import BrokerConfig
from reference.context import from_json
from reference.store_client import StoreClient
from reference.store_messages import WatchEvent

ROOT = "/config/topics"


def config_path(topic: str) -> str:
    return f"{ROOT}/{topic}"


class TopicConfigs:
    """A cache that the store's watch keeps fresh; keys and values are strings, as in CreateTopics."""

    def __init__(self, broker: BrokerConfig) -> None:
        self._topics: dict[str, dict[str, str]] = {}
        # Every topic setting that this broker honours, with its default.
        self.defaults: Final = {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "max.message.bytes": str(broker.message_max_bytes),
            "message.timestamp.type": broker.log_message_timestamp_type,
            "min.insync.replicas": str(broker.min_insync_replicas),
            "retention.bytes": "-1",
            "retention.ms": "604800000",
            "segment.bytes": str(broker.log_segment_bytes),
            "unclean.leader.election.enable": str(broker.unclean_leader_election_enable).lower(),
        }

    def overrides(self, topic: str) -> dict[str, str]:
        return self._topics.get(topic, {})

    def value(self, topic: str, key: str) -> str:
        return self.overrides(topic).get(key) or self.defaults[key]

    def min_insync_replicas(self, topic: str) -> int:
        return int(self.value(topic, "min.insync.replicas"))

    def max_message_bytes(self, topic: str) -> int:
        return int(self.value(topic, "max.message.bytes"))

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
