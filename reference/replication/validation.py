"""Validate a produced batch before it is appended: what is stored can be read, compacted, searched and replicated.

Apache Kafka: LogValidator, UnifiedLog.analyzeAndValidateRecords. v0-2 of Produce carry message sets; the broker
converts them to record batches.
"""

from collections.abc import Sequence
from typing import Final

from highwater.reference.configuration.topics import TopicConfigs
from highwater.reference.context import Context
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.errors import ErrorCode, WireError
from highwater.reference.wire.log_entries import up_convert
from highwater.reference.wire.record_scan import Scan, scan_records
from highwater.reference.wire.records import (
    COMPRESSION_BITS,
    LENGTH_END,
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
    """The batch is rejected with an error code; `records` are the indexes of the invalid records, if known."""

    def __init__(self, error: ErrorCode, message: str = "", records: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.error, self.records = error, records


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
        header = _only_header(batch)
        if header.magic != MAGIC:
            raise RefusedBatchError(ErrorCode.INVALID_RECORD, "only record batch format v2 is accepted")
        if header.batch_length + LENGTH_END > self._configs.max_message_bytes(topic):
            raise RefusedBatchError(ErrorCode.MESSAGE_TOO_LARGE)
        if not crc_valid(batch, 0, header):
            raise RefusedBatchError(ErrorCode.CORRUPT_MESSAGE)
        _check_header(header)
        _check_codec(header, version)
        scan = _scan(batch, header)
        self._check_keys(topic, scan)
        if self._configs.value(topic, "message.timestamp.type") == "CreateTime":
            self._check_timestamps(topic, batch, scan)
            if header.max_timestamp != scan.largest_timestamp or header.timestamp_type is not TimestampType.CREATE_TIME:
                batch = with_create_time(batch, scan.largest_timestamp)  # searches by time rely on it
                header = _only_header(batch)
        codec = self._configs.value(topic, "compression.type")
        return (batch, header) if codec == KEEP_PRODUCER_CODEC else _recompress(batch, header, CODECS[codec])

    def _check_keys(self, topic: str, scan: Scan) -> None:
        """Check that every record of a compacted topic has a key (KIP-467)."""
        if scan.keyless and "compact" in self._configs.value(topic, "cleanup.policy"):
            raise RefusedBatchError(
                ErrorCode.INVALID_RECORD, "a compacted topic needs a key in every record", scan.keyless
            )

    def _check_timestamps(self, topic: str, batch: bytes, scan: Scan) -> None:
        """Check that no timestamp is too far from the broker's clock (KIP-937); -1 is no timestamp."""
        before_ms, after_ms = self._configs.timestamp_limits_ms(topic)
        oldest, newest = self._context.now.wall_ms - before_ms, self._context.now.wall_ms + after_ms
        if oldest <= scan.smallest_timestamp and scan.largest_timestamp <= newest:
            return
        times = [record.timestamp for record in decode_records(batch)[1]]
        outside = [i for i, at in enumerate(times) if at != NO_TIMESTAMP and not oldest <= at <= newest]
        if outside:
            raise RefusedBatchError(
                ErrorCode.INVALID_TIMESTAMP, f"timestamps must be between {oldest} and {newest}", outside
            )


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


def _recompress(batch: bytes, header: BatchHeader, codec: Compression) -> tuple[bytes, BatchHeader]:
    """Return the batch compressed with the codec of the topic (`compression.type`)."""
    if header.compression is codec:
        return batch, header
    stored = recompressed(batch, codec)
    return stored, _only_header(stored)


def _up_converted(message_set: bytes) -> bytes:
    """Convert the message set of an old client to a record batch (KIP-724)."""
    try:
        return up_convert(message_set)
    except WireError as error:
        raise RefusedBatchError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def _only_header(batch: bytes) -> BatchHeader:
    try:
        headers = list(batch_headers(batch))
    except WireError as error:
        raise RefusedBatchError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if len(headers) != 1:
        raise RefusedBatchError(ErrorCode.INVALID_RECORD, "expected exactly one record batch")
    position, header = headers[0]
    if position or header.size != len(batch):
        raise RefusedBatchError(ErrorCode.CORRUPT_MESSAGE, "bytes after the record batch")
    return header
