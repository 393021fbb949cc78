"""A group consumer of Kafka 0.7: registers in ZooKeeper and computes its own partitions.

Sources: kafka-0.7-design, "Consumer registration algorithm" and "Consumer rebalancing algorithm"; the comments number
the steps of the latter. The methods have the names of the actions in `spec/zk_rebalance`. It is a node without I/O,
like a broker (see `highwater.reference.effects`).
"""

from collections.abc import Iterable
from typing import Any, Final

from highwater.reference.context import Context, from_json, to_json
from highwater.reference.effects import Trace
from highwater.reference.legacy.registry import (
    BROKER_IDS,
    BROKER_TOPICS,
    BrokerPartition,
    GroupPaths,
    StoreNode,
    node_name,
    range_of,
    read_members,
    read_partitions,
)
from highwater.reference.procedures import spawn
from highwater.reference.replication.purgatory import PREFIX, Purgatory
from highwater.reference.store.client import StoreClient
from highwater.reference.store.messages import (
    Children,
    Create,
    Delete,
    Get,
    Operation,
    SetData,
    StoreReply,
    WatchEvent,
)

BACKOFF_MS: Final = 200
NO_SESSION: Final = frozenset({"ConnectionLoss", "SessionExpired"})
REGISTRIES: Final = frozenset({BROKER_IDS, BROKER_TOPICS})
Owned = tuple[str, BrokerPartition]


class DisconnectedError(Exception):
    """The connection or the session ended during a rebalance: what the last request did is unknown."""


class ConnectedStore:
    """The store as a rebalance uses it: raises DisconnectedError, so that no step builds on a reply that never came."""

    def __init__(self, store: StoreClient) -> None:
        self._store = store

    async def call(self, operation: Operation) -> StoreReply:
        reply = await self._store.call(operation)
        if reply.error in NO_SESSION:
            raise DisconnectedError(reply.error)
        return reply

    async def get(self, path: str) -> StoreReply:
        return await self.call(Get(path))

    async def children(self, path: str) -> StoreReply:
        return await self.call(Children(path))


