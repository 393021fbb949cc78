"""Compaction agrees with a dict, and keeps what it must not remove (kafka-0.8-principles; KIP-534; KIP-98)."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from highwater.reference.drivers.simulation.disk import SimulatedDisk
from highwater.reference.storage.cleaner import Cleaning, clean, cleanable_end, dirty_ratio, install, is_overdue
from highwater.reference.storage.log import Log, LogConfig
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.log_entries import decode_entry, entries
from highwater.reference.wire.message_sets import build_message_set
from highwater.reference.wire.records import BatchHeader, Record, batch_headers, build_batch

COMPACT = LogConfig(segment_bytes=400, index_interval_bytes=100, cleanup_policy=frozenset({"compact"}))
HORIZON_MS = COMPACT.delete_retention_ms
NOW = 1_000_000

Row = tuple[bytes, bytes | None]


def fresh() -> Log:
    return Log(SimulatedDisk(), "t-0", COMPACT)


def append(log: Log, rows: list[Row], *, timestamp: int = 1_000, **batch: Any) -> int:
    data = build_batch([(timestamp, key, value, ()) for key, value in rows], **batch)
    ((_, header),) = batch_headers(data)
    return log.append_as_leader(data, header, 0)


def flush(log: Log) -> None:
    log.begin_flush()
    log.complete_flush()


def compact(log: Log, wall_ms: int = NOW, first_dirty: int = 0) -> Cleaning:
    flush(log)
    end = cleanable_end(log, wall_ms, log.log_end_offset)
    cleaning = clean(log, first_dirty, end, wall_ms)
    install(log, cleaning)
    return cleaning


def contents(log: Log) -> tuple[list[BatchHeader], list[Record]]:
    headers, records = [], []
    for segment in log.segments:
        for position, _ in segment.headers():
            header, found = decode_entry(segment.read(position, segment.size - position))
            headers.append(header)
            records += found
    return headers, records


keys = st.sampled_from([b"a", b"b", b"c", b"d"])
rows = st.lists(st.tuples(keys, st.none() | st.binary(max_size=8)), min_size=1, max_size=4)


@given(
    st.lists(st.tuples(rows, st.sampled_from(list(Compression))), min_size=1, max_size=25),
    st.integers(1, 3),
)
@settings(deadline=None, max_examples=120)
def test_the_last_record_of_each_key_keeps_its_offset(
    batches: list[tuple[list[Row], Compression]], rounds: int
) -> None:
    log = fresh()
    written: list[tuple[int, bytes, bytes | None]] = []
    first_dirty = 0
    for turn in range(rounds):
        for batch, codec in batches:
            offset = append(log, batch, compression=codec)
            written += [(offset + n, key, value) for n, (key, value) in enumerate(batch)]
        cleaning = compact(log, NOW + turn * 2 * HORIZON_MS, first_dirty)
        first_dirty = cleaning.end
        _, records = contents(log)
        there = [(record.offset, record.key, record.value) for record in records]
        assert set(there) <= set(written)
        assert [offset for offset, _, _ in there] == sorted(offset for offset, _, _ in there)
        assert [row for row in there if row[0] >= cleaning.end] == [row for row in written if row[0] >= cleaning.end]
        last = {key: (offset, value) for offset, key, value in written if offset < cleaning.end}
        kept = {key or b"": (offset, value) for offset, key, value in there if offset < cleaning.end}
        assert {key: kept[key] for key in kept} == {key: last[key] for key in kept}, (
            "at most the last record of each key"
        )
        assert all(last[key][1] is None for key in set(last) - set(kept)), "only tombstones may be removed"
    reopened = Log(log.fs, "t-0", COMPACT, recovery_point=log.recovery_point, clean=False)
    assert contents(reopened)[1] == contents(log)[1]
    for offset in range(log.log_end_offset):
        data = log.read(offset, 1 << 20, log.log_end_offset, at_least_one=True)
        if any(record.offset >= offset for record in contents(log)[1]):
            assert next(entries(data))[1].last_offset >= offset


def test_a_tombstone_stays_until_its_horizon() -> None:
    log = fresh()
    append(log, [(b"a", b"1"), (b"b", b"1")])
    append(log, [(b"a", None)])
    append(log, [(b"z", b"x" * 380)])
    append(log, [(b"y", b"x" * 380)])
    cleaning = compact(log)
    headers, records = contents(log)
    assert [(r.offset, r.key, r.value, r.timestamp) for r in records[:2]] == [
        (1, b"b", b"1", 1_000),
        (2, b"a", None, 1_000),
    ]
    assert [header.delete_horizon_ms for header in headers[:2]] == [None, NOW + HORIZON_MS]
    assert (headers[0].base_offset, headers[0].last_offset) == (0, 1), "base and last offset of a batch do not change"
    compact(log, NOW + HORIZON_MS, cleaning.end)
    assert contents(log)[0][1].delete_horizon_ms == NOW + HORIZON_MS, "the delete horizon is set once"
    compact(log, NOW + HORIZON_MS + 1, cleaning.end)
    assert b"a" not in {record.key for record in contents(log)[1]}


def test_an_empty_batch_keeps_the_last_sequence_of_its_producer() -> None:
    log = fresh()
    append(log, [(b"a", b"1")], producer_id=7, producer_epoch=0, base_sequence=0)
    append(log, [(b"a", b"2")], producer_id=7, producer_epoch=0, base_sequence=1)
    append(log, [(b"a", b"3")])
    append(log, [(b"z", b"x" * 380)])
    append(log, [(b"y", b"x" * 380)])
    compact(log)
    headers, _ = contents(log)
    assert [(h.base_sequence, h.record_count, h.base_offset) for h in headers[:2]] == [(1, 0, 1), (-1, 1, 2)]
    again = Log(log.fs, "t-0", COMPACT, clean=False)
    assert again.producers.entries[7].last_sequence == 1


def marker(*, committed: bool) -> tuple[list[Row], dict[str, Any]]:
    key, value = b"\0\0" + (b"\0\1" if committed else b"\0\0"), b"\0\0\0\0\0\0"
    return [(key, value)], {"control": True, "transactional": True, "producer_id": 7, "producer_epoch": 0}


def test_aborted_records_are_removed_and_open_transactions_kept() -> None:
    log = fresh()
    transaction: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    append(log, [(b"a", b"kept")])
    append(log, [(b"a", b"aborted")], base_sequence=0, **transaction)
    control, fields = marker(committed=False)
    append(log, control, **fields)
    append(log, [(b"z", b"x" * 380)])
    append(log, [(b"a", b"open")], base_sequence=1, **transaction)
    append(log, [(b"z", b"y" * 380)])
    append(log, [(b"z", b"w" * 380)])
    cleaning = compact(log)
    assert cleaning.end == 4, "records at or past the last stable offset are not compacted"
    records = [record for record in contents(log)[1] if record.key == b"a"]
    assert [record.value for record in records] == [b"kept", b"open"], "an aborted record does not replace an older one"
    assert [header.base_offset for header in contents(log)[0] if header.is_control] == [2]


def test_message_sets_are_compacted_too() -> None:
    log = fresh()
    old = [Record(n, 1_000, b"a" if n < 3 else b"b", b"%d" % n) for n in range(5)]
    log.append_as_follower(build_message_set(old[:4], 1, Compression.GZIP) + build_message_set(old[4:], 1))
    append(log, [(b"z", b"x" * 380)])
    append(log, [(b"y", b"x" * 380)])
    compact(log)
    assert [(r.offset, r.key, r.value) for r in contents(log)[1][:2]] == [(2, b"a", b"2"), (4, b"b", b"4")]


def test_recent_and_unflushed_records_are_not_compacted() -> None:
    log = fresh()
    for number in range(6):
        append(log, [(b"a", b"%d" % number + b"x" * 380)], timestamp=number * 100)
    assert cleanable_end(log, NOW, log.log_end_offset) == 0, "unflushed segments are not compacted"
    flush(log)
    assert cleanable_end(log, NOW, log.log_end_offset) == 5, "all segments but the active one are compacted"
    assert cleanable_end(log, NOW, 3) == 3, "records above the high watermark are not compacted"
    assert cleanable_end(log, 50, log.log_end_offset) == 5, "nor are records of the future kept without a minimum lag"
    log.config = LogConfig(segment_bytes=400, min_compaction_lag_ms=250)
    assert cleanable_end(log, 500, log.log_end_offset) == 3
    assert dirty_ratio(log, 0, 4) == 1.0
    assert 0.49 < dirty_ratio(log, 2, 4) < 0.51
    assert dirty_ratio(log, 4, 4) == 0.0


def test_the_age_of_a_closed_segment_is_known_after_a_clean_restart() -> None:
    config = replace(COMPACT, max_compaction_lag_ms=500, index_interval_bytes=4_096)
    log = Log(SimulatedDisk(), "t-0", config)
    for number in range(2):
        append(log, [(b"a", b"%d" % number + b"x" * 380)], timestamp=1_000 + number)
    log.close()
    reopened = Log(log.fs, log.folder, config, recovery_point=log.recovery_point)
    assert not is_overdue(reopened, 0, 1, 1_500)
    assert is_overdue(reopened, 0, 1, 1_501)
    assert [segment.first_timestamp for segment in reopened.segments] == [1_000, 1_001]


def test_a_cleaned_copy_is_not_left_behind_if_its_segment_changed() -> None:
    log = fresh()
    for number in range(6):
        append(log, [(b"a", b"%d" % number + b"x" * 380)])
    flush(log)
    cleaning = clean(log, 0, 5, NOW)
    log.truncate_to(2)
    assert not install(log, cleaning)
    assert not [name for name in log.fs.names("t-0") if name.endswith(".cleaned")]
    assert [record.offset for record in contents(log)[1]] == [0, 1], "the records that superseded them were truncated"


def test_records_after_a_truncation_are_not_compacted_yet() -> None:
    """The next cleaning must index them, or the records that they supersede would stay."""
    log = fresh()
    for number in range(6):
        append(log, [(b"a", b"%d" % number + b"x" * 380)])
    log.cleaned_until = compact(log).end
    log.truncate_to(2)
    for number in range(6):
        append(log, [(b"a", b"%d" % number + b"y" * 380)])
    compact(log, first_dirty=log.cleaned_until)
    assert len(contents(log)[1]) == 2, "the last one, and the active segment"


def test_a_crash_between_copy_and_swap_leaves_the_old_segment() -> None:
    log = fresh()
    for number in range(6):
        append(log, [(b"a", b"%d" % number + b"x" * 380)])
    flush(log)
    clean(log, 0, 5, NOW)
    again = Log(log.fs, "t-0", COMPACT, recovery_point=6, clean=False)
    assert [record.offset for record in contents(again)[1]] == [0, 1, 2, 3, 4, 5]
    assert not [name for name in log.fs.names("t-0") if name.endswith(".cleaned")]
