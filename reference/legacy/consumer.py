"""A group consumer of Kafka 0.7: registers in ZooKeeper and computes its own partitions.

Sources: kafka-0.7-design, "Consumer registration algorithm" and "Consumer rebalancing algorithm"; the comments number
the steps of the latter. The methods have the names of the actions in `spec/zk_rebalance`. It is a node without I/O,
like a broker (see `highwater.reference.effects`).
"""

from typing import Any, Final

from highwater.reference.context import Context, from_json, to_json
from highwater.reference.effects import STORE, Effect, Instant
from highwater.reference.legacy.registry import (
    BROKER_IDS,
    BROKER_TOPICS,
    BrokerPartition,
    GroupPaths,
    range_of,
    read_members,
    read_partitions,
)
from highwater.reference.procedures import spawn
from highwater.reference.replication.purgatory import PREFIX, Purgatory
from highwater.reference.store.client import StoreClient
from highwater.reference.store.messages import Create, Delete, SetData, WatchEvent

BACKOFF_MS: Final = 200
REGISTRIES: Final = frozenset({BROKER_IDS, BROKER_TOPICS})
Owned = tuple[str, BrokerPartition]


class GroupConsumer:
    """`fetching` maps the owned partitions to their next offsets. With `max_retries` None it retries forever."""

    def __init__(
        self, context: Context, group: str, consumer_id: str, topics: dict[str, int], max_retries: int | None = None
    ) -> None:
        self._context, self.consumer_id, self._topics = context, consumer_id, topics
        self._paths, self._max_retries = GroupPaths(group), max_retries
        self._purgatory = Purgatory(context)
        self.store = StoreClient(
            context, on_session=self._on_session, on_event=self._on_event, on_resumed=self._on_resumed
        )
        self.fetching: dict[Owned, int] = {}
        self.gave_up = False
        self.rebalances = 0
        self._registered = 0  # the id of the session in which it is registered
        self._running = self._changed = False
        self._watch_paths = REGISTRIES | {self._paths.ids}
        self._armed_watches: frozenset[str] = frozenset()

    # -- events ------------------------------------------------------------------------------------

    def start(self, now: Instant) -> list[Effect]:
        self._context.now = now
        self.store.start()
        return self._context.out.drain()

    def receive(self, now: Instant, source: str, message: Any) -> list[Effect]:
        self._context.now = now
        self.store.receive(message)
        return self._context.out.drain()

    def fire(self, now: Instant, timer: str) -> list[Effect]:
        self._context.now = now
        (self._purgatory.fire if timer.startswith(PREFIX) else self.store.fire)(timer)
        return self._context.out.drain()

    def complete(self, now: Instant, token: str) -> list[Effect]:
        return []

    def closed(self, now: Instant, peer: str) -> list[Effect]:
        self._context.now = now
        if peer == STORE:
            self.store.closed()
        return self._context.out.drain()

    @property
    def idle(self) -> bool:
        """Return whether it is connected and registered, and no rebalance is pending."""
        is_settled = not (self._running or self.gave_up) and self._registered == self.store.session_id
        return is_settled and self.store.connected

    # -- registration ----------------------------------------------------------------------------

    def _on_session(self) -> None:
        """Handle a new session: the owner nodes of an old one are deleted, and other consumers may own them."""
        if self._context.guards.stop_fetching_on_expiry:
            self.fetching = {}
        spawn(self._register())

    def _on_resumed(self) -> None:
        """Handle a reconnect: a restarted store has lost the watches, and events may have been missed."""
        self._registered = 0
        spawn(self._register())

    async def _register(self) -> None:
        """Create the id node in the group, watch consumers and brokers, then rebalance."""
        session = self.store.session_id
        await self.store.ensure(self._paths.ids)
        path = f"{self._paths.ids}/{self.consumer_id}"
        reply = await self.store.call(Create(path, to_json(self._topics), ephemeral=True))
        while reply.error == "NodeExists" and not await self._is_mine(path):  # the old session has not expired yet
            await self._purgatory.sleep(BACKOFF_MS)
            reply = await self.store.call(Create(path, to_json(self._topics), ephemeral=True))
        for topic in self._topics:
            await self.store.ensure(self._paths.owners(topic))
            await self.store.ensure(self._paths.offsets(topic))
        errors = [(await self.store.watch(path)).error for path in sorted(self._watch_paths)]
        self._armed_watches = self._watch_paths
        if not any(errors) and await self._is_mine(path):
            self._registered = session
            self._request_rebalance()

    async def _is_mine(self, path: str) -> bool:
        """Return whether the ephemeral node belongs to the current session."""
        found = await self.store.get(path)
        return found.stat is not None and found.stat.ephemeral_owner == self.store.session_id

    def _on_event(self, event: WatchEvent) -> None:
        """Handle a watch event. ZooKeeper 3.3 watches fire once, but the store's are persistent: disarm them here."""
        fired = {path for path in self._armed_watches if event.path == path or event.path.startswith(f"{path}/")}
        if fired:
            self._armed_watches -= fired
            self._request_rebalance()

    def _request_rebalance(self) -> None:
        self._changed = True
        if not self._running:
            self._running = True
            spawn(self._rebalance_until_settled())

    # -- rebalance -------------------------------------------------------------------------------

    async def _rebalance_until_settled(self) -> None:
        retries = 0
        while self._changed:
            self._changed = False
            if await self._rebalance():
                retries, self.gave_up = 0, False
                continue
            again = self._context.guards.retry_rebalance
            if not again or (self._max_retries is not None and retries >= self._max_retries):
                self.gave_up = True
                retries = 0
                continue
            retries += 1
            self._changed = True
            await self._purgatory.sleep(BACKOFF_MS)
        self._running = False

    async def _rebalance(self) -> bool:
        """Run the algorithm once; return False if another consumer owns a partition or the session has changed."""
        session = self.store.session_id
        assigned = await self._read_view()
        await self._release_all()
        for topic, partition in assigned:
            if not await self._claim(topic, partition):
                return False
        offsets = {owned: await self._offset(*owned) for owned in assigned}
        if session != self.store.session_id:
            return False
        self.fetching = offsets
        self.rebalances += 1
        return True

    async def _read_view(self) -> list[Owned]:
        """Steps 1 to 7: read members and partitions, and return the partitions of this consumer."""
        if self._context.guards.rewatch_on_read:
            self._armed_watches = self._watch_paths
        members = await read_members(self.store, self._paths)
        own: list[Owned] = []
        for topic in sorted(self._topics):  # 1
            partitions = await read_partitions(self.store, topic)  # 2, 4
            group = [member for member, topics in members.items() if topic in topics]  # 3, 5
            if self.consumer_id not in group:
                continue
            if not self._context.guards.same_view_order and self.consumer_id.encode()[-1] % 2:
                group.reverse()
            position = group.index(self.consumer_id)  # 6
            own += [(topic, partition) for partition in range_of(position, len(group), partitions)]  # 7
        return own

    async def _release_all(self) -> None:
        """Step 8: commit the offsets, stop fetching, and delete the owner nodes; the next owner continues there."""
        guards = self._context.guards
        if guards.stop_before_release:
            await self.commit()
            self.fetching = {}
        if not guards.release_before_claim:
            return
        for topic in sorted(self._topics):  # read the owners: a claim whose reply was lost may have succeeded
            owners = self._paths.owners(topic)
            for name in (await self.store.children(owners)).children:
                if (await self.store.get(f"{owners}/{name}")).data == self.consumer_id.encode():
                    await self.store.call(Delete(f"{owners}/{name}"))

    async def _claim(self, topic: str, partition: BrokerPartition) -> bool:
        """Step 9: create the owner node; return False if another consumer still owns the partition."""
        guards, path = self._context.guards, self._paths.owner(topic, partition)
        node = Create(path, self.consumer_id.encode(), ephemeral=guards.ephemeral_owners)
        reply = await self.store.call(node)
        if reply.error == "NodeExists":
            own = (await self.store.get(path)).data == self.consumer_id.encode()
            if not own and guards.claim_if_free:
                return False
            reply = await self.store.set(path, self.consumer_id.encode())
        return not reply.error

    # -- offsets ---------------------------------------------------------------------------------

    async def _offset(self, topic: str, partition: BrokerPartition) -> int:
        reply = await self.store.get(self._paths.offset(topic, partition))
        return 0 if reply.error else int(from_json(reply.data))

    async def commit(self) -> None:
        """Store the next offset of every owned partition ("Consumer Offset Tracking")."""
        for (topic, partition), offset in sorted(self.fetching.items()):
            path = self._paths.offset(topic, partition)
            if (await self.store.call(SetData(path, to_json(offset)))).error == "NoNode":
                await self.store.call(Create(path, to_json(offset)))
