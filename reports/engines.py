"""Who checks the partitions: this process, two of them, or Spark. All do the same work, by the same kernel."""

import multiprocessing
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
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
T = TypeVar("T")
Work = Callable[[str, View], T]


class Engine(Protocol):
    def over(self, history: Ingested, work: Work[T], keys: Collection[str] | None = None) -> Iterable[tuple[str, T]]:
        """`work` on each partition, or on those of these keys that there are, in the order of the keys."""


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
        done: list[tuple[str, T]] = []
        workers = min(WORKERS, os.cpu_count() or 1)
        try:
            with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
                tasks = [
                    pool.submit(work_on_bucket, partitions.folder, bucket, chosen, promise, work)
                    for bucket, mine in partitions.buckets().items()
                    if (chosen := [key for key in mine if keys is None or key in keys])
                ]
                for task in as_completed(tasks):
                    done += task.result()
        except BrokenProcessPool as error:
            mend = "see that there is memory for the largest partition twice, or use --engine spark"
            raise UsageError("a worker was killed", where=str(partitions.folder), mend=mend) from error
        yield from sorted(done, key=lambda pair: pair[0])


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
