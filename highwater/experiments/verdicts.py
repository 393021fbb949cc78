"""Whether our measurements agree with a claim of a document: a statistic, its bootstrap interval, and a verdict.

A claim is about the measurements of a table on one target. `along` names the setting that varies (in `order`, if it is
given), `within` the settings by which measurements are grouped; the statistic is averaged over the groups. The interval
comes from resampling the repetitions of each setting (`RESAMPLES` times, with a fixed seed), so it says how much the
result depends on the repetitions at hand, and nothing about other machines.

The verdict is *agrees* if the whole interval agrees with the claim, *disagrees* if the whole interval contradicts it,
and *undecided* otherwise, also if too little was measured.
"""

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from highwater.experiments.conditions import Measurement, Setting
from highwater.experiments.documents import Claim, Table, document_measurements, matches

RESAMPLES: Final = 2_000
SEED: Final = 1
LEAST_VALUES: Final = 3
"""Fewer repetitions give no interval."""
ALIKE: Final = 1.15
"""Two throughputs are the same if their ratio is between 1 / ALIKE and ALIKE."""
NO_RISE: Final = 0.1
"""The exponent up to which throughput counts as not growing: 7 % more with twice as many partitions."""
LINEAR: Final = (0.8, 1.2)
"""The exponents that count as linear growth: twice as many producers give 1.74 to 2.3 times the throughput."""
NEARLY_NONE: Final = 0.05
Samples = NDArray[np.float64]


class ClaimVerdict(StrEnum):
    AGREES = "agrees"
    DISAGREES = "disagrees"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on a claim on one target, what was measured, and the same statistic of the document's figures."""

    claim: Claim
    target: str
    verdict: ClaimVerdict
    measured: str
    document: str


@dataclass(frozen=True, slots=True)
class Interval:
    """A statistic with the interval of its resamples."""

    value: float
    low: float
    high: float

    def within(self, low: float, high: float) -> ClaimVerdict:
        """Return whether the interval is within these bounds, outside, or neither."""
        if low <= self.low and self.high <= high:
            return ClaimVerdict.AGREES
        return ClaimVerdict.DISAGREES if self.high < low or high < self.low else ClaimVerdict.UNDECIDED


Cells = dict[tuple[Setting, ...], dict[Setting, Samples]]
"""Values by the settings that group them, and by the setting that varies."""
Finding = tuple[ClaimVerdict, str]


def judge(claim: Claim, table: Table, target: str, measurements: Iterable[Measurement]) -> Judgement:
    """Return the verdict on a claim by the measurements of one target that repeat its table."""
    mine = [one for one in measurements if one.target == target and table.repeated_by(one)]
    chosen = _chosen(claim, mine)
    published = _chosen(claim, document_measurements(table))
    verdict, words = _decide(claim, table, chosen, LEAST_VALUES)
    of_document, its_words = _decide(claim, table, published, 1)
    return Judgement(claim, target, verdict, words, "" if of_document is ClaimVerdict.UNDECIDED else its_words)


def _chosen(claim: Claim, measurements: Iterable[Measurement]) -> list[Measurement]:
    return [one for one in measurements if one.metrics and matches(one.settings, claim.where)]


def _decide(claim: Claim, table: Table, chosen: list[Measurement], least: int) -> Finding:
    if not chosen:
        return ClaimVerdict.UNDECIDED, "nothing was measured"
    if claim.test in COUNTS:
        return COUNTS[claim.test](claim, chosen)
    if claim.test in RATIOS:
        return _decide_ratio(claim, chosen, least)
    cells = _cells(claim, table, chosen)
    if not cells:
        return ClaimVerdict.UNDECIDED, f"no two values of {claim.along} were measured"
    if min(len(values) for group in cells.values() for values in group.values()) < least:
        return ClaimVerdict.UNDECIDED, f"fewer than {least} repetitions: no interval"
    return SHAPES[claim.test](claim, cells)


# -- the values of a claim -------------------------------------------------------------------------


def values_of(measurements: Iterable[Measurement], metric: str) -> list[float]:
    """Return the samples of a metric within the repetitions, where there are some, or a value for each repetition."""
    found: list[float] = []
    for one in measurements:
        found += one.samples.get(metric) or ([one.metrics[metric]] if metric in one.metrics else [])
    return found


def _cells(claim: Claim, table: Table, chosen: list[Measurement]) -> Cells:
    """Return the values by group and setting; groups in which only one setting was measured are left out."""
    metric = claim.metric or table.metrics[0]
    grouped: dict[tuple[Setting, ...], dict[Setting, list[Measurement]]] = defaultdict(lambda: defaultdict(list))
    for one in chosen:
        if claim.along in one.settings and (not claim.order or one.settings[claim.along] in claim.order):
            group = tuple(one.settings.get(name, "") for name in claim.within)
            grouped[group][one.settings[claim.along]].append(one)
    cells: Cells = {}
    for group, by_setting in grouped.items():
        values = {setting: np.array(values_of(found, metric)) for setting, found in by_setting.items()}
        values = {setting: found for setting, found in values.items() if len(found)}
        if len(values) > 1:
            cells[group] = values
    return cells


