"""Run TLC on the models of `manifest.toml`, and on one mutant for each guard of `guards.toml`.

A model is as expected if TLC explored every state, no property broke, every action was taken and every named situation
was reached.  A mutant (a model with a guard off) is as expected if the property breaks that `guards.toml` names, or if
it holds where `guards.toml` says that the guard is redundant.  A property that breaks with the guard on, too, shows
nothing about the guard: so each mutant has a control, the same configuration with all guards on, which must hold.
Results are cached in the user's cache folder under a hash of modules, configuration, options and the TLC jar.
"""

import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from highwater.errors import UsageError, Verdict
from highwater.names import unknown_name
from highwater.spec.guards import Guard, Mutant, load_guards
from highwater.spec.models import (
    CONTRACTS,
    FAST,
    PROFILES,
    Model,
    Profile,
    check_names,
    find_model,
    load_models,
    modules_of,
    with_constants,
    with_only,
)
from highwater.spec.tlc.counterexample import format_counterexample
from highwater.spec.tlc.messages import TlcResult
from highwater.spec.tlc.parallel import in_parallel
from highwater.spec.tlc.run import Options, Progress, run_tlc
from highwater.temporary import temporary_folder
from highwater.toolchain import cache_folder, tlc_jar

TIMEOUT_S: Final = 3600
REACHED: Final = "REACHED "
GUARDS_OFF: Final = "GuardsOff"
"""The constant of the modules with the names of the guards that are off."""
LARGE: Final = 20_000  # states


class ModelResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a model, of a control, or, if `guard` is set, of the mutant without that guard.

    `control` is the result of a mutant's control; None if the mutant is to break nothing.
    """

    model: Model
    outcome: TlcResult
    guard: str = ""
    mutant: Mutant | None = None
    is_control: bool = False
    control: "ModelResult | None" = None
    cached: bool = False

    @property
    def verdict(self) -> Verdict:
        """VALID if the outcome is as the files say, INVALID if not, UNKNOWN if TLC did not decide."""
        if any(part is not None and part.outcome.verdict is Verdict.UNKNOWN for part in (self, self.control)):
            return Verdict.UNKNOWN
        return Verdict.INVALID if self.faults else Verdict.VALID

    @property
    def faults(self) -> list[str]:
        """List the differences from `manifest.toml` or `guards.toml`, one sentence each."""
        return list(self._faults_of_mutant(self.mutant) if self.mutant else self._faults_of_model())

    def _faults_of_mutant(self, expected: Mutant) -> Iterator[str]:
        observed, length = self.outcome.broken, len(self.outcome.trace)
        if self.control is not None and self.control.outcome.broken:
            yield f"{self.control.outcome.broken} breaks with all guards on, too, so this shows nothing about the guard"
        if expected.breaks and not observed:
            yield f"no property breaks, but guards.toml expects {expected.text}"
        elif expected.breaks and (observed, length) != (expected.breaks, expected.length):
            yield f"{observed} breaks in {length} states, but guards.toml expects {expected.text}"
        elif expected.redundant and observed:
            yield f"{observed} breaks, but guards.toml says that the guard is redundant here"
        elif expected.redundant:
            yield from self._state_count_faults(expected.states, "guards.toml")

    def _faults_of_model(self) -> Iterator[str]:
        if self.outcome.broken:
            yield f"{self.outcome.broken} breaks"
        if self.outcome.broken or self.is_control:
            return
        yield from self._state_count_faults(self.model.states, "manifest.toml")
        if self.model.simulate is None:
            idle = {action for action, count in self.outcome.coverage.items() if not count}
            yield from (f"{action} is never taken" for action in sorted(idle - set(self.model.idle)))
            yield from (
                f"{action} is listed as idle in manifest.toml, but is taken"
                for action in sorted(set(self.model.idle) - idle)
            )
        reached = {line.strip('"').removeprefix(REACHED) for line in self.outcome.lines}
        yield from (f"{situation} is never reached" for situation in self.model.reached if situation not in reached)

    def _state_count_faults(self, states: int, file: str) -> Iterator[str]:
        if states not in {-1, self.outcome.distinct}:
            yield f"{self.outcome.distinct:,} states, but {file} says {states:,}: find the cause, or correct the number"

    @property
    def observed(self) -> str:
        """Return `violated`, `holds` or `unknown`, whatever was expected."""
        return {Verdict.VALID: "holds", Verdict.INVALID: "violated"}.get(self.outcome.verdict, "unknown")

    def counterexample(self) -> str:
        """Return the counterexample as text, step by step, or an empty string if there is none."""
        return format_counterexample(self.outcome.trace, self.outcome.broken) if self.outcome.trace else ""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One run of TLC: a model, a mutant of it, or a control."""

    model: Model
    guard: str = ""
    mutant: Mutant | None = None
    is_control: bool = False

    @property
    def name(self) -> str:
        if self.mutant is None:
            return self.model.name
        return " and ".join([f"without {self.guard}", *self.mutant.also_off])

    @property
    def large(self) -> bool:
        """True if the run is large enough to use all cores on its own, and the better compiler of the JVM."""
        return self.mutant is None and self.model.simulate is None and self.model.states >= LARGE

    def config(self) -> str:
        return mutant_config(self.model, self.guard, self.mutant) if self.mutant else self.model.config()


