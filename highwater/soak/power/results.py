"""Results of trials: a file with one line of JSON each, and the score."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from highwater.conformance.runner import CASES

FOLDER: Final = Path("results") / "power"


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
    seconds: float = 0.0


def suite_digest() -> str:
    """Return a digest of the modules with cases and of those that they use in the suite."""
    digest = hashlib.sha256()
    for path in sorted([*CASES.rglob("*.py"), *CASES.parent.glob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


class Results:
    """The trials so far, appended to a file as they come, so that an interrupted run continues."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_bytes().splitlines() if path.exists() else []
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
