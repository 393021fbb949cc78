"""Decode the subset of Fressian that Jepsen writes (format: org.fressian Codes, FressianReader).

Values have the same form as in `edn`: keywords are strings with a colon, maps and sets marked lists.  Keywords and
other repeated values are written once and then referred to by their index in a cache; tags have a separate cache.
A cache lasts as long as its writer, in Jepsen's files one block.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

from highwater.reports.importers.edn import MAP, SET

# First code, code with zero high bits, number of bytes that follow.
PACKED_INTS: Final = (
    (0x40, 0x50, 1),
    (0x60, 0x68, 2),
    (0x70, 0x72, 3),
    (0x74, 0x76, 4),
    (0x78, 0x7A, 5),
    (0x7C, 0x7E, 6),
)
PACKED_INTS_END: Final = 0x80
PRIORITY_CACHE: Final = range(0x80, 0xA0)
STRUCT_CACHE: Final = range(0xA0, 0xB0)
BYTES_PACKED: Final = range(0xD0, 0xD8)
STRING_PACKED: Final = range(0xDA, 0xE2)
LIST_PACKED: Final = range(0xE4, 0xEC)
GET_PRIORITY_CACHE, PUT_PRIORITY_CACHE, FOOTER = 0xCC, 0xCD, 0xCF
BYTES_CHUNK, BYTES, STRING_CHUNK, STRING, LIST = 0xD8, 0xD9, 0xE2, 0xE3, 0xEC
BEGIN_CLOSED_LIST, BEGIN_OPEN_LIST, STRUCT_TYPE, STRUCT = 0xED, 0xEE, 0xEF, 0xF0
TRUE, FALSE, NULL, INT, FLOAT, DOUBLE, DOUBLE_0, DOUBLE_1 = 0xF5, 0xF6, 0xF7, 0xF8, 0xF9, 0xFA, 0xFB, 0xFC
END_COLLECTION, RESET_CACHES, MINUS_ONE = 0xFD, 0xFE, 0xFF
CONSTANTS: Final[dict[int, Any]] = {TRUE: True, FALSE: False, NULL: None, DOUBLE_0: 0.0, DOUBLE_1: 1.0, MINUS_ONE: -1}
# Codes that are a tag with a fixed number of fields.
TAGS: Final = {
    0xB0: "array", 0xB1: "array", 0xB2: "array", 0xB3: "array", 0xB4: "array", 0xB5: "array",
    0xC0: "map", 0xC1: "set", 0xC3: "uuid", 0xC4: "regex", 0xC5: "uri", 0xC6: "bigint", 0xC7: "bigdec", 0xC8: "inst",
    0xC9: "sym", 0xCA: "key",
}  # fmt: skip
FIELDS: Final = {"map": 1, "set": 1, "regex": 1, "uri": 1, "bigint": 1, "inst": 1}  # all others 2
FOOTER_BYTES: Final = 11  # the rest of its magic, a length, a checksum
OP_FIELDS: Final = (":index", ":time", ":type", ":process", ":f", ":value")


class FressianError(ValueError):
    """The data is not Fressian, or uses a code that this reader does not support."""


class BlockRef(int):
    """The number of another block of the file."""


class Reader:
    """Reads values from `data` in order; `at_end` is true after the last one."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0
        self._priority: list[Any] = []
        self._structs: list[tuple[str, int]] = []

    @property
    def at_end(self) -> bool:
        while self._data[self._position : self._position + 1] == bytes([FOOTER]):
            self._position += 1
            self._footer()
        return self._position >= len(self._data)

    def read(self) -> Any:
        """Return the next value. Raises FressianError for invalid data."""
        try:
            return self._read(self._code())
        except (IndexError, struct.error, TypeError, ValueError, RecursionError) as error:
            raise FressianError(f"byte {self._position}: {error or type(error).__name__}") from error

    def _code(self) -> int:
        code = self._data[self._position]
        self._position += 1
        return code

    def _take(self, size: int) -> bytes:
        start, self._position = self._position, self._position + size
        if size < 0 or self._position > len(self._data):
            raise FressianError(f"{size} bytes do not follow")
        return self._data[start : self._position]

    def _read(self, code: int) -> Any:
        if code < 0x40:
            return code
        if code < PACKED_INTS_END:
            return self._packed_int(code)
        if code in PRIORITY_CACHE:
            return self._priority[code - PRIORITY_CACHE.start]
        if code in STRUCT_CACHE:
            return self._struct(*self._structs[code - STRUCT_CACHE.start])
        if code in CONSTANTS:
            return CONSTANTS[code]
        if code in STRING_PACKED:
            return _text(self._take(code - STRING_PACKED.start))
        if code in LIST_PACKED:
            return [self._read(self._code()) for _ in range(code - LIST_PACKED.start)]
        if code in BYTES_PACKED:
            return self._take(code - BYTES_PACKED.start)
        if code in TAGS:
            return self._struct(TAGS[code], FIELDS.get(TAGS[code], 2))
        if code in OTHERS:
            return OTHERS[code](self)
        raise FressianError(f"code {code:#x} is not read")

    def _packed_int(self, code: int) -> int:
        _, zero, size = next(row for row in reversed(PACKED_INTS) if code >= row[0])
        return (code - zero) << 8 * size | int.from_bytes(self._take(size), "big")

    def _count(self) -> int:
        found = self._read(self._code())
        if type(found) is not int:
            raise FressianError(f"a number expected, not {found!r}")
        return found

    def _put(self) -> Any:
        place = len(self._priority)
        self._priority.append(None)
        self._priority[place] = value = self._read(self._code())
        return value

    def _new_struct(self) -> Any:
        tag, fields = str(self._read(self._code())), self._count()
        self._structs.append((tag, fields))
        return self._struct(tag, fields)

    def _list(self) -> list[Any]:
        return [self._read(self._code()) for _ in range(self._count())]

    def _until_end(self) -> list[Any]:
        """Read a list up to its end code, or to the end of the data."""
        found = []
        while self._position < len(self._data) and (code := self._code()) != END_COLLECTION:
            found.append(self._read(code))
        return found

    def _chunked_text(self) -> str:
        text = _text(self._take(self._count()))
        while (code := self._code()) == STRING_CHUNK:
            text += _text(self._take(self._count()))
        return text + str(self._read(code))

    def _chunked_bytes(self) -> bytes:
        found = self._take(self._count())
        while (code := self._code()) == BYTES_CHUNK:
            found += self._take(self._count())
        return found + bytes(self._read(code))

    def _footer(self) -> None:
        self._take(FOOTER_BYTES)
        self._forget()

    def _forget(self) -> None:
        self._priority.clear()
        self._structs.clear()

    def _after(self, step: Callable[[], None]) -> Any:
        step()
        return self._read(self._code())

    def _struct(self, tag: str, fields: int) -> Any:
        if tag == "array":
            return self._list()
        if tag == "jepsen.history.Op":
            found = [self._read(self._code()) for _ in range(fields)]
            op = dict(zip(OP_FIELDS, found, strict=False))
            more = found[len(OP_FIELDS)]
            return op if not more else op | dict(zip(more[1::2], more[2::2], strict=True))
        made = [self._read(self._code()) for _ in range(fields)]
        return MAKE[tag](*made) if tag in MAKE else [f"#{tag}", *made]