Update = Callable[[str, Progress | None, ModelResult | None], None]


def check(
    models: Sequence[str] | None = None,
    guards: Sequence[str] | None = None,
    on_progress: Update | None = None,
    *,
    folders: Collection[str] = (),
    profile: Profile = FAST,
    jobs: int = 0,
    fresh: bool = False,
    controls: bool = True,
) -> list[ModelResult]:
    """Check models and mutants, and return the results in the order of their files; controls precede the mutants.

    `models`: names or folders; None is all of the profile. `guards`: ids; None is all that have mutants. `folders`:
    also the mutants of the models in these.
    A profile includes the ones before it; a model or guard that is named runs regardless of the profile.
    `on_progress(name, progress, result)` is called for running and finished runs, from several threads.
    `jobs`: processor cores, 0 is all; `fresh` ignores the cache; without `controls` only the counterexamples are of
    interest, not whether the correct model holds there. Raises UsageError for unknown names.
    """
    jobs = jobs or os.cpu_count() or 1
    report_progress = on_progress or (lambda name, progress, result: None)
    tasks = [Task(model=model) for model in _chosen_models(models, profile)]
    for task in tasks:
        check_names(task.model)
    mutants = list(_chosen_mutants(guards, folders, profile))
    if controls:
        tasks += [Task(model=model, is_control=True) for model in _controls(tasks, mutants)]
    tasks += mutants

    def perform(task: Task) -> ModelResult:
        return _perform(task, jobs if task.large else 1, fresh=fresh, on_progress=report_progress)

    # Mutants run on one core: with several, TLC may find a counterexample that is not the shortest, of varying length.
    large = in_parallel(perform, [task for task in tasks if task.large], 1)
    small = in_parallel(perform, [task for task in tasks if not task.large], jobs)
    sources = {True: iter(large), False: iter(small)}
    results = [next(sources[task.large]) for task in tasks]
    return _with_controls(results) if controls else results


def known_names() -> Iterator[str]:
    """Yield every name that `highwater spec check` accepts: folders, models, guards."""
    yield from dict.fromkeys(model.folder for model in load_models().values())
    yield from load_models()
    yield from (guard.id for guard in load_guards().values() if guard.mutants)


def _within(profile: Profile, requested: Profile) -> bool:
    return PROFILES.index(profile) <= PROFILES.index(requested)


