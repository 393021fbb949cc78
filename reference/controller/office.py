"""One term of office: what this controller knows, how it writes to the store, and how it tells brokers.

Every write is conditional on the controller epoch and on the partition epoch, every request to a broker carries the
first; so a controller that was replaced without noticing changes nothing. Procedures await through `ask`, which ends
them when the term is over: none goes on after another controller may have begun.
"""

from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from reference.context import Context
from reference.controller.channels import Channel
from reference.controller.cluster import Cluster, Key, ReplicaKey, StoreLostError, read_states
from reference.controller.eligible import next_elr
from reference.controller.paths import CONTROLLER_EPOCH
from reference.controller.requests import leader_and_isr, stop_replica, update_metadata
from reference.controller.transitions import (
    PARTITION_TABLE,
    REPLICA_TABLE,
    PartitionStatus,
    ReplicaStatus,
)
from reference.peers import Peers
from reference.procedures import Given, Pending, resolved, spawn
from reference.replication.purgatory import Purgatory
from reference.replication.states import NO_LEADER, PartitionState, state_path
from reference.state_table import States
from reference.store_client import StoreClient
from reference.store_messages import ANY_VERSION, Check, Create, Delete, SetData, StoreReply
from reference.topic_configs import TopicConfigs
from reference.wire.errors import ErrorCode

RETRY_MS = 100
T = TypeVar("T")
Step = Coroutine[Any, Any, None]
Decision = Callable[[Key, PartitionState], PartitionState | None]
Operation = Create | SetData | Delete


class OfficeOverError(Exception):
    """Another controller may have begun: what was about to be done is not done."""


