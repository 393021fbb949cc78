"""Many frames in flight over many connections, each answer held to its request.

Theory of operation
-------------------
The engine keeps up to IN_FLIGHT frames on each of CONNECTIONS non-blocking connections, with one selector. A broker
answers the requests of a connection in order, so the oldest unanswered frame is its *head*: it alone can be late, and
when the target closes the connection it alone is the cause. Frames behind the head are innocent and are sent again on a
new connection; behind a kind of case that has ended connections before, nothing is sent.

A connection is idle, waiting (its head has a deadline), or half open (a case that ends without a reply). A reply is
matched with the head and judged by the oracles; a wrong reply, a missed deadline or a dead target becomes a `Broken`
that the session triages. The engine never decides what a finding is.

When no connection is accepted any more the target is down: `TargetDown` carries the frames that were sent last, newest
first, since one of them killed it.

Invariants: a frame is in flight on one connection only; a reply is never matched with a frame that expects none
(acks=0); every deadline is that of a head.

Deliberately absent: threads (one selector is faster than the target), retries of a case whose reply was wrong (the
session confirms it on a fresh connection), and any knowledge of what the bytes mean beyond key, version and
correlation id.
"""

import errno
import os
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn

from highwater.fuzz.wire.generate.cases import Case, Ends, Kind
from highwater.fuzz.wire.oracles import CORRELATION_END, DEADLINE_S, Broken, Oracle, Patience, judge, patience
from highwater.reference.wire.errors import FrameSizeError
from highwater.reference.wire.framing import FrameReader

CONNECTIONS: Final = 24
IN_FLIGHT: Final = 6
"""Of a connection: more would be sent in vain when the target closes it."""
ANSWER_MAX: Final = 128 * 1024 * 1024
CHUNK: Final = 1 << 17
POLL_S: Final = 0.01
IMPATIENCE_S: Final = 0.02
SLOW_S: Final = 0.5
"""The target is busy, and gets nothing more to do until it has answered."""
KNOWN_DEADLINE_S: Final = 0.3
"""For what is known to hang: it need not be proven again."""
SEALED_S: Final = 1.0
"""After the last answer on a connection that we have ended."""
HALF_OPEN_MAX: Final = 40
SUSPECTS: Final = 2_000
"""More than a turn sends."""
NO_LINGER: Final = struct.pack("ii", 1, 0)


class TargetDown(Exception):
    """It takes no connections; `suspects` were sent last, the latest first."""

    def __init__(self, why: str, suspects: list[Case]) -> None:
        super().__init__(why)
        self.suspects = suspects


@dataclass(slots=True)
class Flight:
    """One frame of a case; `last` is that case's last one."""

    case: Case
    frame: bytes
    last: bool
    patience: Patience | None = None


@dataclass(slots=True, eq=False)
class Wire:
    """One connection. `sent` are the cases that it has carried, to be sent again with a finding."""

    socket: socket.socket
    reader: FrameReader = field(default_factory=lambda: FrameReader(ANSWER_MAX))
    flights: deque[Flight] = field(default_factory=deque)
    unsent: deque[bytes] = field(default_factory=deque)
    sent: deque[Case] = field(default_factory=lambda: deque(maxlen=IN_FLIGHT * 2))
    head_since: float = 0.0
    sealed: bool = False  # nothing more may be sent
    apart: bool = False  # what it carries is cut into segments, which must stay apart
    is_slow: bool = False  # its head has waited for long


@dataclass
class Hooks:
    """Who wants to know. `on_answer` gets the reply's error codes, or the word for what came instead."""

    next_case: Callable[[], Case]
    on_answer: Callable[[Case, tuple[int, ...] | str], None]
    on_broken: Callable[[Broken, Case, list[Case]], None]
    on_slow: Callable[[Case], None] = lambda case: None
    is_known: Callable[[Case], bool] = lambda case: False