def _text(data: bytes) -> str:
    """Decode UTF-8 of UTF-16 code units, as Java writes it: two surrogates outside the BMP."""
    text = data.decode("utf-8", "surrogatepass")
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


OTHERS: Final[dict[int, Callable[[Reader], Any]]] = {
    GET_PRIORITY_CACHE: lambda r: r._priority[r._count()],
    PUT_PRIORITY_CACHE: Reader._put,
    FOOTER: lambda r: r._after(r._footer),
    RESET_CACHES: lambda r: r._after(r._forget),
    BYTES: lambda r: r._take(r._count()),
    BYTES_CHUNK: Reader._chunked_bytes,
    STRING: lambda r: _text(r._take(r._count())),
    STRING_CHUNK: Reader._chunked_text,
    LIST: Reader._list,
    BEGIN_CLOSED_LIST: Reader._until_end,
    BEGIN_OPEN_LIST: Reader._until_end,
    STRUCT_TYPE: Reader._new_struct,
    STRUCT: lambda r: r._struct(*r._structs[r._count()]),
    INT: lambda r: int.from_bytes(r._take(8), "big", signed=True),
    FLOAT: lambda r: struct.unpack(">f", r._take(4))[0],
    DOUBLE: lambda r: struct.unpack(">d", r._take(8))[0],
}
MAKE: Final[dict[str, Callable[..., Any]]] = {
    "key": lambda space, name: f":{space}/{name}" if space else f":{name}",
    "sym": lambda space, name: f"{space}/{name}" if space else name,
    "map": lambda pairs: [MAP, *pairs],
    "set": lambda found: [SET, *found],
    "persistent-hash-set": lambda found: [SET, *(found or ())],
    "persistent-sorted-set": lambda found: [SET, *(found or ())],
    "map-entry": lambda key, value: [key, value],
    "vec": lambda found: found,
    "atom": lambda found: found,
    "instant": lambda found: found,
    "date-time": lambda found: found,
    "byte": lambda found: found,
    "bigint": lambda found: int.from_bytes(found, "big", signed=True),
    "block-ref": BlockRef,
}
