"""Findings of a rule, what a configuration promises, and the sweep that the real-time rules share."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from highwater.reports.columns import ISOLATIONS, NOTHING, UNKNOWN, Ints
from highwater.reports.rules.rule import Rule
from highwater.spec.formats.history import Config

Mask = npt.NDArray[np.bool_]
NO_ROW = -1


class Weight(IntEnum):
    """What findings mean in a history whose settings exclude the anomaly (docs/audit/rules.md)."""

    CERTAIN = -1  # a violation whatever retries the settings allow: they are those of other producers
    VIOLATION = 0
    UNDECIDED = 1  # something that the history does not state may explain them
    INFORMATION = 2  # a correct Kafka may show them too


@dataclass(frozen=True, slots=True)
class RuleFindings:
    """Findings of one rule and weight as columns of equal length: rows of two witnesses (or `NO_ROW`) and an offset."""

    rule: Rule
    first: Ints
    second: Ints
    offset: Ints
    weight: Weight = Weight.VIOLATION

    @property
    def information(self) -> bool:
        return self.weight is Weight.INFORMATION

    def where(self, chosen: "Mask | Ints") -> "RuleFindings":
        return RuleFindings(self.rule, self.first[chosen], self.second[chosen], self.offset[chosen], self.weight)


def concatenate_findings(parts: list[RuleFindings]) -> RuleFindings:
    """Concatenate findings of the same rule and weight."""
    first, second, offset = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("first", "second", "offset")
    )
    return RuleFindings(parts[0].rule, first, second, offset, parts[0].weight)


def no_findings(rule: Rule, weight: Weight = Weight.VIOLATION) -> RuleFindings:
    return RuleFindings(rule, NOTHING, NOTHING, NOTHING, weight)


def no_second_witness(rows: Ints) -> Ints:
    """Return a column of `NO_ROW`, for findings that consist in the absence of a second operation."""
    return np.full(len(rows), NO_ROW)


@dataclass(frozen=True, slots=True)
class Promise:
    """The settings that decide whether a rule applies. Times are in ms; -1 means unknown or without limit."""

    acks_all: bool = True
    acks_known: bool = True
    idempotence: bool = True
    unclean_election: bool = False  # allowed, or unknown
    unclean_known: bool = True
    retention: bool = False
    compaction: bool = False
    retention_ms: int = -1
    transaction_timeout_ms: int = -1
    patience_ms: int = -1
    started_ms: int = 0
    offset_expiry: bool = False
    complete: bool = False  # known: the history has all clients, and the log was empty before
    isolation: int = UNKNOWN  # isolation level of reads that do not state it
    shown_commits: tuple[int, ...] = ()  # transactions of unknown outcome that reads prove to have committed

    @classmethod
    def of(cls, config: Config, shown_commits: tuple[int, ...] = ()) -> "Promise":
        def or_none(value: int | None) -> int:
            return -1 if value is None else value

        return cls(
            acks_all=config.acks == "all",
            acks_known=config.acks is not None,
            idempotence=config.idempotence is True,
            unclean_election=config.unclean_election is not False,
            unclean_known=config.unclean_election is not None,
            retention=config.retention is True,
            compaction=config.compaction is True,
            retention_ms=or_none(config.retention_ms),
            transaction_timeout_ms=or_none(config.transaction_timeout_ms),
            patience_ms=or_none(config.patience_ms),
            started_ms=config.started_ms,
            offset_expiry=config.offset_expiry is True,
            complete=config.complete is True,
            isolation=ISOLATIONS[config.isolation],
            shown_commits=shown_commits,
        )


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a register, as columns: at event index `time` it is bounded by `z`; `row` is the operation."""

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
    """Return the running maximum, and for each cell the position that reached it first."""
    if not len(values):
        return values, NOTHING
    most = np.maximum.accumulate(values)
    new = np.concatenate([[True], most[1:] > most[:-1]])
    return most, np.maximum.accumulate(np.where(new, np.arange(len(values)), 0))


def sweep(lower: Bounds, upper: Bounds) -> tuple[Ints, Ints, Ints]:
    """Return (upper row, lower row, upper z) for each upper bound below a lower bound that is strictly earlier.

    Times are event indices, so there are no ties and every engine reports the same witness. O(n log n).
    """
    if not len(lower.time) or not len(upper.time):
        return NOTHING, NOTHING, NOTHING
    low = np.argsort(lower.time, kind="stable")
    most, first_row = running_maximum(lower.z[low])
    up = np.argsort(upper.time, kind="stable")
    slot = np.searchsorted(lower.time[low], upper.time[up], "left") - 1
    broken = (slot >= 0) & (most[slot] > upper.z[up])
    up, slot = up[broken], slot[broken]
    return upper.row[up], lower.row[low[first_row[slot]]], upper.z[up]


def sweeps(pairs: Iterable[tuple[Bounds, Bounds]]) -> tuple[Ints, Ints, Ints]:
    """Sweep all pairs of bounds, and keep the first result for each upper row."""
    parts = [sweep(low, up) for low, up in pairs]
    upper, lower, z = (np.concatenate(column) for column in zip(*parts, strict=True)) if parts else (NOTHING,) * 3
    first = first_of_each(upper)
    return upper[first], lower[first], z[first]


def distinct(values: Ints) -> Ints:
    """Return the sorted distinct values; on nearly sorted columns a stable sort is faster than `np.unique`."""
    ordered = np.sort(values, kind="stable")
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


def first_of_each(values: Ints) -> Ints:
    """Return the position of the first occurrence of each value, in the order of the values."""
    if not len(values):  # of most rules in most partitions; np.unique takes 20 µs
        return NOTHING
    return np.unique(values, return_index=True)[1]
