"""The log on a real disk and on a simulated one: append, read, truncate, recover."""

from pathlib import Path

import pytest

from highwater.reference.drivers.files import Disk
from highwater.reference.drivers.simulation.disk import SimulatedDisk
from highwater.reference.effects import Flush, Outbox
from highwater.reference.guards import Guards
from highwater.reference.storage.checkpoints import Checkpoint, parse_offsets
from highwater.reference.storage.filesystem import FileSystem
from highwater.reference.storage.leader_epochs import LeaderEpochCache, format_epochs
from highwater.reference.storage.log import CorruptBatchError, Log, LogConfig, OffsetOutOfRangeError
from highwater.reference.wire.records import batch_headers, build_batch, decode_records

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)


@pytest.fixture(params=["disk", "simulated"])
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> FileSystem:
    return Disk(tmp_path) if request.param == "disk" else SimulatedDisk()


def batch(*values: str, producer: int = -1, sequence: int = -1) -> bytes:
    rows = [(1_000 + n, None, value.encode(), ()) for n, value in enumerate(values)]
    return build_batch(rows, producer_id=producer, producer_epoch=0 if producer >= 0 else -1, base_sequence=sequence)


def append(log: Log, *values: str, epoch: int = 0) -> int:
    data = batch(*values)
    ((_, header),) = batch_headers(data)
    return log.append_as_leader(data, header, epoch)


def values(log: Log, offset: int = 0, until: int | None = None) -> list[str]:
    """Return all values, read in several bounded reads as a follower does."""
    found: list[str] = []
    end = log.log_end_offset if until is None else until
    while offset < end:
        data = log.read(offset, 1 << 20, end, at_least_one=True)
        for position, header in batch_headers(data):
            found += [(r.value or b"").decode() for r in decode_records(data, position)[1] if r.offset >= offset]
            offset = header.next_offset
    return found


