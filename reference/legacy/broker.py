"""A broker of Kafka 0.7: without replicas, controller or consumer state. It maps a framed request to a reply."""

from highwater.reference.legacy.log import LegacyLog, LegacyLogConfig, OutOfRangeError
from highwater.reference.legacy.messages import payloads
from highwater.reference.legacy.requests import (
    INVALID_FETCH_SIZE,
    INVALID_MESSAGE,
    NO_ERROR,
    OFFSET_OUT_OF_RANGE,
    WRONG_PARTITION,
    Fetch,
    OffsetsBefore,
    Produce,
    decode_request,
    encode_offsets,
    message_set_send,
    multi_message_set_send,
)
from highwater.reference.storage.filesystem import FileSystem
from highwater.reference.wire.errors import DecodeError


class LegacyBroker:
    """All topics have `partitions` partitions; a topic is created on its first use."""

    def __init__(self, fs: FileSystem, config: LegacyLogConfig, partitions: int = 1) -> None:
        self._fs, self._config, self.partitions = fs, config, partitions
        self.logs: dict[tuple[str, int], LegacyLog] = {}

    def _log(self, topic: str, partition: int, now_ms: int) -> LegacyLog | None:
        if not 0 <= partition < self.partitions:
            return None
        key = (topic, partition)
        if key not in self.logs:
            self.logs[key] = LegacyLog(self._fs, topic, partition, self._config, now_ms)
        return self.logs[key]

    def handle(self, frame: bytes, now_ms: int) -> bytes | None:
        """Return the framed reply, or None for a produce. Raises `DecodeError`, which closes the connection."""
        request = decode_request(frame)
        if isinstance(request, Produce):
            self._produce(request, now_ms)
            return None
        if isinstance(request, Fetch):
            return self._fetch(request, now_ms)
        if isinstance(request, OffsetsBefore):
            return self._offsets(request, now_ms)
        sends = [self._fetch(single, now_ms) for single in request if isinstance(single, Fetch)]
        for single in request:
            if isinstance(single, Produce):
                self._produce(single, now_ms)
        return multi_message_set_send(sends) if sends else None

    def _produce(self, request: Produce, now_ms: int) -> int:
        """Validate and append messages; return an error code ("the messages are checksummed and validated")."""
        log = self._log(request.topic, request.partition, now_ms)
        if log is None:
            return WRONG_PARTITION
        try:
            count = sum(1 for _ in payloads(request.messages))
            log.append(request.messages, count, now_ms)
        except DecodeError:
            return INVALID_MESSAGE
        return NO_ERROR

    def _fetch(self, request: Fetch, now_ms: int) -> bytes:
        log = self._log(request.topic, request.partition, now_ms)
        if log is None:
            return message_set_send(WRONG_PARTITION)
        if request.max_bytes <= 0:
            return message_set_send(INVALID_FETCH_SIZE)
        try:
            return message_set_send(NO_ERROR, log.read(request.offset, request.max_bytes))
        except OutOfRangeError:
            return message_set_send(OFFSET_OUT_OF_RANGE)

    def _offsets(self, request: OffsetsBefore, now_ms: int) -> bytes:
        log = self._log(request.topic, request.partition, now_ms)
        if log is None:
            return message_set_send(WRONG_PARTITION)
        return encode_offsets(log.offsets_before(request.time_ms, max(request.count, 0)))
