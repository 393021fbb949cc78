"""A start on a damaged disk recovers or refuses the log, never silently (kafka-0.7-design, "Guarantees")."""

import re
from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from highwater.reference.drivers.simulation.disk import SimulatedDisk
from highwater.reference.storage.leader_epochs import CHECKPOINT
from highwater.reference.storage.log import Log, LogConfig
from highwater.reference.storage.recovery import CorruptLogError
from highwater.reference.wire.log_entries import entries
from highwater.reference.wire.records import batch_headers, build_batch, decode_records

FOLDER = "t-0"
SMALL = LogConfig(segment_bytes=900, index_interval_bytes=150)
INDEXES = (".index", ".timeindex", ".snapshot", ".txnindex")


@dataclass
class Written:
    fs: SimulatedDisk
    log: Log
    values: list[bytes]

    @property
    def ends(self) -> list[tuple[str, int, int]]:
        """Return file, end position and next offset of every batch."""
        return [
            (segment.path, position + header.size, header.next_offset)
            for segment in self.log.segments
            for position, header in segment.headers()
        ]


def write(batches: list[int], *, epoch_every: int = 4) -> Written:
    """Write a log of batches with these numbers of records, in several leader epochs and by three producers."""
    fs = SimulatedDisk()
    log = Log(fs, FOLDER, SMALL)
    values: list[bytes] = []
    sequences = [0, 0, 0]
    for number, count in enumerate(batches):
        producer = number % 3
        rows = [(1_000 + len(values) + n, None, b"value %d" % (len(values) + n), ()) for n in range(count)]
        data = build_batch(rows, producer_id=producer, producer_epoch=0, base_sequence=sequences[producer])
        ((_, header),) = batch_headers(data)
        log.append_as_leader(data, header, number // epoch_every)
        sequences[producer] += count
        values += [value for _, _, value, _ in rows]
    log.begin_flush()
    log.complete_flush()
    return Written(fs, log, values)


def read_all(log: Log) -> list[bytes]:
    found: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, log.log_end_offset, at_least_one=True)
        for position, header in entries(data):
            found += [record.value or b"" for record in decode_records(data, position)[1] if record.offset >= offset]
            offset = header.next_offset
    return found


def assert_sound(log: Log, written: Written) -> None:
    """Assert that the log is a prefix of what was written and that indexes, epochs and producers match its batches."""
    values = read_all(log)
    assert values == written.values[: log.log_end_offset]
    for offset in range(log.log_end_offset):
        _, header = next(entries(log.read(offset, 1 << 20, log.log_end_offset, at_least_one=True)))
        assert header.base_offset <= offset <= header.last_offset
        first = next(log.batches_from_timestamp(1_000 + offset))
        assert decode_records(first)[0].base_offset <= offset
    fresh = Log(written.fs, FOLDER, SMALL, clean=False)
    assert log.epochs.entries == fresh.epochs.entries
    headers = [header for segment in log.segments for _, header in segment.headers()]
    for producer, entry in log.producers.entries.items():
        last = [header for header in headers if header.producer_id == producer][-1]
        assert (entry.batches[-1].base_sequence, entry.batches[-1].base_offset) == (
            last.base_sequence,
            last.base_offset,
        )
    assert set(log.producers.entries) == {header.producer_id for header in headers}


batches = st.lists(st.integers(1, 6), min_size=1, max_size=30)


