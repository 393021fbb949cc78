"""Results of the trials of the self-test, and the assessment of each case."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec
import pytest

from highwater.conformance.defects import BrokerDefect, Defect
from highwater.conformance.self_test.fake_servers import FAKE_SERVERS
from highwater.errors import ExitCode
from highwater.reference.wire.registry import api_of


class Outcome(StrEnum):
    CAUGHT = "caught"
    MISSED = "missed"
    NEVER_PLANTED = "never planted"
    ERROR = "error"
    UNTESTED = "untested"


NO_DEFECT: Final = "no defect"
NO_DECLARED_DEFECT: Final = "declares no defect"
UNDECLARED: Final = frozenset({NO_DEFECT, NO_DECLARED_DEFECT, *FAKE_SERVERS})
ACCEPTED_OUTCOMES: Final = frozenset({Outcome.CAUGHT, Outcome.UNTESTED})


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a case; `item` is `case` with its parameters. A run without defect is `caught` if it passes."""

    case: str
    item: str
    defect: str
    outcome: Outcome
    message: str = ""
    seconds: float = 0.0


class CaseSelfTest(msgspec.Struct, frozen=True, kw_only=True):
    """Assessment of a case over all its parameters; `complaints` is empty if it detects its defects."""

    case: str
    tested: bool
    complaints: Sequence[Trial]


def describe_defect(defect: Defect) -> str:
    """`Reply(Produce responses.base_offset = 7)`."""
    parts = []
    for name in type(defect).__slots__:
        value = getattr(defect, name)
        if isinstance(value, type):
            parts.append(api_of(value).name)
        elif name == "value":
            parts.append(f"= {_value_text(value)}")
        else:
            parts.append(_value_text(value))
    return f"{type(defect).__name__}({' '.join(parts)})"


def _value_text(value: Any) -> str:
    if callable(value):
        return str(value.__name__) if value.__name__ != "<lambda>" else "..."
    return value if isinstance(value, str) and value else repr(value)


def judge(trials: Iterable[Trial]) -> list[CaseSelfTest]:
    by_case: dict[str, list[Trial]] = {}
    for trial in trials:
        by_case.setdefault(trial.case, []).append(trial)
    return [_judge_case(case, case_trials) for case, case_trials in sorted(by_case.items())]


def _judge_case(case: str, trials: list[Trial]) -> CaseSelfTest:
    """Assess one case; a defect may have no effect in some versions if each version detects another defect."""
    planted = {trial.defect for trial in trials if trial.outcome is Outcome.CAUGHT}
    defended = {trial.item for trial in trials if trial.outcome is Outcome.CAUGHT and trial.defect not in UNDECLARED}
    complaints = [
        trial
        for trial in trials
        if trial.outcome not in ACCEPTED_OUTCOMES
        and not (trial.outcome is Outcome.NEVER_PLANTED and trial.defect in planted and trial.item in defended)
    ]
    tested = any(trial.outcome is not Outcome.UNTESTED for trial in trials)
    return CaseSelfTest(case=case, tested=tested, complaints=complaints)


def summary(trials: Sequence[Trial]) -> Mapping[str, Any]:
    """Return the `self_test` object of `--json`; `planted` counts the defects that took effect, by kind."""
    cases = judge(trials)
    tested = [case for case in cases if case.tested]
    took_effect = [trial for trial in trials if trial.outcome in (Outcome.CAUGHT, Outcome.MISSED)]
    kinds = Counter(trial.defect.partition("(")[0] for trial in took_effect if trial.defect not in UNDECLARED)
    return {
        "caught": sum(not case.complaints for case in tested),
        "total": len(tested),
        "planted": dict(sorted(kinds.items())),
        "untested": [case.case for case in cases if not case.tested],
        "complaints": [msgspec.to_builtins(trial) for case in tested for trial in case.complaints],
    }


def exit_code(report: Mapping[str, Any]) -> ExitCode:
    """Return VIOLATED for a missed defect, UNDECIDED for one that could not be planted or an empty run, else HELD."""
    outcomes = {trial["outcome"] for trial in report["complaints"]}
    if Outcome.MISSED in outcomes:
        return ExitCode.VIOLATED
    return ExitCode.UNDECIDED if outcomes or not report["total"] else ExitCode.HELD


def case_name(item: pytest.Item) -> str:
    """Return clause id and variant, without parameters."""
    marker = item.get_closest_marker("clause")
    assert marker is not None, "the plugin of the suite rejects items without a clause"
    clause_id, variant = marker.args
    return f"{clause_id}[{variant}]" if variant else str(clause_id)


def defects_of(item: pytest.Item) -> list[Defect]:
    return [defect for marker in item.iter_markers("defect") for defect in marker.args]


def sweep_of(item: pytest.Item) -> tuple[object, ...]:
    """Return a key that is the same for all API versions of a case; fake servers are tried once for each key."""
    callspec = getattr(item, "callspec", None)
    parameters = callspec.params.items() if callspec else ()
    return case_name(item), *(str(value) for name, value in parameters if name != "version")


def share_of(items: list[pytest.Item], share: str) -> list[pytest.Item]:
    """Return share `I/N` of the cases; slow cases are distributed first, so that shares take similar time."""
    number, shares = map(int, share.split("/"))
    quick = {case_name(item): not _is_slow_case(item) for item in items}
    selected = set(sorted(quick, key=lambda case: (quick[case], case))[number::shares])
    return [item for item in items if case_name(item) in selected]


def _is_slow_case(item: pytest.Item) -> bool:
    waits = any(item.get_closest_marker(name) for name in ("slow", "cluster_fault"))
    return waits or any(isinstance(defect, BrokerDefect) for defect in defects_of(item))


def show(report: Mapping[str, Any], *, verbose: bool = False) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    if report["complaints"]:
        table = Table("case", "outcome", "defect", "message", box=None)
        for trial in report["complaints"]:
            table.add_row(*(_escape_markup(trial[column]) for column in ("item", "outcome", "defect", "message")))
        console.print(table)
    if report["untested"]:
        names = f": {', '.join(report['untested'])}" if verbose else " (-v names them)"
        console.print(f"{len(report['untested'])} cases need features that the target lacks{names}", markup=False)
    planted = ", ".join(f"{count} {kind}" for kind, count in report["planted"].items())
    console.print(f"planted: {planted}", markup=False)
    console.print(f"self-test: {report['caught']} of {report['total']} cases detect their defects", markup=False)


def _escape_markup(text: str) -> str:
    """Escape brackets, which rich would read as markup."""
    return text.replace("[", r"\[")
