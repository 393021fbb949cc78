"""Every engine returns identical findings."""

import os
import re
import signal
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from highwater.command_line import main
from highwater.errors import UsageError
from highwater.reports.audit import audit, audit_history
from highwater.reports.dataset import schema, writer
from highwater.reports.dataset.reader import Part, Partitions, read_dataset
from highwater.reports.dataset.storage import RemoteFolder
from highwater.reports.execution import engines, spark_job
from highwater.reports.execution import partitions as spreading
from highwater.reports.execution.division import kept_chunks as chunks
from highwater.reports.execution.division import run as divided
from highwater.reports.execution.division.kept_chunks import DatasetChunks
from highwater.reports.execution.engines import Pool, engine_for
from highwater.reports.execution.partitions import Engine, SameProcess
from highwater.reports.execution.spark import Spark
from highwater.reports.ingest.history import Ingested
from highwater.reports.rules.division import ColumnTask, FirstPass, PartitionTask
from highwater.reports.rules.findings import Promise, RuleFindings
from highwater.reports.rules.view import View
from highwater.reports.synth.write import synth_dataset
from highwater.reports.verdicts import AuditResult
from highwater.soak.spark_cluster import PLANTED, rows

T = TypeVar("T")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted") / "dataset"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(writer, "ROW_GROUP", 5)
        synth_dataset(folder, operations=3_000, seed=3, planted=PLANTED)
    return folder


@pytest.fixture(scope="module")
def here(dataset: Path) -> AuditResult:
    result = audit(dataset, engine=SameProcess())
    severe = {f.rule: f.count for f in result.findings if (f.rule, f.severity) != (14, "information")}
    assert severe == PLANTED
    return result


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Pool:
    """Return a pool that also processes small histories."""
    monkeypatch.setattr(engines, "POOL_FROM_ROWS", 0)
    return Pool()


@pytest.mark.long
def test_two_processes_find_the_same(dataset: Path, here: AuditResult, pool: Pool) -> None:
    assert audit(dataset, engine=pool) == here


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, dataset: Path) -> None:
    """Make the two largest partitions too large for a worker, with small chunks and spans."""
    sizes = sorted(spreading.size_of(part) for part in read_dataset(dataset).partitions.parts.values())  # type: ignore[attr-defined]
    monkeypatch.setattr(spreading, "DIVIDED_FROM_BYTES", sizes[-3])
    monkeypatch.setattr(chunks, "CHUNK", 200)
    monkeypatch.setattr(divided, "SPAN", 256)


class InSlices:
    """Divides partitions into slices as the other engines do, but in this process."""

    def map_partitions(
        self, history: Ingested, work: PartitionTask[T], keys: Collection[str] | None = None
    ) -> Iterable[tuple[str, T]]:
        assert isinstance(history.partitions, Partitions)
        return spreading.distribute(map, history.partitions, Promise.of(history.config), work, keys)


