"""Four definitions of the pause of a group, from the times at which records of each partition were received.

Every partition gets records at a steady rate, so a partition is consumed as long as some member receives its records.
A gap between two records of a partition that is longer than `least_s` is a pause, from its first moment to its last.

- group-wide: milliseconds during which no partition was consumed
- sum: the pauses of all partitions added up
- longest: the longest pause of one partition
- revoked: how many partitions were taken from a member, whether it got them back or not

The documents say "pause time" without saying which; they differ by two orders of magnitude.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from highwater.experiments.conditions import Found

LEAST_S: Final = 0.25
LONGEST: Final = "pause_longest"
Span = tuple[float, float]


def pauses(
    received: Mapping[int, Sequence[float]], start_s: float, end_s: float, least_s: float = LEAST_S
) -> dict[str, float]:
    """Return the first three definitions in milliseconds; `received`: times by partition, in any order.

    A partition without a record from `start_s` to `end_s` is paused all the time.
    """
    gaps = {partition: list(_gaps(times, start_s, end_s, least_s)) for partition, times in received.items()}
    lengths = [end - start for spans in gaps.values() for start, end in spans]
    everything = _gaps(itertools.chain.from_iterable(received.values()), start_s, end_s, least_s)
    return {
        "pause_group_wide": 1e3 * sum(end - start for start, end in everything),
        "pause_sum": 1e3 * sum(lengths),
        LONGEST: 1e3 * max(lengths, default=0.0),
    }


def found_in_steps(steps: Sequence[Mapping[str, float]]) -> Found:
    """Return the pauses of several steps as one, the longest or the sum, and those of each step as samples."""
    assert steps
    samples = {name: [step[name] for step in steps] for name in steps[0]}
    return Found({name: (max if name == LONGEST else sum)(values) for name, values in samples.items()}, samples)


def _gaps(times: Iterable[float], start_s: float, end_s: float, least_s: float) -> Iterable[Span]:
    """Yield the spans without a record that are longer than `least_s`."""
    inside = sorted(time for time in times if start_s <= time <= end_s)
    for before, after in itertools.pairwise([start_s, *inside, end_s]):
        if after - before > least_s:
            yield before, after
