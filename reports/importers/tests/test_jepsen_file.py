"""`test.jepsen`, written in the documented format, gives the same events as EDN; invalid blocks are reported."""

import contextlib
import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from highwater.errors import UsageError
from highwater.reports.importers.edn import MAP, SET
from highwater.reports.importers.formats import open_history
from highwater.reports.importers.fressian import FressianError, Reader
from highwater.reports.importers.tests.fressian_writer import File, fressian, jepsen_file
from highwater.reports.importers.tests.jepsen_runs import Run, healthy, lines
from highwater.reports.importers.tests.test_edn import SCALARS, STRINGS, values
from highwater.spec.formats.history import Event


@given(st.lists(values(st.one_of(SCALARS, STRINGS, st.floats(allow_nan=False))), min_size=1, max_size=5))
def test_fressian_values_round_trip(found: list[Any]) -> None:
    reader = Reader(fressian(*found))
    assert [reader.read() for _ in found] == found
    assert reader.at_end


@given(st.binary(max_size=60))
@example(b"\xcf")
def test_bytes_are_read_to_their_end_or_refused(data: bytes) -> None:
    """No other error is raised, and at most one value per byte is read."""
    reader, values_read = Reader(data), 0
    with contextlib.suppress(FressianError):
        while not reader.at_end:
            reader.read()
            values_read += 1
    assert values_read <= len(data)


def test_a_truncated_footer_is_refused() -> None:
    with pytest.raises(FressianError, match="do not follow"):
        assert Reader(b"\xcf").at_end


def test_long_strings_have_chunks_and_caches_exceed_their_short_codes() -> None:
    found = ["x" * 200_000, [f":k{number}" for number in range(60)] * 2]
    reader = Reader(fressian(*found))
    assert [reader.read(), reader.read()] == found


def test_a_file_written_by_org_fressian_is_read() -> None:
    """The file was written by org.fressian 0.6.6; see WriteFressian.java in this folder."""
    reader = Reader(gzip.decompress((Path(__file__).parent / "fressian-0.6.6.bin.gz").read_bytes()))
    found = list[Any]()
    while not reader.at_end:
        found.append(reader.read())
    bounds = [2**power - 1 + up for power in (12, 19, 25, 33, 41, 49) for up in (0, 1)]
    integers = [0, 63, 64, -1, -2, *bounds[:2], -4096, -4097, *bounds[2:4], -(2**19) - 1, *bounds[4:]]
    assert found[:22] == [*integers, 2**63 - 1, -(2**63)]
    assert found[22:27] == [0.0, 1.0, 1.5, -0.1, 0.5]
    assert found[27:34] == ["", "seven77", "eighteen", "π 😀", "x" * 70_000, True, None]
    assert found[34:39] == [[MAP, "a", [1, 2]], [SET, 7], [1, 2, 3], 2**70, list(range(1, 10))]
    assert found[39:79] == [f":k{number % 36}" for number in range(40)]
    invoked, completed = found[79:]
    assert invoked == {
        ":index": 0, ":time": 1000, ":type": ":invoke", ":process": 3, ":f": ":send", ":value": ["send", 5, 17],
    }  # fmt: skip
    assert (completed[":time"], completed[":type"], completed[":value"]) == (123456789012, ":ok", ["send", 5, [99, 17]])


def events_of(path: Path) -> list[Event]:
    history = open_history(str(path))
    events = list(history.events)
    assert history.quarantine.count == 0
    return events


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_the_history_equals_that_of_the_edn_file(tmp_path: Path, chunk: int) -> None:
    run = healthy(60)
    run.op(0, "send", [[":send", "x", "π 😀"]], [[":send", "x", [1, "π 😀"]]], "info", error=[":timeout", 5000])
    (tmp_path / "history.edn").write_bytes(lines(run.ops))
    (tmp_path / "test.jepsen").write_bytes(jepsen_file(run.ops, chunk=chunk))
    assert open_history(str(tmp_path / "test.jepsen")).format == "jepsen"
    assert events_of(tmp_path / "test.jepsen") == events_of(tmp_path / "history.edn")


def test_the_options_of_the_test_are_its_configuration(tmp_path: Path) -> None:
    path = tmp_path / "test.jepsen"
    path.write_bytes(jepsen_file(healthy(4).ops, acks="all", idempotence=True, isolation_level="read_committed"))
    config = open_history(str(path)).config
    assert (config.acks, config.idempotence, config.isolation) == ("all", True, "read_committed")


def test_a_corrupt_chunk_is_quarantined_and_the_rest_is_read(tmp_path: Path) -> None:
    run = healthy(60)
    data = bytearray(jepsen_file(run.ops, chunk=40))
    whole = len(run.ops)
    data[data.index(b"jepsen.history.Op", len(data) // 3) + 30] ^= 1
    (tmp_path / "test.jepsen").write_bytes(data)
    history = open_history(str(tmp_path / "test.jepsen"))
    read = sum(1 for _ in history.events)
    reasons = [bad.reason for bad in history.quarantine.lines]
    assert 0 < read < 2 * whole
    assert any("the checksum of the block" in reason for reason in reasons)
    assert any("missing: 40 operations" in reason for reason in reasons)


def test_a_file_without_an_index_is_an_error(tmp_path: Path) -> None:
    data = jepsen_file(Run().ops)
    path = tmp_path / "test.jepsen"
    nothing = File()
    for corrupted in (data[:18], data[:-1], data[:6] + b"\0\0\0\7" + data[10:], data[:30], nothing.finish(0)):
        path.write_bytes(corrupted)
        with pytest.raises(UsageError, match="its test map cannot be read"):
            open_history(str(path))
