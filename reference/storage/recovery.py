"""Opening a log: what is on the disk is checked from the recovery point on, cut where it ends, or refused.

Below the recovery point everything was flushed, and what stands there may be acknowledged.  So a bad batch there that
good data follows is rot: the log is refused, for to cut it would lose acknowledged records without a word.  A bad batch
past the recovery point, or one that nothing follows, is what a crash leaves: the log is cut there
(kafka-0.7-design, "Guarantees": blocks may be lost, and nonsense blocks added).
"""

import re
from collections.abc import Callable

from reference.storage.filesystem import FileSystem
from reference.storage.leader_epochs import CHECKPOINT, LeaderEpochCache, parse_epochs
from reference.storage.segment import Segment
from reference.wire.log_entries import entry_crc_valid
from reference.wire.records import BatchHeader
from spec.formats.verdict import UsageError

SEARCH_BYTES = 1 << 20
Warn = Callable[[str], None]
MEND = "restore the file, or delete the folder of this partition so that it is copied from its leader"


class CorruptLogError(UsageError):
    """Flushed data is damaged: nothing was changed, and somebody must decide. Names file, byte and offset."""


def segment_bases(fs: FileSystem, folder: str) -> list[int]:
    """Base offsets of the segments, ascending."""
    stems = (name.removesuffix(".log") for name in fs.names(folder) if name.endswith(".log"))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def read_epochs(fs: FileSystem, folder: str, warn: Warn) -> LeaderEpochCache | None:
    """The leader epoch checkpoint; None when it is missing or damaged, and has to be built from the batches."""
    path = f"{folder}/{CHECKPOINT}"
    if not fs.exists(path):
        return None
    entries = parse_epochs(fs.read(path, 0, fs.size(path)))
    if entries is None:
        warn(f"{path} is damaged: the leader epochs are read from the whole log")
        return None
    return LeaderEpochCache(entries)


def load_segment(segment: Segment, warn: Warn) -> None:
    """A segment below the recovery point: its indexes are taken as they are if they agree with it, else built anew."""
    if segment.load():
        return
    expected = segment.base_offset
    for header in segment.rebuild(check_crc=False):
        expected = header.next_offset
    if segment.size < segment.fs.size(segment.path):
        raise _corrupt(segment, expected)
    warn(f"{segment.path}: indexes disagreed with their log and were built anew")


def recover_segment(
    segment: Segment, recovery_point: int, *, check_crc: bool, note: Callable[[BatchHeader], None], warn: Warn
) -> bool:
    """Check every batch, build the indexes, and cut what a crash left; True if anything was cut.

    Raises CorruptLogError for a bad batch below the recovery point with a good one behind it.
    """
    expected = segment.base_offset
    for header in segment.rebuild(check_crc=check_crc):
        note(header)
        expected = header.next_offset
    end = segment.fs.size(segment.path)
    if segment.size == end:
        return False
    if expected < recovery_point and _good_data_follows(segment, expected, end):
        raise _corrupt(segment, expected)
    cut = end - segment.size
    warn(f"{segment.path}: {cut} bytes from byte {segment.size} on are no batch at offset {expected}, and are cut")
    segment.truncate_to(segment.size)
    return True


def refuse_gap(segment: Segment, expected: int) -> CorruptLogError:
    """A segment that lost its end, with later flushed segments behind it."""
    return _corrupt(segment, expected)


def _corrupt(segment: Segment, expected: int) -> CorruptLogError:
    return CorruptLogError(
        f"a bad batch at offset {expected}, byte {segment.size}, where everything was flushed",
        where=segment.path,
        mend=MEND,
    )


def _good_data_follows(segment: Segment, expected: int, end: int) -> bool:
    """Is there a whole batch with a good CRC behind the bad one? Looked for in the next MiB."""
    damaged = segment.fs.read(segment.path, segment.size, SEARCH_BYTES)
    high_bytes = re.escape(expected.to_bytes(8, "big")[:4])
    for place in re.finditer(rb"(?=%s.{4}\x00.{7}\x02)" % high_bytes, damaged, re.DOTALL):
        position = segment.size + place.start()
        header = segment.checked(position, expected, end, check_crc=False)
        if header is None or header.base_offset <= expected:
            continue
        if entry_crc_valid(segment.fs.read(segment.path, position, header.size), 0, header):
            return True
    return False
