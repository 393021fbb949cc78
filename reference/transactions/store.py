"""Transactions of the partitions of `__transaction_state` that this broker leads: loaded, kept, written."""

from collections.abc import Callable
from dataclasses import dataclass

from reference.context import Context
from reference.groups.store import ERROR_OF_WRITE, READ_BYTES, WRITE_TIMEOUT_MS, java_hash
from reference.metadata_cache import MetadataCache
from reference.replication.partition import Partition, Role
from reference.transactions.records import pack_key, pack_value, unpack_key, unpack_value
from reference.transactions.states import TABLE, TransactionState
from reference.transactions.transaction import Transaction
from reference.wire.errors import ErrorCode
from reference.wire.records import batch_headers, build_batch, decode_records

TRANSACTION_TOPIC = "__transaction_state"


@dataclass(slots=True)
class Entry:
    """`current` is what the log holds, `pending` the state that a transition under way leads to."""

    current: Transaction
    pending: TransactionState | None = None


class TransactionStore:
    def __init__(self, context: Context, cache: MetadataCache) -> None:
        self._context, self._cache = context, cache
        self.entries: dict[str, Entry] = {}
        self._owned: dict[int, Partition] = {}
        self.on_loaded: Callable[[list[Entry]], None] = lambda entries: None

    def partition_for(self, transactional_id: str) -> int:
        topic = self._cache.topics.get(TRANSACTION_TOPIC)
        count = len(topic.partitions) if topic else self._context.config.transaction_state_log_num_partitions
        return java_hash(transactional_id) % count

    def check(self, transactional_id: str) -> ErrorCode:
        """Is this broker the coordinator of a transactional id that may exist?"""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE if self.partition_for(transactional_id) in self._owned else ErrorCode.NOT_COORDINATOR

    def coordinator_epoch(self, transactional_id: str) -> int:
        """The leader epoch of the partition: markers carry it, and those of a replaced coordinator are refused."""
        partition = self._owned.get(self.partition_for(transactional_id))
        return -1 if partition is None else partition.leader_epoch

    def holds(self, entry: Entry) -> bool:
        """Is this broker still the coordinator, under the same leader epoch, of what it began to work on?"""
        return self.entries.get(entry.current.transactional_id) is entry

    # -- loading ---------------------------------------------------------------------------------

    def role_changed(self, partition: Partition) -> None:
        """A replica of `__transaction_state` became leader, or no longer is."""
        if partition.topic != TRANSACTION_TOPIC:
            return
        self._owned.pop(partition.partition, None)
        for transactional_id in list(self.entries):
            if self.partition_for(transactional_id) == partition.partition:
                del self.entries[transactional_id]
        if partition.role is Role.LEADER:
            self._load(partition)

    def _load(self, partition: Partition) -> None:
        loaded: dict[str, Entry] = {}
        offset = partition.log.log_start_offset
        while offset < partition.log.log_end_offset:
            data = partition.log.read(offset, READ_BYTES, partition.log.log_end_offset, at_least_one=True)
            for position, header in batch_headers(data):
                for record in decode_records(data, position)[1]:
                    _replay(loaded, record.key, record.value)
                offset = header.next_offset
        self._owned[partition.partition] = partition
        self.entries.update(loaded)
        self.on_loaded(list(loaded.values()))

    # -- writing ---------------------------------------------------------------------------------

    async def move(self, entry: Entry, following: Transaction) -> ErrorCode:
        """Take one transition: it counts when it is committed, and until then no other may begin."""
        TABLE.check(entry.current.state, following.state)
        entry.pending = following.state
        error = await self._write(following.transactional_id, pack_value(following))
        if not self.holds(entry):
            return ErrorCode.NOT_COORDINATOR
        entry.pending = None
        if error is ErrorCode.NONE:
            entry.current = following
        return error

    async def forget(self, entry: Entry) -> None:
        """An expired id goes, with a tombstone."""
        TABLE.check(entry.current.state, TransactionState.DEAD)
        entry.pending = TransactionState.DEAD
        error = await self._write(entry.current.transactional_id, None)
        if self.holds(entry):
            entry.pending = None
            if error is ErrorCode.NONE:
                del self.entries[entry.current.transactional_id]

    async def _write(self, transactional_id: str, value: bytes | None) -> ErrorCode:
        partition = self._owned.get(self.partition_for(transactional_id))
        if partition is None or partition.role is not Role.LEADER:
            return ErrorCode.NOT_COORDINATOR
        if not partition.has_enough(partition.isr):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        batch = build_batch([(self._context.now.wall_ms, pack_key(transactional_id), value, ())])
        ((_, header),) = batch_headers(batch)
        partition.append(batch, header)
        error = await partition.committed(partition.log.log_end_offset, WRITE_TIMEOUT_MS)
        return ERROR_OF_WRITE.get(error, error)


def _replay(entries: dict[str, Entry], key: bytes | None, value: bytes | None) -> None:
    """The last record of an id counts; a null value deletes."""
    transactional_id = unpack_key(key or b"")
    if transactional_id is None:
        return
    if value is None:
        entries.pop(transactional_id, None)
    else:
        entries[transactional_id] = Entry(unpack_value(transactional_id, value))
