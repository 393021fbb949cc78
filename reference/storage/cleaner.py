"""Compact a log: keep the last record of every key (kafka-0.8-principles; LogCleaner in Apache Kafka).

Offsets and batch boundaries do not change. A tombstone remains until its delete horizon, which the first cleaning
writes into the batch (KIP-534). An empty batch remains if it holds the last sequence of a producer. Records of aborted
transactions are removed, their markers remain. The cleaner never touches offsets at or past the last stable offset,
data not flushed yet, or the active segment.
"""

import sys
from dataclasses import dataclass
from typing import Final

from highwater.reference.storage.log import Log
from highwater.reference.storage.recovery import CLEANED
from highwater.reference.storage.segment import Segment
from highwater.reference.wire.records import BatchHeader, Record, rebuild_batch

INT64_MAX: Final = (1 << 63) - 1
MAX_KEYS: Final = 1_000_000
"""Limit of keys in the offset map of one cleaning; the remaining segments are left to the next cleaning."""


@dataclass(frozen=True, slots=True)
class Cleaning:
    """Cleaned copies of segments, to be fsynced and then installed; `end` is the first dirty offset afterwards."""

    segments: tuple[tuple[Segment, int], ...]
    end: int

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(segment.path + CLEANED for segment, _ in self.segments)


def cleanable_end(log: Log, wall_ms: int, high_watermark: int) -> int:
    """Return the offset at which the cleanable part of the log ends (exclusive); LogCleanerManager.cleanableOffsets.

    Without a minimum lag a segment is cleanable although its records are of a later time than now.
    """
    end = min(log.segments[-1].base_offset, log.recovery_point, log.producers.last_stable_offset(high_watermark))
    newest_ms = wall_ms - log.config.min_compaction_lag_ms if log.config.min_compaction_lag_ms > 0 else sys.maxsize
    for segment in log.segments:
        if segment.base_offset < end and segment.largest_timestamp > newest_ms:
            return segment.base_offset
    bases = [segment.base_offset for segment in log.segments if segment.base_offset <= end]
    return max(bases, default=log.log_start_offset)


def dirty_ratio(log: Log, first_dirty: int, end: int) -> float:
    """Return the share of uncleaned bytes among all cleanable bytes, 0 to 1."""
    clean = sum(segment.size for segment in log.segments if segment.base_offset < min(first_dirty, end))
    dirty = sum(segment.size for segment in log.segments if first_dirty <= segment.base_offset < end)
    return dirty / (clean + dirty) if dirty else 0.0


def is_overdue(log: Log, first_dirty: int, end: int, wall_ms: int) -> bool:
    """Return whether a dirty record is older than max.compaction.lag.ms (KIP-354; LogCleanerManager)."""
    oldest = [s.first_timestamp for s in log.segments if first_dirty <= s.base_offset < end and s.first_timestamp >= 0]
    return min(oldest, default=wall_ms) < wall_ms - log.config.max_compaction_lag_ms


def clean(log: Log, first_dirty: int, end: int, wall_ms: int) -> Cleaning:
    """Write cleaned copies of all segments below `end`."""
    latest, end = _latest_offsets(log, first_dirty, end)
    cleaned = []
    for segment in log.segments:
        if segment.base_offset < end:
            log.fs.write(segment.path + CLEANED, _cleaned(log, segment, latest, wall_ms))
            cleaned.append((segment, segment.size))
    return Cleaning(tuple(cleaned), end)


def install(log: Log, cleaning: Cleaning) -> bool:
    """Replace every segment by its fsynced copy; return False, and delete the copies, if a segment has changed.

    A record that superseded others may have been truncated since: without it, they must stay.
    """
    unchanged = all(segment in log.segments and segment.size == size for segment, size in cleaning.segments)
    for segment, _ in cleaning.segments:
        if unchanged:
            log.replace(segment, segment.path + CLEANED)
        elif log.fs.exists(segment.path + CLEANED):
            log.fs.delete(segment.path + CLEANED)
    return unchanged


def _latest_offsets(log: Log, first_dirty: int, end: int) -> tuple[dict[bytes, int], int]:
    """Return the last offset of every key in the dirty part, and the end of the part that was indexed."""
    latest: dict[bytes, int] = {}
    for segment in log.segments:
        if not first_dirty <= segment.base_offset < end:
            continue
        for header, records in _entries(log, segment):
            if header.is_control or _is_aborted(log, header):
                continue
            latest.update((record.key, record.offset) for record in records if record.key is not None)
        if len(latest) > MAX_KEYS:
            following = [other.base_offset for other in log.segments if other.base_offset > segment.base_offset]
            return latest, following[0]
    return latest, end


def _entries(log: Log, segment: Segment) -> list[tuple[BatchHeader, list[Record]]]:
    return [log.decode(segment.read(position, header.size)) for position, header in segment.headers()]


def _is_aborted(log: Log, header: BatchHeader) -> bool:
    return header.is_transactional and any(
        aborted.producer_id == header.producer_id and aborted.first_offset <= header.base_offset <= aborted.last_offset
        for aborted in log.producers.aborted
    )


def _cleaned(log: Log, segment: Segment, latest: dict[bytes, int], wall_ms: int) -> bytes:
    out = bytearray()
    for position, header in segment.headers():
        data = segment.read(position, header.size)
        out += data if header.is_control else _cleaned_batch(log, data, latest, wall_ms)
    return bytes(out)


def _cleaned_batch(log: Log, data: bytes, latest: dict[bytes, int], wall_ms: int) -> bytes:
    header, records = log.decode(data)
    retained = [] if _is_aborted(log, header) else [r for r in records if _should_retain(r, header, latest, wall_ms)]
    horizon = header.delete_horizon_ms
    if horizon is None and any(record.value is None for record in retained):
        horizon = min(wall_ms + log.config.delete_retention_ms, INT64_MAX)
    if len(retained) == len(records) and horizon == header.delete_horizon_ms:
        return data
    if retained or _holds_last_sequence(log, header):
        return rebuild_batch(header, retained, horizon)
    return b""


def _should_retain(record: Record, header: BatchHeader, latest: dict[bytes, int], wall_ms: int) -> bool:
    if record.key is None or latest.get(record.key, -1) > record.offset:
        return False
    horizon = header.delete_horizon_ms
    return record.value is not None or horizon is None or wall_ms <= horizon


def _holds_last_sequence(log: Log, header: BatchHeader) -> bool:
    entry = log.producers.entries.get(header.producer_id)
    return entry is not None and bool(entry.batches) and entry.batches[-1].base_offset == header.base_offset