@given(batches, st.data())
@settings(deadline=None, max_examples=150)
def test_damage_past_the_recovery_point_loses_only_records_after_it(sizes: list[int], draw: st.DataObject) -> None:
    written = write(sizes)
    slot = draw.draw(st.integers(0, len(sizes) - 1), label="damaged batch")
    path, end, _ = written.ends[slot]
    start = written.ends[slot - 1][1] if slot and written.ends[slot - 1][0] == path else 0
    good = written.ends[slot - 1][2] if slot else 0
    kind = draw.draw(st.sampled_from(["lost tail", "torn block", "zeros", "flipped bit"]))
    event(kind)
    data = bytearray(written.fs.read(path, 0, written.fs.size(path)))
    at = draw.draw(st.integers(start, end - 1), label="at byte")
    if kind == "lost tail":
        del data[at:]
    elif kind == "torn block":
        data[at:end] = bytes(byte ^ 0x5A for byte in data[at:end])
    elif kind == "zeros":
        data[start:] = bytes(len(data) - start)
    else:
        at = draw.draw(st.integers(start + 16, end - 1))
        data[at] ^= 1 << draw.draw(st.integers(0, 7))
    written.fs.write(path, bytes(data))
    log = Log(written.fs, FOLDER, SMALL, recovery_point=draw.draw(st.integers(0, good)), clean=False)
    assert log.log_end_offset == good
    assert_sound(log, written)
    assert Log(written.fs, FOLDER, SMALL, recovery_point=good, clean=True).log_end_offset == good, (
        "the log has been repaired"
    )


@given(batches, st.binary(min_size=1, max_size=300), st.booleans())
@settings(deadline=None, max_examples=60)
def test_a_block_appended_to_the_log_is_truncated(sizes: list[int], junk: bytes, zeros: bool) -> None:
    written = write(sizes)
    written.fs.append(written.log.segments[-1].path, bytes(len(junk)) if zeros else junk)
    log = Log(written.fs, FOLDER, SMALL, recovery_point=written.log.log_end_offset, clean=False)
    assert log.log_end_offset == len(written.values)
    assert_sound(log, written)


@given(batches, st.data())
@settings(deadline=None, max_examples=100)
def test_damaged_index_snapshot_and_checkpoint_files_lose_no_records(sizes: list[int], draw: st.DataObject) -> None:
    """Indexes, snapshots and the epoch checkpoint can all be rebuilt from the batches."""
    written = write(sizes)
    names = [name for name in written.fs.names(FOLDER) if not name.endswith(".log")]
    for name in draw.draw(st.lists(st.sampled_from(names), min_size=1, unique=True)):
        path = f"{FOLDER}/{name}"
        data = written.fs.read(path, 0, written.fs.size(path))
        kind = draw.draw(st.sampled_from(["missing", "empty", "garbage", "cut", "zeros behind"]))
        event(kind)
        if kind == "missing":
            written.fs.delete(path)
        else:
            damaged = {"empty": b"", "garbage": b"\xa7" * len(data), "cut": data[:-3], "zeros behind": data + bytes(48)}
            written.fs.write(path, damaged[kind])
    recovery_point = draw.draw(st.integers(0, len(written.values)))
    log = Log(written.fs, FOLDER, SMALL, recovery_point=recovery_point, clean=draw.draw(st.booleans()))
    assert log.log_end_offset == len(written.values)
    assert_sound(log, written)


def rot(written: Written, offset: int) -> tuple[str, bytes]:
    slot = next(slot for slot, (_, _, end) in enumerate(written.ends) if end > offset)
    path, end, _ = written.ends[slot]
    data = bytearray(written.fs.read(path, 0, written.fs.size(path)))
    data[end - 1] ^= 0xFF
    written.fs.write(path, bytes(data))
    return path, bytes(data)


@pytest.mark.parametrize("offset", [0, 3, 11, 17])
def test_corruption_below_the_recovery_point_is_refused_without_truncation(offset: int) -> None:
    written = write([2] * 20)
    recovery_point = offset + 6 if offset < 16 else 38
    path, before = rot(written, offset)
    slot = max(n for n, s in enumerate(written.log.segments) if s.base_offset <= recovery_point)
    if path != written.log.segments[slot].path:  # segments below the recovery point are not read
        Log(written.fs, FOLDER, SMALL, recovery_point=recovery_point, clean=False)
        return
    with pytest.raises(CorruptLogError, match=re.escape(f"{path}: corrupt batch at offset {offset // 2 * 2}, byte ")):
        Log(written.fs, FOLDER, SMALL, recovery_point=recovery_point, clean=False)
    assert written.fs.read(path, 0, written.fs.size(path)) == before


