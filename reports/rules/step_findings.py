"""Findings about steps of a run, and the searches over small tables that give them."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from highwater.reports.rules.findings import Bounds, sweep
from highwater.reports.tables import Step


class Told(NamedTuple):
    """One finding: the step that is wrong, and the one that shows it."""

    rule: int
    subject: str
    number: int
    first: Step
    second: Step
    information: bool = False


def falls(lower: list[Step], upper: list[Step]) -> Iterable[tuple[Step, Step]]:
    """Pairs of `sweep` over the epochs of steps: a later one with a smaller epoch, and the first with a larger."""
    low = Bounds(*(np.array(column, np.int64) for column in _bounds(lower, [step.returned for step in lower])))
    up = Bounds(*(np.array(column, np.int64) for column in _bounds(upper, [step.invoked for step in upper])))
    for late, early in zip(*sweep(low, up)[:2], strict=True):
        yield upper[late], lower[early]


def _bounds(steps: list[Step], times: list[int]) -> tuple[list[int], list[int], range]:
    return times, [step.epoch for step in steps], range(len(steps))


@dataclass(slots=True)
class Proofs:
    """Of what was proved so far, larger than a number: which was begun last? Added in the order of their returns.

    Kept are those that no other beats in both: numbers ascend, and so their beginnings descend.
    """

    numbers: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def add(self, step: Step) -> None:
        end = bisect_right(self.numbers, step.number)
        if end < len(self.steps) and self.steps[end].invoked >= step.invoked:
            return
        first = end
        while first and self.steps[first - 1].invoked <= step.invoked:
            first -= 1
        self.numbers[first:end] = [step.number]
        self.steps[first:end] = [step]

    def above(self, number: int) -> Step | None:
        slot = bisect_right(self.numbers, number)
        return self.steps[slot] if slot < len(self.steps) else None


class Writes:
    """Who may have written what: for each number, by when it was begun, how late it may have taken effect."""

    def __init__(self, writes: Iterable[tuple[int, int, int]]) -> None:
        self._by_number: dict[int, tuple[list[int], list[int]]] = {}
        self._all = sorted(writes, key=lambda write: write[1])
        for number, invoked, returned in self._all:
            begins, latest = self._by_number.setdefault(number, ([], []))
            begins.append(invoked)
            latest.append(max(returned, latest[-1] if latest else returned))

    def __contains__(self, number: int) -> bool:
        return number in self._by_number

    def explain(self, number: int, since: int, until: int) -> bool:
        """May this number have been written between these moments?"""
        begins, latest = self._by_number.get(number, ([], []))
        slot = bisect_left(begins, until) - 1
        return slot >= 0 and latest[slot] > since

    def explain_at_most(self, number: int, since: int, until: int) -> bool:
        """May this number or a smaller one?"""
        return any(each <= number and begun < until and done > since for each, begun, done in self._all)
