"""Incremental fetch sessions (KIP-227): the broker remembers the partitions of a fetcher between its requests.

An incremental request lists only partitions that changed, and its response only partitions with new data. The number of
sessions is bounded: a new session evicts the least recently used one if that has been idle long enough. A fetcher that
gets no session continues with full requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from highwater.reference.context import Context
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)

NO_SESSION: Final = 0
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
MAX_EPOCH: Final = (1 << 31) - 1
Key = tuple[str, int]
Topics = tuple[FetchTopic, ...]


@dataclass(slots=True)
class CachedPartition:
    """A partition of a session: its last request, and the offsets last returned to the fetcher (-1: none yet)."""

    request: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1

    def update_and_check(self, data: PartitionData) -> bool:
        """Return whether the response must include this partition, and update the cached offsets.

        Changed offsets are returned once; an error is returned every time.
        """
        changed = (data.high_watermark, data.log_start_offset) != (self.high_watermark, self.log_start_offset)
        failed = data.error_code != ErrorCode.NONE
        self.high_watermark, self.log_start_offset = data.high_watermark, data.log_start_offset
        if failed:
            self.high_watermark = -1
        urgent = data.preferred_read_replica >= 0 or data.diverging_epoch.end_offset >= 0
        return bool(data.records) or changed or failed or urgent


@dataclass(slots=True)
class Session:
    """One fetch session; `epoch` is the session epoch expected in the next request."""

    session_id: int
    used_ms: int
    epoch: int = INITIAL_EPOCH + 1
    partitions: dict[Key, CachedPartition] = field(default_factory=dict)

    def update(self, body: FetchRequest) -> None:
        for topic in body.topics:
            for requested in topic.partitions:
                cached = self.partitions.get((topic.topic, requested.partition))
                if cached is None:
                    self.partitions[topic.topic, requested.partition] = CachedPartition(requested)
                else:
                    cached.request = requested
        for forgotten in body.forgotten_topics_data:
            for partition in forgotten.partitions:
                self.partitions.pop((forgotten.topic, partition), None)

    def topics(self) -> Topics:
        by_topic: dict[str, list[FetchPartition]] = {}
        for (topic, _), cached in self.partitions.items():
            by_topic.setdefault(topic, []).append(cached.request)
        return tuple(FetchTopic(topic=topic, partitions=tuple(parts)) for topic, parts in by_topic.items())

    def changed_partitions(self, responses: Sequence[FetchableTopicResponse]) -> tuple[FetchableTopicResponse, ...]:
        """Drop from a full response every partition without changes, and those forgotten while the request waited."""
        changed = []
        for topic in responses:
            parts = [data for data in topic.partitions if self._needs_response(topic.topic, data)]
            if parts:
                changed.append(replace(topic, partitions=tuple(parts)))
        return tuple(changed)

    def _needs_response(self, topic: str, data: PartitionData) -> bool:
        cached = self.partitions.get((topic, data.partition_index))
        return cached is not None and cached.update_and_check(data)


@dataclass(frozen=True, slots=True)
class FetchContext:
    """How to serve one request: `body` lists every partition; `session` filters the response if `incremental`."""

    body: FetchRequest
    session: Session | None = None
    incremental: bool = False
    error: ErrorCode = ErrorCode.NONE

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
            self._sessions.pop(body.session_id, None)
            return FetchContext(body)
        if body.session_epoch == INITIAL_EPOCH:
            self._sessions.pop(body.session_id, None)
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
        return FetchContext(replace(body, topics=session.topics()), session, incremental=True)

    def _begin(self, body: FetchRequest) -> Session | None:
        config, now_ms = self._context.config, self._context.now.monotonic_ms
        if len(self._sessions) >= config.max_incremental_fetch_session_cache_slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.used_ms < config.fetch_session_eviction_ms:
                return None
            del self._sessions[oldest.session_id]
        session = Session(self._new_id(), now_ms)
        session.update(replace(body, forgotten_topics_data=()))  # a new session has nothing to forget
        self._sessions[session.session_id] = session
        return session

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
