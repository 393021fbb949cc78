"""Send many frames over many connections, and match and judge each response with its request.

Theory of operation
-------------------
The engine keeps up to IN_FLIGHT frames on each of CONNECTIONS non-blocking connections, with one selector. A broker
answers the requests of a connection in order, so the oldest unanswered frame is its *head*: it alone can be late, and
when the target closes the connection it alone is the cause. Frames behind the head did not cause it and are sent again
on a new connection; behind a kind of case that has ended connections before, nothing is sent.

A connection is idle, waiting (its head has a deadline), or half open (a case that ends without a reply). A reply is
matched with the head and judged by the oracles; a wrong reply, a missed deadline or a dead target becomes a `Failure`
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
from highwater.fuzz.wire.oracles.responses import (
    CORRELATION_END,
    DEADLINE_S,
    Failure,
    Oracle,
    ReplyTimeout,
    judge,
    reply_timeout,
)
from highwater.reference.wire.errors import FrameSizeError
from highwater.reference.wire.framing import FrameReader

CONNECTIONS: Final = 24
IN_FLIGHT: Final = 6
"""Frames per connection; more would be sent in vain when the target closes it."""
ANSWER_MAX: Final = 128 * 1024 * 1024
CHUNK: Final = 1 << 17
POLL_S: Final = 0.01
RECHECK_S: Final = 0.02
SLOW_S: Final = 0.5
"""A head that waits for so long is slow. Nothing more is sent if the target is busy, else over other connections."""
KNOWN_DEADLINE_S: Final = 0.3
"""Deadline of a request that is known to hang, which need not be proven again."""
CLOSE_S: Final = 1.0
"""Time for the target to close a connection whose last response has arrived and that we ended."""
HALF_OPEN_MAX: Final = 40
SUSPECTS: Final = 2_000
"""More cases than one turn sends."""
LIKELY_SUSPECTS: Final = 60
ANSWERED_SUSPECTS: Final = 400
"""Cases that were sent last before a crash, and may be its cause although they were answered."""
NO_LINGER: Final = struct.pack("ii", 1, 0)


class TargetDown(Exception):
    """The target accepts no connection; `suspects` are the likely causes, the latest first."""

    def __init__(self, why: str, suspects: list[Case]) -> None:
        super().__init__(why)
        self.suspects = suspects


@dataclass(slots=True)
class PendingFrame:
    """One frame of a case that waits for its response; `last` marks the last frame of its case."""

    case: Case
    frame: bytes
    last: bool
    reply_timeout: ReplyTimeout | None = None


@dataclass(slots=True, eq=False)
class EngineConnection:
    """One connection. `sent` are the cases that it carried; a finding replays them."""

    socket: socket.socket
    reader: FrameReader = field(default_factory=lambda: FrameReader(ANSWER_MAX))
    pending: deque[PendingFrame] = field(default_factory=deque)
    unsent: deque[bytes] = field(default_factory=deque)
    sent: deque[Case] = field(default_factory=lambda: deque(maxlen=IN_FLIGHT * 2))
    head_since: float = 0.0
    send_closed: bool = False  # nothing more may be sent
    keep_segments: bool = False  # its data is cut into segments, which are sent one by one
    is_slow: bool = False  # its head has been waiting for SLOW_S


@dataclass
class Hooks:
    """Callbacks of the session. `on_answer` receives error codes and the response, or an outcome and nothing."""

    next_case: Callable[[], Case]
    on_answer: Callable[[Case, tuple[int, ...] | str, bytes], None]
    on_failure: Callable[[Failure, Case, list[Case]], None]
    on_slow: Callable[[Case], None] = lambda case: None
    is_known_hang: Callable[[Case], bool] = lambda case: False
    is_busy: Callable[[], bool] = lambda: True
    """Returns whether the target serves no other connection either, when a head waits for long."""


class Engine:
    """Sends cases to one address until the time limit of `run`."""

    def __init__(self, address: str, hooks: Hooks, deadline_s: float = DEADLINE_S) -> None:
        self.hooks, self.deadline_s = hooks, deadline_s
        self.frames = 0
        """Frames that were sent for the first time."""
        self._closing_kinds: set[Kind] = set()
        """Kinds of cases after which the target closed the connection the last time."""
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, EngineConnection] = {}
        self._resend: deque[Case] = deque()
        self._half_open: deque[socket.socket] = deque()
        self._recent: deque[Case] = deque(maxlen=SUSPECTS)
        self._closed_heads: deque[Case] = deque(maxlen=SUSPECTS)
        self._behind_closed: deque[Case] = deque(maxlen=SUSPECTS)
        self.move_to(address)

    def move_to(self, address: str) -> None:
        """Connect to a target that was restarted or has another address."""
        self.close()
        host, _, port = address.rpartition(":")
        family, _, _, _, place = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        self._family, self._address = family, place

    def close(self) -> None:
        for connection in list(self._connections.values()):
            self._drop(connection)
        while self._half_open:
            self._half_open.popleft().close()
        self._closed_heads.clear()
        self._behind_closed.clear()
        self._recent.clear()
        self._resend.clear()

    @property
    def connection_count(self) -> int:
        return len(self._connections) + len(self._half_open)

    def run(self, seconds: float, budget: int) -> int:
        """Send at most `budget` cases for at most `seconds`; return the number of cases begun.

        When all are sent, it waits for their responses, and sends those again that were behind a closed connection.
        Raises TargetDown when the target accepts no connection.
        """
        end, begun, now = time.monotonic() + seconds, 0, time.monotonic()
        while now < end and (begun < budget or self.is_unfinished):
            slow = sum(connection.is_slow for connection in self._connections.values())
            while len(self._connections) - min(slow, CONNECTIONS) < CONNECTIONS:
                self._connect()
            is_busy = slow > 0 and self.hooks.is_busy()
            for connection in list(self._connections.values()):
                if len(connection.pending) <= IN_FLIGHT // 2 and not is_busy:
                    begun += self._fill(connection, budget - begun)
            self._poll(POLL_S)
            now = time.monotonic()
            self._check_deadlines(now)
        return begun

    @property
    def is_unfinished(self) -> bool:
        """True if a case waits for its response, or is to be sent again."""
        return bool(self._resend) or any(connection.pending for connection in self._connections.values())

    @property
    def is_waiting(self) -> bool:
        """True if a response is overdue by SLOW_S: the target may be busy with it."""
        now = time.monotonic()
        heads = ((connection, connection.pending[0]) for connection in self._connections.values() if connection.pending)
        return any(now - connection.head_since > SLOW_S and not self._may_be_silent(head) for connection, head in heads)

    def stuck(self, seconds: float) -> list[Case]:
        """Return the cases whose response is overdue for so long."""
        now = time.monotonic()
        heads = ((connection, connection.pending[0]) for connection in self._connections.values() if connection.pending)
        return [
            head.case
            for connection, head in heads
            if now - connection.head_since > seconds and not self._may_be_silent(head)
        ]

    def add_pause(self, seconds: float) -> None:
        """Extend all deadlines by a pause in which no response was read."""
        for connection in self._connections.values():
            connection.head_since += seconds

    def drain(self, seconds: float) -> None:
        """Wait for pending responses without sending anything new."""
        end = time.monotonic() + seconds
        while any(connection.pending for connection in self._connections.values()) and time.monotonic() < end:
            self._poll(POLL_S)
            self._check_deadlines(time.monotonic())

    # -- connections -----------------------------------------------------------------------------

    def _connect(self) -> None:
        client_socket = socket.socket(self._family)
        client_socket.setblocking(False)
        error = client_socket.connect_ex(self._address)
        if error not in (0, errno.EINPROGRESS):
            client_socket.close()
            self._refused(os.strerror(error))
        client_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections[client_socket.fileno()] = connection = EngineConnection(client_socket)
        self._selector.register(client_socket, selectors.EVENT_READ, connection)

    def _refused(self, why: str) -> NoReturn:
        raise TargetDown(f"refuses connections ({why})", self.suspects())

    def suspects(self, *, is_silent: bool = False) -> list[Case]:
        """Return the likely causes of a crash: heads of connections that closed lately, other heads, then the rest.

        A target that reads ahead may crash on a request whose response is not due yet, and one that answers before it
        stores a change may crash on a request that was answered. What makes a target silent waits for its response.
        """
        heads, waiting, last_sent = self._heads(), self.in_flight(), self.recent()[-ANSWERED_SUSPECTS:]
        closed = [*reversed(self._closed_heads)]
        first = [*heads, *closed] if is_silent else [*closed, *heads]
        likely = _distinct([*first, *reversed(self._behind_closed), *waiting])
        return _distinct([*likely[:LIKELY_SUSPECTS], *reversed(last_sent), *likely])

    def in_flight(self) -> list[Case]:
        """Return the cases that wait for a response, heads first; one of them occupies a target that stalls."""
        waiting = [entry.case for connection in self._connections.values() for entry in connection.pending]
        return _distinct([*self._heads(), *waiting])

    def _heads(self) -> list[Case]:
        return [connection.pending[0].case for connection in self._connections.values() if connection.pending]

    def recent(self) -> list[Case]:
        """Return the cases that were sent last, the latest last."""
        return list(self._recent)

    def _drop(self, connection: EngineConnection) -> None:
        """Close a connection and queue its other cases again, which did not cause the failure."""
        if self._connections.pop(connection.socket.fileno(), None) is None:
            return
        self._selector.unregister(connection.socket)
        connection.socket.close()
        waiting: dict[int, Case] = {id(entry.case): entry.case for entry in connection.pending}
        self._resend.extend(waiting.values())
        self._behind_closed.extend(waiting.values())
        connection.pending.clear()

    # -- out -------------------------------------------------------------------------------------

    def _fill(self, connection: EngineConnection, budget: int) -> int:
        """Send cases over a connection, at most `budget` new ones; return the number of new ones."""
        begun = 0
        while self._can_send(connection) and (self._resend or begun < budget):
            if self._resend:
                case = self._resend.popleft()
            else:
                case = self.hooks.next_case()
                begun += 1
                self.frames += len(case.frames)
            self._queue(connection, case)
        if connection.unsent:
            self._write(connection)
        return begun

    def _can_send(self, connection: EngineConnection) -> bool:
        if connection.send_closed or len(connection.pending) >= IN_FLIGHT:
            return False
        return not connection.pending or connection.pending[-1].case.kind not in self._closing_kinds

    def _queue(self, connection: EngineConnection, case: Case) -> None:
        connection.sent.append(case)
        self._recent.append(case)
        if not connection.pending:
            connection.head_since = time.monotonic()
        if case.ends in (Ends.OPEN, Ends.FINISH):
            last = len(case.frames) - 1
            connection.pending.extend(
                PendingFrame(case, frame, number == last) for number, frame in enumerate(case.frames)
            )
        if case.cuts:
            connection.unsent.extend(case.segments())
            connection.keep_segments = True
        else:
            connection.unsent.extend(case.frames)
        connection.send_closed = case.ends is not Ends.OPEN

    def _write(self, connection: EngineConnection) -> None:
        try:
            if len(connection.unsent) > 1 and not connection.keep_segments:
                whole = b"".join(connection.unsent)
                connection.unsent.clear()
                connection.unsent.append(whole)
            while connection.unsent:
                data = connection.unsent.popleft()
                sent = connection.socket.send(data)
                if sent < len(data):
                    connection.unsent.appendleft(data[sent:])
                    self._selector.modify(connection.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)
                    return
        except BlockingIOError:
            connection.unsent.appendleft(data)
            self._selector.modify(connection.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)
            return
        except ConnectionRefusedError as error:
            self._refused(str(error.strerror))
        except OSError:
            self._closed(connection)
            return
        if connection.send_closed:
            self._end(connection)

    def _end(self, connection: EngineConnection) -> None:
        """End the connection as the last case demands, after all bytes are sent."""
        case = connection.sent[-1]
        if case.ends is Ends.FINISH:
            with suppress(OSError):
                connection.socket.shutdown(socket.SHUT_WR)
        elif case.ends is Ends.RESET:
            with suppress(OSError):
                connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            self.hooks.on_answer(case, "reset", b"")
            self._drop(connection)
        elif case.ends is Ends.LEAVE and not connection.pending:
            self._leave(connection, case)

    def _leave(self, connection: EngineConnection, case: Case) -> None:
        self.hooks.on_answer(case, "left", b"")
        left_open = connection.socket.dup()
        self._drop(connection)
        self._half_open.append(left_open)
        if len(self._half_open) > HALF_OPEN_MAX:
            self._half_open.popleft().close()

    # -- in --------------------------------------------------------------------------------------

    def _poll(self, seconds: float) -> None:
        for key, events in self._selector.select(seconds):
            connection: EngineConnection = key.data
            if events & selectors.EVENT_WRITE:
                self._selector.modify(connection.socket, selectors.EVENT_READ, connection)
                self._write(connection)
            if events & selectors.EVENT_READ and connection.socket.fileno() in self._connections:
                self._read(connection)

    def _read(self, connection: EngineConnection) -> None:
        try:
            data = connection.socket.recv(CHUNK)
        except BlockingIOError:
            return
        except ConnectionRefusedError as error:
            self._refused(str(error.strerror))
        except OSError:
            data = b""
        if not data:
            self._closed(connection)
            return
        try:
            answers = connection.reader.feed(data)
        except FrameSizeError as error:
            self._report(connection, Failure(Oracle.DECODE, f"a malformed response: {error}"))
            return
        for answer in answers:
            if not self._answered(connection, answer):
                return
        if connection.send_closed and not connection.pending and connection.sent[-1].ends is Ends.LEAVE:
            self._leave(connection, connection.sent[-1])

    def _answered(self, connection: EngineConnection, answer: bytes) -> bool:
        """Match a response with the head; return False if the connection cannot continue."""
        while (
            connection.pending
            and _is_other(connection.pending[0].frame, answer)
            and self._may_be_silent(connection.pending[0])
        ):
            self._pop(connection, "silent")
        if not connection.pending:
            self._report(connection, Failure(Oracle.CORRELATION, f"a response without a request: {answer[:32].hex()}"))
            return False
        failure, codes = judge(connection.pending[0].frame, answer)
        if failure is not None:
            if failure.oracle is Oracle.CORRELATION:
                self._answered_out_of_order(connection, answer, failure)
                return False
            self.hooks.on_failure(failure, connection.pending[0].case, list(connection.sent))
        self._pop(connection, codes, answer)
        return True

    def _pop(self, connection: EngineConnection, outcome: tuple[int, ...] | str, answer: bytes = b"") -> None:
        entry = connection.pending.popleft()
        self._clear_slow(connection, entry.case)
        connection.head_since = time.monotonic()
        if entry.last:
            self._closing_kinds.discard(entry.case.kind)
            self.hooks.on_answer(entry.case, outcome, answer)

    def _clear_slow(self, connection: EngineConnection, case: Case) -> None:
        """Report the case answered last when no connection is slow any more; it may have slowed the others down."""
        was_slow, connection.is_slow = connection.is_slow, False
        if was_slow and not any(other.is_slow for other in self._connections.values()):
            self.hooks.on_slow(case)

    def _answered_out_of_order(self, connection: EngineConnection, answer: bytes, failure: Failure) -> None:
        """Handle a response whose correlation id is not the head's.

        Either the head's response is missing or late, or the id matches no request.
        """
        head = connection.pending[0]
        later = next((waiting for waiting in connection.pending if waiting.frame[8:12] == answer[:4]), None)
        if later is not None and later.case is not head.case:
            dropped = Failure(Oracle.DEADLINE, "is never answered, while a later request of its connection is")
            self.hooks.on_failure(dropped, head.case, list(connection.sent))
            both = replace(head.case, frames=(*head.case.frames, later.frame), cuts=())
            self.hooks.on_failure(failure, both, [both])
            self._closed(connection)
        else:
            self._report(connection, failure)

    def _report(self, connection: EngineConnection, failure: Failure) -> None:
        """Report a failure of the head, or of the last case on this connection, and close it."""
        head = connection.pending[0].case if connection.pending else connection.sent[-1]
        self.hooks.on_failure(failure, head, list(connection.sent))
        self._closed(connection)

    def _closed(self, connection: EngineConnection) -> None:
        """Handle a close by the target, which is legal; the remaining frames of the head's case are dropped."""
        if connection.pending:
            case = connection.pending[0].case
            self._clear_slow(connection, case)
            self._closing_kinds.add(case.kind)
            self._closed_heads.append(case)
            self.hooks.on_answer(case, "closed", b"")
            connection.pending = deque(entry for entry in connection.pending if entry.case is not case)
        self._drop(connection)

    # -- time ------------------------------------------------------------------------------------

    def _check_deadlines(self, now: float) -> None:
        for connection in list(self._connections.values()):
            if connection.pending and now - connection.head_since > RECHECK_S:
                self._check_head(connection, connection.pending[0], now - connection.head_since)
            elif connection.send_closed and not connection.pending and now - connection.head_since > CLOSE_S:
                self._drop(connection)

    def _may_be_silent(self, entry: PendingFrame) -> bool:
        return self._reply_timeout(entry).silent_ok

    def _reply_timeout(self, entry: PendingFrame) -> ReplyTimeout:
        if entry.reply_timeout is None:
            entry.reply_timeout = reply_timeout(entry.frame, self.deadline_s)
        return entry.reply_timeout

    def _check_head(self, connection: EngineConnection, head: PendingFrame, waited: float) -> None:
        allowed = self._reply_timeout(head)
        connection.is_slow = waited > SLOW_S and not allowed.silent_ok
        known = not allowed.silent_ok and waited > KNOWN_DEADLINE_S and self.hooks.is_known_hang(head.case)
        if waited < allowed.wait_s and not known:
            return
        if allowed.silent_ok and not allowed.blocks:
            self._pop(connection, "silent")
            if connection.send_closed and not connection.pending:
                self._closed(connection)
            return
        if not allowed.silent_ok:
            late = Failure(Oracle.DEADLINE, f"neither answered nor closed within {allowed.wait_s:g} s")
            self.hooks.on_failure(late, head.case, list(connection.sent))
        else:
            self.hooks.on_answer(head.case, "silent", b"")
        connection.pending = deque(entry for entry in connection.pending if entry.case is not head.case)
        self._drop(connection)


def _distinct(cases: list[Case]) -> list[Case]:
    """Return the cases in order, each object once."""
    return list({id(case): case for case in cases}.values())


def _is_other(frame: bytes, answer: bytes) -> bool:
    """Return True if the response has another correlation id; the request may be too short to have one."""
    return len(frame) >= CORRELATION_END and frame[8:12] != answer[:4]
