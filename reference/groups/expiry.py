"""What ends: committed offsets that nobody needs any more, and groups that have neither members nor offsets.

An offset of a topic that the group consumes lives as long as the group does, and `offsets.retention.minutes` longer
(KIP-211); one committed without a group, or for a topic to which no member subscribes any more, so long from then.
"""

from reference.context import Context
from reference.groups.group import Group, GroupState
from reference.groups.offsets import CONSUMER_PROTOCOL, subscribed_topics
from reference.groups.store import GroupStore
from reference.procedures import spawn
from reference.replication.purgatory import Purgatory

MS_PER_MINUTE = 60_000


class GroupExpiry:
    def __init__(self, context: Context, purgatory: Purgatory, store: GroupStore) -> None:
        self._context, self._purgatory, self._store = context, purgatory, store

    def start(self) -> None:
        spawn(self._watch())

    def topic_deleted(self, topic: str) -> None:
        """Its offsets go with it: a topic of the same name is another one (KAFKA-6362)."""
        for group in list(self._store.groups.values()):
            spawn(self._forget(group, topic))

    async def _forget(self, group: Group, topic: str) -> None:
        if keys := [key for key in group.offsets if key[0] == topic]:
            await self._store.delete_offsets(group, keys)

    async def _watch(self) -> None:
        while True:
            await self._purgatory.sleep(self._context.config.offsets_retention_check_interval_ms)
            for group in list(self._store.groups.values()):
                spawn(self._expire(group))

    async def _expire(self, group: Group) -> None:
        retention_ms = self._context.config.offsets_retention_minutes * MS_PER_MINUTE
        expired = expired_offsets(group, self._context.now.wall_ms - retention_ms)
        empty = group.state is GroupState.EMPTY and not group.pending_offsets
        if empty and len(expired) == len(group.offsets):
            await self._store.delete_group(group)
        elif expired:
            await self._store.delete_offsets(group, expired)


def expired_offsets(group: Group, oldest_ms: int) -> list[tuple[str, int]]:
    """Those whose retention began at `oldest_ms` (wall clock) or before, and that no open transaction would change."""
    if group.state is GroupState.EMPTY and group.protocol_type and group.state_timestamp >= 0:
        aged = list(group.offsets) if group.state_timestamp <= oldest_ms else []
    else:
        aged = [key for key, committed in group.offsets.items() if committed.commit_timestamp <= oldest_ms]
        if group.state is not GroupState.EMPTY:
            settled = group.state is GroupState.STABLE and group.protocol_type == CONSUMER_PROTOCOL
            subscribed = subscribed_topics(group)
            aged = [key for key in aged if settled and key[0] not in subscribed]
    return [key for key in aged if not group.is_unstable(key)]
