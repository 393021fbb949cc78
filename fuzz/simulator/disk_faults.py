"""Which stored bytes rot: of the newest segment, of the files beside it, and of checkpoints."""

from typing import Final

from highwater.reference.drivers.simulation.disk import SimulatedDisk
from highwater.reference.wire.records import HEADER_SIZE

CRC_COVERS: Final = 21  # offset in a batch (the attributes) from which the CRC covers it
BATCH_OVERHEAD: Final = 12  # bytes of base offset and length, which the length field does not count
NOT_TEXT: Final = 0x80
CHECKPOINTS: Final = "checkpoints"
SUFFIXES: Final = {
    "offset index": ".index", "time index": ".timeindex", "transaction index": ".txnindex",
    "producer snapshot": ".snapshot", "leader epochs": "leader-epoch-checkpoint", CHECKPOINTS: "-offset-checkpoint",
}  # fmt: skip
"""The files of a partition, and those of all partitions (`checkpoints`), by the end of their names."""
TEXT: Final = frozenset({"leader epochs", CHECKPOINTS})


def rot_newest_segment(disk: SimulatedDisk, folder: str, bit: int) -> bool:
    """Flip a bit that a CRC covers in the newest segment; return False if it has no batch.

    Base offset and leader epoch are not covered by the CRC of a batch, so such a change could not be detected.
    """
    paths = [f"{folder}/{name}" for name in disk.names(folder) if name.endswith(".log")]
    covered: list[int] = []
    position, size = 0, disk.size(paths[-1]) if paths else 0
    while position + HEADER_SIZE <= size:
        length = int.from_bytes(disk.read(paths[-1], position + 8, 4), "big")
        covered += range(position + CRC_COVERS, min(position + BATCH_OVERHEAD + length, size))
        position += BATCH_OVERHEAD + length
    if covered:
        disk.rot(paths[-1], covered[bit // 8 % len(covered)], 1 << bit % 8)
    return bool(covered)


def rot_file(disk: SimulatedDisk, folder: str, kind: str, bit: int) -> bool:
    """Flip a bit of each file of a kind; return False if there is none with content.

    In a file of text it is the highest bit of a byte: a wrong digit could not be detected, in Apache Kafka either.
    """
    where = "" if kind == CHECKPOINTS else folder
    paths = [f"{where}/{name}".lstrip("/") for name in disk.names(where) if name.endswith(SUFFIXES[kind])]
    sizes = {path: disk.size(path) for path in paths if disk.size(path)}
    for path, size in sizes.items():
        disk.rot(path, bit // 8 % size, NOT_TEXT if kind in TEXT else 1 << bit % 8)
    return bool(sizes)
