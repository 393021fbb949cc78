"""Invariants of consumers of Kafka 0.7: each fetches the partitions that it has claimed, and no other consumer does."""

from highwater.fuzz.simulator.clients.old_consumers import OLD_GROUP, OLD_TOPIC, PARTITIONS, PATHS, OldConsumers
from highwater.fuzz.simulator.cluster import SimulatedCluster
from highwater.fuzz.simulator.invariants.violations import About, SituationCounts, Violated
from highwater.reference.legacy.consumer import GroupConsumer, Owned


class ObservedOldConsumers:
    """Checks only consumers with a session, as nothing fences one without until it notices (ZkRebalance, `Live`)."""

    def __init__(
        self, cluster: SimulatedCluster, old: OldConsumers, situations: SituationCounts, violated: Violated
    ) -> None:
        self._cluster, self._world, self._old, self._situations = cluster, cluster.world, old, situations
        self._violated = violated

    def _live(self) -> dict[str, GroupConsumer]:
        store = self._cluster.store_if_up()
        if store is None:
            return {}
        return {
            name: consumer
            for name, consumer in self._old.consumers.items()
            if self._world.is_up(name) and store.has_session(consumer.store.session_id)
        }

    def _owners(self) -> dict[Owned, str]:
        store, found = self._cluster.store(), {}
        for topic, partition in sorted(PARTITIONS):
            owner = store.peek(PATHS.owner(topic, partition), lambda data, version: data.decode())
            if owner is not None:
                found[topic, partition] = owner
        return found

    def after_event(self) -> None:
        """Check OneFetcher, and OwnRangeOnly for consumers that are not in a rebalance."""
        live = self._live()
        fetchers: dict[Owned, str] = {}
        for name, consumer in live.items():
            for partition in consumer.fetching:
                other = fetchers.setdefault(partition, name)
                if other != name:
                    self._violated(
                        "OneFetcher",
                        f"{name} and {other} fetch partition {partition[1]} of {OLD_TOPIC}",
                        About(entity=OLD_GROUP),
                    )
        owners = self._owners() if live else {}
        for name, consumer in live.items():
            if consumer.idle:
                claimed = {partition for partition, owner in owners.items() if owner == consumer.consumer_id}
                if claimed != set(consumer.fetching):
                    self._violated(
                        "OwnRangeOnly",
                        f"{name} fetches {sorted(consumer.fetching)}, and has claimed {sorted(claimed)}",
                        About(entity=OLD_GROUP),
                    )
                self._situations.add("rebalance as in 0.7")

    def all_claimed(self) -> str:
        """Return which partitions are not fetched by their owner; empty if all are."""
        fetched = [partition for consumer in self._live().values() for partition in consumer.fetching]
        if sorted(fetched) != sorted(PARTITIONS):
            return f"{sorted(fetched)} are fetched, of {sorted(PARTITIONS)}; the owners are {self._owners()}"
        return ""
