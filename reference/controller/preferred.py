"""Leadership goes back to the first assigned replica: on request, by the node of wishes, and now and then by itself."""

from collections.abc import Callable, Iterable
from typing import Final

from reference.context import from_json
from reference.controller.cluster import Key
from reference.controller.election import elect_preferred
from reference.controller.office import Office
from reference.controller.paths import PREFERRED_ELECTION
from reference.replication.states import PartitionState
from reference.store_messages import Delete

PERCENT: Final = 100


class PreferredElections:
    """`moves` says whether replicas of a topic move; those are left alone."""

    def __init__(self, office: Office, moves: Callable[[str], bool]) -> None:
        self._office, self._moves = office, moves

    async def take_up(self) -> None:
        """Elect as the node of wishes asks, then delete it. Without a list it asks for all."""
        found = await self._office.ask(self._office.store.get(PREFERRED_ELECTION))
        if found.error or found.stat is None:
            return
        entries = from_json(found.data).get("partitions", []) if found.data else []
        keys = {(entry["topic"], int(entry["partition"])) for entry in entries}
        states = self._office.cluster.states
        await self.elect([key for key in states if not entries or key in keys])
        await self._office.write(Delete(PREFERRED_ELECTION))

    async def elect(self, keys: Iterable[Key]) -> list[Key]:
        """The partitions whose leader has changed."""
        deleting = self._office.cluster.deleting
        fit = [key for key in keys if key[0] not in deleting and not self._moves(key[0])]
        return await self._office.change(fit, self._elected)

    def _elected(self, key: Key, state: PartitionState) -> PartitionState | None:
        cluster, guards = self._office.cluster, self._office.context.guards
        only_in_sync = guards.prefer_only_in_sync
        return elect_preferred(state, cluster.replicas(key), cluster.live(key), only_in_sync=only_in_sync)

    async def rebalance_now_and_then(self) -> None:
        """Every leader.imbalance.check.interval: brokers that lead too little of what they should, get it back."""
        config = self._office.context.config
        while True:
            await self._office.sleep(config.leader_imbalance_check_interval_ms)
            for broker_id in list(self._office.cluster.brokers):
                astray, imbalance = self.imbalance(broker_id)
                if imbalance > config.leader_imbalance_per_broker_percentage:
                    await self.elect(astray)

    def imbalance(self, broker_id: int) -> tuple[list[Key], float]:
        """The partitions that prefer this broker and are led by another, and their share in percent."""
        cluster = self._office.cluster
        mine = [key for key in cluster.states if cluster.replicas(key)[0] == broker_id]
        astray = [key for key in mine if cluster.states[key].leader != broker_id]
        return astray, PERCENT * len(astray) / len(mine) if mine else 0.0
