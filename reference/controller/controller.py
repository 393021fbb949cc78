"""The controller's life: elected through an ephemeral node, one term of office after the other, replaced or resigned.

A term reacts to one event of the store after the other; what has to wait for brokers runs beside it (`Office.begin`).
"""

from reference.context import Context, from_json, to_json
from reference.controller.broker_changes import BrokerChanges
from reference.controller.cluster import Cluster, read_states
from reference.controller.deletion import Deletions
from reference.controller.failover import STEPS
from reference.controller.office import Office
from reference.controller.paths import CONTROLLER, CONTROLLER_EPOCH
from reference.controller.preferred import PreferredElections
from reference.controller.reassignment import Reassignments
from reference.controller.topic_changes import TopicChanges
from reference.peers import Peers
from reference.procedures import Inbox, Pending
from reference.replication.purgatory import Purgatory
from reference.store_client import StoreClient
from reference.store_messages import ANY_VERSION, Create, SetData, WatchEvent
from reference.topic_configs import TopicConfigs

Event = tuple[str, str]


class Term:
    """One term: the office, and the parts that act in it."""

    def __init__(self, office: Office, *, epoch_version: int) -> None:
        self.office, self.epoch_version = office, epoch_version
        self.reassignments = Reassignments(office, self._moved)
        self.deletions = Deletions(office, self.reassignments.moves)
        self.topics = TopicChanges(office)
        self.brokers = BrokerChanges(office, self.topics, self.deletions)
        self.elections = PreferredElections(office, self.reassignments.moves)
        self._inbox: Inbox[Event] = Inbox()
        self._queued: set[Event] = set()

    def put(self, event: Event) -> None:
        """Equal work that still waits is done once."""
        if event not in self._queued:
            self._queued.add(event)
            self._inbox.put(event)

    async def serve(self) -> None:
        for step in STEPS:
            await step.take(self)
            self.office.check()
        while True:
            event = await self._inbox.take()
            self.office.check()
            self._queued.discard(event)
            await self._handle(*event)

    async def _handle(self, kind: str, name: str) -> None:
        if kind == "brokers":
            await self.brokers.look()
        elif kind == "topic":
            await self.topics.look(name)
        elif kind == "delete":
            self.deletions.want(name)
        elif kind == "reassign":
            await self.reassignments.resume()
        elif kind == "disk":
            self.brokers.look_at_disk(int(name))
        elif kind == "preferred":
            await self.elections.take_up()
        else:
            await self._state_changed(name)

    async def _state_changed(self, name: str) -> None:
        """A leader changed its ISR: everybody's metadata follows."""
        topic, _, partition = name.rpartition("/")
        key = (topic, int(partition))
        known, found = self.office.cluster.states.get(key), (await read_states(self.office.store, [key])).get(key)
        self.office.check()
        if known is not None and found is not None and found.partition_epoch > known.partition_epoch:
            self.office.learn(key, found)
            self.office.send_metadata([key], self.office.cluster.brokers)

    def _moved(self, topic: str) -> None:
        if topic in self.office.cluster.deleting:
            self.deletions.want(topic)


class Controller:
    """Dormant in every broker; `active` in one at a time, as far as it knows."""

    def __init__(
        self, context: Context, store: StoreClient, peers: Peers, purgatory: Purgatory, configs: TopicConfigs
    ) -> None:
        self._context, self._store, self._peers, self._purgatory = context, store, peers, purgatory
        self._configs = configs
        self.term: Term | None = None
        self._standings = 0  # counts elections and resignations here, so that a late answer is known for one

    @property
    def active(self) -> bool:
        return self.term is not None and self.term.office.running

    @property
    def cluster(self) -> Cluster:
        return self.term.office.cluster if self.term is not None else Cluster()

    # -- election --------------------------------------------------------------------------------

    async def stand(self) -> None:
        """Try to become controller: create the ephemeral node and raise the epoch, together or not at all."""
        standing = self._standings
        found = await self._store.get(CONTROLLER_EPOCH)
        in_office = self.term is not None and not self.term.office.over
        if in_office or self._standings != standing or found.error or found.stat is None:
            return
        epoch = int(from_json(found.data)) + 1
        claim = Create(CONTROLLER, to_json({"version": 1, "brokerid": self._context.broker_id}), ephemeral=True)
        version = found.stat.version if self._context.guards.claim_cas else ANY_VERSION
        reply = await self._store.multi(claim, SetData(CONTROLLER_EPOCH, to_json(epoch), version))
        if self._standings != standing:
            return
        if not reply.error:
            claimed = reply.stats[-1]
            await self._take_office(epoch, claimed.version if claimed else found.stat.version + 1)
        elif reply.error == "BadVersion":
            await self.stand()
        elif reply.error == "NodeExists":
            await self._stand_again(standing)

    async def _stand_again(self, standing: int) -> None:
        """The node may be ours: of an answer that was lost, or of a term that a broken link ended."""
        holder, epoch = self._store.get(CONTROLLER), self._store.get(CONTROLLER_EPOCH)
        held, found = await holder, await epoch
        ours = held.stat is not None and held.stat.ephemeral_owner == self._store.session_id
        if ours and self._standings == standing and not found.error and found.stat is not None:
            await self._take_office(int(from_json(found.data)), found.stat.version)

    async def _take_office(self, epoch: int, epoch_version: int) -> None:
        self._standings += 1
        office = Office(
            self._context, self._store, self._peers, self._purgatory, self._configs,
            epoch=epoch, epoch_version=epoch_version,
        )  # fmt: skip
        self.term = Term(office, epoch_version=epoch_version)
        office.log("elected")
        await office.guarded(self.term.serve())

    def resign(self) -> None:
        self._standings += 1
        if self.term is not None:
            self.term.office.end()
            self.term = None

    # -- events ----------------------------------------------------------------------------------

    def on_event(self, event: WatchEvent) -> None:
        """Turn a watch event into work."""
        if self.term is None:
            return
        match event.path.strip("/").split("/"):
            case ["brokers", "ids", *_]:
                self.term.put(("brokers", ""))
            case ["brokers", "topics", topic] if event.kind != "deleted":
                self.term.put(("topic", topic))
            case ["brokers", "topics", topic, "partitions", partition, "state"] if event.kind == "changed":
                self.term.put(("state", f"{topic}/{partition}"))
            case ["admin", "delete_topics", topic] if event.kind == "created":
                self.term.put(("delete", topic))
            case ["admin", "reassign_partitions"] if event.kind != "deleted":
                self.term.put(("reassign", ""))
            case ["log_dir_event_notification", broker_id] if event.kind != "deleted":
                self.term.put(("disk", broker_id))
            case ["admin", "preferred_replica_election"] if event.kind == "created":
                self.term.put(("preferred", ""))

    # -- who waits for it ----------------------------------------------------------------------------

    def online(self, topic: str) -> Pending[None]:
        """Resolves when every live broker knows the new topic's leaders; only while `active`."""
        assert self.term is not None
        return self.term.topics.online(topic)

    def deleted(self, topic: str) -> Pending[None]:
        assert self.term is not None
        return self.term.deletions.deleted(topic)
