"""A history stored as Parquet has the same rows and verdict as the history; it is complete or absent."""

import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from highwater.errors import UsageError
from highwater.reports.audit import audit
from highwater.reports.columns import Operations
from highwater.reports.dataset import schema, writer
from highwater.reports.dataset.reader import Partitions, read_dataset
from highwater.reports.execution import reading
from highwater.reports.execution.reading import ingest
from highwater.reports.synth.plants import PLANTS, SETTINGS
from highwater.reports.synth.write import synth
from highwater.reports.tests.histories import History
from highwater.reports.tests.pairs.scenario import begin, end

PLANTED = {rule: 3 for rule in PLANTS if rule not in SETTINGS}
LIMITED = """
import resource, sys
from pathlib import Path
from highwater.reports.dataset.reader import read_dataset
from highwater.reports.execution.reading import ingest
from highwater.errors import UsageError
resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, 4_000))
try:
    ingest(Path(sys.argv[1]), out=Path(sys.argv[2]))
except UsageError as error:
    sys.exit(str(error))
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("history") / "history.ndjson"
    synth(path, operations=3_000, seed=11, planted=PLANTED)
    return path


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the reader write to the buckets in many small pieces."""
    monkeypatch.setattr(reading, "AT_ONCE", 300)
    monkeypatch.setattr(writer, "WAITING_BYTES", 20_000)


def assert_equal(one: Operations, other: Operations) -> None:
    for name in Operations.__dataclass_fields__:
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


@pytest.mark.usefixtures("little_memory")
def test_stored_rows_equal_those_in_memory(path: Path, tmp_path: Path) -> None:
    stored, in_memory = ingest(path, out=tmp_path / "kept"), ingest(path)
    assert isinstance(stored.partitions, Partitions)
    assert list(stored.partitions) == list(in_memory.partitions)
    assert len(in_memory.partitions) > schema.BUCKETS  # so that some share a file
    for key, operations in in_memory.partitions.items():
        assert_equal(stored.partitions[key], operations)
        row = len(operations) // 2
        assert_equal(stored.row(key, row), in_memory.row(key, row))
    assert stored.tables.steps == in_memory.tables.steps
    assert stored.operations == in_memory.operations
    assert msgspec.to_builtins(list(stored.faults)) == msgspec.to_builtins(list(in_memory.faults))


@pytest.mark.usefixtures("little_memory")
def test_the_findings_of_a_stored_history_are_the_same(path: Path, tmp_path: Path) -> None:
    kept = audit(path, out=tmp_path / "kept")
    assert {f.rule: f.count for f in kept.findings if f.severity != "information" or f.rule != 14} == PLANTED
    assert kept.findings == audit(path).findings == audit(tmp_path / "kept").findings


def test_values_that_are_no_numbers_are_reported(tmp_path: Path) -> None:
    history = History()
    history.send("a", 0)  # type: ignore[arg-type]
    history.send("b", 0)  # type: ignore[arg-type]
    path = history.write(tmp_path / "history.ndjson")
    (finding,) = [found for found in audit(path, out=tmp_path / "kept").findings if found.rule == 1]
    assert "'b'" in finding.witnesses[0].operations[1].words


def test_an_unchanged_history_is_not_read_again(path: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    ingest(path, out=kept)
    before = (kept / schema.MANIFEST).stat().st_mtime_ns
    ingest(path, out=kept)
    assert (kept / schema.MANIFEST).stat().st_mtime_ns == before
    path.touch()
    ingest(path, out=kept)
    assert (kept / schema.MANIFEST).stat().st_mtime_ns > before


def test_the_configuration_may_be_overridden_after_storing(tmp_path: Path) -> None:
    history = History()
    begin(history, 1)
    history.send(1, 0, txn=1)
    end(history, 1, "abort")
    history.poll((0, 1))
    path = history.write(tmp_path / "history.ndjson")
    for overrides, found in (({}, {17}), ({"isolation": "read_uncommitted"}, set())):
        result = audit(path, overrides=overrides, out=tmp_path / "kept")
        assert {finding.rule for finding in result.findings if finding.rule == 17} == found


def test_an_unreadable_history_leaves_no_files(tmp_path: Path) -> None:
    bad = tmp_path / "bad.ndjson"
    bad.write_text("{garbage\n" * 3)
    with pytest.raises(UsageError, match="nothing of it can be read"):
        ingest(bad, out=tmp_path / "kept", format_="ndjson")
    assert [file.name for file in tmp_path.iterdir()] == ["bad.ndjson"]


def test_quarantined_lines_are_stored_too(path: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.ndjson"
    cut.write_bytes(path.read_bytes()[:-10])
    kept = audit(cut, out=tmp_path / "kept")
    assert kept.quarantine.count == 2  # the line that is cut, and the trailer that is missing
    assert msgspec.to_builtins(kept) == msgspec.to_builtins(audit(cut))


def test_a_full_disk_is_reported_and_leaves_no_files(path: Path, tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path), str(tmp_path / "kept")], capture_output=True, text=True, check=False
    )
    assert process.returncode == 1
    assert "cannot write the dataset (File too large)" in process.stderr
    assert not list(tmp_path.iterdir())


def test_another_folder_is_not_overwritten(path: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(UsageError, match="other files"):
        ingest(path, out=tmp_path)
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_damaged_dataset_is_reported(path: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    ingest(path, out=kept)
    bucket = schema.bucket_file(kept, 3)
    bucket.write_bytes(bucket.read_bytes()[:-100])
    with pytest.raises(UsageError, match=r"bucket-03.*damaged"):
        audit(kept)
    (kept / schema.MANIFEST).write_text('{"format":99}')
    with pytest.raises(UsageError, match="not a dataset"):
        read_dataset(kept)


def test_buckets_with_other_columns_are_rejected(path: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    ingest(path, out=kept)
    bucket = schema.bucket_file(kept, 3)
    pq.write_table(pq.read_table(bucket).drop_columns(["sequence"]), bucket)
    with pytest.raises(UsageError, match=r"bucket-03.*not the columns"):
        audit(kept)


def test_the_documentation_names_every_file_and_column() -> None:
    page = (Path(__file__).parents[2] / "docs" / "audit" / "dataset.md").read_text()
    columns = {*schema.OPERATIONS.names, *schema.PARTITIONS.names, *schema.TRANSACTIONS.names, *schema.TEXTS.names}
    assert [name for name in sorted(columns) if f"`{name}`" not in page] == []


def test_the_dataset_of_another_history_is_not_replaced(tmp_path: Path) -> None:
    for name in ("one", "two"):
        h = History()
        h.send(1, 0)
        h.write(tmp_path / f"{name}.ndjson")
    audit(tmp_path / "one.ndjson", out=tmp_path / "kept")
    with pytest.raises(UsageError, match=r"another history, .*one\.ndjson"):
        audit(tmp_path / "two.ndjson", out=tmp_path / "kept")
    assert audit(tmp_path / "one.ndjson", out=tmp_path / "kept").operations == 1
