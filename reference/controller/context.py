"""The state of one controller epoch, its conditional writes to the store and its requests to brokers.

Theory of operation
-------------------
A broker that wins `/controller` in the metadata store increments the controller epoch and creates one
ControllerContext. It ends when the broker resigns, loses its session, or reads a larger epoch; the next term creates a
new one. Everything that a term knows is here: the state of partitions and replicas (`transitions`), the brokers that
are alive, the state of each partition as stored, and one channel for each broker.

Two rules make a zombie controller harmless (KAFKA-6082):

* every write to the store is conditional on the controller epoch and on the version of what was read
  (`conditional_write`), so a newer controller's write is never overwritten;
* every request to a broker carries the controller epoch, and brokers reject older ones.

Procedures (reassignment, deletion, failover ...) are coroutines that await through `wait_for`. It raises
`ControllerMovedError` after the term has ended, so no procedure continues once another controller may be elected.
State is written to the store before the requests that announce it are sent (guard PersistBeforeSend).

Invariants: a status changes only along its table; a leader epoch in the store never decreases; no request is sent
after the term has ended.

Not here: which replica is elected (`election`), what a change of brokers or topics triggers (`broker_changes`,
`topic_changes`), how a term begins (`failover`, `epoch`). Apache Kafka: ControllerContext,
ControllerBrokerRequestBatch, KafkaZkClient.
"""

from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from highwater.reference.configuration.topics import TopicConfigs
from highwater.reference.context import Context
from highwater.reference.controller.cluster import (
    CONTROLLER_EPOCH,
    Cluster,
    Key,
    ReplicaKey,
    StoreLostError,
    read_states,
)
from highwater.reference.controller.election import next_elr
from highwater.reference.controller.requests import Channel, leader_and_isr, stop_replica, update_metadata
from highwater.reference.controller.transitions import PARTITION_TABLE, REPLICA_TABLE, PartitionStatus, ReplicaStatus
from highwater.reference.peers import Peers
from highwater.reference.procedures import P, Pending, resolved, spawn
from highwater.reference.replication.purgatory import Purgatory
from highwater.reference.replication.states import NO_LEADER, PartitionState, state_path
from highwater.reference.state_table import States
from highwater.reference.store.client import StoreClient
from highwater.reference.store.messages import ANY_VERSION, Check, Create, Delete, SetData, StoreReply
from highwater.reference.wire.errors import ErrorCode

RETRY_MS = 100
T = TypeVar("T")
Step = Coroutine[Any, Any, None]
Decision = Callable[[Key, PartitionState], PartitionState | None]
Operation = Create | SetData | Delete


class ControllerMovedError(Exception):
    """Another controller may have been elected, so the current procedure is aborted."""


