"""The transaction index: aborted transactions, in a `.txnindex` beside the segment that holds their marker.

Entries are Apache Kafka's, big-endian: version 0, producer id, first offset, offset of the marker, and the last stable
offset at that moment.
"""

import struct
from dataclasses import dataclass
from typing import Final

from reference.storage.filesystem import FileSystem

VERSION: Final = 0
ENTRY: Final = struct.Struct(">hqqqq")


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def add_entry(fs: FileSystem, path: str, entry: AbortedTransaction) -> None:
    fs.append(
        path,
        ENTRY.pack(VERSION, entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset),
    )


def read_entries(fs: FileSystem, path: str) -> list[AbortedTransaction]:
    """The entries up to the first that is cut or of another version; none when there is no file."""
    if not fs.exists(path):
        return []
    data = fs.read(path, 0, fs.size(path))
    entries: list[AbortedTransaction] = []
    for version, *fields in ENTRY.iter_unpack(data[: len(data) // ENTRY.size * ENTRY.size]):
        if version != VERSION:
            break
        entries.append(AbortedTransaction(*fields))
    return entries
