"""A look at all partitions of a history, as tasks that whoever checks them may do, here or elsewhere."""

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeVar

from highwater.reports.dataset.reader import Part, Partitions, partitions_of
from highwater.reports.execution.division.kept_chunks import KeptChunks
from highwater.reports.execution.division.run import Divided, Each
from highwater.reports.ingest.history import Ingested
from highwater.reports.rules.division import Look
from highwater.reports.rules.findings import Promise
from highwater.reports.rules.view import View

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


def spread(
    each: Each, partitions: Partitions, promise: Promise, work: Look[T], keys: Collection[str] | None = None
) -> Iterator[tuple[str, T]]:
    """The tasks of a look: buckets, but for partitions that are divided."""
    chosen = {key: None for key in partitions if keys is None or key in keys}
    large = dict(_divided(each, partitions, promise, [key for key in chosen if is_large(partitions, key)]))
    tasks = [
        (bucket, small)
        for bucket, mine in partitions.buckets().items()
        if (small := [key for key in mine if key in chosen and key not in large])
    ]
    for done in each(partial(work_on_bucket, partitions.folder.absolute(), promise, work), tasks):
        yield from done
    for key, divided in large.items():
        yield key, work.divided(key, divided, each)


def is_large(partitions: Partitions, key: str) -> bool:
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


def work_on_bucket(folder: Path, promise: Promise, work: Look[T], task: tuple[int, list[str]]) -> list[tuple[str, T]]:
    """In a worker: on those partitions of a bucket."""
    return [(key, work(key, View(ops, promise))) for key, ops in partitions_of(folder).of_bucket(*task)]
