"""The compression codecs of record batches; the caller limits the decompressed size.

Java clients write snappy in xerial's framing (a header, then blocks with their sizes), others write raw snappy. This
module reads both and writes the framing. LZ4 uses the frame format. Java reads only frames with independent blocks, so
this module builds the frame itself; its header is constant, including the checksum.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final

import cramjam

from highwater.reference.wire.errors import CompressionError


class Compression(IntEnum):
    """The codec of a batch: bits 0 to 2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
"""The magic, the version, and the oldest compatible version."""
XERIAL_BLOCK: Final = 32 * 1024

LZ4_HEADER: Final = bytes.fromhex("04224d18 60 40 82")
"""Magic, flags (version 1, independent blocks, no checksums), block size (64 KiB), checksum of flags and block size."""
LZ4_BLOCK: Final = 64 * 1024
LZ4_STORED: Final = 0x80000000
"""A flag in a block's size: the block is not compressed."""

LZ4_DESCRIPTOR_END: Final = 6
"""The position of the checksum, after magic, flags and block size, if there is no content size."""
LZ4_CONTENT_SIZE: Final = 0x08
LZ4_DICTIONARY: Final = 0x01

ZSTD_LEVEL: Final = 3
FIRST_GUESS: Final = 4096
GROWTH: Final = 4


def compress(codec: Compression, data: bytes) -> bytes:
    return data if codec is Compression.NONE else _COMPRESS[codec](data)


def decompress(codec: Compression, data: bytes, max_bytes: int) -> bytes:
    """Decompress data. Raises `CompressionError` for invalid data, and for more than `max_bytes` of output."""
    if codec is not Compression.NONE:
        return _DECOMPRESS[codec](data, max_bytes)
    if len(data) > max_bytes:
        raise CompressionError(f"{len(data)} bytes exceed the maximum of {max_bytes}")
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


def fix_lz4_checksum(frame: bytes) -> bytes:
    """Return an LZ4 frame of a magic 0 message with a correct header checksum.

    Old Java clients included the frame's magic in the checksum (KAFKA-3160); both forms are accepted. Raises
    `CompressionError` for any other checksum.
    """
    if len(frame) < len(LZ4_HEADER) or frame[4] & LZ4_DICTIONARY:
        raise CompressionError(f"{len(frame)} bytes have no LZ4 frame header as Kafka writes it")
    end = LZ4_DESCRIPTOR_END + (8 if frame[4] & LZ4_CONTENT_SIZE else 0)
    correct, legacy = _lz4_checksum(frame[4:end]), _lz4_checksum(frame[:end])
    if end >= len(frame) or frame[end] not in {correct, legacy}:
        raise CompressionError("LZ4 frame header fails its checksum")
    return frame[:end] + bytes((correct,)) + frame[end + 1 :]


def legacy_lz4_checksum(frame: bytes) -> bytes:
    """Return an LZ4 frame with the header checksum that readers of magic 0 messages expect (KAFKA-3160)."""
    end = LZ4_DESCRIPTOR_END
    return frame[:end] + bytes((_lz4_checksum(frame[:end]),)) + frame[end + 1 :]


def _lz4_checksum(data: bytes) -> int:
    """Return the second byte of xxHash32 (seed 0) of fewer than 16 bytes, enough for a frame header."""
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
    """Return a decompressor that grows its buffer: the size is unknown, and an announced one is not trustworthy."""

    def unpack(data: bytes, max_bytes: int) -> bytes:
        capacity = min(max(FIRST_GUESS, GROWTH * len(data)), max_bytes)
        while True:
            out = bytearray(capacity)
            try:
                return bytes(memoryview(out)[: decompress_into(data, out)])
            except cramjam.DecompressionError as error:
                if capacity >= max_bytes or "failed to write whole buffer" not in str(error):
                    raise CompressionError(f"{error} (at most {max_bytes} bytes)") from error
            capacity = min(capacity * GROWTH, max_bytes)

    return unpack


def _snappy(data: bytes, max_bytes: int) -> bytes:
    if not data.startswith(XERIAL_MAGIC):
        return _raw_snappy(data, max_bytes)
    out = bytearray()
    position = len(XERIAL_HEADER)
    while position < len(data):
        end = position + 4 + int.from_bytes(data[position : position + 4], "big")
        if end > len(data):
            raise CompressionError(f"a snappy block ends at byte {end} of {len(data)}")
        out += _raw_snappy(data[position + 4 : end], max_bytes - len(out))
        position = end
    return bytes(out)


def _raw_snappy(data: bytes, max_bytes: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > max_bytes:
            raise CompressionError(f"a snappy block of {size} bytes exceeds the maximum of {max_bytes}")
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
