"""Run TLC on mutants of the modules: the fast models must notice that one expression is another.

A mutant is killed if, in one of the models of its folder, a property breaks, an action that the model takes is never
taken, or a situation that it reaches is never reached.  Another number of states kills nothing, although `spec check`
would notice it: almost every change has that effect.  It is counted by itself.  A mutant that TLC cannot parse or
evaluate is not counted.
Results are cached by content, so that an interrupted run continues where it stopped.
"""

import hashlib
import os
import random
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from typing import Final, Literal

import msgspec

from highwater.errors import UsageError, Verdict
from highwater.names import unknown_name
from highwater.spec.check import ModelResult, Task, options_of, run_task
from highwater.spec.guards import load_guards
from highwater.spec.models import CONTRACTS, FAST, FOLDER, Model, load_models, modules_of
from highwater.spec.mutation.changes import Change, changes
from highwater.spec.tlc.parallel import in_parallel
from highwater.spec.tlc.run import TIMED_OUT
from highwater.temporary import temporary_folder
from highwater.toolchain import cache_folder, tlc_jar

EQUIVALENT: Final = FOLDER / "equivalent_mutants.toml"
SPECIFICATION: Final = re.compile(r"(?m)^SPECIFICATION +(\w+)")
LIMIT_S: Final = 60.0

Fate = Literal["killed", "survived", "equivalent", "not counted"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a mutant: `why` is the property that broke, or the reason.

    `undecided` are the models that had no result within the limit; `counts` those that have another number of states,
    with both numbers.
    """

    fate: Fate
    why: str = ""
    model: str = ""
    seconds: float = 0.0
    undecided: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()


class Equivalent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of `equivalent_mutants.toml`: a change that changes no behaviour, or none that a promise is about."""

    module: str
    definition: str
    what: str
    old: str
    why: str


Judged = tuple[Change, Outcome]
Update = Callable[[Change, Outcome], None]


def mutable_folders() -> dict[str, list[Model]]:
    """Return the fast models of each protocol, those of a few seconds first."""
    found: dict[str, list[Model]] = {}
    for model in sorted(load_models().values(), key=lambda each: each.seconds):
        if model.profile == FAST and model.path.parent != CONTRACTS:
            found.setdefault(model.folder, []).append(model)
    return dict(sorted(found.items()))


def mutants_of(folder: str, count: int = 0, seed: int = 0) -> list[Change]:
    """Return the mutants of a folder's module in the order of its text, or a random choice of `count` of them.

    The choice with a larger count contains that with a smaller one.
    """
    models = [model for model in mutable_folders()[folder] if model.path.stem.startswith("MC")]
    bounded = models[0].path
    roots = {found[1] for model in models if (found := SPECIFICATION.search(model.config()))}
    found_changes = changes(bounded.with_name(bounded.name.removeprefix("MC")), bounded, roots, set(load_guards()))
    return chosen(found_changes, count, seed)


def chosen(found: list[Change], count: int, seed: int) -> list[Change]:
    """Return all mutants if `count` is 0, or a random choice of so many, in the same order."""
    if not count:
        return found
    order = random.Random(seed).sample(range(len(found)), len(found))
    return [found[number] for number in sorted(order[:count])]


def known_folders(names: Sequence[str], known: Collection[str]) -> Sequence[str]:
    """Return the names, or all that are known if there is none. Raises UsageError for an unknown one."""
    for name in names:
        if name not in known:
            raise unknown_name("folder", name, known, "highwater spec mutate --help")
    return names or tuple(known)


def mutate(
    folders: Sequence[str] = (),
    on_outcome: Update | None = None,
    *,
    count: int = 0,
    seed: int = 0,
    limit_s: float = LIMIT_S,
    jobs: int = 0,
) -> list[Judged]:
    """Judge the mutants of these folders (all if none is named), `count` of each (0 is all).

    A model that finishes no run within `limit_s` seconds decides nothing.  `on_outcome(change, outcome)` is called from
    several threads.  Raises UsageError for an unknown folder.
    """
    names = known_folders(folders, mutable_folders())
    wanted = [(name, change) for name in names for change in mutants_of(name, count, seed)]

    def judge(item: tuple[str, Change]) -> Judged:
        models = mutable_folders()[item[0]]
        change = item[1]
        outcome = judge_cached(change, _fingerprint(change, models, limit_s), lambda: _judge(change, models, limit_s))
        if on_outcome:
            on_outcome(change, outcome)
        return change, outcome

    return in_parallel(judge, wanted, jobs)


@cache
def equivalents() -> dict[tuple[str, ...], str]:
    """Return why each mutant of `equivalent_mutants.toml` changes nothing; UsageError if that file is invalid."""
    try:
        rows = msgspec.convert(tomllib.loads(EQUIVALENT.read_text()).get("mutant", []), list[Equivalent])
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError(
            str(error), where=str(EQUIVALENT), hint="see class Equivalent in spec/mutation/run.py"
        ) from error
    return {(row.module, row.definition, row.what, row.old): row.why for row in rows}


def score(judged: Sequence[Judged]) -> tuple[int, int]:
    """Return how many mutants were killed, and of how many that are not equivalent."""
    fates = [outcome.fate for _, outcome in judged]
    return fates.count("killed"), fates.count("killed") + fates.count("survived")


def only_counted(judged: Sequence[Judged]) -> int:
    """Return how many survivors have another number of states, which `spec check` compares, and break nothing."""
    return sum(outcome.fate == "survived" and bool(outcome.counts) for _, outcome in judged)


def judge_cached(change: Change, fingerprint: str, judge: Callable[[], Outcome]) -> Outcome:
    """Return what became of a mutant, from the cache if it was judged before."""
    reason = equivalents().get((change.module, change.definition, change.what, change.old))
    if reason:
        return Outcome(fate="equivalent", why=reason)
    place = cache_folder() / "mutants" / f"{fingerprint}.json"
    try:
        return msgspec.json.decode(place.read_bytes(), type=Outcome)
    except (OSError, msgspec.DecodeError):
        outcome = judge()
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f".{place.name}-{os.getpid()}")
    temporary.write_bytes(msgspec.json.encode(outcome))
    temporary.replace(place)
    return outcome


