"""Line coverage of the reference, and the harness that fuzzes our own decoders by branch coverage."""

import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from highwater.errors import UsageError
from highwater.fuzz.wire import decoders
from highwater.fuzz.wire.line_coverage import FILE, check_lines, count_lines, lines_summary
from highwater.reference.wire.readers import read_uvarint

SEED = 5


def lines_of(folder: Path, code: str) -> dict[str, int]:
    """Covered lines by file, once a process has run that."""
    with count_lines(folder):
        subprocess.run([sys.executable, "-c", code], check=True)
    files = msgspec.json.decode((folder / FILE).read_bytes())["files"]
    return {row["file"]: row["covered"] for row in files}


def test_lines_of_a_process_are_counted_and_those_of_the_next_are_added(tmp_path: Path) -> None:
    pytest.importorskip("coverage")
    first = lines_of(tmp_path, "import highwater.reference.wire.varint")
    summary = lines_summary(tmp_path)
    assert first["reference/wire/varint.py"] > 0
    assert first["reference/broker.py"] == 0, "never imported, and counted all the same"
    assert 0 < summary["covered"] < summary["all"]
    assert summary["fewest"][0]["covered"] == 0
    both = lines_of(tmp_path, "import highwater.reference.guards")
    assert both["reference/wire/varint.py"] == first["reference/wire/varint.py"]
    assert both["reference/guards.py"] > first["reference/guards.py"] == 0
    assert lines_summary(tmp_path)["covered"] > summary["covered"]
    assert lines_summary(tmp_path)["all"] == summary["all"]


def test_lines_are_of_the_reference_only() -> None:
    with pytest.raises(UsageError, match="of the reference only"):
        check_lines("kfake")


def test_what_the_decoders_begin_with_is_read_alike_and_so_is_what_is_spoiled(tmp_path: Path) -> None:
    decoders.write_seed_inputs(tmp_path, random.Random(SEED))
    attempt, rng = decoders.readers(), random.Random(SEED)
    planted = sorted(tmp_path.iterdir())
    assert len(planted) > 300
    for path in planted:
        data = bytearray(path.read_bytes())
        attempt(bytes(data))
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        attempt(bytes(data))


def test_a_reader_that_takes_what_the_description_refuses_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def generous(data: bytes, position: int) -> tuple[int, int]:
        return (0, position + 6) if data[position : position + 6] == b"\x80" * 6 else read_uvarint(data, position)

    monkeypatch.setattr("highwater.reference.wire.readers.read_uvarint", generous)
    known = decoders.cases()
    number = next(n for n, (message, version) in enumerate(known) if n >= decoders.BATCH_SHARE and
                  (message.__name__, version) == ("ApiVersionsResponse", 3))  # fmt: skip
    body = bytes(2) + b"\x01" + bytes(4) + b"\x80" * 6
    with pytest.raises(AssertionError, match="ApiVersionsResponse version 3"):
        decoders.readers()(number.to_bytes(decoders.CASE_BYTES, "big") + body)
