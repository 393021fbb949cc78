"""Who checks the partitions: this process, two of them, or Spark. All do the same work, by the same kernel."""

import multiprocessing
import os
import signal
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeVar

from reports.dataset.chunks import KeptChunks
from reports.dataset.reader import Part, Partitions, partitions_of
from reports.division.divided import Divided, Each
from reports.ingest.history import Ingested
from reports.rules.found import Promise
from reports.rules.look import Look
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
DIVIDED_FROM_BYTES: Final = 360 << 20
"""A partition that takes more is divided. That is up to four times the work, so what a process can hold is not."""
T = TypeVar("T")


class Engine(Protocol):
    def over(self, history: Ingested, work: Look[T], keys: Collection[str] | None = None) -> Iterable[tuple[str, T]]:
        """A look at each partition, or at those of these keys that there are, as they are done."""


class Here:
    """One partition after the other, in this process."""

    def over(self, history: Ingested, work: Look[T], keys: Collection[str] | None = None) -> Iterable[tuple[str, T]]:
        promise = Promise.of(history.config)
        for key in history.partitions:
            if keys is None or key in keys:
                yield key, work(key, View(history.partitions[key], promise))


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
            mend = "see that there is memory for two processes, or use --engine spark"
            raise UsageError("a worker was killed", where=str(partitions.folder), mend=mend) from error


def workers_for(partitions: Partitions) -> int:
    """As many as can hold the largest partition at once, each, of those that are not divided."""
    largest = max(
        (size_of(part) for part in partitions.parts.values() if not _is_large(partitions, part.key)), default=1
    )
    return max(1, min(WORKERS, os.cpu_count() or 1, MEMORY_BYTES // max(largest, 1)))


def spread(
    each: Each, partitions: Partitions, promise: Promise, work: Look[T], keys: Collection[str] | None = None
) -> Iterator[tuple[str, T]]:
    """The tasks of a look: buckets, but for partitions that are divided."""
    chosen = [key for key in partitions if keys is None or key in keys]
    large = dict(_divided(each, partitions, promise, [key for key in chosen if _is_large(partitions, key)]))
    tasks = [
        (bucket, small)
        for bucket, mine in partitions.buckets().items()
        if (small := [key for key in mine if key in chosen and key not in large])
    ]
    for done in each(partial(work_on_bucket, partitions.folder.absolute(), promise, work), tasks):
        yield from done
    for key, divided in large.items():
        yield key, work.divided(key, divided, each)


def _is_large(partitions: Partitions, key: str) -> bool:
    part = partitions.parts[key]
    return part.former is None and size_of(part) > DIVIDED_FROM_BYTES


def size_of(part: Part) -> int:
    """About so many bytes it takes to be looked at whole."""
    return part.rows * ROW_BYTES + part.records * RECORD_BYTES


def _divided(each: Each, partitions: Partitions, promise: Promise, keys: list[str]) -> Iterator[tuple[str, Divided]]:
    """Those of them that can be; they are surveyed once."""
    for key in keys:
        if (key, promise) not in partitions.divided:
            partitions.divided[key, promise] = Divided.of(KeptChunks(partitions, key), promise, each)
        divided = partitions.divided[key, promise]
        if divided is not None:
            yield key, divided


@contextmanager
def _processes(workers: int) -> Iterator[ProcessPoolExecutor]:
    """An interruption reaches this process alone, which lets them end what they began, and begin nothing else."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, signal.signal, (signal.SIGINT, signal.SIG_IGN))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def work_on_bucket(folder: Path, promise: Promise, work: Look[T], task: tuple[int, list[str]]) -> list[tuple[str, T]]:
    """In a worker: on those partitions of a bucket."""
    return [(key, work(key, View(ops, promise))) for key, ops in partitions_of(folder).of_bucket(*task)]


class Auto:
    """Spark for what is too large for one machine, else the pool, which takes small histories where it is."""

    def __init__(self, spark: Engine) -> None:
        self._spark = spark

    def over(self, history: Ingested, work: Look[T], keys: Collection[str] | None = None) -> Iterable[tuple[str, T]]:
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
