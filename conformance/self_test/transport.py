"""A transport that applies the planted defect to what passes between the client and the broker.

Theory of operation
-------------------
`DefectiveTransport` opens the streams of the target's own transport, so it works over TCP, under TLS and in virtual
time. `DefectiveStream` cuts what the client sends, and what it receives, into frames, and `PlantedDefect` changes them.
A reply belongs to the oldest request without one, because a broker answers the requests of a connection in order.

Nothing happens between two calls of the client. So a reply is changed when the client receives it, and the broker's
disconnect takes effect when the client would notice it.

Deliberately absent: threads, and the rewriting of addresses. A client that follows an address in a reply connects
through the same transport.
"""

import ssl
import struct
from collections import deque
from typing import Final

from highwater.conformance.client.connection import Reached
from highwater.conformance.defects import Crash, HangUp, OneSegment, OutOfTurn, Request, Silence, StaysOpen
from highwater.conformance.self_test.faults import PlantedDefect, SentRequest, read_request, take_frames
from highwater.reference.client.transport import Clock, Stream

STRAY_BYTES: Final = struct.pack(">ii", 4, 7)


class DefectiveTransport:
    """The transport of a target, with the planted defect; it follows a target that has another one in each case."""

    def __init__(self, target: Reached, fault: PlantedDefect) -> None:
        self._target, self._fault = target, fault

    @property
    def clock(self) -> Clock:
        return self._target.transport.clock

    def connect(self, host: str, port: int, timeout_s: float) -> "DefectiveStream":
        if isinstance(self._fault.defect, Crash) and self._fault.taken_effect:
            raise ConnectionRefusedError("the broker has crashed")
        return DefectiveStream(self._target.transport.connect(host, port, timeout_s), self.clock, self._fault)


class DefectiveStream:
    """A stream whose frames are changed, delayed or dropped as the planted defect says."""

    def __init__(self, inner: Stream, clock: Clock, fault: PlantedDefect) -> None:
        self._inner, self._clock, self._fault = inner, clock, fault
        self._unsent, self._passed_on = bytearray(), 0  # the incomplete frame, and how much of it was sent already
        self._unread, self._incoming = bytearray(), bytearray()  # for the client, and an incomplete reply
        self._unanswered: deque[SentRequest] = deque()
        self._delayed_reply = b""
        self._drops_replies = self._has_hung_up = self._stays_open = False

    # -- requests ------------------------------------------------------------------------------------

    def send(self, data: bytes, timeout_s: float) -> None:
        """Send requests. Incomplete frames are sent at once, since a broker may reject a frame by its size.

        They are held back only if the planted defect may change or drop the request.
        """
        if self._has_hung_up:
            raise BrokenPipeError("the broker has closed the connection")
        self._unsent += data
        for frame in take_frames(self._unsent):
            if not self._send_request(frame, timeout_s):
                return
        if self._unsent and isinstance(self._fault.defect, OneSegment):
            self._hang_up()
        elif self._unsent and not isinstance(self._fault.defect, Request | HangUp):
            self._send_bytes(bytes(self._unsent[self._passed_on :]), timeout_s)
            self._passed_on = len(self._unsent)

    def _send_request(self, frame: bytes, timeout_s: float) -> bool:
        """Send a frame, without its bytes that were sent already; return False after the broker has hung up."""
        passed_on, self._passed_on = self._passed_on, 0
        request = read_request(frame)
        if self._fault.matches(HangUp, request):
            self._hang_up()
            return False
        if not passed_on:
            mutated = self._fault.mutate_request(frame, request)
            frame, request = mutated, request if mutated == frame else read_request(mutated)
        if request.has_reply:
            self._unanswered.append(request)
        self._send_bytes(frame[passed_on:], timeout_s)
        return True

    def _send_bytes(self, data: bytes, timeout_s: float) -> None:
        if self._stays_open:
            return
        try:
            self._inner.send(data, timeout_s)
        except TimeoutError:
            raise
        except OSError:
            if not self._prevents_close():
                raise

    def _hang_up(self) -> None:
        self._fault.taken_effect = self._has_hung_up = True
        self._inner.close()

    # -- replies -------------------------------------------------------------------------------------

    def receive(self, timeout_s: float) -> bytes:
        deadline = self._clock.monotonic() + timeout_s
        while not self._unread and not self._has_hung_up:
            if self._stays_open:
                self._clock.sleep(max(0.0, deadline - self._clock.monotonic()))
                raise TimeoutError("the broker keeps the connection open")
            data = self._received(deadline - self._clock.monotonic())
            self._incoming += data
            for frame in take_frames(self._incoming):
                self._receive_reply(frame)
            if not data:
                self._stays_open = self._prevents_close()
                if not self._stays_open:
                    break
                self._unread += STRAY_BYTES
        data = bytes(self._unread)
        self._unread.clear()
        return data

    def _received(self, timeout_s: float) -> bytes:
        try:
            return self._inner.receive(timeout_s)
        except ConnectionError:
            return b""

    def _receive_reply(self, frame: bytes) -> None:
        request = self._unanswered.popleft() if self._unanswered else SentRequest()
        if self._fault.matches(Silence, request):
            self._fault.taken_effect = self._drops_replies = True
        if self._drops_replies:
            return
        frame = self._fault.mutate_reply(frame, request)
        if self._fault.matches(OutOfTurn, request) and not self._delayed_reply:
            self._delayed_reply, self._fault.taken_effect = frame, True
            return
        self._unread += frame + self._delayed_reply
        self._delayed_reply = b""

    def _prevents_close(self) -> bool:
        """Note that the broker has closed the connection; return whether the defect is that it does not."""
        self._fault.taken_effect |= isinstance(self._fault.defect, StaysOpen | Crash)
        return isinstance(self._fault.defect, StaysOpen)

    # -- the rest ------------------------------------------------------------------------------------

    def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        self._inner.start_tls(context, host)

    def finish_sending(self) -> None:
        self._inner.finish_sending()

    def close(self) -> None:
        self._inner.close()
