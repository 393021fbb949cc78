"""Defects in how a request is taken: each gets the frame, and gives the frame that the broker goes on with."""

import os
import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NoReturn

import construct

from reference.wire.codec import decode_prefix
from reference.wire.compression import XERIAL_HEADER, Compression
from reference.wire.described import struct_of
from reference.wire.errors import DecodeError
from reference.wire.framing import RequestHeader, decode_request_header, encode_request
from reference.wire.messages.produce import PartitionProduceData, ProduceRequest
from reference.wire.primitives import Site, whole
from reference.wire.readers import read_uvarint
from reference.wire.records import (
    CRC_START,
    HEADER_SIZE,
    LENGTH_END,
    BatchHeader,
    build_batch,
    crc_valid,
    decode_records,
    read_batch_header,
)
from reference.wire.registry import APIS, api_of_key
from reference.wire.schema import message_layout

PRODUCE, FETCH, JOIN_GROUP, FIND_COORDINATOR = 0, 1, 11, 10
ABORTED: Final = 134
ELEMENT_BYTES: Final = 16
HELD_MAX: Final = 400 * 1024 * 1024
"""Enough to be seen, and no danger for the machine."""
MANY, HUGE = 1 << 16, 1 << 24
GZIP_CHUNK: Final = 1 << 20
Take = Callable[[bytes], bytes | None]
"""None: the request is never answered."""


def die(why: str) -> NoReturn:
    """As a process ends that panics, asserts or cannot allocate."""
    print(f"panic: {why}", file=sys.stderr, flush=True)
    os._exit(ABORTED)


def hold(size: int) -> None:
    """Take memory, and write to it, for a moment."""
    taken = b"\x01" * min(max(size, 0), HELD_MAX)
    del taken


# -- lengths and counts that are trusted -------------------------------------------------------------


def collection_length(frame: bytes) -> bytes:
    kind, value = _stumbling_block(frame)
    if kind == "count" and value > MANY:
        hold(value * ELEMENT_BYTES)
    return frame


def join_group_collection(frame: bytes) -> bytes:
    return collection_length(frame) if _key(frame) == JOIN_GROUP else frame


def string_length(frame: bytes) -> bytes:
    kind, value = _stumbling_block(frame)
    if kind == "length" and value > HUGE:
        die(f"std::bad_alloc of {value} bytes at decoder.cc:210")
    return frame


def negative_length(frame: bytes) -> bytes:
    kind, value = _stumbling_block(frame)
    if kind in {"length", "count"} and value < -1:
        die("makeslice: len out of range at reader.go:77")
    return frame


def tag_section(frame: bytes) -> bytes:
    kind, _ = _stumbling_block(frame)
    if kind == "tag":
        die("slice bounds out of range at real_flexible_decoder.go:41")
    return frame


def _stumbling_block(frame: bytes) -> tuple[str, int]:
    """Kind and value of the site at which strict decoding ends; ("", 0) for a sound request."""
    found: list[Site] = []
    try:
        header, start = decode_request_header(frame)
        api = api_of_key(header.api_key)
        body = frame[start:]
        whole(struct_of(message_layout(api.request, header.api_version)), body, "request", sites=found)
    except (DecodeError, construct.ConstructError):
        if found:
            return found[-1].kind, _value(body, found[-1], flexible=api.is_flexible(header.api_version))
    return "", 0


def _value(body: bytes, site: Site, *, flexible: bool) -> int:
    if flexible and site.kind in {"length", "count"}:
        return read_uvarint(body, site.start)[0] - 1
    return int.from_bytes(body[site.start : site.end], "big", signed=True)


# -- requests that a handler does not expect ---------------------------------------------------------


def fetch_of_topics(frame: bytes) -> bytes:
    request = _read(frame)
    if request is not None and request[0].api_key == FETCH and len(request[1].topics) > 1:
        die("Assertion `topics.size() == 1' failed at fetch.cc:180")
    return frame


