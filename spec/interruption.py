"""An end that somebody else asks for is an interruption like Ctrl-C: what was begun is undone, what is known told."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

ENDS: Final = (signal.SIGTERM, signal.SIGINT)
"""The latter too: a shell may have had it ignored."""
AGAIN_S: Final = 0.1
LOOK_S: Final = 0.5


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt within. Only the main thread may ask for this.

    Python drops an exception that is raised while a finalizer or a library's callback runs, and with it the
    interruption: it is then asked for again.
    """
    before = {number: signal.signal(number, signal.default_int_handler) for number in ENDS}
    hook, sys.unraisablehook = sys.unraisablehook, _ask_again(sys.unraisablehook)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


def _ask_again(hook: Any) -> Any:
    def dropped(what: Any) -> None:
        if not issubclass(what.exc_type, KeyboardInterrupt):
            hook(what)
            return
        again = threading.Timer(AGAIN_S, os.kill, (os.getpid(), signal.SIGINT))  # once the finalizer has returned
        again.daemon = True
        again.start()

    return dropped


def wait(event: threading.Event, seconds: float) -> bool:
    """As `event.wait`, and interruptions are heard: a signal that comes just as a thread goes to sleep wakes nobody."""
    end = time.monotonic() + seconds
    while not event.wait(max(0.0, min(LOOK_S, end - time.monotonic()))):
        if time.monotonic() >= end:
            return False
    return True
