"""The audit as Spark jobs: each task reads a bucket of a dataset, or a slice of a large partition, and calls the same
kernel. No shuffle.

Spark schedules, retries what a lost worker had, and brings back findings; a history's rows never come to the driver.
"""

import atexit
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final

from highwater.errors import UsageError
from highwater.reports.dataset.reader import Partitions
from highwater.reports.execution.partitions import Here, T, spread
from highwater.reports.ingest.history import Ingested
from highwater.reports.rules.division import Look
from highwater.reports.rules.findings import Promise

MASTER: Final = "local[2,4]"
"""Two at a time, and a task may fail three times before the job does."""
TASKS: Final = "place long, task binary"
RESULTS: Final = "place long, result binary"
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
    from highwater.toolchain import spark_java_home

    os.environ["JAVA_HOME"] = str(spark_java_home())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    local = LOOPBACK if master.startswith("local") else {}
    if local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ.setdefault("SPARK_WORKER_DIR", tempfile.mkdtemp(prefix="highwater-spark-"))  # of a local-cluster
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
        raise UsageError(f"Spark did not start: {error}", hint="see highwater doctor, or use --engine local") from error
    session.sparkContext.setLogLevel("ERROR")
    atexit.register(session.stop)  # else a cluster that ends with us may look for its executors meanwhile, and complain
    return session


class Spark:
    """An engine over a dataset that all workers can read under the same path."""

    def __init__(self, master: str = MASTER, conf: tuple[tuple[str, str], ...] = ()) -> None:
        self._master, self._conf = master, conf

    def session(self) -> Any:
        return spark_session(self._master, conf=self._conf)

    def over(self, history: Ingested, work: Look[T], keys: Collection[str] | None = None) -> Iterable[tuple[str, T]]:
        if not isinstance(history.partitions, Partitions):
            return Here().over(history, work, keys)
        return spread(self._each, history.partitions, Promise.of(history.config), work, keys)

    def _each(self, do: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        """Results are as small as findings are, and come to the driver in the order of the tasks."""
        if not len(tasks):
            return iter(())
        session = self.session()
        pickled = [(place, bytearray(pickle.dumps((do, task)))) for place, task in enumerate(tasks)]
        frame = session.createDataFrame(session.sparkContext.parallelize(pickled, len(pickled)), TASKS)
        try:
            rows = frame.mapInArrow(_done, RESULTS).collect()
        except Exception as error:
            told = str(error).strip().splitlines()
            what = f"the job failed: {told[0] if told else type(error).__name__}"
            raise UsageError(what, where=f"Spark at {self._master}", hint="see what its workers wrote") from error
        return (pickle.loads(row.result) for row in sorted(rows, key=attrgetter("place")))


def _done(batches: Iterable[Any]) -> Iterator[Any]:
    """In a worker."""
    import pyarrow as pa

    for batch in batches:
        for place, pickled in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            do, task = pickle.loads(pickled)
            yield pa.record_batch([pa.array([place]), pa.array([pickle.dumps(do(task))], pa.binary())],
                                  ["place", "result"])  # fmt: skip
