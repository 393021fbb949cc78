"""The codecs of record batches, bounded: nothing decompresses to more than the caller accepts.

Java clients write snappy in xerial's framing (a header, then blocks behind their sizes), others write it raw; both are
read, the framing is written. LZ4 is the frame format, but Java reads only frames of independent blocks, so the frame
is put together here; its header has constant fields and therefore a constant checksum.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final

import cramjam

from highwater.reference.wire.errors import CompressionError


class Compression(IntEnum):
    """Bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
"""The magic, the version written and the oldest version that can read it."""
XERIAL_BLOCK: Final = 32 * 1024

LZ4_HEADER: Final = bytes.fromhex("04224d18 60 40 82")
"""Magic, flags (version 1, independent blocks, no checksums), blocks of at most 64 KiB, checksum of the two."""
LZ4_BLOCK: Final = 64 * 1024
LZ4_STORED: Final = 0x80000000
"""In a block's size: the block is not compressed."""

LZ4_DESCRIPTOR_END: Final = 6
"""Behind magic, flags and block size: where the checksum stands, unless a content size comes first."""
LZ4_CONTENT_SIZE: Final = 0x08
LZ4_DICTIONARY: Final = 0x01

ZSTD_LEVEL: Final = 3
FIRST_GUESS: Final = 4096
GROWTH: Final = 4


def compress(codec: Compression, data: bytes) -> bytes:
    return data if codec is Compression.NONE else _COMPRESS[codec](data)


def decompress(codec: Compression, data: bytes, max_bytes: int) -> bytes:
    """Raises `CompressionError` for bad data, and for more than `max_bytes` of good data."""
    if codec is not Compression.NONE:
        return _DECOMPRESS[codec](data, max_bytes)
    if len(data) > max_bytes:
        raise CompressionError(f"{len(data)} bytes; {max_bytes} is the most")
    return data


def _gzip(data: bytes) -> bytes:
    return bytes(cramjam.gzip.compress(data))


def _zstd(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL))


def _xerial(data: bytes) -> bytes:
    blocks = (bytes(cramjam.snappy.compress_raw(block)) for block in _split(data, XERIAL_BLOCK))
    return XERIAL_HEADER + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)


def _lz4_frame(data: bytes) -> bytes:
    return LZ4_HEADER + b"".join(map(_lz4_block, _split(data, LZ4_BLOCK))) + bytes(4)


def _lz4_block(block: bytes) -> bytes:
    packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
    if len(packed) < len(block):
        return len(packed).to_bytes(4, "little") + packed
    return (LZ4_STORED | len(block)).to_bytes(4, "little") + block


def mend_lz4(frame: bytes) -> bytes:
    """A frame of magic 0 with the checksum that it should have: Java's once covered the frame's magic too (KAFKA-3160).

    Both are read. Raises `CompressionError` for a header whose checksum is neither.
    """
    if len(frame) < len(LZ4_HEADER) or frame[4] & LZ4_DICTIONARY:
        raise CompressionError(f"{len(frame)} bytes hold no LZ4 frame header that Kafka writes")
    end = LZ4_DESCRIPTOR_END + (8 if frame[4] & LZ4_CONTENT_SIZE else 0)
    right, broken = _lz4_checksum(frame[4:end]), _lz4_checksum(frame[:end])
    if end >= len(frame) or frame[end] not in {right, broken}:
        raise CompressionError("LZ4 frame header fails its checksum")
    return frame[:end] + bytes((right,)) + frame[end + 1 :]


def spoil_lz4(frame: bytes) -> bytes:
    """A frame of ours as a reader of magic 0 wants it, with the checksum over too much (KAFKA-3160)."""
    end = LZ4_DESCRIPTOR_END
    return frame[:end] + bytes((_lz4_checksum(frame[:end]),)) + frame[end + 1 :]


def _lz4_checksum(data: bytes) -> int:
    """The second byte of xxHash (32 bits, seed 0) of fewer than 16 bytes: all that a frame header has."""
    mask = 0xFFFFFFFF
    value = 0x165667B1 + len(data) & mask
    position = 0
    while position + 4 <= len(data):
        word = int.from_bytes(data[position : position + 4], "little")
        value = _rotate(value + word * 0xC2B2AE3D & mask, 17) * 0x27D4EB2F & mask
        position += 4
    for byte in data[position:]:
        value = _rotate(value + byte * 0x165667B1 & mask, 11) * 0x9E3779B1 & mask
    for shift, prime in ((15, 0x85EBCA77), (13, 0xC2B2AE3D)):
        value = (value ^ value >> shift) * prime & mask
    return (value ^ value >> 16) >> 8 & 0xFF


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & 0xFFFFFFFF


def _split(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def _growing(decompress_into: Callable[[bytes, bytearray], int]) -> Callable[[bytes, int], bytes]:
    """The size is not known beforehand and a hostile one not to be trusted: try a small buffer, then larger ones."""

    def unpack(data: bytes, max_bytes: int) -> bytes:
        room = min(max(FIRST_GUESS, GROWTH * len(data)), max_bytes)
        while True:
            out = bytearray(room)
            try:
                return bytes(memoryview(out)[: decompress_into(data, out)])
            except cramjam.DecompressionError as error:
                if room >= max_bytes or "failed to write whole buffer" not in str(error):
                    raise CompressionError(f"{error} (at most {max_bytes} bytes)") from error
            room = min(room * GROWTH, max_bytes)

    return unpack


def _snappy(data: bytes, max_bytes: int) -> bytes:
    if not data.startswith(XERIAL_MAGIC):
        return _raw_snappy(data, max_bytes)
    out = bytearray()
    position = len(XERIAL_HEADER)
    while position < len(data):
        end = position + 4 + int.from_bytes(data[position : position + 4], "big")
        if end > len(data):
            raise CompressionError(f"snappy block that ends at byte {end} of {len(data)}")
        out += _raw_snappy(data[position + 4 : end], max_bytes - len(out))
        position = end
    return bytes(out)


def _raw_snappy(data: bytes, max_bytes: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > max_bytes:
            raise CompressionError(f"snappy block of {size} bytes where {max_bytes} is the most")
        out = bytearray(size)
        return bytes(memoryview(out)[: cramjam.snappy.decompress_raw_into(data, out)])
    except cramjam.DecompressionError as error:
        raise CompressionError(str(error)) from error


_COMPRESS: Final[dict[Compression, Callable[[bytes], bytes]]] = {
    Compression.GZIP: _gzip,
    Compression.SNAPPY: _xerial,
    Compression.LZ4: _lz4_frame,
    Compression.ZSTD: _zstd,
}

_DECOMPRESS: Final[dict[Compression, Callable[[bytes, int], bytes]]] = {
    Compression.GZIP: _growing(cramjam.gzip.decompress_into),
    Compression.SNAPPY: _snappy,
    Compression.LZ4: _growing(cramjam.lz4.decompress_into),
    Compression.ZSTD: _growing(cramjam.zstd.decompress_into),
}