class Office:
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
        self.context, self.store, self.configs = context, store, configs
        self._peers, self._purgatory = peers, purgatory
        self.epoch, self._epoch_version = epoch, epoch_version
        self.over = False
        self.running = False
        self.cluster = Cluster()
        self.partitions: States[Key, PartitionStatus] = States(PARTITION_TABLE)
        self.replicas: States[ReplicaKey, ReplicaStatus] = States(REPLICA_TABLE)
        self._channels: dict[int, Channel] = {}
        self._awaited: dict[Key, list[Pending[None]]] = {}
        self.on_disk_failure: Callable[[int, list[Key]], Coroutine[Any, Any, None]] | None = None

    # -- procedures ------------------------------------------------------------------------------

    def begin(self, procedure: Callable[Given, Step], *given: Given.args, **named: Given.kwargs) -> None:
        """Run a procedure beside the others, until it ends or the term does."""
        spawn(self.guarded(procedure, *given, **named))

    async def guarded(self, procedure: Callable[Given, Step], *given: Given.args, **named: Given.kwargs) -> None:
        try:
            await procedure(*given, **named)
        except StoreLostError:
            self.end()  # the link is gone: whoever stands again begins a new term
        except OfficeOverError:
            pass

    def end(self) -> None:
        self.over, self.running = True, False
        self._channels.clear()
        awaited, self._awaited = self._awaited, {}
        for waiting in awaited.values():
            for pending in waiting:
                pending.resolve(None)

    async def ask(self, pending: Pending[T]) -> T:
        """The answer, unless the term ended meanwhile (OfficeOverError)."""
        answer = await pending
        self.check()
        return answer

    def check(self) -> None:
        if self.over:
            raise OfficeOverError

    async def sleep(self, wait_ms: int) -> None:
        await self.ask(self._purgatory.sleep(wait_ms))

    def log(self, text: str) -> None:
        self.context.log("state.change", f"controller {self.context.broker_id} epoch {self.epoch}: {text}")

    # -- the store -------------------------------------------------------------------------------

    async def write(self, *operations: Operation) -> StoreReply:
        """All or nothing, and only under our controller epoch. Refused for that reason, the term is over."""
        reply = await self.ask(self.conditionally(*operations))
        if reply.error in {"ConnectionLoss", "SessionExpired"}:
            raise StoreLostError(reply.error)
        if reply.error == "BadVersion" and self._claim:
            found = await self.ask(self.store.get(CONTROLLER_EPOCH))
            if found.stat is not None and found.stat.version != self._epoch_version:
                self.end()
                raise OfficeOverError
        return reply

    async def delete_tree(self, path: str) -> None:
        """A node with all below it."""
        paths = await self._tree(path)
        if paths:
            await self.write(*[Delete(each) for each in paths])

    async def _tree(self, path: str) -> list[str]:
        """Every path from the leaves up."""
        found = await self.ask(self.store.children(path))
        below = [each for name in found.children for each in await self._tree(f"{path}/{name}")]
        return below if found.error else [*below, path]

    async def change(self, keys: Iterable[Key], decide: Decision) -> list[Key]:
        """Decide for each partition, persist, then tell; returns what was written.

        Where somebody else wrote first, read and decide again.
        """
        left, changed = list(keys), list[Key]()
        while left:
            wanted = {key: new for key in left if (new := self._decided(key, decide)) is not None}
            if not self.context.guards.persist_before_send:
                self._assume(wanted)
                self.announce(list(wanted), self.cluster.brokers)
            written, stale = await self._write_all(wanted)
            self.announce(written, self.cluster.brokers)
            changed += written
            if stale:
                await self.sleep(RETRY_MS)
                for key, state in (await read_states(self.store, stale)).items():
                    self.learn(key, state)
                self.check()
            left = [key for key in stale if key in self.cluster.states]
        return changed

    def _decided(self, key: Key, decide: Decision) -> PartitionState | None:
        state = self.cluster.states[key]
        new = decide(key, state)
        if new is None:
            return None
        epoch = new.leader_epoch if self.context.guards.bump_leader_epoch else state.leader_epoch
        return replace(new, leader_epoch=epoch, controller_epoch=self.epoch, elr=self.elr(key, state, new.isr))

    def elr(self, key: Key, before: PartitionState, isr: tuple[int, ...]) -> tuple[int, ...]:
        """The eligible replicas beside a new ISR; none where leaders write the ISR themselves."""
        if self.context.config.isr_update != "alter_partition":
            return ()
        min_isr = min(self.configs.min_insync_replicas(key[0]), len(self.cluster.replicas(key)))
        unclean = {broker_id for broker_id, info in self.cluster.brokers.items() if info.unclean}
        return next_elr(before, isr, unclean, min_isr, self.context.guards)

    async def _write_all(self, wanted: dict[Key, PartitionState]) -> tuple[list[Key], list[Key]]:
        """Which were written, and which were not because the stored state is a newer one."""
        written, stale = list[Key](), list[Key]()
        for key, state, reply in [(key, state, self._begin_write(key, state)) for key, state in wanted.items()]:
            stat = (await self.ask(reply)).stats[-1:] or (None,)
            if stat[0] is None:
                stale.append(key)
            else:
                self.learn(key, replace(state, partition_epoch=stat[0].version))
                written.append(key)
        return written, stale

    def _begin_write(self, key: Key, state: PartitionState) -> Pending[StoreReply]:
        known, guards = self.cluster.states[key], self.context.guards
        elected = state.leader != known.leader or state.leader == NO_LEADER or state.isr == known.isr
        label = self.label(key, "ElectLeader" if elected else "ControllerShrinkIsr", state)
        version = known.partition_epoch if guards.version_cas else ANY_VERSION
        return self.conditionally(SetData(state_path(*key), state.to_bytes(), version, label))

    def conditionally(self, *operations: Operation) -> Pending[StoreReply]:
        """Begin a write under our controller epoch, without waiting."""
        return self.store.multi(*self._claim, *operations)

    @property
    def _claim(self) -> tuple[Check, ...]:
        """Part of every write: the store takes it only while nobody has a later controller epoch."""
        guarded = self.context.guards.controller_epoch_cas
        return (Check(CONTROLLER_EPOCH, self._epoch_version),) if guarded else ()

    def label(self, key: Key, action: str, state: PartitionState) -> Any:
        return state.label(f"{key[0]}-{key[1]}", action, self.context.broker_id)

    # -- what is known ---------------------------------------------------------------------------

    def _assume(self, wanted: dict[Key, PartitionState]) -> None:
        """Only without PersistBeforeSend: act on what the store has not taken."""
        for key, state in wanted.items():
            known = self.cluster.states[key]
            self.cluster.states[key] = replace(state, partition_epoch=known.partition_epoch)

    def learn(self, key: Key, state: PartitionState) -> bool:
        """A state that the store holds; False if a newer one is known. Wakes whoever waits for the partition."""
        known = self.cluster.states.get(key)
        if key not in self.cluster or (known is not None and known.partition_epoch > state.partition_epoch):
            return False
        if known != state:
            if known is None or known.leader != state.leader:
                self.context.meters.mark("LeaderElectionsPerSec")
            self.log(f"{key[0]}-{key[1]} leader {state.leader} epoch {state.leader_epoch} isr {list(state.isr)}")
        self.cluster.states[key] = state
        if key[0] not in self.cluster.deleting:
            online = state.leader in self.cluster.live(key)
            self.partitions.move(key, PartitionStatus.ONLINE if online else PartitionStatus.OFFLINE)
        for pending in self._awaited.pop(key, []):
            pending.resolve(None)
        return True

    def next_state(self, key: Key) -> Pending[None]:
        """Resolves when another state of the partition is learnt, or at the end of the term."""
        pending: Pending[None] = Pending()
        self._awaited.setdefault(key, []).append(pending)
        return pending

    # -- telling brokers -------------------------------------------------------------------------

    def open_channel(self, broker_id: int) -> None:
        epoch = self.cluster.brokers[broker_id].epoch

        def is_current() -> bool:
            known = self.cluster.brokers.get(broker_id)
            return not self.over and known is not None and known.epoch == epoch

        self._channels[broker_id] = Channel(self._peers, self._purgatory, broker_id, is_current)

    def close_channel(self, broker_id: int) -> None:
        self._channels.pop(broker_id, None)

    def announce(self, keys: list[Key], brokers: Iterable[int]) -> list[Pending[object]]:
        """LeaderAndIsr to who hosts them, then UpdateMetadata to all; resolves as each broker answers the latter."""
        brokers = list(brokers)
        self.send_leaders(keys, brokers)
        return self.send_metadata(keys, brokers)

    def send_leaders(self, keys: list[Key], brokers: Collection[int]) -> None:
        """Nothing of what is to be deleted, which would come back, and nothing to who leaves."""
        staying = [key for key in keys if key[0] not in self.cluster.deleting]
        for broker_id in brokers:
            hosted = [key for key in staying if broker_id in self.cluster.replicas(key)]
            if hosted and broker_id in self._channels and broker_id not in self.cluster.leaving:
                request = leader_and_isr(self.context.broker_id, self.epoch, broker_id, self.cluster, hosted)
                self.begin(self._hear, broker_id, self._channels[broker_id].send(*request))

    async def _hear(self, broker_id: int, answer: Pending[Any]) -> None:
        """Some replicas of a live broker may be offline (KIP-112)."""
        reply = await self.ask(answer)
        errors = reply.partition_errors if reply is not None else ()
        failed = [
            (each.topic_name, each.partition_index)
            for each in errors
            if each.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        ]
        if failed and self.on_disk_failure is not None:
            await self.on_disk_failure(broker_id, failed)

    def send_metadata(self, keys: list[Key], brokers: Iterable[int], *, deleted: bool = False) -> list[Pending[object]]:
        answers = []
        for broker_id in brokers:
            if broker_id in self._channels:
                request = update_metadata(
                    self.context.broker_id, self.epoch, broker_id, self.cluster, keys, deleted=deleted
                )
                answers.append(self._channels[broker_id].send(*request))
        return answers

    def send_stop(self, broker_id: int, keys: list[Key], *, delete: bool) -> Pending[Any]:
        """Resolves with the answer, or None when that broker's life ended first."""
        if broker_id not in self._channels:
            return resolved()
        request = stop_replica(self.context.broker_id, self.epoch, broker_id, self.cluster, keys, delete=delete)
        return self._channels[broker_id].send(*request)
