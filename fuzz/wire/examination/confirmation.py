"""Confirm failures in the background, on a second instance of the target, while the session goes on sending.

A job calls triage with the suspects of one failure. It needs seconds: replays, restarts, shrinking. With a target that
was launched, jobs run one after another in a thread, on an instance of their own. With any other target they run at
once, on the target itself, and the session pauses.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress
from typing import Final, NamedTuple, cast

from highwater.conformance.failures import TargetFailure
from highwater.errors import UsageError
from highwater.fuzz.wire.examination.triage import FATAL, WATCHED, RunEndedError, Triage
from highwater.fuzz.wire.generate.cases import Case
from highwater.fuzz.wire.replay import make_topics

JOBS_MAX: Final = 400
ALIKE_MAX: Final = 2
"""Jobs of one failure of the process that wait at the same time: one cause shows again and again until it is known."""
LAST_S: Final = 10.0
"""Time for the jobs that are left at the end of a run."""
IDLE_S: Final = 0.05

Job = Callable[[Triage], object]


class Confirmed(NamedTuple):
    """What a job found out for the stream: cases and versions not to send again."""

    cases: list[Case]
    versions: set[tuple[int, int]]


class Confirmation:
    """`pause` stops the session's own connections while a job uses the target of the session."""

    def __init__(self, triage: Triage, pause: Callable[[], AbstractContextManager[None]]) -> None:
        self._triage, self._pause, self._main = triage, pause, triage.target
        self._jobs: deque[tuple[str, Job]] = deque()
        self._waiting: Counter[str] = Counter()
        self._results: deque[Confirmed] = deque()
        self.skipped = 0
        """Jobs that were not done, because too many were waiting or the run ended; most repeat one that was."""
        self._done: set[str] = set()
        self._left: set[str] = set()
        self._lock = threading.Lock()
        self._wakes, self._ended, self._error = threading.Event(), False, cast("Exception | None", None)
        self._thread = threading.Thread(target=self._work, daemon=True) if triage.target.has_twin else None
        if self._thread is not None:
            self._thread.start()

    def submit(self, name: str, job: Job) -> None:
        """Confirm a failure; `name` is what it has in common with its repetitions."""
        is_repeated = name in FATAL or name in WATCHED
        if len(self._jobs) >= JOBS_MAX or (self._waiting[name] >= (ALIKE_MAX if is_repeated else 1)):
            self.skipped += 1
            self._left.add(name)
            return
        with self._lock:
            self._waiting[name] += 1
            self._jobs.append((name, job))
        self._wakes.set()
        if self._thread is None:
            self._run_waiting()

    def unexamined(self) -> list[str]:
        """Return the names of the failures of which none was examined."""
        return sorted(self._left - self._done)

    @property
    def is_idle(self) -> bool:
        """True if no failure waits or is being confirmed."""
        return not +self._waiting

    def is_waiting(self, name: str) -> bool:
        """Return True if failures of that name wait, or are being confirmed now."""
        return self._waiting[name] > 0

    def results(self) -> list[Confirmed]:
        """Take what the jobs found out since the last call. Raises the exception of a job, which is a bug."""
        if self._thread is None:
            self._run_waiting()
        if self._error is not None:
            raise self._error
        taken = []
        with suppress(IndexError):
            while True:
                taken.append(self._results.popleft())
        return taken

    def _run_waiting(self) -> None:
        """Confirm on the target of the session, which waits meanwhile."""
        while self._jobs:
            with self._pause():
                self._run_next()

    def close(self, seconds: float) -> None:
        """Finish the waiting jobs within that time, leave out the others, and stop the second instance."""
        thread, self._ended = self._thread, True
        if thread is None:
            return
        self._wakes.set()
        thread.join(seconds)
        with self._lock:
            self.skipped += len(self._jobs)
            self._left |= {name for name, _ in self._jobs}
            self._jobs.clear()
        self._triage.ended.set()
        thread.join()

    # -- the thread ------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            with closing(self._main.twin()) as twin:
                make_topics(twin.address)
                self._triage.target = twin
                while self._is_next():
                    self._run_next()
        except (UsageError, TargetFailure, OSError):
            self._thread = None  # no second instance: the session confirms on its own target from now on
        except Exception as error:
            self._error = error
        finally:
            self._triage.target = self._main

    def _is_next(self) -> bool:
        """Wait for a job; return False if the run has ended and none is left."""
        while not self._jobs and not self._ended:
            self._wakes.clear()
            self._wakes.wait(IDLE_S)
        return bool(self._jobs)

    def _run_next(self) -> None:
        with self._lock:
            name, job = self._jobs.popleft()
        try:
            job(self._triage)
            self._done.add(name)
        except (RunEndedError, UsageError, TargetFailure, OSError):  # the end of the run, or the instance is dead
            self.skipped += 1
            self._left.add(name)
        self._results.append(Confirmed(self._triage.fatal_cases, set(self._triage.fatal_versions)))
        with self._lock:
            self._waiting[name] -= 1
