"""The fuzzing loop: send, judge, look at the process, hold an inquest on what broke, and go on."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from highwater.errors import UsageError
from highwater.fuzz.wire.agreement import disagreement, question
from highwater.fuzz.wire.connection import advertised, newer_than_ours
from highwater.fuzz.wire.corpus import Corpus, Coverage, State, read_state, write_state
from highwater.fuzz.wire.engine import SLOW_S, Engine, Hooks, TargetDown
from highwater.fuzz.wire.findings import FILE, Finding, api_name
from highwater.fuzz.wire.generate.cases import NOTHING, Case
from highwater.fuzz.wire.generate.stream import Stream
from highwater.fuzz.wire.oracles import DEADLINE_S, Broken, Oracle
from highwater.fuzz.wire.process import MEGABYTE, Process
from highwater.fuzz.wire.sequences.run import Lanes, possible, skipped, spoken
from highwater.fuzz.wire.target import Lab
from highwater.fuzz.wire.triage import SHRINK_S, Inquest

SOUND_SHARE: Final = 0.25
"""Sound requests keep the target in interesting states."""
TURN_S: Final = 0.25
SEQUENCES_S: Final = 0.08
QUESTIONS: Final = 20
PERSIST_EVERY_S: Final = 10.0
PERSIST_SHARE: Final = 50
"""What an hour has covered takes seconds to write: then it is written less often."""
SOCKETS_EVERY_S: Final = 5.0
MAX_FINDINGS: Final = 200
QUEUED_MAX: Final = 500
PUT_OFF_MAX: Final = 12
"""Turns that plays wait for a busy target: some are always busy."""
SETTLE_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Bounds:
    """Whichever comes first ends the run; `rate` is the most cases in a second."""

    seconds: float = 30.0
    cases: int = 10_000_000
    rate: float = 50_000.0
    findings: int = MAX_FINDINGS
    deadline_s: float = DEADLINE_S
    sound_share: float = SOUND_SHARE
    shrink_s: float = SHRINK_S


@dataclass(slots=True)
class Totals:
    cases: int = 0
    sound: int = 0
    sequences: int = 0
    sending_s: float = 0.0
    playing_s: float = 0.0
    seconds: float = 0.0
    hit_s: float = 0.0
    hit_processor_s: float = 0.0
    hit_frames: int = 0
    ended: str = ""


Watcher = Callable[["Session"], None]


@dataclass
class Session:
    """One run. The findings' folder keeps its state, so that another run can go on with `resume`."""

    lab: Lab
    folder: Path
    seed: int
    bounds: Bounds = field(default_factory=Bounds)
    resume: bool = False
    against: str = ""
    totals: Totals = field(default_factory=Totals)
    coverage: Coverage = field(default_factory=Coverage)
    corpus: Corpus = field(default_factory=Corpus)

    def __post_init__(self) -> None:
        dead = self.lab.why_dead()
        if dead is not None:
            raise UsageError(f"the target {dead}", where=self.lab.address, hint="is it a Kafka broker, and running?")
        self.state = self._read_state()
        self.inquest = Inquest(self.lab, self.folder, self.seed, self.lab.name)
        self.inquest.shrink_s = self.bounds.shrink_s
        self.inquest.deadline_s = min(self.inquest.deadline_s, self.bounds.deadline_s)
        self.inquest.seen = {tuple(each) for each in self.state.seen}
        self.served = advertised(self.lab.address)
        self._stream = Stream(f"{self.seed}:{self.state.runs}", self.served, self.bounds.sound_share)
        self._stream.avoided, self._stream.left_alone = set(self.state.avoid), set(self.state.left_alone)
        self._stream.left_alone |= newer_than_ours(self.lab.address)
        self._others = spoken(advertised(self.against)) if self.against else {}
        self._plays = possible(spoken(self.served))
        self._lanes = Lanes(spoken(self.served), self._next_play)
        self._slow: list[Case] = []
        self._put_off = 0
        self._broken: deque[tuple[Broken, Case, list[Case]]] = deque(maxlen=QUEUED_MAX)
        self._started = self._persisted = self._counted = time.monotonic()
        self._own = Process(os.getpid(), None)
        self._processor, self._persist_every_s, self._kept = time.process_time(), PERSIST_EVERY_S, 0
        hooks = Hooks(self._next_case, self._on_answer, self._on_broken, self._on_slow, self.inquest.is_known)
        self._engine = Engine(self.lab.address, hooks, self.bounds.deadline_s)

    def _read_state(self) -> State:
        state = read_state(self.folder) if self.resume else None
        if state is None:
            return State(seed=self.seed)
        self.coverage = Coverage.of(state.points, state.growth)
        self.corpus = Corpus.read(self.folder)
        return state

    # -- the loop --------------------------------------------------------------------------------

    def run(self, watch: Watcher = lambda session: None) -> dict[str, Any]:
        """Until a bound is met, the target is dead for good, or Ctrl-C; the object that `--json` prints."""
        self._started, self._processor = time.monotonic(), time.process_time()
        try:
            while self._goes_on():
                self._turn()
                self.totals.seconds = time.monotonic() - self._started
                self._persist_now_and_then()
                watch(self)
        except KeyboardInterrupt:
            self.totals.ended = "interrupted"
        finally:
            self._engine.close()
            self.totals.seconds = time.monotonic() - self._started
            self.persist()
        return self.summary()

    def _goes_on(self) -> bool:
        elapsed = time.monotonic() - self._started
        bounds = {
            "time": elapsed < self.bounds.seconds,
            "cases": self.totals.cases < self.bounds.cases,
            "findings": len(self.inquest.findings) < self.bounds.findings,
            "the target is dead": not self.totals.ended,
        }
        self.totals.ended = self.totals.ended or next((name for name, within in bounds.items() if not within), "")
        return not self.totals.ended

    def _turn(self) -> None:
        self.lab.begin()
        started = time.monotonic()
        left = self.bounds.seconds - (started - self._started)
        budget = min(self.bounds.cases - self.totals.cases, max(1, int(self.bounds.rate * TURN_S)))
        try:
            begun = self._engine.run(min(TURN_S, left), budget)
            self.totals.sending_s += time.monotonic() - started
            self._slow_down(begun, started)
            self._look()
        except TargetDown as down:
            self.totals.sending_s += time.monotonic() - started
            self._die(Broken(Oracle.ALIVE, f"the target {down}"), down.suspects)
        self._try_slow()
        self._play()
        self._read_log()
        self._compare()
        while self._broken and len(self.inquest.findings) < self.bounds.findings:
            self._examine(*self._broken.popleft())

    def _slow_down(self, begun: int, started: float) -> None:
        ahead = begun / self.bounds.rate - (time.monotonic() - started)
        if ahead > 0:
            time.sleep(min(ahead, TURN_S))

    def _look(self) -> None:
        """Is it alive, if it is not busy with what it owes us, and what did this turn cost it?"""
        dead = None if self._engine.is_waiting else self.lab.why_dead()
        if dead is not None:
            self._die(Broken(Oracle.ALIVE, f"the target {dead}"), self._engine.suspects())
            return
        grown = self.lab.grown()
        if grown is not None:
            suspects = self._engine.recent()
            self._engine.close()
            self._hold(Broken(Oracle.MEMORY, grown), suspects)
            self._engine.move_to(self.lab.address)
        if time.monotonic() - self._counted > SOCKETS_EVERY_S:
            self._counted = time.monotonic()
            self._engine.drain(SETTLE_S)
            leaked = self.lab.leaked(self._engine.connections)
            if leaked is not None:
                suspects = self._engine.recent()
                self._engine.close()
                self._hold(Broken(Oracle.DESCRIPTORS, leaked), suspects)
                self.lab.restart()
                self._engine.move_to(self.lab.address)

    def _read_log(self) -> None:
        """Did it close a connection because a handler broke off?"""
        stack = self.lab.broke_off()
        if stack is not None:
            with self._held_up():
                self._hold(Broken(Oracle.STACK, f"a handler broke off at {stack}"), self._engine.suspects()[::-1])

    def _play(self) -> None:
        """Conversations with a model beside them, for a share of the turn."""
        self._put_off = self._put_off + 1 if self._engine.is_waiting and self._put_off < PUT_OFF_MAX else 0
        if not self._plays or self.totals.ended or self._put_off:
            return
        with self._held_up():
            self._play_on(time.monotonic() + SEQUENCES_S)

    def _play_on(self, end: float) -> None:
        started = time.monotonic()
        played = self._lanes.play(self.lab.address, end)
        self.totals.playing_s += time.monotonic() - started
        for name, each in played:
            self.totals.sequences += each.finished or each.violation is not None
            if each.violation is not None:
                self._hit()
                self.inquest.hold_sequence(name, each, self.totals.cases)

    def _next_play(self) -> str:
        return f"{self._stream.chance.choice(self._plays)}:{self._stream.chance.getrandbits(32):x}"

    def _try_slow(self) -> None:
        """Who kept the target busy keeps it so again, alone: that is not sent any more."""
        slow, self._slow = self._slow, []
        for case in slow:
            if case.mutation != NOTHING and not self.totals.ended:
                with self._held_up():
                    started = time.monotonic()
                    broken = self.inquest.alone(case, self.bounds.deadline_s)
                    if broken is not None:
                        self._hold(broken, [case])
                    elif time.monotonic() - started > SLOW_S:
                        self._stream.avoid(case.kind)

    def _compare(self) -> None:
        """Some questions to both targets, where there are two."""
        if not self.against or self.totals.ended:
            return
        started, ours = time.monotonic(), spoken(self.served)
        for _ in range(QUESTIONS):
            case = question(self._stream.chance, ours, self._others)
            if case is None:
                continue
            with suppress(OSError):
                broken = disagreement(case, self.lab.address, self.against)
                if broken is not None:
                    self.inquest.hold_disagreement(broken, case, self.against, self.totals.cases)
        self._engine.paused(time.monotonic() - started)

    def _die(self, broken: Broken, suspects: list[Case]) -> None:
        time.sleep(SETTLE_S)  # its last words may still be under way to its log
        self._hold(broken, suspects[::-1])
        if self.lab.why_dead() is not None and not self.lab.revive():
            self.totals.ended = "the target is dead"
        self._engine.move_to(self.lab.address)

    def _hit(self) -> None:
        """Time, ours on the processor too, and frames to what may become the first finding."""
        if not self.inquest.findings:
            self.totals.hit_s, self.totals.hit_frames = time.monotonic() - self._started, self._engine.frames
            self.totals.hit_processor_s = time.process_time() - self._processor

    def _hold(self, broken: Broken, suspects: list[Case]) -> Finding | None:
        self._hit()
        finding = self.inquest.hold(broken, suspects, self.totals.cases)
        for case in self.inquest.convicted:
            self._stream.avoid(case.kind)
        self._stream.left_alone |= self.inquest.condemned
        return finding

    def _examine(self, broken: Broken, case: Case, history: list[Case]) -> None:
        if broken.oracle is Oracle.CORRELATION and self.inquest.is_known(case):
            return  # it was dropped, and not answered out of turn
        until = next((n for n, each in enumerate(history) if each is case), len(history) - 1)
        with self._held_up():
            self._hold(broken, history[: until + 1] or [case])

    @contextmanager
    def _held_up(self) -> Iterator[None]:
        """The engine waits meanwhile, and the target may be another process then."""
        started, restarts = time.monotonic(), self.lab.restarts
        yield
        if self.lab.restarts != restarts:
            self._engine.move_to(self.lab.address)
        self._engine.paused(time.monotonic() - started)

    # -- what the engine asks and tells ------------------------------------------------------------

    def _next_case(self) -> Case:
        self.totals.cases += 1
        return self._stream.next()

    def _on_answer(self, case: Case, came: tuple[int, ...] | str) -> None:
        told = came if isinstance(came, str) else " ".join(map(str, came)) or "0"
        self.totals.sound += case.mutation == NOTHING
        if self.coverage.note((case.key, case.version, case.field, case.mutation, told)):
            self.corpus.note(case, told)

    def _on_broken(self, broken: Broken, case: Case, history: list[Case]) -> None:
        if not self.inquest.is_seen(broken, case):
            self._broken.append((broken, case, history))

    def _on_slow(self, case: Case) -> None:
        self._slow.append(case)

    # -- what stays --------------------------------------------------------------------------------

    def _persist_now_and_then(self) -> None:
        started = time.monotonic()
        if len(self.inquest.findings) > self._kept or started - self._persisted > self._persist_every_s:
            self.persist()
            self._persist_every_s = max(PERSIST_EVERY_S, PERSIST_SHARE * (time.monotonic() - started))

    def persist(self) -> None:
        """Everything that another run needs to go on."""
        self._persisted, self._kept = time.monotonic(), len(self.inquest.findings)
        done, (memory, _) = self.state, self._own.memory()
        self.coverage.mark(done.seconds + self.totals.seconds, done.cases + self.totals.cases)
        done.memory.append((round(done.seconds + self.totals.seconds, 1), memory // MEGABYTE))
        state = State(
            seed=self.seed, runs=done.runs + 1, cases=done.cases + self.totals.cases,
            sequences=done.sequences + self.totals.sequences, seconds=done.seconds + self.totals.seconds,
            avoid=sorted(self._stream.avoided), left_alone=sorted(self._stream.left_alone),
            seen=sorted(list(each) for each in self.inquest.seen),
            findings=done.findings + [self._row(each) for each in self.inquest.findings], memory=done.memory,
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
            "target": self.lab.name, "cases": totals.cases, "cases_per_second": rate,
            "frames": self._engine.frames,
            "frames_per_second": round(self._engine.frames / totals.sending_s, 1) if totals.sending_s else 0.0,
            "sequences": totals.sequences,
            "sequences_per_second": round(totals.sequences / totals.playing_s, 1) if totals.playing_s else 0.0,
            "seconds": round(totals.seconds, 1), "seed": self.seed,
            "ended": totals.ended, "restarts": self.lab.restarts, "coverage": len(self.coverage.points),
            "memory_peak_mb": self._own.memory()[1] // MEGABYTE,
            "skipped": skipped(), "unconfirmed": self.inquest.unconfirmed, "alike": self.inquest.alike,
            "avoided": [f"{api_name(key)} {mutation} {place}".rstrip() for key, mutation, place in
                        sorted(self._stream.avoided)],
            "left_alone": [f"{api_name(key)} v{version}" for key, version in sorted(self._stream.left_alone)],
            "findings": [self._row(each) for each in self.inquest.findings],
        }  # fmt: skip
