"""The aborted transactions of a log survive power failures one after another, and damage between them."""

import pytest

from highwater.reference.drivers.simulation.disk import SimulatedDisk
from highwater.reference.storage.log import Log, LogConfig
from highwater.reference.storage.producer_state import Marker, marker_record
from highwater.reference.storage.transaction_index import read_entries
from highwater.reference.wire.records import batch_headers, build_batch

FOLDER = "t-0"
SMALL = LogConfig(segment_bytes=700, index_interval_bytes=150)
FIRST_INDEX = f"{FOLDER}/00000000000000000000.txnindex"


def append(log: Log, rows: list[tuple[int, bytes | None, bytes, tuple[()]]], *, sequence: int, control: bool) -> None:
    data = build_batch(
        rows, producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True, control=control
    )
    ((_, header),) = batch_headers(data)
    log.append_as_leader(data, header, 0)


def write(log: Log, sequences: range) -> None:
    """Append a transaction of one record for each sequence; every second one is aborted."""
    for sequence in sequences:
        append(log, [(1_000, None, b"value", ())], sequence=sequence, control=False)
        key, value = marker_record(Marker(sequence % 2 == 0, 0))
        append(log, [(1_000, key, value, ())], sequence=-1, control=True)


def flush(fs: SimulatedDisk, log: Log) -> None:
    for path in log.begin_flush():
        assert fs.exists(path), path
        fs.flush(path)
    log.complete_flush()


def aborted_below(log: Log, end: int) -> list[tuple[int, int]]:
    return [(each.first_offset, each.last_offset) for each in log.producers.aborted if each.last_offset < end]


def disagrees(warning: str) -> bool:
    return "a transaction index disagreed" in warning


@pytest.fixture
def written() -> tuple[SimulatedDisk, int, list[tuple[int, int]]]:
    """Return a disk with a flushed log of several segments, its end, and its aborted transactions."""
    fs = SimulatedDisk()
    log = Log(fs, FOLDER, SMALL)
    write(log, range(24))
    flush(fs, log)
    assert len(log.segments) > 4
    return fs, log.log_end_offset, aborted_below(log, log.log_end_offset)


@pytest.mark.parametrize("position", [9, 17, 25])
def test_a_damaged_index_is_rebuilt_again_if_the_broker_dies_before_it_was_flushed(
    written: tuple[SimulatedDisk, int, list[tuple[int, int]]], position: int
) -> None:
    fs, end, aborted = written
    fs.rot(FIRST_INDEX, position, 1)
    for _ in range(3):
        log = Log(fs, FOLDER, SMALL, recovery_point=end, clean=False)
        assert aborted_below(log, end) == aborted
        assert any(map(disagrees, log.warnings))
        fs.lose_unflushed()
    log = Log(fs, FOLDER, SMALL, recovery_point=end, clean=False)
    flush(fs, log)
    fs.lose_unflushed()
    log = Log(fs, FOLDER, SMALL, recovery_point=end, clean=False)
    assert aborted_below(log, end) == aborted
    assert not any(map(disagrees, log.warnings))


def test_two_power_failures_and_a_new_segment_between_them_lose_no_entry(
    written: tuple[SimulatedDisk, int, list[tuple[int, int]]],
) -> None:
    """The snapshots of new segments reach the disk before the flush; the indexes below them do not."""
    fs, end, aborted = written
    log = Log(fs, FOLDER, SMALL, recovery_point=end, clean=False)
    write(log, range(24, 36))
    for name in fs.names(FOLDER):
        if not name.endswith(".txnindex"):
            fs.flush(f"{FOLDER}/{name}")
    fs.lose_unflushed()
    log = Log(fs, FOLDER, SMALL, recovery_point=end, clean=False)
    assert aborted_below(log, end) == aborted


def test_an_index_that_is_rebuilt_while_a_flush_runs_is_not_renamed_before_its_own(
    written: tuple[SimulatedDisk, int, list[tuple[int, int]]],
) -> None:
    fs, end, aborted = written
    fs.rot(FIRST_INDEX, 9, 1)
    log = Log(fs, FOLDER, SMALL, recovery_point=end, clean=False)
    begun = [fs.begin_flush(path) for path in log.begin_flush()]
    log.truncate_to(end - 1)  # the damaged file is still in use, so that the index is rebuilt again
    for flushing in begun:
        fs.end_flush(flushing)
    log.complete_flush()
    flush(fs, log)
    fs.lose_unflushed()
    again = Log(fs, FOLDER, SMALL, recovery_point=log.recovery_point, clean=False)
    assert aborted_below(again, end - 1) == [each for each in aborted if each[1] < end - 1]
    assert not any(map(disagrees, again.warnings))


def test_a_truncation_to_the_segment_of_a_pending_index_takes_its_place(
    written: tuple[SimulatedDisk, int, list[tuple[int, int]]],
) -> None:
    fs, end, aborted = written
    fs.rot(FIRST_INDEX, 9, 1)
    log = Log(fs, FOLDER, SMALL, recovery_point=end, clean=False)
    log.truncate_to(4)
    write(log, range(3, 4))
    flush(fs, log)
    fs.lose_unflushed()
    assert [each.last_offset for each in read_entries(fs, FIRST_INDEX) or []] == [aborted[0][1], 5]


def test_a_segment_is_deleted_with_the_index_that_was_to_replace_its_own(
    written: tuple[SimulatedDisk, int, list[tuple[int, int]]],
) -> None:
    fs, end, _ = written
    fs.rot(FIRST_INDEX, 9, 1)
    log = Log(fs, FOLDER, SMALL, recovery_point=end, clean=False)
    log.advance_log_start(end)
    flush(fs, log)
    assert [name for name in fs.names(FOLDER) if name.startswith("00000000000000000000.")] == []
