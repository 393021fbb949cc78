"""Delayed operations: requests that wait for a high watermark, for bytes, or for a timeout."""

from collections.abc import Callable

from highwater.reference.context import Context
from highwater.reference.procedures import Pending

PREFIX = "delayed:"


class Purgatory:
    """Holds one timer per waiting request. A request ends by `finish` or by its timeout, whichever comes first."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._next = 0
        self._timeouts: dict[str, Callable[[], None]] = {}

    def park(self, wait_ms: int, on_timeout: Callable[[], None]) -> str:
        self._next += 1
        ticket = f"{PREFIX}{self._next}"
        self._timeouts[ticket] = on_timeout
        self._context.timer(ticket, wait_ms)
        return ticket

    def finish(self, ticket: str) -> None:
        if self._timeouts.pop(ticket, None) is not None:
            self._context.cancel(ticket)

    def fire(self, ticket: str) -> None:
        on_timeout = self._timeouts.pop(ticket, None)
        if on_timeout is not None:
            on_timeout()

    def sleep(self, wait_ms: int) -> Pending[None]:
        pending: Pending[None] = Pending()
        self.park(wait_ms, lambda: pending.resolve(None))
        return pending

    def __len__(self) -> int:
        return len(self._timeouts)
