"""Measure the power of the suite: `python -m highwater.soak.power [NAME...] [--mutants N] [--seed S] [--shard I/N]`.

Each mutant of the reference broker runs as a cluster of processes, on which the cases run that execute the changed
line, until one fails. Prints who killed what, the survivors, and the score. Results are kept in results/power: a mutant
that was tried with the same cases is not tried again; a survivor is tried again after the cases have changed.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from highwater.errors import ExitCode, UsageError
from highwater.soak.power.lines import LinesFile
from highwater.soak.power.mutants import (
    WRITTEN,
    BehaviourMutant,
    equivalents,
    generated,
    reason_of,
    survivors,
    written,
)
from highwater.soak.power.nodes import preload
from highwater.soak.power.results import (
    DEAD,
    FOLDER,
    Outcome,
    Results,
    Trial,
    read_killers,
    record_killers,
    score_text,
    suite_digest,
)
from highwater.soak.power.trials import Judge, MutantTrials, collect_and, control, trace


def soak(
    names: Annotated[
        list[str] | None, typer.Argument(help="Mutants by name, or the start of one; default: all.")
    ] = None,
    count: Annotated[int, typer.Option("--mutants", min=0, help="Number of generated mutants, about.")] = 120,
    seed: Annotated[int, typer.Option(help="Seed of the generated mutants.")] = 0,
    file: Annotated[Path, typer.Option(help="File of written mutants.")] = WRITTEN,
    shard: Annotated[str, typer.Option(help="I/N: only every N-th mutant, from the I-th on.")] = "1/1",
    limit_s: Annotated[float, typer.Option("--limit", help="Seconds for each mutant.")] = 180.0,
    only_areas: Annotated[bool, typer.Option("--only-areas", help="Only cases about the mutant's package.")] = False,
    again: Annotated[bool, typer.Option(help="Also try mutants that died with other cases again.")] = True,
    recorded: Annotated[bool, typer.Option("--recorded", help="Only the case that killed each mutant before.")] = False,
    cases: Annotated[
        list[str] | None, typer.Option("--case", help="Only these cases, by name or pattern, such as TXN-8*.")
    ] = None,
    record: Annotated[bool, typer.Option("--record", help="Record which case killed which mutant.")] = False,
    tracing: Annotated[bool, typer.Option("--trace/--no-trace", help="Trace new and changed cases first.")] = True,
) -> None:
    """Try the mutants and print the score; exit code 1 for a survivor that is not known."""
    preload()
    chosen = _shard([*written(file), *generated(count, seed)], shard)
    if names:
        chosen = [mutant for mutant in chosen if any(mutant.name.startswith(name) for name in names)]
    tried: list[Trial] = []
    choice = Choice(
        chosen, shard, limit_s, only_areas=only_areas, again=again, tracing=tracing, recorded=recorded,
        cases=tuple(cases or ()),
    )  # fmt: skip
    collect_and(lambda trials: tried.extend(_try_all(trials, choice)))
    if record:
        record_killers(tried)
    _summarize(chosen, tried)


def _shard(mutants: list[BehaviourMutant], shard: str) -> list[BehaviourMutant]:
    try:
        number, shards = map(int, shard.split("/"))
    except ValueError:
        raise UsageError(f"expected I/N, such as 1/4, not {shard!r}", where="--shard") from None
    return mutants[number - 1 :: shards]


CONSOLE = Console(highlight=False, markup=False, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a run does: the mutants of this shard, and the options."""

    mutants: list[BehaviourMutant]
    shard: str
    limit_s: float
    only_areas: bool
    again: bool
    tracing: bool
    recorded: bool
    cases: tuple[str, ...] = ()


def _try_all(trials: MutantTrials, choice: Choice) -> list[Trial]:
    path = FOLDER / "lines.json"
    is_traced = choice.tracing and not choice.recorded and not choice.cases
    lines = trace(trials, path) if is_traced else LinesFile.read(path).only(trials.items)
    results, suite = Results(FOLDER / f"trials-{choice.shard.replace('/', '-')}.ndjson"), suite_digest()
    judge = Judge(trials, lines, results, suite, choice.limit_s, only_areas=choice.only_areas)
    known, found = equivalents(), []
    chosen = [mutant for mutant in choice.mutants if not reason_of(mutant, known)]
    if choice.recorded:
        return try_recorded(trials, judge, chosen)
    if choice.cases:
        return try_named(judge, chosen, choice.cases, results)
    # Those that were never tried come first: an interrupted run says more.
    for mutant in sorted(chosen, key=lambda mutant: results.has_tried(mutant.key)):
        trial = results.known(mutant.key, suite) or (None if choice.again else _dead_before(results, mutant.key))
        if trial is None:
            trial = judge.try_mutant(mutant)
            results.add(trial)
            _show(trial)
        found.append(trial)
    return found


def try_recorded(trials: MutantTrials, judge: Judge, mutants: list[BehaviourMutant]) -> list[Trial]:
    """Run for each mutant the case that killed it, after all these cases have passed on a correct broker."""
    killers = read_killers()
    failure = control(trials, {killers[mutant.name] for mutant in mutants if mutant.name in killers})
    if failure:
        raise UsageError(f"a case fails on a broker without a mutant, so that it can judge none: {failure}")
    found = []
    for mutant in mutants:
        found.append(judge.try_killer(mutant))
        _show(found[-1])
    return found


def try_named(judge: Judge, mutants: list[BehaviourMutant], cases: Sequence[str], results: Results) -> list[Trial]:
    """Run only the named cases; a mutant that they do not kill is unfinished, since others were not tried."""
    found = []
    for mutant in mutants:
        trial = judge.try_mutant(mutant, judge.named_stages(mutant, cases))
        if trial.outcome is Outcome.SURVIVED:
            trial = msgspec.structs.replace(trial, outcome=Outcome.UNFINISHED)
        results.add(trial)
        _show(trial)
        found.append(trial)
    return found


def _dead_before(results: Results, key: str) -> Trial | None:
    return next((trial for trial in reversed(results.trials) if trial.key == key and trial.outcome in DEAD), None)


def _show(trial: Trial) -> None:
    how = f" by {trial.killer}: {trial.message}" if trial.killer else f" {trial.message}".rstrip()
    ran = f"{trial.cases} of {trial.candidates} cases, {trial.seconds:.0f} s"
    CONSOLE.print(f"{trial.name}: {trial.outcome}{how} [{ran}]")


def _summarize(chosen: list[BehaviourMutant], tried: list[Trial]) -> None:
    equivalent, surviving = equivalents(), survivors()
    reasons = {mutant.key: reason for mutant in chosen if (reason := reason_of(mutant, surviving))}
    for trial in tried:
        if trial.outcome not in DEAD:
            detail = reasons.get(trial.key, trial.after)
            CONSOLE.print(f"{trial.outcome}: {trial.name}: {trial.effect or trial.before}\n    {detail}")
    excluded = sum(bool(reason_of(mutant, equivalent)) for mutant in chosen)
    CONSOLE.print(f"{score_text(tried)}; {excluded} more are equivalent")
    if any(trial.outcome is Outcome.SURVIVED and trial.key not in reasons for trial in tried):
        sys.exit(ExitCode.VIOLATED)


if __name__ == "__main__":
    typer.run(soak)
