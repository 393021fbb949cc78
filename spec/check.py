"""Runs the models of `manifest.toml`, and for each guard the mutant that lacks it.

A model is as expected if TLC saw every state and nothing broke; a mutant if it broke as `guards.toml` says.
Results are kept in the user's cache under everything they depend on: modules, configuration, options and TLC itself.
"""

import hashlib
import os
import re
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from spec.formats.verdict import UsageError, Verdict
from spec.guards import Counterexample, Guard, load_guards
from spec.story import tell
from spec.tlc import Options, Progress, run_tlc
from spec.tlc_messages import TlcResult
from spec.toolchain import cache_folder, tlc_jar

FOLDER: Final = Path(__file__).parent
MANIFEST: Final = FOLDER / "manifest.toml"
TIMEOUT_S: Final = 1800
# What a mutant's bounds are unless guards.toml names them.
LEAST_BOUNDS: Final = {"MaxLeaderEpoch": 1, "MaxRecords": 1, "MaxIsrChanges": 0, "MaxCrashes": 0}


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of the manifest. `simulate` is (walks, depth, seed); a `deep` one runs only when named."""

    name: str
    module: str
    cfg: str
    claim: str
    bounds: str
    states: int = -1
    depth: int = -1
    seconds: int = 0
    simulate: tuple[int, int, int] | None = None
    deep: bool = False

    @property
    def folder(self) -> str:
        return Path(self.module).parent.name


class ModelResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came out of a model, or, with `guard`, of the mutant that lacks it.

    `states` is how many a model must have (-1: not said): another number means that the model has changed.
    """

    model: str
    outcome: TlcResult
    states: int = -1
    guard: str = ""
    expected: Counterexample | None = None
    cached: bool = False

    @property
    def verdict(self) -> Verdict:
        """Is it as expected?"""
        if self.outcome.verdict is Verdict.UNKNOWN:
            return Verdict.UNKNOWN
        if self.expected is None:
            counted = self.states in {-1, self.outcome.distinct}
            return self.outcome.verdict if counted else Verdict.INVALID
        seen = (self.outcome.broken, len(self.outcome.trace))
        return Verdict.VALID if seen == (self.expected.property, self.expected.length) else Verdict.INVALID

    @property
    def seen(self) -> str:
        """`violated`, `holds` or `unknown`."""
        return {Verdict.VALID: "holds", Verdict.INVALID: "violated"}.get(self.outcome.verdict, "unknown")

    def story(self) -> str:
        """The counterexample, step by step; empty when there is none."""
        return tell(self.outcome.trace, self.outcome.broken) if self.outcome.trace else ""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One run of TLC to come."""

    name: str
    model: Model
    guard: Guard | None = None


Update = Callable[[str, Progress | None, ModelResult | None], None]


def check(
    models: Sequence[str] | None = None,
    guards: Sequence[str] | None = None,
    on_progress: Update | None = None,
    *,
    jobs: int = 0,
    fresh: bool = False,
) -> list[ModelResult]:
    """Check models and mutants, in the order of their files.

    `models`: names or folders; None is all but the deep ones. `guards`: ids; None is all that TLC can show.
    `on_progress(name, progress, result)` hears of running and of finished ones, from several threads.
    `jobs` processor cores are used, 0 is all; `fresh` ignores the cache. Raises UsageError for unknown names.
    """
    jobs = jobs or os.cpu_count() or 1
    tell_progress = on_progress or (lambda name, progress, result: None)
    big = [Task(name=model.name, model=model) for model in _chosen_models(models)]
    small = [Task(name=f"without {guard.id}", model=_model_of(guard), guard=guard) for guard in _chosen_guards(guards)]
    results = [_perform(task, jobs, fresh=fresh, on_progress=tell_progress) for task in big]
    # A mutant runs on one core: only then is its counterexample the shortest, and its length the same each time.
    with ThreadPoolExecutor(jobs) as pool:
        results += pool.map(lambda task: _perform(task, 1, fresh=fresh, on_progress=tell_progress), small)
    return results


@cache
def load_models() -> dict[str, Model]:
    try:
        rows = msgspec.convert(tomllib.loads(MANIFEST.read_text())["model"], list[Model])
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(
            f"not a manifest: {error}", where=str(MANIFEST), mend="see spec/check.py, class Model"
        ) from error
    return {row.name: row for row in rows}


def known_names() -> Iterator[str]:
    """Whatever `highwater spec check` takes: folders, models, guards."""
    yield from dict.fromkeys(model.folder for model in load_models().values())
    yield from load_models()
    yield from (guard.id for guard in _chosen_guards(None))


def _chosen_models(names: Sequence[str] | None) -> list[Model]:
    models = load_models()
    if names is None:
        return [model for model in models.values() if not model.deep]
    chosen: list[Model] = []
    for name in names:
        found = [m for m in models.values() if name == m.name or (name == m.folder and not m.deep)]
        if not found:
            raise UsageError(f"no model {name!r}", mend=f"known: {', '.join(known_names())}")
        chosen += [model for model in found if model not in chosen]
    return chosen


def _chosen_guards(ids: Sequence[str] | None) -> list[Guard]:
    guards = load_guards()
    if ids is None:
        return [guard for guard in guards.values() if isinstance(guard.tlc, Counterexample)]
    unknown = [each for each in ids if each not in guards]
    if unknown:
        raise UsageError(f"no guard {unknown[0]!r}", mend=f"known: {', '.join(guards)}")
    shown = [guards[each] for each in ids if isinstance(guards[each].tlc, Counterexample)]
    if len(shown) < len(ids):
        silent = next(each for each in ids if not isinstance(guards[each].tlc, Counterexample))
        raise UsageError(f"no model shows {silent}: {guards[silent].tlc}", mend="choose another guard")
    return shown


def _model_of(guard: Guard) -> Model:
    models = load_models()
    if guard.model not in models:
        raise UsageError(
            f"{guard.id}: no model {guard.model!r}", where="guards.toml", mend="name a row of manifest.toml"
        )
    return models[guard.model]


def _perform(task: Task, workers: int, *, fresh: bool, on_progress: Update) -> ModelResult:
    expected = task.guard.tlc if task.guard and isinstance(task.guard.tlc, Counterexample) else None
    module = FOLDER / task.model.module
    config = mutant_config(task.model, task.guard) if task.guard else (FOLDER / task.model.cfg).read_text()
    simulate = None if task.guard else task.model.simulate
    options = Options(
        workers=1 if simulate else workers, timeout_s=TIMEOUT_S, simulate=simulate, small=bool(task.guard)
    )
    place = cache_folder() / "tlc" / f"{_fingerprint(module, config, options)}.json"
    outcome = None if fresh else _remembered(place)
    cached = outcome is not None
    if outcome is None:
        on_progress(task.name, Progress(0, 0, 0, 0.0), None)
        outcome = _run(module, config, options, lambda progress: on_progress(task.name, progress, None))
        _remember(place, outcome)
    result = ModelResult(
        model=task.model.name,
        outcome=outcome,
        states=-1 if task.guard else task.model.states,
        guard=task.guard.id if task.guard else "",
        expected=expected,
        cached=cached,
    )
    on_progress(task.name, None, result)
    return result


def _run(module: Path, config: str, options: Options, on_progress: Callable[[Progress], None]) -> TlcResult:
    with tempfile.TemporaryDirectory(prefix="highwater-cfg-") as folder:
        path = Path(folder) / f"{module.stem}.cfg"
        path.write_text(config)
        return run_tlc(module, path, options, on_progress=on_progress)


def mutant_config(model: Model, guard: Guard) -> str:
    """The model's configuration with the guard off, the least bounds, and the one property that must break."""
    assert isinstance(guard.tlc, Counterexample)
    if guard.tlc.cfg:
        return (FOLDER / guard.tlc.cfg).read_text()
    text = (FOLDER / model.cfg).read_text()
    for name, value in {**LEAST_BOUNDS, **guard.tlc.bounds, guard.id: "FALSE"}.items():
        text, replaced = re.subn(rf"(?m)^(\s*{name}) = .*$", rf"\1 = {value}", text)
        if replaced != 1:
            raise UsageError(f"{guard.id}: no constant {name}", where=model.cfg, mend="correct guards.toml or the cfg")
    return re.sub(r"(?m)^INVARIANTS? .*$", f"INVARIANT {guard.tlc.property}", text)


def _fingerprint(module: Path, config: str, options: Options) -> str:
    """Everything that the outcome depends on; how many cores is not of it."""
    digest = hashlib.sha256()
    for path in sorted(set(module.parent.glob("*.tla")) - set(module.parent.glob("Trace*.tla"))):
        digest.update(path.read_bytes())
    digest.update(repr((module.name, config, options.simulate, options.deadlock, tlc_jar().sha256)).encode())
    return digest.hexdigest()[:32]


def _remembered(place: Path) -> TlcResult | None:
    try:
        return msgspec.json.decode(place.read_bytes(), type=TlcResult)
    except (OSError, msgspec.DecodeError):
        return None


def _remember(place: Path, outcome: TlcResult) -> None:
    """Only what was decided; what TLC printed on the way is of no use later."""
    if outcome.verdict is Verdict.UNKNOWN:
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    hidden = place.with_name(f".{place.name}-{os.getpid()}")
    hidden.write_bytes(msgspec.json.encode(msgspec.structs.replace(outcome, lines=())))
    hidden.replace(place)
