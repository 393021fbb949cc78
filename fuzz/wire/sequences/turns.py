"""The stateful sequences of a turn: which run, for how long, and when they pause on a slow or busy target."""

import random
import time
from collections import Counter
from typing import Final

from highwater.fuzz.wire.examination.agreement import VersionRanges
from highwater.fuzz.wire.sequences.run import SEQUENCES, ParallelRunner, SequenceResult

SEQUENCES_S, SEQUENCES_SHARE = 0.08, 3
"""Time for sequences in a turn. They end later on a slow target; then they pause, for 1/SEQUENCES_SHARE of the time."""
DEFER_MAX: Final = 12
"""Turns for which sequences are deferred while the target is busy; some targets are always busy."""

TRIES, MANY = 6, 1_000
"""A sequence is left out when so many runs did not fit the target, and none before; MANY once one did."""


class SequenceTurns:
    """Runs sequences, drawn at random, for a share of each turn; `unfit` says which do not fit the target, and why."""

    def __init__(self, served: VersionRanges, rng: random.Random) -> None:
        self._names, self._rng, self.unfit = list(SEQUENCES), rng, dict[str, str]()
        self._runner = ParallelRunner(served, self._next)
        self._deferred, self._resumes = 0, 0.0
        self._last: list[str] = []
        self._tries = Counter[str]()

    def is_due(self, *, is_busy: bool) -> bool:
        """Return True if sequences should run in this turn; call it once a turn."""
        self._deferred = self._deferred + 1 if is_busy and self._deferred < DEFER_MAX else 0
        return bool(self._names) and not self._deferred and time.monotonic() >= self._resumes

    def run(self, address: str) -> tuple[list[tuple[str, SequenceResult]], float]:
        """Run sequences in parallel; return the names and results of those that ended, and the seconds that it took."""
        started = time.monotonic()
        results = self._runner.run(address, started + SEQUENCES_S)
        taken_s = time.monotonic() - started
        self._resumes = time.monotonic() + (SEQUENCES_SHARE - 1) * max(0.0, taken_s - SEQUENCES_S)
        self._last = [name for name, _ in results]
        for name, result in results:
            self._note(name.partition(":")[0], result)
        return results, taken_s

    def _note(self, name: str, result: SequenceResult) -> None:
        """Leave out a sequence that never fits, whatever parameters are drawn."""
        if not result.unfit:
            self._tries[name] = MANY
        self._tries[name] += 1
        if self._tries[name] == TRIES and name in self._names:
            self._names.remove(name)
            self.unfit[name] = result.unfit

    def take_last(self) -> list[str]:
        """Return the names of those that ran last, once: one of them may have ended the target."""
        names, self._last = self._last, []
        return names

    def _next(self) -> str:
        return f"{self._rng.choice(self._names)}:{self._rng.getrandbits(32):x}"
