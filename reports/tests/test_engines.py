"""Every engine finds the same, word for word."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from reports import engines
from reports.audit import audit
from reports.dataset import schema
from reports.dataset.reader import Partitions, read_dataset
from reports.engines import Here, Pool, engine_for
from reports.rules.view import View
from reports.soak_cluster import PLANTED
from reports.synth.write import synth_dataset
from reports.verdicts import AuditResult
from spec.formats.verdict import UsageError


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted") / "dataset"
    synth_dataset(folder, operations=3_000, seed=3, planted=PLANTED)
    return folder


@pytest.fixture(scope="module")
def here(dataset: Path) -> AuditResult:
    result = audit(dataset, engine=Here())
    assert {finding.rule: finding.count for finding in result.findings} == PLANTED
    return result


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Pool:
    """One that takes small histories too."""
    monkeypatch.setattr(engines, "POOL_FROM_ROWS", 0)
    return Pool()


def test_two_processes_find_the_same(dataset: Path, here: AuditResult, pool: Pool) -> None:
    assert audit(dataset, engine=pool) == here


def test_a_damaged_bucket_is_told_by_a_worker(dataset: Path, tmp_path: Path, pool: Pool) -> None:
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for each in dataset.iterdir():
        (damaged / each.name).write_bytes(each.read_bytes())
    schema.bucket_file(damaged, 1).write_bytes(b"PAR1")
    with pytest.raises(UsageError, match=r"bucket-01.*damaged"):
        audit(damaged, engine=pool)


def test_as_many_workers_as_hold_a_partition_each(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partitions = Partitions(dataset)
    largest = max(
        part.rows * engines.ROW_BYTES + part.records * engines.RECORD_BYTES for part in partitions.parts.values()
    )
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    for held, workers in ((2 * largest, 2), (2 * largest - 1, 1), (1, 1)):
        monkeypatch.setattr(engines, "MEMORY_BYTES", held)
        assert engines.workers_for(partitions) == workers


def kill_myself(key: str, view: View) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_was_killed_is_told(dataset: Path, pool: Pool) -> None:
    with pytest.raises(UsageError, match="a worker was killed"):
        list(pool.over(read_dataset(dataset), kill_myself))


@pytest.fixture(scope="module")
def spark() -> Iterator[engines.Engine]:
    from reports.pipeline import spark_session

    try:
        session = spark_session()
    except UsageError as error:
        pytest.skip(f"no Spark here: {error}")
    yield engine_for("spark")
    session.stop()


@pytest.mark.xdist_group("spark")
def test_spark_finds_the_same(dataset: Path, here: AuditResult, spark: engines.Engine) -> None:
    assert audit(dataset, engine=spark) == here


class WorkerDies:
    """Work whose worker process is killed the first time."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __call__(self, key: str, view: View) -> int:
        if not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return len(view.ops)


@pytest.mark.xdist_group("spark")
def test_spark_gives_the_work_of_a_dead_worker_to_another(dataset: Path, tmp_path: Path, spark: engines.Engine) -> None:
    history = read_dataset(dataset)
    counted = dict(spark.over(history, WorkerDies(tmp_path / "killed")))
    assert (tmp_path / "killed").exists()
    assert counted == {key: len(operations) for key, operations in history.partitions.items()}


@pytest.mark.parametrize(("name", "conf"), [("flink", ()), ("spark", ("colour",))])
def test_what_there_is_not_is_refused(name: str, conf: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        engine_for(name, conf=conf)
