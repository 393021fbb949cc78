"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn, as the coordinator of a transactional id.

A client that speaks EndTxn 5 works under transaction version 2: each end bumps the epoch, so that what is still on
its way belongs to no later transaction (KIP-890).  Up to EndTxn 4 a delayed request can end another (KAFKA-17754).
"""

from collections.abc import Iterable

from reference.context import Context
from reference.events import Request
from reference.groups.store import OFFSETS_TOPIC, GroupStore
from reference.procedures import spawn
from reference.transactions.markers import MarkerSender
from reference.transactions.producer_ids import ProducerIds
from reference.transactions.states import IDLE, PREPARED, TransactionState
from reference.transactions.store import Entry, TransactionStore
from reference.transactions.transaction import (
    EPOCH_BUMP_VERSION,
    NO_EPOCH,
    NO_PRODUCER_ID,
    TopicPartition,
    Transaction,
)
from reference.wire.errors import ErrorCode
from reference.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from reference.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from reference.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

PRODUCER_FENCED_SINCE = {22: 4, 24: 2, 25: 2, 26: 2}
"""By key: before that version a client knows INVALID_PRODUCER_EPOCH only (KIP-588)."""
END_TXN_BUMPS_SINCE = 5
CLASSIC_VERSION = 0


class RefusedTransactionError(Exception):
    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


def told(error: ErrorCode, key: int, version: int) -> ErrorCode:
    """The error as a client of this version knows it."""
    if error is ErrorCode.PRODUCER_FENCED and version < PRODUCER_FENCED_SINCE[key]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


class TransactionCoordinator:
    def __init__(
        self,
        context: Context,
        store: TransactionStore,
        groups: GroupStore,
        producer_ids: ProducerIds,
        sender: MarkerSender,
    ) -> None:
        self._context, self._store = context, store
        self._groups, self._producer_ids, self._sender = groups, producer_ids, sender

    # -- InitProducerId ----------------------------------------------------------------------------

    async def init_producer_id(self, request: Request) -> InitProducerIdResponse:
        """An id of its own for an idempotent producer; the next epoch of its id for a transactional one."""
        body: InitProducerIdRequest = request.body
        try:
            if (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_EPOCH):
                raise RefusedTransactionError(ErrorCode.INVALID_REQUEST)  # a producer goes by both (KIP-360)
            if body.transactional_id is None:
                return InitProducerIdResponse(producer_id=await self._new_producer_id(), producer_epoch=0)
            found = await self._initialise(body.transactional_id, body)
        except RefusedTransactionError as refused:
            error = told(refused.error, 22, request.api_version)
            return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
        return InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=found.producer_epoch)

    async def _new_producer_id(self) -> int:
        producer_id = await self._producer_ids.take()
        if producer_id is None:
            raise RefusedTransactionError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return producer_id

    async def _initialise(self, transactional_id: str, body: InitProducerIdRequest) -> Transaction:
        _raise(self._store.check(transactional_id))
        if not 0 < body.transaction_timeout_ms <= self._context.config.transaction_max_timeout_ms:
            raise RefusedTransactionError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        if transactional_id not in self._store.entries:
            first = Transaction(transactional_id, await self._new_producer_id())
            _raise(self._store.check(transactional_id))  # we may have been replaced meanwhile
            self._store.entries.setdefault(transactional_id, Entry(first))
        entry = self._store.entries[transactional_id]
        current = entry.current
        if entry.pending is not None or current.state in PREPARED:
            raise RefusedTransactionError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if not current.is_of(body.producer_id, body.producer_epoch):
            raise RefusedTransactionError(ErrorCode.PRODUCER_FENCED)
        if current.state is TransactionState.ONGOING:
            spawn(self.abort_fenced(entry))
            raise RefusedTransactionError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return await self._next_epoch(entry, body)

    async def _next_epoch(self, entry: Entry, body: InitProducerIdRequest) -> Transaction:
        current, now_ms, timeout_ms = entry.current, self._context.now.wall_ms, body.transaction_timeout_ms
        if current.epoch_exhausted:
            entry.pending = TransactionState.EMPTY
            producer_id = await self._producer_ids.take()
            entry.pending = None
            if producer_id is None or not self._store.holds(entry):
                raise RefusedTransactionError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            following = current.rotated(producer_id, timeout_ms, body.producer_epoch, now_ms)
        else:
            following = current.initialised(timeout_ms, body.producer_epoch, now_ms)
        _raise(await self._store.move(entry, following))
        return following

    # -- adding ------------------------------------------------------------------------------------

    async def add(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Iterable[TopicPartition], version: int
    ) -> ErrorCode:
        """Take partitions into the transaction, which begins with the first; `version` is the client's."""
        error = self._check_producer(transactional_id, producer_id, epoch)
        if error is not ErrorCode.NONE:
            return error
        entry = self._store.entries[transactional_id]
        if entry.pending is not None or entry.current.state in PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if entry.current.state is TransactionState.ONGOING and entry.current.partitions.issuperset(partitions):
            return ErrorCode.NONE
        following = entry.current.with_partitions(partitions, version, self._context.now.wall_ms)
        return await self._store.move(entry, following)

    def verify(
        self, transactional_id: str, producer_id: int, epoch: int
    ) -> tuple[ErrorCode, frozenset[TopicPartition]]:
        """Which partitions are in the transaction: a leader asks before it appends (KIP-890)."""
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
        if entry is None or entry.current.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if entry.current.producer_epoch == epoch else ErrorCode.PRODUCER_FENCED

    async def add_offsets(self, request: Request) -> AddOffsetsToTxnResponse:
        """The group's partition of `__consumer_offsets` joins the transaction."""
        body: AddOffsetsToTxnRequest = request.body
        error = ErrorCode.NONE if body.group_id else ErrorCode.INVALID_GROUP_ID
        if error is ErrorCode.NONE:
            partition = (OFFSETS_TOPIC, self._groups.partition_for(body.group_id))
            error = await self.add(
                body.transactional_id, body.producer_id, body.producer_epoch, [partition], CLASSIC_VERSION
            )
        return AddOffsetsToTxnResponse(error_code=told(error, 25, request.api_version))

    # -- the end -----------------------------------------------------------------------------------

    async def end_txn(self, request: Request) -> EndTxnResponse:
        """Answered once the outcome is in the log; the markers follow."""
        body: EndTxnRequest = request.body
        bumps = request.api_version >= END_TXN_BUMPS_SINCE
        try:
            _raise(self._store.check(body.transactional_id))
            entry = self._store.entries.get(body.transactional_id)
            if entry is None:
                raise RefusedTransactionError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            if bumps:
                producer_id, epoch = await self._end_and_bump(entry, body)
                return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)
            await self._end_classic(entry, body)
            return EndTxnResponse()
        except RefusedTransactionError as refused:
            return EndTxnResponse(error_code=told(refused.error, 26, request.api_version))

    async def _end_classic(self, entry: Entry, body: EndTxnRequest) -> None:
        """By state: an ongoing transaction ends, a repeated request gets the answer of the first."""
        current = entry.current
        if current.producer_id != body.producer_id:
            raise RefusedTransactionError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if current.producer_epoch != body.producer_epoch:
            raise RefusedTransactionError(ErrorCode.PRODUCER_FENCED)
        if entry.pending is not None:
            raise RefusedTransactionError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if current.state is not TransactionState.ONGOING:
            _raise(_answer_of_repeated(current.state, commit=body.committed))
            return
        await self._prepare(entry, commit=body.committed, client_version=CLASSIC_VERSION)

    async def _end_and_bump(self, entry: Entry, body: EndTxnRequest) -> tuple[int, int]:
        """A request with the epoch before the current is a repeated one; with the current, it ends what is open now."""
        current = entry.current
        repeated = current.ended_by(body.producer_id, body.producer_epoch)
        if current.producer_id != body.producer_id and not repeated:
            raise RefusedTransactionError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if not repeated and current.producer_epoch != body.producer_epoch:
            raise RefusedTransactionError(ErrorCode.PRODUCER_FENCED)
        if entry.pending is not None:
            raise RefusedTransactionError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if repeated:
            if current.state is TransactionState.ONGOING:
                raise RefusedTransactionError(ErrorCode.PRODUCER_FENCED)  # the next transaction: hands off
            _raise(_answer_of_repeated(current.state, commit=body.committed))
            return current.producer_id, current.producer_epoch
        if current.state in PREPARED:
            raise RefusedTransactionError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if current.state in IDLE and body.committed:
            raise RefusedTransactionError(ErrorCode.INVALID_TXN_STATE)
        prepared = await self._prepare(entry, commit=body.committed, client_version=EPOCH_BUMP_VERSION)
        return prepared.identity_after

    async def _prepare(self, entry: Entry, *, commit: bool, client_version: int) -> Transaction:
        """Write the outcome. From here on it stands, also for the coordinator that comes after us."""
        current, next_producer_id = entry.current, NO_PRODUCER_ID
        if client_version >= EPOCH_BUMP_VERSION and current.epoch_exhausted:
            entry.pending = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
            taken = await self._producer_ids.take()
            entry.pending = None
            if taken is None or not self._store.holds(entry):
                raise RefusedTransactionError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            next_producer_id = taken
        prepared = current.prepared(
            commit=commit,
            client_version=client_version,
            next_producer_id=next_producer_id,
            now_ms=self._context.now.wall_ms,
        )
        _raise(await self._store.move(entry, prepared))
        spawn(self._complete(entry))
        return prepared

    async def abort_fenced(self, entry: Entry) -> None:
        """Abort what a producer left open, with an epoch that it has not got (KIP-98)."""
        now_ms = self._context.now.wall_ms
        prepared = entry.current.fenced(now_ms).prepared(
            commit=False,
            client_version=entry.current.client_version,
            next_producer_id=NO_PRODUCER_ID,
            now_ms=now_ms,
        )
        if await self._store.move(entry, prepared) is ErrorCode.NONE:
            await self._complete(entry)

    def resume(self, entries: list[Entry]) -> None:
        """This broker has just become the coordinator of these: what was decided gets its markers."""
        for entry in entries:
            if entry.current.state in PREPARED:
                spawn(self._complete(entry))

    async def _complete(self, entry: Entry) -> None:
        """Markers to every partition, then the state says so; another coordinator does it if we are replaced."""
        prepared = entry.current
        epoch = self._store.coordinator_epoch(prepared.transactional_id)
        if not await self._sender.send(prepared, epoch, lambda: self._store.holds(entry)):
            return
        while self._store.holds(entry) and entry.current is prepared:
            if await self._store.move(entry, prepared.completed(self._context.now.wall_ms)) is ErrorCode.NONE:
                return
            await self._sender.pause()


def _raise(error: ErrorCode) -> None:
    if error is not ErrorCode.NONE:
        raise RefusedTransactionError(error)


def _answer_of_repeated(state: TransactionState, *, commit: bool) -> ErrorCode:
    """EndTxn when nothing is open: did the last transaction end that way?"""
    complete = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    under_way = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    if state is complete:
        return ErrorCode.NONE
    return ErrorCode.CONCURRENT_TRANSACTIONS if state is under_way else ErrorCode.INVALID_TXN_STATE
