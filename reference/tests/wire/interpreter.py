"""A slow, plain codec that interprets Kafka's definitions; it shares no code with `highwater.reference.wire`."""

import struct
from dataclasses import dataclass
from typing import Any, Final

from highwater.reference.tests.wire.definitions import Definition, default, snake, span, structs

FORMATS: Final = {
    "bool": ">?",
    "int8": ">b",
    "int16": ">h",
    "int32": ">i",
    "int64": ">q",
    "uint16": ">H",
    "uint32": ">I",
    "float64": ">d",
    "uuid": ">16s",
}


def uvarint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low]) if rest == 0 else bytes([low | 0x80]) + uvarint(rest)


@dataclass
class Interpreter:
    """Encodes messages of one definition in one version."""

    definition: Definition
    version: int

    def __post_init__(self) -> None:
        self.flexible = self.version in span(self.definition["flexibleVersions"])
        self.common = structs(self.definition)

    def encode(self, message: Any) -> bytes:
        return self._struct(self.definition["fields"], message)

    def _struct(self, fields: list[Definition], value: Any) -> bytes:
        present = [field for field in fields if self.version in span(field["versions"])]
        in_line = [field for field in present if not self._is_tagged(field)]
        body = b"".join(self._field(field, getattr(value, snake(field["name"]))) for field in in_line)
        return body + self._tags([field for field in present if self._is_tagged(field)], value)

    def _is_tagged(self, field: Definition) -> bool:
        return self.version in span(field.get("taggedVersions"))

    def _tags(self, fields: list[Definition], value: Any) -> bytes:
        if not self.flexible:
            return b""
        parts = []
        for field in sorted(fields, key=lambda field: int(field["tag"])):
            held = getattr(value, snake(field["name"]))
            if not self._is_default(field, held):
                body = self._field(field, held)
                parts.append(uvarint(field["tag"]) + uvarint(len(body)) + body)
        return uvarint(len(parts)) + b"".join(parts)

    def _is_default(self, field: Definition, value: Any) -> bool:
        """Return whether the value is the default; for a struct, whether every field is."""
        if "fields" not in field or field["type"].startswith("[]"):
            return bool(value == default(field))
        return all(self._is_default(each, getattr(value, snake(each["name"]))) for each in field["fields"])

    def _field(self, field: Definition, value: Any) -> bytes:
        kind = field["type"]
        nullable = self.version in span(field.get("nullableVersions"))
        assert nullable or value is not None
        if kind.startswith("[]"):
            if value is None:
                return self._length(None, 4)
            element = {"type": kind[2:], "fields": field.get("fields", [])}
            return self._length(len(value), 4) + b"".join(self._field(element, each) for each in value)
        if kind in FORMATS:
            return struct.pack(FORMATS[kind], value)
        if kind in ("string", "bytes", "records"):
            data = value.encode() if isinstance(value, str) else value
            return self._length(None if data is None else len(data), 2 if kind == "string" else 4) + (data or b"")
        mark = b"" if not nullable else b"\xff" if value is None else b"\x01"
        return mark if value is None else mark + self._struct(field.get("fields") or self.common[kind], value)

    def _length(self, length: int | None, width: int) -> bytes:
        if self.flexible:
            return uvarint(0 if length is None else length + 1)
        return (-1 if length is None else length).to_bytes(width, "big", signed=True)
