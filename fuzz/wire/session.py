"""The fuzzing loop: send cases, check replies and the process, and hand failures to the confirmation."""

import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from highwater.errors import UsageError
from highwater.fuzz.wire.connection import SILENT, advertised, unknown_versions, version_ranges
from highwater.fuzz.wire.engine import Engine, Hooks, TargetDown
from highwater.fuzz.wire.examination.agreement import disagreement, random_read
from highwater.fuzz.wire.examination.confirmation import LAST_S
from highwater.fuzz.wire.examination.relations import PAUSE_S, PAUSED_SHARE, Relations, draw_read
from highwater.fuzz.wire.examination.suspicions import Suspicions, name_of
from highwater.fuzz.wire.examination.triage import CRASH_DEADLINE_S, PARKED_AGAIN_S, SHRINK_S, Triage
from highwater.fuzz.wire.findings import UNEXAMINED, api_name, read_unexamined, write_unexamined
from highwater.fuzz.wire.generate.cases import NO_MUTATION, Case, Kind
from highwater.fuzz.wire.generate.long_arrays import LongArrays
from highwater.fuzz.wire.generate.stream import Stream
from highwater.fuzz.wire.oracles.leaks import LeakWatch
from highwater.fuzz.wire.oracles.malformed import must_be_refused
from highwater.fuzz.wire.oracles.responses import DEADLINE_S, Failure, Oracle
from highwater.fuzz.wire.oracles.stalls import StallWatch, idle_limit
from highwater.fuzz.wire.oracles.states import StateWatch
from highwater.fuzz.wire.replay import Replay, prepare, stall_of
from highwater.fuzz.wire.run_state import RunState, Totals
from highwater.fuzz.wire.steering.corpus import Coverage
from highwater.fuzz.wire.steering.go_counters import Counters
from highwater.fuzz.wire.steering.guidance import Guidance
from highwater.fuzz.wire.target import FuzzTarget
from highwater.fuzz.wire.verdict import INTERRUPTED

SOUND_SHARE: Final = 0.25
"""Share of valid requests, which bring the target into states with topics, groups and transactions."""
TURN_S: Final = 0.25
COMPARISONS: Final = 20
RELATIONS_S: Final = 0.05
"""Time of each turn in which equivalent requests are compared."""
SOCKETS_EVERY_S: Final = 5.0
MAX_FINDINGS: Final = 200
SETTLE_S: Final = 0.05
BUSY_S: Final = 0.25
STUCK_S: Final = 0.6
DEAD_S: Final = 10.0
"""A broker that stalls for longer is dead."""
STATES_EVERY_S: Final = 0.5
STATES_BATCH, STATES_SHARE = 40, 10
"""Cases of one comparison; comparisons take at most 1/STATES_SHARE of the time."""
QUIET_S: Final = 0.2
"""Time for the requests in flight before the state is read."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a run; the first that is reached ends it. `rate` is in cases per second.

    `counted`: only findings of this oracle count for the limit of findings and the time to the first; all if empty.
    """

    seconds: float = 30.0
    cases: int = 10_000_000
    rate: float = 50_000.0
    findings: int = MAX_FINDINGS
    counted: str = ""
    deadline_s: float = DEADLINE_S
    sound_share: float = SOUND_SHARE
    shrink_s: float = SHRINK_S
    guided: bool = True
    """Build on requests with a new response or new code of the target, and use the values that it returned."""


Watcher = Callable[["Session"], None]


