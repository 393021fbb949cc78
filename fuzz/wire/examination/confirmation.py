"""Confirm failures in the background, on a second instance of the target, while the session goes on sending.

A job calls triage with the suspects of one failure. It needs seconds: replays, restarts, shrinking. With a target that
was launched, jobs run one after another in a thread, on an instance of their own. With any other target they run at
once, on the target itself, and the session pauses.

A failure that is not examined, because the run ends or too many wait, is left: `unexamined` returns it as it was seen.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress
from typing import Final, NamedTuple, cast

from highwater.conformance.failures import TargetFailure
from highwater.errors import UsageError
from highwater.fuzz.wire.examination.triage import FATAL, WATCHED, RunEndedError, Triage
from highwater.fuzz.wire.findings import Finding
from highwater.fuzz.wire.generate.cases import Case
from highwater.fuzz.wire.replay import prepare

JOBS_MAX: Final = 400
ALIKE_MAX: Final = 2
"""Jobs of one failure of the process that wait at the same time: one cause shows again and again until it is known."""
LAST_S: Final = 10.0
"""Time for the jobs that are left at the end of a run."""
IDLE_S: Final = 0.05

Job = Callable[[Triage], object]
Draft = Callable[[], Finding]
"""Returns a failure as the run saw it, before any replay."""


class Task(NamedTuple):
    """A job, and what it examines; without a draft it searches for a failure, and leaving it out leaves nothing."""

    name: str
    job: Job
    draft: Draft | None = None


class Confirmed(NamedTuple):
    """What a job found out for the stream: cases and versions not to send again."""

    cases: list[Case]
    versions: set[tuple[int, int]]


class Confirmation:
    """`pause` stops the session's own connections while a job uses the target of the session."""

    def __init__(self, triage: Triage, pause: Callable[[], AbstractContextManager[None]]) -> None:
        self._triage, self._pause, self._main = triage, pause, triage.target
        self._tasks: deque[Task] = deque()
        self._waiting: Counter[str] = Counter()
        self._results: deque[Confirmed] = deque()
        self.skipped = 0
        """Jobs that were not done, because too many were waiting or the run ended; most repeat one that was."""
        self._done: set[str] = set()
        self._left: dict[str, Draft] = {}
        self._lock = threading.Lock()
        self._wakes, self._ended, self._error = threading.Event(), False, cast("Exception | None", None)
        self._thread = threading.Thread(target=self._work, daemon=True) if triage.target.has_twin else None
        if self._thread is not None:
            self._thread.start()

    def submit(self, name: str, job: Job, draft: Draft | None = None) -> None:
        """Confirm a failure; `name` is what it has in common with its repetitions."""
        is_repeated, task = name in FATAL or name in WATCHED, Task(name, job, draft)
        if len(self._tasks) >= JOBS_MAX or (self._waiting[name] >= (ALIKE_MAX if is_repeated else 1)):
            self._leave(task)
            return
        with self._lock:
            self._waiting[name] += 1
            self._tasks.append(task)
        self._wakes.set()
        if self._thread is None:
            self._run_waiting()

    def leave(self, name: str, draft: Draft) -> None:
        """Count a failure as seen and not examined. The first one of a name is kept."""
        self.skipped += 1
        self._left.setdefault(name, draft)

    def _leave(self, task: Task) -> None:
        if task.draft is None:
            self.skipped += 1
        else:
            self.leave(task.name, task.draft)

    def unexamined(self) -> dict[str, Draft]:
        """Return by name the failures of which none was examined."""
        return {name: draft for name, draft in sorted(self._left.items()) if name not in self._done}

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
        while self._tasks:
            with self._pause():
                self._run_next()

    def close(self, seconds: float) -> None:
        """Finish the waiting jobs within that time, leave out the others, and stop the second instance."""
        thread, self._ended = self._thread, True
        if thread is not None:
            self._wakes.set()
            thread.join(seconds)
        with self._lock:
            for task in self._tasks:
                self._leave(task)
            self._tasks.clear()
        self._triage.ended.set()
        if thread is not None:
            thread.join()

    # -- the thread ------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            with closing(self._main.twin()) as twin:
                prepare(twin.address)
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
        while not self._tasks and not self._ended:
            self._wakes.clear()
            self._wakes.wait(IDLE_S)
        return bool(self._tasks)

    def _run_next(self) -> None:
        with self._lock:
            task = self._tasks.popleft()
        name, written = task.name, len(self._triage.findings)
        try:
            task.job(self._triage)
            self._done.add(name)
        except (RunEndedError, UsageError, TargetFailure, OSError):  # the end of the run, or the instance is dead
            self._leave(task)
        except KeyboardInterrupt:
            if len(self._triage.findings) == written:  # else the triage has written what it knew
                self._leave(task)
            raise
        self._results.append(Confirmed(self._triage.fatal_cases, set(self._triage.fatal_versions)))
        with self._lock:
            self._waiting[name] -= 1
