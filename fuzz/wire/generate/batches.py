"""Records that a broker must refuse, or survive: spoiled batch headers, decompression bombs, nested message sets."""

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
"""Of a batch header: place and width."""
PART_BYTES: Final = 16 * 1024 * 1024
PARTS: Final = 20
"""What a bomb bursts into: more than a broker needs for any request of ours, less than hurts the machine."""
NESTED: Final = 40
STAMP: Final = 1_700_000_000_000


def spoiled_records(chance: random.Random) -> tuple[str, bytes]:
    """What is wrong, and the records."""
    kind = chance.random()
    if kind < 0.6:
        return header_field(chance)
    if kind < 0.92:
        return records_inside(chance) if chance.random() < 0.6 else nested(chance)
    name = chance.choice(list(BOMBS))
    return f"bomb {name}", bomb(name)


def batch(chance: random.Random) -> bytes:
    count = chance.choice((1, 2, 3))
    rows = [(STAMP + n, None, chance.randbytes(chance.choice((0, 10, 200))), ()) for n in range(count)]
    return build_batch(rows, compression=chance.choice(list(Compression)))


def header_field(chance: random.Random) -> tuple[str, bytes]:
    """One field of a batch header, with or without a checksum that fits again."""
    spoiled = bytearray(batch(chance))
    name = chance.choice(list(FIELDS))
    place, width = FIELDS[name]
    old = int.from_bytes(spoiled[place : place + width], "big")
    top = 1 << (8 * width)
    value = chance.choice((top - 1, top // 2 - 1, top // 2, 0, old + 1, old - 1, chance.randrange(top))) % top
    spoiled[place : place + width] = value.to_bytes(width, "big")
    mended = chance.random() < 0.7 and name != "crc"
    return f"batch {name}", sealed(spoiled) if mended else bytes(spoiled)


def sealed(data: bytearray) -> bytes:
    """With a checksum that fits."""
    struct.pack_into(">I", data, CRC_START - 4, crc32c(bytes(data[CRC_START:])))
    return bytes(data)


def records_inside(chance: random.Random) -> tuple[str, bytes]:
    """The header is right and the checksum fits; the records behind it are junk, cut, or too many."""
    rows = [(STAMP, b"k", chance.randbytes(30), (("h", b"v"),))]
    spoiled = bytearray(build_batch(rows))
    place = chance.randrange(HEADER_SIZE, len(spoiled))
    spoiled[place] = chance.choice((0xFF, 0x7F, 0x80, 0x01, 0x00))
    if chance.random() < 0.3:
        del spoiled[place:]
        struct.pack_into(">i", spoiled, 8, len(spoiled) - LENGTH_END)
    return "batch records", sealed(spoiled)


def nested(chance: random.Random) -> tuple[str, bytes]:
    """A message set within a message set, many times over, in magic 0 or 1 (no more than one level is allowed)."""
    magic = chance.choice((0, 1))
    data = build_message_set([Record(0, STAMP, b"k", b"v")], magic)
    for _ in range(chance.choice((1, 2, NESTED))):
        covered = bytes((magic, Compression.GZIP)) + (struct.pack(">q", STAMP) if magic else b"")
        packed = gzip.compress(data, mtime=0)
        covered += struct.pack(">ii", -1, len(packed)) + packed
        data = struct.pack(">qiI", 0, 4 + len(covered), crc32(covered)) + covered
    return "batch nested", data


def bomb(name: str) -> bytes:
    """A batch of one record in few bytes that says it is, or becomes, far more."""
    codec, payload = BOMBS[name]
    return _bomb(codec, payload)


@cache
def _bomb(codec: Compression, payload: Callable[[], bytes]) -> bytes:
    start = build_batch([(STAMP, None, b"", ())])[:HEADER_SIZE]
    spoiled = bytearray(start + payload())
    struct.pack_into(">i", spoiled, 8, len(spoiled) - LENGTH_END)
    spoiled[22] = codec
    return sealed(spoiled)


def _zeros_in_gzip() -> bytes:
    """Members behind one another are one stream, in gzip as in zstd; so little is held here to make much there."""
    return gzip.compress(bytes(PART_BYTES), mtime=0) * PARTS


def _zeros_in_zstd() -> bytes:
    return bytes(cramjam.zstd.compress(bytes(PART_BYTES), level=3)) * PARTS


def _claims_in_snappy() -> bytes:
    """Raw snappy begins with the size of what it holds (rskafka #141)."""
    return b"\xff\xff\xff\xff\x07" + b"\0" * 20


def _claims_in_xerial() -> bytes:
    block = _claims_in_snappy()
    return XERIAL_HEADER + len(block).to_bytes(4, "big") + block


def _zeros_in_lz4() -> bytes:
    """A frame of one stored size and blocks that repeat one byte."""
    block = bytes(cramjam.lz4.compress_block(bytes(64 * 1024), store_size=False))
    return LZ4_HEADER + (len(block).to_bytes(4, "little") + block) * (PARTS * PART_BYTES // (64 * 1024)) + bytes(4)


BOMBS: Final[dict[str, tuple[Compression, Callable[[], bytes]]]] = {
    "gzip": (Compression.GZIP, _zeros_in_gzip),
    "zstd": (Compression.ZSTD, _zeros_in_zstd),
    "snappy": (Compression.SNAPPY, _claims_in_snappy),
    "xerial": (Compression.SNAPPY, _claims_in_xerial),
    "lz4": (Compression.LZ4, _zeros_in_lz4),
}
