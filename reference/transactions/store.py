"""Load and write the transactions in the partitions of `__transaction_state` that this broker leads."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from highwater.reference.context import Context
from highwater.reference.coordinated import Coordinated
from highwater.reference.groups.store import READ_BYTES, WRITE_ERROR_MAPPING, WRITE_TIMEOUT_MS, java_hash
from highwater.reference.metadata_cache import MetadataCache
from highwater.reference.replication.partition import Partition, Role
from highwater.reference.storage.log import Log
from highwater.reference.transactions.records import pack_key, pack_value, unpack_key, unpack_value
from highwater.reference.transactions.states import TABLE, TransactionState
from highwater.reference.transactions.tracing import LOADED, trace_transition
from highwater.reference.transactions.transaction import Transaction
from highwater.reference.wire.errors import DecodeError, ErrorCode
from highwater.reference.wire.records import batch_headers, build_batch

TRANSACTION_TOPIC = "__transaction_state"


@dataclass(slots=True)
class Entry:
    """A transaction: `current` as it is in the log, `pending` the target of a transition that is not committed yet."""

    current: Transaction
    pending: TransactionState | None = None


class TransactionStore:
    """The transactions that this broker coordinates (Apache Kafka: TransactionStateManager).

    `on_loaded` is called with the transactions of a partition when this broker becomes its leader.
    """

    def __init__(self, context: Context, cache: MetadataCache) -> None:
        self._context, self._cache = context, cache
        self.entries: dict[str, Entry] = {}
        self._owned: dict[int, Partition] = {}
        self.coordinated = Coordinated(context.broker_id, cache, TRANSACTION_TOPIC, self._owned)
        self.on_loaded: Callable[[list[Entry]], None] = lambda entries: None

    def partition_for(self, transactional_id: str) -> int:
        """Return the partition of `__transaction_state` that stores this transactional id."""
        topic = self._cache.topics.get(TRANSACTION_TOPIC)
        count = len(topic.partitions) if topic else self._context.config.transaction_state_log_num_partitions
        return java_hash(transactional_id) % count

    def check(self, transactional_id: str) -> ErrorCode:
        """Return NONE if the transactional id is valid and this broker is its coordinator and has loaded it."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        return self.coordinated.error(self.partition_for(transactional_id))

    def coordinator_epoch(self, transactional_id: str) -> int:
        """Return the leader epoch of the partition, or -1; leaders reject markers with an older one."""
        partition = self._owned.get(self.partition_for(transactional_id))
        return -1 if partition is None else partition.leader_epoch

    def owns(self, entry: Entry) -> bool:
        """Return whether the entry is still current: false after the partition was unloaded or reloaded."""
        return self.entries.get(entry.current.transactional_id) is entry

    # -- loading ---------------------------------------------------------------------------------

    def role_changed(self, partition: Partition) -> None:
        """Load the partition if its local replica became leader; otherwise unload it."""
        if partition.topic != TRANSACTION_TOPIC:
            return
        self._owned.pop(partition.partition, None)
        for transactional_id in list(self.entries):
            if self.partition_for(transactional_id) == partition.partition:
                del self.entries[transactional_id]
        if partition.role is Role.LEADER:
            self._load(partition)

    def _load(self, partition: Partition) -> None:
        """Own the partition once all of it is loaded; data that cannot be decoded takes it offline instead."""
        loaded: dict[str, Entry] = {}
        with partition.storage():
            _replay_log(partition.log, loaded)
        if partition.offline:
            return
        self._owned[partition.partition] = partition
        self.entries.update(loaded)
        for entry in loaded.values():
            entry.current = replace(entry.current, max_epoch=self._context.config.producer_epoch_max)
            trace_transition(self._context, entry.current, LOADED)
        self.on_loaded(list(loaded.values()))

    # -- writing ---------------------------------------------------------------------------------

    async def write_transition(self, entry: Entry, next_state: Transaction) -> ErrorCode:
        """Write one transition and apply it when it is committed; until then no other transition may begin."""
        TABLE.check(entry.current.state, next_state.state)
        entry.pending = next_state.state
        error = await self._write(next_state.transactional_id, pack_value(next_state))
        if not self.owns(entry):
            return ErrorCode.NOT_COORDINATOR
        entry.pending = None
        if error is ErrorCode.NONE:
            entry.current = next_state
            trace_transition(self._context, next_state)
        return error

    async def remove(self, entry: Entry) -> None:
        """Delete an expired transactional id by writing a tombstone."""
        TABLE.check(entry.current.state, TransactionState.DEAD)
        entry.pending = TransactionState.DEAD
        error = await self._write(entry.current.transactional_id, None)
        if self.owns(entry):
            entry.pending = None
            if error is ErrorCode.NONE:
                del self.entries[entry.current.transactional_id]

    async def _write(self, transactional_id: str, value: bytes | None) -> ErrorCode:
        partition = self._owned.get(self.partition_for(transactional_id))
        if partition is None or partition.role is not Role.LEADER:
            return ErrorCode.NOT_COORDINATOR
        if not partition.has_min_isr(partition.isr):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        batch = build_batch([(self._context.now.wall_ms, pack_key(transactional_id), value, ())])
        ((_, header),) = batch_headers(batch)
        partition.append(batch, header)
        error = await partition.committed(partition.log.log_end_offset, WRITE_TIMEOUT_MS)
        return WRITE_ERROR_MAPPING.get(error, error)


def _replay_log(log: Log, entries: dict[str, Entry]) -> None:
    """Apply all records of a log. Raises DamagedDataError for one that cannot be decoded."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, READ_BYTES, log.log_end_offset, at_least_one=True)
        for position, header in batch_headers(data):
            for record in log.decode(data, position)[1]:
                try:
                    _replay(entries, record.key, record.value)
                except DecodeError as error:
                    raise log.damaged(record.offset, error) from error
            offset = header.next_offset


def _replay(entries: dict[str, Entry], key: bytes | None, value: bytes | None) -> None:
    """Apply one record: the last record of an id wins, and a null value deletes it."""
    transactional_id = unpack_key(key or b"")
    if transactional_id is None:
        return
    if value is None:
        entries.pop(transactional_id, None)
    else:
        entries[transactional_id] = Entry(unpack_value(transactional_id, value))
