"""What changed from one run of the suite to another, case by case."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from highwater.conformance.report import Report, TargetReport
from highwater.conformance.verdicts import BROKEN, UNDECIDED, CaseVerdict
from highwater.errors import ExitCode, UsageError


class Change(StrEnum):
    """In the order of a report: what matters first."""

    BROKE = "broke"
    FAILING = "newly failing"
    UNDECIDED = "newly undecided"
    UNSUPPORTED = "newly unsupported"
    SKIPPED = "newly skipped"
    MENDED = "mended"
    GAINED = "newly kept"
    ADDED = "added"
    REMOVED = "removed"


BECAME: Final = {
    CaseVerdict.PASS: Change.GAINED,
    CaseVerdict.UNSUPPORTED: Change.UNSUPPORTED,
    CaseVerdict.NOT_APPLICABLE: Change.SKIPPED,
    **dict.fromkeys(UNDECIDED, Change.UNDECIDED),
    **dict.fromkeys(BROKEN, Change.FAILING),
}
FROM_PASS: Final = {**BECAME, **dict.fromkeys(BROKEN, Change.BROKE)}
FROM_BROKEN: Final = {**BECAME, CaseVerdict.PASS: Change.MENDED}


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One case of one target; a verdict that is None is one that this run did not have."""

    target: str
    case: str
    change: Change
    before: CaseVerdict | None
    after: CaseVerdict | None
    message: str = ""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """`remarks` are what a reader must know before he trusts the differences; `is_empty`: a run had no case."""

    differences: list[Difference]
    remarks: list[str]
    is_empty: bool


def compare(before: Report, after: Report) -> Comparison:
    """Targets are matched by name, or are the only one on each side; UsageError when none is in both."""
    pairs = _pairs(before.targets, after.targets)
    found = [difference for old, new in pairs for difference in _differences(old, new)]
    found.sort(key=lambda difference: list(Change).index(difference.change))
    empty = [f"{target.target} has a run without a case" for pair in pairs for target in pair if not target.cases]
    return Comparison(differences=found, remarks=[*_remarks(before, after), *empty], is_empty=bool(empty))


def exit_code(comparison: Comparison, *, strict: bool = False) -> ExitCode:
    """Violated when something that was kept is broken, a SHOULD only under `strict`."""
    counted = BROKEN if strict else {CaseVerdict.FAIL}
    if any(each.change is Change.BROKE and each.after in counted for each in comparison.differences):
        return ExitCode.VIOLATED
    if comparison.is_empty or any(each.after in UNDECIDED for each in comparison.differences):
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
    """What else than the target may have made the difference."""
    for name in ("suite", "schema", "options"):
        was, now = getattr(before.run, name), getattr(after.run, name)
        if was != now:
            yield f"another {name}: {_told(was)}, then {_told(now)}"
    old, new = ({target.target for target in report.targets} for report in (before, after))
    if len(old) > 1 or len(new) > 1:
        for name in sorted(old ^ new):
            yield f"{name} is only in the {'first' if name in old else 'second'} run"


def _told(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={each}" for name, each in value.items()) or "none"
    return str(value or "none")


def _differences(before: TargetReport, after: TargetReport) -> Iterator[Difference]:
    old, new = ({result.case: result.verdict for result in target.cases} for target in (before, after))
    messages = {result.case: result.message for result in after.cases}
    name = " -> ".join(dict.fromkeys([before.target, after.target]))
    for case in dict.fromkeys([*old, *new]):
        was, now = old.get(case), new.get(case)
        change = _change(was, now)
        if change is not None:
            message = messages.get(case, "")
            yield Difference(target=name, case=case, change=change, before=was, after=now, message=message)


def _change(was: CaseVerdict | None, now: CaseVerdict | None) -> Change | None:
    if was is None or now is None:
        return Change.ADDED if was is None else Change.REMOVED
    if was == now or {was, now} <= BROKEN or {was, now} <= UNDECIDED:
        return None
    if was is CaseVerdict.PASS:
        return FROM_PASS[now]
    return (FROM_BROKEN if was in BROKEN else BECAME)[now]
