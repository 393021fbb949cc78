"""Replay a finding: send its steps again and check whether the same oracle fails."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.connection import WaitLimit
from highwater.conformance.failures import TargetFailure, Unsupported
from highwater.conformance.targets.external import ExternalTarget
from highwater.errors import UsageError
from highwater.fuzz.wire.connection import advertised, connect, version_ranges
from highwater.fuzz.wire.examination.relations import Relations
from highwater.fuzz.wire.findings import Finding
from highwater.fuzz.wire.generate.cases import Case, Ends
from highwater.fuzz.wire.generate.requests import EMPTY_TOPIC, TOPICS
from highwater.fuzz.wire.oracles.freed_memory import use_freed_memory
from highwater.fuzz.wire.oracles.leaks import kind_of_read, seems_to_keep, slope, slope_of_read
from highwater.fuzz.wire.oracles.responses import (
    DEADLINE_S,
    PARKED_S,
    Failure,
    Oracle,
    judge,
    reply_timeout,
)
from highwater.fuzz.wire.oracles.stalls import StallWatch
from highwater.fuzz.wire.oracles.states import StateWatch, is_refusal
from highwater.fuzz.wire.target import FuzzTarget
from highwater.reference.client.connection import Connection, ConnectionClosedError, ReplyTimeoutError
from highwater.reference.wire.errors import FrameSizeError, WireError
from highwater.reference.wire.messages.metadata import FindCoordinatorRequest

SEGMENT_S: Final = 0.01
"""Pause between segments, so that the target reads each with a separate call."""
SOCKET_TURNS: Final = 150
"""Repetitions of the steps: a leak exceeds its threshold only after many."""
CREATE_TOPICS: Final = 19
TRANSACTION: Final = 1
"""Type of a coordinator."""
PREPARED_S: Final = 4.0
"""The longest wait for a topic or a coordinator."""
ANY_KEY: Final = "fuzz-any"
LATE_S: Final = 0.6
"""How long a replay waits for a crash after the last response: some brokers answer before they store a change."""
REPEATED_S: Final = 0.25
"""Deadline of a request that is repeated thousands of times."""
REPEATED, SLOWEST_S = 10, 0.01
"""Requests that are timed, and the longest time for each of them."""
RESPONSE_ORACLES: Final = frozenset({Oracle.DECODE, Oracle.CORRELATION, Oracle.ERROR_CODE, Oracle.REFUSE})
"""Oracles on a single response, which need no check of the process."""


Measured = TypeVar("Measured")


def prepare(address: str) -> None:
    """Create the topics that cases name, and the coordinators.

    A freshly started target would refuse requests that another accepts, before it looks at what they contain.
    """
    with suppress(OSError, TargetFailure, Unsupported, UsageError):
        limit = WaitLimit(PREPARED_S, PREPARED_S)
        cluster = Cluster(ExternalTarget(address), version_ranges(advertised(address)), wait_limit=limit, keep=True)
        try:
            for name in (*TOPICS, EMPTY_TOPIC) if CREATE_TOPICS in cluster.advertised else ():
                if (found := cluster.describe(name)) is None or found.error_code:
                    cluster.create_topic(name=name)
            # Some targets' FindCoordinator knows groups only.
            with suppress(TargetFailure, Unsupported), cluster.connect() as broker:
                broker.call(FindCoordinatorRequest(key=ANY_KEY, key_type=TRANSACTION), 1)
            cluster.coordinator(ANY_KEY)
        finally:
            cluster.close()


def replay_finding(fuzz_target: FuzzTarget, finding: Finding, deadline_s: float = DEADLINE_S) -> Failure | None:
    """Replay a finding against the target; return the failure, or None."""
    prepare(fuzz_target.address)
    settle_s = LATE_S if finding.oracle is Oracle.ALIVE else 0.0
    return Replay(fuzz_target, deadline_s, settle_s=settle_s).run(finding.cases(), finding.oracle)


def stall_of(longest_s: float) -> Failure:
    return Failure(Oracle.STALL, f"a healthy connection waited for {longest_s:.1f} s")


@dataclass
class Replay:
    """Sends cases in order, on one connection for as long as it stays open; then waits `settle_s` for a crash.

    `all_refused` is False once a case was not refused.
    """

    target: FuzzTarget
    deadline_s: float = DEADLINE_S
    parked_s: float = PARKED_S
    settle_s: float = 0.0
    all_refused: bool = field(default=True, init=False)
    _early: bytes | None = field(default=None, init=False)
    """A response that came in the place of one that is not due: it belongs to the next frame."""

    def run(self, cases: list[Case], oracle: Oracle | None = None) -> Failure | None:
        """Return the first failure. `oracle` is the expected one: leaks are only checked if it is DESCRIPTORS."""
        self.target.start_measuring()
        failure = None
        for _ in range(SOCKET_TURNS if oracle is Oracle.DESCRIPTORS else 1):
            failure = failure or self._watched(cases, oracle)
        if failure is not None and failure.oracle is oracle in RESPONSE_ORACLES:
            return failure
        dead = self.target.why_dead_within(self.settle_s)
        if dead is not None:
            return Failure(Oracle.ALIVE, f"the target {dead}")
        if (stack := self.target.logged_exception()) is not None:
            return Failure(Oracle.STACK, f"a handler raised an exception at {stack}")
        if oracle is Oracle.DESCRIPTORS and (leaked_sockets := self.target.leaked_sockets(0)) is not None:
            return Failure(Oracle.DESCRIPTORS, leaked_sockets)
        excess_memory = self.target.excess_memory()
        if excess_memory is not None and (failure is None or oracle is Oracle.MEMORY):
            return Failure(Oracle.MEMORY, excess_memory)
        return failure

    def _watched(self, cases: list[Case], oracle: Oracle | None) -> Failure | None:
        """Send the cases in the way in which the expected oracle observes the broker."""
        if oracle is Oracle.LEAK:
            kept = self.kept_memory(cases)
            return None if kept is None else Failure(Oracle.LEAK, f"keeps {kept / 1024:.1f} kB for each request")
        if oracle is Oracle.RELATION:
            with Relations(self.target.address) as relations, suppress(OSError):
                return relations.compare(cases)
            return None
        if oracle is Oracle.STALL:
            with StallWatch(
                self.target.address, self.target.stall_limit_s, self.target.waited_for_processor_s
            ) as watch:
                watch.wait_for_probe()
                failure = self._steps(cases)
            if watch.stalls:
                return stall_of(watch.longest_s)
            return failure
        if oracle is Oracle.STATE:
            changed = StateWatch(version_ranges(advertised(self.target.address))).compare(
                self.target.address, cases, self.are_refused
            )
            return (
                Failure(Oracle.STATE, f"changed by a request that is refused or only reads: {changed}")
                if changed
                else None
            )
        return self._steps(cases, sends_all=oracle is Oracle.ALIVE)

    def kept_memory(self, cases: list[Case], kinds: int = 1) -> float | None:
        """Return the bytes that the target keeps for each of the requests, if that is too much for so many kinds."""
        kept = slope(self.target.memory, self._steps, cases, kinds)
        is_read = all(kind_of_read(case, ()) is not None for case in cases)
        if kept is None and kinds == 1 and is_read:
            self.use_freed_memory()
            return self._repeated(lambda send: slope_of_read(self.target.memory, send, cases))
        return kept

    def use_freed_memory(self) -> None:
        """Have the target use the memory that it has freed, as far as it accepts the requests for that."""
        with suppress(OSError, WireError), connect(self.target.address) as connection:
            use_freed_memory(connection, self.target.memory)

    def seems_to_keep(self, case: Case) -> bool:
        """Return True if the memory seems to grow with each repetition of a request that only reads."""
        if not self._repeated(lambda send: _is_quick(send, case)):
            return False
        return self._repeated(lambda send: seems_to_keep(self.target.memory, send, case)) or False

    def _repeated(self, measure: Callable[[Callable[[list[Case]], None]], Measured]) -> Measured | None:
        """Return what `measure` returns; None if a request that it sends is not answered.

        All requests that it sends together are in flight at once, and responses are not judged: it sends thousands.
        """
        try:
            with connect(self.target.address, REPEATED_S) as connection:

                def send(cases: list[Case]) -> None:
                    connection.send_bytes(b"".join(case.frames[0] for case in cases))
                    for _ in cases:
                        connection.receive_frame(REPEATED_S)

                return measure(send)
        except (OSError, ConnectionClosedError, ReplyTimeoutError, FrameSizeError):
            return None

    def are_refused(self, cases: list[Case]) -> bool:
        """Send the cases; return True if each was refused."""
        self.all_refused = True
        self._steps(cases)
        return self.all_refused

    def _steps(self, cases: list[Case], *, sends_all: bool = False) -> Failure | None:
        """Send the cases; return the first failure. `sends_all`: also those after it, which may be what is fatal."""
        connection: Connection | None = None
        half_open: list[Connection] = []
        first: Failure | None = None
        try:
            for case in cases:
                connection = connection or connect(self.target.address, self.deadline_s)
                failure, stays = self._step(connection, case)
                first = first or failure
                if first is not None and not sends_all:
                    return first
                if case.ends is Ends.LEAVE:
                    half_open.append(connection)
                elif not stays:
                    connection.close()
                if not stays:
                    connection = None
        except OSError as error:
            return Failure(Oracle.ALIVE, f"the target refuses connections ({error.strerror or error})")
        finally:
            for left in (connection, *half_open):
                if left is not None:
                    left.close()
        return first

    def _step(self, connection: Connection, case: Case) -> tuple[Failure | None, bool]:
        """Send one case; return its failure, and whether the connection can be used again."""
        try:
            for number, segment in enumerate(case.segments()):
                if number:
                    time.sleep(SEGMENT_S)
                connection.send_bytes(segment)
            if case.ends is Ends.FINISH:
                connection.finish_sending()
            if case.ends in (Ends.LEAVE, Ends.RESET):
                return None, False
            self._early = None
            for number, frame in enumerate(case.frames, 1):
                failure, stays = self._answer(connection, frame, is_last=number == len(case.frames))
                if failure is not None or not stays:
                    return failure, False
        except ConnectionClosedError:
            self.all_refused &= is_refusal(case.frames[-1], "closed")
            return None, False
        except FrameSizeError as error:
            return Failure(Oracle.DECODE, f"a malformed response: {error}"), False
        except ReplyTimeoutError:
            return Failure(Oracle.DEADLINE, "does not read from the connection"), False
        return None, case.ends is Ends.OPEN

    def _answer(self, connection: Connection, frame: bytes, *, is_last: bool) -> tuple[Failure | None, bool]:
        allowed = reply_timeout(frame, self.deadline_s)
        wait_s = min(allowed.wait_s, self.parked_s) if allowed.silent_ok else allowed.wait_s
        try:
            answer, self._early = self._early or connection.receive_frame(wait_s), None
            if allowed.silent_ok and not allowed.blocks and frame[8:12] != answer[:4] and not is_last:
                self._early = answer
                return None, True
            failure, codes = judge(frame, answer)
            self.all_refused &= is_refusal(frame, codes)
            return failure, True
        except ReplyTimeoutError:
            self.all_refused = False
            if allowed.silent_ok:
                return None, not allowed.blocks
            return Failure(Oracle.DEADLINE, f"neither answered nor closed within {allowed.wait_s:g} s"), False


def _is_quick(send: Callable[[list[Case]], None], case: Case) -> bool:
    """Return False for a request that waits, such as a long poll: thousands of repetitions would take minutes."""
    started = time.monotonic()
    send([case] * REPEATED)
    return time.monotonic() - started < REPEATED * SLOWEST_S
