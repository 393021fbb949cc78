"""What a rule finds, and the sweep that most rules of real time are."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from highwater.reports.columns import ISOLATIONS, NOTHING, UNKNOWN, Ints
from highwater.spec.formats.history import Config

Mask = npt.NDArray[np.bool_]
NOBODY = -1


@dataclass(frozen=True, slots=True)
class Found:
    """Findings of one rule: for each, the rows of two witnesses (`NOBODY` for an absence) and an offset.

    `information` is for what a correct Kafka may show as well, such as a high watermark that lags in a new epoch.
    """

    rule: int
    first: Ints
    second: Ints
    offset: Ints
    information: bool = False

    def where(self, chosen: "Mask | Ints") -> "Found":
        return Found(self.rule, self.first[chosen], self.second[chosen], self.offset[chosen], self.information)


def joined(parts: list[Found]) -> Found:
    """Of one rule."""
    first, second, offset = (
        np.concatenate([getattr(each, name) for each in parts]) for name in ("first", "second", "offset")
    )
    return Found(parts[0].rule, first, second, offset, parts[0].information)


def none_of(rule: int) -> Found:
    return Found(rule, NOTHING, NOTHING, NOTHING)


def alone(rows: Ints) -> Ints:
    """No second witness: what is wrong is that there is none."""
    return np.full(len(rows), NOBODY)


@dataclass(frozen=True, slots=True)
class Promise:
    """Of a configuration, what decides whether a rule applies at all. Times in ms, -1 unknown or without limit."""

    acks_all: bool = True
    unclean_election: bool = False
    retention: bool = False
    compaction: bool = False
    retention_ms: int = -1
    transaction_timeout_ms: int = -1
    patience_ms: int = -1
    started_ms: int = 0
    isolation: int = UNKNOWN  # of reads that did not tell theirs

    @classmethod
    def of(cls, config: Config) -> "Promise":
        def or_none(value: int | None) -> int:
            return -1 if value is None else value

        return cls(
            acks_all=config.acks == "all",
            unclean_election=config.unclean_election is not False,
            retention=config.retention is True,
            compaction=config.compaction is True,
            retention_ms=or_none(config.retention_ms),
            transaction_timeout_ms=or_none(config.transaction_timeout_ms),
            patience_ms=or_none(config.patience_ms),
            started_ms=config.started_ms,
            isolation=ISOLATIONS[config.isolation],
        )


@dataclass(frozen=True, slots=True)
class Bounds:
    """Rows of one kind: at `time` the register is bounded by `z`; `row` is the operation that says so."""

    time: Ints
    z: Ints
    row: Ints

    def where(self, mask: Mask) -> "Bounds":
        return Bounds(self.time[mask], self.z[mask], self.row[mask])

    def __add__(self, other: "Bounds") -> "Bounds":
        return Bounds(
            np.concatenate([self.time, other.time]),
            np.concatenate([self.z, other.z]),
            np.concatenate([self.row, other.row]),
        )


def running_maximum(values: Ints) -> tuple[Ints, Ints]:
    """The maximum so far, and the place that reached it first."""
    if not len(values):
        return values, NOTHING
    most = np.maximum.accumulate(values)
    new = np.concatenate([[True], most[1:] > most[:-1]])
    return most, np.maximum.accumulate(np.where(new, np.arange(len(values)), 0))


def sweep(lower: Bounds, upper: Bounds) -> tuple[Ints, Ints, Ints]:
    """Upper rows with a larger lower row strictly before them, as (upper row, lower row, upper z).

    Times are event indices, so there are no ties, and every engine names the same witness.
    """
    if not len(lower.time) or not len(upper.time):
        return NOTHING, NOTHING, NOTHING
    low = np.argsort(lower.time, kind="stable")
    most, who = running_maximum(lower.z[low])
    up = np.argsort(upper.time, kind="stable")
    slot = np.searchsorted(lower.time[low], upper.time[up], "left") - 1
    broken = (slot >= 0) & (most[slot] > upper.z[up])
    up, slot = up[broken], slot[broken]
    return upper.row[up], lower.row[low[who[slot]]], upper.z[up]


def distinct(values: Ints) -> Ints:
    """Sorted, each once. Sorting beats the hashing of `np.unique` on columns that are nearly sorted."""
    ordered = np.sort(values, kind="stable")
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


def first_of_each(values: Ints) -> Ints:
    """Places of the first of each value, in the order of the values."""
    return np.unique(values, return_index=True)[1]
