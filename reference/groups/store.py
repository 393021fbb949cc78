"""Load and write the groups and offsets in the partitions of `__consumer_offsets` that this broker leads."""

from collections.abc import Callable
from dataclasses import replace

from highwater.reference.context import Context
from highwater.reference.coordinated import Coordinated
from highwater.reference.groups.consumer.changes import apply as apply_change
from highwater.reference.groups.consumer.changes import group_tombstones
from highwater.reference.groups.consumer.group import ConsumerGroup
from highwater.reference.groups.consumer.records import Change, ConsumerGroupMetadataKey, pack_change, unpack_change
from highwater.reference.groups.group import CommittedOffset, Group, GroupState, Member
from highwater.reference.groups.records import (
    EXPIRY_VALUE_VERSION,
    GROUP_KEY_VERSION,
    OFFSET_KEY_VERSION,
    VALUE_VERSION,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    pack,
    unpack_group,
    unpack_key,
    unpack_offset,
)
from highwater.reference.groups.tracing import GroupTrace
from highwater.reference.metadata_cache import MetadataCache
from highwater.reference.procedures import spawn, start_procedure
from highwater.reference.replication.partition import Partition, Role
from highwater.reference.storage.log import Log
from highwater.reference.storage.producer_state import read_marker
from highwater.reference.wire.errors import DecodeError, ErrorCode
from highwater.reference.wire.records import Record, batch_headers, build_batch

OFFSETS_TOPIC = "__consumer_offsets"
WRITE_TIMEOUT_MS = 5_000
READ_BYTES = 1 << 20
COMMITTED = (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)  # the high watermark has passed the records