@pytest.mark.parametrize("byte", range(8))
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("batch", [0, 2, 19])
def test_a_corrupt_base_offset_is_refused(byte: int, clean: bool, batch: int) -> None:
    """No CRC covers the base offset of a batch, and an index stores relative offsets in 31 bits."""
    written = write([2] * 20)
    path = written.ends[batch][0]
    start = written.ends[batch - 1][1] if batch and written.ends[batch - 1][0] == path else 0
    data = bytearray(written.fs.read(path, 0, written.fs.size(path)))
    data[start + byte] ^= 0x80
    written.fs.write(path, bytes(data))
    for index in written.fs.names(FOLDER):
        if index.endswith(INDEXES):
            written.fs.delete(f"{FOLDER}/{index}")
    with suppress(CorruptLogError):  # flushed data follows
        log = Log(written.fs, FOLDER, SMALL, clean=clean)
        assert log.log_end_offset - log.segments[-1].base_offset < 1 << 31


def test_a_corrupt_log_error_states_the_remedy() -> None:
    written = write([2] * 20)
    base = written.log.segments[1].base_offset
    rot(written, base)
    with pytest.raises(CorruptLogError, match="delete the folder of this partition so that the broker copies it"):
        Log(written.fs, FOLDER, SMALL, recovery_point=base + 6, clean=False)


def test_a_truncated_flushed_segment_is_refused() -> None:
    written = write([2] * 20)
    first = written.log.segments[0]
    written.fs.truncate(first.path, first.size - 5)
    for clean in (True, False):
        with pytest.raises(CorruptLogError, match=re.escape(first.path)):
            Log(written.fs, FOLDER, SMALL, recovery_point=len(written.values), clean=clean)


def test_a_recovery_point_past_the_log_end_checks_the_whole_log() -> None:
    written = write([2] * 20)
    rot(written, 3)
    last = written.log.segments[-1]
    written.fs.truncate(last.path, last.size - 5)
    assert Log(written.fs, FOLDER, SMALL, recovery_point=len(written.values), clean=False).log_end_offset == 2


def test_recovery_reads_only_past_the_recovery_point(monkeypatch: pytest.MonkeyPatch) -> None:
    written = write([2] * 60)
    read: dict[str, int] = {}
    plain = SimulatedDisk.read

    def counting(self: SimulatedDisk, path: str, position: int, size: int) -> bytes:
        data = plain(self, path, position, size)
        read[path] = read.get(path, 0) + len(data)
        return data

    monkeypatch.setattr(SimulatedDisk, "read", counting)
    log = Log(written.fs, FOLDER, SMALL, recovery_point=len(written.values), clean=False)
    assert log.log_end_offset == len(written.values)
    for segment in log.segments[:-2]:  # of the last but one, the headers say what producers may repeat
        assert read[segment.path] < segment.size, "only the indexes of a closed segment are read"


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_knows_the_last_five_batches_of_a_producer_before_and_after_a_roll(clean: bool) -> None:
    """The snapshot of the roll has the last batch only, and a producer may repeat each of five in flight."""
    fs = SimulatedDisk()
    log, sequence = Log(fs, FOLDER, SMALL), 0
    while len(log.segments) < 3:
        data = build_batch([(1_000, None, b"v", ())], producer_id=7, producer_epoch=0, base_sequence=sequence)
        ((_, header),) = batch_headers(data)
        log.append_as_leader(data, header, 0)
        sequence += 1
    log.begin_flush()
    log.complete_flush()
    again = Log(fs, FOLDER, SMALL, recovery_point=log.log_end_offset, clean=clean)
    assert [batch.base_sequence for batch in again.producers.entries[7].batches] == list(range(sequence - 5, sequence))


