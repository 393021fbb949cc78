"""Compare many runs on one page: which faults and disabled guards gave which anomalies."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from highwater.errors import UsageError, Verdict
from highwater.pages import render, write
from highwater.reports.anomalies import Severity
from highwater.reports.report import PAGE
from highwater.reports.runs import Unreadable
from highwater.reports.verdicts import AuditResult
from highwater.spec.formats.history import Config

RUNS_SHOWN = 2_000
NO_FAULTS, ALL_GUARDS = "none recorded", "none known to be off"


class FindingSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a finding that a comparison needs."""

    name: str
    rule: int
    severity: Severity
    count: int


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a verdict that a comparison needs; it decodes verdicts of any version."""

    verdict: Verdict
    history: str
    operations: int = 0
    findings: list[FindingSummary] = []
    faults: list[str] = []
    config: Config = Config()
    error: str = ""  # why nothing of it could be read

    @classmethod
    def of(cls, result: AuditResult | Unreadable) -> "Outcome":
        return msgspec.convert(result, cls, from_attributes=True)


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """What `highwater audit --json` prints for several histories."""

    histories: list[Outcome]


@dataclass(frozen=True, slots=True)
class Compared:
    """One run. `link` is the address of its page relative to the comparison; empty if it has none."""

    name: str
    outcome: Outcome
    faults: tuple[str, ...]
    guards_off: tuple[str, ...] = ()
    target: str = ""
    link: str = ""

    @property
    def grave(self) -> list[FindingSummary]:
        return [finding for finding in self.outcome.findings if finding.severity is not Severity.INFORMATION]


def compare(inputs: list[Path], page: Path) -> Path:
    """Write the page. Inputs are run folders, folders of them, and files that `audit --json` wrote."""
    runs = [run for path in inputs for run in _runs(path, page)]
    if not runs:
        raise UsageError("nothing to compare", where=", ".join(map(str, inputs)), hint="run highwater audit first")
    return _write(runs, page)


def compare_outcomes(outcomes: list[Outcome], page: Path) -> Path:
    """Write the page for histories that were just audited."""
    return _write([_of_outcome(outcome, page) for outcome in outcomes], page)


def _write(runs: list[Compared], page: Path) -> Path:
    runs.sort(key=lambda run: (run.outcome.verdict is not Verdict.INVALID, run.name))
    text = render(
        "highwater.reports",
        "compare.html.j2",
        runs=runs[:RUNS_SHOWN],
        left_out=len(runs) - RUNS_SHOWN,
        verdicts={verdict: sum(run.outcome.verdict is verdict for run in runs) for verdict in Verdict},
        names=names(runs),
        by_fault=matrix(runs, lambda run: run.faults or (NO_FAULTS,)),
        by_target=matrix(runs, lambda run: (run.target,) if run.target else ()),
        by_guard=matrix(runs, lambda run: run.guards_off or (ALL_GUARDS,))
        if any(run.guards_off for run in runs)
        else {},
    )
    return write(page, text)


def names(runs: Iterable[Compared]) -> list[str]:
    """Return the names of the anomalies that any run shows, in the order of the rules."""
    return [name for _, name in sorted({(finding.rule, finding.name) for run in runs for finding in run.grave})]


def matrix(runs: list[Compared], causes: Callable[[Compared], tuple[str, ...]]) -> list[dict[str, Any]]:
    """Return a row for each cause: the number of runs with it, and in how many of them each anomaly was found."""
    rows: dict[str, dict[str, Any]] = {}
    for run in runs:
        for cause in causes(run):
            row = rows.setdefault(cause, {"cause": cause, "runs": 0, "with": {}, "grave": set()})
            row["runs"] += 1
            for name in {finding.name for finding in run.grave}:
                row["with"][name] = row["with"].get(name, 0) + 1
            row["grave"] |= {finding.name for finding in run.grave if finding.severity is Severity.VIOLATION}
    return sorted(rows.values(), key=lambda row: (row["cause"] not in {NO_FAULTS, ALL_GUARDS}, row["cause"]))


# -- inputs ------------------------------------------------------------------------------------------


def _runs(path: Path, page: Path) -> list[Compared]:
    if path.is_dir():
        return [_run(verdict.parent, page) for verdict in sorted(path.rglob("verdict.json"))]
    try:
        data = path.read_bytes()
        many = msgspec.json.decode(data)
        kind: Any = Outcomes if isinstance(many, dict) and "histories" in many else Outcome
        decoded = msgspec.convert(many, kind)
    except (OSError, msgspec.MsgspecError) as error:
        hint = "give run folders, or what highwater audit --json printed"
        raise UsageError(f"not a verdict: {error}", where=str(path), hint=hint) from error
    outcomes = decoded.histories if isinstance(decoded, Outcomes) else [decoded]
    return [_of_outcome(outcome, page) for outcome in outcomes]


def _of_outcome(outcome: Outcome, page: Path) -> Compared:
    folder = Path(outcome.history).parent
    if (folder / "verdict.json").exists():
        return _run(folder, page, outcome)
    return Compared(outcome.history, outcome, tuple(outcome.faults), target=outcome.config.source)


def _run(folder: Path, page: Path, outcome: Outcome | None = None) -> Compared:
    if outcome is None:
        try:
            outcome = msgspec.json.decode((folder / "verdict.json").read_bytes(), type=Outcome)
        except msgspec.MsgspecError as error:
            hint = f"highwater audit {folder} writes it again"
            raise UsageError(f"not a verdict: {error}", where=str(folder / "verdict.json"), hint=hint) from error
    about, run = _read(folder / "about.json"), _read(folder / "run.json") or _read(folder.parent / "run.json")
    command = run.get("command", [])
    off = [value for flag, value in pairwise(command) if flag in {"--guard", "--guard-off"}]
    guards = {*about.get("guards_off", ()), *(guard.removesuffix("=off") for guard in off)}
    return Compared(
        str(folder),
        outcome,
        _faults(folder) or tuple(outcome.faults),
        tuple(sorted(guards)),
        run.get("target") or outcome.config.source,
        _link(folder, page),
    )


def _link(folder: Path, page: Path) -> str:
    """Return the link to the page of the run or of its parent run, relative if it is below the comparison's folder."""
    for candidate in (folder, folder.parent):
        theirs, here = (candidate / PAGE).resolve(), page.parent.resolve()
        if theirs.exists() and theirs != page.resolve():
            return str(theirs.relative_to(here)) if theirs.is_relative_to(here) else theirs.as_uri()
    return ""


def _read(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_bytes()) if path.exists() else {}
    return content if isinstance(content, dict) else {}


def _faults(folder: Path) -> tuple[str, ...]:
    """Return the kinds of faults in the schedule, including faults that never started; empty without a schedule."""
    faults = _read(folder / "schedule.json").get("faults", ())
    return tuple(sorted({fault["kind"] for fault in faults}))
