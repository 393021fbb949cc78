"""Validate a produced batch before it is appended: what is stored can be read, compacted, searched and replicated.

Apache Kafka: LogValidator, UnifiedLog.analyzeAndValidateRecords. v0-2 of Produce carry message sets; the broker
converts them to record batches.
"""

from collections.abc import Mapping
from typing import Final

from highwater.reference.configuration.topics import TopicConfigs
from highwater.reference.context import Context
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import ErrorCode, WireError
from highwater.reference.wire.log_entries import up_convert
from highwater.reference.wire.record_scan import Scan, scan_records
from highwater.reference.wire.records import (
    COMPRESSION_BITS,
    MAGIC,
    BatchHeader,
    TimestampType,
    batch_headers,
    crc_valid,
    decode_records,
    recompressed,
    with_create_time,
)

KEEP_PRODUCER_CODEC: Final = "producer"
CODECS: Final = {"uncompressed": Compression.NONE, **{codec.name.lower(): codec for codec in Compression if codec}}
ZSTD_SINCE: Final = 7
RECORD_BATCHES_SINCE: Final = 3
NO_TIMESTAMP: Final = -1
KNOWN_CODECS: Final = frozenset(Compression)


class RefusedBatchError(Exception):
    """The batch is rejected with an error code; `records` says what is wrong with which record, if known."""

    def __init__(self, error: ErrorCode, message: str = "", records: Mapping[int, str] | None = None) -> None:
        super().__init__(message)
        self.error, self.records = error, records or {}


class BatchValidator:
    """Checks batches against the format and the settings of their topic."""

    def __init__(self, context: Context, configs: TopicConfigs) -> None:
        self._context, self._configs = context, configs

    def validate(self, topic: str, batch: bytes, version: int) -> tuple[bytes, BatchHeader]:
        """Return the one batch of a Produce request of this version, as it is to be stored, and its header.

        Raises RefusedBatchError for anything that a reader could not decode, and for what the topic does not accept.
        """
        if version < RECORD_BATCHES_SINCE:
            batch = _up_converted(batch)
        batch, header = _only_batch(batch)
        if header.magic != MAGIC:
            raise RefusedBatchError(ErrorCode.INVALID_RECORD, "only record batch format v2 is accepted")
        self._check_size(topic, header)
        if not crc_valid(batch, 0, header):
            raise RefusedBatchError(ErrorCode.CORRUPT_MESSAGE)
        _check_header(header)
        _check_codec(header, version)
        scan = _scan(batch, header)
        is_create_time = self._configs.value(topic, "message.timestamp.type") == "CreateTime"
        self._check_records(topic, batch, header, scan, is_create_time=is_create_time)
        is_wrong = (
            header.max_timestamp != scan.largest_timestamp or header.timestamp_type is TimestampType.LOG_APPEND_TIME
        )
        if is_create_time and is_wrong:  # searches by time rely on it
            batch, header = _only_batch(with_create_time(batch, scan.largest_timestamp))
        codec = self._configs.value(topic, "compression.type")
        if codec != KEEP_PRODUCER_CODEC and header.compression is not CODECS[codec]:
            batch, header = _only_batch(recompressed(batch, CODECS[codec]))
            self._check_size(topic, header)
        return batch, header

    def _check_size(self, topic: str, header: BatchHeader) -> None:
        if header.size > self._configs.max_message_bytes(topic):
            raise RefusedBatchError(ErrorCode.MESSAGE_TOO_LARGE)

    def _check_records(
        self, topic: str, batch: bytes, header: BatchHeader, scan: Scan, *, is_create_time: bool
    ) -> None:
        """Check keys (KIP-467) and timestamps (KIP-937) of all records; a wrong timestamp gives the error its code."""
        keyless = scan.keyless if "compact" in self._configs.value(topic, "cleanup.policy") else ()
        times = self._wrong_timestamps(topic, batch, header, scan, is_create_time=is_create_time)
        wrong = times | dict.fromkeys(keyless, "a compacted topic needs a key in every record")
        if times.keys() - set(keyless):
            raise RefusedBatchError(ErrorCode.INVALID_TIMESTAMP, "timestamps are out of range", wrong)
        if wrong:
            raise RefusedBatchError(ErrorCode.INVALID_RECORD, "records have no key", wrong)

    def _wrong_timestamps(
        self, topic: str, batch: bytes, header: BatchHeader, scan: Scan, *, is_create_time: bool
    ) -> dict[int, str]:
        """Return which timestamps are too far from the broker's clock, or of a type that only a broker may set.

        -1 is no timestamp. With LogAppendTime the broker replaces all.
        """
        is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        before_ms, after_ms = self._configs.timestamp_limits_ms(topic)
        oldest, newest = self._context.now.wall_ms - before_ms, self._context.now.wall_ms + after_ms
        is_inside = oldest <= scan.smallest_timestamp and scan.largest_timestamp <= newest
        if not is_append_time and (is_inside or not is_create_time):
            return {}
        wrong: dict[int, str] = {}
        for index, record in enumerate(decode_records(batch)[1]):
            if is_create_time and record.timestamp != NO_TIMESTAMP:
                if not oldest <= record.timestamp <= newest:
                    wrong[index] = f"the timestamp must be between {oldest} and {newest}"
            elif is_append_time:
                wrong[index] = "only a broker may set the timestamp type LogAppendTime"
        return wrong


def _check_header(header: BatchHeader) -> None:
    for invalid, message in (
        (header.is_control, "clients may not write control batches"),
        (header.base_offset != 0, "the base offset of a produced batch must be 0"),
        (header.record_count < 1, "a batch must contain at least one record"),
        (header.record_count != header.last_offset_delta + 1, "record count and last offset delta disagree"),
        (header.producer_id >= 0 and header.base_sequence < 0, "a batch with a producer id needs a base sequence"),
        (header.producer_id < 0 and header.is_transactional, "a transactional batch needs a producer id"),
    ):
        if invalid:
            raise RefusedBatchError(ErrorCode.INVALID_RECORD, message)


def _check_codec(header: BatchHeader, version: int) -> None:
    codec = header.attributes & COMPRESSION_BITS
    if codec not in KNOWN_CODECS or (codec == Compression.ZSTD and version < ZSTD_SINCE):
        raise RefusedBatchError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec} in Produce version {version}")


def _scan(batch: bytes, header: BatchHeader) -> Scan:
    try:
        return scan_records(batch, header)
    except WireError as error:
        raise RefusedBatchError(ErrorCode.INVALID_RECORD, str(error)) from error


def _up_converted(message_set: bytes) -> bytes:
    """Convert the message set of an old client to a record batch (KIP-724)."""
    try:
        return up_convert(message_set)
    except WireError as error:
        raise RefusedBatchError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def _only_batch(data: bytes) -> tuple[bytes, BatchHeader]:
    """Return the one batch, without an incomplete one behind it (UnifiedLog.trimInvalidBytes), and its header."""
    try:
        headers = list(batch_headers(data))
    except WireError as error:
        raise RefusedBatchError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if len(headers) != 1:
        raise RefusedBatchError(ErrorCode.INVALID_RECORD, "expected exactly one record batch")
    ((_, header),) = headers
    return data[: header.size], header