def unknown_coordinator(frame: bytes) -> bytes | None:
    request = _read(frame)
    if request is not None and request[0].api_key == FIND_COORDINATOR and request[1].key_type > 1:
        return None
    return frame


def unknown_tag(frame: bytes) -> bytes:
    """A reader that knows no tags beyond its own reads them as what comes next."""
    try:
        header, _ = decode_request_header(frame)
    except DecodeError:
        return frame
    if header.tags:
        raise DecodeError("tags in the header")
    return frame


# -- record batches ----------------------------------------------------------------------------------


def negative_batch(frame: bytes) -> bytes:
    for records in _record_sets(frame):
        if len(records) >= LENGTH_END and struct.unpack_from(">i", records, 8)[0] < 0:
            die("makeslice: len out of range at record_batch.go:63")
    return frame


def snappy_claim(frame: bytes) -> bytes:
    for records in _record_sets(frame):
        header = _batch(records)
        if header is not None and header.attributes & 7 == Compression.SNAPPY:
            payload = records[HEADER_SIZE:]
            if payload.startswith(XERIAL_HEADER):
                payload = payload[len(XERIAL_HEADER) + 4 :]
            try:
                hold(read_uvarint(payload, 0)[0])
            except (DecodeError, IndexError):
                continue
    return frame


def gzip_bomb(frame: bytes) -> bytes:
    """Inflates whatever comes, as far as the machine allows."""
    import zlib

    for records in _record_sets(frame):
        header = _batch(records)
        if header is not None and header.attributes & 7 == Compression.GZIP:
            rest, size = records[HEADER_SIZE:], 0
            try:
                while rest and size < HELD_MAX:
                    inflate = zlib.decompressobj(31)
                    size += len(inflate.decompress(rest))
                    rest = inflate.unused_data
            except zlib.error:
                continue
            hold(size)
    return frame


def offset_delta(frame: bytes) -> bytes:
    """A batch that contradicts itself is stored as it says (KAFKA-6554); here it is put right, and so taken."""
    return _with_batches(frame, lambda records, header: header.last_offset_delta != header.record_count - 1)


def checksum(frame: bytes) -> bytes:
    return _with_batches(frame, lambda records, header: not crc_valid(records, 0, header))


def crafted_transaction(frame: bytes) -> bytes:
    """Only a request that names a transaction is held to its rules (CVE-2018-17196); others are taken as they come."""
    request = _read(frame)
    if request is None or request[0].api_key != PRODUCE or request[1].transactional_id is not None:
        return frame
    return _with_batches(frame, lambda records, header: header.is_transactional)


def _with_batches(frame: bytes, is_wrong: Callable[[bytes, BatchHeader], bool]) -> bytes:
    """The same request with sound batches in place of wrong ones."""

    def mended(part: PartitionProduceData) -> PartitionProduceData:
        header = _batch(part.records or b"")
        if header is None or not is_wrong(part.records or b"", header):
            return part
        return replace(part, records=build_batch([(header.base_timestamp, None, b"mended", ())]))

    return _with_parts(frame, mended)


def sequence_numbers(frame: bytes) -> bytes:
    """The producer's id is lost on the way to the log, and with it the memory of what it sent."""

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
    request = _read(frame)
    if request is None or request[0].api_key != PRODUCE:
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
    request = _read(frame)
    if request is None or request[0].api_key != PRODUCE:
        return []
    return [part.records or b"" for topic in request[1].topic_data for part in topic.partition_data]


def _batch(records: bytes) -> BatchHeader | None:
    try:
        return read_batch_header(records) if len(records) > CRC_START else None
    except DecodeError:
        return None


def _key(frame: bytes) -> int:
    return int.from_bytes(frame[:2], "big", signed=True)


def _read(frame: bytes) -> tuple[RequestHeader, Any] | None:
    try:
        header, start = decode_request_header(frame)
        return header, decode_prefix(APIS[header.api_key].request, header.api_version, frame, start)[0]
    except DecodeError:
        return None
