"""Run seeds that no entry has, and keep the sums: `python -m highwater.soak.ledger [--minutes M] [--pace N]`.

`ledger.json` beside this module has one entry for each version of the broker and simulator, pace, and day: the range
of seeds, simulated hours, events, audited operations, situations, and every violation with its explanation. `--show`
prints the sums. Exit code 1 while a violation has no explanation.
"""

import fcntl
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from highwater.commands.run_audit import audit_run
from highwater.commands.seed_sweep import code_digest
from highwater.errors import ExitCode, UsageError
from highwater.fuzz.simulator.cluster import Settings
from highwater.fuzz.simulator.findings import coverage_lines, options
from highwater.fuzz.simulator.search import Sweep, sweep_parallel
from highwater.results import progress
from highwater.soak.compiled.__main__ import run_compiled

LEDGER: Final = Path(__file__).with_name("ledger.json")
BLOCK: Final = 24  # seeds that an interruption can lose
MS_AN_HOUR: Final = 3_600_000


class FoundViolation(msgspec.Struct):
    """A violation; `explanation` is written by hand once its cause is known."""

    seed: int
    message: str
    replay: str
    explanation: str = ""


class Entry(msgspec.Struct, kw_only=True):
    """The runs of one version, pace and day. `first` is the first seed, `end` the one after the last.

    `seen` has for each situation the number of seeds in which it occurred.
    """

    day: str
    code: str
    pace: int
    first: int
    end: int
    simulated_hours: float = 0.0
    events: int = 0
    acknowledged: int = 0
    audited: int = 0
    seen: dict[str, int] = {}
    violations: list[FoundViolation] = []

    def add(self, found: Sweep, settings: Settings) -> None:
        """Add the runs of the seeds after `end`."""
        results = found.results
        assert [result.seed for result in results] == list(range(self.end, self.end + len(results))), "seeds once each"
        self.end += len(results)
        self.simulated_hours = round(
            self.simulated_hours + sum(result.simulated_ms for result in results) / MS_AN_HOUR, 3
        )
        self.events += found.events
        self.acknowledged += sum(result.acked for result in results)
        self.audited += sum(result.audited for result in results)
        self.seen = dict(sorted((Counter(self.seen) + Counter(found.coverage())).items()))
        for result in found.findings:
            replay = f"highwater simulate --seeds {result.seed}:{result.seed + 1}{options(settings)}"
            self.violations.append(FoundViolation(result.seed, str(result.violation), replay))


def read(path: Path = LEDGER) -> list[Entry]:
    """Return the entries; raises UsageError if the file is not a ledger."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Entry]) if path.exists() else []
    except (msgspec.DecodeError, OSError) as error:
        raise UsageError(f"not a ledger: {error}", where=str(path)) from error


def write(entries: list[Entry], path: Path = LEDGER) -> None:
    """Replace the file in one step, so that an interruption loses nothing."""
    hidden = path.with_suffix(".tmp")
    hidden.write_text(json.dumps(msgspec.to_builtins(entries), indent=1, ensure_ascii=False) + "\n")
    hidden.rename(path)


def open_entry(entries: list[Entry], pace: int, code: str, day: str) -> Entry:
    """Return the entry to add to: that of this version and day, or a new one after all seeds of this pace."""
    end = max((entry.end for entry in entries if entry.pace == pace), default=0)
    for entry in entries:
        if (entry.pace, entry.code, entry.day, entry.end) == (pace, code, day, end):
            return entry
    entries.append(Entry(day=day, code=code, pace=pace, first=end, end=end))
    return entries[-1]


def lines(entries: list[Entry]) -> list[str]:
    """Return the sums for each pace and in all, the situations, and the violations."""
    shown = [f"{'pace':<6}{'seeds':>9}{'simulated hours':>17}{'events':>16}{'audited':>14}{'violations':>12}"]
    for pace in sorted({entry.pace for entry in entries}):
        shown.append(_sums(str(pace), [entry for entry in entries if entry.pace == pace]))
    shown.append(_sums("all", entries))
    seen: Counter[str] = Counter()
    for entry in entries:
        seen.update(entry.seen)
    shown += coverage_lines(seen, sum(entry.end - entry.first for entry in entries))
    for entry in entries:
        for broken in entry.violations:
            shown.append(f"{broken.replay}: {broken.message}: {broken.explanation or 'NOT EXPLAINED'}")
    return shown


def _sums(name: str, entries: list[Entry]) -> str:
    return (
        f"{name:<6}{sum(entry.end - entry.first for entry in entries):>9,}"
        f"{sum(entry.simulated_hours for entry in entries):>17,.1f}{sum(entry.events for entry in entries):>16,}"
        f"{sum(entry.audited for entry in entries):>14,}{sum(len(entry.violations) for entry in entries):>12,}"
    )


def main(
    minutes: Annotated[float, typer.Option(min=0.0, help="Minutes to run; at least one block of seeds is run.")] = 30.0,
    pace: Annotated[int, typer.Option(min=1, help="As in `highwater simulate --pace`.")] = 1,
    jobs: Annotated[int, typer.Option(min=0, help="Number of processes; 0 means one for each core.")] = 0,
    path: Annotated[Path, typer.Option("--ledger", help="The file to add to.")] = LEDGER,
    show: Annotated[bool, typer.Option("--show", help="Print the sums of all entries, and run nothing.")] = False,
    compiled: Annotated[
        bool,
        typer.Option("--compiled", help="Compile the simulator first, as `python -m highwater.soak.compiled` does."),
    ] = False,
) -> None:
    """Run seeds that no entry has, add them to the ledger, and print its sums."""
    if compiled:
        options = {"--minutes": minutes, "--pace": pace, "--jobs": jobs, "--ledger": path.resolve()}
        run_compiled(["-m", "highwater.soak.ledger", *(f"{name}={value}" for name, value in options.items())])
    if not show:
        with alone(path):
            _run(Settings(swarm=True, pace=pace), minutes, jobs, path)
    entries = read(path)
    typer.echo("\n".join(lines(entries)))
    unexplained = any(not broken.explanation for entry in entries for broken in entry.violations)
    raise typer.Exit(ExitCode.VIOLATED if unexplained else ExitCode.HELD)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keep other runs away from the file meanwhile: each writes all entries."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise UsageError("another run adds to this ledger", where=str(path), hint="wait, or give --ledger") from error
    finally:
        os.close(folder)


def _run(settings: Settings, minutes: float, jobs: int, path: Path) -> None:
    entries, end, code = read(path), time.monotonic() + minutes * 60, code_digest()
    while True:
        entry = open_entry(entries, settings.pace, code, datetime.now(UTC).date().isoformat())
        seeds = range(entry.end, entry.end + BLOCK)
        with progress(f"simulating {seeds.start}:{seeds.stop}", BLOCK) as step:
            found = sweep_parallel(seeds, settings, jobs=jobs, audit=audit_run, on_result=lambda result: step())
        entry.add(found, settings)
        write(entries, path)
        if time.monotonic() >= end:
            return


if __name__ == "__main__":
    typer.run(main)