@pytest.mark.parametrize("data", [b"", b"0\n9\n0 0\n", b"\xff\xfe", b"0\n2\n3 0\n2 5\n"])
def test_a_damaged_epoch_checkpoint_is_reported_and_rebuilt(data: bytes) -> None:
    written = write([2] * 20)
    written.fs.write(f"{FOLDER}/{CHECKPOINT}", data)
    log = Log(written.fs, FOLDER, SMALL, recovery_point=len(written.values), clean=True)
    assert log.epochs.entries == [(0, 0), (1, 8), (2, 16), (3, 24), (4, 32)]
    assert log.warnings == [f"{FOLDER}/{CHECKPOINT} is damaged; the leader epochs are rebuilt from the whole log"]


def test_truncated_records_leave_no_producer_state_or_epoch() -> None:
    written = write([2] * 20)
    written.log.truncate_to(7)
    log = Log(written.fs, FOLDER, SMALL, recovery_point=written.log.recovery_point, clean=False)
    assert log.log_end_offset == 6
    assert log.epochs.entries == [(0, 0)]
    assert_sound(log, written)


def test_a_snapshot_of_the_log_end_does_not_outlive_a_truncation() -> None:
    """Apache Kafka writes a snapshot at the log end on every clean shutdown, without a segment that starts there."""
    written = write([2] * 20)
    end = written.log.log_end_offset
    written.fs.write(f"{FOLDER}/{end:020d}.snapshot", written.log.producers.snapshot())
    written.log.truncate_to(end - 4)
    for number in range(6):  # another producer writes past the offset of the snapshot
        data = build_batch([(1, None, b"new", ())], producer_id=9, producer_epoch=0, base_sequence=number)
        ((_, header),) = batch_headers(data)
        written.log.append_as_leader(data, header, 9)
    written.log.truncate_to(end + 1)
    last = {h.producer_id: h.base_offset for s in written.log.segments for _, h in s.headers()}
    assert {p: entry.batches[-1].base_offset for p, entry in written.log.producers.entries.items()} == last


def test_a_wrong_index_entry_is_detected_on_use() -> None:
    written = write([2] * 20)
    index = written.log.segments[0].offsets
    assert len(index) > 2
    data = bytearray(written.fs.read(index.path, 0, 1 << 20))
    data[7] -= 10  # still ascending, but no batch starts there
    written.fs.write(index.path, bytes(data))
    log = Log(written.fs, FOLDER, SMALL, recovery_point=len(written.values), clean=True)
    assert_sound(log, written)


def test_a_repeated_batch_is_truncated() -> None:
    written = write([2] * 3)
    last = written.log.segments[-1]
    written.fs.append(last.path, written.fs.read(last.path, 0, 1 << 20))
    size = last.size
    log = Log(written.fs, FOLDER, SMALL, clean=False)
    assert (log.log_end_offset, log.segments[-1].size) == (6, size)
    assert_sound(log, written)


def test_recovery_flushes_segments_that_a_dead_process_did_not_flush() -> None:
    written = write([2] * 5)
    again = Log(written.fs, FOLDER, SMALL, recovery_point=0, clean=False)
    assert set(again.begin_flush()) >= {segment.path for segment in again.segments}


@pytest.mark.parametrize("recovery_point", [0, 6, 40])
def test_a_segment_inside_the_previous_one_is_deleted(recovery_point: int) -> None:
    """A disk that undoes a deletion returns an old segment: its end would otherwise hide what follows."""
    written = write([2] * 20)
    segment = written.log.segments[1]
    (_, _), (position, header), *_ = segment.headers()
    returned = f"{FOLDER}/{header.base_offset:020}.log"
    written.fs.append(returned, segment.read(position, header.size))
    log = Log(written.fs, FOLDER, SMALL, recovery_point=recovery_point, clean=False)
    assert not written.fs.exists(returned)
    assert any("the segment before it ends at offset" in warning for warning in log.warnings)
    assert log.log_end_offset == len(written.values)
    assert_sound(log, written)
