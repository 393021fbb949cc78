"""The codecs: exchange with other libraries, and limits on decompressed size."""

import gzip

import cramjam
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from highwater.reference.tests.wire.cases import QUICK
from highwater.reference.wire.compression import (
    LZ4_BLOCK,
    XERIAL_BLOCK,
    XERIAL_HEADER,
    Compression,
    compress,
    decompress,
)
from highwater.reference.wire.errors import CompressionError

PACKED = [codec for codec in Compression if codec is not Compression.NONE]
BIG = b"".join(number.to_bytes(4, "big") for number in range(60_000))
SAMPLES = [b"", b"a", BIG, bytes(300_000), bytes(XERIAL_BLOCK), bytes(LZ4_BLOCK), bytes(LZ4_BLOCK + 1)]


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_round_trip(codec: Compression, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", Compression)
@given(data=st.binary(max_size=500))
@QUICK
def test_round_trip_of_arbitrary_bytes(codec: Compression, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), 500) == data


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("data", [b"a", BIG, bytes(300_000)], ids=len)
def test_one_byte_over_the_limit_is_refused(codec: Compression, data: bytes) -> None:
    with pytest.raises(CompressionError):
        decompress(codec, compress(codec, data), len(data) - 1)


@pytest.mark.parametrize("codec", PACKED)
def test_truncated_and_invalid_input_is_refused(codec: Compression) -> None:
    packed = compress(codec, BIG)
    for bad in (packed[: len(packed) // 2], packed[:-1], b"nonsense that no codec wrote", b"\xff" * 40):
        with pytest.raises(CompressionError):
            decompress(codec, bad, 1 << 20)


@pytest.mark.parametrize(
    ("codec", "name"), [(Compression.LZ4, "lz4"), (Compression.ZSTD, "zstd"), (Compression.GZIP, "gzip")]
)
@pytest.mark.parametrize("data", [b"a", BIG, bytes(300_000)], ids=len)
def test_compressed_data_is_exchanged_with_arrow(codec: Compression, name: str, data: bytes) -> None:
    """Arrow contains the original C libraries; its LZ4 checks the checksum of the frame header."""
    arrow = pa.Codec(name)
    assert arrow.decompress(compress(codec, data), len(data)).to_pybytes() == data
    assert decompress(codec, arrow.compress(data).to_pybytes(), len(data)) == data


def test_gzip_agrees_with_the_standard_library() -> None:
    assert gzip.decompress(compress(Compression.GZIP, BIG)) == BIG
    assert decompress(Compression.GZIP, gzip.compress(BIG), len(BIG)) == BIG


def test_lz4_frames_have_independent_blocks() -> None:
    """Java refuses frames with dependent blocks; bit 5 of the flags states that blocks are independent."""
    frame = compress(Compression.LZ4, BIG)
    assert frame[:4].hex() == "04224d18"
    assert frame[4] & 0b0010_0000
    assert decompress(Compression.LZ4, bytes(cramjam.lz4.compress(BIG)), len(BIG)) == BIG


def test_snappy_uses_xerial_framing_and_raw_snappy_is_read() -> None:
    packed = compress(Compression.SNAPPY, BIG)
    assert packed.startswith(XERIAL_HEADER)
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(BIG)), len(BIG)) == BIG
    assert decompress(Compression.SNAPPY, pa.Codec("snappy").compress(BIG).to_pybytes(), len(BIG)) == BIG


@pytest.mark.parametrize("claim", ["ffffffff0f", "80808008"])
def test_a_snappy_block_with_a_huge_declared_size_is_refused_before_allocation(claim: str) -> None:
    """rskafka #141."""
    raw = bytes.fromhex(claim) + b"tiny"
    for data in (raw, XERIAL_HEADER + len(raw).to_bytes(4, "big") + raw):
        with pytest.raises(CompressionError, match="the maximum of"):
            decompress(Compression.SNAPPY, data, 1 << 20)


def test_the_limit_applies_to_the_sum_of_xerial_blocks() -> None:
    block = bytes(cramjam.snappy.compress_raw(bytes(1000)))
    data = XERIAL_HEADER + (len(block).to_bytes(4, "big") + block) * 10
    assert decompress(Compression.SNAPPY, data, 10_000) == bytes(10_000)
    with pytest.raises(CompressionError):
        decompress(Compression.SNAPPY, data, 9_999)


def test_xerial_block_sizes_beyond_the_input_are_refused() -> None:
    block = bytes(cramjam.snappy.compress_raw(bytes(10)))
    for size in (b"\xff\xff\xff\xff", (len(block) + 1).to_bytes(4, "big"), b"\0\0"):
        with pytest.raises(CompressionError):
            decompress(Compression.SNAPPY, XERIAL_HEADER + size + block, 100)
