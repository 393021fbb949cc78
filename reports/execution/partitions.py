"""Split a pass over all partitions of a history into tasks for the workers of an engine."""

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import Final, Protocol, TypeVar

from highwater.reports.columns import Operations
from highwater.reports.dataset.reader import Folder, Part, Partitions, partitions_of
from highwater.reports.execution.division.kept_chunks import DatasetChunks
from highwater.reports.execution.division.run import DividedPartition, TaskRunner
from highwater.reports.ingest.history import Ingested, Partitioned
from highwater.reports.rules.division import PartitionTask
from highwater.reports.rules.findings import Promise
from highwater.reports.rules.view import View

ROW_BYTES: Final = 200
RECORD_BYTES: Final = 75
DIVIDED_FROM_BYTES: Final = 360 << 20
"""Larger partitions are divided; that is up to four times the work, so smaller ones are checked whole."""
T = TypeVar("T")


class Engine(Protocol):
    def map_partitions(
        self, history: Ingested, work: PartitionTask[T], keys: Collection[str] | None = None
    ) -> Iterable[tuple[str, T]]:
        """Run `work` on each partition, or on those in `keys`; yield (key, result) in the order of completion."""


class SameProcess:
    """Checks one partition after the other, in this process."""

    def map_partitions(
        self, history: Ingested, work: PartitionTask[T], keys: Collection[str] | None = None
    ) -> Iterable[tuple[str, T]]:
        promise = Promise.of(history.config, history.shown_commits)
        chosen = [key for key in history.partitions if keys is None or key in keys]
        for key, ops in _operations(history.partitions, chosen):
            yield key, work(key, View(ops, promise))


def _operations(partitions: Partitioned, keys: list[str]) -> Iterator[tuple[str, Operations]]:
    """Yield (key, operations); those of a dataset by bucket, since opening its file costs as much as a small check."""
    if not isinstance(partitions, Partitions):
        yield from ((key, partitions[key]) for key in keys)
        return
    wanted = set(keys)
    for bucket, mine in partitions.buckets().items():
        if chosen := [key for key in mine if key in wanted]:
            yield from partitions.of_bucket(bucket, chosen)


def distribute(
    run_tasks: TaskRunner,
    partitions: Partitions,
    promise: Promise,
    work: PartitionTask[T],
    keys: Collection[str] | None = None,
    check_whole: "WholePartitions | None" = None,
) -> Iterator[tuple[str, T]]:
    """Run `work` on small partitions, then on each divided partition; yield (key, result).

    Without `check_whole`, a task checks the small partitions of a bucket.
    """
    chosen = [key for key in partitions if keys is None or key in keys]
    large = dict(_divided(run_tasks, partitions, promise, [key for key in chosen if is_large(partitions, key)]))
    small = [key for key in chosen if key not in large]
    yield from (check_whole or partial(_by_bucket, run_tasks))(partitions, promise, work, small)
    for key, divided in large.items():
        yield key, work.run_divided(key, divided, run_tasks)


class WholePartitions(Protocol):
    def __call__(
        self, partitions: Partitions, promise: Promise, work: PartitionTask[T], keys: list[str], /
    ) -> Iterable[tuple[str, T]]:
        """Run `work` on these partitions, none of which is divided."""


def _by_bucket(
    run_tasks: TaskRunner, partitions: Partitions, promise: Promise, work: PartitionTask[T], keys: list[str]
) -> Iterator[tuple[str, T]]:
    chosen = set(keys)
    tasks = [
        (bucket, small)
        for bucket, mine in partitions.buckets().items()
        if (small := [key for key in mine if key in chosen])
    ]
    for done in run_tasks(partial(work_on_bucket, partitions.folder.absolute(), promise, work), tasks):
        yield from done


def is_large(partitions: Partitions, key: str) -> bool:
    """Return whether the partition is too large for one worker; a topic that was created again is never divided."""
    part = partitions.parts[key]
    return part.former is None and size_of(part) > DIVIDED_FROM_BYTES


def size_of(part: Part) -> int:
    """Estimate the bytes of memory that a check of the whole partition needs."""
    return part.rows * ROW_BYTES + part.records * RECORD_BYTES


def _divided(
    run_tasks: TaskRunner, partitions: Partitions, promise: Promise, keys: list[str]
) -> Iterator[tuple[str, DividedPartition]]:
    """Yield the partitions that can be divided; each is surveyed once per history."""
    for key in keys:
        if (key, promise) not in partitions.divided:
            partitions.divided[key, promise] = DividedPartition.of(DatasetChunks(partitions, key), promise, run_tasks)
        divided = partitions.divided[key, promise]
        if divided is not None:
            yield key, divided


def work_on_bucket(
    folder: Folder, promise: Promise, work: PartitionTask[T], task: tuple[int, list[str]]
) -> list[tuple[str, T]]:
    """Run `work` on partitions of a bucket; called in a worker."""
    return [(key, work(key, View(ops, promise))) for key, ops in partitions_of(folder).of_bucket(*task)]
