"""Report a violation: the invariant, the command that repeats the run, the fewest faults, the last steps."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from highwater.fuzz.schedule import Schedule, shrink, write_schedule
from highwater.fuzz.simulator.causes.lines import SHOWN
from highwater.fuzz.simulator.causes.offsets import ROLES
from highwater.fuzz.simulator.cluster import Settings
from highwater.fuzz.simulator.disk_faults import SILENT_SITUATIONS
from highwater.fuzz.simulator.invariants.loads import LOADS
from highwater.fuzz.simulator.invariants.violations import Violation
from highwater.fuzz.simulator.search import Audit, SeedResult, run_seed
from highwater.fuzz.simulator.swarm import ALL_KINDS
from highwater.reference.groups.group import GroupState
from highwater.spec.formats.trace import Step, write_trace

COLUMNS: Final = f"{'ms':>7} {'node':>5} {'role':>8} {'epoch':>5} {'LEO':>6} {'HW':>6} {'ISR':<12} event"


@dataclass(frozen=True, slots=True)
class SeedFinding:
    """A violation after shrinking. `result` is the traced run of the shrunk schedule."""

    result: SeedResult
    schedule: Schedule
    settings: Settings

    @property
    def violation(self) -> Violation:
        """Return the violation of the traced run."""
        assert self.result.violation is not None
        return self.result.violation

    def save(self, folder: Path) -> None:
        """Write `schedule.json` and `trace.ndjson` in the folder."""
        write_schedule(folder / "schedule.json", self.schedule)
        write_trace(folder / "trace.ndjson", self.result.steps)

    def lines(self, folder: Path) -> list[str]:
        """Return the lines to print: verdict, command, faults, the cause, path of the trace."""
        return [
            f"{self.violation.operator} is broken at {self.violation.at_ms} ms by {self.violation.node}: "
            f"{self.violation.message}",
            f"  again:  highwater simulate --schedule {folder / 'schedule.json'}{options(self.settings)}",
            f"  seed {self.schedule.seed}, {_count(self.schedule.faults, 'fault')}:",
            *(f"    {fault}" for fault in self.schedule.faults),
            *(f"  {line}" for line in self._cause()),
            f"  trace:  {folder / 'trace.ndjson'}",
        ]

    def _cause(self) -> list[str]:
        """Return what happened to the broken offset, group or transaction; else the last steps of the nodes."""
        return self.result.cause or [COLUMNS, *event_table(self.result.steps)[-SHOWN:]]


def _count(items: Sequence[object], name: str) -> str:
    return f"{len(items) or 'no'} {name}{'s' if len(items) != 1 else ''}"


def find_smallest(
    seed: int, settings: Settings, schedule: Schedule, invariant: str, audit: Audit | None = None
) -> SeedFinding:
    """Shrink the schedule while the run still violates the invariant, then run the shrunk schedule with a trace."""

    def still_violates(candidate: Schedule) -> bool:
        violation = run_seed(seed, settings, schedule=candidate, audit=audit).violation
        return violation is not None and violation.invariant == invariant

    smallest = shrink(schedule, still_violates)
    return SeedFinding(run_seed(seed, settings, schedule=smallest, tracing=True, audit=audit), smallest, settings)


def options(settings: Settings) -> str:
    """Return the options of `highwater simulate` for these settings, each after a space."""
    off = "".join(f" --guard-off {guard}" for guard in settings.guards_off)
    rule = f" --truncation {settings.truncation}" if settings.truncation != "kip320" else ""
    members = f" --min-insync-replicas {settings.min_insync_replicas}" if settings.min_insync_replicas != 2 else ""
    pace = f" --pace {settings.pace}" if settings.pace != 1 else ""
    programs = f" --programs {settings.programs}" if settings.programs else ""
    return f"{rule}{off}{members}{pace}{programs}"


def event_table(steps: list[Step]) -> list[str]:
    """Return a line with columns of fixed width for each step: role, epoch, log and ISR of the node after the step."""
    return list(_rows(steps))


def _rows(steps: list[Step]) -> Iterator[str]:
    known: dict[tuple[int | str, str], dict[str, Any]] = {}
    for step in steps:
        if step.action == "Crash":
            for (node, _), values in known.items():
                values["role"] = "down" if node == step.node else values.get("role", "-")
        now = known.setdefault((step.node, step.entity), {})
        now.update(step.state)
        now["role"] = ROLES.get(step.action, now.get("role", "-"))
        isr = ",".join(map(str, now.get("isr", ()))) or "-"
        choices = " ".join(f"{name}={value}" for name, value in step.choices.items())
        yield (
            f"{step.time_ns // 1_000_000:>7} {step.node:>5} {now['role']:>8} {now.get('leader_epoch', '-'):>5} "
            f"{now.get('log_end_offset', '-'):>6} {now.get('high_watermark', '-'):>6} {isr:<12} "
            f"{step.entity} {step.action} {choices}".rstrip()
        )


# -- the table at the end of a sweep: which situations occurred, in how many seeds, and which never did --

SITUATIONS: Final[dict[str, tuple[str, ...]]] = {
    "faults": (*dict.fromkeys(ALL_KINDS), "lost tail"),
    "disks": SILENT_SITUATIONS,
    "replicas": (
        "first leader", "leader change", "no leader", "isr shrink", "isr expansion", "isr of one", "truncation",
        "fenced write", "write below min ISR", "fenced fetch", "fetch ahead of a leader",
    ),
    "controller": (
        "first controller", "controller change", "fenced controller", "request to a former life", "fenced ISR change",
        "ineligible replica", "fenced store write",
    ),
    "groups": (
        *(f"group {state}" for state in GroupState if state is not GroupState.DEAD), "coordinator change",
        "rebalance during failover", "fenced generation", "fenced instance", "forgotten member", "rebalance as in 0.7",
    ),
    "readers": (
        "read_uncommitted read", "read_committed read", "read of an open transaction", "read over an abort",
        "log end listed", "positions committed", "positions fetched", "transformed record",
    ),
    "clients": tuple(LOADS),
    "producers": ("commit marker", "abort marker", "fenced producer", "sequence gap", "invalid batch refused"),
}  # fmt: skip
"""Situations that should occur in a long sweep, by component."""

AMOUNTS: Final = {"records truncated"}  # not a situation: the value is a number of records
ENOUGH_SEEDS: Final = 100  # with fewer seeds a situation may be missing by chance
CELLS_IN_A_ROW: Final = 3


def coverage_lines(counts: Mapping[str, int], seeds: int) -> Iterator[str]:
    """Yield the lines of the table; `counts` has for each situation the number of seeds in which it occurred.

    From `ENOUGH_SEEDS` seeds on the last line lists the situations that never occurred.
    """
    yield f"situations, with the number of seeds (of {seeds:,}) in which they occurred:"
    known = {situation for group in SITUATIONS.values() for situation in group} | AMOUNTS
    others = tuple(situation for situation in counts if situation not in known)
    for name, group in {**SITUATIONS, "others": others}.items():
        met = sorted(
            (situation for situation in group if counts.get(situation)), key=lambda name: (-counts[name], name)
        )
        yield from _coverage_rows(name, [f"{situation:<26}{counts[situation]:>7,}" for situation in met])
    never = [situation for group in SITUATIONS.values() for situation in group if not counts.get(situation)]
    if seeds >= ENOUGH_SEEDS:
        yield f"  never occurred: {', '.join(never) or 'none'}"


def _coverage_rows(name: str, cells: Sequence[str]) -> Iterator[str]:
    for start in range(0, len(cells), CELLS_IN_A_ROW):
        yield f"  {'' if start else name:<12}" + "   ".join(cells[start : start + CELLS_IN_A_ROW])
