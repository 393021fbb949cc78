"""Delete expired offsets, and groups that have neither members nor offsets.

The offset of a subscribed topic expires `offsets.retention.minutes` after the group became Empty (KIP-211).  An offset
of a standalone consumer, or of a topic without subscribers, expires that long after its commit. An offset that was
committed with a retention of its own (OffsetCommit 2 to 4) expires when that has passed.
"""

from highwater.reference.context import Context
from highwater.reference.groups.group import CommittedOffset, Group, GroupState
from highwater.reference.groups.offsets import CONSUMER_PROTOCOL, may_be_subscribed
from highwater.reference.groups.store import GroupStore
from highwater.reference.procedures import spawn
from highwater.reference.replication.purgatory import Purgatory

MS_PER_MINUTE = 60_000


class GroupExpiry:
    """The periodic expiry task of the group coordinator."""

    def __init__(self, context: Context, purgatory: Purgatory, store: GroupStore) -> None:
        self._context, self._purgatory, self._store = context, purgatory, store

    def start(self) -> None:
        """Start the periodic task."""
        spawn(self._run())

    def topic_deleted(self, topic: str) -> None:
        """Delete the offsets of a deleted topic: they are invalid for a new topic of the same name (KAFKA-6362)."""
        for group in list(self._store.groups.values()):
            spawn(self._delete_topic_offsets(group, topic))

    async def _delete_topic_offsets(self, group: Group, topic: str) -> None:
        committed = (group.offsets, *group.pending_offsets.values())
        if keys := {key: None for offsets in committed for key in offsets if key[0] == topic}:
            await self._store.delete_offsets(group, list(keys))

    async def _run(self) -> None:
        while True:
            await self._purgatory.sleep(self._context.config.offsets_retention_check_interval_ms)
            for group in list(self._store.groups.values()):
                spawn(self._expire(group))

    async def _expire(self, group: Group) -> None:
        retention_ms = self._context.config.offsets_retention_minutes * MS_PER_MINUTE
        expired = expired_offsets(group, self._context.now.wall_ms, retention_ms)
        awaited = group.pending_offsets or group.pending_members
        empty = group.is_empty and not awaited
        if empty and len(expired) == len(group.offsets):
            await self._store.delete_group(group)
        elif expired:
            await self._store.delete_offsets(group, expired)


def expired_offsets(group: Group, now_ms: int, retention_ms: int) -> list[tuple[str, int]]:
    """Return the keys of offsets that expired before `now_ms` (wall clock), except those of open transactions."""
    return [
        key
        for key in _unsubscribed(group)
        if _expiry_ms(group, group.offsets[key], retention_ms) <= now_ms and not group.is_unstable(key)
    ]


def _unsubscribed(group: Group) -> list[tuple[str, int]]:
    """Return the offsets that may expire: of an empty group all, of a stable one those that no member subscribes to."""
    if group.is_empty:
        return list(group.offsets)
    is_known = group.state is GroupState.STABLE and group.protocol_type == CONSUMER_PROTOCOL
    if group.consumer is None and not is_known:
        return []
    return [key for key in group.offsets if not may_be_subscribed(group, key[0])]


def _expiry_ms(group: Group, committed: CommittedOffset, retention_ms: int) -> int:
    if committed.expire_timestamp >= 0:
        return committed.expire_timestamp
    emptied = group.state is GroupState.EMPTY and group.protocol_type and group.state_timestamp >= 0
    return (group.state_timestamp if emptied else committed.commit_timestamp) + retention_ms
