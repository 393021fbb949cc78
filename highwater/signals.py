"""Handle SIGTERM like Ctrl-C, so that a program cleans up and reports partial results."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

TERMINATION_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
"""SIGINT is included because a shell may start background processes with it ignored."""
RESEND_DELAY_S: Final = 0.1
POLL_INTERVAL_S: Final = 0.5


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGINT inside the block. Call it only in the main thread.

    Python drops an exception that is raised while a finalizer or a callback of a library runs; the interruption would
    be lost, so the signal is sent again.
    """
    previous = {number: signal.signal(number, signal.default_int_handler) for number in TERMINATION_SIGNALS}
    hook, sys.unraisablehook = sys.unraisablehook, _resend_interrupt(sys.unraisablehook)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in previous.items():
            signal.signal(number, handler)


def _resend_interrupt(hook: Any) -> Any:
    def on_unraisable(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            hook(unraisable)
            return
        timer = threading.Timer(
            RESEND_DELAY_S, os.kill, (os.getpid(), signal.SIGINT)
        )  # once the finalizer has returned
        timer.daemon = True
        timer.start()

    return on_unraisable


def wait(event: threading.Event, seconds: float) -> bool:
    """Like `event.wait`, but wakes up regularly: a signal that arrives just before the wait would not end it."""
    end = time.monotonic() + seconds
    while not event.wait(max(0.0, min(POLL_INTERVAL_S, end - time.monotonic()))):
        if time.monotonic() >= end:
            return False
    return True
