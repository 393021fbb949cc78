"""The fuzzing loop: send cases, check replies and the process, run sequences, and hand failures to the confirmation."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from highwater.errors import UsageError
from highwater.fuzz.wire.agreement import disagreement, random_read
from highwater.fuzz.wire.confirmation import LAST_S, Confirmation
from highwater.fuzz.wire.connection import SILENT, advertised, unknown_versions
from highwater.fuzz.wire.corpus import Corpus, Coverage, State, read_state, write_state
from highwater.fuzz.wire.engine import Engine, Hooks, TargetDown
from highwater.fuzz.wire.findings import FILE, Finding, api_name
from highwater.fuzz.wire.generate.cases import NO_MUTATION, Case, Kind
from highwater.fuzz.wire.generate.stream import Stream
from highwater.fuzz.wire.go_counters import Counters
from highwater.fuzz.wire.oracles.leaks import LeakKind, LeakWatch
from highwater.fuzz.wire.oracles.malformed import must_be_refused
from highwater.fuzz.wire.oracles.responses import DEADLINE_S, Failure, Oracle
from highwater.fuzz.wire.oracles.stalls import StallWatch, idle_limit
from highwater.fuzz.wire.oracles.states import StateWatch
from highwater.fuzz.wire.process import MEGABYTE, Process
from highwater.fuzz.wire.replay import Replay, make_topics
from highwater.fuzz.wire.sequences.run import (
    ParallelRunner,
    SequenceResult,
    runnable,
    skipped_sequences,
    version_ranges,
)
from highwater.fuzz.wire.target import FuzzTarget
from highwater.fuzz.wire.triage import CRASH_DEADLINE_S, FATAL, PARKED_AGAIN_S, SHRINK_S, Triage
from highwater.reference.wire.errors import DecodeError
from highwater.reference.wire.framing import decode_response
from highwater.reference.wire.registry import APIS
from highwater.reference.wire.schema import message_layout

SOUND_SHARE: Final = 0.25
"""Share of valid requests, which bring the target into states with topics, groups and transactions."""
TURN_S: Final = 0.25
SEQUENCES_S, SEQUENCES_SHARE = 0.08, 4
"""Time for sequences in a turn. They end later on a slow target; then they pause, for 1/SEQUENCES_SHARE of the time."""
COMPARISONS: Final = 20
PERSIST_EVERY_S: Final = 10.0
PERSIST_SHARE: Final = 50
"""The state is written for at most 1/PERSIST_SHARE of the time; after an hour each write takes seconds."""
SOCKETS_EVERY_S: Final = 5.0
MAX_FINDINGS: Final = 200
DEFER_MAX: Final = 12
"""Turns for which sequences are deferred while the target is busy; some targets are always busy."""
SETTLE_S: Final = 0.05
BUSY_S: Final = 0.25
STUCK_S: Final = 0.6
SLOW: Final = "slow"
OF_SEQUENCES: Final = "death in sequences"
SEARCHES: Final = (Oracle.LEAK, OF_SEQUENCES)
"""Jobs that look for a failure, and are none if they are left."""
RESPONSES_MAX: Final = 100_000
READ_EVERY: Final = 8
"""Of the responses that are not new, one of so many is read for its values."""
READ_COUNTERS_EVERY: Final = 24
"""Responses between two readings of the counters of the target."""
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


@dataclass(slots=True)
class Totals:
    cases: int = 0
    sound: int = 0
    sequences: int = 0
    sending_s: float = 0.0
    sequence_s: float = 0.0
    seconds: float = 0.0
    hit_s: float = 0.0
    hit_processor_s: float = 0.0
    hit_frames: int = 0
    malformed: int = 0
    """Requests that had to be refused, and were judged."""
    ended: str = ""


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
    coverage: Coverage = field(default_factory=Coverage)
    corpus: Corpus = field(default_factory=Corpus)

    def __post_init__(self) -> None:
        dead = self.target.why_dead()
        if dead is not None:
            raise UsageError(f"the target {dead}", where=self.target.address, hint="is it a Kafka broker, and running?")
        self.state = self._read_state()
        self.triage = Triage(self.target, self.folder, self.seed, self.target.name)
        self.triage.shrink_s = self.bounds.shrink_s
        self.triage.deadline_s = min(self.triage.deadline_s, self.bounds.deadline_s)
        self.triage.signatures = {tuple(signature) for signature in self.state.seen}
        self.served = advertised(self.target.address)
        make_topics(self.target.address)
        self.target.stall_limit_s = idle_limit(self.target.address)
        self._leaks = LeakWatch(self.target.why_no_leaks)
        self._states = StateWatch(version_ranges(self.served))
        self._stalled: deque[tuple[float, list[Case]]] = deque()
        self._is_paused, self._has_hung = False, False
        self._survived: set[Kind] = set()
        self._responses: set[tuple[int, int, str, int]] = set()
        self._answered: list[Case] = []  # since the counters of the target were read
        self._responses_read, self._rewarded = 0, 0
        self._closed_kinds: set[Kind] = set()
        self._stream = Stream(f"{self.seed}:{self.state.runs}", self.served, self.bounds.sound_share)
        self._stream.avoided, self._stream.left_alone = set(self.state.avoid), set(self.state.left_alone)
        self._stream.left_alone |= unknown_versions(self.target.address)
        for (key, version, _), frame in self.corpus.frames.items() if self.bounds.guided else ():
            self._stream.keep(key, version, frame)
        self._other_ranges = version_ranges(advertised(self.against)) if self.against else {}
        self._sequences = runnable(version_ranges(self.served))
        self._runner = ParallelRunner(version_ranges(self.served), self._next_sequence)
        self._sequences_run: list[str] = []
        """Those that ran last: one of them may have ended the target."""
        self._slow_cases: list[Case] = []
        self._deferred_turns, self._states_after, self._sequences_after = 0, 0.0, 0.0
        self._failures: deque[tuple[Failure, list[Case], str]] = deque()
        self._started = self._persisted = self._counted = time.monotonic()
        self._own = Process(os.getpid(), None)
        self._processor, self._persist_every_s, self._persisted_findings = time.process_time(), PERSIST_EVERY_S, 0
        hooks = Hooks(
            self._next_case, self._on_answer, self._on_failure, self._on_slow, self.triage.is_known_hang, self._is_busy
        )
        self._engine = Engine(self.target.address, hooks, self.bounds.deadline_s)
        self._confirmation = Confirmation(self.triage, self._engine_paused)
        self._stalls = StallWatch(
            self.target.address, self.target.stall_limit_s, self.target.waited_for_processor_s, self._on_stall
        )

    def _read_state(self) -> State:
        state = read_state(self.folder) if self.resume else None
        if state is None:
            return State(seed=self.seed)
        self.coverage = Coverage.from_rows(state.points, state.growth)
        self.corpus = Corpus.read(self.folder)
        return state

    # -- the loop --------------------------------------------------------------------------------

    def run(self, watch: Watcher = lambda session: None) -> dict[str, Any]:
        """Fuzz until a bound is reached, the target stays dead, or Ctrl-C; return the object that `--json` prints."""
        self._started, self._processor = time.monotonic(), time.process_time()
        try:
            while self._within_bounds():
                self._turn()
                self.totals.seconds = time.monotonic() - self._started
                self._persist_if_due()
                watch(self)
        except KeyboardInterrupt:
            self.totals.ended = "interrupted"
        finally:
            self._stalls.close()
            self._new_units()  # the last reading
            self._engine.close()
            self._confirmation.close(LAST_S if self.totals.ended == "time" else 0.0)
            self.totals.seconds = time.monotonic() - self._started
            self.persist()
        return self.summary()

    def _within_bounds(self) -> bool:
        elapsed = time.monotonic() - self._started
        bounds = {
            "time": elapsed < self.bounds.seconds,
            "cases": self.totals.cases < self.bounds.cases,
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
        self._run_sequences()
        self._read_log()
        self._compare()
        self._compare_states()
        while self._failures and self._findings() < self.bounds.findings:
            self._suspect(*self._failures.popleft())
        self._avoid_confirmed()

    def _avoid_confirmed(self) -> None:
        """Stop sending what the confirmation found to end or slow down the target."""
        for confirmed in self._confirmation.results():
            for case in confirmed.cases:
                self._stream.avoid(case.kind)
            self._stream.left_alone |= confirmed.versions
        is_searching = any(map(self._confirmation.is_waiting, (Oracle.ALIVE, Oracle.STALL)))
        if self._stream.suspended and not is_searching:
            waiting = {kind for kind in self._stream.suspended if self._confirmation.is_waiting(f"{SLOW} {kind}")}
            self._stream.suspended = waiting

    def _limit_rate(self, begun: int, started: float) -> None:
        ahead = begun / self.bounds.rate - (time.monotonic() - started)
        if ahead > 0:
            time.sleep(min(ahead, TURN_S))

    def _check_process(self) -> None:
        """Check that the target is alive (unless it is busy), and its memory and sockets after this turn."""
        is_stalled = 0 < self._stalls.stalled_s < DEAD_S
        dead = None if self._is_busy() or is_stalled else self.target.why_dead(self._hangs_again)
        if dead is not None:
            self._handle_death(Failure(Oracle.ALIVE, f"the target {dead}"), self._engine.suspects())
            return
        self._survived |= self._closed_kinds
        self._closed_kinds.clear()
        excess_memory = self.target.excess_memory()
        if excess_memory is not None:
            self._suspect(Failure(Oracle.MEMORY, excess_memory), self._engine.recent())
            if self.target.holds_excess_memory:
                self._restart()
        self._leaks.sample(self.target.memory(), time.monotonic())
        if not self._confirmation.is_waiting(Oracle.LEAK):
            self._search_leaks()
        if time.monotonic() - self._counted > SOCKETS_EVERY_S:
            self._counted = time.monotonic()
            self._engine.drain(SETTLE_S)
            leaked_sockets = self.target.leaked_sockets(self._engine.connection_count)
            if leaked_sockets is not None:
                self._suspect(Failure(Oracle.DESCRIPTORS, leaked_sockets), self._engine.recent())
                self._restart()

    def _hangs_again(self) -> bool:
        """Return True if the target stalls and will be restarted for it, since that it can hang is known already."""
        return self._has_hung and self.target.restarts_at_once and self._stalls.stalled_s > 0

    def _restart(self) -> None:
        """Restart the target if this process launched it, and continue there."""
        self._new_units()
        self._engine.close()
        self.target.restart()
        self._continue()

    def _continue(self) -> None:
        """Connect everything to the target, which may have been restarted at another address."""
        self._engine.move_to(self.target.address)
        self._stalls.move_to(self.target.address, self.target.waited_for_processor_s)
        self._leaks.restarted()
        self._new_units()  # the code of a start
        self._answered = []

    def _read_log(self) -> None:
        """Report an uncaught exception in the log, even if the target only closed the connection."""
        stack = self.target.logged_exception()
        if stack is not None:
            failure = Failure(Oracle.STACK, f"a handler raised an exception at {stack}")
            self._suspect(failure, self._engine.suspects()[::-1])

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
            self._suspect(
                Failure(Oracle.STATE, f"changed by a request that is refused or only reads: {changed}"), cases
            )

    def _handle_stalls(self) -> None:
        while self._stalled:
            waited_s, suspects = self._stalled.popleft()
            self._suspend(suspects)
            self._suspect_sequences()
            self._suspect(Failure(Oracle.STALL, f"a healthy connection waited for {waited_s:.1f} s"), suspects[::-1])
            if self._stalls.stalled_s and self.target.restarts_at_once:
                self._restart()

    def _run_sequences(self) -> None:
        """Run stateful sequences, each checked against its model, for a share of the turn."""
        self._deferred_turns = self._deferred_turns + 1 if self._is_busy() and self._deferred_turns < DEFER_MAX else 0
        if not self._sequences or self.totals.ended or self._deferred_turns or time.monotonic() < self._sequences_after:
            return
        with self._engine_paused():
            self._run_sequences_until(time.monotonic() + SEQUENCES_S)

    def _run_sequences_until(self, end: float) -> None:
        started = time.monotonic()
        results = self._runner.run(self.target.address, end)
        self.totals.sequence_s += time.monotonic() - started
        self._sequences_after = time.monotonic() + (SEQUENCES_SHARE - 1) * max(
            0.0, time.monotonic() - started - SEQUENCES_S
        )
        self._sequences_run = [name for name, _ in results]
        for name, result in results:
            self.totals.sequences += result.finished or result.violation is not None
            if result.violation is not None:
                self._suspect_sequence(name, result)

    def _next_sequence(self) -> str:
        return f"{self._stream.rng.choice(self._sequences)}:{self._stream.rng.getrandbits(32):x}"

    def _handle_slow(self) -> None:
        """Have slow cases sent alone. A target that restarts quickly is restarted instead of waiting for them."""
        slow, self._slow_cases = self._slow_cases, []
        can_restart = self.target.restarts_at_once
        stuck = [case for case in self._engine.stuck(STUCK_S) if not self.triage.is_known_hang(case)]
        for case in [*slow, *stuck] if can_restart else slow:
            if case.mutation != NO_MUTATION and not self.totals.ended:
                self._stream.suspended.add(case.kind)
                self._suspect_slow(case)
        if stuck and can_restart:
            self._restart()

    def _compare(self) -> None:
        """Send some read requests to both targets, if there are two."""
        if not self.against or self.totals.ended:
            return
        started, ours = time.monotonic(), version_ranges(self.served)
        for _ in range(COMPARISONS):
            case = random_read(self._stream.rng, ours, self._other_ranges)
            if case is None:
                continue
            with suppress(OSError):
                failure = disagreement(case, self.target.address, self.against)
                if failure is not None:
                    self._suspect_disagreement(failure, case)
        self._engine.add_pause(time.monotonic() - started)

    def _handle_death(self, failure: Failure, suspects: list[Case]) -> None:
        time.sleep(SETTLE_S)  # the target may still be writing to its log
        self._engine.close()
        self._suspend(suspects)
        self._closed_kinds.clear()
        self._suspect_sequences()
        self._suspect(failure, suspects[::-1])
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
        while self._confirmation.is_waiting(Oracle.ALIVE) and self._within_bounds():
            time.sleep(SETTLE_S)

    def _suspend(self, suspects: list[Case]) -> None:
        """Do not send the kinds of these cases, except those that once had a response, until the cause is known."""
        self._stream.suspended |= {case.kind for case in suspects if case.mutation != NO_MUTATION} - self._survived

    # -- confirmation ----------------------------------------------------------------------------

    def _suspect(self, failure: Failure, suspects: list[Case], name: str = "") -> None:
        """Hand a failure to the confirmation; `suspects` are in the order in which they were sent."""
        number, log = self.totals.cases, self.target.log_text() if failure.oracle in FATAL else ""
        self._submit(name or failure.oracle, lambda triage: triage.confirm(failure, suspects, number, log))

    def _search_leaks(self) -> None:
        """Have the next kinds of requests sent alone or in a group, if it is time for that."""
        number, now = self.totals.cases, time.monotonic()
        if self.target.has_twin and (reads := self._leaks.next_reads(now)):
            self._submit(Oracle.LEAK, partial(self._search_leaking_read, reads, number))
        elif kinds := self._leaks.next_group(now):
            self._submit(Oracle.LEAK, partial(self._search_leak, kinds, number))

    def _search_leaking_read(self, reads: dict[LeakKind, list[Case]], number: int, triage: Triage) -> Finding | None:
        finding = triage.search_leaking_read(chain.from_iterable(reads.values()), number)
        self._leaks.sent_alone(reads, time.monotonic())
        return finding

    def _search_leak(self, kinds: dict[LeakKind, list[Case]], number: int, triage: Triage) -> Finding | None:
        finding = triage.search_leak(list(kinds.values()), number)
        self._leaks.sent(kinds)
        return finding

    def _suspect_slow(self, case: Case) -> None:
        number, deadline_s = self.totals.cases, self.bounds.deadline_s
        self._submit(f"{SLOW} {case.kind}", lambda triage: triage.examine_slow(case, deadline_s, number))

    def _suspect_sequence(self, name: str, result: SequenceResult) -> None:
        number = self.totals.cases
        self._submit(name, lambda triage: triage.confirm_sequence(name, result, number))

    def _suspect_sequences(self) -> None:
        """Have those that ran last replayed: the target has died or hangs."""
        number, names, self._sequences_run = self.totals.cases, self._sequences_run, []
        if names:
            self._submit(OF_SEQUENCES, lambda triage: triage.confirm_death(names, number))

    def _suspect_disagreement(self, failure: Failure, case: Case) -> None:
        number, other = self.totals.cases, self.against
        self._submit(failure.message, lambda triage: triage.confirm_disagreement(failure, case, other, number))

    def _submit(self, name: str, job: Callable[[Triage], Finding | None]) -> None:
        """Record wall-clock time, processor time and frames until the failure whose finding is the first."""
        hit_s, hit_frames = time.monotonic() - self._started, self._engine.frames
        processor_s = time.process_time() - self._processor

        def confirm(triage: Triage) -> None:
            finding = job(triage)
            if finding is not None and self.bounds.counted in ("", finding.oracle) and not self.totals.hit_s:
                self.totals.hit_s, self.totals.hit_frames = hit_s, hit_frames
                self.totals.hit_processor_s = processor_s

        self._confirmation.submit(name, confirm)

    @contextmanager
    def _engine_paused(self) -> Iterator[None]:
        """Pause the engine's deadlines meanwhile, and reconnect it if the target was restarted."""
        started, restarts, self._is_paused = time.monotonic(), self.target.restarts, True
        self._stalls.pause(paused=True)
        yield
        self._new_units()  # what ran meanwhile reached this code, not the requests of the engine
        self._stalls.pause(paused=False)
        self._is_paused = False
        if self.target.restarts != restarts:
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
        if self.coverage.note((case.key, case.version, case.field, case.mutation, outcome_text)):
            self.corpus.note(case, outcome_text)
        # The size of a response by powers of two is its shape: more elements, or other ones.
        response = case.key, case.version, outcome_text, len(answer).bit_length()
        is_new = response not in self._responses and len(self._responses) < RESPONSES_MAX
        if is_new:
            self._responses.add(response)
        if self.bounds.guided:
            self._build_on(case, answer, is_new=is_new)
        if self.counters is not None:
            self._read_counters(case)

    def _build_on(self, case: Case, answer: bytes, *, is_new: bool) -> None:
        """Keep a request with a new response, and the values in it; and those in some other responses."""
        if is_new:
            self._stream.keep(case.key, case.version, case.frames[-1])
        self._responses_read += 1
        if answer and case.key in APIS and (is_new or self._responses_read % READ_EVERY == 0):
            with suppress(DecodeError):
                _, body = decode_response(APIS[case.key], case.version, answer)
                self._stream.returned.note(case.key, message_layout(APIS[case.key].response, case.version), body)

    def _read_counters(self, case: Case) -> None:
        """Reward the requests since the last reading if the target has executed new code."""
        self._answered.append(case)
        if len(self._answered) < READ_COUNTERS_EVERY:
            return
        if self._new_units() and self.bounds.guided:
            self._rewarded += 1
            self._stream.reward([*self._answered, *self._engine.in_flight()])  # one of them may be running
        self._answered = []

    def _new_units(self) -> int:
        """Return how much code the target has executed for the first time since the last reading."""
        if self.counters is None or self.target.process is None:
            return 0
        return self.counters.new_units(self.target.process.pid)

    def _on_failure(self, failure: Failure, case: Case, history: list[Case]) -> None:
        if self.triage.is_reported(failure, case):
            return
        if failure.oracle is Oracle.CORRELATION and self.triage.is_known_hang(case):
            return  # a known hang: the response is missing, not out of order
        until = next((n for n, sent in enumerate(history) if sent is case), len(history) - 1)
        suspects = history[: until + 1] or [case]
        self._failures.append((failure, suspects, f"{failure.oracle} {case.key} {case.version} {failure.message}"))

    def _on_stall(self, waited_s: float) -> None:
        """Keep the requests in flight as suspects; called by the thread of the watch."""
        if not self._is_paused:
            with suppress(RuntimeError, IndexError):  # the engine changed its connections meanwhile
                self._stalled.append((waited_s, self._engine.in_flight()))

    def _on_slow(self, case: Case) -> None:
        self._slow_cases.append(case)

    # -- persistence --------------------------------------------------------------------------------

    def _persist_if_due(self) -> None:
        started = time.monotonic()
        if len(self.triage.findings) > self._persisted_findings or started - self._persisted > self._persist_every_s:
            self.persist()
            self._persist_every_s = max(PERSIST_EVERY_S, PERSIST_SHARE * (time.monotonic() - started))

    def persist(self) -> None:
        """Write everything that another run needs to continue."""
        self._persisted, self._persisted_findings = time.monotonic(), len(self.triage.findings)
        done, (memory, _) = self.state, self._own.memory()
        self.coverage.mark(done.seconds + self.totals.seconds, done.cases + self.totals.cases)
        done.memory.append((round(done.seconds + self.totals.seconds, 1), memory // MEGABYTE))
        state = State(
            seed=self.seed, runs=done.runs + 1, cases=done.cases + self.totals.cases,
            sequences=done.sequences + self.totals.sequences, seconds=done.seconds + self.totals.seconds,
            avoid=sorted(self._stream.avoided), left_alone=sorted(self._stream.left_alone),
            seen=sorted(list(row) for row in self.triage.signatures),
            findings=done.findings + [self._row(row) for row in self.triage.findings], memory=done.memory,
        )  # fmt: skip
        write_state(self.folder, state, self.coverage, self.corpus)

    def _row(self, finding: Finding) -> dict[str, Any]:
        return {
            "id": finding.id, "oracle": finding.oracle, "api": finding.api, "version": finding.version,
            "message": finding.message, "place": finding.place, "reproduced": finding.reproduced,
            "case": self.state.cases + finding.case,
            "path": str(self.folder / finding.id / FILE),
        }  # fmt: skip

    def summary(self) -> dict[str, Any]:
        totals = self.totals
        rate = round(totals.cases / totals.sending_s, 1) if totals.sending_s else 0.0
        return {
            "target": self.target.name, "cases": totals.cases, "cases_per_second": rate,
            "frames": self._engine.frames,
            "frames_per_second": round(self._engine.frames / totals.sending_s, 1) if totals.sending_s else 0.0,
            "sequences": totals.sequences,
            "sequences_per_second": round(totals.sequences / totals.sequence_s, 1) if totals.sequence_s else 0.0,
            "seconds": round(totals.seconds, 1), "seed": self.seed,
            "ended": totals.ended, "restarts": self.target.restarts, "coverage": len(self.coverage.points),
            "responses": len(self._responses),
            "memory_peak_mb": self._own.memory()[1] // MEGABYTE,
            "skipped": skipped_sequences(), "unconfirmed": self.triage.unconfirmed, "alike": self.triage.alike,
            "avoided": [f"{api_name(key)} {mutation} {place}".rstrip() for key, mutation, place in
                        sorted(self._stream.avoided)],
            "left_alone": [f"{api_name(key)} v{version}" for key, version in sorted(self._stream.left_alone)],
            "guidance": self._guidance(), "oracles": self._oracles(), "unexamined": self._unexamined(),
            "findings": [self._row(finding) for finding in self.triage.findings],
        }  # fmt: skip

    def _unexamined(self) -> list[str]:
        """Return the failures that were seen and not examined; a search for slow requests or leaks is none."""
        return [name for name in self._confirmation.unexamined() if name not in SEARCHES and not name.startswith(SLOW)]

    def _guidance(self) -> dict[str, int]:
        """Return how often the counters of the target were read, and how often that led to further mutations."""
        return {"readings": self.counters.readings if self.counters else 0, "rewarded": self._rewarded}

    def _oracles(self) -> dict[str, str]:
        """Return what the oracles over the whole run covered."""
        return {
            Oracle.REFUSE: f"{self.totals.malformed:,} malformed requests judged",
            Oracle.LEAK: self._leaks.report(),
            Oracle.STALL: self._stalls.report(),
            Oracle.STATE: self._states.report(),
        }
