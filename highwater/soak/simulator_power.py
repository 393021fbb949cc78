"""Measure which wrong brokers the simulator finds: `python -m highwater.soak.simulator_power [NAME...] [--mutants N]`.

`--record` writes who found what to `simulator_killers.json`; `--written FILE` reads written mutants from another file.

The mutants are those of `highwater.soak.power`: written ones, by someone who had not read invariants or cases, and a
sample of cosmic-ray's.  Each is loaded in a process of its own, where seed after seed of `highwater simulate` runs
with every kind of clients, audited, until one finds it or its processor time is over, and then the state machine of its
package with its quick profile.  Prints who found what, the survivors, and the score.  Controls: the correct broker
holds under all state machines and the first seeds, and under each run that finds a mutant.  Results are kept in
results/simulator-power; what was found is not tried again, a survivor is tried again with more time or after the
simulator has changed.
"""

import hashlib
import os
import re
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Final

import msgspec
import typer
from hypothesis import Phase

from highwater import fuzz
from highwater.commands.run_audit import audit_run
from highwater.errors import ExitCode, UsageError
from highwater.fuzz.machines.all import MACHINES
from highwater.fuzz.simulator import cluster
from highwater.fuzz.simulator.cluster import (
    PROBES_ALONE,
    PROBES_CALM,
    PROBES_FIELDS,
    PROBES_OUTAGE,
    PROBES_RESTARTS,
)
from highwater.fuzz.simulator.search import run_seed
from highwater.pools import process_pool
from highwater.results import progress, write_json
from highwater.soak.mutation import CPU_S, Mutant, Outcome, outcome, unchanged
from highwater.soak.power.mutants import WRITTEN, BehaviourMutant, Need, equivalents, generated, reason_of, written

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
KILLS: Final = WRITTEN.parent / "simulator_killers.json"
SURVIVORS: Final = WRITTEN.parent / "simulator_survivors.toml"
CONTROL_SEEDS: Final = 6
DRAWN: Final = "drawn"
KINDS_OF_RUN: Final = (PROBES_CALM, PROBES_FIELDS, PROBES_RESTARTS, PROBES_OUTAGE, PROBES_ALONE, DRAWN)
"""Each seed is run with probes of each kind, and with the clients that it draws; without faults first, unless the
effect of the mutant needs a restart or a failure."""


SEEDS_OF_KIND: Final = {PROBES_ALONE: 3}
"""A run of the kind `alone` has only some of its probes, and takes the least time."""


class Survivor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A written mutant that the simulator does not find, with the reason; `out_of_reach`: it cannot."""

    name: str
    reason: str
    out_of_reach: bool = False


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a mutant: `by` names the machine or the run, with what was violated; empty if nothing was.

    `run` is the run that found it, such as `calm 3`: the kind of run and the seed.
    """

    name: str
    simulator: str
    by: str = ""
    run: str = ""
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
    file: Annotated[Path, typer.Option("--written", help="File with written mutants.")] = WRITTEN,
    record: Annotated[bool, typer.Option("--record", help="Write what found each written mutant.")] = False,
) -> None:
    """Try the mutants and print the score; exit code 1 if any survives."""
    chosen = [
        mutant
        for mutant in [*written(file), *generated(count, seed)]
        if not names or any(mutant.name.startswith(name) for name in names)
    ]
    if not chosen:
        raise UsageError(f"no mutant has a name that begins with {', '.join(names or ())}")
    known = equivalents()
    tried = [mutant for mutant in chosen if not reason_of(mutant, known)]
    simulator = _digest()
    with process_pool(jobs) as pool, progress("trying mutants", len(tried)) as step:
        _check_control(pool, tried)
        trials = []
        for trial in pool.map(partial(_try_mutant, simulator=simulator, cpu_s=cpu_s), tried):
            trials.append(trial)
            typer.echo(f"{trial.name}: {trial.by or 'survived'} [{trial.seeds} runs, {trial.cpu_s:.0f} s]")
            step()
    if record:
        record_kills([trial for trial in trials if trial.name in {mutant.name for mutant in written()}])
    sys.exit(_summarize(trials, len(chosen) - len(tried)))


