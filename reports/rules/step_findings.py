"""Findings about steps of a run, and search structures over the tables of steps."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from highwater.reports.columns import UNKNOWN
from highwater.reports.rules.findings import Bounds, Weight, sweep
from highwater.reports.rules.rule import Rule
from highwater.reports.tables import Step


class StepFinding(NamedTuple):
    """One finding: `first` is the wrong step, `second` the one that contradicts it, or `first` if it is alone."""

    rule: Rule
    subject: str
    number: int
    first: Step
    second: Step
    weight: Weight = Weight.VIOLATION

    @property
    def information(self) -> bool:
        return self.weight is Weight.INFORMATION


def epoch_decreases(lower: list[Step], upper: list[Step]) -> Iterable[tuple[Step, Step]]:
    """Yield (late, early) steps: `late` has a smaller epoch than `early`, the first larger one before it."""
    low = Bounds(*(np.array(column, np.int64) for column in _bounds(lower, [step.returned for step in lower])))
    up = Bounds(*(np.array(column, np.int64) for column in _bounds(upper, [step.invoked for step in upper])))
    for late, early in zip(*sweep(low, up)[:2], strict=True):
        yield upper[late], lower[early]


def _bounds(steps: list[Step], times: list[int]) -> tuple[list[int], list[int], range]:
    return times, [step.epoch for step in steps], range(len(steps))


@dataclass(slots=True)
class Proofs:
    """Proved numbers so far, to find the latest-invoked proof above a number. Add steps in the order of their returns.

    Keeps only steps that no other exceeds in both: `numbers` increase while `invoked` of `steps` decreases. With `sign`
    -1 it finds proofs below a number.
    """

    sign: int = 1
    numbers: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def add(self, step: Step) -> None:
        number = self.sign * step.number
        end = bisect_right(self.numbers, number)
        if end < len(self.steps) and self.steps[end].invoked >= step.invoked:
            return
        first = end
        while first and self.steps[first - 1].invoked <= step.invoked:
            first -= 1
        self.numbers[first:end] = [number]
        self.steps[first:end] = [step]

    def beyond(self, number: int) -> Step | None:
        slot = bisect_right(self.numbers, self.sign * number)
        return self.steps[slot] if slot < len(self.steps) else None


class Writes:
    """Writes (number, invoked, latest effect), to decide whether a number may have been written in an interval."""

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
        """Return whether this number may have been written between these event indices."""
        begins, latest = self._by_number.get(number, ([], []))
        slot = bisect_left(begins, until) - 1
        return slot >= 0 and latest[slot] > since

    def begun(self, number: int, until: int) -> bool:
        """Return whether a write of this number began before this event index."""
        return self.explain(number, UNKNOWN, until)

    def possible(self, since: int, until: int) -> set[int]:
        """Return the numbers that may have been written between these event indices."""
        return {number for number, begun, done in self._all if begun < until and done > since}

    def explain_at_most(self, number: int, since: int, until: int) -> bool:
        """Return whether this number or a smaller one may have been written between these event indices."""
        return any(written <= number and begun < until and done > since for written, begun, done in self._all)
