"""Run the audit as Spark jobs: a task reads a bucket of a dataset, or a slice of a large partition. No shuffle.

Spark schedules the tasks, retries those of a lost worker and returns findings; rows never reach the driver.
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
from highwater.reports.execution.partitions import SameProcess, T, distribute
from highwater.reports.ingest.history import Ingested
from highwater.reports.rules.division import PartitionTask
from highwater.reports.rules.findings import Promise

MASTER: Final = "local[2,4]"
"""Two tasks at a time; the job fails when a task has failed four times."""
TASKS: Final = "place long, task binary"
RESULTS: Final = "place long, result binary"
CONF: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",  # a task loads one bucket at a time
    "spark.log.level": "ERROR",
    # A machine that is busy for two minutes would lose its only executor, and the job would wait forever.
    "spark.network.timeout": "1200s",
}
LOOPBACK: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def spark_session(master: str = MASTER, name: str = "highwater-audit", conf: tuple[tuple[str, str], ...] = ()) -> Any:
    """Return a Spark session with a suitable Java; a local one binds to loopback only.

    UsageError if Spark does not start.
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
    atexit.register(session.stop)  # a local-cluster would otherwise log lost executors at exit
    return session


class Spark:
    """An engine for a dataset that all workers can read under the same path."""

    def __init__(self, master: str = MASTER, conf: tuple[tuple[str, str], ...] = ()) -> None:
        self._master, self._conf = master, conf

    def session(self) -> Any:
        return spark_session(self._master, conf=self._conf)

    def map_partitions(
        self, history: Ingested, work: PartitionTask[T], keys: Collection[str] | None = None
    ) -> Iterable[tuple[str, T]]:
        if not isinstance(history.partitions, Partitions):
            return SameProcess().map_partitions(history, work, keys)
        return distribute(self._run_tasks, history.partitions, Promise.of(history.config), work, keys)

    def _run_tasks(self, do: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        """Return the results in the order of the tasks; they are findings, so they fit into the driver."""
        if not len(tasks):
            return iter(())
        session = self.session()
        pickled = [(place, bytearray(pickle.dumps((do, task)))) for place, task in enumerate(tasks)]
        frame = session.createDataFrame(session.sparkContext.parallelize(pickled, len(pickled)), TASKS)
        try:
            rows = frame.mapInArrow(_done, RESULTS).collect()
        except Exception as error:
            message = str(error).strip().splitlines()
            what = f"the job failed: {message[0] if message else type(error).__name__}"
            raise UsageError(what, where=f"Spark at {self._master}", hint="read the logs of its workers") from error
        return (pickle.loads(row.result) for row in sorted(rows, key=attrgetter("place")))


def _done(batches: Iterable[Any]) -> Iterator[Any]:
    """Run the tasks of a partition of the job; called in a worker."""
    import pyarrow as pa

    for batch in batches:
        for place, pickled in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            do, task = pickle.loads(pickled)
            yield pa.record_batch([pa.array([place]), pa.array([pickle.dumps(do(task))], pa.binary())],
                                  ["place", "result"])  # fmt: skip
