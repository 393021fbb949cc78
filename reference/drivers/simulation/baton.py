"""Blocking clients inside a world: each runs in a thread, and only the holder of the baton runs.

Theory of operation
-------------------
The world gives the baton to a client by an event of its heap, and continues when the client waits or ends. A client
waits until a time, or until it is woken (bytes have arrived): both are events of the heap, so the heap alone decides
who continues, and equal seeds give equal runs. Threads are only a way to keep the stacks of several clients.

Invariants: exactly one of world and clients runs at any moment; a client that is ended raises `Ended` where it waits.
"""

import threading
from collections.abc import Callable

from highwater.reference.drivers.simulation.world import World


class Ended(BaseException):
    """The run is over: the client ends where it waits. No client may catch it, so it is no Exception."""


class Baton:
    """Runs `body` in a thread of its own; `error` is the exception with which it ended, if any."""

    def __init__(self, world: World, name: str, body: Callable[[], None]) -> None:
        self._world, self._body = world, body
        self._client, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._turn = 0  # counts the waits, so that a timer of an earlier one has no effect
        self._has_ended = self._is_over = False
        self.error: BaseException | None = None

    def start(self) -> None:
        """Let the client begin with the next event."""
        self._thread.start()
        self._world.schedule(0, self._continue, self._turn)

    def wait(self, end_ms: int) -> bool:
        """Called by the client: wait until woken or until a time; return False once that is reached."""
        if self._is_over:  # it tidies up where it was ended
            raise Ended
        turn = self._turn
        self._world.at(max(end_ms, self._world.now_ms), self._continue, turn)
        self._back.release()
        self._client.acquire()
        if self._is_over:
            raise Ended
        return self._world.now_ms < end_ms

    def wake(self) -> None:
        """Let the client continue with the next event, if it waits."""
        self._world.schedule(0, self._continue, self._turn)

    def end(self) -> None:
        """End the client where it waits."""
        if not self._has_ended and self._thread.is_alive():
            self._is_over = True
            self._hand_over()

    def _continue(self, turn: int) -> None:
        if turn != self._turn or self._has_ended:
            return
        self._turn += 1
        self._hand_over()
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def _hand_over(self) -> None:
        self._client.release()
        self._back.acquire()

    def _run(self) -> None:
        self._client.acquire()
        try:
            if not self._is_over:
                self._body()
        except Ended:
            pass
        except BaseException as error:  # the world raises it
            self.error = error
        finally:
            self._has_ended = True
            self._back.release()
