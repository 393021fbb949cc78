"""Preferred leader election: on request, through the request node of the store, and periodically."""

from collections.abc import Callable, Iterable
from typing import Final

from highwater.reference.context import from_json
from highwater.reference.controller.cluster import PREFERRED_ELECTION, Key
from highwater.reference.controller.context import ControllerContext
from highwater.reference.controller.election import elect_preferred
from highwater.reference.replication.states import PartitionState
from highwater.reference.store.messages import Delete

PERCENT: Final = 100


class PreferredElections:
    """Elects preferred leaders, except for topics that are being reassigned (`is_moving`) or deleted."""

    def __init__(self, controller_context: ControllerContext, is_moving: Callable[[str], bool]) -> None:
        self._controller_context, self._is_moving = controller_context, is_moving

    async def run_requested(self) -> None:
        """Elect the leaders that `/admin/preferred_replica_election` lists (empty: all), then delete that node."""
        found = await self._controller_context.wait_for(self._controller_context.store.get(PREFERRED_ELECTION))
        if found.error or found.stat is None:
            return
        entries = from_json(found.data).get("partitions", []) if found.data else []
        keys = {(entry["topic"], int(entry["partition"])) for entry in entries}
        states = self._controller_context.cluster.states
        await self.elect([key for key in states if not entries or key in keys])
        await self._controller_context.write(Delete(PREFERRED_ELECTION))

    async def elect(self, keys: Iterable[Key]) -> list[Key]:
        """Elect the preferred leaders; return the partitions whose leader changed."""
        deleting = self._controller_context.cluster.deleting
        electable = [key for key in keys if key[0] not in deleting and not self._is_moving(key[0])]
        return await self._controller_context.update_partitions(electable, self._elect)

    def _elect(self, key: Key, state: PartitionState) -> PartitionState | None:
        cluster, guards = self._controller_context.cluster, self._controller_context.broker_context.guards
        only_in_sync = guards.prefer_only_in_sync
        return elect_preferred(state, cluster.replicas(key), cluster.live(key), only_in_sync=only_in_sync)

    async def rebalance_periodically(self) -> None:
        """Every leader.imbalance.check.interval, elect the preferred leaders of brokers above the imbalance limit."""
        config = self._controller_context.broker_context.config
        while True:
            await self._controller_context.sleep(config.leader_imbalance_check_interval_ms)
            for broker_id in list(self._controller_context.cluster.brokers):
                imbalanced, imbalance = self.imbalance(broker_id)
                if imbalance > config.leader_imbalance_per_broker_percentage:
                    await self.elect(imbalanced)

    def imbalance(self, broker_id: int) -> tuple[list[Key], float]:
        """Return the partitions that prefer this broker but are led by another, and their share in percent."""
        cluster = self._controller_context.cluster
        preferring = [key for key in cluster.states if cluster.replicas(key)[0] == broker_id]
        imbalanced = [key for key in preferring if cluster.states[key].leader != broker_id]
        return imbalanced, PERCENT * len(imbalanced) / len(preferring) if preferring else 0.0
