"""Log files are compatible both ways: DumpLogSegments reads ours, and we read those of Apache Kafka brokers."""

import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from highwater.reference.drivers.files import Disk
from highwater.reference.storage.cleaner import clean, install
from highwater.reference.storage.log import Log, LogConfig
from highwater.reference.tests.apache_kafka.programs import run_tool
from highwater.reference.tests.apache_kafka.write_segments import CODECS, lines
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.log_entries import decode_entry, entries, entry_crc_valid
from highwater.reference.wire.message_sets import build_message_set
from highwater.reference.wire.records import Record, TimestampType, batch_headers, build_batch

SEGMENTS = Path(__file__).parent / "apache_kafka" / "segments"
WRITTEN = [(version, codec) for version, codecs in CODECS.items() for codec in codecs]
MAGIC = {"0.9.0.1": 0, "0.10.2.2": 1, "4.3.1": 2}
SMALL = LogConfig(segment_bytes=3_000, index_interval_bytes=200)
COMPLAINTS = (
    "isvalid: false", "invalid bytes at the end", "Exception", "Found timestamp mismatch",
    "Found out of order timestamp", "Mismatches in", "Index position", "not found",
)  # fmt: skip
HOLE = re.compile(r"^  (\d+) is followed by (\d+)$", re.MULTILINE)
"""Under the tool's "Non-consecutive offsets"; "-1 is followed by" it says of every file that begins past offset 0."""


# -- theirs, read by us --------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "codec"), WRITTEN)
def test_segments_of_apache_kafka_are_read(version: str, codec: str, tmp_path: Path) -> None:
    shutil.copytree(SEGMENTS / version / codec, tmp_path / "t-0")
    disk = Disk(tmp_path)
    before = (tmp_path / "t-0" / "00000000000000000000.log").read_bytes()
    for clean_stop in (True, False):
        log = Log(disk, "t-0", SMALL, recovery_point=0, clean=clean_stop)
        data = b"".join(segment.read(0, segment.size) for segment in log.segments)
        assert data == before, "nothing was truncated"
        found = [(p, header, *decode_entry(data, p)[1:]) for p, header in entries(data)]
        assert {header.magic for _, header, _ in found} == {MAGIC[version]}
        assert {header.compression.name.lower() for _, header, _ in found} == {codec}
        assert all(entry_crc_valid(data, position, header) for position, header, _ in found)
        records = [record for _, _, each in found for record in each]
        assert [record.offset for record in records] == list(range(len(records)))
        assert b"".join(b"%s:%s\n" % (record.key, record.value) for record in records).decode() == lines()
        assert log.log_end_offset == len(records)
    disk.close()


def test_indexes_snapshots_and_epochs_of_apache_kafka_are_used_unchanged(tmp_path: Path) -> None:
    shutil.copytree(SEGMENTS / "4.3.1" / "none", tmp_path / "t-0")
    disk = Disk(tmp_path)
    index = (tmp_path / "t-0" / "00000000000000000000.index").read_bytes()
    snapshot = (tmp_path / "t-0" / "00000000000000000040.snapshot").read_bytes()
    (ours,) = Log(disk, "t-0", LogConfig(index_interval_bytes=300), clean=False).segments
    assert disk.read(ours.offsets.path, 0, 1 << 20) == index, "the rebuilt index is byte-identical"
    log = Log(disk, "t-0", LogConfig(index_interval_bytes=300), recovery_point=40, clean=True)
    assert ours.load()
    assert log.epochs.entries == [(0, 0)]
    assert log.producers.restore(snapshot)
    ((_, entry),) = log.producers.entries.items()
    assert (entry.epoch, entry.batches[-1].last_offset) == (0, 39)
    disk.close()


# -- ours, read by them --------------------------------------------------------------------------


def dump(*files: Path) -> str:
    requested = ("--print-data-log", "--deep-iteration", "--files", ",".join(map(str, files)))
    run = run_tool("DumpLogSegments", *requested)
    return run.stdout + run.stderr


def complaints(text: str) -> list[str]:
    return [line for line in text.splitlines() if any(each in line for each in COMPLAINTS)]


