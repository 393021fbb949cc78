"""Serve InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn as the coordinator of a transactional id.

A client that uses EndTxn 5 has transaction version 2: each EndTxn bumps the producer epoch, so that a delayed request
cannot affect a later transaction (KIP-890).  Up to EndTxn 4 it can end a later transaction (KAFKA-17754).
"""

from collections.abc import Iterable
from dataclasses import replace

from highwater.reference.context import Context, from_json, to_json
from highwater.reference.effects import Request
from highwater.reference.groups.store import OFFSETS_TOPIC, GroupStore
from highwater.reference.procedures import spawn, start_procedure
from highwater.reference.store.client import StoreClient
from highwater.reference.transactions.markers import MarkerSender
from highwater.reference.transactions.states import IDLE, PREPARED, TransactionState
from highwater.reference.transactions.store import Entry, TransactionStore
from highwater.reference.transactions.transaction import (
    EPOCH_BUMP_VERSION,
    NO_EPOCH,
    NO_PRODUCER_ID,
    TopicPartition,
    Transaction,
)
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

# --------------------------------------------------------------------------------------------------
# Allocate producer ids that are unique in the cluster: each broker reserves blocks of them in the metadata store.


PRODUCER_IDS = "/latest_producer_id_block"
PRODUCER_ID_BLOCK = 1_000


class ProducerIds:
    """The block of producer ids that this broker has reserved (Apache Kafka: ProducerIdManager)."""

    def __init__(self, store: StoreClient) -> None:
        self._store = store
        self._block = range(0)

    async def take(self) -> int | None:
        """Return an unused producer id, or None if the metadata store is not available."""
        while not self._block:
            block = await self._next_block()
            if block is None:
                return None
            self._block = block
        producer_id, self._block = self._block[0], self._block[1:]
        return producer_id

    async def _next_block(self) -> range | None:
        while True:
            stored = await self._store.get(PRODUCER_IDS)
            if stored.error or stored.stat is None:
                return None
            start = int(from_json(stored.data))
            end = to_json(start + PRODUCER_ID_BLOCK)
            reply = await self._store.set(PRODUCER_IDS, end, stored.stat.version)
            if not reply.error:
                return range(start, start + PRODUCER_ID_BLOCK)
            if reply.error != "BadVersion":
                return None


PRODUCER_FENCED_SINCE = {22: 4, 24: 2, 25: 2, 26: 2}
"""By API key: older versions know INVALID_PRODUCER_EPOCH only (KIP-588)."""
END_TXN_BUMPS_SINCE = 5
CLASSIC_VERSION = 0


