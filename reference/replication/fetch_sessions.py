"""Fetch sessions (KIP-227): a fetcher names its partitions once, then only what changes, and hears only of news.

Sessions are bounded: the one that has been silent longest gives way, once it has been so for a while; a fetcher that
gets none goes on as before, naming all partitions each time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from reference.context import Context
from reference.wire.errors import ErrorCode
from reference.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)

NO_SESSION: Final = 0
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
LAST_EPOCH: Final = (1 << 31) - 1
Key = tuple[str, int]
Topics = tuple[FetchTopic, ...]


@dataclass(slots=True)
class Asked:
    """A partition of a session: what is asked of it, and what was last told. -1 has not been told."""

    request: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1

    def is_news(self, data: PartitionData) -> bool:
        """Must the fetcher hear of this? Then it is told once; an error is told each time."""
        changed = (data.high_watermark, data.log_start_offset) != (self.high_watermark, self.log_start_offset)
        failed = data.error_code != ErrorCode.NONE
        self.high_watermark, self.log_start_offset = data.high_watermark, data.log_start_offset
        if failed:
            self.high_watermark = -1
        urgent = data.preferred_read_replica >= 0 or data.diverging_epoch.end_offset >= 0
        return bool(data.records) or changed or failed or urgent


@dataclass(slots=True)
class Session:
    """`epoch` is that of the request that comes next."""

    session_id: int
    used_ms: int
    epoch: int = INITIAL_EPOCH + 1
    partitions: dict[Key, Asked] = field(default_factory=dict)

    def update(self, body: FetchRequest) -> None:
        for topic in body.topics:
            for asked in topic.partitions:
                known = self.partitions.get((topic.topic, asked.partition))
                if known is None:
                    self.partitions[topic.topic, asked.partition] = Asked(asked)
                else:
                    known.request = asked
        for forgotten in body.forgotten_topics_data:
            for partition in forgotten.partitions:
                self.partitions.pop((forgotten.topic, partition), None)

    def topics(self) -> Topics:
        by_topic: dict[str, list[FetchPartition]] = {}
        for (topic, _), asked in self.partitions.items():
            by_topic.setdefault(topic, []).append(asked.request)
        return tuple(FetchTopic(topic=topic, partitions=tuple(parts)) for topic, parts in by_topic.items())

    def news(self, responses: Sequence[FetchableTopicResponse]) -> tuple[FetchableTopicResponse, ...]:
        """What of a whole response the fetcher has not been told, and has not given up while it waited."""
        told = []
        for topic in responses:
            parts = [data for data in topic.partitions if self._is_news(topic.topic, data)]
            if parts:
                told.append(replace(topic, partitions=tuple(parts)))
        return tuple(told)

    def _is_news(self, topic: str, data: PartitionData) -> bool:
        asked = self.partitions.get((topic, data.partition_index))
        return asked is not None and asked.is_news(data)


@dataclass(frozen=True, slots=True)
class Opened:
    """How a request is to be served: `body` lists every partition; `session` filters the answer if `incremental`."""

    body: FetchRequest
    session: Session | None = None
    incremental: bool = False
    error: ErrorCode = ErrorCode.NONE

    def answer(self, responses: Sequence[FetchableTopicResponse]) -> tuple[FetchableTopicResponse, ...]:
        if self.session is None:
            return tuple(responses)
        news = self.session.news(responses)
        return news if self.incremental else tuple(responses)


class FetchSessions:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._sessions: dict[int, Session] = {}  # the one used longest ago comes first
        self._made = 0

    def open(self, body: FetchRequest) -> Opened:
        """The session that a request belongs to, begins or ends. Which of these its session epoch says."""
        if body.session_epoch == FINAL_EPOCH:
            self._sessions.pop(body.session_id, None)
            return Opened(body)
        if body.session_epoch == INITIAL_EPOCH:
            self._sessions.pop(body.session_id, None)
            return Opened(body, self._begin(body))
        session = self._sessions.get(body.session_id)
        if session is None:
            return Opened(body, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != body.session_epoch:
            return Opened(body, error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.epoch = INITIAL_EPOCH + 1 if session.epoch == LAST_EPOCH else session.epoch + 1
        session.used_ms = self._context.now.monotonic_ms
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        session.update(body)
        return Opened(replace(body, topics=session.topics()), session, incremental=True)

    def _begin(self, body: FetchRequest) -> Session | None:
        config, now_ms = self._context.config, self._context.now.monotonic_ms
        if len(self._sessions) >= config.max_incremental_fetch_session_cache_slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.used_ms < config.fetch_session_eviction_ms:
                return None
            del self._sessions[oldest.session_id]
        session = Session(self._new_id(), now_ms)
        session.update(replace(body, forgotten_topics_data=()))  # there is nothing yet to forget
        self._sessions[session.session_id] = session
        return session

    def _new_id(self) -> int:
        """Positive, and another one in each life of the broker, so that an old fetcher meets no strange session."""
        while True:
            self._made += 1
            seed = f"{self._context.broker_id}:{self._context.broker_epoch}:{self._made}"
            found = int.from_bytes(sha256(seed.encode()).digest()[:4], "big") & LAST_EPOCH
            if found != NO_SESSION and found not in self._sessions:
                return found

    def __len__(self) -> int:
        return len(self._sessions)
