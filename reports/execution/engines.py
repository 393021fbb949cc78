"""Engines that check partitions: this process, a pool of two, or Spark. All call the same rules."""

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Final

from highwater.errors import UsageError
from highwater.pools import process_pool
from highwater.reports.dataset.reader import Partitions
from highwater.reports.execution.partitions import Engine, SameProcess, T, distribute, is_large, size_of
from highwater.reports.execution.spark import Spark
from highwater.reports.execution.spark_session import is_submitted
from highwater.reports.ingest.history import Ingested
from highwater.reports.rules.division import PartitionTask
from highwater.reports.rules.findings import Promise

# Measured (docs/audit/scale.md): a pool pays off from a second of work, Spark if one machine is too small.
POOL_FROM_ROWS: Final = 1_000_000
ROWS_OF_A_PARTITION: Final = 1_000
"""A partition costs as much as this many rows, however small it is."""
SPARK_FROM_ROWS: Final = 100_000_000
WORKERS: Final = 2
MEMORY_BYTES: Final = 320 << 20
"""Memory for partitions that are being checked, beside what the processes themselves need."""


class Pool:
    """Two processes; a task is a bucket of a dataset or a slice of a large partition."""

    def map_partitions(
        self, history: Ingested, work: PartitionTask[T], keys: Collection[str] | None = None
    ) -> Iterable[tuple[str, T]]:
        if not isinstance(history.partitions, Partitions) or _work(history) < POOL_FROM_ROWS:
            return SameProcess().map_partitions(history, work, keys)
        return self.map_dataset(history.partitions, Promise.of(history.config, history.shown_commits), work, keys)

    def map_dataset(
        self, partitions: Partitions, promise: Promise, work: PartitionTask[T], keys: Collection[str] | None = None
    ) -> Iterator[tuple[str, T]]:
        try:
            with process_pool(workers_for(partitions), "spawn") as pool:
                yield from distribute(pool.map, partitions, promise, work, keys)
        except BrokenProcessPool as error:
            hint = "free memory for two processes, or use --engine spark"
            raise UsageError("a worker was killed", where=str(partitions.folder), hint=hint) from error


def _work(history: Ingested) -> int:
    """Return the work of an audit, in rows."""
    return history.rows + ROWS_OF_A_PARTITION * len(history.partitions)


def workers_for(partitions: Partitions) -> int:
    """Return how many workers can each hold the largest partition that is not divided; at least 1."""
    largest = max(
        (size_of(part) for part in partitions.parts.values() if not is_large(partitions, part.key)), default=1
    )
    return max(1, min(WORKERS, os.cpu_count() or 1, MEMORY_BYTES // max(largest, 1)))


class Auto:
    """Spark for histories from `SPARK_FROM_ROWS` rows on a cluster, else the pool: on one machine it is faster."""

    def __init__(self, spark: Engine, *, on_cluster: bool) -> None:
        self._spark, self._on_cluster = spark, on_cluster

    def map_partitions(
        self, history: Ingested, work: PartitionTask[T], keys: Collection[str] | None = None
    ) -> Iterable[tuple[str, T]]:
        engine: Engine = self._spark if history.rows >= SPARK_FROM_ROWS and self._on_cluster else Pool()
        return engine.map_partitions(history, work, keys)


def engine_for(name: str, master: str | None = None, conf: Sequence[str] = ()) -> Engine:
    """Return the engine of this name; `conf` are KEY=VALUE for Spark. UsageError if either is not valid."""
    wrong = next((setting for setting in conf if not setting.partition("=")[2]), None)
    if wrong is not None:
        raise UsageError(f"expected KEY=VALUE, not {wrong!r}", where="--conf", hint="see Spark's configuration page")
    spark = Spark(master, tuple((setting.partition("=")[0], setting.partition("=")[2]) for setting in conf))
    on_cluster = is_submitted() if master is None else not master.startswith("local")
    engines: dict[str, Engine] = {"local": Pool(), "spark": spark, "auto": Auto(spark, on_cluster=on_cluster)}
    if name not in engines:
        raise UsageError(f"no engine {name!r}", where="--engine", hint=", ".join(engines))
    return engines[name]
