"""Read `test.jepsen`: blocks of Fressian behind an index (jepsen.store.format, versions 0 and 1).

"JEPSEN", int32 version, int64 offset of the index block; then blocks. A block has a header of 28 bytes: int64
length including the header, uint32 checksum, int16 type in a field of 16 bytes. The checksum is the CRC-32 of the data,
then of the header with the checksum zero.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import IO, Any, Final

from highwater.errors import UsageError
from highwater.reports.importers.edn import MAP
from highwater.reports.importers.fressian import BlockRef, FressianError, Reader
from highwater.reports.importers.jepsen import Op, read
from highwater.reports.importers.quarantine import Quarantine
from highwater.spec.formats.history import Config, Event

MAGIC: Final = b"JEPSEN"
FILE_HEADER: Final = struct.Struct(">6siq")
BLOCK_HEADER: Final = struct.Struct(">qIh14x")
INDEX_ENTRY: Final = struct.Struct(">iq")
CHUNK: Final = struct.Struct(">qi")
INDEX, FRESSIAN, PARTIAL_MAP, STREAM, BIG_VECTOR = range(1, 6)
BLOCK_LIMIT: Final = 1 << 30  # bytes
DEPTH_LIMIT: Final = 8  # nesting of big vectors
ISOLATION: Final = {"read_committed", "read_uncommitted"}


def recognises(head: bytes) -> bool:
    return head.startswith(MAGIC)


def read_file(where: str, quarantine: Quarantine) -> tuple[Config, Iterator[Event]]:
    """Read the file. Raises UsageError without a readable test map; broken chunks are quarantined."""
    try:
        file = open(where, "rb")  # noqa: PTH123, SIM115
    except OSError as error:
        raise UsageError(
            f"cannot read this file ({error.strerror})", where=where, hint="test.jepsen is read from a local disk only"
        ) from error
    try:
        blocks = Blocks(file)
        test = blocks.value(blocks.root)
        history = test[test.index(":history") + 1]
    except (FressianError, ValueError, TypeError, struct.error, OSError) as error:
        file.close()
        hint = "use the history.edn beside it"
        raise UsageError(f"its test map cannot be read: {error}", where=where, hint=hint) from error
    config, events = read(where, _ops(blocks, history, quarantine), quarantine)
    if config.workload == "log":
        config = _configured(config, dict(zip(test[1::2], test[2::2], strict=False)))
    return config, events


def _configured(config: Config, test: dict[Any, Any]) -> Config:
    """Return the settings in the test map, under the option names of Jepsen's Kafka workloads."""
    acks = {"-1": "all"}.get(str(test.get(":acks")), str(test.get(":acks")))
    isolation, idempotence = test.get(":isolation-level"), test.get(":idempotence")
    return Config(
        source=config.source,
        workload=config.workload,
        acks=acks if acks in {"0", "1", "all"} else None,  # type: ignore[arg-type]
        isolation=isolation if isolation in ISOLATION else None,
        idempotence=idempotence if isinstance(idempotence, bool) else None,
    )


def _ops(blocks: "Blocks", history: Any, quarantine: Quarantine) -> Iterator[Op]:
    with blocks.file:
        found = blocks.elements(history, quarantine) if isinstance(history, BlockRef) else iter(history or ())
        for quarantine.line, op in enumerate(found, 1):
            if isinstance(op, list) and op[:1] == [MAP]:  # older versions of Jepsen store operations as maps
                op = dict(zip(op[1::2], op[2::2], strict=True))  # noqa: PLW2901
            if isinstance(op, dict):
                yield op
            else:
                quarantine.add("no operation")


class Blocks:
    """Reads the blocks of an open file by number."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        magic, version, index = FILE_HEADER.unpack(file.read(FILE_HEADER.size))
        if magic != MAGIC or version not in {0, 1}:
            raise FressianError(f"version {version} of the format is not known")
        kind, data = self._at(index)
        if kind != INDEX:
            raise FressianError(f"a block of type {kind} where the index should be")
        (self.root,) = struct.unpack_from(">i", data)
        self._offsets = dict(INDEX_ENTRY.iter_unpack(data[4:]))

    def _at(self, offset: int) -> tuple[int, bytes]:
        self.file.seek(offset)
        header = self.file.read(BLOCK_HEADER.size)
        length, checksum, kind = BLOCK_HEADER.unpack(header)
        if not BLOCK_HEADER.size <= length <= BLOCK_LIMIT:
            raise FressianError(f"a block of {length} bytes at {offset}")
        data = self.file.read(length - BLOCK_HEADER.size)
        if zlib.crc32(BLOCK_HEADER.pack(length, 0, kind), zlib.crc32(data)) != checksum:
            raise FressianError(f"the checksum of the block at {offset} is wrong")
        return kind, data

    def block(self, number: int) -> tuple[int, bytes]:
        if number not in self._offsets:
            raise FressianError(f"there is no block {number}")
        return self._at(self._offsets[number])

    def value(self, number: int) -> list[Any]:
        """Return the map in a block; partial maps are joined with their continuation."""
        found: list[Any] = [MAP]
        for _ in range(len(self._offsets)):
            kind, data = self.block(number)
            if kind not in {FRESSIAN, PARTIAL_MAP}:
                raise FressianError(f"a block of type {kind} where a map should be")
            here = Reader(data[4:] if kind == PARTIAL_MAP else data).read()
            found += here[1:]
            if kind == FRESSIAN or not (number := struct.unpack_from(">i", data)[0]):
                break
        return found

    def elements(self, number: int, quarantine: Quarantine, depth: int = 0) -> Iterator[Any]:
        """Yield the elements of a vector over all its chunks; a broken chunk is cut where it breaks."""
        try:
            kind, data = self.block(number)
            if kind == BIG_VECTOR and depth < DEPTH_LIMIT:
                for _, chunk in CHUNK.iter_unpack(data[8:]):
                    yield from self.elements(chunk, quarantine, depth + 1)
            elif kind == STREAM:
                reader = Reader(data)
                while not reader.at_end:
                    yield reader.read()
            elif kind == FRESSIAN:
                yield from Reader(data).read() or ()
            else:
                quarantine.add(f"block {number} has type {kind}")
        except (FressianError, struct.error, OSError) as error:
            quarantine.add(f"block {number}: {error}")
