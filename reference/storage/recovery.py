"""Recover a log after a restart: check it from the recovery point on, truncate it after a crash, or reject it.

Everything below the recovery point was flushed and may be acknowledged. A corrupt batch there with valid data after it
is disk corruption: the log is rejected, because a truncation would silently lose acknowledged records. A corrupt batch
past the recovery point, or with no valid data after it, is the result of a crash: the log is truncated there
(kafka-0.7-design, "Guarantees": blocks may be lost, and nonsense blocks added).
"""

import re
from collections.abc import Callable

from highwater.errors import UsageError
from highwater.reference.storage.corruption import HINT
from highwater.reference.storage.filesystem import FileSystem
from highwater.reference.storage.leader_epochs import CHECKPOINT, LeaderEpochCache, parse_epochs
from highwater.reference.storage.segment import Segment
from highwater.reference.wire.log_entries import entry_crc_valid
from highwater.reference.wire.records import BatchHeader

SEARCH_BYTES = 1 << 20
Warn = Callable[[str], None]


class CorruptLogError(UsageError):
    """Flushed data is corrupt; an operator must decide. The message has file, byte and offset; nothing was changed."""


def segment_bases(fs: FileSystem, folder: str) -> list[int]:
    """Return the base offsets of the segments in a folder, ascending."""
    stems = (name.removesuffix(".log") for name in fs.names(folder) if name.endswith(".log"))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def read_epochs(fs: FileSystem, folder: str, warn: Warn) -> LeaderEpochCache | None:
    """Read the leader epoch checkpoint; None if it is missing or damaged and must be rebuilt from the batches."""
    path = f"{folder}/{CHECKPOINT}"
    if not fs.exists(path):
        return None
    entries = parse_epochs(fs.read(path, 0, fs.size(path)))
    if entries is None:
        warn(f"{path} is damaged; the leader epochs are rebuilt from the whole log")
        return None
    return LeaderEpochCache(entries)


def load_segment(segment: Segment, warn: Warn) -> None:
    """Load a segment below the recovery point; rebuild its indexes if they disagree. Raises CorruptLogError."""
    if segment.load():
        return
    expected = segment.base_offset
    for header in segment.rebuild(check_crc=False):
        expected = header.next_offset
    if segment.size < segment.fs.size(segment.path):
        raise _corrupt(segment, expected)
    warn(f"{segment.path}: the indexes disagreed with the log and were rebuilt")


def recover_segment(
    segment: Segment, recovery_point: int, *, check_crc: bool, note: Callable[[BatchHeader], None], warn: Warn
) -> bool:
    """Check every batch, rebuild the indexes, and truncate an incomplete tail; return whether anything was truncated.

    Raises CorruptLogError for a corrupt batch below the recovery point with a valid one after it.
    """
    expected = segment.base_offset
    for header in segment.rebuild(check_crc=check_crc):
        note(header)
        expected = header.next_offset
    end = segment.fs.size(segment.path)
    if segment.size == end:
        return False
    if expected < recovery_point and _valid_data_follows(segment, expected, end):
        raise _corrupt(segment, expected)
    cut = end - segment.size
    warn(
        f"{segment.path}: truncated {cut} bytes at byte {segment.size}, because they are no valid batch"
        f" at offset {expected}"
    )
    segment.truncate_to(segment.size)
    return True


def gap_error(segment: Segment, expected: int) -> CorruptLogError:
    """Return the error for a segment that lost its end although later segments were flushed."""
    return _corrupt(segment, expected)


def _corrupt(segment: Segment, expected: int) -> CorruptLogError:
    return CorruptLogError(
        f"corrupt batch at offset {expected}, byte {segment.size}, in flushed data",
        where=segment.path,
        hint=HINT,
    )


def _valid_data_follows(segment: Segment, expected: int, end: int) -> bool:
    """Return whether a complete batch with a valid CRC follows the corrupt one within the next MiB."""
    damaged = segment.fs.read(segment.path, segment.size, SEARCH_BYTES)
    high_bytes = re.escape(expected.to_bytes(8, "big")[:4])
    for match in re.finditer(rb"(?=%s.{4}\x00.{7}\x02)" % high_bytes, damaged, re.DOTALL):
        position = segment.size + match.start()
        header = segment.read_valid_header(position, expected, end, check_crc=False)
        if header is None or header.base_offset <= expected:
            continue
        if entry_crc_valid(segment.fs.read(segment.path, position, header.size), 0, header):
            return True
    return False


# --------------------------------------------------------------------------------------------------
# Replacement of a segment by its cleaned copy, so that a crash leaves one or the other complete.
#
# `<base>.log.cleaned` is written and fsynced, then renamed over `<base>.log`; the indexes are rebuilt.


CLEANED = ".cleaned"


def recover_swaps(fs: FileSystem, folder: str) -> None:
    """Delete cleaned copies that a crash left before their rename: the original segments are complete."""
    for name in fs.names(folder):
        if name.endswith(CLEANED):
            fs.delete(f"{folder}/{name}")
