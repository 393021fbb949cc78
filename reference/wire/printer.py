"""Format messages and bytes as text."""

from dataclasses import fields, is_dataclass
from typing import Any, Final

INDENT: Final = "  "
WIDTH: Final = 16
SHOWN_BYTES: Final = 32


def describe(message: object) -> str:
    """Return a message as text, one field per line, nested structs indented, long byte strings truncated."""
    return "\n".join([type(message).__name__, *_fields(message, INDENT)])


def brief(message: object) -> str:
    """Return a message in one line, without the fields that have their defaults."""
    if isinstance(message, tuple):
        return f"[{', '.join(map(brief, message))}]"
    if not is_dataclass(message):
        return _scalar(message)
    shown = ((field.name, getattr(message, field.name), field.default) for field in fields(message))
    named = ", ".join(f"{name}={brief(value)}" for name, value, default in shown if value != default)
    return f"{type(message).__name__}({named})"


def _fields(message: Any, indent: str) -> list[str]:
    lines = []
    for field in fields(message):
        lines += _field(field.name, getattr(message, field.name), indent)
    return lines


def _field(name: str, value: object, indent: str) -> list[str]:
    if is_dataclass(value):
        return [f"{indent}{name}: {type(value).__name__}", *_fields(value, indent + INDENT)]
    if isinstance(value, tuple) and any(is_dataclass(element) for element in value):
        lines = [f"{indent}{name}: {len(value)}"]
        for index, element in enumerate(value):
            lines += _field(f"[{index}]", element, indent + INDENT)
        return lines
    return [f"{indent}{name}: {_scalar(value)}"]


def _scalar(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_scalar, value)) + "]"
    if isinstance(value, bytes):
        cut = "…" if len(value) > SHOWN_BYTES else ""
        return f"{len(value)} bytes {value[:SHOWN_BYTES].hex(' ')}{cut}".rstrip()
    return repr(value)


def hexdump(data: bytes) -> str:
    """Return a hex dump: 16 bytes per line with position, hexadecimal and printable characters."""
    return "\n".join(_hex_line(data, start) for start in range(0, len(data), WIDTH))


def _hex_line(data: bytes, start: int) -> str:
    row = data[start : start + WIDTH]
    text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
    return f"{start:08x}  {row.hex(' '):<{3 * WIDTH - 1}}  {text}"