def read_kills(path: Path = KILLS) -> dict[str, str]:
    """Return what found each written mutant: a state machine, or a seed with its invariant."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, str]) if path.exists() else {}


def read_survivors(path: Path = SURVIVORS) -> list[Survivor]:
    """Return the written mutants that were not found."""
    return msgspec.convert(tomllib.loads(path.read_text()).get("mutant", []), list[Survivor])


def record_kills(trials: Iterable[Trial], path: Path = KILLS) -> None:
    """Write what found these mutants to the file, beside what it has of others."""
    kills = read_kills(path)
    for trial in trials:
        kills.pop(trial.name, None)
        if trial.by:
            kills[trial.name] = trial.by
    write_json(path, dict(sorted(kills.items())))


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


def _check_control(pool: Executor, mutants: Iterable[BehaviourMutant]) -> None:
    """Raise UsageError if the correct broker, loaded in the same way, is found to be wrong.

    Each seed has a process of its own, as all of them need more processor time than one mutant may have.
    """
    module = min(mutant.mutant.module for mutant in mutants)
    parts = [*((f"control-{seed}", range(seed, seed + 1), ()) for seed in range(CONTROL_SEEDS)),
             ("control-machines", range(0), tuple(MACHINES))]  # fmt: skip
    for found in pool.map(partial(_try_control, module), *zip(*parts, strict=True)):
        if found:
            raise UsageError(f"the correct broker is found to be wrong by {found}, so this can judge no mutant")


def _try_control(module: str, name: str, seeds: range, machines: tuple[str, ...]) -> str:
    """Return what the correct broker violates; empty if nothing."""
    place = FOLDER / f"{name}.json"
    _judge(unchanged(module), name, place, seeds=seeds, cpu_s=CPU_S, machines=machines)
    return msgspec.json.decode(place.read_bytes(), type=Trial).by


def _try_mutant(mutant: BehaviourMutant, simulator: str, cpu_s: float) -> Trial:
    place = FOLDER / f"{mutant.key}.json"
    if place.exists():
        before = msgspec.json.decode(place.read_bytes(), type=Trial)
        if before.by or (before.simulator == simulator and before.cpu_s >= cpu_s):
            return msgspec.structs.replace(before, name=mutant.name)
    package = mutant.mutant.module.removeprefix("highwater.reference.").partition(".")[0]
    _judge(mutant.mutant, mutant.name, place, cpu_s=cpu_s, machines=MACHINES_OF.get(package, ()), need=mutant.needs)
    trial = msgspec.json.decode(place.read_bytes(), type=Trial)
    if trial.run:
        _check_run(trial.run)
    trial = msgspec.structs.replace(trial, simulator=simulator, effect=mutant.effect or mutant.mutant.after)
    _write(place, trial)
    return trial


def settings_of_run(run: str, module: ModuleType = cluster) -> tuple[int, Any]:
    """Return seed and settings of a run such as `calm 3`; `module` is the caller's `cluster`."""
    kind, seed = run.split()
    load = None if kind == DRAWN else module.Load(producers=1, probes=kind)
    return int(seed), module.Settings(swarm=True, load=load)


@cache
def _check_run(run: str) -> None:
    """Raise UsageError if the run that found a mutant also finds the correct broker, which this process has loaded."""
    seed, settings = settings_of_run(run)
    violation = run_seed(seed, settings, audit=audit_run).violation
    if violation is not None:
        raise UsageError(f"the correct broker is found to be wrong by {run}, too: {violation}")


def _judge(
    mutant: Mutant, name: str, place: Path, *,
    cpu_s: float, machines: tuple[str, ...], seeds: range = range(1_000_000), need: Need = Need.ONE_BROKER,
) -> None:  # fmt: skip
    """Run machines and seeds in a process that has loaded the mutant; it writes the trial to `place`."""
    place.parent.mkdir(parents=True, exist_ok=True)

    def survives() -> bool:
        trial = _search(name, machines, runs_of(name, seeds, need), cpu_s)
        _write(place, trial)
        return not trial.by

    if outcome(mutant, IMPORTED, survives) in {Outcome.RAISED, Outcome.TIMED_OUT}:
        _write(place, Trial(name=name, simulator="", by="a run that does not end, or an import that fails"))


def runs_of(name: str, seeds: range, need: Need) -> Iterator[str]:
    """Yield the run that found a mutant when the score was recorded, then the others, seed after seed."""
    recorded = read_kills().get(name, "").partition(":")[0]
    if recorded.partition(" ")[0] in KINDS_OF_RUN:
        yield recorded
    kinds = KINDS_OF_RUN if need is Need.ONE_BROKER else (*KINDS_OF_RUN[1:], *KINDS_OF_RUN[:1])
    for seed in seeds:
        for kind in kinds:
            count = SEEDS_OF_KIND.get(kind, 1)
            yield from (f"{kind} {count * seed + number}" for number in range(count))


def _search(name: str, machines: tuple[str, ...], runs: Iterable[str], cpu_s: float) -> Trial:
    """Return the first finding; this runs with the mutant loaded, so everything is imported again."""
    from highwater.commands import run_audit
    from highwater.fuzz.machines import all as machines_module
    from highwater.fuzz.simulator import cluster, search

    started = time.process_time()
    tried = 0
    for tried, run in enumerate(runs, 1):
        seed, settings = settings_of_run(run, cluster)
        violation = search.run_seed(seed, settings, audit=run_audit.audit_run).violation
        spent_s = time.process_time() - started
        if violation is not None:
            by = f"{run}: {violation.invariant}: {violation.message[:120]}"
            return Trial(name=name, simulator="", by=by, run=run, seeds=tried, cpu_s=spent_s)
        if spent_s > cpu_s:
            break
    for machine in machines:
        try:
            machines_module.run_machine(machine, seed=1, phases=(Phase.generate,))
        except Exception as error:
            by = f"machine {machine}: {type(error).__name__}: {str(error)[:80]}"
            return Trial(name=name, simulator="", by=by, seeds=tried, cpu_s=time.process_time() - started)
    return Trial(name=name, simulator="", seeds=tried, cpu_s=time.process_time() - started)


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
