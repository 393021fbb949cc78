"""The audit as a Spark job: each task reads whole buckets of a dataset and calls the same kernel. No shuffle.

Spark schedules, retries what a lost worker had, and brings back findings; a history's rows never come to the driver.
"""

import os
import pickle
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from reports.dataset.reader import Partitions
from reports.engines import Here, T, Work, work_on_bucket
from reports.ingest.history import Ingested
from reports.rules.found import Promise
from spec.formats.verdict import UsageError

MASTER: Final = "local[2,4]"
"""Two at a time, and a task may fail three times before the job does."""
TASKS: Final = "bucket int, keys array<string>"
RESULTS: Final = "key string, result binary"
CONF: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",  # a task takes its buckets one by one
    "spark.log.level": "ERROR",
    # A machine that is busy for two minutes would lose its only executor, and the job wait for ever.
    "spark.network.timeout": "1200s",
}
LOOPBACK: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def spark_session(master: str = MASTER, name: str = "highwater-audit", conf: tuple[tuple[str, str], ...] = ()) -> Any:
    """A session that is quiet, and on loopback when it is local, with the Java that Spark can use.

    UsageError without one.
    """
    from spec.toolchain import spark_java_home

    os.environ["JAVA_HOME"] = str(spark_java_home())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    local = LOOPBACK if master.startswith("local") else {}
    if local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ.setdefault("SPARK_WORKER_DIR", tempfile.mkdtemp(prefix="highwater-spark-"))  # of a local-cluster
        local = local | {"spark.executorEnv.PYTHONPATH": str(Path(__file__).parent.parent)}
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None and active.sparkContext.master != master:
        active.stop()
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in (CONF | local | dict(conf)).items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise UsageError(f"Spark did not start: {error}", mend="see highwater doctor, or use --engine local") from error
    session.sparkContext.setLogLevel("ERROR")
    return session


class Spark:
    """An engine over a dataset that all workers can read under the same path."""

    def __init__(self, master: str = MASTER, conf: tuple[tuple[str, str], ...] = ()) -> None:
        self._master, self._conf = master, conf

    def session(self) -> Any:
        return spark_session(self._master, conf=self._conf)

    def over(self, history: Ingested, work: Work[T], keys: Collection[str] | None = None) -> Iterable[tuple[str, T]]:
        if not isinstance(history.partitions, Partitions):
            return Here().over(history, work, keys)
        tasks = [
            (bucket, chosen)
            for bucket, mine in history.partitions.buckets().items()
            if (chosen := [key for key in mine if keys is None or key in keys])
        ]
        if not tasks:
            return []
        session = self.session()
        folder, promise = history.partitions.folder.absolute(), Promise.of(history.config)

        def do(batches: Iterable[Any]) -> Iterator[Any]:
            """In a worker."""
            import pyarrow as pa

            for batch in batches:
                for bucket, mine in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    done = work_on_bucket(folder, bucket, mine, promise, work)
                    results = [pickle.dumps(result) for _, result in done]
                    yield pa.record_batch([pa.array([key for key, _ in done]), pa.array(results, pa.binary())],
                                          ["key", "result"])  # fmt: skip

        frame = session.createDataFrame(session.sparkContext.parallelize(tasks, len(tasks)), TASKS)
        try:
            rows = frame.mapInArrow(do, RESULTS).collect()
        except Exception as error:
            told = str(error).strip().splitlines()
            what = f"the job failed: {told[0] if told else type(error).__name__}"
            raise UsageError(what, where=f"Spark at {self._master}", mend="see what its workers wrote") from error
        return [(row.key, pickle.loads(row.result)) for row in rows]