@pytest.mark.long
def test_every_anomaly_is_found_in_slices(
    dataset: Path, here: AuditResult, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Divide also the small partitions that have the planted anomalies."""
    monkeypatch.setattr(spreading, "DIVIDED_FROM_BYTES", 0)
    monkeypatch.setattr(spreading, "size_of", lambda part: part.rows < 60)
    monkeypatch.setattr(chunks, "CHUNK", 5)
    monkeypatch.setattr(divided, "SPAN", 3)
    assert audit(dataset, engine=InSlices()) == here


@pytest.mark.soak
def test_divided_partitions_yield_the_same_findings(dataset: Path, here: AuditResult, pool: Pool, small: None) -> None:
    history = read_dataset(dataset)
    assert audit_history(history, str(dataset), pool) == here
    cut = list(history.partitions.divided.values())  # type: ignore[attr-defined]
    assert [(len(part.plan.spans) > 2, len(part.plan.times) > 2) for part in cut] == [(True, True)] * 2


def test_a_worker_reports_a_damaged_bucket(dataset: Path, tmp_path: Path, pool: Pool) -> None:
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for file in dataset.iterdir():
        (damaged / file.name).write_bytes(file.read_bytes())
    schema.bucket_file(damaged, 1).write_bytes(b"PAR1")
    with pytest.raises(UsageError, match=r"bucket-01.*damaged"):
        audit(damaged, engine=pool)


def test_the_number_of_workers_is_limited_by_memory(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partitions = Partitions(dataset)
    largest = max(spreading.size_of(part) for part in partitions.parts.values())
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    for held, workers in ((2 * largest, 2), (2 * largest - 1, 1), (1, 1)):
        monkeypatch.setattr(engines, "MEMORY_BYTES", held)
        assert engines.workers_for(partitions) == workers
    monkeypatch.setattr(engines, "MEMORY_BYTES", 2 * largest - 1)
    monkeypatch.setattr(spreading, "DIVIDED_FROM_BYTES", largest - 1)  # no worker loads a divided partition completely
    assert engines.workers_for(partitions) == 2


def kill_own_process(key: str, view: View) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_worker_is_reported(dataset: Path, pool: Pool) -> None:
    with pytest.raises(UsageError, match="a worker was killed"):
        list(pool.map_partitions(read_dataset(dataset), ColumnTask(kill_own_process, ())))


@pytest.fixture(scope="module")
def spark(local_spark: Any) -> Engine:
    return engine_for("spark")


@pytest.mark.xdist_group("spark")
def test_spark_finds_the_same(dataset: Path, here: AuditResult, spark: Engine) -> None:
    assert audit(dataset, engine=spark) == here


@pytest.mark.soak
@pytest.mark.xdist_group("spark")
def test_spark_finds_the_same_in_divided_partitions(
    dataset: Path, here: AuditResult, spark: Engine, small: None
) -> None:
    assert audit(dataset, engine=spark) == here


@pytest.mark.soak
@pytest.mark.xdist_group("spark")
def test_spark_finds_the_same_at_an_address(dataset: Path, here: AuditResult, spark: Engine) -> None:
    """The driver reads an address with Hadoop, and Python workers read slices of large partitions with pyarrow."""
    folder = RemoteFolder(dataset.as_uri())
    history = read_dataset(folder)
    assert not (folder / "absent").exists()
    assert audit_history(history, str(dataset), spark) == here
    assert isinstance(history.partitions, Partitions)
    chunks = DatasetChunks(history.partitions, next(iter(history.partitions)))
    assert isinstance(spark, Spark)
    (read,) = spark._run_tasks(chunks.read, [0])
    assert len(read) == len(DatasetChunks(Partitions(dataset), next(iter(history.partitions))).read(0))


@pytest.mark.xdist_group("spark")
def test_the_plan_of_an_audit_reads_the_buckets_and_checks_groups(
    dataset: Path, spark: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["audit", str(dataset), "--engine", "spark", "--explain"])
    assert not ended.value.code
    plan = capsys.readouterr().out
    operators = ["FlatMapGroupsInArrow", "Sort", "Exchange", "MapInArrow", "Scan parquet"]
    assert [name for name in re.findall(r"[+]- ([\w ]+?) +\(", plan) if name in operators] == operators
    assert "isFinalPlan=false" in plan


@pytest.mark.xdist_group("spark")
def test_a_job_reads_only_the_columns_and_partitions_that_it_needs(dataset: Path, spark: Engine) -> None:
    assert isinstance(spark, Spark)
    partitions = Partitions(dataset)
    task, keys = ColumnTask(kill_own_process, ("offset",)), list(partitions)[3:5]
    job = spark_job.job_of(partitions, Promise(), task, keys)
    plan = spark_job.explained(spark_job.plan(spark.session(), partitions, job))
    (columns,) = re.findall(r"ReadSchema: struct<(.*)>", plan)
    assert {column.partition(":")[0] for column in columns.split(",")} == {
        "partition", "kind", "status", "offset", "_tmp_metadata_row_index",
    }  # fmt: skip
    (pushed,) = re.findall(r"PushedFilters: \[(.*)\]", plan)
    numbers = ",".join(str(partitions.parts[key].number) for key in keys)
    assert f"In(partition, [{numbers}])" in pushed
    assert plan.count("bucket-") == 1, "a bucket without such a partition is read"


def test_the_number_of_tasks_grows_with_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [Part(number, f"t-{number}", 1 << 20, 0, None) for number in range(200)]
    assert [spark_job.number_of_tasks(parts[:count]) for count in (1, 2, 100, 200)] == [1, 2, 100, 200]
    monkeypatch.setattr(spark_job, "TASK_BYTES", 1 << 30)
    assert [spark_job.number_of_tasks(parts[:count]) for count in (1, 2, 100, 200)] == [1, 1, 20, 40]


class WorkerDies(FirstPass):
    """A first pass that kills its worker process once."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __call__(self, key: str, view: View) -> list[RuleFindings]:
        if not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(key, view)


@pytest.mark.soak
@pytest.mark.xdist_group("spark")
def test_spark_retries_the_work_of_a_killed_worker(dataset: Path, tmp_path: Path, spark: Engine) -> None:
    history = read_dataset(dataset)
    found = dict(spark.map_partitions(history, WorkerDies(tmp_path / "killed")))
    assert (tmp_path / "killed").exists()
    assert rows(found) == rows(dict(SameProcess().map_partitions(history, FirstPass())))


@pytest.mark.parametrize(("name", "conf"), [("flink", ()), ("spark", ("colour",))])
def test_unknown_engines_and_settings_are_rejected(name: str, conf: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        engine_for(name, conf=conf)
