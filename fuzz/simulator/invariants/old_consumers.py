"""Consumers of 0.7: what each fetches is what it has claimed, and nobody else fetches it."""

from highwater.fuzz.simulator.clients.old_consumers import OLD_TOPIC, PARTITIONS, PATHS, OldConsumers
from highwater.fuzz.simulator.cluster import SimulatedCluster
from highwater.fuzz.simulator.invariants.replication import Violated
from highwater.fuzz.simulator.invariants.violations import Seen
from highwater.reference.legacy.consumer import GroupConsumer, Owned


class ObservedOldConsumers:
    """Who has lost its session may fetch on until it hears of that: nothing fences it (ZkRebalance, `Live`)."""

    def __init__(self, cluster: SimulatedCluster, old: OldConsumers, seen: Seen, violated: Violated) -> None:
        self._cluster, self._world, self._old, self._seen = cluster, cluster.world, old, seen
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
        """OneFetcher; OwnRangeOnly, of whoever has come to the end of a rebalance."""
        live = self._live()
        fetchers: dict[Owned, str] = {}
        for name, consumer in live.items():
            for each in consumer.fetching:
                other = fetchers.setdefault(each, name)
                if other != name:
                    self._violated("OneFetcher", f"{name} and {other} fetch partition {each[1]} of {OLD_TOPIC}")
        owners = self._owners() if live else {}
        for name, consumer in live.items():
            if consumer.idle:
                claimed = {each for each, owner in owners.items() if owner == consumer.consumer_id}
                if claimed != set(consumer.fetching):
                    self._violated(
                        "OwnRangeOnly",
                        f"{name} has come to fetch {sorted(consumer.fetching)}, and has claimed {sorted(claimed)}",
                    )
                self._seen.add("rebalance as in 0.7")

    def all_claimed(self) -> str:
        """What is missing before each partition is fetched by who has claimed it; empty when nothing is."""
        fetched = [each for consumer in self._live().values() for each in consumer.fetching]
        if sorted(fetched) != sorted(PARTITIONS):
            return f"fetched are {sorted(fetched)} of {sorted(PARTITIONS)}; claimed: {self._owners()}"
        return ""
