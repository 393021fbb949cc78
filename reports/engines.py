"""Who checks the partitions: this process, two of them, or Spark. All do the same work, by the same kernel."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final, Protocol, TypeVar

from reports.dataset.reader import Partitions
from reports.ingest.history import Ingested
from reports.rules.found import Promise
from reports.rules.view import View
from spec.formats.verdict import UsageError

# Measured (docs/audit/scale.md): a pool pays from a second of work on, Spark for more than one machine holds.
POOL_FROM_ROWS: Final = 1_000_000
SPARK_FROM_ROWS: Final = 100_000_000
WORKERS: Final = 2
MEMORY_BYTES: Final = 320 << 20
"""For partitions that are looked at; what the processes themselves take comes to it."""
ROW_BYTES: Final = 200
RECORD_BYTES: Final = 75
T = TypeVar("T")
Work = Callable[[str, View], T]


class Engine(Protocol):
    def over(self, history: Ingested, work: Work[T], keys: Collection[str] | None = None) -> Iterable[tuple[str, T]]:
        """`work` on each partition, or on those of these keys that there are, as they are done."""


class Here:
    """One partition after the other, in this process."""

    def over(self, history: Ingested, work: Work[T], keys: Collection[str] | None = None) -> Iterable[tuple[str, T]]:
        promise = Promise.of(history.config)
        for key in history.partitions:
            if keys is None or key in keys:
                yield key, work(key, View(history.partitions[key], promise))


class Pool:
    """Two processes, each with one partition of a dataset at a time, the large ones first."""

    def over(self, history: Ingested, work: Work[T], keys: Collection[str] | None = None) -> Iterable[tuple[str, T]]:
        if not isinstance(history.partitions, Partitions) or history.rows < POOL_FROM_ROWS:
            return Here().over(history, work, keys)
        return self.checked(history.partitions, Promise.of(history.config), work, keys)

    def checked(
        self, partitions: Partitions, promise: Promise, work: Work[T], keys: Collection[str] | None = None
    ) -> Iterator[tuple[str, T]]:
        try:
            with _processes(workers_for(partitions)) as pool:
                tasks = [
                    pool.submit(work_on_bucket, partitions.folder, bucket, chosen, promise, work)
                    for bucket, mine in partitions.buckets().items()
                    if (chosen := [key for key in mine if keys is None or key in keys])
                ]
                for task in as_completed(tasks):
                    yield from task.result()
        except BrokenProcessPool as error:
            mend = "see that there is memory for the largest partition twice, or use --engine spark"
            raise UsageError("a worker was killed", where=str(partitions.folder), mend=mend) from error


def workers_for(partitions: Partitions) -> int:
    """As many as can hold the largest partition at once, each."""
    largest = max(part.rows * ROW_BYTES + part.records * RECORD_BYTES for part in partitions.parts.values())
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


@cache
def _partitions(folder: Path) -> Partitions:
    """Once for each worker."""
    return Partitions(folder)


def work_on_bucket(folder: Path, bucket: int, keys: list[str], promise: Promise, work: Work[T]) -> list[tuple[str, T]]:
    """In a worker: on those partitions of a bucket."""
    return [(key, work(key, View(ops, promise))) for key, ops in _partitions(folder).of_bucket(bucket, keys)]


class Auto:
    """Spark for what is too large for one machine, else the pool, which takes small histories where it is."""

    def __init__(self, spark: Engine) -> None:
        self._spark = spark

    def over(self, history: Ingested, work: Work[T], keys: Collection[str] | None = None) -> Iterable[tuple[str, T]]:
        engine: Engine = self._spark if history.rows >= SPARK_FROM_ROWS else Pool()
        return engine.over(history, work, keys)


def engine_for(name: str, master: str | None = None, conf: Sequence[str] = ()) -> Engine:
    """`conf` as KEY=VALUE. UsageError for an engine that there is not."""
    from reports.pipeline import MASTER, Spark

    wrong = next((each for each in conf if not each.partition("=")[2]), None)
    if wrong is not None:
        raise UsageError(f"expected KEY=VALUE, not {wrong!r}", where="--conf", mend="see Spark's configuration page")
    spark = Spark(master or MASTER, tuple((each.partition("=")[0], each.partition("=")[2]) for each in conf))
    engines: dict[str, Engine] = {"local": Pool(), "spark": spark, "auto": Auto(spark)}
    if name not in engines:
        raise UsageError(f"no engine {name!r}", where="--engine", mend=", ".join(engines))
    return engines[name]
