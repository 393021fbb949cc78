"""What is walked next, for how long, and the smallest walk of each difference."""

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings, target
from hypothesis.errors import HypothesisException

from highwater.conformance.client.draws import Path
from highwater.fuzz.explore.ground import Ground, Kind, Transition, Walked
from highwater.fuzz.explore.simplify import simplify
from highwater.fuzz.explore.strategies import paths

WALKS_OF_A_TURN, TURN_S = 20, 5.0
UNFIT_TRIES: Final = 6
"""Walks of a program that did not fit, and none that did, after which it is left out."""
SHRINK_S: Final = 10.0
"""Time for Hypothesis to shrink one difference, and again for its choices, also after the end of the run."""
CONFIRMATIONS: Final = 2
MANY: Final = 1_000
NEWS: Final = 10.0
"""How much more often than others a program is walked whose last walks each met a new transition."""


class Found(AssertionError):
    """A walk met the difference that is sought."""


class TurnOver(BaseException):
    """The time of a turn is over; no `Exception`, which Hypothesis would take for a difference."""


@dataclass
class Difference:
    """The smallest walk with a difference, and how many walks met it; `repeated` of `CONFIRMATIONS` met it again."""

    smallest: Walked
    met: int = 0
    repeated: int = 0
    first: int = 0  # steps of the walk that met it first
    after_s: float = 0.0

    @property
    def is_confirmed(self) -> bool:
        """Return whether it was met again, or the broker died of it, after which nothing is met again."""
        return self.repeated > 0 or self.smallest.kind is Kind.DEAD

    def add(self, walked: Walked) -> None:
        """Count a walk that met it, and keep it if it is smaller."""
        self.met += 1
        if walked.size < self.smallest.size:
            self.smallest = walked


@dataclass
class Coverage:
    """What the walks covered: ends and replies of programs, versions and error codes of APIs."""

    walks: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    replies: int = 0
    transitions: Counter[Transition] = field(default_factory=Counter)
    versions: Counter[tuple[str, int]] = field(default_factory=Counter)
    unfit: dict[str, str] = field(default_factory=dict)

    def add(self, walked: Walked) -> int:
        """Add a walk; return the number of transitions that no walk had met before."""
        found = walked.transitions()
        new = len(found.keys() - self.transitions.keys())
        self.transitions.update(found)
        self.versions.update((event.api.name, event.version) for event in walked.replies if event.api is not None)
        self.replies += len(walked.replies)
        if not walked.unfit:
            self.walks[walked.program] += 1
            self.steps[walked.program] += len(walked.taken)
        return new


class Explorer:
    """Walks programs on a ground until the time is over or the broker is gone; `differences` by key."""

    def __init__(
        self, ground: Ground, programs: Sequence[str], seconds: float, run_seed: int,
        on_walk: Callable[["Explorer"], None] = lambda explorer: None, most: int = MANY,
    ) -> None:  # fmt: skip
        """`most`: end after so many differences."""
        self.ground, self.seconds, self.seed, self._on_walk = ground, seconds, run_seed, on_walk
        self.differences: dict[str, Difference] = {}
        self._most = most
        self.coverage = Coverage()
        self.ended = "time is over"
        self._weights = dict.fromkeys(programs, NEWS)
        self._unfit, self._fixed = Counter[str](), set[str]()
        self._random = random.Random(run_seed)
        self._began = self._limit = time.monotonic()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def run(self) -> None:
        """Walk; a KeyboardInterrupt leaves what was found until then."""
        self._began = time.monotonic()
        turn, first = 0, list(self._weights)[::-1]
        while self._weights and self.elapsed < self.seconds:
            turn += 1
            self._turn(first.pop() if first else self._chosen(list(self._weights)), turn)
            if not self.ground.is_alive():
                self.ended = "the broker no longer answers"
                return
            if len(self.differences) >= self._most:
                self.ended = "enough differences"
                return
        if not self._weights:
            self.ended = "each walk was walked" if self._fixed else "no program fits the target"

    def _chosen(self, names: Sequence[str]) -> str:
        return self._random.choices(names, [self._weights[name] for name in names])[0]

    # -- a turn ------------------------------------------------------------------------------------------------

    def _turn(self, program: str, turn: int) -> None:
        """Let Hypothesis draw walks of a program; it shrinks what is new, then `simplify` does."""
        news, walks = 0, 0
        sought = ""
        self._limit = min(self._began + self.seconds, time.monotonic() + TURN_S)

        def attempt(path: Path) -> None:
            nonlocal news, walks, sought
            if time.monotonic() > self._limit:
                raise TurnOver
            walked = self._walk(program, path)
            walks += 1
            new = self.coverage.add(walked)
            news += new
            target(float(len(walked.transitions())), label="transitions")
            if walked.failure and not sought and walked.key not in self.differences:
                sought, self._limit = walked.key, time.monotonic() + SHRINK_S
                self.differences[sought] = Difference(walked, first=len(walked.path), after_s=self.elapsed)
            if walked.failure and walked.key in self.differences:
                self.differences[walked.key].add(walked)
            if walked.failure and walked.key == sought:
                raise Found(sought)  # one difference a turn: others are met again in another one
            if walked.is_fixed and not walked.unfit:
                self._fixed.add(program)
                raise TurnOver

        phases = (Phase.generate, Phase.target, Phase.shrink)
        configured = settings(
            max_examples=WALKS_OF_A_TURN, database=None, deadline=None, phases=phases, derandomize=False,
            suppress_health_check=list(HealthCheck), verbosity=Verbosity.quiet,
        )  # fmt: skip
        with suppress(TurnOver, Found, HypothesisException):  # what was found is noted; a defect of ours is not hidden
            configured(seed(f"{self.seed}:{turn}")(given(paths())(attempt)))()
        self._weights[program] = 1 + NEWS * news / max(walks, 1)
        self._leave_out(program)
        if sought:
            self._finish(self.differences[sought])

    def _walk(self, program: str, path: Path) -> Walked:
        walked = self.ground.walk(program, path)
        if walked.unfit:
            self._unfit[program] += 1
            self.coverage.unfit[program] = walked.unfit
        self._on_walk(self)
        return walked

    def _leave_out(self, program: str) -> None:
        """Leave out a program that does not fit, or of which all walks are the same."""
        is_unfit = not self.coverage.walks[program] and self._unfit[program] >= UNFIT_TRIES
        if is_unfit or program in self._fixed:
            del self._weights[program]

    # -- the end of a difference ----------------------------------------------------------------------------------

    def _finish(self, found: Difference) -> None:
        """Shrink the choices within steps, and walk the result again; not if the broker is gone."""
        if not self.ground.is_alive():
            return
        end = time.monotonic() + SHRINK_S

        def again(path: Path) -> Walked | None:
            walked = self._walk(found.smallest.program, path)
            return walked if walked.key == found.smallest.key and walked.failure else None

        found.smallest = simplify(found.smallest, again, lambda: time.monotonic() > end)
        for _ in range(CONFIRMATIONS):
            found.repeated += again(found.smallest.path) is not None