@dataclass
class Session:
    """One run. The findings' folder keeps its state, so that another run can continue with `resume`."""

    target: FuzzTarget
    folder: Path
    seed: int
    bounds: Bounds = field(default_factory=Bounds)
    resume: bool = False
    against: str = ""
    counters: Counters | None = None
    totals: Totals = field(default_factory=Totals)

    def __post_init__(self) -> None:
        dead = self.target.why_dead()
        if dead is not None:
            raise UsageError(f"the target {dead}", where=self.target.address, hint="is it a Kafka broker, and running?")
        self.state = RunState(self.folder, self.seed, resume=self.resume)
        done, self._left_before = self.state.done, read_unexamined(self.folder) if self.resume else []
        self.triage = Triage(self.target, self.folder, self.seed, self.target.name)
        self.triage.shrink_s = self.bounds.shrink_s
        self.triage.deadline_s = min(self.triage.deadline_s, self.bounds.deadline_s)
        self.triage.signatures = {tuple(signature) for signature in done.seen}
        self.served = advertised(self.target.address)
        self._ranges = version_ranges(self.served)
        prepare(self.target.address)
        self.target.stall_limit_s = idle_limit(self.target.address)
        self._leaks = LeakWatch(self.target.why_no_leaks)
        self._states = StateWatch(self._ranges)
        self._stalled: deque[tuple[float, list[Case]]] = deque()
        self._is_paused, self._has_hung = False, False
        self._survived: set[Kind] = set()
        self._closed_kinds: set[Kind] = set()
        self._stream = Stream(f"{self.seed}:{done.runs}", self.served, self.bounds.sound_share)
        self._long = LongArrays(random.Random(f"{self.seed}:{done.runs}:long"), self.served, self._stream.returned)
        self._stream.avoided, self._stream.left_alone = set(done.avoid), set(done.left_alone)
        self._stream.left_alone |= unknown_versions(self.target.address)
        for (key, version, _), frame in self.state.corpus.frames.items() if self.bounds.guided else ():
            self._stream.keep(key, version, frame)
        self._other_ranges = version_ranges(advertised(self.against)) if self.against else {}
        self._related: list[Case] = []
        self._slow_cases: list[Case] = []
        self._states_after = 0.0
        self._failures: deque[tuple[Failure, list[Case], str]] = deque()
        self._started = self._counted = time.monotonic()
        hooks = Hooks(
            self._next_case, self._on_answer, self._on_failure, self._on_slow, self.triage.is_known_hang, self._is_busy
        )
        self._engine = Engine(self.target.address, hooks, self.bounds.deadline_s)
        self._guidance = Guidance(
            self._stream, self.target, self.counters, self._engine.in_flight, is_on=self.bounds.guided
        )
        self._suspicions = Suspicions(
            self.triage, self.totals, self._engine_paused, frames=lambda: self._engine.frames,
            counted=self.bounds.counted, against=self.against,
        )  # fmt: skip
        self._stalls = StallWatch(
            self.target.address, self.target.stall_limit_s, self.target.waited_for_processor_s, self._on_stall
        )

    @property
    def coverage(self) -> Coverage:
        return self.state.coverage

    # -- the loop --------------------------------------------------------------------------------

    def run(self, watch: Watcher = lambda session: None) -> dict[str, Any]:
        """Fuzz until a bound is reached, the target stays dead, or Ctrl-C; return the object that `--json` prints."""
        self._started = time.monotonic()
        self._suspicions.begin()
        try:
            while self._left_before:
                self._suspicions.unexamined_failure(self._left_before.pop())
            while self._within_bounds():
                self._turn()
                self.totals.seconds = time.monotonic() - self._started
                self.state.persist_if_due(self.totals, self.triage, self._stream)
                watch(self)
        except KeyboardInterrupt:
            self.totals.ended = INTERRUPTED
        finally:
            self._stalls.close()
            self._guidance.new_units()  # the last reading
            self._engine.close()
            self._leave_rest()
            self._suspicions.close(LAST_S if self.totals.ended == "time" else 0.0)
            self.totals.seconds = time.monotonic() - self._started
            write_unexamined(self.folder, [draft() for draft in self._suspicions.unexamined().values()])
            self.state.persist(self.totals, self.triage, self._stream)
        return self.summary()

    def _leave_rest(self) -> None:
        """Leave the failures that were not handed to the confirmation: the run ended within a turn."""
        for finding in self._left_before:
            self._suspicions.leave(finding)
        for failure, suspects, name in [*self._failures, *map(self._stall_of, self._stalled)]:
            self._suspicions.leave_failure(failure, suspects, name)

    def _within_bounds(self) -> bool:
        elapsed = time.monotonic() - self._started
        bounds = {
            "time": elapsed < self.bounds.seconds,
            "cases": self.totals.cases < self.bounds.cases or self._engine.is_unfinished,
            "findings": self._findings() < self.bounds.findings,
            "the target is dead": not self.totals.ended,
        }
        self.totals.ended = self.totals.ended or next((name for name, within in bounds.items() if not within), "")
        return not self.totals.ended

    def _left_s(self) -> float:
        return self.bounds.seconds - (time.monotonic() - self._started)

    def _findings(self) -> int:
        """Return the number of findings that count for the limit."""
        return sum(self.bounds.counted in ("", finding.oracle) for finding in self.triage.findings)

    def _turn(self) -> None:
        self.target.start_measuring()
        started = time.monotonic()
        budget = min(self.bounds.cases - self.totals.cases, max(1, int(self.bounds.rate * TURN_S)))
        try:
            begun = self._engine.run(min(TURN_S, self._left_s()), budget)
            self.totals.sending_s += time.monotonic() - started
            self._limit_rate(begun, started)
            self._check_process()
        except TargetDown as down:
            self.totals.sending_s += time.monotonic() - started
            self._handle_death(Failure(Oracle.ALIVE, f"the target {down}"), down.suspects)
        self._handle_stalls()
        self._handle_slow()
        self._relate()
        self._read_log()
        self._compare()
        self._compare_states()
        while self._failures and self._findings() < self.bounds.findings:
            self._suspicions.failure(*self._failures.popleft())
        self._avoid_confirmed()

    def _avoid_confirmed(self) -> None:
        """Stop sending what the confirmation found to end or slow down the target."""
        for confirmed in self._suspicions.results():
            for case in confirmed.cases:
                self._stream.avoid(case.kind)
            self._stream.left_alone |= confirmed.versions
        is_searching = any(map(self._suspicions.is_waiting, (Oracle.ALIVE, Oracle.STALL)))
        if self._stream.suspended and not is_searching:
            waiting = {kind for kind in self._stream.suspended if self._suspicions.is_slow_waiting(kind)}
            self._stream.suspended = waiting

    def _limit_rate(self, begun: int, started: float) -> None:
        ahead = begun / self.bounds.rate - (time.monotonic() - started)
        if ahead > 0:
            time.sleep(ahead)

    def _check_process(self) -> None:
        """Check that the target is alive (unless it is busy), and its memory and sockets after this turn."""
        is_stalled = 0 < self._stalls.stalled_s < DEAD_S
        dead = None if self._is_busy() or is_stalled else self.target.why_dead(self._hangs_again)
        if dead is not None:
            suspects = self._engine.suspects(is_silent=SILENT in dead)
            self._handle_death(Failure(Oracle.ALIVE, f"the target {dead}"), suspects)
            return
        self._survived |= self._closed_kinds
        self._closed_kinds.clear()
        excess_memory = self.target.excess_memory()
        if excess_memory is not None:
            self._suspicions.failure(Failure(Oracle.MEMORY, excess_memory), self._engine.recent())
            if self.target.holds_excess_memory:
                self._restart()
        self._leaks.sample(self.target.memory(), time.monotonic())
        self._suspicions.search_leaks(self._leaks)
        self._suspicions.search_long(self._long)
        if time.monotonic() - self._counted > SOCKETS_EVERY_S:
            self._counted = time.monotonic()
            self._engine.drain(SETTLE_S)
            leaked_sockets = self.target.leaked_sockets(self._engine.connection_count)
            if leaked_sockets is not None:
                self._suspicions.failure(Failure(Oracle.DESCRIPTORS, leaked_sockets), self._engine.recent())
                self._restart()

    def _hangs_again(self) -> bool:
        """Return True if the target stalls and will be restarted for it, since that it can hang is known already."""
        return self._has_hung and self.target.restarts_at_once and self._stalls.stalled_s > 0

    def _restart(self) -> None:
        """Restart the target if this process launched it, and continue there."""
        self._guidance.new_units()
        self._engine.close()
        self.target.restart()
        self._continue()

    def _continue(self) -> None:
        """Connect everything to the target, which may have been restarted at another address."""
        self._engine.move_to(self.target.address)
        self._stalls.move_to(self.target.address, self.target.waited_for_processor_s)
        self._leaks.restarted()
        self._guidance.restarted()

    def _read_log(self) -> None:
        """Report an uncaught exception in the log, even if the target only closed the connection."""
        stack = self.target.logged_exception()
        if stack is not None:
            failure = Failure(Oracle.STACK, f"a handler raised an exception at {stack}")
            self._suspicions.failure(failure, self._engine.suspects()[::-1])

    def _compare_states(self) -> None:
        """Send cases that were refused once more, and compare the state before and after."""
        if time.monotonic() < self._states_after or self.totals.ended or self._is_busy():
            return
        started = time.monotonic()
        cases = self._states.batch(STATES_BATCH)
        if not cases:
            return
        with self._engine_paused():
            self._engine.drain(QUIET_S)
            replay = Replay(self.target, CRASH_DEADLINE_S, PARKED_AGAIN_S)
            changed = self._states.compare(self.target.address, cases, replay.are_refused)
            # A second comparison leaves out what timers and earlier requests changed meanwhile.
            changed = changed and self._states.compare(self.target.address, cases, replay.are_refused)
        self._states_after = time.monotonic() + max(STATES_EVERY_S, STATES_SHARE * (time.monotonic() - started))
        if changed:
            self._suspicions.failure(
                Failure(Oracle.STATE, f"changed by a request that is refused or only reads: {changed}"), cases
            )

    def _handle_stalls(self) -> None:
        while self._stalled:
            failure, suspects, name = self._stall_of(self._stalled.popleft())
            self._suspend(suspects)
            self._suspicions.failure(failure, suspects, name)
            if self._stalls.stalled_s and self.target.restarts_at_once:
                self._restart()

    @staticmethod
    def _stall_of(stalled: tuple[float, list[Case]]) -> tuple[Failure, list[Case], str]:
        waited_s, suspects = stalled
        return stall_of(waited_s), suspects[::-1], Oracle.STALL

    def _relate(self) -> None:
        """Send some requests that only read, each with requests that must have the same response."""
        self._related = []
        if self.totals.ended or self._is_busy():
            return
        end = time.monotonic() + RELATIONS_S
        with self._engine_paused(), Relations(self.target.address) as relations, suppress(OSError):
            while time.monotonic() < end and (case := draw_read(self._stream.rng, self._ranges)) is not None:
                self._related.append(case)
                pause_s = PAUSE_S if self._stream.rng.random() < PAUSED_SHARE else 0.0
                broken = relations.broken(case, self._ranges[case.key][1], pause_s=pause_s)
                self.totals.relations += 1
                if broken is not None:
                    self._suspicions.failure(*broken)

    def _handle_slow(self) -> None:
        """Have slow cases sent alone. A target that restarts quickly is restarted instead of waiting for them."""
        slow, self._slow_cases = self._slow_cases, []
        can_restart = self.target.restarts_at_once
        stuck = [case for case in self._engine.stuck(STUCK_S) if not self.triage.is_known_hang(case)]
        for case in [*slow, *stuck] if can_restart else slow:
            if case.mutation != NO_MUTATION and not self.totals.ended:
                self._stream.suspended.add(case.kind)
                self._suspicions.slow(case, self.bounds.deadline_s)
        if stuck and can_restart:
            self._restart()

    def _compare(self) -> None:
        """Send some read requests to both targets, if there are two."""
        if not self.against or self.totals.ended:
            return
        started = time.monotonic()
        for _ in range(COMPARISONS):
            case = random_read(self._stream.rng, self._ranges, self._other_ranges)
            if case is None:
                continue
            with suppress(OSError):
                failure = disagreement(case, self.target.address, self.against)
                if failure is not None:
                    self._suspicions.disagreement(failure, case)
        self._engine.add_pause(time.monotonic() - started)

    def _handle_death(self, failure: Failure, suspects: list[Case]) -> None:
        time.sleep(SETTLE_S)  # the target may still be writing to its log
        self._engine.close()
        self._suspend(suspects)
        self._closed_kinds.clear()
        self._suspicions.failure(failure, [*self._related, *suspects[::-1]])
        self._has_hung = self._has_hung or SILENT in failure.message
        if self._left_s() < self.target.start_s:
            self.totals.ended = "time"
            return
        renewals = self.target.renewals
        is_alive = self.target.restart() if self.target.restarts_at_once else self.target.why_dead() is None
        if not is_alive and not self.target.revive():
            self.totals.ended = "the target is dead"
        if self.target.renewals > renewals:
            self._await_cause()
        self._continue()

    def _await_cause(self) -> None:
        """Send nothing until the cause of a crash is known: each start with empty data costs seconds."""
        while self._suspicions.is_waiting(Oracle.ALIVE) and self._within_bounds():
            time.sleep(SETTLE_S)

    def _suspend(self, suspects: list[Case]) -> None:
        """Do not send the kinds of these cases, except those that once had a response, until the cause is known."""
        self._stream.suspended |= {case.kind for case in suspects if case.mutation != NO_MUTATION} - self._survived

    # -- pauses ----------------------------------------------------------------------------------

    @contextmanager
    def _engine_paused(self) -> Iterator[None]:
        """Pause the engine's deadlines and the watch for stalls, and reconnect if the target was restarted."""
        started, revivals, self._is_paused = time.monotonic(), self.target.revivals, True
        self._stalls.pause(paused=True)
        yield
        self._guidance.new_units()  # what ran meanwhile reached this code, not the requests of the engine
        self._stalls.pause(paused=False)
        self._is_paused = False
        if self.target.revivals != revivals:
            self._continue()
        self._engine.add_pause(time.monotonic() - started)

    def _is_busy(self) -> bool:
        """Return True if the target serves neither a head of the engine nor a healthy connection."""
        return self._engine.is_waiting and self._stalls.waiting_s > BUSY_S

    # -- callbacks of the engine --------------------------------------------------------------------

    def _next_case(self) -> Case:
        self.totals.cases += 1
        return self._stream.next()

    def _on_answer(self, case: Case, outcome: tuple[int, ...] | str, answer: bytes) -> None:
        outcome_text = outcome if isinstance(outcome, str) else " ".join(map(str, outcome)) or "0"
        self._leaks.note(case, outcome)
        (self._closed_kinds if isinstance(outcome, str) else self._survived).add(case.kind)
        if case.mutation == NO_MUTATION:
            self.totals.sound += 1
        else:
            self.totals.malformed += len(case.frames) == 1 and must_be_refused(case.frames[0]) is not None
        self._states.note(case, outcome)
        if self.state.coverage.note((case.key, case.version, case.field, case.mutation, outcome_text)):
            self.state.corpus.note(case, outcome_text)
        self._guidance.note(case, outcome_text, answer)

    def _on_failure(self, failure: Failure, case: Case, history: list[Case]) -> None:
        if self.triage.is_reported(failure, case):
            return
        if failure.oracle is Oracle.CORRELATION and self.triage.is_known_hang(case):
            return  # a known hang: the response is missing, not out of order
        until = next((n for n, sent in enumerate(history) if sent is case), len(history) - 1)
        suspects = history[: until + 1] or [case]
        self._failures.append((failure, suspects, name_of(failure, api_name(case.key), case.version)))

    def _on_stall(self, waited_s: float) -> None:
        """Keep the requests in flight as suspects; called by the thread of the watch."""
        if not self._is_paused:
            with suppress(RuntimeError, IndexError):  # the engine changed its connections meanwhile
                self._stalled.append((waited_s, self._engine.in_flight()))

    def _on_slow(self, case: Case) -> None:
        self._slow_cases.append(case)

    # -- summary ------------------------------------------------------------------------------------

    def summary(self) -> dict[str, Any]:
        return {
            "target": self.target.name, "restarts": self.target.restarts,
            **self.state.summary(self.totals, self.triage, self._stream, self._engine.frames),
            "responses": self._guidance.responses,
            "guidance": self._guidance.report(), "oracles": self._oracles(),
            "unexamined": list(self._suspicions.unexamined()), "unexamined_folder": str(self.folder / UNEXAMINED),
        }  # fmt: skip

    def _oracles(self) -> dict[str, str]:
        """Return what the oracles over the whole run covered."""
        return {
            Oracle.RELATION: f"{self.totals.relations:,} requests were compared with equivalent ones",
            Oracle.REFUSE: f"{self.totals.malformed:,} malformed requests were sent and judged",
            Oracle.LEAK: self._leaks.report(),
            Oracle.STALL: f"{self._stalls.report()}; {self._long.report()}",
            Oracle.STATE: self._states.report(),
        }