def _fingerprint(change: Change, models: Sequence[Model], limit_s: float) -> str:
    digest = hashlib.sha256(change.text.encode())
    for model in models:
        for path in modules_of(model.path):
            digest.update(path.read_bytes())
        digest.update(repr((model.config(), model.reached, model.idle, model.simulate)).encode())
    digest.update(repr((limit_s, tlc_jar().sha256)).encode())
    return digest.hexdigest()[:32]


def _judge(change: Change, models: Sequence[Model], limit_s: float) -> Outcome:
    undecided: list[str] = []
    counts: list[str] = []
    seconds = 0.0
    with temporary_folder("mutant-") as folder:
        for path in {path for model in models for path in modules_of(model.path)}:
            (folder / path.name).write_text(change.text if path.stem == change.module else path.read_text())
        for model in models:
            here = msgspec.structs.replace(model, module=str(folder / model.path.name), states=-1)
            task = Task(model=here)
            try:
                result = ModelResult(model=here, outcome=run_task(task, options_of(task, 1, limit_s, small=True)))
            except UsageError as error:
                return Outcome(fate="not counted", why=error.what, model=model.name)
            seconds += result.outcome.seconds
            if result.outcome.reason.startswith(TIMED_OUT):
                undecided.append(model.name)
            elif result.verdict is Verdict.UNKNOWN:
                return Outcome(fate="not counted", why=result.outcome.reason, model=model.name)
            elif result.faults:
                return Outcome(fate="killed", why=result.faults[0], model=model.name, seconds=seconds)
            elif model.simulate is None and model.states != result.outcome.distinct:
                counts.append(f"{model.name} {result.outcome.distinct:,} instead of {model.states:,}")
    return Outcome(fate="survived", seconds=seconds, undecided=tuple(undecided), counts=tuple(counts))


def by_cause(judged: Sequence[Judged]) -> Iterator[tuple[str, int]]:
    """Yield what killed mutants, and how many, the most frequent first."""
    causes = [outcome.why for _, outcome in judged if outcome.fate == "killed"]
    yield from sorted(((cause, causes.count(cause)) for cause in set(causes)), key=lambda item: (-item[1], item[0]))