def append(log: Log, records: list[tuple[int, bytes | None, bytes | None, Any]], **kinds: Any) -> None:
    data = build_batch(records, **kinds)
    ((_, header),) = batch_headers(data)
    log.append_as_leader(data, header, log.log_end_offset // 40)


def rows(log: Log, count: int) -> list[tuple[int, bytes | None, bytes | None, Any]]:
    first = log.log_end_offset
    return [
        (10_000 + first + n, b"key %d" % ((first + n) % 7), b"value %d" % (first + n), (("name", b"header"),))
        for n in range(count)
    ]


def write_all_kinds(log: Log) -> None:
    """Every codec, idempotent and transactional batches, markers, append time, tombstones, several segments."""
    for turn in range(4):
        for codec in Compression:
            append(log, rows(log, 6), compression=codec)
        append(log, rows(log, 3), producer_id=5, producer_epoch=0, base_sequence=3 * turn)
        append(log, rows(log, 2), producer_id=6, producer_epoch=1, base_sequence=2 * turn, transactional=True)
        marker = b"\0\0\0\1" if turn % 2 else b"\0\0\0\0"
        ended = (10_000 + log.log_end_offset, marker, b"\0\0\0\0\0\7", ())
        append(log, [ended], producer_id=6, producer_epoch=1, transactional=True, control=True)
        append(log, [(10_000 + log.log_end_offset, b"key 3", None, ())])
        append(log, rows(log, 2), timestamp_type=TimestampType.LOG_APPEND_TIME)


def files_of(folder: Path) -> Iterator[Path]:
    for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
        yield from sorted(folder.glob(f"*{suffix}"))


def test_apache_kafka_reads_our_logs_without_errors(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    log = Log(disk, "t-0", SMALL)
    write_all_kinds(log)
    log.close()
    cleaned = Log(disk, "cleaned-0", SMALL)
    append(cleaned, [(10_000, b"gone", None, ())])
    write_all_kinds(cleaned)
    cleaned.close()
    compacted = len(list((tmp_path / "cleaned-0").glob("*.log")))
    install(cleaned, clean(cleaned, 0, cleaned.segments[-1].base_offset, 50_000))
    assert len(log.segments) > 2
    assert 2 <= len(cleaned.segments) <= compacted
    files = [*files_of(tmp_path / "t-0"), *files_of(tmp_path / "cleaned-0")]
    text = dump(*files)
    assert not complaints(text)
    assert all(f"Dumping {path}" in text for path in files), text[-2_000:]
    dumped = text.split(f"Dumping {tmp_path}/cleaned-0")[0]
    records = re.findall(r"^\| offset: (\d+) .*", dumped, re.MULTILINE)
    holes = {(int(one), int(two)) for one, two in HOLE.findall(text)}
    left = [r.offset for s in cleaned.segments for p, _ in s.headers() for r in decode_entry(s.read(p, s.size))[1]]
    assert holes <= set(pairwise(left)), "offset gaps only after compaction"
    assert [int(offset) for offset in records] == list(range(log.log_end_offset)), "every record, in order"
    for codec in Compression:
        assert f"compresscodec: {codec.name.lower()}" in dumped
    assert dumped.count("endTxnMarker: COMMIT") == dumped.count("endTxnMarker: ABORT") == 2
    assert "payload: value 7" in dumped
    assert re.search(r"deleteHorizonMs: OptionalLong\[\d+\]", text), "tombstones have a delete horizon"
    disk.close()


def test_apache_kafka_reads_our_message_sets(tmp_path: Path) -> None:
    records = [Record(n, 10_000 + n, b"key %d" % n, b"value %d" % n) for n in range(10)]
    files = []
    for magic in (0, 1):
        for codec in (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4):
            folder = tmp_path / f"{magic}-{codec.name}"
            folder.mkdir()
            files.append(folder / "00000000000000000000.log")
            files[-1].write_bytes(build_message_set(records, magic, codec))
    text = dump(*files)
    assert not complaints(text)
    assert text.count("payload: value 9") == len(files), text[-2_000:]


def test_dump_log_segments_reports_damage(tmp_path: Path) -> None:
    """The tests above rely on this: the tool prints an error for a damaged file."""
    disk = Disk(tmp_path)
    log = Log(disk, "t-0", SMALL)
    write_all_kinds(log)
    log.close()
    first, second = sorted((tmp_path / "t-0").glob("*.log"))[:2]
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(bytes(data))
    second.write_bytes(second.read_bytes() + b"nonsense")
    index = sorted((tmp_path / "t-0").glob("*.index"))[1]
    index.write_bytes(index.read_bytes()[:7] + b"\1")
    for path in (first, second, index):
        assert complaints(dump(path)), path
    disk.close()
