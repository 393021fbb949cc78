"""Tasks that engines run on each partition, and their variants for a partition that is divided into slices."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from highwater.reports.rules.findings import RuleFindings
from highwater.reports.rules.partition import check_view
from highwater.reports.rules.view import View

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Slices(Protocol):
    """A partition that is divided into slices; see `highwater.reports.execution.division`."""

    def check(self, run_tasks: Any) -> list[RuleFindings]: ...

    def map_spans(self, work: Callable[[View], T], run_tasks: Any) -> Iterable[T]: ...

    def run_on_columns(self, work: Callable[[View], T], names: Sequence[str], run_tasks: Any) -> T: ...


class PartitionTask(Protocol[T_co]):
    def __call__(self, key: str, view: View, /) -> T_co:
        """Return the result for a whole partition; called in a worker."""

    def run_divided(self, key: str, slices: Slices, run_tasks: Any, /) -> T_co:
        """Return the same result for a divided partition; called in the driver. `run_tasks` sends tasks to workers."""


class FirstPass:
    """Find all anomalies of a partition, and candidates of the rules that need other partitions."""

    def __call__(self, key: str, view: View) -> list[RuleFindings]:
        return check_view(view)

    def run_divided(self, key: str, slices: Slices, run_tasks: Any) -> list[RuleFindings]:
        return slices.check(run_tasks)


@dataclass(frozen=True, slots=True)
class SpanTask(Generic[T]):
    """A task on records at offsets: computed per span of offsets, then merged."""

    compute: Callable[[str, View], T]
    merge: Callable[[list[T]], T]

    def __call__(self, key: str, view: View) -> T:
        return self.compute(key, view)

    def run_divided(self, key: str, slices: Slices, run_tasks: Any) -> T:
        return self.merge(list(slices.map_spans(partial(self.compute, key), run_tasks)))


@dataclass(frozen=True, slots=True)
class ColumnTask(Generic[T]):
    """A task that needs all operations of the partition, but only these columns."""

    compute: Callable[[str, View], T]
    columns: tuple[str, ...]

    def __call__(self, key: str, view: View) -> T:
        return self.compute(key, view)

    def run_divided(self, key: str, slices: Slices, run_tasks: Any) -> T:
        return slices.run_on_columns(partial(self.compute, key), self.columns, run_tasks)


class PartitionMap(Protocol):
    """Runs a task on each partition, or on those in `keys`, and returns the results in the order of the keys."""

    def __call__(self, work: PartitionTask[T], keys: Collection[str] | None = None) -> Iterable[tuple[str, T]]: ...
