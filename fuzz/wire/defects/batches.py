"""Defects in the handling of record batches in Produce requests."""

import gzip
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import cramjam

from highwater.fuzz.wire.defects.harm import ALLOCATION_MAX, allocate, crash, read
from highwater.reference.wire.compression import XERIAL_HEADER, Compression
from highwater.reference.wire.errors import DecodeError
from highwater.reference.wire.framing import encode_request
from highwater.reference.wire.messages.produce import PartitionProduceData, ProduceRequest
from highwater.reference.wire.readers import read_uvarint
from highwater.reference.wire.records import (
    CRC_START,
    HEADER_SIZE,
    LENGTH_END,
    BatchHeader,
    build_batch,
    crc_valid,
    decode_records,
    read_batch_header,
)

PRODUCE: Final = 0
MESSAGE_START: Final = 18
"""Size of the fields before a message's timestamp or key: offset, size, checksum, magic and attributes."""
STACK_LEVELS: Final = 8


def negative_batch(frame: bytes) -> bytes:
    for records in _record_sets(frame):
        if len(records) >= LENGTH_END and struct.unpack_from(">i", records, 8)[0] < 0:
            crash("makeslice: len out of range at record_batch.go:63")
    return frame


def snappy_claim(frame: bytes) -> bytes:
    for records in _record_sets(frame):
        header = _batch(records)
        if header is not None and header.attributes & 7 == Compression.SNAPPY:
            payload = records[HEADER_SIZE:]
            if payload.startswith(XERIAL_HEADER):
                payload = payload[len(XERIAL_HEADER) + 4 :]
            try:
                allocate(read_uvarint(payload, 0)[0])
            except (DecodeError, IndexError):
                continue
    return frame


def gzip_bomb(frame: bytes) -> bytes:
    """Decompress gzip without a limit on the output size."""
    for records in _record_sets(frame):
        header = _batch(records)
        if header is not None and header.attributes & 7 == Compression.GZIP:
            rest, size = records[HEADER_SIZE:], 0
            try:
                while rest and size < ALLOCATION_MAX:
                    inflate = zlib.decompressobj(31)
                    size += len(inflate.decompress(rest))
                    rest = inflate.unused_data
            except zlib.error:
                continue
            allocate(size)
    return frame


def zstd_bomb(frame: bytes) -> bytes:
    """Decompress zstd without a limit on the output size."""
    for records in _record_sets(frame):
        header = _batch(records)
        if header is not None and header.attributes & 7 == Compression.ZSTD:
            try:
                allocate(len(cramjam.zstd.decompress(records[HEADER_SIZE:])))
            except cramjam.DecompressionError:
                continue
    return frame


def nested_sets(frame: bytes) -> bytes:
    """Read nested message sets by recursion; crash at more than STACK_LEVELS levels."""
    for records in _record_sets(frame):
        depth = 0
        inner: bytes | None = records
        while inner is not None and depth <= STACK_LEVELS:
            depth, inner = depth + 1, _inner_set(inner)
        if depth > STACK_LEVELS:
            crash("stack overflow at message_set.go:140")
    return frame


def _inner_set(records: bytes) -> bytes | None:
    """Return the decompressed message set in the first message, or None if it has none."""
    if len(records) < MESSAGE_START or records[16] > 1 or not records[17] & 7:
        return None
    start = MESSAGE_START + 8 * records[16]
    try:
        return gzip.decompress(records[start + 8 :])
    except (OSError, EOFError, zlib.error):
        return None


def last_record(frame: bytes) -> bytes:
    """Acknowledge a batch, but drop its last record before the append."""

    def without(part: PartitionProduceData) -> PartitionProduceData:
        header = _batch(part.records or b"")
        if header is None or header.record_count < 2 or header.producer_id >= 0:
            return part
        try:
            rows = decode_records(part.records or b"")[1][:-1]
        except DecodeError:
            return part
        return replace(part, records=build_batch([(r.timestamp, r.key, r.value, r.headers) for r in rows]))

    return _with_parts(frame, without)


def offset_delta(frame: bytes) -> bytes:
    """Accept a batch whose last offset delta contradicts its record count (KAFKA-6554), by repairing it."""
    return _with_batches(frame, lambda records, header: header.last_offset_delta != header.record_count - 1)


def checksum(frame: bytes) -> bytes:
    return _with_batches(frame, lambda records, header: not crc_valid(records, 0, header))


def crafted_transaction(frame: bytes) -> bytes:
    """Accept transactional batches in a request without a transactional id (CVE-2018-17196)."""
    request = read(frame, PRODUCE)
    if request is None or request[1].transactional_id is not None:
        return frame
    return _with_batches(frame, lambda records, header: header.is_transactional)


def _with_batches(frame: bytes, is_invalid: Callable[[bytes, BatchHeader], bool]) -> bytes:
    """Return the request with every invalid batch replaced by a valid one, so that the broker accepts it."""

    def repaired(part: PartitionProduceData) -> PartitionProduceData:
        header = _batch(part.records or b"")
        if header is None or not is_invalid(part.records or b"", header):
            return part
        return replace(part, records=build_batch([(header.base_timestamp, None, b"repaired", ())]))

    return _with_parts(frame, repaired)


def sequence_numbers(frame: bytes) -> bytes:
    """Remove the producer id before the append, so that the broker does not detect duplicates."""

    def without(part: PartitionProduceData) -> PartitionProduceData:
        header = _batch(part.records or b"")
        if header is None or header.producer_id < 0 or header.is_transactional:
            return part
        try:
            rows = decode_records(part.records or b"")[1]
        except DecodeError:
            return part
        return replace(part, records=build_batch([(r.timestamp, r.key, r.value, r.headers) for r in rows]))

    return _with_parts(frame, without)


def _with_parts(frame: bytes, change: Callable[[PartitionProduceData], PartitionProduceData]) -> bytes:
    request = read(frame, PRODUCE)
    if request is None:
        return frame
    header, body = request
    topics = tuple(
        replace(topic, partition_data=tuple(change(part) for part in topic.partition_data)) for topic in body.topic_data
    )
    changed: ProduceRequest = replace(body, topic_data=topics)
    if changed == body:
        return frame
    return encode_request(changed, header.api_version, header.correlation_id, header.client_id)[4:]


def _record_sets(frame: bytes) -> list[bytes]:
    request = read(frame, PRODUCE)
    if request is None:
        return []
    return [part.records or b"" for topic in request[1].topic_data for part in topic.partition_data]


def _batch(records: bytes) -> BatchHeader | None:
    try:
        return read_batch_header(records) if len(records) > CRC_START else None
    except DecodeError:
        return None
