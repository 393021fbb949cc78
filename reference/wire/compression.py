"""The codecs of record batches, bounded: nothing decompresses to more than the caller accepts.

Java clients write snappy in xerial's framing (a header, then blocks behind their sizes), others write it raw; both are
read, the framing is written. LZ4 is the frame format, but Java reads only frames of independent blocks, so the frame
is put together here; its header has constant fields and therefore a constant checksum.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final

import cramjam

from reference.wire.errors import CompressionError


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
