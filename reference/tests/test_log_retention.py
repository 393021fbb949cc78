"""Rolling and retention by size and by record timestamps (kafka-0.7-design, "Deletes"; "Writes")."""

import struct
from dataclasses import replace
from itertools import pairwise

import pytest

from highwater.reference.drivers.simulation.disk import SimulatedDisk
from highwater.reference.storage.log import Log, LogConfig, retain
from highwater.reference.wire.records import batch_headers, build_batch

DAY_MS = 86_400_000


def append(log: Log, timestamp: int, size: int = 100) -> int:
    data = build_batch([(timestamp, None, bytes(size), ())])
    ((_, header),) = batch_headers(data)
    return log.append_as_leader(data, header, 0)


def filled(config: LogConfig, days: range = range(10)) -> Log:
    log = Log(SimulatedDisk(), "t-0", config)
    for day in days:
        append(log, day * DAY_MS)
    return log


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_segment_is_rolled_when_its_records_span_the_time() -> None:
    assert bases(filled(LogConfig(segment_ms=3 * DAY_MS))) == [0, 4, 8]


def test_jitter_closes_segments_earlier_but_not_together() -> None:
    without, with_jitter = (
        LogConfig(segment_ms=4 * DAY_MS),
        LogConfig(segment_ms=4 * DAY_MS, segment_jitter_ms=3 * DAY_MS),
    )
    assert bases(filled(without, range(40))) == list(range(0, 40, 5))
    closed = bases(filled(with_jitter, range(40)))
    spans = {after - before for before, after in pairwise(closed)}
    assert spans <= {2, 3, 4, 5}
    assert len(spans) > 1
    assert closed == bases(filled(with_jitter, range(40))), "a run can be repeated"


def test_a_compacted_segment_closes_after_the_maximum_compaction_lag() -> None:
    """Otherwise its records would never become compactable (KIP-354)."""
    lag = LogConfig(segment_ms=90 * DAY_MS, max_compaction_lag_ms=3 * DAY_MS, cleanup_policy=frozenset({"compact"}))
    assert bases(filled(lag)) == [0, 4, 8]
    assert bases(filled(replace(lag, cleanup_policy=frozenset({"delete"})))) == [0]


def test_a_clock_that_jumps_back_rolls_nothing() -> None:
    log = filled(LogConfig(segment_ms=3 * DAY_MS), range(9, 0, -1))
    assert bases(log) == [0]


def test_a_segment_is_rolled_when_its_index_is_full() -> None:
    log = filled(LogConfig(index_interval_bytes=1, segment_index_bytes=24), range(10))
    assert bases(log) == [0, 4, 8], "the first batch of a segment has no index entry"


def test_a_segment_is_rolled_when_a_relative_offset_would_not_fit() -> None:
    log = filled(LogConfig(), range(1))
    far = bytearray(build_batch([(5, None, b"", ())]))
    struct.pack_into(">q", far, 0, 1 << 31)
    log.append_as_follower(bytes(far))
    struct.pack_into(">q", far, 0, (1 << 31) + 1)
    log.append_as_follower(bytes(far))
    assert bases(log) == [0, 1 << 31]


@pytest.mark.parametrize(("days", "expected"), [(0, []), (5, [6, 9]), (20, [0, 3, 6, 9])])
def test_old_segments_are_deleted_by_record_timestamp(days: int, expected: list[int]) -> None:
    log = filled(LogConfig(segment_bytes=600, retention_ms=days * DAY_MS))
    assert bases(log) == [0, 3, 6, 9]
    retain(log, 10 * DAY_MS + 1, log.log_end_offset)
    assert bases(log) == (expected or [10])
    assert log.log_start_offset == bases(log)[0]


def test_a_clock_that_jumps_back_deletes_nothing() -> None:
    log = filled(LogConfig(segment_bytes=600, retention_ms=DAY_MS))
    retain(log, -5 * DAY_MS, log.log_end_offset)
    assert bases(log) == [0, 3, 6, 9]


@pytest.mark.parametrize(("size", "expected"), [(0, [10]), (600, [6, 9]), (1_100, [3, 6, 9]), (1 << 30, [0, 3, 6, 9])])
def test_old_segments_are_deleted_above_retention_bytes(size: int, expected: list[int]) -> None:
    log = filled(LogConfig(segment_bytes=600, retention_bytes=size))
    retain(log, 0, log.log_end_offset)
    assert bases(log) == expected
    assert sum(segment.size for segment in log.segments) >= min(size, 1_100)


def test_uncommitted_segments_are_not_deleted() -> None:
    log = filled(LogConfig(segment_bytes=600, retention_ms=0))
    retain(log, 100 * DAY_MS, 5)
    assert bases(log) == [3, 6, 9]


def test_records_without_a_timestamp_do_not_expire() -> None:
    log = filled(LogConfig(segment_bytes=600, retention_ms=0), range(0))
    for _ in range(6):
        append(log, -1)
    retain(log, 100 * DAY_MS, log.log_end_offset)
    assert bases(log) == [0, 3]


def test_a_restart_does_not_change_the_age_of_segments() -> None:
    log = filled(LogConfig(segment_bytes=600, retention_ms=5 * DAY_MS))
    log.close()
    again = Log(log.fs, "t-0", log.config, recovery_point=10, clean=True)
    assert [s.largest_timestamp for s in again.segments] == [s.largest_timestamp for s in log.segments]
    retain(again, 10 * DAY_MS + 1, 10)
    assert bases(again) == [6, 9]
