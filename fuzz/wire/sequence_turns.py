"""The stateful sequences of a turn: which run, for how long, and when they pause on a slow or busy target."""

import random
import time
from typing import Final

from highwater.fuzz.wire.examination.agreement import VersionRanges
from highwater.fuzz.wire.sequences.run import ParallelRunner, SequenceResult, runnable

SEQUENCES_S, SEQUENCES_SHARE = 0.08, 4
"""Time for sequences in a turn. They end later on a slow target; then they pause, for 1/SEQUENCES_SHARE of the time."""
DEFER_MAX: Final = 12
"""Turns for which sequences are deferred while the target is busy; some targets are always busy."""


class SequenceTurns:
    """Runs the sequences that a target supports, drawn at random, for a share of each turn."""

    def __init__(self, served: VersionRanges, rng: random.Random) -> None:
        self._names, self._rng = runnable(served), rng
        self._runner = ParallelRunner(served, self._next)
        self._deferred, self._resumes = 0, 0.0
        self._last: list[str] = []

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
        return results, taken_s

    def take_last(self) -> list[str]:
        """Return the names of those that ran last, once: one of them may have ended the target."""
        names, self._last = self._last, []
        return names

    def _next(self) -> str:
        return f"{self._rng.choice(self._names)}:{self._rng.getrandbits(32):x}"
