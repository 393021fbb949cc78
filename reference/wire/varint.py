"""Zigzag varints, as records use them; lengths in flexible messages are unsigned (`readers.read_uvarint`)."""

from typing import Final

from reference.wire.errors import InvalidVarintError

MAX_BITS: Final = 64


def read_varint(data: bytes, position: int, bits: int = 32) -> tuple[int, int]:
    """A signed integer of 32 or 64 bits, and the position behind it. Raises `IndexError` where the bytes end."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    raw = byte & 0x7F
    for shift in range(7, bits, 7):
        position += 1
        byte = data[position]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> bits:
                break
            return (raw >> 1) ^ -(raw & 1), position + 1
    raise InvalidVarintError(f"varint that ends at byte {position} is longer than {bits} bits")


def write_varint(out: bytearray, value: int) -> None:
    raw = (value << 1) ^ (value >> MAX_BITS)
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
