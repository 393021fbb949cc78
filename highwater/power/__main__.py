"""Measure how many wrong brokers a judge finds: `python -m highwater.power [NAME...] [--judge J] [--set S]`."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from highwater.conformance.patterns import covers
from highwater.conformance.runner import environment
from highwater.errors import ExitCode, UsageError
from highwater.mutants.table import WRITTEN, NamedMutant
from highwater.power.reasons import Reason, equivalents, reason_of, survivors
from highwater.power.store import FOLDER, Store, read_killers, record_killers, score_text
from highwater.power.trial import Judge, Outcome, Plan, Trial, run_trials
from highwater.results import progress

CONSOLE: Final = Console(highlight=False, markup=False, soft_wrap=True)
HASH_SEED: Final = "PYTHONHASHSEED"
CHECKS_FOR_PATTERNS: Final = 5_000
"""So many checks of a plan without end are compared with `--check`."""
HELP: Final = """
Try mutants of the reference broker, and print what killed each, the survivors and the score.

A mutant is the broker with one change. A judge runs one check after another on it until one fails:

* suite (default): the conformance cases that execute the changed line, in virtual time
* simulator: seeds of `highwater simulate` with faults and invariants, then state machines
* fuzzer: `highwater fuzz` on processes for a minute, meant for the sets requests, typical_requests and many
* explorer: `highwater explore` in virtual time for a minute, meant for ordinary, second_situations and stateful
* rules: mutants of the audit rules instead (`--generated N` of each module; 0: all), a second implementation and tests

The written mutants are in highwater/mutants, a file for each set; survivors.toml has the reason for each that a
judge does not kill, killers.json the check that kills each of the others and is tried first.

Trials are kept in results/power: a mutant that was tried with the same checks is not tried again, so an interrupted
run continues. One failure kills: every run of a check on the same broker is the same.

Examples: `python -m highwater.power` (all 400), `python -m highwater.power fetch- --judge simulator` (those whose name
begins so), `python -m highwater.power --recorded` (only the check that killed each before, in minutes).

