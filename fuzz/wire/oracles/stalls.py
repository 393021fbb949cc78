"""Detect that the whole broker stalls: a client that sends nothing wrong waits much longer than on the idle broker.

Theory of operation
-------------------
A thread sends ApiVersions and Metadata on a connection of its own, one request at a time. `idle_limit` measures the
idle broker before the run; the limit is `STALL_S` and IDLE_FACTOR times the longest wait there. When a request waits
for longer, `on_stall` is called once, so that the requests in flight at that moment become suspects.

The time for which the broker was runnable but had no processor (`/proc/PID/schedstat`) does not count: on a loaded
machine it is not the broker that stalls. That file covers the main thread, so the correction only applies to brokers
that answer there (the reference). For all brokers the suspects alone must cause the stall again.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from highwater.fuzz.wire.connection import connect
from highwater.reference.client.connection import Connection, ConnectionClosedError, ReplyTimeoutError
from highwater.reference.wire.errors import WireError
from highwater.reference.wire.messages.metadata import ApiVersionsRequest, MetadataRequest

STALL_S: Final = 1.0
IDLE_FACTOR: Final = 20
IDLE_PROBES: Final = 20
PAUSE_S: Final = 0.02
POLL_S: Final = 0.05
GIVE_UP_S: Final = 30.0
"""A request that waits for longer is abandoned; the deadline oracle reports a dead broker long before."""
REQUESTS: Final = ((ApiVersionsRequest(), 0), (MetadataRequest(topics=()), 1))

WaitedFor = Callable[[], float]
"""Returns the seconds for which the broker's process has waited for a processor so far."""


def idle_limit(address: str) -> float:
    """Measure an idle broker, and return the wait beyond which it stalls."""
    longest = 0.0
    with connect(address) as connection:
        for number in range(IDLE_PROBES):
            started = time.monotonic()
            connection.send(*REQUESTS[number % len(REQUESTS)])
            connection.receive_frame()
            longest = max(longest, time.monotonic() - started)
    return STALL_S + IDLE_FACTOR * longest


class StallWatch:
    """Probes one broker until it is closed; `longest_s` is the longest wait so far, without that for a processor."""

    def __init__(
        self, address: str, limit_s: float, waited_for: WaitedFor = lambda: 0.0,
        on_stall: Callable[[float], None] = lambda waited_s: None,
    ) -> None:  # fmt: skip
        self.limit_s, self._address, self._waited_for, self._on_stall = limit_s, address, waited_for, on_stall
        self.longest_s, self.probes, self.stalls, self._stalled_s = 0.0, 0, 0, 0.0
        self._sent, self._is_paused = 0.0, False
        self._ended, self._answered = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def move_to(self, address: str, waited_for: WaitedFor) -> None:
        """Continue with a broker that was restarted."""
        self._address, self._waited_for = address, waited_for

    @property
    def stalled_s(self) -> float:
        """For how long the request that is waiting now has waited, once that exceeds the limit; otherwise 0."""
        return self._stalled_s

    @property
    def waiting_s(self) -> float:
        """For how long the request that is waiting now has waited."""
        return time.monotonic() - self._sent if self._sent else 0.0

    def report(self) -> str:
        return (
            f"a healthy connection sent {self.probes:,} requests meanwhile; the slowest response took "
            f"{self.longest_s:.2f} s (limit {self.limit_s:.2f} s), {self.stalls} stalls"
        )

    def wait_for_probe(self) -> None:
        """Wait until the first response, so that everything sent from now on is observed."""
        self._answered.wait(GIVE_UP_S)

    def pause(self, *, paused: bool) -> None:
        """Send nothing for now: the requests of the watch must not count for a leak of other requests."""
        self._is_paused = paused

    def close(self) -> None:
        """End after the request that is waiting now."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            with suppress(OSError, ConnectionClosedError, WireError):
                address = self._address
                with connect(address) as connection:
                    self._probe(connection, address)
            self._ended.wait(PAUSE_S)

    def _probe(self, connection: Connection, address: str) -> None:
        while not self._ended.is_set() and self._address == address:
            for request, version in REQUESTS if not self._is_paused else ():
                connection.send(request, version)
                self._await(connection, address)
                self.probes += 1
                self._answered.set()
                self._ended.wait(PAUSE_S)
            self._ended.wait(PAUSE_S)

    def _await(self, connection: Connection, address: str) -> None:
        """Wait for the response; raises ConnectionClosedError if it is abandoned, also because the broker restarted."""
        started, starved = time.monotonic(), self._waited_for()
        self._sent = started
        try:
            while True:
                with suppress(ReplyTimeoutError):
                    connection.receive_frame(POLL_S)
                    self._note(started, starved)
                    return
                waited_s = self._note(started, starved)
                if waited_s > self.limit_s:
                    is_first, self._stalled_s = not self._stalled_s, waited_s
                    if is_first:
                        self.stalls += 1
                        self._on_stall(waited_s)
                is_over = self._ended.is_set() and waited_s > self.limit_s  # until then this may become a stall
                if self._address != address or is_over or waited_s > GIVE_UP_S:
                    raise ConnectionClosedError(address)
        finally:
            self._sent = self._stalled_s = 0.0

    def _note(self, started: float, starved: float) -> float:
        waited_s = time.monotonic() - started - max(0.0, self._waited_for() - starved)
        self.longest_s = max(self.longest_s, waited_s)
        return waited_s