def _centre(values: Samples) -> Samples:
    """Return the median of each row; the mean where half of the values are zero, as of pauses that seldom happen."""
    middle: Samples = np.median(values, axis=-1)
    mean: Samples = np.mean(values, axis=-1)
    return np.where(middle == 0, mean, middle)


def _interval(
    statistic: Callable[[Mapping[Setting, Samples]], Samples], groups: Iterable[dict[Setting, Samples]]
) -> Interval:
    """Return the statistic, averaged over groups, with the interval of its resamples."""
    chance = np.random.default_rng(SEED)
    value, resampled = [], []
    for group in groups:
        value.append(float(statistic({setting: _centre(values) for setting, values in group.items()})))
        drawn = {setting: _centre(chance.choice(values, (RESAMPLES, len(values)))) for setting, values in group.items()}
        resampled.append(statistic(drawn))
    means = np.mean(resampled, axis=0)
    low, high = np.quantile(means, (0.025, 0.975))
    return Interval(statistics.fmean(value), float(low), float(high))


# -- shapes: how a metric changes along a setting --------------------------------------------------


def _slope(centres: Mapping[Setting, Samples]) -> Samples:
    """Return the exponent of the best power law: 1 is linear growth, 0 no change."""
    x = np.array([math.log(setting) for setting in centres if isinstance(setting, int)])
    y = np.log(np.maximum(np.stack(list(centres.values())), 1e-9))
    x -= x.mean()
    found: Samples = np.tensordot(x, y, axes=1) / (x @ x)
    return found


def _is_numeric(cells: Cells) -> bool:
    return all(isinstance(setting, int) and setting > 0 for group in cells.values() for setting in group)


def _change(before: Setting, after: Setting) -> Callable[[Mapping[Setting, Samples]], Samples]:
    """Return the statistic of the relative change from one setting to another, between -1 and 1."""

    def change(centres: Mapping[Setting, Samples]) -> Samples:
        first, second = centres[before], centres[after]
        return (second - first) / np.maximum(np.maximum(first, second), 1e-9)

    return change


def _trend(sign: int) -> Callable[[Claim, Cells], Finding]:
    """Return the test that the metric falls (-1) or rises (1) along the setting."""

    def trend(claim: Claim, cells: Cells) -> Finding:
        if _is_numeric(cells):
            found = _interval(_slope, cells.values())
            return found.within(*_beyond(sign)), f"exponent {_number(found)}"
        steps = [_step(cells, before, after) for before, after in itertools.pairwise(claim.order)]
        known = [step for step in steps if step is not None]
        words = "; ".join(
            f"{before} → {after}: {_percent(step)}"
            for (before, after), step in zip(itertools.pairwise(claim.order), steps, strict=True)
            if step is not None
        )
        if len(known) < len(steps):
            return ClaimVerdict.UNDECIDED, words or "not every setting was measured"
        return _worst(step.within(*_beyond(sign)) for step in known), words

    return trend


def _beyond(sign: int) -> tuple[float, float]:
    """Return the bounds of values that are below zero, or above it."""
    return (-math.inf, -1e-9) if sign < 0 else (1e-9, math.inf)


def _step(cells: Cells, before: Setting, after: Setting) -> Interval | None:
    groups = [group for group in cells.values() if before in group and after in group]
    return _interval(_change(before, after), groups) if groups else None


def _same(claim: Claim, cells: Cells) -> Finding:
    """Compare each setting with the first one of its group."""
    ratios: dict[str, list[dict[Setting, Samples]]] = defaultdict(list)
    for group in cells.values():
        ordered = [one for one in (claim.order or sorted(group, key=str)) if one in group]
        for other in ordered[1:]:
            name = f"{other} / {ordered[0]}"
            ratios[name].append({"first": group[ordered[0]], "other": group[other]})
    found = {
        name: _interval(lambda centres: centres["other"] / np.maximum(centres["first"], 1e-9), groups)
        for name, groups in ratios.items()
    }
    words = "; ".join(f"{name}: {_number(one)}" for name, one in found.items())
    return _worst(one.within(1 / ALIKE, ALIKE) for one in found.values()), words


def _exponent_within(low: float, high: float) -> Callable[[Claim, Cells], Finding]:
    def test(claim: Claim, cells: Cells) -> Finding:
        found = _interval(_slope, cells.values())
        return found.within(low, high), f"exponent {_number(found)}"

    return test


def _more_than_share(claim: Claim, cells: Cells) -> Finding:
    """Test that from the first to the last setting more is left than the inverse of their ratio."""
    first, last = claim.order[0], claim.order[-1]
    assert isinstance(first, int)
    assert isinstance(last, int)
    groups = [group for group in cells.values() if first in group and last in group]
    if not groups:
        return ClaimVerdict.UNDECIDED, "not every setting was measured"
    found = _interval(lambda centres: centres[last] / np.maximum(centres[first], 1e-9), groups)
    return found.within(first / last, math.inf), f"{last} / {first}: {_number(found)}"


