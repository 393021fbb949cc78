"""Incremental fetch sessions (KIP-227): the broker remembers the partitions of a fetcher between its requests.

An incremental request lists only partitions that changed, and its response only partitions with new data. The number of
sessions is bounded: a new session evicts the least recently used one if that has been idle long enough, and a
follower's session may also evict a client's. A fetcher that gets no session continues with full requests.

Theory of operation
-------------------
A fetch must not cost time for each partition of its session: a follower of 2,000 partitions would read them all for
every record. A session therefore keeps `pending`, the partitions that the next read pass must read:

* those that the request names;
* those that moved since they were last read: the session stays registered in the waiters of each partition
  (`Partition.append_waiters` and `commit_waiters`) from its first read until the session ends or forgets it;
* those with records that the fetcher has not fetched, with offsets that were not returned yet, or with an error. A
  follower receives an error once: it would fetch in a loop otherwise, and names the partition again after a while.

A partition leaves `pending` in `settle`, right after it was read. Invariant: reading a partition outside `pending`
would find neither records nor a change. An append or a new role also calls `waiters`, which end the wait of a fetch.

Apache Kafka: kafka.server.FetchSession, FetchSessionCache. Its incremental fetch reads all partitions of the session.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import Final

from highwater.reference.context import Context
from highwater.reference.replication.partition import Partition, Waiter
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    PartitionData,
)

NO_SESSION: Final = 0
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
MAX_EPOCH: Final = (1 << 31) - 1
Key = tuple[str, int]


@dataclass(slots=True)
class CachedPartition:
    """A partition of a session: its last request, and the offsets last returned to the fetcher (-1: none yet).

    `partition` is the replica in whose waiters the session is registered.
    """

    request: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1
    partition: Partition | None = None

    def must_return(self, data: PartitionData) -> bool:
        """Return whether an incremental response must include this partition (CachedPartition.maybeUpdateResponseData).

        Changed offsets are returned once; an error is returned every time.
        """
        changed = (data.high_watermark, data.log_start_offset) != (self.high_watermark, self.log_start_offset)
        failed = data.error_code != ErrorCode.NONE
        urgent = data.preferred_read_replica >= 0 or data.diverging_epoch.end_offset >= 0
        return bool(data.records) or changed or failed or urgent

    def returned(self, data: PartitionData) -> None:
        """Update the cached offsets from a response."""
        failed = data.error_code != ErrorCode.NONE
        self.high_watermark, self.log_start_offset = -1 if failed else data.high_watermark, data.log_start_offset


@dataclass(slots=True, eq=False)
class Session:
    """One fetch session; `epoch` is the session epoch expected in the next request.

    `moved`: a partition was appended to, or changed its role, since the last read pass began.
    """

    session_id: int
    used_ms: int
    replica_id: int = -1
    epoch: int = INITIAL_EPOCH + 1
    isolation_level: int = 0
    partitions: dict[Key, CachedPartition] = field(default_factory=dict)
    pending: dict[Key, None] = field(default_factory=dict)
    waiters: dict[str, Waiter] = field(default_factory=dict)
    moved: bool = False

    @property
    def is_replica(self) -> bool:
        """Return whether the fetcher is a follower. Apache Kafka calls such a session privileged."""
        return self.replica_id >= 0

    def update(self, body: FetchRequest) -> None:
        """Add, change and forget the partitions that a request names.

        What was settled for one isolation level may have records for another.
        """
        if body.isolation_level != self.isolation_level:
            self.isolation_level = body.isolation_level
            self.pending |= dict.fromkeys(self.partitions)
        for topic in body.topics:
            for requested in topic.partitions:
                key = (topic.topic, requested.partition)
                cached = self.partitions.get(key)
                if cached is None:
                    self.partitions[key] = CachedPartition(requested)
                else:
                    cached.request = requested
                self.pending[key] = None
        for forgotten in body.forgotten_topics_data:
            for partition in forgotten.partitions:
                self._forget((forgotten.topic, partition))

    def requests(self) -> list[tuple[str, FetchPartition]]:
        """Return what the next read pass must read: the topic and the last request of each pending partition."""
        return [(key[0], self.partitions[key].request) for key in self.pending]

    def watch(self, key: Key, partition: Partition) -> None:
        """Register in the waiters of a partition before it is read."""
        cached = self.partitions.get(key)
        if cached is None or cached.partition is partition:
            return
        self._unwatch(cached)  # the topic was deleted and created again
        cached.partition = partition
        wake, mark = partial(self._wake, key), partial(self._mark, key)
        if self.is_replica:  # the high watermark moves after every append; as in Apache Kafka, it does not end a wait
            partition.append_waiters[self._ticket] = wake
            partition.commit_waiters[self._ticket] = mark
        else:
            partition.commit_waiters[self._ticket] = wake

    def settle(self, key: Key, data: PartitionData) -> None:
        """Skip a partition until it moves, unless what was read must be returned first."""
        cached = self.partitions.get(key)
        if cached is not None and not cached.must_return(data):
            self.pending.pop(key, None)

    def changed_partitions(self, responses: Sequence[FetchableTopicResponse]) -> tuple[FetchableTopicResponse, ...]:
        """Drop from a response every partition without changes, and those forgotten while the request waited."""
        changed = []
        for topic in responses:
            parts = [data for data in topic.partitions if self._update_and_check(topic.topic, data)]
            if parts:
                changed.append(
                    topic if len(parts) == len(topic.partitions) else replace(topic, partitions=tuple(parts))
                )
        return tuple(changed)

    def close(self) -> None:
        """Forget all partitions, so that no waiter refers to a closed session, and end the fetches that wait."""
        for key in list(self.partitions):
            self._forget(key)
        self._call_waiters()

    def _update_and_check(self, topic: str, data: PartitionData) -> bool:
        cached = self.partitions.get((topic, data.partition_index))
        if cached is None:
            return False
        changed = cached.must_return(data)
        cached.returned(data)
        if self.is_replica and data.error_code != ErrorCode.NONE:
            self.pending.pop((topic, data.partition_index), None)
        if data.records:  # the next response has space for other partitions first, as in Apache Kafka
            self._move_to_end((topic, data.partition_index))
        return changed

    def _move_to_end(self, key: Key) -> None:
        self.pending.pop(key, None)
        self.pending[key] = None

    def _forget(self, key: Key) -> None:
        self.pending.pop(key, None)
        cached = self.partitions.pop(key, None)
        if cached is not None:
            self._unwatch(cached)

    # -- changes of partitions -------------------------------------------------------------------

    @property
    def _ticket(self) -> str:
        return f"session:{self.session_id}"

    def _unwatch(self, cached: CachedPartition) -> None:
        partition, cached.partition = cached.partition, None
        if partition is not None:
            partition.append_waiters.pop(self._ticket, None)
            partition.commit_waiters.pop(self._ticket, None)
            partition.leave_session(self.replica_id, self)

    def _mark(self, key: Key) -> None:
        if key in self.partitions:
            self.pending[key] = None

    def _wake(self, key: Key) -> None:
        self._mark(key)
        self.moved = True
        self._call_waiters()

    def _call_waiters(self) -> None:
        for waiter in list(self.waiters.values()):
            waiter()


@dataclass(frozen=True, slots=True)
class FetchContext:
    """How to serve one request; `session` selects what is read and returned if `incremental`."""

    body: FetchRequest
    session: Session | None = None
    incremental: bool = False
    error: ErrorCode = ErrorCode.NONE

    def requests(self) -> list[tuple[str, FetchPartition]]:
        """Return what one read pass must read, as pairs of a topic and the request for one of its partitions."""
        if self.session is not None and self.incremental:
            return self.session.requests()
        return [(topic.topic, requested) for topic in self.body.topics for requested in topic.partitions]

    @property
    def is_empty(self) -> bool:
        """Return whether no partition is requested, so that there is nothing to wait for."""
        if self.session is not None:
            return not self.session.partitions
        return not any(topic.partitions for topic in self.body.topics)

    def filter_response(self, responses: Sequence[FetchableTopicResponse]) -> tuple[FetchableTopicResponse, ...]:
        if self.session is None:
            return tuple(responses)
        changed = self.session.changed_partitions(responses)  # also updates the session for a full response
        return changed if self.incremental else tuple(responses)


class FetchSessions:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._sessions: dict[int, Session] = {}  # least recently used first
        self._created_count = 0

    def open(self, body: FetchRequest) -> FetchContext:
        """Create, continue or close the session of a request, as its session epoch says."""
        if body.session_epoch == FINAL_EPOCH:
            self._close(body.session_id)
            return FetchContext(body)
        if body.session_epoch == INITIAL_EPOCH:
            self._close(body.session_id)
            return FetchContext(body, self._begin(body))
        session = self._sessions.get(body.session_id)
        if session is None:
            return FetchContext(body, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != body.session_epoch:
            return FetchContext(body, error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.epoch = INITIAL_EPOCH + 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        session.used_ms = self._context.now.monotonic_ms
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        session.update(body)
        if not session.partitions:  # a session without partitions ends (FetchManager.newContext)
            self._close(session.session_id)
            return FetchContext(body)
        return FetchContext(body, session, incremental=True)

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _begin(self, body: FetchRequest) -> Session | None:
        """Return a new session, or None if the cache is full of sessions that it may not evict."""
        if body.replica_id >= 0:  # a follower has one fetcher: it lost its earlier session, for example by a restart
            for session in [each for each in self._sessions.values() if each.replica_id == body.replica_id]:
                self._close(session.session_id)
        if len(self._sessions) >= self._context.config.max_incremental_fetch_session_cache_slots:
            evicted = self._evictable(for_replica=body.replica_id >= 0)
            if evicted is None:
                return None
            self._close(evicted.session_id)
        session = Session(self._new_id(), self._context.now.monotonic_ms, body.replica_id)
        session.update(replace(body, forgotten_topics_data=()))  # a new session has nothing to forget
        self._sessions[session.session_id] = session
        return session

    def _evictable(self, *, for_replica: bool) -> Session | None:
        """Return the session to evict: the least recently used if it is idle, or a client's for a follower's.

        Replication must not lose its sessions to clients (FetchSessionCache.tryEvict).
        """
        oldest = next(iter(self._sessions.values()), None)
        now_ms = self._context.now.monotonic_ms
        if oldest is None or now_ms - oldest.used_ms >= self._context.config.fetch_session_eviction_ms:
            return oldest
        clients = [session for session in self._sessions.values() if not session.is_replica]
        return min(clients, key=lambda session: len(session.partitions), default=None) if for_replica else None

    def _new_id(self) -> int:
        """Return a positive unused id; it depends on the broker epoch, so ids from before a restart are unknown."""
        while True:
            self._created_count += 1
            seed = f"{self._context.broker_id}:{self._context.broker_epoch}:{self._created_count}"
            found = int.from_bytes(sha256(seed.encode()).digest()[:4], "big") & MAX_EPOCH
            if found != NO_SESSION and found not in self._sessions:
                return found

    def __len__(self) -> int:
        return len(self._sessions)
