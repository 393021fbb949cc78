"""What came of each trial of a case, and what that says of the case."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec
import pytest

from highwater.conformance.defects import Defect, OfTheBroker
from highwater.conformance.self_test.targets import BEHAVIOURS
from highwater.errors import ExitCode
from highwater.reference.wire.registry import api_of


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


# --------------------------------------------------------------------------------------------------
# What the self-test reads off the cases: their names, their defects, and who tries which.


def case_name(item: pytest.Item) -> str:
    """A sweep is one case."""
    marker = item.get_closest_marker("clause")
    assert marker is not None, "the suite's own plugin has seen to it"
    clause_id, variant = marker.args
    return f"{clause_id}[{variant}]" if variant else str(clause_id)


def defects_of(item: pytest.Item) -> list[Defect]:
    return [defect for marker in item.iter_markers("defect") for defect in marker.args]


def sweep_of(item: pytest.Item) -> tuple[object, ...]:
    """The same for all versions of a case: where nobody speaks the protocol, they are one."""
    callspec = getattr(item, "callspec", None)
    parameters = callspec.params.items() if callspec else ()
    return case_name(item), *(str(value) for name, value in parameters if name != "version")


def share_of(items: list[pytest.Item], share: str) -> list[pytest.Item]:
    """Share I of N, whole cases, of `I/N`. Those that take their time are dealt first, so that nobody gets them all."""
    number, of = map(int, share.split("/"))
    quick = {case_name(item): not _takes_its_time(item) for item in items}
    mine = set(sorted(quick, key=lambda case: (quick[case], case))[number::of])
    return [item for item in items if case_name(item) in mine]


def _takes_its_time(item: pytest.Item) -> bool:
    waits = any(item.get_closest_marker(name) for name in ("slow", "cluster_fault"))
    return waits or any(isinstance(defect, OfTheBroker) for defect in defects_of(item))


# --------------------------------------------------------------------------------------------------
# The self-test for people: what was missed, and how many cases catch what they say.


def show(report: Mapping[str, Any], *, verbose: bool = False) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    if report["complaints"]:
        table = Table("case", "outcome", "defect", "message", box=None)
        for trial in report["complaints"]:
            table.add_row(*(_plain(trial[column]) for column in ("item", "outcome", "defect", "message")))
        console.print(table)
    if report["untested"]:
        named = f": {', '.join(report['untested'])}" if verbose else " (-v names them)"
        console.print(f"{len(report['untested'])} cases ask for what the target lacks{named}", markup=False)
    planted = ", ".join(f"{count} {kind}" for kind, count in report["planted"].items())
    console.print(f"planted: {planted}", markup=False)
    console.print(f"self-test: {report['caught']} of {report['total']} cases catch their defects", markup=False)


def _plain(text: str) -> str:
    """What stands in brackets is no style."""
    return text.replace("[", r"\[")