def _chosen_models(names: Sequence[str] | None, profile: Profile) -> list[Model]:
    models = load_models()
    if names is None:
        return [model for model in models.values() if _within(model.profile, profile)]
    chosen: list[Model] = []
    for name in names:
        named = [m for m in models.values() if name in {m.name, m.folder}]
        if not named:
            raise unknown_name("model or guard", name, known_names(), "highwater spec check --list")
        chosen += [m for m in named if m not in chosen and (name == m.name or _within(m.profile, profile))]
    return chosen


def _chosen_mutants(ids: Sequence[str] | None, folders: Collection[str], profile: Profile) -> Iterator[Task]:
    guards = load_guards()
    for name in ids or ():
        if name not in guards:
            raise unknown_name("guard", name, guards, "highwater guards --list")
        if not guards[name].mutants:
            raise UsageError(
                f"no model shows {name}: {guards[name].tlc}", hint="name a guard that has mutants in guards.toml"
            )
    for name, guard in guards.items():
        for mutant in guard.mutants:
            model = find_model(mutant.model, referrer=name)
            is_included = (ids is None or model.folder in folders) and _within(mutant.profile, profile)
            if is_included or name in (ids or ()):
                yield Task(model=model, guard=name, mutant=mutant)


def control_of(model: Model, mutant: Mutant) -> Model:
    """Return the configuration of a mutant with all guards on: the equal row of `manifest.toml`, or a new one."""
    constants = {**model.mutants, **mutant.constants}
    bounds = ", ".join(f"{name} = {value}" for name, value in constants.items())
    control = Model(
        name=f"{model.name} with {bounds}" if constants else model.name, module=model.module, cfg=model.cfg,
        claim="The control of mutants.", bounds=bounds, constants={**model.constants, **constants},
    )  # fmt: skip
    rows = (row for row in load_models().values() if row.module == model.module and row.simulate is None)
    return next((row for row in rows if row.config() == control.config()), control)


def _controls(chosen: Sequence[Task], mutants: Sequence[Task]) -> list[Model]:
    """Return the controls of these mutants that are not among the chosen models."""
    controls = [control_of(task.model, task.mutant) for task in mutants if task.mutant and task.mutant.breaks]
    known = {task.model.name for task in chosen}
    return list({model.name: model for model in controls if model.name not in known}.values())


def _with_controls(results: list[ModelResult]) -> list[ModelResult]:
    """Return the results, those of mutants with the result of their control."""
    others = {result.model.name: result for result in results if not result.guard}
    return [
        msgspec.structs.replace(result, control=others[control_of(result.model, result.mutant).name])
        if result.mutant and result.mutant.breaks
        else result
        for result in results
    ]


def guards_of(folder: str) -> list[Guard]:
    """Return the guards that have a mutant of a model in this folder."""
    return [
        guard
        for guard in load_guards().values()
        if any(find_model(mutant.model, referrer=guard.id).folder == folder for mutant in guard.mutants)
    ]


def options_of(task: Task, workers: int = 1, limit_s: float = TIMEOUT_S, *, small: bool = False) -> Options:
    """Return the options of TLC for a task; random walks use one worker."""
    simulate = None if task.mutant else task.model.simulate
    return Options(
        workers=1 if simulate else workers,
        timeout_s=limit_s,
        simulate=simulate,
        small=small or not (task.large or simulate),
        coverage=task.mutant is None and simulate is None and task.model.name in load_models(),
        library=(CONTRACTS, task.model.path.parent),
    )


def _perform(task: Task, workers: int, *, fresh: bool, on_progress: Update) -> ModelResult:
    options = options_of(task, workers)
    config = task.config()
    place = cache_folder() / "tlc" / f"{_fingerprint(task, config, options)}.json"
    outcome = None if fresh else _read_cached(place)
    cached = outcome is not None
    if outcome is None:
        on_progress(task.name, Progress(0, 0, 0, 0.0), None)
        outcome = run_task(task, options, lambda progress: on_progress(task.name, progress, None))
        _write_cached(place, outcome)
    result = ModelResult(
        model=task.model,
        outcome=outcome,
        guard=task.guard,
        mutant=task.mutant,
        is_control=task.is_control,
        cached=cached,
    )
    on_progress(task.name, None, result)
    return result


