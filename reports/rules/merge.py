"""From what was found here and there in a partition to its findings: the same, however it was divided.

Whoever looks at a slice finds some of what is to be found in the whole, and everything is found by somebody. What
is left is to say it once, in an order that tells nothing of slices, with the same witnesses.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np

from highwater.reports.rules.cycles import spans
from highwater.reports.rules.findings import NOBODY, Found, Mask, first_of_each, joined
from highwater.reports.rules.view import View

ONCE_A_ROW: Final = {8, 9, 22, 33}
"""Of many findings of one operation the smallest offset is told."""
TOGETHER: Final = {10, 15}
"""Rules that two families look for; of what both find the first one's is told."""


class Piece(NamedTuple):
    """What the family of this number found; `place` tells its findings apart."""

    family: int
    place: int
    found: Found

    def numbered(self, view: View, mask: Mask | None = None) -> "Piece":
        """Of what was found in a slice that which is judged there, in numbers of rows of the partition."""
        found = self.found if mask is None else self.found.where(mask)
        named = replace(found, first=view.numbered(found.first), second=view.numbered(found.second))
        return self._replace(found=named)


def settled(pieces: Iterable[Piece]) -> list[Found]:
    ordered = sorted(pieces, key=itemgetter(0, 1))
    found = [_ordered([piece.found for piece in mine]) for _, mine in groupby(ordered, itemgetter(0, 1))]
    for rule in TOGETHER:
        found = _together(rule, found)
    return [each for each in _not_again(found) if len(each.first)]


def _ordered(parts: list[Found]) -> Found:
    """Findings of one kind from everywhere."""
    found = joined(parts)
    if found.rule == 21:  # spans of numbers, and not rows
        low, high = spans(found.first, found.second)
        return Found(21, low, high, np.full(len(low), NOBODY))
    ordered = found.where(np.lexsort((found.second, found.offset, found.first)))
    return ordered.where(first_of_each(ordered.first)) if found.rule in ONCE_A_ROW else ordered


def _together(rule: int, found: list[Found]) -> list[Found]:
    mine = [each for each in found if each.rule == rule]
    if len(mine) < 2:
        return found
    both = joined(mine)
    told = both.where(first_of_each(both.first))
    return [told if each is mine[0] else each for each in found if each.rule != rule or each is mine[0]]


def _not_again(found: list[Found]) -> list[Found]:
    """What one process can tell by itself (10) is not told by the order of all (13)."""
    blamed = [rows for each in found if each.rule == 10 for rows in (each.first, each.second)]
    if not blamed:
        return found
    rows = np.concatenate(blamed)

    def other(each: Found) -> Mask:
        return ~np.isin(each.first, rows) & ~np.isin(each.second, rows)

    return [each.where(other(each)) if each.rule == 13 else each for each in found]
