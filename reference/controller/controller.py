"""The controller's life: elected, loads the cluster, reacts to one event after the other, resigns.

Every write to the store is conditional on the controller epoch and on the partition epoch, every request
to a broker carries the first; so a controller that was replaced without noticing changes nothing.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from reference.context import Context, from_json, to_json
from reference.controller.channels import Channel
from reference.controller.cluster import (
    BROKERS,
    TOPICS,
    BrokerInfo,
    Cluster,
    Key,
    StoreLostError,
    read_brokers,
    read_states,
    read_topics,
    registration,
)
from reference.controller.election import elect, shrink
from reference.controller.requests import leader_and_isr, stop_replica, update_metadata
from reference.peers import Peers
from reference.procedures import Inbox, Pending, spawn
from reference.replication.purgatory import Purgatory
from reference.replication.states import NO_LEADER, PartitionState, partition_path, state_path
from reference.store_client import StoreClient
from reference.store_messages import ANY_VERSION, Check, Create, SetData, StoreReply, TraceLabel, WatchEvent
from reference.topic_configs import TopicConfigs, config_path

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
DELETE_TOPICS = "/admin/delete_topics"
RETRY_MS = 100
Event = tuple[str, str]
Decision = Callable[[Key, PartitionState], PartitionState | None]


class Controller:
    """Dormant in every broker; `active` in one at a time, as far as it knows."""

    def __init__(
        self, context: Context, store: StoreClient, peers: Peers, purgatory: Purgatory, configs: TopicConfigs
    ) -> None:
        self._context, self._store, self._peers, self._purgatory = context, store, peers, purgatory
        self._configs = configs
        self.active = False
        self.epoch = -1
        self._epoch_version = ANY_VERSION
        self._term = 0  # counts elections and resignations here, so that a procedure knows that its time is over
        self.cluster = Cluster()
        self._channels: dict[int, Channel] = {}
        self._inbox: Inbox[Event] = Inbox()
        self._queued: set[Event] = set()
        self._online: dict[str, list[Pending[None]]] = {}
        self._deleted: dict[str, list[Pending[None]]] = {}

    # -- election --------------------------------------------------------------------------------

    async def stand(self) -> None:
        """Try to become controller: create the ephemeral node and raise the epoch, together or not at all."""
        term = self._term
        found = await self._store.get(CONTROLLER_EPOCH)
        if self.active or self._term != term or found.error or found.stat is None:
            return
        epoch = int(from_json(found.data)) + 1
        claim = Create(CONTROLLER, to_json({"version": 1, "brokerid": self._context.broker_id}), ephemeral=True)
        reply = await self._store.multi(claim, SetData(CONTROLLER_EPOCH, to_json(epoch), found.stat.version))
        if self._term != term:
            return
        if not reply.error:
            await self._take_office(epoch, found.stat.version + 1)
        elif reply.error == "BadVersion":
            await self.stand()
        elif reply.error == "NodeExists":
            await self._stand_again(term)

    async def _stand_again(self, term: int) -> None:
        """The node may be ours: of an answer that was lost, or of a term that a broken link ended."""
        holder, epoch = self._store.get(CONTROLLER), self._store.get(CONTROLLER_EPOCH)
        held, found = await holder, await epoch
        ours = held.stat is not None and held.stat.ephemeral_owner == self._store.session_id
        if ours and self._term == term and not found.error and found.stat is not None:
            await self._take_office(int(from_json(found.data)), found.stat.version)

    async def _take_office(self, epoch: int, epoch_version: int) -> None:
        self.active, self.epoch, self._epoch_version = True, epoch, epoch_version
        self._term += 1
        await self._run(self._term)

    def resign(self) -> None:
        self.active = False
        self._term += 1
        self._channels.clear()

    def _current(self, term: int) -> bool:
        return self.active and self._term == term

    # -- events ----------------------------------------------------------------------------------

    def on_event(self, event: WatchEvent) -> None:
        """Turn a watch event into work; equal work that still waits is done once."""
        if not self.active:
            return
        match event.path.strip("/").split("/"):
            case ["brokers", "ids", *_]:
                self._put(("brokers", ""))
            case ["brokers", "topics", topic] if event.kind != "deleted":
                self._put(("topic", topic))
            case ["brokers", "topics", topic, "partitions", partition, "state"] if event.kind == "changed":
                self._put(("state", f"{topic}/{partition}"))
            case ["admin", "delete_topics", topic] if event.kind == "created":
                self._put(("delete", topic))

    def _put(self, event: Event) -> None:
        if event not in self._queued:
            self._queued.add(event)
            self._inbox.put(event)

    async def _run(self, term: int) -> None:
        """One term of office, until the store is lost; if the node is still ours, standing again begins the next."""
        try:
            await self._serve(term)
        except StoreLostError:
            if self._current(term):
                self._term += 1

    async def _serve(self, term: int) -> None:
        self._inbox, self._queued, self._channels = Inbox(), set(), {}
        for path in ("/brokers", DELETE_TOPICS):
            await self._store.watch(path)
        await self._load(term)
        while self._current(term):
            event = await self._inbox.take()
            self._queued.discard(event)
            if self._current(term):
                await self._handle(event)

    async def _handle(self, event: Event) -> None:
        kind, name = event
        if kind == "brokers":
            await self._brokers_changed()
        elif kind == "topic":
            await self._topic_changed(name)
        elif kind == "delete":
            await self._delete_topic(name)
        else:
            topic, _, partition = name.rpartition("/")
            await self._state_changed((topic, int(partition)))

    async def _load(self, term: int) -> None:
        """Read everything, elect where no fit leader lives, tell everybody, then finish deletions."""
        brokers = await read_brokers(self._store)
        topics = await read_topics(self._store)
        keys = [(topic, partition) for topic, info in topics.items() for partition in info.assignment]
        states = await read_states(self._store, keys)
        if not self._current(term):
            return
        self.cluster = Cluster(brokers, topics, states)
        for broker_id in brokers:
            self._open_channel(broker_id)
        await self._repair(brokers)
        # Who died while nobody was in office leaves the ISR now: a leader drops only who lags.
        await self._change(self._without_dead)
        if not self._current(term):
            return
        self._announce(list(self.cluster.states), brokers)
        for topic in topics:
            await self._topic_changed(topic)
        for topic in (await self._store.children(DELETE_TOPICS)).children:
            self._put(("delete", topic))

    def _open_channel(self, broker_id: int) -> None:
        term, epoch = self._term, self.cluster.brokers[broker_id].epoch

        def is_current() -> bool:
            known = self.cluster.brokers.get(broker_id)
            return self._current(term) and known is not None and known.epoch == epoch

        self._channels[broker_id] = Channel(self._peers, self._purgatory, broker_id, is_current)

    # -- brokers ---------------------------------------------------------------------------------

    async def _brokers_changed(self) -> None:
        term = self._term
        known, found = self.cluster.brokers, await read_brokers(self._store)
        if not self._current(term):
            return
        gone = {b for b, info in known.items() if b not in found or found[b].epoch != info.epoch}
        come = {b: info for b, info in found.items() if b not in known or known[b].epoch != info.epoch}
        if gone:
            self.cluster.brokers = {b: info for b, info in known.items() if b not in gone}
            for broker_id in gone:
                self._channels.pop(broker_id, None)
            await self._brokers_died(gone)
        if come:
            self.cluster.brokers = dict(sorted({**self.cluster.brokers, **come}.items()))
            for broker_id in come:
                self._open_channel(broker_id)
            await self._brokers_started(come)

    async def _brokers_died(self, gone: set[int]) -> None:
        def decide(key: Key, state: PartitionState) -> PartitionState | None:
            if state.leader in gone or state.leader == NO_LEADER:
                return self._elected(key, state)
            return shrink(state, gone, controller_epoch=self.epoch)

        await self._change(decide)
        self._send_metadata([], self.cluster.brokers)

    async def _brokers_started(self, come: dict[int, BrokerInfo]) -> None:
        # Who lost its tail must not hear that it leads; so repair comes before telling what it hosts.
        await self._repair(come)
        self._send_metadata(list(self.cluster.states), self.cluster.brokers)
        for broker_id in come:
            self._send_leaders(self.cluster.hosted_by(broker_id), {broker_id})
        for topic in list(self.cluster.topics):
            await self._create_partitions(topic)
        for topic in (await self._store.children(DELETE_TOPICS)).children:
            self._put(("delete", topic))

    async def _repair(self, come: dict[int, BrokerInfo]) -> None:
        """Elect where there is no live leader; before that, who restarted uncleanly leaves the ISR (KIP-966).

        The last member stays: nobody else is known to have everything.
        """
        unclean = {b for b, info in come.items() if info.unclean}
        if unclean and self._context.guards.unclean_restart_leaves_isr:
            await self._change(lambda key, state: self._without(key, state, unclean))
            for broker_id in unclean:  # it is out, and comes back as a follower: later controllers need not do this
                info = come[broker_id]
                data = registration(info.host, info.port, unclean=False)
                await self._store.call(SetData(f"{BROKERS}/{broker_id}", data))
        await self._change(
            lambda key, state: None if state.leader in self.cluster.brokers else self._elected(key, state)
        )

    def _without(self, key: Key, state: PartitionState, unclean: set[int]) -> PartitionState | None:
        """Where an unclean leader stays because it is the last member, a new epoch tells its records from the lost."""
        shrunk = shrink(state, unclean, controller_epoch=self.epoch)
        if state.leader not in unclean:
            return shrunk
        return self._elected(key, replace(state, isr=shrunk.isr) if shrunk else state)

    def _without_dead(self, key: Key, state: PartitionState) -> PartitionState | None:
        dead = set(self.cluster.replicas(key)) - set(self.cluster.brokers)
        return shrink(state, dead, controller_epoch=self.epoch) if state.leader in self.cluster.brokers else None

    def _elected(self, key: Key, state: PartitionState) -> PartitionState | None:
        """The state after an election, or None when there was no leader and still is none."""
        unclean = self._configs.value(key[0], "unclean.leader.election.enable") == "true"
        allowed = unclean or not self._context.guards.elect_from_isr
        elected = elect(
            state, self.cluster.replicas(key), self.cluster.brokers, controller_epoch=self.epoch, unclean=allowed
        )
        return None if elected.leader == state.leader == NO_LEADER else elected

    # -- writing partition states ------------------------------------------------------------------

    async def _change(self, decide: Decision) -> None:
        """Decide for every partition, persist, then tell. Where another wrote first, read and decide again."""
        term, keys = self._term, list(self.cluster.states)
        while keys and self._current(term):
            wanted = {key: new for key in keys if (new := decide(key, self.cluster.states[key])) is not None}
            written, stale = await self._write_all(wanted)
            if not self._current(term):
                return
            self._announce(written, self.cluster.brokers)
            if stale:
                await self._purgatory.sleep(RETRY_MS)
                self.cluster.states.update(await read_states(self._store, stale))
            keys = stale

    async def _write_all(self, wanted: dict[Key, PartitionState]) -> tuple[list[Key], list[Key]]:
        """Which were written, and which were not because the stored state is a newer one."""
        written: list[Key] = []
        stale: list[Key] = []
        for key, state, pending in [(key, state, self._write(key, state)) for key, state in wanted.items()]:
            reply = await pending
            stat = reply.stats[-1] if reply.stats else None
            if stat is None:
                stale.append(key)
            else:
                self.cluster.states[key] = replace(state, partition_epoch=stat.version)
                written.append(key)
        return written, stale

    def _write(self, key: Key, state: PartitionState) -> Pending[StoreReply]:
        elected = state.leader != self.cluster.states[key].leader or state.leader == NO_LEADER
        label = self._label(key, "ElectLeader" if elected else "ControllerShrinkIsr", state)
        fenced = self._context.guards.fence_stale_controller
        guard = (Check(CONTROLLER_EPOCH, self._epoch_version),) if fenced else ()
        return self._store.multi(*guard, SetData(state_path(*key), state.to_bytes(), state.partition_epoch, label))

    def _label(self, key: Key, action: str, state: PartitionState) -> TraceLabel:
        return state.label(f"{key[0]}-{key[1]}", action, self._context.broker_id)

    async def _state_changed(self, key: Key) -> None:
        """A leader changed its ISR: everybody's metadata follows."""
        term = self._term
        found = (await read_states(self._store, [key])).get(key)
        known = self.cluster.states.get(key)
        if not self._current(term) or found is None or known is None:
            return
        if found.partition_epoch > known.partition_epoch:
            self.cluster.states[key] = found
            self._send_metadata([key], self.cluster.brokers)

    # -- topics ----------------------------------------------------------------------------------

    async def _topic_changed(self, topic: str) -> None:
        """A new topic, or more partitions of one."""
        found = await read_topics(self._store, (topic,))
        if topic in found:
            self.cluster.topics[topic] = found[topic]
            await self._create_partitions(topic)

    async def _create_partitions(self, topic: str) -> None:
        """NewPartition to OnlinePartition: the first live replica leads, the live ones are the ISR."""
        term, info = self._term, self.cluster.topics[topic]
        replies = []
        for partition, replicas in info.assignment.items():
            live = tuple(replica for replica in replicas if replica in self.cluster.brokers)
            if (topic, partition) in self.cluster.states or not live:
                continue
            state = PartitionState(live[0], 0, live, self.epoch, 0)
            label = self._label((topic, partition), "ElectLeader", state)
            path = partition_path(topic, partition)
            self._store.begin_to_ensure(path)  # requests of one session take effect in order
            replies.append((partition, state, self._store.call(Create(f"{path}/state", state.to_bytes(), label=label))))
        created = []
        for partition, state, pending in replies:
            if not (await pending).error:
                self.cluster.states[topic, partition] = state
                created.append((topic, partition))
        if self._current(term) and created:
            answers = self._announce(created, self.cluster.brokers)
            spawn(self._tell_online(topic, answers))

    async def _tell_online(self, topic: str, answers: list[Pending[object]]) -> None:
        for answer in answers:
            await answer
        for pending in self._online.pop(topic, []):
            pending.resolve(None)

    def online(self, topic: str) -> Pending[None]:
        """Resolves when every live broker knows the new topic's leaders."""
        pending: Pending[None] = Pending()
        self._online.setdefault(topic, []).append(pending)
        return pending

    def deleted(self, topic: str) -> Pending[None]:
        pending: Pending[None] = Pending()
        self._deleted.setdefault(topic, []).append(pending)
        return pending

    async def _delete_topic(self, topic: str) -> None:
        """Stop and delete every replica, then forget the topic; waits while a broker that hosts it is down."""
        info = self.cluster.topics.get(topic)
        keys = [key for key in self.cluster.states if key[0] == topic]
        if info is not None:
            hosts = sorted({replica for replicas in info.assignment.values() for replica in replicas})
            if not all(host in self._channels for host in hosts):
                return
            self._send_metadata(keys, self.cluster.brokers, deleted=True)
            answers = []
            for host in hosts:
                epoch = self.cluster.brokers[host].epoch
                stopping = [(key, self.cluster.states[key]) for key in keys if host in self.cluster.replicas(key)]
                request = stop_replica(self._context.broker_id, self.epoch, epoch, stopping, delete=True)
                answers.append(self._channels[host].send(*request))
            if None in [await answer for answer in answers]:
                return
        await self._store.delete_tree(f"{TOPICS}/{topic}")
        await self._store.delete_tree(config_path(topic))
        await self._store.delete_tree(f"{DELETE_TOPICS}/{topic}")
        for key in keys:
            self.cluster.states.pop(key, None)
        self.cluster.topics.pop(topic, None)
        for pending in self._deleted.pop(topic, []):
            pending.resolve(None)

    # -- telling brokers ---------------------------------------------------------------------------

    def _announce(self, keys: list[Key], brokers: Iterable[int]) -> list[Pending[object]]:
        """LeaderAndIsr to who hosts them, then UpdateMetadata to all; resolves as each broker answers the latter."""
        brokers = list(brokers)
        self._send_leaders(keys, brokers)
        return self._send_metadata(keys, brokers)

    def _send_leaders(self, keys: list[Key], brokers: Collection[int]) -> None:
        for broker_id in brokers:
            hosted = [key for key in keys if broker_id in self.cluster.replicas(key)]
            if hosted and broker_id in self._channels:
                request = leader_and_isr(self._context.broker_id, self.epoch, broker_id, self.cluster, hosted)
                self._channels[broker_id].send(*request)

    def _send_metadata(
        self, keys: list[Key], brokers: Iterable[int], *, deleted: bool = False
    ) -> list[Pending[object]]:
        answers = []
        for broker_id in brokers:
            if broker_id in self._channels:
                request = update_metadata(
                    self._context.broker_id, self.epoch, broker_id, self.cluster, keys, deleted=deleted
                )
                answers.append(self._channels[broker_id].send(*request))
        return answers
