"""Writes `test.jepsen` as Jepsen does: keywords cached, one writer for a chunk, 28 bytes of header, CRC-32."""

import struct
import zlib
from typing import Any

from highwater.reports.importers.edn import MAP, SET
from highwater.reports.importers.fressian import BlockRef


class Writer:
    """Encodes values as Fressian, with the two caches of org.fressian's FressianWriter."""

    def __init__(self) -> None:
        self.out = bytearray()
        self._priority: dict[Any, int] = {}
        self._structs: dict[str, int] = {}

    def integer(self, value: int) -> None:
        bits = value.bit_length() if value >= 0 else (~value).bit_length()
        if -1 <= value < 64:
            self.out.append(value & 0xFF)
            return
        for size, zero, room in (
            (1, 0x50, 12),
            (2, 0x68, 19),
            (3, 0x72, 25),
            (4, 0x76, 33),
            (5, 0x7A, 41),
            (6, 0x7E, 49),
        ):
            if bits <= room:
                self.out.append(zero + (value >> 8 * size))
                self.out += (value & ((1 << 8 * size) - 1)).to_bytes(size, "big")
                return
        self.out += b"\xf8" + value.to_bytes(8, "big", signed=True)

    def tag(self, name: str, fields: int) -> None:
        place = self._structs.get(name)
        if place is None:
            self._structs[name] = len(self._structs)
            self.out.append(0xEF)
            self.text(name)
            self.integer(fields)
        elif place < 16:
            self.out.append(0xA0 + place)
        else:
            self.out.append(0xF0)
            self.integer(place)

    def text(self, value: str) -> None:
        data = b"".join(
            chr(unit).encode("utf-8", "surrogatepass")
            for unit in struct.unpack(f">{len(value.encode('utf-16-be')) // 2}H", value.encode("utf-16-be"))
        )
        while len(data) > 65535:
            self.out.append(0xE2)
            self.integer(65535)
            self.out += data[:65535]
            data = data[65535:]
        if len(data) < 8:
            self.out.append(0xDA + len(data))
        else:
            self.out.append(0xE3)
            self.integer(len(data))
        self.out += data

    def cached(self, value: Any) -> None:
        place = self._priority.get(value)
        if place is None:
            self._priority[value] = len(self._priority)
            self.out.append(0xCD)
            self.value(value)
        elif place < 32:
            self.out.append(0x80 + place)
        else:
            self.out.append(0xCC)
            self.integer(place)

    def list(self, values: list[Any]) -> None:
        if len(values) < 8:
            self.out.append(0xE4 + len(values))
        else:
            self.out.append(0xEC)
            self.integer(len(values))
        for each in values:
            self.value(each)

    def keyword(self, value: str) -> None:
        self.out.append(0xCA)
        space, _, name = value[1:].rpartition("/")
        for part in (space or None, name):
            if part is None:
                self.out.append(0xF7)
            else:
                self.cached(part)

    def value(self, value: Any) -> None:
        if value is None or isinstance(value, bool):
            self.out.append({None: 0xF7, True: 0xF5, False: 0xF6}[value])
        elif isinstance(value, BlockRef):
            self.tag("block-ref", 1)
            self.integer(value)
        elif isinstance(value, int):
            self.integer(value)
        elif isinstance(value, float):
            self.out += b"\xfa" + struct.pack(">d", value)
        elif isinstance(value, str):
            self.keyword(value) if value.startswith(":") else self.text(value)
        elif isinstance(value, dict):
            self.op(value)
        elif value[:1] in ([MAP], [SET]):
            self.out.append(0xC0 if value[0] == MAP else 0xC1)
            self.list(value[1:])
        else:
            self.tag("vec", 1)
            self.list(value)

    def op(self, op: dict[str, Any]) -> None:
        self.tag("jepsen.history.Op", 7)
        fields = [":index", ":time", ":type", ":process", ":f", ":value"]
        for name in fields:
            if name in {":type", ":f"}:
                self.cached(op[name])
            else:
                self.value(op[name])
        more = [each for pair in op.items() if pair[0] not in fields for each in pair]
        self.value([MAP, *more] if more else None)


def fressian(*values: Any) -> bytes:
    writer = Writer()
    for value in values:
        writer.value(value)
    return bytes(writer.out)


class File:
    """Writes blocks one after the other, then the index."""

    def __init__(self) -> None:
        self.data = bytearray(struct.pack(">6siq", b"JEPSEN", 1, 0))
        self.offsets: dict[int, int] = {}

    def block(self, kind: int, data: bytes) -> BlockRef:
        number = len(self.offsets) + 1
        self.offsets[number] = len(self.data)
        header = struct.pack(">qIh14x", 28 + len(data), 0, kind)
        checksum = zlib.crc32(header, zlib.crc32(data))
        self.data += struct.pack(">qIh14x", 28 + len(data), checksum, kind) + data
        return BlockRef(number)

    def finish(self, root: int) -> bytes:
        index = struct.pack(">i", root) + b"".join(struct.pack(">iq", *entry) for entry in self.offsets.items())
        number = self.block(1, index)
        struct.pack_into(">q", self.data, 10, self.offsets[number])
        return bytes(self.data)


def jepsen_file(ops: list[dict[str, Any]], *, chunk: int = 100, **test: Any) -> bytes:
    """Return a file with the history in streams of `chunk` operations and the test map in two partial maps."""
    file = File()
    chunks = [(start, file.block(4, fressian(*ops[start : start + chunk]))) for start in range(0, len(ops), chunk)]
    vector = struct.pack(">q", len(ops)) + b"".join(struct.pack(">qi", *each) for each in chunks)
    history = file.block(5, vector)
    rest = file.block(3, struct.pack(">i", 0) + fressian([MAP, ":name", "kafka", ":history", history]))
    more = [each for name, value in test.items() for each in (f":{name.replace('_', '-')}", value)]
    return file.finish(file.block(3, struct.pack(">i", rest) + fressian([MAP, *more])))
