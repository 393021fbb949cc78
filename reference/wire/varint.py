"""Zigzag varints of records; the lengths in flexible messages are unsigned (`readers.read_uvarint`).

Nearly all lengths and deltas have one or two bytes, and decoding them is most of the work of decoding a batch. So these
two cases are unrolled and use a lookup table.
"""

from typing import Final

from highwater.reference.wire.errors import InvalidVarintError

ZIGZAG: Final = tuple((raw >> 1) ^ -(raw & 1) for raw in range(1 << 14))
"""The values of all one-byte and two-byte varints."""


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Decode a signed 32-bit integer; return it and the position after it. Raises `IndexError` at the end of data."""
    raw = data[position]
    if raw < 0x80:
        return ZIGZAG[raw], position + 1
    high = data[position + 1]
    if high < 0x80:
        return ZIGZAG[raw + (high - 1 << 7)], position + 2
    return _read_long_varint(data, position, 32)


def read_varlong(data: bytes, position: int) -> tuple[int, int]:
    """Decode a signed 64-bit integer; return it and the position after it. Raises `IndexError` at the end of data."""
    raw = data[position]
    if raw < 0x80:
        return ZIGZAG[raw], position + 1
    high = data[position + 1]
    if high < 0x80:
        return ZIGZAG[raw + (high - 1 << 7)], position + 2
    return _read_long_varint(data, position, 64)


def _read_long_varint(data: bytes, position: int, bits: int) -> tuple[int, int]:
    raw = 0
    for shift in range(0, bits, 7):
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> bits:
                break
            return (raw >> 1) ^ -(raw & 1), position
    raise InvalidVarintError(f"the varint that ends at byte {position} is longer than {bits} bits")


def write_varint(out: bytearray, value: int) -> None:
    """Encode a signed integer of up to 64 bits."""
    raw = (value << 1) ^ (value >> 64)
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
