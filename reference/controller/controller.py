"""The controller's life cycle: election through an ephemeral node, one term per controller epoch, resignation.

A term begins with the twelve steps of failover and then handles the events of the store one at a time. Work that
waits for brokers runs concurrently (`ControllerContext.spawn`). Apache Kafka: KafkaController, ZooKeeper mode.
"""

from highwater.reference.configuration.topics import TopicConfigs
from highwater.reference.context import Context, from_json, to_json
from highwater.reference.controller.cluster import CONTROLLER, CONTROLLER_EPOCH, Cluster
from highwater.reference.controller.context import ControllerContext
from highwater.reference.controller.epoch import Term
from highwater.reference.controller.failover import STEPS
from highwater.reference.peers import Peers
from highwater.reference.procedures import Pending, resolved
from highwater.reference.replication.purgatory import Purgatory
from highwater.reference.store.client import StoreClient
from highwater.reference.store.messages import ANY_VERSION, Create, SetData, WatchEvent


class Controller:
    """The controller part of every broker; `active` while this broker believes that it is the elected controller."""

    def __init__(
        self, context: Context, store: StoreClient, peers: Peers, purgatory: Purgatory, configs: TopicConfigs
    ) -> None:
        self._context, self._store, self._peers, self._purgatory = context, store, peers, purgatory
        self._configs = configs
        self.term: Term | None = None
        self._attempts = 0  # counts elections and resignations, so that a late reply to an earlier attempt is ignored

    @property
    def active(self) -> bool:
        return self.term is not None and self.term.controller_context.running

    @property
    def cluster(self) -> Cluster:
        return self.term.controller_context.cluster if self.term is not None else Cluster()

    # -- election --------------------------------------------------------------------------------

    async def elect(self) -> None:
        """Try to become controller: create the ephemeral node and raise the epoch in one transaction (KAFKA-6082)."""
        attempt = self._attempts
        found = await self._store.get(CONTROLLER_EPOCH)
        has_term = self.term is not None and not self.term.controller_context.ended
        if has_term or self._attempts != attempt or found.error or found.stat is None:
            return
        epoch = int(from_json(found.data)) + 1
        claim = Create(CONTROLLER, to_json({"version": 1, "brokerid": self._context.broker_id}), ephemeral=True)
        version = found.stat.version if self._context.guards.claim_cas else ANY_VERSION
        reply = await self._store.multi(claim, SetData(CONTROLLER_EPOCH, to_json(epoch), version))
        if self._attempts != attempt:
            return
        if not reply.error:
            claimed = reply.stats[-1]
            await self._start_term(epoch, claimed.version if claimed else found.stat.version + 1)
        elif reply.error == "BadVersion":
            await self.elect()
        elif reply.error == "NodeExists":
            await self._reclaim(attempt)

    async def _reclaim(self, attempt: int) -> None:
        """Resume as controller if our session owns the node: the reply was lost, or a broken link ended the term."""
        holder, epoch = self._store.get(CONTROLLER), self._store.get(CONTROLLER_EPOCH)
        held, found = await holder, await epoch
        ours = held.stat is not None and held.stat.ephemeral_owner == self._store.session_id
        if ours and self._attempts == attempt and not found.error and found.stat is not None:
            await self._start_term(int(from_json(found.data)), found.stat.version)

    async def _start_term(self, epoch: int, epoch_version: int) -> None:
        self._attempts += 1
        controller_context = ControllerContext(
            self._context, self._store, self._peers, self._purgatory, self._configs,
            epoch=epoch, epoch_version=epoch_version,
        )  # fmt: skip
        self.term = Term(controller_context, epoch_version=epoch_version)
        controller_context.log("elected")
        self._context.trace("", "Claim", choices={"claimant": self._context.broker_id}, controller_epoch=epoch)
        await controller_context.run_procedure(self._run_term, self.term)

    async def _run_term(self, term: Term) -> None:
        for step in STEPS:
            await step.run(term)
            term.controller_context.check_active()
        await term.serve()

    def resign(self) -> None:
        """End the term, if any, and ignore the replies to election attempts in flight."""
        self._attempts += 1
        if self.term is not None:
            self.term.controller_context.end()
            self.term = None

    # -- events ----------------------------------------------------------------------------------

    def on_event(self, event: WatchEvent) -> None:
        """Queue the work that a watch event requires."""
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

    def recover_leaders(self) -> None:
        """Elect leaders for partitions without one, after a change of settings allowed an unclean election."""
        if self.term is not None:
            self.term.put(("leaders", ""))

    # -- waiting for topics --------------------------------------------------------------------------

    def when_online(self, topic: str, partitions: int) -> Pending[None]:
        """Resolve when every live broker knows the leaders of so many partitions; at once if not the controller."""
        return self.term.topics.when_online(topic, partitions) if self.term is not None else resolved()

    def when_deleted(self, topic: str) -> Pending[None]:
        """Resolve when the topic is deleted; at once if this broker is not the controller."""
        return self.term.deletions.when_deleted(topic) if self.term is not None else resolved()