class RefusedTransactionError(Exception):
    """The coordinator rejects the request with `error`."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


def error_for_version(error: ErrorCode, key: int, version: int) -> ErrorCode:
    """Return the error code that a client of this version understands for this API key."""
    if error is ErrorCode.PRODUCER_FENCED and version < PRODUCER_FENCED_SINCE[key]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


class TransactionCoordinator:
    """The coordinator of the transactional ids in `store` (Apache Kafka: TransactionCoordinator)."""

    def __init__(
        self,
        context: Context,
        store: TransactionStore,
        groups: GroupStore,
        producer_ids: ProducerIds,
        sender: MarkerSender,
    ) -> None:
        self._context, self._store, self._guards = context, store, context.guards
        self._groups, self._producer_ids, self._sender = groups, producer_ids, sender

    # -- InitProducerId ----------------------------------------------------------------------------

    async def init_producer_id(self, request: Request) -> InitProducerIdResponse:
        """Return a new producer id for an idempotent producer, or the next epoch of a transactional one."""
        body: InitProducerIdRequest = request.body
        try:
            if (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_EPOCH):
                raise RefusedTransactionError(ErrorCode.INVALID_REQUEST)  # a producer sends both or neither (KIP-360)
            if body.transactional_id is None:
                return InitProducerIdResponse(producer_id=await self._new_producer_id(), producer_epoch=0)
            transaction = await self._initialise(body.transactional_id, body)
        except RefusedTransactionError as rejection:
            error = error_for_version(rejection.error, 22, request.api_version)
            return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
        return InitProducerIdResponse(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch)

    async def _new_producer_id(self) -> int:
        producer_id = await self._producer_ids.take()
        if producer_id is None:
            raise RefusedTransactionError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return producer_id

    async def _initialise(self, transactional_id: str, body: InitProducerIdRequest) -> Transaction:
        _raise_on_error(self._store.check(transactional_id))
        if not 0 < body.transaction_timeout_ms <= self._context.config.transaction_max_timeout_ms:
            raise RefusedTransactionError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        if transactional_id not in self._store.entries:
            max_epoch = self._context.config.producer_epoch_max
            first = Transaction(transactional_id, await self._new_producer_id(), max_epoch=max_epoch)
            _raise_on_error(self._store.check(transactional_id))  # the partition may have a new leader by now
            self._store.entries.setdefault(transactional_id, Entry(first))
        entry = self._store.entries[transactional_id]
        if entry.pending is not None or self._awaits_markers(entry, waits=self._guards.init_awaits_markers):
            raise RefusedTransactionError(ErrorCode.CONCURRENT_TRANSACTIONS)
        current = entry.current
        if not current.may_continue(body.producer_id, body.producer_epoch):
            raise RefusedTransactionError(ErrorCode.PRODUCER_FENCED)
        if current.state is TransactionState.ONGOING and self._guards.init_aborts_open:
            spawn(self.abort_fenced(entry))
            raise RefusedTransactionError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return await self._next_epoch(entry, body)

    async def _next_epoch(self, entry: Entry, body: InitProducerIdRequest) -> Transaction:
        current, now_ms, timeout_ms = entry.current, self._context.now.wall_ms, body.transaction_timeout_ms
        if current.state is TransactionState.ONGOING:  # InitAbortsOpen is off: the next instance continues it
            next_state = replace(current, producer_epoch=current.producer_epoch + 1)
        elif self._is_exhausted(current) and not current.repeats_init(body.producer_epoch):
            producer_id = await self._next_producer_id(entry, TransactionState.EMPTY)
            next_state = current.rotated(producer_id, timeout_ms, body.producer_epoch, now_ms)
        else:
            bumps = self._guards.init_bumps_epoch
            next_state = current.initialised(timeout_ms, body.producer_epoch, now_ms, bumps=bumps)
        _raise_on_error(await self._store.write_transition(entry, next_state))
        return next_state

    def _is_exhausted(self, current: Transaction) -> bool:
        return self._guards.new_id_when_exhausted and current.epoch_exhausted

    async def _next_producer_id(self, entry: Entry, target: TransactionState) -> int:
        """Return the id that replaces an exhausted one; no other transition begins meanwhile."""
        entry.pending = target
        producer_id = await self._producer_ids.take()
        entry.pending = None
        if producer_id is None or not self._store.owns(entry):
            raise RefusedTransactionError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return producer_id

    # -- AddPartitionsToTxn and AddOffsetsToTxn ----------------------------------------------------

    async def add(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Iterable[TopicPartition], version: int
    ) -> ErrorCode:
        """Add partitions to the transaction, or begin one with them.

        `version` is the client's transaction version.
        """
        error = self._check_producer(transactional_id, producer_id, epoch)
        if error is not ErrorCode.NONE:
            return error
        entry = self._store.entries[transactional_id]
        if entry.pending is not None or self._awaits_markers(entry, waits=self._guards.add_awaits_markers):
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if entry.current.state is TransactionState.ONGOING and entry.current.partitions.issuperset(partitions):
            return ErrorCode.NONE
        next_state = entry.current.with_partitions(partitions, version, self._context.now.wall_ms)
        return await self._store.write_transition(entry, next_state)

    def _awaits_markers(self, entry: Entry, *, waits: bool) -> bool:
        """Return whether the last transaction has ended and lacks a marker; without `waits` it counts as complete."""
        if entry.current.state in PREPARED and not waits:
            entry.current = entry.current.completed(self._context.now.wall_ms)
        return entry.current.state in PREPARED

    def verify(
        self, transactional_id: str, producer_id: int, epoch: int
    ) -> tuple[ErrorCode, frozenset[TopicPartition]]:
        """Return the partitions of the open transaction: a leader checks them before it appends (KIP-890)."""
        error = self._check_producer(transactional_id, producer_id, epoch)
        if error is not ErrorCode.NONE:
            return error, frozenset()
        entry = self._store.entries[transactional_id]
        if entry.current.state in PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS, frozenset()
        return ErrorCode.NONE, entry.current.partitions

    def _check_producer(self, transactional_id: str, producer_id: int, epoch: int) -> ErrorCode:
        error = self._store.check(transactional_id)
        entry = self._store.entries.get(transactional_id)
        if error is not ErrorCode.NONE:
            return error
        if entry is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if entry.current.has_promised(producer_id):
            return ErrorCode.CONCURRENT_TRANSACTIONS  # EndTxn has returned this id, and markers are missing
        if entry.current.producer_id != producer_id and self._guards.fence_old_producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        is_current = entry.current.producer_epoch == epoch or not self._guards.fence_stale_add
        return ErrorCode.NONE if is_current else ErrorCode.PRODUCER_FENCED

    async def add_offsets(self, request: Request) -> AddOffsetsToTxnResponse:
        """Add the group's partition of `__consumer_offsets` to the transaction; TxnOffsetCommit checks the group id."""
        body: AddOffsetsToTxnRequest = request.body
        partition = (OFFSETS_TOPIC, self._groups.partition_for(body.group_id))
        error = await self.add(
            body.transactional_id, body.producer_id, body.producer_epoch, [partition], CLASSIC_VERSION
        )
        return AddOffsetsToTxnResponse(error_code=error_for_version(error, 25, request.api_version))

    # -- EndTxn ------------------------------------------------------------------------------------

    async def end_txn(self, request: Request) -> EndTxnResponse:
        """End the transaction; respond when the outcome is committed, before the markers are written."""
        body: EndTxnRequest = request.body
        bumps = request.api_version >= END_TXN_BUMPS_SINCE
        try:
            _raise_on_error(self._store.check(body.transactional_id))
            entry = self._store.entries.get(body.transactional_id)
            if entry is None:
                raise RefusedTransactionError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            if bumps:
                producer_id, epoch = await self._end_and_bump(entry, body)
                return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)
            await self._end_classic(entry, body)
            return EndTxnResponse()
        except RefusedTransactionError as rejection:
            return EndTxnResponse(error_code=error_for_version(rejection.error, 26, request.api_version))

    async def _end_classic(self, entry: Entry, body: EndTxnRequest) -> None:
        """End an ongoing transaction; a repeated request gets the same response as the first one."""
        current = entry.current
        if current.producer_id != body.producer_id and self._guards.fence_old_producer_id:
            raise RefusedTransactionError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if current.producer_epoch != body.producer_epoch and self._guards.fence_stale_end_txn:
            raise RefusedTransactionError(ErrorCode.PRODUCER_FENCED)
        if entry.pending is not None:
            raise RefusedTransactionError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if current.state is not TransactionState.ONGOING:
            _raise_on_error(_repeated_end_error(current.state, commit=body.committed))
            return
        await self._prepare(entry, commit=body.committed, client_version=CLASSIC_VERSION)

    async def _end_and_bump(self, entry: Entry, body: EndTxnRequest) -> tuple[int, int]:
        """End the transaction and return the next producer id and epoch.

        The current epoch ends the open transaction; the epoch before it marks a repeated request (KIP-890).
        """
        current = entry.current
        repeated = current.is_repeated_end(
            body.producer_id, body.producer_epoch, knows_previous_id=self._guards.answer_previous_id
        )
        if current.state is TransactionState.ONGOING and not self._guards.fence_stale_end_txn:
            repeated = False  # it ends the open transaction
        if current.has_promised(body.producer_id):
            raise RefusedTransactionError(ErrorCode.CONCURRENT_TRANSACTIONS)  # as in `_check_producer`
        if current.producer_id != body.producer_id and not repeated and self._guards.fence_old_producer_id:
            raise RefusedTransactionError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        is_stale = current.producer_epoch != body.producer_epoch
        if is_stale and not repeated and self._guards.fence_stale_end_txn:
            raise RefusedTransactionError(ErrorCode.PRODUCER_FENCED)
        if entry.pending is not None:
            raise RefusedTransactionError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if repeated:
            if current.state is TransactionState.ONGOING:
                raise RefusedTransactionError(ErrorCode.PRODUCER_FENCED)  # the next one is open
            _raise_on_error(_repeated_end_error(current.state, commit=body.committed))
            return current.producer_id, current.producer_epoch
        if current.state in PREPARED:
            raise RefusedTransactionError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if current.state in IDLE and body.committed:
            raise RefusedTransactionError(ErrorCode.INVALID_TXN_STATE)
        prepared = await self._prepare(entry, commit=body.committed, client_version=EPOCH_BUMP_VERSION)
        return prepared.next_identity

    async def _prepare(self, entry: Entry, *, commit: bool, client_version: int) -> Transaction:
        """Write the outcome to the log; once it is committed, it is also final for the next coordinator."""
        next_producer_id = NO_PRODUCER_ID
        if client_version >= EPOCH_BUMP_VERSION and self._is_exhausted(entry.current):
            target = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
            next_producer_id = await self._next_producer_id(entry, target)
        prepared = entry.current.prepared(
            commit=commit,
            client_version=client_version,
            next_producer_id=next_producer_id,
            now_ms=self._context.now.wall_ms,
        )
        _raise_on_error(await self._decide(entry, prepared))
        spawn(self._complete(entry))
        return prepared

    async def _decide(self, entry: Entry, prepared: Transaction) -> ErrorCode:
        """Write the outcome to the log, before any marker is sent; return NONE once it is final."""
        if prepared.next_producer_id != NO_PRODUCER_ID and not self._guards.markers_keep_old_id:
            prepared = replace(
                prepared, producer_id=prepared.next_producer_id, producer_epoch=0, next_producer_id=NO_PRODUCER_ID
            )
        error = ErrorCode.NONE
        if self._guards.persist_decision:
            kept = prepared if self._guards.persist_next_id else replace(prepared, next_producer_id=NO_PRODUCER_ID)
            error = await self._store.write_transition(entry, kept)
        if error is ErrorCode.NONE:
            entry.current = prepared
        return error

    async def abort_timed_out(self, entry: Entry) -> None:
        """Abort the open transaction, which exceeds its timeout, and fence its producer (KIP-98)."""
        await self.abort_fenced(entry, fences=self._guards.timeout_fences)

    async def abort_fenced(self, entry: Entry, *, fences: bool = True) -> None:
        """Bump the epoch and abort the open transaction, so that the old producer is fenced (KIP-98).

        At the last epoch the next transaction gets a new producer id, as after EndTxn: the largest epoch is not enough
        to tell the fenced producer, whose EndTxn is answered as a repeated one, from the next transaction.
        """
        next_producer_id, client_version = NO_PRODUCER_ID, entry.current.client_version
        replaces_id = client_version >= EPOCH_BUMP_VERSION and self._guards.new_id_after_fence
        if replaces_id and self._is_exhausted(entry.current):
            try:
                next_producer_id = await self._next_producer_id(entry, TransactionState.PREPARE_ABORT)
            except RefusedTransactionError:
                return  # the next check of timeouts, or InitProducerId, tries again
        now_ms = self._context.now.wall_ms
        current = entry.current.fenced(now_ms) if fences else entry.current
        prepared = current.prepared(
            commit=False, client_version=client_version, next_producer_id=next_producer_id, now_ms=now_ms
        )
        if await self._decide(entry, prepared) is ErrorCode.NONE:
            await self._complete(entry)

    def resume(self, entries: list[Entry]) -> None:
        """Write the markers of prepared transactions after this broker became their coordinator."""
        for entry in entries:
            if entry.current.state in PREPARED and self._guards.resume_prepared:
                spawn(self._complete(entry))

    async def _complete(self, entry: Entry) -> None:
        """Send every marker, then write the complete state; stop if another broker became the coordinator."""
        prepared = entry.current
        epoch = self._store.coordinator_epoch(prepared.transactional_id)
        if not self._guards.complete_awaits_markers:
            start_procedure(self._sender.send, prepared, epoch, lambda: self._store.owns(entry))
        elif not await self._sender.send(prepared, epoch, lambda: self._store.owns(entry)):
            return
        while self._store.owns(entry) and entry.current is prepared:
            completed = prepared.completed(self._context.now.wall_ms)
            if await self._store.write_transition(entry, completed) is ErrorCode.NONE:
                return
            await self._sender.pause()


def _raise_on_error(error: ErrorCode) -> None:
    if error is not ErrorCode.NONE:
        raise RefusedTransactionError(error)


def _repeated_end_error(state: TransactionState, *, commit: bool) -> ErrorCode:
    """Return the error for EndTxn without an open transaction: NONE if the last one had the same outcome."""
    complete = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    prepared = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    if state is complete:
        return ErrorCode.NONE
    return ErrorCode.CONCURRENT_TRANSACTIONS if state is prepared else ErrorCode.INVALID_TXN_STATE
