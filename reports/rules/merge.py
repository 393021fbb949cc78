"""Merge findings of the slices of a partition, so that the result does not depend on how it was divided.

Each slice yields a subset of the findings; together the slices yield all of them. Merging removes repetitions and
sorts, so that the order and the witnesses are the same for any division.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple

import numpy as np

from highwater.reports.columns import NOTHING
from highwater.reports.rules.checks.cycles import spans
from highwater.reports.rules.findings import NO_ROW, Mask, RuleFindings, Weight, concatenate_findings, first_of_each
from highwater.reports.rules.rule import Rule
from highwater.reports.rules.view import View

SMALLEST_OFFSET_PER_ROW: Final = {Rule.POLL_SKIP, Rule.INT_NONMONOTONIC_POLL, Rule.DOUBLE_PROCESSING, Rule.SILENT_RESET}
"""Rules that report only the smallest offset of each first row."""
SHARED_RULES: Final = {
    Rule.TRUNCATED_AFTER_READ, Rule.POLL_SKIP, Rule.INT_NONMONOTONIC_POLL, Rule.NONMONOTONIC_SEND, Rule.STALE_READ,
    Rule.FUTURE_READ, Rule.HIGH_WATERMARK_REGRESSION, Rule.SILENT_RESET, Rule.READ_BEYOND_END, Rule.RESURRECTED_RECORD,
    Rule.PRODUCER_REORDER, Rule.EPOCH_SAFETY, Rule.APPEND_INVERSION,
}  # fmt: skip
"""Rules that find anomalies in several ways or with several weights: a culprit counts once, with the largest."""


class FamilyFindings(NamedTuple):
    """Findings of the family with this number; `place` is the position in the tuple that the family returns."""

    family: int
    place: int
    findings: RuleFindings

    def to_partition_rows(self, view: View, mask: Mask | None = None) -> "FamilyFindings":
        """Keep the findings of a slice that `mask` selects, with row numbers of the whole partition."""
        findings = self.findings if mask is None else self.findings.where(mask)
        named = replace(
            findings, first=view.to_partition_rows(findings.first), second=view.to_partition_rows(findings.second)
        )
        return self._replace(findings=named)


def merge_findings(pieces: Iterable[FamilyFindings], unplaced_tombstones: int) -> list[RuleFindings]:
    """Return the findings of a partition: concatenated by family, sorted, without repetitions.

    Phantom tombstones are dropped if as many tombstones were sent without a known offset.
    """
    by_place = {
        place: _sort_findings([piece.findings for piece in mine])
        for place, mine in groupby(sorted(pieces, key=itemgetter(0, 1)), itemgetter(0, 1))
    }
    findings = _drop_repeated_inversions(by_place)
    for rule in SHARED_RULES:
        findings = _merge_shared_rule(rule, findings)
    return [part for part in findings if len(part.first) and not _is_explained(part, unplaced_tombstones)]


def _is_explained(part: RuleFindings, unplaced_tombstones: int) -> bool:
    return part.rule is Rule.PHANTOM_READ and part.weight is Weight.UNDECIDED and len(part.first) <= unplaced_tombstones


def _sort_findings(parts: list[RuleFindings]) -> RuleFindings:
    """Concatenate and sort findings of one family and place from all slices."""
    findings = concatenate_findings(parts)
    if findings.rule == Rule.G1C:  # spans of transaction numbers, not rows
        low, high = spans(findings.first, findings.second)
        return RuleFindings(Rule.G1C, low, high, np.full(len(low), NO_ROW))
    ordered = findings.where(np.lexsort((findings.second, findings.offset, findings.first)))
    return ordered.where(first_of_each(ordered.first)) if findings.rule in SMALLEST_OFFSET_PER_ROW else ordered


def _merge_shared_rule(rule: Rule, findings: list[RuleFindings]) -> list[RuleFindings]:
    """Report each culprit of a rule once: in the part with the largest severity, of these in the first."""
    by_offset = rule in {Rule.TRUNCATED_AFTER_READ, Rule.RESURRECTED_RECORD}
    mine = sorted((part for part in findings if part.rule == rule), key=attrgetter("weight"))
    if len(mine) < 2:
        return findings
    kept, blamed = list[RuleFindings](), NOTHING
    for part in mine:
        once = part.where(first_of_each(part.offset if by_offset else part.first))
        culprits = once.offset if by_offset else once.first
        kept.append(once.where(~np.isin(culprits, blamed)))
        blamed = np.concatenate([blamed, culprits])
    place = next(place for place, part in enumerate(findings) if part.rule == rule)
    others = [part for part in findings if part.rule != rule]
    return [*others[:place], *kept, *others[place:]]


def _drop_repeated_inversions(by_place: dict[tuple[int, int], RuleFindings]) -> list[RuleFindings]:
    """Drop append-inversions within a process, in the second place of their family, that nonmonotonic-send reports."""
    blamed = [part.first for part in by_place.values() if part.rule == Rule.NONMONOTONIC_SEND]
    rows = np.concatenate([NOTHING, *blamed])
    return [
        part.where(~np.isin(part.first, rows)) if part.rule == Rule.APPEND_INVERSION and place == 1 else part
        for (_, place), part in by_place.items()
    ]
