"""Who checks the partitions: this process, two of them, or Spark. All do the same work, by the same kernel."""

import multiprocessing
import os
import signal
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Final

from highwater.errors import UsageError
from highwater.reports.dataset.reader import Partitions
from highwater.reports.execution.partitions import Engine, Here, T, is_large, size_of, spread
from highwater.reports.execution.spark import MASTER, Spark
from highwater.reports.ingest.history import Ingested
from highwater.reports.rules.division import Look
from highwater.reports.rules.findings import Promise

# Measured (docs/audit/scale.md): a pool pays from a second of work on, Spark for more than one machine holds.
POOL_FROM_ROWS: Final = 1_000_000
SPARK_FROM_ROWS: Final = 100_000_000
WORKERS: Final = 2
MEMORY_BYTES: Final = 320 << 20
"""For partitions that are looked at; what the processes themselves take comes to it."""


class Pool:
    """Two processes, each with a bucket of a dataset at a time, or with a slice of a large partition."""

    def over(self, history: Ingested, work: Look[T], keys: Collection[str] | None = None) -> Iterable[tuple[str, T]]:
        if not isinstance(history.partitions, Partitions) or history.rows < POOL_FROM_ROWS:
            return Here().over(history, work, keys)
        return self.checked(history.partitions, Promise.of(history.config), work, keys)

    def checked(
        self, partitions: Partitions, promise: Promise, work: Look[T], keys: Collection[str] | None = None
    ) -> Iterator[tuple[str, T]]:
        try:
            with _processes(workers_for(partitions)) as pool:
                yield from spread(pool.map, partitions, promise, work, keys)
        except BrokenProcessPool as error:
            hint = "see that there is memory for two processes, or use --engine spark"
            raise UsageError("a worker was killed", where=str(partitions.folder), hint=hint) from error


def workers_for(partitions: Partitions) -> int:
    """As many as can hold the largest partition at once, each, of those that are not divided."""
    largest = max(
        (size_of(part) for part in partitions.parts.values() if not is_large(partitions, part.key)), default=1
    )
    return max(1, min(WORKERS, os.cpu_count() or 1, MEMORY_BYTES // max(largest, 1)))


@contextmanager
def _processes(workers: int) -> Iterator[ProcessPoolExecutor]:
    """An interruption reaches this process alone, which lets them end what they began, and begin nothing else."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, signal.signal, (signal.SIGINT, signal.SIG_IGN))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


class Auto:
    """Spark for what is too large for one machine, else the pool, which takes small histories where it is."""

    def __init__(self, spark: Engine) -> None:
        self._spark = spark

    def over(self, history: Ingested, work: Look[T], keys: Collection[str] | None = None) -> Iterable[tuple[str, T]]:
        engine: Engine = self._spark if history.rows >= SPARK_FROM_ROWS else Pool()
        return engine.over(history, work, keys)


def engine_for(name: str, master: str | None = None, conf: Sequence[str] = ()) -> Engine:
    """`conf` as KEY=VALUE. UsageError for an engine that there is not."""
    wrong = next((each for each in conf if not each.partition("=")[2]), None)
    if wrong is not None:
        raise UsageError(f"expected KEY=VALUE, not {wrong!r}", where="--conf", hint="see Spark's configuration page")
    spark = Spark(master or MASTER, tuple((each.partition("=")[0], each.partition("=")[2]) for each in conf))
    engines: dict[str, Engine] = {"local": Pool(), "spark": spark, "auto": Auto(spark)}
    if name not in engines:
        raise UsageError(f"no engine {name!r}", where="--engine", hint=", ".join(engines))
    return engines[name]
