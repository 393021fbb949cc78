"""Read and verify segment files on a disk, ours or Apache Kafka's, without changing them.

The files may be damaged: data that cannot be read is a finding, and ends the scan of that file.
"""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from highwater.errors import UsageError
from highwater.reference.storage.indexes import OFFSET_ENTRY, TIME_ENTRY
from highwater.reference.wire.errors import WireError
from highwater.reference.wire.log_entries import decode_entry, entry_crc_valid, read_entry_header
from highwater.reference.wire.records import BatchHeader, Record


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem at one byte position of a file."""

    path: Path
    position: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}: byte {self.position}: {self.what}"


@dataclass(frozen=True, slots=True)
class Batch:
    """One entry of a log: a record batch, or a message of magic 0 or 1."""

    position: int
    header: BatchHeader
    crc_valid: bool
    records: list[Record]
    trouble: str = ""  # why the records cannot be read


def find_segments(path: Path) -> list[Path]:
    """Return the `.log` files of a path: one file, a partition's folder, or a data folder.

    Raises UsageError if there are none.
    """
    if path.is_file() and path.suffix == ".log":
        return [path]
    found = sorted([*path.glob("*.log"), *path.glob("*/*.log")]) if path.is_dir() else []
    segments = [file for file in found if file.stem.isdigit()]
    if not segments:
        hint = "give a segment's .log file, a partition's folder or a broker's data folder"
        raise UsageError("there are no log segments here", where=str(path), hint=hint)
    return segments


def _content(path: Path) -> bytes | mmap.mmap:
    if not path.stat().st_size:
        return b""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def read_batches(path: Path) -> Iterator[Batch | Finding]:
    """Yield every batch of a segment file; a finding if the rest is not a complete batch."""
    content = _content(path)
    position, end = 0, len(content)
    while position < end:
        try:
            header = read_entry_header(content[position : position + 61])
        except WireError as error:
            yield Finding(path, position, f"{end - position} bytes are not a valid batch: {error}")
            return
        if position + header.size > end:
            yield Finding(path, position, f"only {end - position} bytes of a batch of {header.size} bytes")
            return
        yield _batch(content[position : position + header.size], position, header)
        position += header.size


def _batch(data: bytes, position: int, header: BatchHeader) -> Batch:
    valid = entry_crc_valid(data, 0, header)
    try:
        return Batch(position, header, valid, decode_entry(data)[1])
    except WireError as error:
        return Batch(position, header, valid, [], str(error))


def verify_segment(path: Path) -> Iterator[Finding]:
    """Check that checksums match, offsets ascend, records can be decoded, and the indexes agree with the log."""
    batches: list[BatchHeader] = []
    positions: list[int] = []
    expected = int(path.stem)
    for found in read_batches(path):
        if isinstance(found, Finding):
            yield found
            break
        yield from _verify_batch(path, found, expected)
        batches.append(found.header)
        positions.append(found.position)
        expected = max(expected, found.header.next_offset)
    yield from _verify_index(path.with_suffix(".index"), int(path.stem), positions, batches)
    yield from _verify_time_index(path.with_suffix(".timeindex"), int(path.stem), batches)


def _verify_batch(path: Path, batch: Batch, expected: int) -> Iterator[Finding]:
    header = batch.header
    offsets = [record.offset for record in batch.records]
    troubles = (
        (not batch.crc_valid, "the CRC does not match"),
        (header.base_offset < expected, f"offset {header.base_offset} is below the expected {expected}"),
        (bool(batch.trouble), f"the records cannot be decoded: {batch.trouble}"),
        (any(left >= right for left, right in pairwise(offsets)), "the offsets of the records do not ascend"),
        (bool(offsets) and offsets[-1] > header.last_offset, f"a record past the last offset {header.last_offset}"),
        (bool(offsets) and offsets[0] < expected, f"the record at offset {offsets[0] if offsets else 0} is repeated"),
    )
    return (Finding(path, batch.position, what) for wrong, what in troubles if wrong)


def _verify_index(path: Path, base: int, positions: list[int], batches: list[BatchHeader]) -> Iterator[Finding]:
    slots = {position: slot for slot, position in enumerate(positions)}
    for at, (relative, position) in _index_entries(path, OFFSET_ENTRY.size):
        slot = slots.get(position)
        offset = base + relative
        if slot is None:
            yield Finding(path, at, f"the entry for offset {offset} points to byte {position}, where no batch begins")
        elif not (batches[slot - 1].last_offset if slot else base - 1) < offset <= batches[slot].last_offset:
            yield Finding(path, at, f"the batch at byte {position} does not contain offset {offset}")


def _verify_time_index(path: Path, base: int, batches: list[BatchHeader]) -> Iterator[Finding]:
    for at, (timestamp, relative) in _index_entries(path, TIME_ENTRY.size):
        before = [header for header in batches if header.base_offset <= base + relative]
        largest = max((header.max_timestamp for header in before), default=-1)
        if timestamp > largest:
            yield Finding(path, at, f"timestamp {timestamp} at offset {base + relative}, but the largest is {largest}")


def _index_entries(path: Path, size: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Return position and fields of every entry, without the zeros that Kafka preallocates after the last one."""
    entry = OFFSET_ENTRY if size == OFFSET_ENTRY.size else TIME_ENTRY
    data = path.read_bytes().rstrip(b"\0") if path.is_file() else b""
    data += bytes(-len(data) % size)
    return ((at * size, fields) for at, fields in enumerate(entry.iter_unpack(data)))
