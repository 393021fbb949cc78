"""The transaction index: the aborted transactions of a segment, in its `.txnindex` file (TransactionIndex).

An entry belongs to the segment with the abort marker. Its format is Apache Kafka's, big-endian: version 0, producer id,
first offset, offset of the marker, and the last stable offset at that time.
"""

import struct
from dataclasses import dataclass
from typing import Final

from highwater.reference.storage.filesystem import FileSystem

VERSION: Final = 0
ENTRY: Final = struct.Struct(">hqqqq")


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_entry(entry: AbortedTransaction) -> bytes:
    return ENTRY.pack(VERSION, entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset)


def add_entry(fs: FileSystem, path: str, entry: AbortedTransaction) -> None:
    fs.append(path, encode_entry(entry))


def read_entries(fs: FileSystem, path: str) -> list[AbortedTransaction] | None:
    """Return the entries, empty if there is no file; None if one is incomplete, of another version, or impossible."""
    if not fs.exists(path):
        return []
    data = fs.read(path, 0, fs.size(path))
    if len(data) % ENTRY.size:
        return None
    found = list(ENTRY.iter_unpack(data))
    entries = [AbortedTransaction(*fields) for _, *fields in found]
    valid = all(version == VERSION for version, *_ in found)
    return entries if valid and all(0 <= entry.first_offset <= entry.last_offset for entry in entries) else None
