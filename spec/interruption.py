"""An end that somebody else asks for is an interruption like Ctrl-C: what was begun is undone, what is known told."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

ENDS: Final = (signal.SIGTERM, signal.SIGINT)
"""The latter too: a shell may have had it ignored."""


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt within. Only the main thread may ask for this."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