def filled(fs: FileSystem, count: int = 12) -> Log:
    log = Log(fs, "t-0", SMALL)
    for number in range(count):
        append(log, f"v{number}", epoch=number // 4)
    return log


def test_offsets_ascend_over_segments(fs: FileSystem) -> None:
    log = filled(fs)
    assert log.log_end_offset == 12
    assert len(log.segments) > 2
    assert values(log) == [f"v{n}" for n in range(12)]
    assert values(log, 7, 9) == ["v7", "v8"]


def test_reading_is_bounded_and_gives_at_least_one_batch_if_asked(fs: FileSystem) -> None:
    log = filled(fs)
    assert len(list(batch_headers(log.read(0, 1, 12, at_least_one=True)))) == 1
    assert log.read(0, 1, 12, at_least_one=False) == b""
    assert log.read(12, 100, 12, at_least_one=True) == b""
    with pytest.raises(OffsetOutOfRangeError):
        log.read(13, 100, 12, at_least_one=True)


@pytest.mark.parametrize("offset", range(13))
def test_truncation_keeps_the_records_below_the_offset(fs: FileSystem, offset: int) -> None:
    log = filled(fs)
    log.truncate_to(offset)
    assert log.log_end_offset == offset
    assert values(log) == [f"v{n}" for n in range(offset)]
    assert append(log, "new", epoch=9) == offset
    assert values(log)[-1] == "new"


def test_a_log_is_the_same_after_a_clean_stop(fs: FileSystem) -> None:
    before = filled(fs)
    after = Log(fs, "t-0", SMALL, recovery_point=12, clean=True)
    assert (after.log_end_offset, values(after)) == (12, values(before))
    assert after.epochs.entries == [(0, 0), (1, 4), (2, 8)]


@pytest.mark.parametrize("junk", [b"\x00" * 100, b"nonsense that is no batch" * 5, b"\x00\x01"])
def test_recovery_truncates_bytes_that_are_not_a_batch(fs: FileSystem, junk: bytes) -> None:
    log = filled(fs)
    fs.append(log.segments[-1].path, junk)
    again = Log(fs, "t-0", SMALL, clean=False)
    assert values(again) == [f"v{n}" for n in range(12)]
    assert append(again, "next") == 12


def test_recovery_truncates_at_a_torn_batch(fs: FileSystem) -> None:
    log = filled(fs)
    path = log.segments[1].path
    data = bytearray(fs.read(path, 0, fs.size(path)))
    data[-3] ^= 0xFF
    fs.write(path, bytes(data))
    again = Log(fs, "t-0", SMALL, clean=False)
    end = again.log_end_offset
    assert log.segments[1].base_offset < end < log.segments[2].base_offset
    assert values(again) == [f"v{n}" for n in range(end)]


def test_a_clean_start_trusts_the_checksums_but_not_the_sizes(fs: FileSystem) -> None:
    log = filled(fs)
    path = log.segments[-1].path
    fs.truncate(path, fs.size(path) - 5)
    assert Log(fs, "t-0", SMALL, recovery_point=12, clean=True).log_end_offset == 11


def test_an_index_that_disagrees_is_rebuilt(fs: FileSystem) -> None:
    log = filled(fs)
    index = log.segments[0].path.replace(".log", ".index")
    fs.write(index, b"\xff" * 80)
    assert values(Log(fs, "t-0", SMALL, clean=False)) == [f"v{n}" for n in range(12)]


def test_a_follower_appends_whole_batches_once(fs: FileSystem) -> None:
    leader, follower = filled(fs), Log(fs, "u-0", SMALL)
    data = b"".join(leader.read(segment.base_offset, 1 << 20, 12, at_least_one=True) for segment in leader.segments)
    assert follower.append_as_follower(data[:-10]) == 11
    assert follower.append_as_follower(data) == 1
    assert follower.append_as_follower(data) == 0
    assert values(follower) == values(leader)
    assert follower.epochs.entries == leader.epochs.entries


def test_an_empty_follower_starts_in_the_middle_of_a_batch(fs: FileSystem) -> None:
    """The log start of its leader is there after DeleteRecords; without this the follower could never go on."""
    leader, follower = Log(fs, "t-0", SMALL), Log(fs, "u-0", SMALL)
    append(leader, "v0", "v1", "v2")
    append(leader, "v3")
    data = leader.read(0, 1 << 20, 4, at_least_one=True)
    follower.truncate_fully(1)
    assert follower.append_as_follower(data) == 4
    assert (follower.log_start_offset, follower.log_end_offset) == (1, 4)
    assert values(follower, 1) == ["v1", "v2", "v3"]


def test_a_follower_with_records_refuses_a_batch_that_overlaps_them(fs: FileSystem) -> None:
    leader, follower = Log(fs, "t-0", SMALL), Log(fs, "u-0", SMALL)
    append(leader, "v0", "v1", "v2")
    append(follower, "other")
    with pytest.raises(CorruptBatchError):
        follower.append_as_follower(leader.read(0, 1 << 20, 3, at_least_one=True))


def test_a_follower_refuses_a_bad_checksum_and_an_offset_gap(fs: FileSystem) -> None:
    leader = filled(fs)
    data = bytearray(leader.read(0, 1 << 20, 4, at_least_one=True))
    data[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        Log(fs, "u-0", SMALL).append_as_follower(bytes(data))


def test_deleted_records_are_hidden_and_their_segments_go(fs: FileSystem) -> None:
    log = filled(fs)
    segments = len(log.segments)
    log.advance_log_start(9)
    assert log.log_start_offset == 9
    assert len(log.segments) < segments
    assert values(log, 9) == ["v9", "v10", "v11"]
    with pytest.raises(OffsetOutOfRangeError):
        log.read(3, 100, 12, at_least_one=True)


def test_producer_state_survives_recovery(fs: FileSystem) -> None:
    log = Log(fs, "t-0", SMALL)
    for sequence in range(7):
        data = batch("x", producer=5, sequence=sequence)
        ((_, header),) = batch_headers(data)
        log.append_as_leader(data, header, 0)
    again = Log(fs, "t-0", SMALL, clean=False)
    ((_, repeated),) = batch_headers(batch("x", producer=5, sequence=4))
    found = again.producers.duplicate(repeated, Guards())
    assert found is not None
    assert found.base_offset == 4
    ((_, forgotten),) = batch_headers(batch("x", producer=5, sequence=1))
    assert again.producers.duplicate(forgotten, Guards()) is None, "producer state keeps only the last five batches"


def test_end_offset_of_a_leader_epoch_follows_kip_279() -> None:
    cache = LeaderEpochCache([(1, 0), (3, 10), (4, 20)])
    assert cache.end_offset_for(4, 25) == (4, 25)
    assert cache.end_offset_for(3, 25) == (3, 20)
    assert cache.end_offset_for(2, 25) == (1, 10)
    assert cache.end_offset_for(0, 25) == (0, 0)
    assert cache.end_offset_for(5, 25) == (-1, -1)
    cache.truncate_from_end(10)
    assert cache.entries == [(1, 0)]


def test_a_checkpoint_is_replaced_only_after_its_flush(fs: FileSystem) -> None:
    out = Outbox()
    checkpoint = Checkpoint(fs, out, "points")
    checkpoint.write({("t", 0): 5})
    assert checkpoint.read() == {}
    (flush,) = out.drain()
    assert isinstance(flush, Flush)
    checkpoint.complete_flush()
    assert Checkpoint(fs, out, "points").read() == {("t", 0): 5}


@pytest.mark.parametrize("data", [b"", b"0\n2\nt 0 5\n", b"\xff\xfe", b"9\n1\nt 0 5\n", b"0\n1\nt zero 5\n"])
def test_a_corrupt_checkpoint_is_ignored(data: bytes) -> None:
    assert parse_offsets(data) is None


def test_a_log_start_at_the_start_of_an_epoch_removes_all_epochs_before_it() -> None:
    """LeaderEpochFileCache.truncateFromStart; they stayed, and a replica truncated to a deleted offset."""
    epochs = LeaderEpochCache([(0, 0), (1, 23), (2, 43)])
    epochs.truncate_from_start(43)
    assert (epochs.entries, epochs.end_offset_for(0, 50), epochs.dirty) == ([(2, 43)], (0, 43), True)


def test_epochs_before_the_checkpoint_of_the_log_start_are_removed_at_start(fs: FileSystem) -> None:
    filled(fs)
    fs.write("t-0/leader-epoch-checkpoint", format_epochs([(0, 0), (1, 4), (2, 8)]))
    log = Log(fs, "t-0", SMALL, log_start_offset=6)
    assert log.epochs.entries == [(1, 6), (2, 8)]