SHAPES: Final[Mapping[str, Callable[[Claim, Cells], Finding]]] = {
    "falls": _trend(-1),
    "rises": _trend(1),
    "same": _same,
    "no_rise": _exponent_within(-math.inf, NO_RISE),
    "linear": _exponent_within(*LINEAR),
    "more_than_share": _more_than_share,
}


# -- ratios of two metrics of the same measurements ------------------------------------------------


def _decide_ratio(claim: Claim, chosen: list[Measurement], least: int) -> Finding:
    top, bottom = (np.array(values_of(chosen, metric)) for metric in (claim.metric, claim.than))
    if min(len(top), len(bottom)) < least:
        return ClaimVerdict.UNDECIDED, f"fewer than {least} values: no interval"
    if not bottom.any():
        return ClaimVerdict.UNDECIDED, f"{claim.than} was zero"
    found = _ratio_interval(top, bottom)
    return found.within(*RATIOS[claim.test](claim)), f"ratio {_number(found)}"


def _ratio_interval(top: Samples, bottom: Samples) -> Interval:
    """Return the ratio of two means; samples within a run are seldom zero all, as throughput by the second is."""
    chance = np.random.default_rng(SEED)

    def means(values: Samples) -> Samples:
        found: Samples = chance.choice(values, (RESAMPLES, len(values))).mean(axis=1)
        return found

    resampled = means(top) / np.maximum(means(bottom), 1e-9)
    low, high = np.quantile(resampled, (0.025, 0.975))
    return Interval(float(top.mean() / max(bottom.mean(), 1e-9)), float(low), float(high))


RATIOS: Final[Mapping[str, Callable[[Claim], tuple[float, float]]]] = {
    "less": lambda claim: (0.0, claim.factor),
    "equal": lambda claim: (1 / ALIKE, ALIKE),
    "nearly_none": lambda claim: (0.0, NEARLY_NONE),
}


# -- counts: nothing is resampled ------------------------------------------------------------------


def _zero(claim: Claim, chosen: list[Measurement]) -> Finding:
    """Test that nothing was counted. What was not looked at (`unless`) may hide something, and so decides nothing."""
    count, covered = _total(chosen, claim.metric, claim.also), _total(chosen, claim.covered)
    hidden = _total(chosen, claim.unless)
    words = f"{count:,.0f} of {covered:,.0f} {claim.covered}" + (f", {hidden:,.0f} {claim.unless}" if hidden else "")
    if count:
        return ClaimVerdict.DISAGREES, words
    return (ClaimVerdict.AGREES if covered and not hidden else ClaimVerdict.UNDECIDED), words


def _some(claim: Claim, chosen: list[Measurement]) -> Finding:
    """Test that something happens. That it did not happen here is no contradiction: it need not happen each time."""
    count, covered = _total(chosen, claim.metric), _total(chosen, claim.covered)
    return (ClaimVerdict.AGREES if count else ClaimVerdict.UNDECIDED), f"{count:,.0f} of {covered:,.0f} {claim.covered}"


def _positive(claim: Claim, chosen: list[Measurement]) -> Finding:
    values = [one.metrics.get(claim.metric, 0.0) for one in chosen]
    words = f"{min(values):,.0f} to {max(values):,.0f}"
    if all(values):
        return ClaimVerdict.AGREES, words
    return (ClaimVerdict.UNDECIDED if any(values) else ClaimVerdict.DISAGREES), words


def _total(chosen: list[Measurement], *metrics: str) -> float:
    return sum(one.metrics.get(metric, 0.0) for one in chosen for metric in metrics if metric)


COUNTS: Final[Mapping[str, Callable[[Claim, list[Measurement]], Finding]]] = {
    "zero": _zero, "some": _some, "positive": _positive
}  # fmt: skip


# -- words -----------------------------------------------------------------------------------------


def _worst(verdicts: Iterable[ClaimVerdict]) -> ClaimVerdict:
    found = set(verdicts)
    for verdict in (ClaimVerdict.DISAGREES, ClaimVerdict.UNDECIDED):
        if verdict in found:
            return verdict
    return ClaimVerdict.AGREES


def _number(interval: Interval) -> str:
    if interval.low == interval.high:
        return f"{interval.value:.2f}"
    return f"{interval.value:.2f} ({interval.low:.2f} to {interval.high:.2f})"


def _percent(interval: Interval) -> str:
    if interval.low == interval.high:
        return _in_words(interval.value)
    return f"{_in_words(interval.value)} ({_in_words(interval.low)} to {_in_words(interval.high)})"


def _in_words(change: float) -> str:
    """Return a change, which is relative to the larger of two values, as a reader expects it: relative to the first."""
    if change >= 1:
        return "from nothing"
    grown = change / (1 - change) if change > 0 else change
    return f"{1 + grown:.3g} times" if grown >= 1 else f"{grown:+.0%}"


def median_interval(values: Sequence[float]) -> Interval:
    """Return the median of repetitions with its bootstrap interval; both ends are the value if there is only one."""
    return _interval(lambda centres: centres[0], [{0: np.array(values)}])
