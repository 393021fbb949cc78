"""The trial of a mutant: a fork of this process loads it and runs the checks of a judge until one fails.

Theory of operation
-------------------
The parent has imported what all trials share. The fork imports the mutant and the modules of `Judge.reloaded` again,
then runs the checks of the plan in order. Before each check it writes its name and its processor time so far to a file
that the parent reads when the fork has ended, whatever ended it. A check may use `Judge.limit_s` of processor time, and
the trial `limit_s`; the kernel enforces both (RLIMIT_CPU), because a mutant may loop inside of one call.

Invariants: a trial is killed only by a check that the correct broker passes; it never uses more than `limit_s`.
"""

import math
import os
import resource
import selectors
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from enum import StrEnum
from tempfile import TemporaryFile
from typing import ClassVar, Final, NoReturn

import msgspec

from highwater.errors import UsageError
from highwater.mutants.mutation import load_instead, unchanged
from highwater.mutants.table import NamedMutant, written
from highwater.pools import end_with_parent
from highwater.power.generated import generated

START: Final = "start"
"""The name of the check that a mutant fails which cannot be imported or started."""


class Outcome(StrEnum):
    """What happened to a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    NOT_REACHED = "not reached"
    UNFINISHED = "unfinished"


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """The trial of one mutant.

    `version` identifies the checks of the judge, `killer` the check that failed, `message` how; `checks` of
    `candidates` ran (0 candidates: unbounded). `cpu_s` is the processor time of the fork, at most `limit_s`.
    """

    judge: str
    version: str
    key: str
    name: str
    module: str
    line: int
    before: str
    after: str
    effect: str
    outcome: Outcome
    killer: str = ""
    message: str = ""
    checks: int = 0
    candidates: int = 0
    cpu_s: float = 0.0
    limit_s: float = 0.0


class Judge(ABC):
    """A check of brokers that consists of smaller ones, each with a name."""

    name: ClassVar[str]

    def session(self, work: Callable[[], None]) -> None:
        """Prepare what all trials share, then call `work`."""
        work()

    @abstractmethod
    def version(self) -> str:
        """Return a digest of the checks: a mutant that survived is tried again after they have changed."""

    def mutants(self, mutant_set: str, count: int, seed: int) -> Iterator[NamedMutant]:
        """Yield a set of written mutants and about `count` generated ones."""
        yield from written(mutant_set)
        yield from generated(count, seed)

    @abstractmethod
    def plan(self, mutant: NamedMutant) -> Iterable[str]:
        """Return the checks that may notice the mutant, the likely ones first; the fork iterates over them."""

    @abstractmethod
    def reloaded(self, module: str) -> Collection[str]:
        """Return the modules to import again for a mutant of a module: those that have imported it."""

    @abstractmethod
    def begin(self, mutant: NamedMutant) -> None:
        """Import the broker, in the fork, once the mutant is loaded."""

    @abstractmethod
    def check(self, name: str) -> str:
        """Return how the broker that is loaded fails a check; empty if it passes."""

    @abstractmethod
    def limit_s(self, name: str) -> float:
        """Return the processor time that a check may take: a broker that needs more does not end."""

    def is_proven(self, name: str) -> bool:
        """Return whether the correct broker is known to pass a check."""
        return False


Plan = Callable[[NamedMutant], Iterable[str]]
"""Returns the checks to run on a mutant."""


class Progress(msgspec.Struct):
    """What a fork has reached: the check that it runs, how many it began, and the processor time before this one."""

    check: str
    begun: int = 0
    before_s: float = 0.0
    outcome: Outcome | None = None
    message: str = ""


class TrialProcess:
    """A fork that tries one mutant; `reader` is readable when it has ended."""

    def __init__(self, judge: Judge, mutant: NamedMutant, plan: Iterable[str], limit_s: float) -> None:
        self.judge, self.mutant, self._limit_s = judge, mutant, limit_s
        self._plan, self._reloaded = plan, judge.reloaded(mutant.mutant.module)
        self._file = TemporaryFile()  # noqa: SIM115 - closed in `finish`
        self.reader, writer = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self.reader)
            self._run_in_fork()
        os.close(writer)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def finish(self) -> Trial:
        """Wait for the end of the fork, and return the trial."""
        _, status, usage = os.wait4(self.pid, 0)
        cpu_s = usage.ru_utime + usage.ru_stime
        self._file.seek(0)
        progress = msgspec.json.decode(self._file.read(), type=Progress)
        self._file.close()
        os.close(self.reader)
        if progress.outcome is None:
            self._conclude(progress, status, cpu_s)
        assert progress.outcome is not None
        is_killed, known = progress.outcome is Outcome.KILLED, self.mutant.mutant
        return Trial(
            judge=self.judge.name, version=self.judge.version(), key=self.mutant.key, name=self.mutant.name,
            module=known.module, line=known.line, before=known.before, after=known.after, effect=self.mutant.effect,
            outcome=progress.outcome, killer=progress.check if is_killed else "", message=progress.message,
            checks=progress.begun, candidates=len(self._plan) if isinstance(self._plan, list) else 0,
            cpu_s=round(cpu_s, 2), limit_s=self._limit_s,
        )  # fmt: skip

    def _conclude(self, progress: Progress, status: int, cpu_s: float) -> None:
        """Set the outcome of a fork that ended without one."""
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        limit_s = self.judge.limit_s(progress.check)
        if number == signal.SIGXCPU and cpu_s - progress.before_s < limit_s - 1:
            progress.outcome = Outcome.UNFINISHED
            return
        progress.outcome = Outcome.KILLED
        progress.message = (
            f"does not end within {limit_s:.0f} s of processor time" if number == signal.SIGXCPU
            else f"the process ended with signal {number}" if number else f"exit code {os.WEXITSTATUS(status)}"
        )  # fmt: skip

    def _run_in_fork(self) -> NoReturn:
        progress = Progress(START)
        try:
            end_with_parent()
            self._limit_cpu(self._limit_s)
            self._write(progress)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(1, 2)
            load_instead(self.mutant.mutant, self._reloaded)
            self.judge.begin(self.mutant)
            self._run_checks(progress)
        except BaseException as error:
            progress.outcome, progress.message = Outcome.KILLED, f"{type(error).__name__}: {error}"[:400]
        finally:
            self._write(progress)
            os._exit(0)

    def _run_checks(self, progress: Progress) -> None:
        for name in self._plan:
            spent_s = time.process_time()
            if spent_s >= self._limit_s - 1:
                progress.outcome = Outcome.UNFINISHED
                return
            progress.check, progress.begun, progress.before_s = name, progress.begun + 1, spent_s
            self._write(progress)
            self._limit_cpu(min(self._limit_s, spent_s + self.judge.limit_s(name)))
            message = self.judge.check(name)
            if message:
                progress.outcome, progress.message = Outcome.KILLED, message[:400]
                return
        progress.outcome = Outcome.SURVIVED

    def _limit_cpu(self, seconds: float) -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), resource.RLIM_INFINITY))

    def _write(self, progress: Progress) -> None:
        data = msgspec.json.encode(progress)
        os.pwrite(self._file.fileno(), data, 0)
        os.ftruncate(self._file.fileno(), len(data))


def run_trials(
    judge: Judge, mutants: Iterable[NamedMutant], plan_of: Plan, limit_s: float, jobs: int
) -> Iterator[Trial]:
    """Yield the trials of mutants as they end, `jobs` at a time; a mutant that no check reaches is not run.

    Raises UsageError if a check that killed a mutant fails on the correct broker, too.
    """
    waiting, running, proven = iter(mutants), dict[int, TrialProcess](), set[str]()
    selector = selectors.DefaultSelector()
    try:
        while True:
            for mutant in waiting:
                plan = plan_of(mutant)
                if isinstance(plan, list) and not plan:
                    yield not_reached(judge, mutant)
                    continue
                process = TrialProcess(judge, mutant, plan, limit_s)
                running[process.reader] = process
                selector.register(process.reader, selectors.EVENT_READ)
                if len(running) >= jobs:
                    break
            if not running:
                return
            for key, _ in selector.select():
                selector.unregister(key.fd)
                trial = running.pop(key.fd).finish()
                if trial.killer and trial.killer != START and trial.killer not in proven:
                    prove(judge, trial, limit_s)
                    proven.add(trial.killer)
                yield trial
    finally:
        selector.close()
        for process in running.values():
            process.kill()


def prove(judge: Judge, trial: Trial, limit_s: float) -> None:
    """Raise UsageError if the check that killed a mutant fails on the correct broker, loaded in the same way."""
    if judge.is_proven(trial.killer):
        return
    control = NamedMutant(unchanged(trial.module), f"control of {trial.name}")
    found = TrialProcess(judge, control, [trial.killer], limit_s).finish()
    if found.outcome is not Outcome.SURVIVED:
        raise UsageError(
            f"the correct broker is found to be wrong, too, by {trial.killer}: {found.message}", where=judge.name,
            hint="a check that fails without a mutant judges none",
        )  # fmt: skip


def not_reached(judge: Judge, mutant: NamedMutant) -> Trial:
    """Return the trial of a mutant that no check executes."""
    known = mutant.mutant
    return Trial(
        judge=judge.name, version=judge.version(), key=mutant.key, name=mutant.name, module=known.module,
        line=known.line, before=known.before, after=known.after, effect=mutant.effect, outcome=Outcome.NOT_REACHED,
        message="no check executes the changed line",
    )  # fmt: skip
