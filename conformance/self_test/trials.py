"""What came of each trial of a case, and what that says of the case."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from conformance.defects import Defect
from conformance.self_test.dishonest import BEHAVIOURS
from reference.wire.registry import api_of
from spec.formats.verdict import ExitCode


class Outcome(StrEnum):
    CAUGHT = "caught"
    MISSED = "missed"
    NEVER_PLANTED = "never planted"
    ERROR = "error"
    UNTESTED = "untested"


HONEST: Final = "no defect"
UNDEFENDED: Final = "says no defect"
NOT_SAID: Final = frozenset({HONEST, UNDEFENDED, *BEHAVIOURS})
NOTHING_SAID_AGAINST: Final = frozenset({Outcome.CAUGHT, Outcome.UNTESTED})


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a case. `item` is `case` with its version or parameters. The honest run is `caught` when it passes."""

    case: str
    item: str
    defect: str
    outcome: Outcome
    message: str = ""
    seconds: float = 0.0


class CaseSelfTest(msgspec.Struct, frozen=True, kw_only=True):
    """All trials of a case, a swept one counted once; `complaints` is empty for a case that catches its defects."""

    case: str
    tested: bool
    complaints: Sequence[Trial]


def text_of(defect: Defect) -> str:
    """`Reply(Produce responses.base_offset = 7)`."""
    said = []
    for name in type(defect).__slots__:
        value = getattr(defect, name)
        if isinstance(value, type):
            said.append(api_of(value).name)
        elif name == "value":
            said.append(f"= {_value_text(value)}")
        else:
            said.append(_value_text(value))
    return f"{type(defect).__name__}({' '.join(said)})"


def _value_text(value: Any) -> str:
    if callable(value):
        return str(value.__name__) if value.__name__ != "<lambda>" else "..."
    return value if isinstance(value, str) and value else repr(value)


def judge(trials: Iterable[Trial]) -> list[CaseSelfTest]:
    by_case: dict[str, list[Trial]] = {}
    for trial in trials:
        by_case.setdefault(trial.case, []).append(trial)
    return [_judge_case(case, found) for case, found in sorted(by_case.items())]


def _judge_case(case: str, trials: list[Trial]) -> CaseSelfTest:
    """A defect may be out of reach of some of the versions that a case sweeps, as long as each version has one."""
    planted = {trial.defect for trial in trials if trial.outcome is Outcome.CAUGHT}
    defended = {trial.item for trial in trials if trial.outcome is Outcome.CAUGHT and trial.defect not in NOT_SAID}
    complaints = [
        trial
        for trial in trials
        if trial.outcome not in NOTHING_SAID_AGAINST
        and not (trial.outcome is Outcome.NEVER_PLANTED and trial.defect in planted and trial.item in defended)
    ]
    tested = any(trial.outcome is not Outcome.UNTESTED for trial in trials)
    return CaseSelfTest(case=case, tested=tested, complaints=complaints)


def summary(trials: Sequence[Trial]) -> Mapping[str, Any]:
    """The `self_test` object of `--json`; `planted` counts the defects that took effect, by kind."""
    cases = judge(trials)
    tested = [each for each in cases if each.tested]
    took_effect = [trial for trial in trials if trial.outcome in (Outcome.CAUGHT, Outcome.MISSED)]
    kinds = Counter(trial.defect.partition("(")[0] for trial in took_effect if trial.defect not in NOT_SAID)
    return {
        "caught": sum(not each.complaints for each in tested),
        "total": len(tested),
        "planted": dict(sorted(kinds.items())),
        "untested": [each.case for each in cases if not each.tested],
        "complaints": [msgspec.to_builtins(trial) for each in tested for trial in each.complaints],
    }


def exit_code(report: Mapping[str, Any]) -> ExitCode:
    """A defect that was missed decides; one that could not be tried, or no case at all, leaves it open."""
    outcomes = {trial["outcome"] for trial in report["complaints"]}
    if Outcome.MISSED in outcomes:
        return ExitCode.VIOLATED
    return ExitCode.UNDECIDED if outcomes or not report["total"] else ExitCode.HELD