# The errors of a failed append, as the error codes that a group member or transactional producer retries.
WRITE_ERROR_MAPPING = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode` without the sign bit, from which Kafka computes the partition of a group."""
    value = 0
    units = text.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


class GroupStore:
    """The groups that this broker coordinates (Apache Kafka: GroupMetadataManager).

    `on_loaded` and `on_unloaded` are called with the groups of a partition when this broker becomes its leader or
    stops being it.
    """

    def __init__(self, context: Context, cache: MetadataCache) -> None:
        self._context, self._cache = context, cache
        self.groups: dict[str, Group] = {}
        self.trace = GroupTrace(context)
        self._owned: dict[int, Partition] = {}
        self.coordinated = Coordinated(context.broker_id, cache, OFFSETS_TOPIC, self._owned)
        self.on_loaded: Callable[[list[Group]], None] = lambda groups: None
        self.on_unloaded: Callable[[list[Group]], None] = lambda groups: None

    def partition_for(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` that stores this group."""
        topic = self._cache.topics.get(OFFSETS_TOPIC)
        count = len(topic.partitions) if topic else self._context.config.offsets_topic_num_partitions
        return java_hash(group_id) % count

    def check(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
        """Return NONE if the group id is valid and this broker is its coordinator and has loaded it."""
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        return self.coordinated.error(self.partition_for(group_id))

    def create(self, group_id: str) -> Group:
        """Return a new group in memory; it is not written to the log yet."""
        group = self.groups[group_id] = Group(group_id)
        self.trace.failover(group)
        return group

    # -- loading ---------------------------------------------------------------------------------

    def role_changed(self, partition: Partition) -> None:
        """Load the partition if its local replica became leader; otherwise unload it."""
        if partition.topic != OFFSETS_TOPIC:
            return
        self._unload(partition.partition)
        if partition.role is Role.LEADER:
            self._load(partition)

    def _unload(self, number: int) -> None:
        if self._owned.pop(number, None) is None:
            return
        unloaded = [group for group in self.groups.values() if self.partition_for(group.group_id) == number]
        self.on_unloaded(unloaded)
        for group in unloaded:
            del self.groups[group.group_id]

    def _load(self, partition: Partition) -> None:
        """Own the partition once all of it is loaded; data that cannot be decoded takes it offline instead."""
        loaded: dict[str, Group] = {}
        with partition.storage():
            _replay_log(partition.log, loaded, partition.high_watermark)
        if partition.offline:
            return
        for consumer in _consumer_groups(loaded):
            consumer.check_invariants()
            _show_committed(partition, consumer)
        self._owned[partition.partition] = partition
        self.groups.update(loaded)
        for group in loaded.values():
            self.trace.failover(group)
        self.on_loaded(list(loaded.values()))

    # -- writing ---------------------------------------------------------------------------------

    async def _write(
        self,
        group_id: str,
        records: list[tuple[bytes, bytes | None]],
        apply: Callable[[], None] = lambda: None,
        producer: tuple[int, int] | None = None,
    ) -> ErrorCode:
        """Append the records to the group's partition, and `apply` them once they are committed, at that moment.

        Returns an error if that takes longer than `WRITE_TIMEOUT_MS`. They are applied even so when they are committed:
        the next coordinator would load them. With `producer` (id, epoch) the batch is part of that producer's
        transaction. Apache Kafka: CoordinatorRuntime, deferredEventQueue.
        """
        partition = self._writable(group_id)
        if isinstance(partition, ErrorCode):
            return partition
        error, end = self._append(partition, records, producer)
        if error is not ErrorCode.NONE:
            return error
        return await _await_commit(partition, end, apply)

    def _writable(self, group_id: str) -> Partition | ErrorCode:
        """Return the group's partition if records can be appended to it, else an error."""
        partition = self._owned.get(self.partition_for(group_id))
        if partition is None or partition.role is not Role.LEADER:
            return ErrorCode.NOT_COORDINATOR
        return partition if partition.has_min_isr(partition.isr) else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _append(
        self,
        partition: Partition,
        records: list[tuple[bytes, bytes | None]],
        producer: tuple[int, int] | None = None,
    ) -> tuple[ErrorCode, int]:
        """Append the records in one batch; return an error, and the offset after them."""
        now_ms = self._context.now.wall_ms
        producer_id, epoch = producer or (-1, -1)
        batch = build_batch(
            [(now_ms, key, value, ()) for key, value in records],
            producer_id=producer_id,
            producer_epoch=epoch,
            transactional=producer is not None,
        )
        ((_, header),) = batch_headers(batch)
        if producer is not None:
            refused = partition.log.producers.check(header, self._context.guards)
            if refused is not ErrorCode.NONE:
                return refused, -1
        partition.append(batch, header)
        return ErrorCode.NONE, partition.log.log_end_offset

    def append_changes(self, group: ConsumerGroup, changes: list[Change]) -> ErrorCode:
        """Append changes that are applied to a consumer group; the caller undoes them if an error is returned."""
        partition = self._writable(group.group_id)
        if isinstance(partition, ErrorCode):
            return partition
        self._append(partition, [pack_change(change) for change in changes])
        _show_committed(partition, group)
        return ErrorCode.NONE

    def end_consumer(self, group: Group, convert: Callable[[], None] | None = None) -> ErrorCode:
        """Append the tombstones of a consumer group, which becomes a classic one; `convert` gives it the members."""
        partition = self._writable(group.group_id)
        if isinstance(partition, ErrorCode):
            return partition
        records = [pack_change(change) for change in group_tombstones(group.consumer)] if group.consumer else []
        if convert is None:
            group.consumer = None
        else:
            convert()
            records.append(self._group_record(group))
        self._append(partition, records)
        return ErrorCode.NONE

    async def committed(self, group: ConsumerGroup) -> ErrorCode:
        """Return NONE once all changes of a consumer group are committed: no response may show others."""
        partition = self._owned.get(self.partition_for(group.group_id))
        if partition is None:
            return ErrorCode.NOT_COORDINATOR
        error = await partition.committed(group.written_end, WRITE_TIMEOUT_MS)
        return WRITE_ERROR_MAPPING.get(error, error)

    async def save_group(self, group: Group, assignments: dict[str, bytes] | None = None) -> ErrorCode:
        """Write members and generation, with these assignments or by default the current ones."""
        records = [self._group_record(group, assignments)]
        content = self.trace.begin_store(group, assignments)
        error = await self._write(group.group_id, records)
        if error is ErrorCode.NONE and self.groups.get(group.group_id) is group:
            self.trace.group_stored(group, content)
        return error

    def _group_record(self, group: Group, assignments: dict[str, bytes] | None = None) -> tuple[bytes, bytes | None]:
        group.state_timestamp = self._context.now.wall_ms
        members = tuple(
            MemberMetadata(
                member_id=m.member_id,
                group_instance_id=m.instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                rebalance_timeout=m.rebalance_timeout_ms,
                session_timeout=m.session_timeout_ms,
                subscription=m.metadata(group.protocol or ""),
                assignment=m.assignment if assignments is None else assignments.get(m.member_id, b""),
            )
            for m in group.members.values()
        )
        value = GroupMetadataValue(
            protocol_type=group.protocol_type,
            generation=group.generation_id,
            protocol=group.protocol,
            leader=group.leader,
            current_state_timestamp=group.state_timestamp,
            members=members,
        )
        return pack(GroupMetadataKey(group=group.group_id), GROUP_KEY_VERSION), pack(value, VALUE_VERSION)

    async def save_offsets(self, group_id: str, offsets: dict[tuple[str, int], CommittedOffset]) -> ErrorCode:
        """Write offsets to the log; apply them when they are committed."""
        offsets = self._to_be_written(group_id, offsets)

        def apply() -> None:
            (self.groups.get(group_id) or self.create(group_id)).offsets.update(offsets)

        return await self._write(group_id, _offset_records(group_id, offsets), apply)

    async def save_transactional_offsets(
        self, group_id: str, producer: tuple[int, int], offsets: dict[tuple[str, int], CommittedOffset]
    ) -> ErrorCode:
        """Write offsets that stay pending until the producer's transaction ends."""
        offsets = self._to_be_written(group_id, offsets)

        def apply() -> None:
            group = self.groups.get(group_id) or self.create(group_id)
            group.pending_offsets.setdefault(producer[0], {}).update(offsets)

        return await self._write(group_id, _offset_records(group_id, offsets), apply, producer)

    def end_transaction(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """Apply or drop the pending offsets after a marker was committed in this offsets partition."""
        for group in self.groups.values():
            if producer_id in group.pending_offsets and self.partition_for(group.group_id) == partition:
                group.end_transaction(producer_id, committed=committed)

    def last_marker(self, group_id: str, producer_id: int) -> int:
        """Return the offset of the producer's last marker in the group's partition, or -1."""
        partition = self._owned.get(self.partition_for(group_id))
        return -1 if partition is None else partition.log.producers.last_marker(producer_id)

    def _to_be_written(
        self, group_id: str, offsets: dict[tuple[str, int], CommittedOffset]
    ) -> dict[tuple[str, int], CommittedOffset]:
        """Return the offsets with the present time, and the log offsets that their records get if written at once."""
        partition = self._owned.get(self.partition_for(group_id))
        first = -1 if partition is None else partition.log.log_end_offset
        now_ms = self._context.now.wall_ms
        return {
            key: replace(committed, commit_timestamp=now_ms, log_offset=first + index)
            for index, (key, committed) in enumerate(offsets.items())
        }

    async def delete_offsets(self, group: Group, keys: list[tuple[str, int]]) -> ErrorCode:
        """Write a tombstone for each offset; remove them when the tombstones are committed."""

        def apply() -> None:
            for key in keys:
                group.delete_offset(key)

        return await self._write(group.group_id, [(_offset_key(group.group_id, key), None) for key in keys], apply)

    async def delete_group(self, group: Group) -> ErrorCode:
        """Write tombstones for an empty group and its offsets; keep the group if it is used meanwhile.

        A member may join, and an offset may be committed, while the tombstones are not committed yet.
        """
        known = [each for offsets in (group.offsets, *group.pending_offsets.values()) for each in offsets.items()]
        keys = dict.fromkeys(key for key, _ in known)
        tombstones: list[tuple[bytes, bytes | None]] = [(_offset_key(group.group_id, key), None) for key in keys]
        if group.consumer is None:
            tombstones.append((pack(GroupMetadataKey(group=group.group_id), GROUP_KEY_VERSION), None))
        else:
            tombstones += [pack_change(change) for change in group_tombstones(group.consumer)]
        return await self._write(group.group_id, tombstones, lambda: self._forget(group, known))

    def _forget(self, group: Group, known: list[tuple[tuple[str, int], CommittedOffset]]) -> None:
        """Forget the offsets whose tombstones are committed, and the group unless it is used."""
        for offsets in (group.offsets, *group.pending_offsets.values()):  # a transaction may have moved some meanwhile
            for key, committed in known:
                if offsets.get(key) is committed:
                    del offsets[key]
        group.pending_offsets = {producer: offsets for producer, offsets in group.pending_offsets.items() if offsets}
        is_used = not group.is_empty or group.has_offsets
        if not is_used and self.groups.get(group.group_id) is group:
            group.move_to(GroupState.DEAD)
            del self.groups[group.group_id]
            self.trace.step(group, "DeleteGroup")


async def _await_commit(partition: Partition, end: int, apply: Callable[[], None]) -> ErrorCode:
    error = await partition.committed(end, WRITE_TIMEOUT_MS)
    if error in COMMITTED:
        apply()
    elif error is ErrorCode.REQUEST_TIMED_OUT:
        spawn(_apply_late(partition, end, apply))
    return WRITE_ERROR_MAPPING.get(error, error)


def _show_committed(partition: Partition, group: ConsumerGroup) -> None:
    """Let responses show the present state of a consumer group once all of the log is committed."""
    group.written_end, state = partition.log.log_end_offset, group.snapshot()

    def show() -> None:
        group.committed = state

    start_procedure(_await_commit, partition, group.written_end, show)


async def _apply_late(partition: Partition, end: int, apply: Callable[[], None]) -> None:
    """Apply records that are committed after their writer gave up; not at all if this broker stops leading before."""
    error = ErrorCode.REQUEST_TIMED_OUT
    while error is ErrorCode.REQUEST_TIMED_OUT:
        error = await partition.committed(end, WRITE_TIMEOUT_MS)
    if error in COMMITTED:
        apply()


def _offset_key(group_id: str, key: tuple[str, int]) -> bytes:
    return pack(OffsetCommitKey(group=group_id, topic=key[0], partition=key[1]), OFFSET_KEY_VERSION)


def _offset_records(group_id: str, offsets: dict[tuple[str, int], CommittedOffset]) -> list[tuple[bytes, bytes | None]]:
    return [
        (
            _offset_key(group_id, key),
            pack(
                OffsetCommitValue(
                    offset=c.offset,
                    leader_epoch=c.leader_epoch,
                    metadata=c.metadata,
                    commit_timestamp=c.commit_timestamp,
                    expire_timestamp=c.expire_timestamp,
                ),
                VALUE_VERSION if c.expire_timestamp < 0 else EXPIRY_VALUE_VERSION,
            ),
        )
        for key, c in offsets.items()
    ]


def _consumer_groups(groups: dict[str, Group]) -> list[ConsumerGroup]:
    return [group.consumer for group in groups.values() if group.consumer is not None]


def _replay_log(log: Log, groups: dict[str, Group], high_watermark: int) -> None:
    """Apply all records of a log. Raises DamagedDataError for one that cannot be decoded.

    Of consumer groups it keeps the state at the high watermark: responses show no other until the rest is committed.
    """
    offset, is_committed = log.log_start_offset, True
    while offset < log.log_end_offset:
        data = log.read(offset, READ_BYTES, log.log_end_offset, at_least_one=True)
        for position, header in batch_headers(data):
            if is_committed and header.base_offset >= high_watermark:
                is_committed = False
                for consumer in _consumer_groups(groups):
                    consumer.committed = consumer.snapshot()
            if header.is_control:
                marker = read_marker(data[position : position + header.size])
                committed = marker is not None and marker.committed
                for group in groups.values():
                    group.end_transaction(header.producer_id, committed=committed)
            else:
                for record in log.decode(data, position)[1]:
                    try:
                        _replay(groups, record, header.producer_id)
                    except DecodeError as error:
                        raise log.damaged(record.offset, error) from error
            offset = header.next_offset


def _replay(groups: dict[str, Group], record: Record, producer_id: int) -> None:
    """Apply one record; a null value deletes.

    Offsets of a transaction (producer id not -1) stay pending until its marker.
    """
    key = unpack_key(record.key or b"")
    if key is None:
        _replay_consumer_group(groups, unpack_change(record.key or b"", record.value))
        return
    if isinstance(key, OffsetCommitKey):
        group = groups.setdefault(key.group, Group(key.group))
        if record.value is None:
            group.delete_offset((key.topic, key.partition))
        else:
            value = unpack_offset(record.value)
            offsets = group.offsets if producer_id < 0 else group.pending_offsets.setdefault(producer_id, {})
            offsets[key.topic, key.partition] = CommittedOffset(
                value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp,
                record.offset,
            )  # fmt: skip
    elif isinstance(key, GroupMetadataKey):
        if record.value is None:
            _drop_members(groups, key.group)
        else:
            _restore(groups.setdefault(key.group, Group(key.group)), unpack_group(record.value))


def _replay_consumer_group(groups: dict[str, Group], change: Change | None) -> None:
    """Apply a record of a consumer group; the tombstone of its epoch is the last one of a deleted group."""
    if change is None or (change.value is None and change.key.group_id not in groups):
        return
    group = groups.setdefault(change.key.group_id, Group(change.key.group_id))
    if change.value is None and isinstance(change.key, ConsumerGroupMetadataKey):
        group.consumer = None
        if not group.has_offsets and not group.protocol_type:
            del groups[group.group_id]
    elif change.value is not None or group.consumer is not None:
        group.consumer = group.consumer or ConsumerGroup(group.group_id)
        apply_change(group.consumer, change)


def _drop_members(groups: dict[str, Group], group_id: str) -> None:
    """Delete a group, and keep offsets of it that have no tombstone: they were committed while it was deleted."""
    deleted = groups.pop(group_id, None)
    if deleted is not None and deleted.has_offsets:
        groups[group_id] = Group(group_id, offsets=deleted.offsets, pending_offsets=deleted.pending_offsets)


def _restore(group: Group, value: GroupMetadataValue) -> None:
    group.members.clear()
    group.static_members.clear()
    group.generation_id, group.protocol_type, group.protocol = value.generation, value.protocol_type, value.protocol
    group.state_timestamp = value.current_state_timestamp
    for member in value.members:
        protocols = ((value.protocol or "", member.subscription),)
        group.add(
            Member(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.session_timeout,
                member.rebalance_timeout,
                protocols,
                member.assignment,
            )
        )
    group.leader = value.leader
    group.state = GroupState.STABLE if value.members else GroupState.EMPTY
