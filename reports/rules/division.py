"""A look at a partition, and how it is taken of one that is divided."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from highwater.reports.rules.findings import Found
from highwater.reports.rules.partition import check_view
from highwater.reports.rules.view import View

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Slices(Protocol):
    """A partition that is divided; see `highwater.reports.execution.division`."""

    def look(self, each: Any) -> list[Found]: ...

    def over_spans(self, work: Callable[[View], T], each: Any) -> Iterable[T]: ...

    def over_columns(self, work: Callable[[View], T], names: Sequence[str], each: Any) -> T: ...


class Look(Protocol[T_co]):
    def __call__(self, key: str, view: View, /) -> T_co:
        """At a partition that a worker holds."""

    def divided(self, key: str, slices: Slices, each: Any, /) -> T_co:
        """The same of one that is divided, in the driver; `each` hands tasks to workers."""


class FirstLook:
    """All findings of a partition, and candidates of the rules that need the others."""

    def __call__(self, key: str, view: View) -> list[Found]:
        return check_view(view)

    def divided(self, key: str, slices: Slices, each: Any) -> list[Found]:
        return slices.look(each)


@dataclass(frozen=True, slots=True)
class OfSpans(Generic[T]):
    """What is told at offsets: of the parts from all spans the whole is made."""

    look: Callable[[str, View], T]
    merged: Callable[[list[T]], T]

    def __call__(self, key: str, view: View) -> T:
        return self.look(key, view)

    def divided(self, key: str, slices: Slices, each: Any) -> T:
        return self.merged(list(slices.over_spans(partial(self.look, key), each)))


@dataclass(frozen=True, slots=True)
class OfColumns(Generic[T]):
    """What these columns of all operations tell."""

    look: Callable[[str, View], T]
    columns: tuple[str, ...]

    def __call__(self, key: str, view: View) -> T:
        return self.look(key, view)

    def divided(self, key: str, slices: Slices, each: Any) -> T:
        return slices.over_columns(partial(self.look, key), self.columns, each)
