"""Line coverage of the reference, and the harness that fuzzes the decoders of this repository by branch coverage."""

import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from highwater.errors import UsageError
from highwater.fuzz.wire import decoders
from highwater.fuzz.wire.steering.line_coverage import FILE, check_lines, count_lines, lines_summary
from highwater.reference.wire.readers import read_uvarint

SEED = 5


def lines_of(folder: Path, code: str) -> dict[str, int]:
    """Run `code` in a process and return the number of covered lines by file."""
    with count_lines("reference", folder):
        subprocess.run([sys.executable, "-c", code], check=True)
    files = msgspec.json.decode((folder / FILE).read_bytes())["files"]
    return {row["file"]: row["covered"] for row in files}


@pytest.mark.long
def test_covered_lines_of_several_processes_are_added_up(tmp_path: Path) -> None:
    pytest.importorskip("coverage")
    first = lines_of(tmp_path, "import highwater.reference.wire.varint")
    summary = lines_summary(tmp_path)
    assert first["reference/wire/varint.py"] > 0
    assert first["reference/broker.py"] == 0, "a file that is never imported has zero covered lines"
    assert 0 < summary["covered"] < summary["all"]
    assert summary["fewest"][0]["covered"] == 0
    both = lines_of(tmp_path, "import highwater.reference.guards")
    assert both["reference/wire/varint.py"] == first["reference/wire/varint.py"]
    assert both["reference/guards.py"] > first["reference/guards.py"] == 0
    assert lines_summary(tmp_path)["covered"] > summary["covered"]
    assert lines_summary(tmp_path)["all"] == summary["all"]


def test_line_coverage_is_available_for_two_targets() -> None:
    check_lines("kfake:3")
    with pytest.raises(UsageError, match="of reference and kfake only"):
        check_lines("librdkafka-mock")


def test_all_decoders_agree_on_the_seed_inputs_and_on_mutated_ones(tmp_path: Path) -> None:
    decoders.write_seed_inputs(tmp_path, random.Random(SEED))
    attempt, rng = decoders.readers(), random.Random(SEED)
    inputs = sorted(tmp_path.iterdir())
    assert len(inputs) > 300
    for path in inputs:
        data = bytearray(path.read_bytes())
        attempt(bytes(data))
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        attempt(bytes(data))


def test_a_reader_that_accepts_data_that_the_schema_rejects_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lenient_uvarint(data: bytes, position: int) -> tuple[int, int]:
        return (0, position + 6) if data[position : position + 6] == b"\x80" * 6 else read_uvarint(data, position)

    monkeypatch.setattr("highwater.reference.wire.readers.read_uvarint", lenient_uvarint)
    known = decoders.cases()
    number = next(n for n, (message, version) in enumerate(known) if n >= decoders.BATCH_SHARE and
                  (message.__name__, version) == ("ApiVersionsResponse", 3))  # fmt: skip
    body = bytes(2) + b"\x01" + bytes(4) + b"\x80" * 6
    with pytest.raises(AssertionError, match="ApiVersionsResponse version 3"):
        decoders.readers()(number.to_bytes(decoders.CASE_BYTES, "big") + body)