class GroupConsumer(StoreNode):
    """`fetching` maps the owned partitions to their next offsets. With `max_retries` None it retries forever.

    The steps of a rebalance are traced here where they are local, and by the store where they change it
    (`store/consumer_steps.py`).
    """

    def __init__(
        self, context: Context, group: str, consumer_id: str, topics: dict[str, int], max_retries: int | None = None
    ) -> None:
        super().__init__(context)
        self.consumer_id, self._topics = consumer_id, topics
        self._group = group
        self._paths, self._max_retries = GroupPaths(group), max_retries
        self._purgatory = Purgatory(context)
        self.store = StoreClient(
            context, on_session=self._on_session, on_event=self._on_event, on_resumed=self._on_resumed
        )
        self._connected_store = ConnectedStore(self.store)
        self.fetching: dict[Owned, int] = {}
        self.gave_up = False
        self.rebalances = 0
        self._had_session = False
        self._registered = 0  # the id of the session in which it is registered
        self._running = self._changed = False
        self._watch_paths = REGISTRIES | {self._paths.ids}
        self._armed_watches: frozenset[str] = frozenset()

    def _fire(self, timer: str) -> None:
        (self._purgatory.fire if timer.startswith(PREFIX) else self.store.fire)(timer)

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
        if self._had_session:
            self._trace("NoticeExpiry", fetching=_names(self.fetching))
        self._had_session = True
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
        """Rebalance until nothing has changed; stop without a connection: `_register` asks for a rebalance later."""
        retries = 0
        while self._changed and self.store.connected and self._registered == self.store.session_id:
            self._changed = False
            try:
                taken = await self._rebalance()
            except DisconnectedError:
                self._trace("Interrupted")
                self._changed = True
                continue
            if taken is None:
                retries, self.gave_up = 0, False
                continue
            again = self._context.guards.retry_rebalance
            self.gave_up = not again or (self._max_retries is not None and retries >= self._max_retries)
            limit = -1 if self._max_retries is None else self._max_retries
            self._trace("RetryOrGiveUp", partition=_name(taken), max_retries=limit, gave_up=self.gave_up)
            if self.gave_up:
                retries = 0
                continue
            retries += 1
            self._changed = True
            await self._purgatory.sleep(BACKOFF_MS)
        self._running = False

    async def _rebalance(self) -> Owned | None:
        """Run the algorithm once; return a partition that another consumer still owns, which ends it, or None.

        Raises DisconnectedError, also if there is another session now.
        """
        session = self.store.session_id
        assigned = await self._read_view()
        await self._release_all()
        self._trace("ReleaseAll", todo=_names(assigned))
        for owned in assigned:
            if not await self._claim(*owned):
                return owned
        offsets = {owned: await self._offset(*owned) for owned in assigned}
        if session != self.store.session_id:
            raise DisconnectedError
        self.fetching = offsets
        self.rebalances += 1
        self._trace("Fetching", fetching=_names(self.fetching))
        return None

    async def _read_view(self) -> list[Owned]:
        """Steps 1 to 7: read members and partitions, and return the partitions of this consumer."""
        if self._context.guards.rewatch_on_read:
            self._armed_watches = self._watch_paths
        self._trace("ReadMembers")
        members = await read_members(self._connected_store, self._paths)
        own: list[Owned] = []
        read: list[Owned] = []
        for topic in sorted(self._topics):  # 1
            partitions = await read_partitions(self._connected_store, topic)  # 2, 4
            read += [(topic, partition) for partition in partitions]
            group = [member for member, topics in members.items() if topic in topics]  # 3, 5
            if self.consumer_id not in group:
                continue
            if not self._context.guards.same_view_order and self.consumer_id.encode()[-1] % 2:
                group.reverse()
            position = group.index(self.consumer_id)  # 6
            own += [(topic, partition) for partition in range_of(position, len(group), partitions)]  # 7
        self._trace("View", members=sorted(members), partitions=_names(read))
        return own

    async def _release_all(self) -> None:
        """Step 8: commit the offsets, stop fetching, and delete the owner nodes; the next owner continues there."""
        guards = self._context.guards
        if guards.stop_before_release:
            await self.commit()
            self.fetching = {}
            self._trace("StopFetching")
        if not guards.release_before_claim:
            return
        store = self._connected_store
        for topic in sorted(self._topics):  # read the owners: a claim whose reply was lost may have succeeded
            owners = self._paths.owners(topic)
            for name in (await store.children(owners)).children:
                if (await store.get(f"{owners}/{name}")).data == self.consumer_id.encode():
                    await store.call(Delete(f"{owners}/{name}"))

    async def _claim(self, topic: str, partition: BrokerPartition) -> bool:
        """Step 9: create the owner node; return False if another consumer still owns the partition."""
        guards, path, store = self._context.guards, self._paths.owner(topic, partition), self._connected_store
        node = Create(path, self.consumer_id.encode(), ephemeral=guards.ephemeral_owners)
        reply = await store.call(node)
        if reply.error == "NodeExists":
            own = (await store.get(path)).data == self.consumer_id.encode()
            if not own and guards.claim_if_free:
                return False
            reply = await store.call(SetData(path, self.consumer_id.encode()))
        return not reply.error

    # -- offsets ---------------------------------------------------------------------------------

    async def _offset(self, topic: str, partition: BrokerPartition) -> int:
        reply = await self._connected_store.get(self._paths.offset(topic, partition))
        return 0 if reply.error else int(from_json(reply.data))

    async def commit(self) -> None:
        """Store the next offset of every owned partition ("Consumer Offset Tracking")."""
        for (topic, partition), offset in sorted(self.fetching.items()):
            path = self._paths.offset(topic, partition)
            if (await self.store.call(SetData(path, to_json(offset)))).error == "NoNode":
                await self.store.call(Create(path, to_json(offset)))

    def _trace(self, action: str, **choices: Any) -> None:
        if self._context.out.tracing:
            self._context.out.add(
                Trace(self._group, action, self.consumer_id, {"consumer": self.consumer_id, **choices})
            )


def _name(owned: Owned) -> str:
    return f"{owned[0]}/{node_name(owned[1])}"


def _names(owned: Iterable[Owned]) -> list[str]:
    return [_name(each) for each in sorted(owned)]