class Engine:
    """Against one address, until `run`'s time is over."""

    def __init__(self, address: str, hooks: Hooks, deadline_s: float = DEADLINE_S) -> None:
        self.hooks, self.deadline_s = hooks, deadline_s
        self.frames = 0
        """Sent for the first time."""
        self._ends: set[Kind] = set()
        """What the target hung up on when it was sent last."""
        self._selector = selectors.DefaultSelector()
        self._wires: dict[int, Wire] = {}
        self._again: deque[Case] = deque()
        self._half_open: deque[socket.socket] = deque()
        self._recent: deque[Case] = deque(maxlen=SUSPECTS)
        self._closers: deque[Case] = deque(maxlen=SUSPECTS)
        self._behind: deque[Case] = deque(maxlen=SUSPECTS)
        self.move_to(address)

    def move_to(self, address: str) -> None:
        """The target listens elsewhere now, or anew."""
        self.close()
        host, _, port = address.rpartition(":")
        family, _, _, _, place = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        self._family, self._address = family, place

    def close(self) -> None:
        for wire in list(self._wires.values()):
            self._drop(wire)
        while self._half_open:
            self._half_open.popleft().close()
        self._closers.clear()
        self._behind.clear()
        self._recent.clear()
        self._again.clear()

    @property
    def connections(self) -> int:
        return len(self._wires) + len(self._half_open)

    def run(self, seconds: float, budget: int) -> int:
        """Send at most so many cases for so long; TargetDown when it takes no connections. Returns the cases begun."""
        end, begun, now = time.monotonic() + seconds, 0, time.monotonic()
        while now < end and begun < budget:
            while len(self._wires) < CONNECTIONS:
                self._connect()
            is_busy = any(wire.is_slow for wire in self._wires.values())
            for wire in list(self._wires.values()):
                if len(wire.flights) <= IN_FLIGHT // 2 and not is_busy:
                    begun += self._fill(wire)
            self._poll(POLL_S)
            now = time.monotonic()
            self._sweep(now)
        return begun

    @property
    def is_waiting(self) -> bool:
        """For an answer that is due for long: the target may be busy with it."""
        now = time.monotonic()
        heads = ((wire, wire.flights[0]) for wire in self._wires.values() if wire.flights)
        return any(now - wire.head_since > SLOW_S and not self._may_be_silent(head) for wire, head in heads)

    def paused(self, seconds: float) -> None:
        """We were away for so long: nobody can be late for that."""
        for wire in self._wires.values():
            wire.head_since += seconds

    def drain(self, seconds: float) -> None:
        """Wait for the answers that are under way, and send nothing new."""
        end = time.monotonic() + seconds
        while any(wire.flights for wire in self._wires.values()) and time.monotonic() < end:
            self._poll(POLL_S)
            self._sweep(time.monotonic())

    # -- connections -----------------------------------------------------------------------------

    def _connect(self) -> None:
        made = socket.socket(self._family)
        made.setblocking(False)
        error = made.connect_ex(self._address)
        if error not in (0, errno.EINPROGRESS):
            made.close()
            self._refused(os.strerror(error))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._wires[made.fileno()] = wire = Wire(made)
        self._selector.register(made, selectors.EVENT_READ, wire)

    def _refused(self, why: str) -> NoReturn:
        raise TargetDown(f"refuses connections ({why})", self.suspects())

    def suspects(self) -> list[Case]:
        """The likeliest first: what was at the head of a connection that closed of late, or still is, or behind one.

        Who reads ahead of its answers may die of what no answer is due to yet.
        """
        heads = [wire.flights[0].case for wire in self._wires.values() if wire.flights]
        waiting = [flight.case for wire in self._wires.values() for flight in wire.flights]
        every = [*reversed(self._closers), *heads, *reversed(self._behind), *waiting]
        return list({id(case): case for case in every}.values())

    def recent(self) -> list[Case]:
        """What was sent last, the latest last."""
        return list(self._recent)

    def _drop(self, wire: Wire) -> None:
        """Its other cases go again: they were not to blame."""
        if self._wires.pop(wire.socket.fileno(), None) is None:
            return
        self._selector.unregister(wire.socket)
        wire.socket.close()
        waiting: dict[int, Case] = {id(flight.case): flight.case for flight in wire.flights}
        self._again.extend(waiting.values())
        self._behind.extend(waiting.values())
        wire.flights.clear()

    # -- out -------------------------------------------------------------------------------------

    def _fill(self, wire: Wire) -> int:
        begun = 0
        while self._has_room(wire):
            if self._again:
                case = self._again.popleft()
            else:
                case = self.hooks.next_case()
                begun += 1
                self.frames += len(case.frames)
            self._launch(wire, case)
        if wire.unsent:
            self._write(wire)
        return begun

    def _has_room(self, wire: Wire) -> bool:
        if wire.sealed or len(wire.flights) >= IN_FLIGHT:
            return False
        return not wire.flights or wire.flights[-1].case.kind not in self._ends

    def _launch(self, wire: Wire, case: Case) -> None:
        wire.sent.append(case)
        self._recent.append(case)
        if not wire.flights:
            wire.head_since = time.monotonic()
        if case.ends in (Ends.OPEN, Ends.FINISH):
            last = len(case.frames) - 1
            wire.flights.extend(Flight(case, frame, number == last) for number, frame in enumerate(case.frames))
        if case.cuts:
            wire.unsent.extend(case.segments())
            wire.apart = True
        else:
            wire.unsent.extend(case.frames)
        wire.sealed = case.ends is not Ends.OPEN

    def _write(self, wire: Wire) -> None:
        try:
            if len(wire.unsent) > 1 and not wire.apart:
                whole = b"".join(wire.unsent)
                wire.unsent.clear()
                wire.unsent.append(whole)
            while wire.unsent:
                data = wire.unsent.popleft()
                sent = wire.socket.send(data)
                if sent < len(data):
                    wire.unsent.appendleft(data[sent:])
                    self._selector.modify(wire.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, wire)
                    return
        except BlockingIOError:
            wire.unsent.appendleft(data)
            self._selector.modify(wire.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, wire)
            return
        except ConnectionRefusedError as error:
            self._refused(str(error.strerror))
        except OSError:
            self._closed(wire)
            return
        if wire.sealed:
            self._end(wire)

    def _end(self, wire: Wire) -> None:
        """All is sent, and the last case says how that ends."""
        case = wire.sent[-1]
        if case.ends is Ends.FINISH:
            with suppress(OSError):
                wire.socket.shutdown(socket.SHUT_WR)
        elif case.ends is Ends.RESET:
            with suppress(OSError):
                wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            self.hooks.on_answer(case, "reset")
            self._drop(wire)
        elif case.ends is Ends.LEAVE and not wire.flights:
            self._leave(wire, case)

    def _leave(self, wire: Wire, case: Case) -> None:
        self.hooks.on_answer(case, "left")
        kept = wire.socket.dup()
        self._drop(wire)
        self._half_open.append(kept)
        if len(self._half_open) > HALF_OPEN_MAX:
            self._half_open.popleft().close()

    # -- in --------------------------------------------------------------------------------------

    def _poll(self, seconds: float) -> None:
        for key, events in self._selector.select(seconds):
            wire: Wire = key.data
            if events & selectors.EVENT_WRITE:
                self._selector.modify(wire.socket, selectors.EVENT_READ, wire)
                self._write(wire)
            if events & selectors.EVENT_READ and wire.socket.fileno() in self._wires:
                self._read(wire)

    def _read(self, wire: Wire) -> None:
        try:
            data = wire.socket.recv(CHUNK)
        except BlockingIOError:
            return
        except ConnectionRefusedError as error:
            self._refused(str(error.strerror))
        except OSError:
            data = b""
        if not data:
            self._closed(wire)
            return
        try:
            answers = wire.reader.feed(data)
        except FrameSizeError as error:
            self._report(wire, Broken(Oracle.DECODE, f"an answer that is none: {error}"))
            return
        for answer in answers:
            if not self._answered(wire, answer):
                return
        if wire.sealed and not wire.flights and wire.sent[-1].ends is Ends.LEAVE:
            self._leave(wire, wire.sent[-1])

    def _answered(self, wire: Wire, answer: bytes) -> bool:
        """False when the connection cannot go on."""
        while wire.flights and _is_other(wire.flights[0].frame, answer) and self._may_be_silent(wire.flights[0]):
            self._pop(wire, "silent")
        if not wire.flights:
            self._report(wire, Broken(Oracle.CORRELATION, f"an answer to nothing: {answer[:32].hex()}"))
            return False
        broken, codes = judge(wire.flights[0].frame, answer)
        if broken is not None:
            if broken.oracle is Oracle.CORRELATION:
                self._passed_over(wire, answer, broken)
                return False
            self.hooks.on_broken(broken, wire.flights[0].case, list(wire.sent))
        self._pop(wire, codes)
        return True

    def _pop(self, wire: Wire, came: tuple[int, ...] | str) -> None:
        flight = wire.flights.popleft()
        self._no_longer_slow(wire, flight.case)
        wire.head_since = time.monotonic()
        if flight.last:
            self._ends.discard(flight.case.kind)
            self.hooks.on_answer(flight.case, came)

    def _no_longer_slow(self, wire: Wire, case: Case) -> None:
        """Nothing is sent while one is; so who was answered last may be why the others were slow."""
        was_slow, wire.is_slow = wire.is_slow, False
        if was_slow and not any(other.is_slow for other in self._wires.values()):
            self.hooks.on_slow(case)

    def _passed_over(self, wire: Wire, answer: bytes, broken: Broken) -> None:
        """A later request is answered first: the head was dropped, or will come out of turn. Or it is neither's."""
        head = wire.flights[0]
        later = next((each for each in wire.flights if each.frame[8:12] == answer[:4]), None)
        if later is not None and later.case is not head.case:
            dropped = Broken(Oracle.DEADLINE, "is never answered, while a later request of its connection is")
            self.hooks.on_broken(dropped, head.case, list(wire.sent))
            both = replace(head.case, frames=(*head.case.frames, later.frame), cuts=())
            self.hooks.on_broken(broken, both, [both])
            self._closed(wire)
        else:
            self._report(wire, broken)

    def _report(self, wire: Wire, broken: Broken) -> None:
        """Broken by the head, or by the last case that this connection carried, and past mending."""
        head = wire.flights[0].case if wire.flights else wire.sent[-1]
        self.hooks.on_broken(broken, head, list(wire.sent))
        self._closed(wire)

    def _closed(self, wire: Wire) -> None:
        """The target hung up: on the head, which is legal; what of its case is behind it goes with it."""
        if wire.flights:
            case = wire.flights[0].case
            self._no_longer_slow(wire, case)
            self._ends.add(case.kind)
            self._closers.append(case)
            self.hooks.on_answer(case, "closed")
            wire.flights = deque(flight for flight in wire.flights if flight.case is not case)
        self._drop(wire)

    # -- time ------------------------------------------------------------------------------------

    def _sweep(self, now: float) -> None:
        for wire in list(self._wires.values()):
            if wire.flights and now - wire.head_since > IMPATIENCE_S:
                self._hurry(wire, wire.flights[0], now - wire.head_since)
            elif wire.sealed and not wire.flights and now - wire.head_since > SEALED_S:
                self._drop(wire)

    def _may_be_silent(self, flight: Flight) -> bool:
        return self._patience(flight).silent_ok

    def _patience(self, flight: Flight) -> Patience:
        if flight.patience is None:
            flight.patience = patience(flight.frame, self.deadline_s)
        return flight.patience

    def _hurry(self, wire: Wire, head: Flight, waited: float) -> None:
        allowed = self._patience(head)
        wire.is_slow = waited > SLOW_S and not allowed.silent_ok
        known = not allowed.silent_ok and waited > KNOWN_DEADLINE_S and self.hooks.is_known(head.case)
        if waited < allowed.wait_s and not known:
            return
        if allowed.silent_ok and not allowed.blocks:
            self._pop(wire, "silent")
            if wire.sealed and not wire.flights:
                self._closed(wire)
            return
        if not allowed.silent_ok:
            late = Broken(Oracle.DEADLINE, f"neither answered nor closed within {allowed.wait_s:g} s")
            self.hooks.on_broken(late, head.case, list(wire.sent))
        else:
            self.hooks.on_answer(head.case, "silent")
        wire.flights = deque(flight for flight in wire.flights if flight.case is not head.case)
        self._drop(wire)


def _is_other(frame: bytes, answer: bytes) -> bool:
    """Not the answer to this request, which may be too short to have a correlation id."""
    return len(frame) >= CORRELATION_END and frame[8:12] != answer[:4]
