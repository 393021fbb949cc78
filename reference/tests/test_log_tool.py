"""`highwater log` dumps and verifies valid and damaged folders, ours and those of Apache Kafka."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from highwater.errors import UsageError
from highwater.reference.drivers.files import Disk
from highwater.reference.storage.log import Log, LogConfig
from highwater.reference.tools.log import app
from highwater.reference.wire.records import batch_headers, build_batch

SEGMENTS = Path(__file__).parent / "apache_kafka" / "segments"
FOLDERS = sorted(path.parent for path in SEGMENTS.glob("*/*/*.log"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    disk = Disk(tmp_path)
    log = Log(disk, "t-0", LogConfig(segment_bytes=900, index_interval_bytes=100))
    for number in range(30):
        data = build_batch([(1_000 + number, b"k", b"value %d \xff" % number, (("h", b"x"),))])
        ((_, header),) = batch_headers(data)
        log.append_as_leader(data, header, 0)
    disk.close()
    return tmp_path / "t-0"


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


@pytest.mark.parametrize("kafka", FOLDERS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_segments_of_apache_kafka_are_verified_and_dumped(kafka: Path) -> None:
    before = {path: path.read_bytes() for path in kafka.iterdir()}
    assert run("verify", kafka) == (0, "1 segments, 0 findings\n")
    code, text = run("dump", "--json", kafka)
    assert code == 0
    (segment,) = json.loads(text)["segments"]
    records = [record for batch in segment["batches"] for record in batch["records"]]
    assert [(record["offset"], record["key"]) for record in records] == [(n, f"k{n}") for n in range(40)]
    assert {path: path.read_bytes() for path in kafka.iterdir()} == before, "the tool does not change the files"


def test_a_data_folder_is_verified_with_all_its_partitions(folder: Path) -> None:
    shutil.copytree(folder, folder.parent / "u-1")
    count = 2 * len(list(folder.glob("*.log")))
    assert run("verify", folder.parent) == (0, f"{count} segments, 0 findings\n")


def test_dump_prints_one_line_per_batch_and_record(folder: Path) -> None:
    code, text = run("dump", folder / "00000000000000000000.log")
    assert code == 0
    lines = text.splitlines()
    assert lines[1].startswith("  base_offset 0 last_offset 0 position 0 size ")
    assert lines[1].endswith("magic 2 codec none records 1 max_timestamp 1000 crc valid leader_epoch 0")
    assert lines[2] == "    offset 0 timestamp 1000 key k value value 0 \\xff headers {'h': 'x'}"
    assert len(run("dump", "--no-records", folder)[1].splitlines()) == 30 + len(list(folder.glob("*.log")))


def damage(path: Path, at: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(data)] = data
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("suffix", "at", "data", "what"),
    [
        (".log", 70, b"\xaa", "byte 0: the CRC does not match"),
        (".log", 16, b"\x09", "bytes are not a valid batch"),
        (".log", 7, b"\xf0", "offset 1 is below the expected 241"),
        (".index", 7, b"\x01", "byte 0: the entry for offset 2 points to byte"),
        (".index", 3, b"\x09", "does not contain offset 9"),
        (".timeindex", 0, b"\x01", "but the largest is"),
    ],
)
def test_damage_is_found(folder: Path, suffix: str, at: int, data: bytes, what: str) -> None:
    damage(folder / f"{0:020d}{suffix}", at, data)
    code, text = run("verify", folder)
    assert code == 1
    assert what in text
    code, text = run("verify", "--json", folder)
    assert code == 1
    assert {Path(each["path"]).suffix for each in json.loads(text)["findings"]} >= {suffix}


def test_a_truncated_batch_is_reported_and_the_rest_is_printed(folder: Path) -> None:
    path = sorted(folder.glob("*.log"))[-1]
    path.write_bytes(path.read_bytes()[:-5])
    assert "only 78 bytes" in run("verify", path)[1]
    code, text = run("dump", path)
    assert (code, "only 78 bytes" in text) == (1, True)


@pytest.mark.parametrize("command", ["dump", "verify"])
def test_a_path_without_segments_is_refused(command: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there are no log segments here; give a segment's \.log file"):
        run(command, tmp_path)
    with pytest.raises(UsageError, match="no log segments"):
        run(command, tmp_path / "missing")