Exit code: 1 for a survivor without a reason in survivors.toml, 2 for a usage error.
"""


def suite_judge(store: Store) -> Judge:
    from highwater.power.suite import SuiteJudge

    return SuiteJudge(store)


def simulator_judge(store: Store) -> Judge:
    from highwater.power.simulator import SimulatorJudge

    return SimulatorJudge()


def rules_judge(store: Store) -> Judge:
    from highwater.power.rules import RulesJudge

    return RulesJudge()


def fuzzer_judge(store: Store) -> Judge:
    from highwater.power.fuzzer import FuzzerJudge

    return FuzzerJudge()


def explorer_judge(store: Store) -> Judge:
    from highwater.power.fuzzer import ExplorerJudge

    return ExplorerJudge()


JUDGES: Final[dict[str, Callable[[Store], Judge]]] = {
    "suite": suite_judge, "simulator": simulator_judge, "fuzzer": fuzzer_judge, "explorer": explorer_judge,
    "rules": rules_judge,
}  # fmt: skip


def measure(
    names: Annotated[
        list[str] | None, typer.Argument(help="Mutants by name, or the start of one; default: all of the set.")
    ] = None,
    judge: Annotated[str, typer.Option(help=f"One of: {', '.join(JUDGES)}.")] = "suite",
    mutant_set: Annotated[
        str, typer.Option("--set", help="Set of written mutants, a file of highwater/mutants.")
    ] = WRITTEN,
    count: Annotated[int, typer.Option("--generated", min=0, help="About so many mutants of cosmic-ray, too.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the generated mutants.")] = 0,
    limit_s: Annotated[float, typer.Option("--cpu", min=2, help="Processor seconds of each mutant.")] = 60.0,
    jobs: Annotated[int, typer.Option(min=1, help="Mutants at a time.")] = os.cpu_count() or 1,
    checks: Annotated[
        list[str] | None, typer.Option("--check", help="Only these checks, by name or pattern, such as TXN-8*.")
    ] = None,
    recorded: Annotated[bool, typer.Option("--recorded", help="Only the check that killed each before.")] = False,
    record: Annotated[bool, typer.Option("--record", help="Write what killed whom to killers.json.")] = False,
    results: Annotated[Path, typer.Option(help="Folder in which trials are kept.")] = FOLDER,
) -> None:
    if judge not in JUDGES:
        raise UsageError(f"there is no judge {judge!r}", where="--judge", hint=f"known: {', '.join(JUDGES)}")
    store = Store(judge, results)
    chosen_judge = JUDGES[judge](store)
    mutants = chosen_judge.mutants(mutant_set, count, seed)
    chosen = [mutant for mutant in mutants if not names or any(mutant.name.startswith(name) for name in names)]
    if not chosen:
        raise UsageError(f"no mutant has a name that begins with {', '.join(names or ())}", where=mutant_set)
    known = equivalents()
    tried = [mutant for mutant in chosen if not reason_of(mutant, known)]
    plan = plan_of(chosen_judge, checks or (), recorded=recorded)
    trials: list[Trial] = []
    if checks or recorded:
        store.leave_out()
    chosen_judge.session(lambda: trials.extend(try_all(chosen_judge, plan, store, tried, limit_s, jobs)))
    if record:
        record_killers(judge, trials)
    sys.exit(summarize(trials, tried, survivors(judge), len(chosen) - len(tried)))


def plan_of(judge: Judge, patterns: Sequence[str], *, recorded: bool) -> Plan:
    """Return the plan of a judge, or the part of it that patterns name or that killed each mutant before."""
    if recorded:
        killers = read_killers(judge.name)
        return lambda mutant: [killers[mutant.name].check] if mutant.name in killers else []
    if patterns:
        return lambda mutant: [
            check
            for check in islice(judge.plan(mutant), CHECKS_FOR_PATTERNS)
            if any(covers(pattern, check, check.partition("[")[0]) for pattern in patterns)
        ]
    return judge.plan


def try_all(
    judge: Judge, plan: Plan, store: Store, mutants: Sequence[NamedMutant], limit_s: float, jobs: int
) -> Iterator[Trial]:
    """Yield the trials of all mutants: those that are known, then those that were never tried, then the others."""
    known = {mutant.key: store.known(mutant.key, judge.version(), limit_s) for mutant in mutants}
    yield from (trial for trial in known.values() if trial is not None)
    waiting = [mutant for mutant in mutants if known[mutant.key] is None]
    waiting.sort(key=lambda mutant: store.has_tried(mutant.key))
    with progress("trying mutants", len(waiting)) as step:
        for trial in run_trials(judge, waiting, plan, limit_s, jobs):
            store.add(trial)
            show(trial)
            step()
            yield trial


def show(trial: Trial) -> None:
    how = f" by {trial.killer}: {trial.message}" if trial.killer else f" {trial.message}".rstrip()
    of = f" of {trial.candidates}" if trial.candidates else ""
    CONSOLE.print(f"{trial.name}: {trial.outcome}{how} [{trial.checks}{of} checks, {trial.cpu_s:.1f} s]")


def summarize(trials: Sequence[Trial], mutants: Sequence[NamedMutant], known: Sequence[Reason], equal: int) -> ExitCode:
    """Print the survivors and the score; return VIOLATED for a survivor without a reason."""
    reasons = {mutant.key: reason for mutant in mutants if (reason := reason_of(mutant, known))}
    survivors = [trial for trial in trials if trial.outcome is not Outcome.KILLED]
    for trial in survivors:
        detail = reasons.get(trial.key, trial.after)
        CONSOLE.print(f"{trial.outcome}: {trial.name}: {trial.effect or trial.before}\n    {detail}")
    CONSOLE.print(f"{score_text(trials)}; {equal} more are equivalent")
    return ExitCode.HELD if all(trial.key in reasons for trial in survivors) else ExitCode.VIOLATED


def main() -> None:
    """Run the program; sets of strings must have the same order in every run, so that a failure can be repeated."""
    if os.environ.get(HASH_SEED) != environment()[HASH_SEED]:
        os.execve(sys.executable, [sys.executable, "-m", "highwater.power", *sys.argv[1:]], environment())
    application = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    application.command(help=HELP)(measure)
    try:
        application()
    except UsageError as error:
        CONSOLE.print(f"highwater.power: {error}")
        sys.exit(ExitCode.USAGE)


if __name__ == "__main__":
    main()
