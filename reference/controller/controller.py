"""The controller's life: elected through an ephemeral node, one term of office after the other, replaced or resigned.

A term begins with the twelve steps of failover, then reacts to one event of the store after the other; what has to
wait for brokers runs beside that (`Office.begin`).
"""

from reference.context import Context, from_json, to_json
from reference.controller.cluster import Cluster
from reference.controller.failover import STEPS
from reference.controller.office import Office
from reference.controller.paths import CONTROLLER, CONTROLLER_EPOCH
from reference.controller.term import Term
from reference.peers import Peers
from reference.procedures import Pending, resolved
from reference.replication.purgatory import Purgatory
from reference.store_client import StoreClient
from reference.store_messages import ANY_VERSION, Create, SetData, WatchEvent
from reference.topic_configs import TopicConfigs


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
        self._context.trace("", "Claim", choices={"claimant": self._context.broker_id}, controller_epoch=epoch)
        await office.guarded(self._act, self.term)

    async def _act(self, term: Term) -> None:
        for step in STEPS:
            await step.take(term)
            term.office.check()
        await term.serve()

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
        """Resolves when every live broker knows the new topic's leaders; at once if this is no controller any more."""
        return self.term.topics.online(topic) if self.term is not None else resolved()

    def deleted(self, topic: str) -> Pending[None]:
        return self.term.deletions.deleted(topic) if self.term is not None else resolved()
