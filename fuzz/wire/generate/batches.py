"""Record batches that a broker must reject or survive: mutated headers, decompression bombs, nested message sets."""

import gzip
import random
import struct
from collections.abc import Callable
from functools import cache
from typing import Final
from zlib import crc32

import cramjam
from crc32c import crc32c

from highwater.reference.wire.compression import LZ4_HEADER, XERIAL_HEADER, Compression
from highwater.reference.wire.message_sets import build_message_set
from highwater.reference.wire.records import CRC_START, HEADER_SIZE, LENGTH_END, Record, build_batch

FIELDS: Final = {
    "base_offset": (0, 8), "batch_length": (8, 4), "leader_epoch": (12, 4), "magic": (16, 1), "crc": (17, 4),
    "attributes": (21, 2), "last_offset_delta": (23, 4), "base_timestamp": (27, 8), "max_timestamp": (35, 8),
    "producer_id": (43, 8), "producer_epoch": (51, 2), "base_sequence": (53, 4), "record_count": (57, 4),
}  # fmt: skip
"""Fields of a batch header with offset and width in bytes."""
PART_BYTES: Final = 16 * 1024 * 1024
PARTS: Final = 20
"""Decompressed size of a bomb in parts: more than any request needs, but harmless for the machine."""
NESTED: Final = 40
STAMP: Final = 1_700_000_000_000


def mutated_records(rng: random.Random) -> tuple[str, bytes]:
    """Return the name of the mutation and the mutated records."""
    kind = rng.random()
    if kind < 0.6:
        return header_field(rng)
    if kind < 0.92:
        return records_inside(rng) if rng.random() < 0.6 else nested(rng)
    name = rng.choice(list(BOMBS))
    return f"bomb {name}", bomb(name)


def batch(rng: random.Random) -> bytes:
    count = rng.choice((1, 2, 3))
    rows = [(STAMP + n, None, rng.randbytes(rng.choice((0, 10, 200))), ()) for n in range(count)]
    return build_batch(rows, compression=rng.choice(list(Compression)))


def header_field(rng: random.Random) -> tuple[str, bytes]:
    """Mutate one field of a batch header, with or without a new checksum."""
    mutated = bytearray(batch(rng))
    name = rng.choice(list(FIELDS))
    place, width = FIELDS[name]
    old = int.from_bytes(mutated[place : place + width], "big")
    top = 1 << (8 * width)
    value = rng.choice((top - 1, top // 2 - 1, top // 2, 0, old + 1, old - 1, rng.randrange(top))) % top
    mutated[place : place + width] = value.to_bytes(width, "big")
    has_valid_crc = rng.random() < 0.7 and name != "crc"
    return f"batch {name}", with_crc(mutated) if has_valid_crc else bytes(mutated)


def with_crc(data: bytearray) -> bytes:
    """Return the batch with a valid checksum."""
    struct.pack_into(">I", data, CRC_START - 4, crc32c(bytes(data[CRC_START:])))
    return bytes(data)


def records_inside(rng: random.Random) -> tuple[str, bytes]:
    """Mutate or cut the records of a batch with a valid header and checksum."""
    rows = [(STAMP, b"k", rng.randbytes(30), (("h", b"v"),))]
    mutated = bytearray(build_batch(rows))
    place = rng.randrange(HEADER_SIZE, len(mutated))
    mutated[place] = rng.choice((0xFF, 0x7F, 0x80, 0x01, 0x00))
    if rng.random() < 0.3:
        del mutated[place:]
        struct.pack_into(">i", mutated, 8, len(mutated) - LENGTH_END)
    return "batch records", with_crc(mutated)


def nested(rng: random.Random) -> tuple[str, bytes]:
    """Return nested message sets in magic 0 or 1, where only one level is allowed."""
    magic = rng.choice((0, 1))
    data = build_message_set([Record(0, STAMP, b"k", b"v")], magic)
    for _ in range(rng.choice((1, 2, NESTED))):
        covered = bytes((magic, Compression.GZIP)) + (struct.pack(">q", STAMP) if magic else b"")
        packed = gzip.compress(data, mtime=0)
        covered += struct.pack(">ii", -1, len(packed)) + packed
        data = struct.pack(">qiI", 0, 4 + len(covered), crc32(covered)) + covered
    return "batch nested", data


def bomb(name: str) -> bytes:
    """Return a small batch of one record that claims to be, or decompresses to, far more."""
    codec, payload = BOMBS[name]
    return _bomb(codec, payload)


@cache
def _bomb(codec: Compression, payload: Callable[[], bytes]) -> bytes:
    start = build_batch([(STAMP, None, b"", ())])[:HEADER_SIZE]
    mutated = bytearray(start + payload())
    struct.pack_into(">i", mutated, 8, len(mutated) - LENGTH_END)
    mutated[22] = codec
    return with_crc(mutated)


def _zeros_in_gzip() -> bytes:
    """Concatenated members are one stream, in gzip as in zstd, so a small buffer here gives a large output there."""
    return gzip.compress(bytes(PART_BYTES), mtime=0) * PARTS


def _zeros_in_zstd() -> bytes:
    return bytes(cramjam.zstd.compress(bytes(PART_BYTES), level=3)) * PARTS


def _claims_in_snappy() -> bytes:
    """Raw snappy begins with the size of its content (rskafka #141)."""
    return b"\xff\xff\xff\xff\x07" + b"\0" * 20


def _claims_in_xerial() -> bytes:
    block = _claims_in_snappy()
    return XERIAL_HEADER + len(block).to_bytes(4, "big") + block


def _zeros_in_lz4() -> bytes:
    """A frame of many equal blocks, each a run of one byte."""
    block = bytes(cramjam.lz4.compress_block(bytes(64 * 1024), store_size=False))
    return LZ4_HEADER + (len(block).to_bytes(4, "little") + block) * (PARTS * PART_BYTES // (64 * 1024)) + bytes(4)


BOMBS: Final[dict[str, tuple[Compression, Callable[[], bytes]]]] = {
    "gzip": (Compression.GZIP, _zeros_in_gzip),
    "zstd": (Compression.ZSTD, _zeros_in_zstd),
    "snappy": (Compression.SNAPPY, _claims_in_snappy),
    "xerial": (Compression.SNAPPY, _claims_in_xerial),
    "lz4": (Compression.LZ4, _zeros_in_lz4),
}
