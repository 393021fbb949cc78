"""Record batches as constructs: the slow and plain oracle of `records`."""

from io import BytesIO
from typing import Any, Final

import construct
from construct import this


class Zigzag(construct.Adapter):  # type: ignore[misc] # construct has no annotations
    """construct's own varint is unsigned; records have signed ones."""

    def _decode(self, raw: int, context: Any, path: str) -> int:
        return raw // 2 if raw % 2 == 0 else -(raw + 1) // 2

    def _encode(self, value: int, context: Any, path: str) -> int:
        return value * 2 if value >= 0 else -value * 2 - 1


VARINT: Final = Zigzag(construct.VarInt)


class Nullable(construct.Adapter):  # type: ignore[misc]
    """Bytes behind their length, -1 for null."""

    def _decode(self, parsed: Any, context: Any, path: str) -> bytes | None:
        return None if parsed.length == -1 else parsed.data or b""

    def _encode(self, value: bytes | None, context: Any, path: str) -> dict[str, Any]:
        return {"length": -1 if value is None else len(value), "data": value or b""}


BYTES: Final = Nullable(
    construct.Struct("length" / VARINT, "data" / construct.If(this.length > 0, construct.Bytes(this.length)))
)

RECORD_BODY: Final = construct.Struct(
    "attributes" / construct.Int8sb,
    "timestamp_delta" / VARINT,
    "offset_delta" / VARINT,
    "key" / BYTES,
    "value" / BYTES,
    "header_count" / VARINT,
    "headers" / construct.Array(this.header_count, construct.Struct("key" / BYTES, "value" / BYTES)),
    construct.Terminated,
)

BATCH: Final = construct.Struct(
    "base_offset" / construct.Int64sb,
    "batch_length" / construct.Int32sb,
    "partition_leader_epoch" / construct.Int32sb,
    "magic" / construct.Const(2, construct.Int8sb),
    "crc" / construct.Int32ub,
    "attributes" / construct.Int16sb,
    "last_offset_delta" / construct.Int32sb,
    "base_timestamp" / construct.Int64sb,
    "max_timestamp" / construct.Int64sb,
    "producer_id" / construct.Int64sb,
    "producer_epoch" / construct.Int16sb,
    "base_sequence" / construct.Int32sb,
    "record_count" / construct.Int32sb,
    "payload" / construct.Bytes(this.batch_length - 49),
    construct.Terminated,
)


def records(payload: bytes) -> list[Any]:
    """The records of a payload that is not compressed."""
    stream = BytesIO(payload)
    found = []
    while stream.tell() < len(payload):
        length = VARINT.parse_stream(stream)
        found.append(RECORD_BODY.parse(stream.read(length)))
    return found


def record(**fields: Any) -> bytes:
    body = RECORD_BODY.build(fields | {"header_count": len(fields["headers"])})
    length: bytes = VARINT.build(len(body))
    data: bytes = body
    return length + data
