"""The trials of each judge, what killed each written mutant, and the score."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from highwater.power.trial import Outcome, Trial

FOLDER: Final = Path("results") / "power"
KILLERS: Final = Path(__file__).with_name("killers.json")


class Killer(msgspec.Struct, frozen=True):
    """The check that killed a mutant, and how it failed; the message of a record from elsewhere may be empty."""

    check: str
    message: str = ""


def all_killers(path: Path = KILLERS) -> dict[str, dict[str, Killer]]:
    """Return by judge and name of a mutant what killed it when the score was last measured."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, Killer]]) if path.exists() else {}


def read_killers(judge: str, path: Path = KILLERS) -> dict[str, Killer]:
    """Return by name of a mutant what killed it when the score of a judge was last measured."""
    return all_killers(path).get(judge, {})


def record_killers(judge: str, trials: Iterable[Trial], path: Path = KILLERS) -> None:
    """Write what killed these mutants to the file, beside what it has of other mutants and judges."""
    found = all_killers(path)
    of_judge = found.get(judge, {})
    for trial in trials:
        of_judge.pop(trial.name, None)
        if trial.outcome is Outcome.KILLED:
            of_judge[trial.name] = Killer(trial.killer, trial.message[:160])
    found[judge] = of_judge
    path.write_text(_text_of(found))


def _text_of(killers: Mapping[str, Mapping[str, Killer]]) -> str:
    """Return the content of the file, a line for each mutant."""
    parts = []
    for judge, of_judge in sorted(killers.items()):
        lines = (
            f"    {json.dumps(name)}: {json.dumps(msgspec.to_builtins(k))}" for name, k in sorted(of_judge.items())
        )
        parts.append(f"  {json.dumps(judge)}: {{\n" + ",\n".join(lines) + "\n  }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def digest_of(folders: Iterable[Path]) -> str:
    """Return a digest of all modules in some folders, but for tests."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            if "tests" not in path.parts:
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


class Store:
    """The trials of a judge so far, appended to a file as they end, so that an interrupted run continues."""

    def __init__(self, judge: str, folder: Path = FOLDER) -> None:
        self._path = folder / f"{judge}.ndjson"
        folder.mkdir(parents=True, exist_ok=True)
        lines = self._path.read_bytes().splitlines() if self._path.exists() else []
        self.trials = [msgspec.json.decode(line, type=Trial) for line in lines]

        self._is_kept = True

    def leave_out(self) -> None:
        """Neither return nor keep trials from now on: these try only some checks."""
        self._is_kept = False

    def add(self, trial: Trial) -> None:
        self.trials.append(trial)
        if not self._is_kept:
            return
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(trial) + b"\n")

    def known(self, key: str, version: str, limit_s: float) -> Trial | None:
        """Return the last trial of a mutant with these checks; an unfinished one only if its limit was as high."""
        for trial in reversed(self.trials if self._is_kept else ()):
            if (trial.key, trial.version) == (key, version) and (
                trial.outcome is not Outcome.UNFINISHED or trial.limit_s >= limit_s
            ):
                return trial
        return None

    def has_tried(self, key: str) -> bool:
        """Return whether there is any trial of a mutant."""
        return any(trial.key == key for trial in self.trials)

    def kills_near(self, module: str, line: int) -> Mapping[str, float]:
        """Return by check how often it killed mutants of a module, near kills with more weight."""
        weights: dict[str, float] = {}
        for trial in self.trials:
            if trial.killer and trial.module == module:
                weight = 1 / (1 + abs(trial.line - line))
                weights[trial.killer] = weights.get(trial.killer, 0.0) + weight
        return weights


def score_text(trials: Sequence[Trial]) -> str:
    """Return the score and the processor time in one sentence."""
    by_outcome = Counter(trial.outcome for trial in trials)
    killed = by_outcome[Outcome.KILLED]
    parts = ", ".join(f"{number} {outcome}" for outcome, number in by_outcome.most_common())
    share = 100 * killed / len(trials) if trials else 0.0
    spent = [trial.cpu_s for trial in trials] or [0.0]
    time = (
        f"processor time of a trial: median {median(spent):.1f} s, maximum {max(spent):.1f} s, sum {sum(spent):.0f} s"
    )
    return f"{killed} of {len(trials)} mutants were killed, {share:.1f} % ({parts}); {time}"