class ControllerContext:
    """What one controller epoch knows of the cluster, with the operations that all its procedures share.

    `epoch_version` is the version of the `/controller_epoch` node at the time of the election.
    """

    def __init__(
        self,
        context: Context,
        store: StoreClient,
        peers: Peers,
        purgatory: Purgatory,
        configs: TopicConfigs,
        *,
        epoch: int,
        epoch_version: int,
    ) -> None:
        self.broker_context, self.store, self.configs = context, store, configs
        self._peers, self._purgatory = peers, purgatory
        self.epoch, self._epoch_version = epoch, epoch_version
        self.ended = False
        self.running = False
        self.cluster = Cluster()
        self.partitions: States[Key, PartitionStatus] = States(PARTITION_TABLE)
        self.replicas: States[ReplicaKey, ReplicaStatus] = States(REPLICA_TABLE)
        self._channels: dict[int, Channel] = {}
        self._waiters: dict[Key, list[Pending[None]]] = {}
        self.on_disk_failure: Callable[[int, list[Key]], Coroutine[Any, Any, None]] | None = None

    # -- procedures ------------------------------------------------------------------------------

    def spawn(self, procedure: Callable[P, Step], *args: P.args, **kwargs: P.kwargs) -> None:
        """Run a procedure concurrently, until it returns or the epoch ends."""
        spawn(self.run_procedure(procedure, *args, **kwargs))

    async def run_procedure(self, procedure: Callable[P, Step], *args: P.args, **kwargs: P.kwargs) -> None:
        """Run a procedure; end the epoch if the link to the store is lost."""
        try:
            await procedure(*args, **kwargs)
        except StoreLostError:
            self.end()  # the session may have expired: this broker must be elected again before it acts
        except ControllerMovedError:
            pass

    def end(self) -> None:
        """End the epoch: stop every channel and resume every waiting procedure, so that it aborts."""
        self.ended, self.running = True, False
        self._channels.clear()
        waiters, self._waiters = self._waiters, {}
        for waiting in waiters.values():
            for pending in waiting:
                pending.resolve(None)

    async def wait_for(self, pending: Pending[T]) -> T:
        """Return the value of `pending`; raise ControllerMovedError if the epoch ended in the meantime."""
        answer = await pending
        self.check_active()
        return answer

    def check_active(self) -> None:
        if self.ended:
            raise ControllerMovedError

    async def sleep(self, wait_ms: int) -> None:
        await self.wait_for(self._purgatory.sleep(wait_ms))

    def log(self, text: str) -> None:
        self.broker_context.log(
            "state.change", f"controller {self.broker_context.broker_id} epoch {self.epoch}: {text}"
        )

    # -- the store -------------------------------------------------------------------------------

    async def write(self, *operations: Operation) -> StoreReply:
        """Apply all operations or none, under this controller epoch.

        Raises StoreLostError if the link broke, and ControllerMovedError if the stored controller epoch is newer.
        """
        reply = await self.wait_for(self.conditional_write(*operations))
        if reply.error in {"ConnectionLoss", "SessionExpired"}:
            raise StoreLostError(reply.error)
        if reply.error == "BadVersion" and self._epoch_check:
            found = await self.wait_for(self.store.get(CONTROLLER_EPOCH))
            if found.stat is not None and found.stat.version != self._epoch_version:
                self.end()
                raise ControllerMovedError
        return reply

    async def delete_tree(self, path: str) -> None:
        """Delete a node with all its descendants."""
        paths = await self._subtree(path)
        if paths:
            await self.write(*[Delete(node) for node in paths])

    async def _subtree(self, path: str) -> list[str]:
        """Return the paths of a node and its descendants, children before their parent."""
        found = await self.wait_for(self.store.children(path))
        below = [node for name in found.children for node in await self._subtree(f"{path}/{name}")]
        return below if found.error else [*below, path]

    async def update_partitions(self, keys: Iterable[Key], decide: Decision) -> list[Key]:
        """Decide a new state for each partition, persist it, then announce it; return the partitions written.

        `decide` returns None to leave a partition unchanged. After a version conflict the stored state is read again
        and `decide` is called again: a leader may have changed its ISR in the meantime. If nothing is left to change,
        the brokers still need the state that was read: its event from the store will bring nothing new.
        """
        remaining, changed, read = list(keys), list[Key](), set[Key]()
        while remaining:
            proposed = {key: new for key in remaining if (new := self._propose(key, decide)) is not None}
            if not self.broker_context.guards.persist_before_send:
                self._apply_unwritten(proposed)
                self.announce(list(proposed), self.cluster.brokers)
            written, stale = await self._write_states(proposed)
            self.announce(written, self.cluster.brokers)
            changed += written
            if stale:
                await self.sleep(RETRY_MS)
                found = await read_states(self.store, stale)
                read.update(key for key, state in found.items() if self.record_state(key, state))
                self.check_active()
            remaining = [key for key in stale if key in self.cluster.states]
        if unannounced := sorted(read.difference(changed)):
            self.send_update_metadata(unannounced, self.cluster.brokers)
        return changed

    def _propose(self, key: Key, decide: Decision) -> PartitionState | None:
        state = self.cluster.states[key]
        new = decide(key, state)
        if new is None:
            return None
        epoch = new.leader_epoch if self.broker_context.guards.bump_leader_epoch else state.leader_epoch
        return replace(new, leader_epoch=epoch, controller_epoch=self.epoch, elr=self.elr(key, state, new.isr))

    def elr(self, key: Key, before: PartitionState, isr: tuple[int, ...]) -> tuple[int, ...]:
        """Return the eligible leader replicas for a new ISR (KIP-966); empty where leaders write the ISR themselves."""
        if self.broker_context.config.isr_update != "alter_partition":
            return ()
        min_isr = min(self.configs.min_insync_replicas(key[0]), len(self.cluster.replicas(key)))
        return next_elr(before, isr, self.cluster.unclean(), min_isr, self.broker_context.guards)

    async def _write_states(self, proposed: dict[Key, PartitionState]) -> tuple[list[Key], list[Key]]:
        """Write the proposed states; return the partitions written, and those whose stored state is newer."""
        written, stale = list[Key](), list[Key]()
        for key, state, reply in [(key, state, self._begin_state_write(key, state)) for key, state in proposed.items()]:
            stat = (await self.wait_for(reply)).stats[-1:] or (None,)
            if stat[0] is None:
                stale.append(key)
            else:
                self.record_state(key, replace(state, partition_epoch=stat[0].version))
                written.append(key)
        return written, stale

    def _begin_state_write(self, key: Key, state: PartitionState) -> Pending[StoreReply]:
        known, guards = self.cluster.states[key], self.broker_context.guards
        elected = state.leader != known.leader or state.leader == NO_LEADER or state.isr == known.isr
        label = self.label(key, "ElectLeader" if elected else "ControllerShrinkIsr", state)
        version = known.partition_epoch if guards.version_cas else ANY_VERSION
        return self.conditional_write(SetData(state_path(*key), state.to_bytes(), version, label))

    def conditional_write(self, *operations: Operation) -> Pending[StoreReply]:
        """Begin a write under this controller epoch, without waiting for the reply."""
        return self.store.multi(*self._epoch_check, *operations)

    @property
    def _epoch_check(self) -> tuple[Check, ...]:
        """The check that makes a write fail once another controller has raised the controller epoch (KAFKA-6082)."""
        enforced = self.broker_context.guards.controller_epoch_cas
        return (Check(CONTROLLER_EPOCH, self._epoch_version),) if enforced else ()

    def label(self, key: Key, action: str, state: PartitionState) -> Any:
        return state.label(f"{key[0]}-{key[1]}", action, self.broker_context.broker_id)

    # -- cached state ----------------------------------------------------------------------------

    def _apply_unwritten(self, proposed: dict[Key, PartitionState]) -> None:
        """Cache states that the store has not accepted; only with the guard PersistBeforeSend off."""
        for key, state in proposed.items():
            known = self.cluster.states[key]
            self.cluster.states[key] = replace(state, partition_epoch=known.partition_epoch)

    def record_state(self, key: Key, state: PartitionState) -> bool:
        """Cache a stored state and resume the procedures that wait for it; return False if a newer one is cached."""
        known = self.cluster.states.get(key)
        if key not in self.cluster or (known is not None and known.partition_epoch > state.partition_epoch):
            return False
        if known != state:
            if known is None or known.leader != state.leader:
                self.broker_context.meters.mark("LeaderElectionsPerSec")
            self.log(f"{key[0]}-{key[1]} leader {state.leader} epoch {state.leader_epoch} isr {list(state.isr)}")
        assert known is None or known.leader_epoch <= state.leader_epoch, "a leader epoch never decreases"
        self.cluster.states[key] = state
        if key[0] not in self.cluster.deleting:
            online = state.leader in self.cluster.live(key)
            self.partitions.move(key, PartitionStatus.ONLINE if online else PartitionStatus.OFFLINE)
        for pending in self._waiters.pop(key, []):
            pending.resolve(None)
        return True

    def when_state_changes(self, key: Key) -> Pending[None]:
        """Resolve when the next state of the partition is recorded, or when the epoch ends."""
        pending: Pending[None] = Pending()
        self._waiters.setdefault(key, []).append(pending)
        return pending

    # -- requests to brokers ---------------------------------------------------------------------

    def open_channel(self, broker_id: int) -> None:
        """Start sending requests to a broker, until its epoch changes or this controller epoch ends."""
        epoch = self.cluster.brokers[broker_id].epoch

        def is_current() -> bool:
            known = self.cluster.brokers.get(broker_id)
            return not self.ended and known is not None and known.epoch == epoch

        self._channels[broker_id] = Channel(self._peers, self._purgatory, broker_id, is_current)

    def remove_channels(self, brokers: Iterable[int]) -> list[Channel]:
        """Send nothing more to these brokers; return their channels, which the caller closes."""
        return [self._channels.pop(broker_id) for broker_id in sorted(brokers) if broker_id in self._channels]

    def announce(self, keys: list[Key], brokers: Iterable[int]) -> list[Pending[object]]:
        """Send LeaderAndIsr to the partitions' hosts and UpdateMetadata to all; return the replies to the latter."""
        brokers = list(brokers)
        self.send_leader_and_isr(keys, brokers)
        return self.send_update_metadata(keys, brokers)

    def send_leader_and_isr(self, keys: list[Key], brokers: Collection[int]) -> None:
        """Send LeaderAndIsr to the brokers that host the partitions.

        Topics under deletion are left out, since the request would create their replicas again; so are brokers in
        controlled shutdown.
        """
        not_deleting = [key for key in keys if key[0] not in self.cluster.deleting]
        for broker_id in brokers:
            hosted = [key for key in not_deleting if broker_id in self.cluster.replicas(key)]
            if hosted and broker_id in self._channels and broker_id not in self.cluster.shutting_down:
                request = leader_and_isr(self.broker_context.broker_id, self.epoch, broker_id, self.cluster, hosted)
                self.spawn(self._handle_leader_and_isr, broker_id, self._channels[broker_id].send(*request))

    async def _handle_leader_and_isr(self, broker_id: int, answer: Pending[Any]) -> None:
        """Report the replicas of a live broker that are on a failed disk (KIP-112)."""
        reply = await self.wait_for(answer)
        errors = reply.partition_errors if reply is not None else ()
        failed = [
            (error.topic_name, error.partition_index)
            for error in errors
            if error.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        ]
        if failed and self.on_disk_failure is not None:
            await self.on_disk_failure(broker_id, failed)

    def send_update_metadata(
        self, keys: list[Key], brokers: Iterable[int], *, deleted: bool = False
    ) -> list[Pending[object]]:
        answers = []
        for broker_id in brokers:
            if broker_id in self._channels:
                request = update_metadata(
                    self.broker_context.broker_id, self.epoch, broker_id, self.cluster, keys, deleted=deleted
                )
                answers.append(self._channels[broker_id].send(*request))
        return answers

    def send_stop_replica(self, broker_id: int, keys: list[Key], *, delete: bool) -> Pending[Any]:
        """Send StopReplica; resolve with the response, or with None if the broker failed or restarted first."""
        if broker_id not in self._channels:
            return resolved()
        request = stop_replica(self.broker_context.broker_id, self.epoch, broker_id, self.cluster, keys, delete=delete)
        return self._channels[broker_id].send(*request)
