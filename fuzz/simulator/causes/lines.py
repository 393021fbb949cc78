"""The lines of a report: when, where, what; and which of them are shown if there are too many."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

SHOWN: Final = 15
FIRST: Final = 4
"""Lines from the beginning, where the cause may be; the others are the last ones, where the effect is."""
OFTEN: Final = 3
"""From so many repetitions on only the first and the last are shown."""
COLUMNS: Final = f"{'ms':>7} {'where':<27} what"


class Line(NamedTuple):
    """One event: virtual time in ms, a node or two with an arrow between, and what happened.

    Lines with the same place and `key` are repetitions; an empty key is never one.
    """

    at_ms: int
    where: str
    what: str
    key: str = ""

    def __str__(self) -> str:
        return f"{self.at_ms:>7} {self.where:<27} {self.what}"


def by_time(lines: Iterable[Line]) -> list[Line]:
    """Return the lines in the order of their times, without the repetitions between the first and the last."""
    ordered = sorted(lines, key=lambda line: line.at_ms)
    totals = Counter((line.where, line.key) for line in ordered if line.key)
    seen: Counter[tuple[str, str]] = Counter()
    shown = []
    for line in ordered:
        same = line.where, line.key
        seen[same] += 1
        if totals[same] < OFTEN or seen[same] == 1:
            shown.append(line)
        elif seen[same] == totals[same]:
            shown.append(line._replace(what=f"{line.what}, the last of {totals[same]}"))
    return shown


def shortened(lines: Sequence[Line], first: int = FIRST) -> list[str]:
    """Return at most `SHOWN` lines of text: the first ones, how many are left out, and the last ones."""
    if len(lines) <= SHOWN:
        return list(map(str, lines))
    left_out = len(lines) - SHOWN + 1
    middle = f"{'':>7} ... {left_out} more"
    return [*map(str, lines[:first]), middle, *map(str, lines[first + left_out :])]
