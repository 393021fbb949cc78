"""Comparison of two runs of the suite, case by case."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from highwater.conformance.report import Report, TargetReport
from highwater.conformance.running.verdicts import BROKEN, UNDECIDED, CaseVerdict
from highwater.errors import ExitCode, UsageError


class VerdictChange(StrEnum):
    """Kinds of changes, most important first; reports use this order."""

    BROKE = "broke"
    FAILING = "newly failing"
    UNDECIDED = "newly undecided"
    UNSUPPORTED = "newly unsupported"
    SKIPPED = "newly skipped"
    FIXED = "mended"
    NEWLY_PASSING = "newly kept"
    ADDED = "added"
    REMOVED = "removed"


BECAME: Final = {
    CaseVerdict.PASS: VerdictChange.NEWLY_PASSING,
    CaseVerdict.UNSUPPORTED: VerdictChange.UNSUPPORTED,
    CaseVerdict.NOT_APPLICABLE: VerdictChange.SKIPPED,
    **dict.fromkeys(UNDECIDED, VerdictChange.UNDECIDED),
    **dict.fromkeys(BROKEN, VerdictChange.FAILING),
}
FROM_PASS: Final = {**BECAME, **dict.fromkeys(BROKEN, VerdictChange.BROKE)}
FROM_BROKEN: Final = {**BECAME, CaseVerdict.PASS: VerdictChange.FIXED}


class VerdictDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A changed case of a target; a verdict is None if that run did not have the case."""

    target: str
    case: str
    change: VerdictChange
    before: CaseVerdict | None
    after: CaseVerdict | None
    message: str = ""


class RunComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Differences of two runs; `remarks` name other causes of differences, `is_empty` means a run without cases."""

    differences: list[VerdictDifference]
    remarks: list[str]
    is_empty: bool


def compare(before: Report, after: Report) -> RunComparison:
    """Compare two runs. A single target on each side is a pair, else names are matched; UsageError without a pair."""
    pairs = _pairs(before.targets, after.targets)
    found = [difference for old, new in pairs for difference in differences_of(old, new)]
    found.sort(key=lambda difference: list(VerdictChange).index(difference.change))
    empty = [f"{target.target} has a run without cases" for pair in pairs for target in pair if not target.cases]
    return RunComparison(differences=found, remarks=[*_remarks(before, after), *empty], is_empty=bool(empty))


def exit_code(comparison: RunComparison, *, strict: bool = False) -> ExitCode:
    """Return VIOLATED if a case that passed now fails; a SHOULD counts only with `strict`."""
    counted = BROKEN if strict else {CaseVerdict.FAIL}
    if any(
        difference.change is VerdictChange.BROKE and difference.after in counted
        for difference in comparison.differences
    ):
        return ExitCode.VIOLATED
    if comparison.is_empty or any(difference.after in UNDECIDED for difference in comparison.differences):
        return ExitCode.UNDECIDED
    return ExitCode.HELD


def _pairs(before: Sequence[TargetReport], after: Sequence[TargetReport]) -> list[tuple[TargetReport, TargetReport]]:
    if len(before) == len(after) == 1:
        return [(before[0], after[0])]
    old, new = ({target.target: target for target in targets} for targets in (before, after))
    pairs = [(old[name], new[name]) for name in old if name in new]
    if not pairs:
        raise UsageError(
            f"no target is in both: {', '.join(old) or 'none'} and {', '.join(new) or 'none'}", where="diff",
            hint="give two runs of the same target",
        )  # fmt: skip
    return pairs


def _remarks(before: Report, after: Report) -> Iterator[str]:
    """Yield differences of the suite and its options, which may explain changed verdicts."""
    for name in ("suite", "schema", "options"):
        was, now = getattr(before.run, name), getattr(after.run, name)
        if was != now:
            yield f"different {name}: {_value_text(was)}, then {_value_text(now)}"
    old, new = ({target.target for target in report.targets} for report in (before, after))
    if len(old) > 1 or len(new) > 1:
        for name in sorted(old ^ new):
            yield f"{name} is only in the {'first' if name in old else 'second'} run"


def _value_text(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={option_value}" for name, option_value in value.items()) or "none"
    return str(value or "none")


def differences_of(before: TargetReport, after: TargetReport) -> Iterator[VerdictDifference]:
    """Yield the cases whose verdict changed between two runs of a target."""
    old, new = ({result.case: result.verdict for result in target.cases} for target in (before, after))
    messages = {result.case: result.message for result in after.cases if result.verdict is not CaseVerdict.PASS}
    name = " -> ".join(dict.fromkeys([before.target, after.target]))
    for case in dict.fromkeys([*old, *new]):
        was, now = old.get(case), new.get(case)
        change = _change(was, now)
        if change is not None:
            message = messages.get(case, "")
            yield VerdictDifference(target=name, case=case, change=change, before=was, after=now, message=message)


def _change(was: CaseVerdict | None, now: CaseVerdict | None) -> VerdictChange | None:
    if was is None or now is None:
        return VerdictChange.ADDED if was is None else VerdictChange.REMOVED
    if was == now or {was, now} <= BROKEN or {was, now} <= UNDECIDED:
        return None
    if was is CaseVerdict.PASS:
        return FROM_PASS[now]
    return (FROM_BROKEN if was in BROKEN else BECAME)[now]
