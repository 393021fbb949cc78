"""Abort transactions that exceed their timeout; remove unused transactional ids and producer states."""

from collections.abc import Callable, Coroutine
from typing import Any

from highwater.reference.context import Context
from highwater.reference.procedures import spawn
from highwater.reference.replication.purgatory import Purgatory
from highwater.reference.replication.replica_manager import ReplicaManager
from highwater.reference.transactions.coordinator import TransactionCoordinator
from highwater.reference.transactions.states import IDLE, TransactionState
from highwater.reference.transactions.store import TransactionStore


class Expiry:
    """The periodic tasks of the transaction coordinator; intervals and limits come from the broker config."""

    def __init__(
        self,
        context: Context,
        purgatory: Purgatory,
        replicas: ReplicaManager,
        store: TransactionStore,
        coordinator: TransactionCoordinator,
    ) -> None:
        self._context, self._purgatory, self._replicas = context, purgatory, replicas
        self._store, self._coordinator = store, coordinator

    def start(self) -> None:
        """Start the three periodic tasks."""
        config = self._context.config
        for interval_ms, check in (
            (config.transaction_abort_timed_out_transaction_cleanup_interval_ms, self.abort_timed_out),
            (config.transaction_remove_expired_transaction_cleanup_interval_ms, self.remove_transactional_ids),
            (config.producer_id_expiration_check_interval_ms, self.remove_producers),
        ):
            spawn(self._every(interval_ms, check))

    async def _every(self, interval_ms: int, check: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            await self._purgatory.sleep(interval_ms)
            spawn(check())

    async def abort_timed_out(self) -> None:
        """Fence and abort every transaction that is open for longer than its timeout."""
        now_ms = self._context.now.wall_ms
        for entry in list(self._store.entries.values()):
            current = entry.current
            is_open = current.state is TransactionState.ONGOING and entry.pending is None
            if is_open and current.started_ms + current.timeout_ms < now_ms:
                spawn(self._coordinator.abort_timed_out(entry))

    async def remove_transactional_ids(self) -> None:
        """Remove idle ids after `transactional.id.expiration.ms`."""
        oldest_ms = self._context.now.wall_ms - self._context.config.transactional_id_expiration_ms
        for entry in list(self._store.entries.values()):
            idle = entry.current.state in IDLE and entry.pending is None
            if idle and 0 <= entry.current.updated_ms <= oldest_ms:
                spawn(self._store.remove(entry))

    async def remove_producers(self) -> None:
        """Remove idle producers from partition logs after `producer.id.expiration.ms`."""
        oldest_ms = self._context.now.wall_ms - self._context.config.producer_id_expiration_ms
        for partition in self._replicas.partitions.values():
            partition.log.producers.expire(oldest_ms)