def run_task(task: Task, options: Options, on_progress: Callable[[Progress], None] | None = None) -> TlcResult:
    """Run TLC on a task, without the cache; UsageError if it cannot parse or evaluate a module."""
    config = task.config()
    reached = () if task.mutant else task.model.reached
    with temporary_folder("cfg-") as folder:
        module = task.model.path
        if reached:
            module = folder / "Situations.tla"
            module.write_text(situations(task.model.path.stem, reached))
            config += "\nINVARIANT NoteSituations\n"
        path = folder / f"{module.stem}.cfg"
        path.write_text(config)
        outcome = run_tlc(module, path, options, on_progress=on_progress)
    expected_property = task.mutant.breaks if task.mutant else ""
    # TLC does not name the temporal property that breaks; a mutant's configuration has only one.
    return (
        msgspec.structs.replace(outcome, broken=expected_property) if expected_property and outcome.broken else outcome
    )


def situations(module: str, names: Sequence[str]) -> str:
    """Return a TLA+ module that prints the name of each predicate when it first is true (once per TLC thread)."""
    notes = "\n".join(f'    /\\ Note({number}, {name}, "{name}")' for number, name in enumerate(names, 1))
    return f"""---- MODULE Situations ----
EXTENDS {module}, Sequences, TLC
ASSUME \\A n \\in 1 .. {len(names)} : TLCSet(n, FALSE)
Note(n, situation, name) ==
    IF TLCGet(n) THEN TRUE ELSE IF situation THEN TLCSet(n, TRUE) /\\ PrintT("{REACHED}" \\o name) ELSE TRUE
NoteSituations ==
{notes}
====
"""


def mutant_config(model: Model, guard: str, mutant: Mutant) -> str:
    """Return the model's cfg text with the guard off, and only the property that must break."""
    off = ", ".join(f'"{name}"' for name in (guard, *mutant.also_off))
    constants = {**model.mutants, **mutant.constants, GUARDS_OFF: f"{{{off}}}"}
    text = with_constants(model.config(), constants, where=f"guards.toml, {guard}")
    if mutant.redundant:
        return text
    claims = model.claims()
    if mutant.breaks not in claims:
        raise UsageError(
            f"{guard}: {model.name} does not claim {mutant.breaks}",
            where="guards.toml",
            hint=f"{model.cfg} claims {', '.join(claims)}",
        )
    return with_only(text, mutant.breaks, claims[mutant.breaks])


def _fingerprint(task: Task, config: str, options: Options) -> str:
    """Hash everything that the outcome depends on; the number of cores is not part of it."""
    digest = hashlib.sha256()
    for path in modules_of(task.model.path):
        digest.update(path.read_bytes())
    reached = () if task.mutant else task.model.reached
    digest.update(
        repr((task.model.module, config, reached, options.simulate, options.coverage, tlc_jar().sha256)).encode()
    )
    return digest.hexdigest()[:32]


def _read_cached(place: Path) -> TlcResult | None:
    try:
        return msgspec.json.decode(place.read_bytes(), type=TlcResult)
    except (OSError, msgspec.DecodeError):
        return None


def _write_cached(place: Path, outcome: TlcResult) -> None:
    """Write a decided outcome to the cache; of the lines that TLC printed, keep only the reached situations."""
    if outcome.verdict is Verdict.UNKNOWN:
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f".{place.name}-{os.getpid()}")
    lines = tuple(dict.fromkeys(line for line in outcome.lines if REACHED in line))
    temporary.write_bytes(msgspec.json.encode(msgspec.structs.replace(outcome, lines=lines)))
    temporary.replace(place)
