"""Run the audit on Spark: a pass over partitions is a DataFrame job, and slices of large partitions are tasks.

Spark schedules both, retries what a lost executor did and returns findings; rows never reach the driver.
"""

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final

from highwater.errors import UsageError
from highwater.reports.dataset.reader import Partitions
from highwater.reports.execution import spark_job
from highwater.reports.execution.partitions import SameProcess, T, distribute, is_large
from highwater.reports.execution.spark_session import spark_session
from highwater.reports.ingest.history import Ingested
from highwater.reports.rules.division import FirstPass, PartitionTask
from highwater.reports.rules.findings import Promise

TASKS: Final = "place long, task binary"
RESULTS: Final = "place long, result binary"


class Spark:
    """An engine for a dataset that all executors can read under the same path or address."""

    def __init__(self, master: str | None = None, conf: tuple[tuple[str, str], ...] = ()) -> None:
        self._master, self._conf = master, conf

    def session(self) -> Any:
        return spark_session(self._master, conf=self._conf)

    @property
    def is_local(self) -> bool:
        """Return whether all executors run on this machine."""
        return str(self.session().sparkContext.master).startswith("local")

    def map_partitions(
        self, history: Ingested, work: PartitionTask[T], keys: Collection[str] | None = None
    ) -> Iterable[tuple[str, T]]:
        if not isinstance(history.partitions, Partitions):
            return SameProcess().map_partitions(history, work, keys)
        promise = Promise.of(history.config, history.shown_commits)
        return distribute(self._run_tasks, history.partitions, promise, work, keys, self._check_whole)

    def explain(self, history: Ingested) -> str:
        """Return Spark's plan of the first pass, and the names of the partitions that are divided instead."""
        partitions = history.partitions
        if not isinstance(partitions, Partitions):
            raise UsageError("only a dataset has a plan", hint="write one with highwater audit HISTORY --out DIR")
        divided = [key for key in partitions if is_large(partitions, key)]
        whole = [key for key in partitions if key not in divided]
        job = spark_job.job_of(partitions, Promise.of(history.config, history.shown_commits), FirstPass(), whole)
        lines = [f"{key}: too large for one task; its slices are tasks of their own" for key in divided]
        if whole:
            frame = spark_job.plan(self.session(), partitions, job)
            lines.insert(0, spark_job.explained(frame))
        return "\n".join(lines)

    def _check_whole(
        self, partitions: Partitions, promise: Promise, work: PartitionTask[T], keys: list[str]
    ) -> Iterator[tuple[str, T]]:
        if not keys:
            return
        session = self.session()
        job = spark_job.job_of(partitions, promise, work, keys)
        try:
            results = list(spark_job.collect(spark_job.plan(session, partitions, job), job))
        except UsageError:
            raise
        except Exception as error:
            raise _job_failed(error, session) from error
        yield from results

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
            raise _job_failed(error, session) from error
        return (pickle.loads(row.result) for row in sorted(rows, key=attrgetter("place")))


def _job_failed(error: Exception, session: Any) -> UsageError:
    """Return the error that a user reads: an error that Highwater raised in a worker, else the first line."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    ours = next((line.partition("UsageError: ")[2] for line in lines if "UsageError: " in line), "")
    where = f"Spark at {session.sparkContext.master}"
    return UsageError(f"the job failed: {ours or lines[0]}", where=where, hint="read the logs of its workers")


def _done(batches: Iterable[Any]) -> Iterator[Any]:
    """Run the tasks of a partition of the job; called in a worker."""
    import pyarrow as pa

    for batch in batches:
        for place, pickled in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            do, task = pickle.loads(pickled)
            yield pa.record_batch([pa.array([place]), pa.array([pickle.dumps(do(task))], pa.binary())],
                                  ["place", "result"])  # fmt: skip
