"""Results of trials: a file with one line of JSON each, and the score."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from highwater.conformance.runner import CASES
from highwater.results import write_json

FOLDER: Final = Path("results") / "power"
KILLERS: Final = Path(__file__).parent / "killers.json"


class Outcome(StrEnum):
    """What happened to a mutant."""

    KILLED = "killed"
    NOT_STARTED = "did not start"
    SURVIVED = "survived"
    UNFINISHED = "unfinished"


DEAD: Final = frozenset({Outcome.KILLED, Outcome.NOT_STARTED})


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """The trial of one mutant; `suite` is the digest of the cases, `cases` the number that ran."""

    key: str
    suite: str
    name: str
    module: str
    line: int
    before: str
    after: str
    effect: str
    outcome: Outcome
    killer: str = ""
    message: str = ""
    cases: int = 0
    candidates: int = 0
    brokers: int = 0
    seconds: float = 0.0


class Killer(msgspec.Struct, frozen=True, order=True):
    """The case that killed a mutant, and the number of brokers on which it did."""

    case: str
    brokers: int


def read_killers(path: Path = KILLERS) -> dict[str, Killer]:
    """Return by name of a mutant the case that killed it when the score was last measured."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Killer]) if path.exists() else {}


def record_killers(trials: Iterable[Trial], path: Path = KILLERS) -> None:
    """Write who killed these mutants to the file, beside what it has of other mutants."""
    found = read_killers(path)
    for trial in trials:
        found.pop(trial.name, None)
        if trial.outcome is Outcome.KILLED:
            found[trial.name] = Killer(trial.killer, trial.brokers)
    write_json(path, dict(sorted(found.items())))


def suite_digest() -> str:
    """Return a digest of the modules with cases and of those that they use in the suite."""
    digest = hashlib.sha256()
    for path in sorted([*CASES.rglob("*.py"), *CASES.parent.glob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


class Results:
    """The trials so far, appended to a file as they come, so that an interrupted run continues.

    Those of all shards are read from the files beside it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [
            line for shard in sorted(path.parent.glob("trials*.ndjson")) for line in shard.read_bytes().splitlines()
        ]
        self.trials = [msgspec.json.decode(line, type=Trial) for line in lines]

    def add(self, trial: Trial) -> None:
        self.trials.append(trial)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(trial) + b"\n")

    def known(self, key: str, suite: str) -> Trial | None:
        """Return the last finished trial of a mutant on this suite."""
        for trial in reversed(self.trials):
            if (trial.key, trial.suite) == (key, suite) and trial.outcome is not Outcome.UNFINISHED:
                return trial
        return None

    def has_tried(self, key: str) -> bool:
        """Return whether there is any trial of a mutant."""
        return any(trial.key == key for trial in self.trials)

    def kills_near(self, module: str, line: int) -> Mapping[str, float]:
        """Return by case how often it killed mutants of a module, near kills with more weight."""
        weights: dict[str, float] = {}
        for trial in self.trials:
            if trial.killer and trial.module == module:
                weight = 1 / (1 + abs(trial.line - line))
                weights[trial.killer] = weights.get(trial.killer, 0.0) + weight
        return weights


def score_text(trials: Sequence[Trial]) -> str:
    """Return the score in one sentence."""
    dead = sum(trial.outcome in DEAD for trial in trials)
    by_outcome = Counter(trial.outcome for trial in trials)
    parts = ", ".join(f"{number} {outcome}" for outcome, number in by_outcome.most_common())
    share = 100 * dead / len(trials) if trials else 0.0
    return f"{dead} of {len(trials)} mutants died, {share:.1f} % ({parts})"
