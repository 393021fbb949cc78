"""Measure which wrong brokers the simulator finds: `python -m highwater.soak.simulator_power [NAME...] [--mutants N]`.

The mutants are those of `highwater.soak.power`: written ones, by someone who had not read invariants or cases, and a
sample of cosmic-ray's.  Each is loaded in a process of its own, where the state machine of its package runs with its
quick profile, and then seed after seed of `highwater simulate`, audited, until one finds it or its processor time is
over.  Prints who found what, the survivors, and the score.  Controls: the correct broker holds under all state
machines and the first seeds, and under each seed that finds a mutant.  Results are kept in results/simulator-power;
what was found is not tried again, a survivor is tried again with more time or after the simulator has changed.
"""

import hashlib
import os
import re
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from hypothesis import Phase

from highwater import fuzz
from highwater.commands.run_audit import audit_run
from highwater.errors import ExitCode, UsageError
from highwater.fuzz.machines.all import MACHINES
from highwater.fuzz.simulator.cluster import Settings
from highwater.fuzz.simulator.search import run_seed
from highwater.results import progress
from highwater.soak.mutation import CPU_S, Mutant, Outcome, outcome, unchanged
from highwater.soak.power.mutants import BehaviourMutant, equivalents, generated, reason_of, written

FOLDER: Final = Path("results") / "simulator-power"
IMPORTED: Final = re.compile(r"highwater\.(reference|fuzz|reports|commands)(\..*)?")
MACHINES_OF: Final = {
    "storage": ("log",),
    "store": ("metadata store",),
    "groups": ("group coordinator",),
    "transactions": ("transaction coordinator", "log"),
    "replication": ("fetch sessions",),
}
"""The state machines that run the code of a package."""
CONTROL_SEEDS: Final = 6


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a mutant: `by` names the machine or the seed, with what was violated; empty if nothing was."""

    name: str
    simulator: str
    by: str = ""
    seeds: int = 0
    cpu_s: float = 0.0
    effect: str = ""


def soak(
    names: Annotated[
        list[str] | None, typer.Argument(help="Mutants by name, or the start of one; default: all.")
    ] = None,
    count: Annotated[int, typer.Option("--mutants", min=0, help="Number of generated mutants, about.")] = 40,
    seed: Annotated[int, typer.Option(help="Seed of the generated mutants.")] = 0,
    cpu_s: Annotated[float, typer.Option("--cpu", min=1, max=CPU_S / 2, help="Processor seconds.")] = 60.0,
    jobs: Annotated[int, typer.Option(min=1, help="Mutants at a time.")] = os.cpu_count() or 1,
) -> None:
    """Try the mutants and print the score; exit code 1 if any survives."""
    chosen = [
        mutant
        for mutant in [*written(), *generated(count, seed)]
        if not names or any(mutant.name.startswith(name) for name in names)
    ]
    if not chosen:
        raise UsageError(f"no mutant has a name that begins with {', '.join(names or ())}")
    known = equivalents()
    tried = [mutant for mutant in chosen if not reason_of(mutant, known)]
    simulator = _digest()
    _check_control(tried)
    with ProcessPoolExecutor(jobs) as pool, progress("trying mutants", len(tried)) as step:
        trials = []
        for trial in pool.map(partial(_try_mutant, simulator=simulator, cpu_s=cpu_s), tried):
            trials.append(trial)
            typer.echo(f"{trial.name}: {trial.by or 'survived'} [{trial.seeds} seeds, {trial.cpu_s:.0f} s]")
            step()
    sys.exit(_summarize(trials, len(chosen) - len(tried)))


def _summarize(trials: list[Trial], equivalent: int) -> ExitCode:
    survivors = [trial for trial in trials if not trial.by]
    for trial in survivors:
        typer.echo(f"survived: {trial.name}: {trial.effect}")
    found, machines = len(trials) - len(survivors), sum(trial.by.startswith("machine") for trial in trials)
    typer.echo(
        f"{found} of {len(trials)} mutants were found, {100 * found / len(trials):.1f} %, {machines} of them by a "
        f"state machine; {equivalent} more are equivalent"
    )
    return ExitCode.VIOLATED if survivors else ExitCode.HELD


def _check_control(mutants: Iterable[BehaviourMutant]) -> None:
    """Raise UsageError if the correct broker, loaded in the same way, is found to be wrong."""
    for module in sorted({mutant.mutant.module for mutant in mutants})[:1]:
        place = FOLDER / "control.json"
        _judge(unchanged(module), "control", place, seeds=CONTROL_SEEDS, cpu_s=CPU_S, machines=tuple(MACHINES))
        if by := msgspec.json.decode(place.read_bytes(), type=Trial).by:
            raise UsageError(f"the correct broker is found to be wrong by {by}, so this can judge no mutant")


def _try_mutant(mutant: BehaviourMutant, simulator: str, cpu_s: float) -> Trial:
    place = FOLDER / f"{mutant.key}.json"
    if place.exists():
        before = msgspec.json.decode(place.read_bytes(), type=Trial)
        if before.by or (before.simulator == simulator and before.cpu_s >= cpu_s):
            return msgspec.structs.replace(before, name=mutant.name)
    package = mutant.mutant.module.removeprefix("highwater.reference.").partition(".")[0]
    _judge(mutant.mutant, mutant.name, place, cpu_s=cpu_s, machines=MACHINES_OF.get(package, ()))
    trial = msgspec.json.decode(place.read_bytes(), type=Trial)
    if trial.by and trial.seeds:
        _check_seed(trial.seeds - 1)
    trial = msgspec.structs.replace(trial, simulator=simulator, effect=mutant.effect or mutant.mutant.after)
    _write(place, trial)
    return trial


def _check_seed(seed: int) -> None:
    """Raise UsageError if the seed that found a mutant also finds the correct broker, which this process has loaded."""
    violation = run_seed(seed, Settings(swarm=True), audit=audit_run).violation
    if violation is not None:
        raise UsageError(f"the correct broker is found to be wrong by seed {seed}, too: {violation}")


def _judge(
    mutant: Mutant, name: str, place: Path, *, cpu_s: float, machines: tuple[str, ...], seeds: int = 1_000_000
) -> None:
    """Run machines and seeds in a process that has loaded the mutant; it writes the trial to `place`."""
    place.parent.mkdir(parents=True, exist_ok=True)

    def survives() -> bool:
        trial = _search(name, machines, range(seeds), cpu_s)
        _write(place, trial)
        return not trial.by

    if outcome(mutant, IMPORTED, survives) in {Outcome.RAISED, Outcome.TIMED_OUT}:
        _write(place, Trial(name=name, simulator="", by="a run that does not end, or an import that fails"))


def _search(name: str, machines: tuple[str, ...], seeds: range, cpu_s: float) -> Trial:
    """Return the first finding; this runs with the mutant loaded, so everything is imported again."""
    from highwater.commands import run_audit
    from highwater.fuzz.machines import all as machines_module
    from highwater.fuzz.simulator import cluster, search

    started = time.process_time()
    for machine in machines:
        try:
            machines_module.run_machine(machine, seed=1, phases=(Phase.generate,))
        except Exception as error:
            by = f"machine {machine}: {type(error).__name__}: {str(error)[:80]}"
            return Trial(name=name, simulator="", by=by, cpu_s=time.process_time() - started)
    for seed in seeds:
        result = search.run_seed(seed, cluster.Settings(swarm=True), audit=run_audit.audit_run)
        spent_s = time.process_time() - started
        if result.violation is not None:
            by = f"seed {seed}: {result.violation.invariant}: {result.violation.message[:120]}"
            return Trial(name=name, simulator="", by=by, seeds=seed + 1, cpu_s=spent_s)
        if spent_s > cpu_s:
            break
    return Trial(name=name, simulator="", seeds=seed + 1, cpu_s=time.process_time() - started)


def _write(place: Path, trial: Trial) -> None:
    temporary = place.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(msgspec.json.encode(trial))
    temporary.replace(place)


def _digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(fuzz.__path__[0]).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


if __name__ == "__main__":
    typer.run(soak)
