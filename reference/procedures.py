"""Procedures: protocol steps that wait for replies, written as coroutines and run without an event loop.

A procedure runs until it awaits a `Pending`, and continues inside the entry point of the node that resolves it. The
order of steps therefore depends only on the order of messages.

Pass coroutine functions, not coroutine objects, to a procedure that runs another one. The garbage collector closes
abandoned coroutines in order of creation; closing an inner one before the outer one would raise "coroutine already
executing".
"""

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any, Generic, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class Pending(Generic[T]):
    """A value that is not yet available; at most one procedure waits for it."""

    __slots__ = ("_callback", "_value", "_waiter", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._waiter: Iterator[Pending[Any]] | None = None
        self._callback: Callable[[], None] | None = None

    def resolve(self, value: T) -> None:
        """Set the value and continue the waiting procedure; ignore a second value (a late reply)."""
        if self.done:
            return
        self.done, self._value = True, value
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            _advance(waiter)
        if self._callback is not None:
            self._callback()

    def add_done_callback(self, callback: "Callable[[], None]") -> None:
        """Call `callback` once the value is set, after the waiting procedure has continued."""
        if self.done:
            callback()
        self._callback = callback

    def __await__(self) -> "Generator[Pending[T], None, T]":
        if not self.done:
            yield self
        return self._value  # type: ignore[return-value]  # resolved, so it is a T

    def set_waiter(self, procedure: Iterator["Pending[Any]"]) -> None:
        self._waiter = procedure


def resolved() -> Pending[None]:
    """Return a Pending that is already resolved."""
    pending: Pending[None] = Pending()
    pending.resolve(None)
    return pending


def spawn(procedure: Coroutine[Any, Any, None]) -> None:
    """Start a procedure; it runs immediately, up to its first unresolved wait."""
    _advance(procedure.__await__())


def start_procedure(procedure: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> Pending[T]:
    """Start a procedure and return its result as a Pending, which may be ignored."""
    pending: Pending[T] = Pending()

    async def run() -> None:
        pending.resolve(await procedure(*args, **kwargs))

    spawn(run())
    return pending


def _advance(procedure: Iterator[Pending[Any]]) -> None:
    """Continue a procedure. `next` needs no exception for its end, which `send` raises for every request."""
    pending = next(procedure, None)
    if pending is not None:
        pending.set_waiter(procedure)


class Countdown:
    """Resolves `pending` after `count_down` was called `parts` times."""

    __slots__ = ("_missing", "pending")

    def __init__(self, parts: int) -> None:
        self._missing = parts
        self.pending: Pending[None] = Pending()
        if parts == 0:
            self.pending.resolve(None)

    def count_down(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            self.pending.resolve(None)


class Inbox(Generic[T]):
    """An unbounded queue with one reader."""

    __slots__ = ("_items", "_reader")

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._reader: Pending[None] | None = None

    def put(self, item: T) -> None:
        self._items.append(item)
        if self._reader is not None:
            reader, self._reader = self._reader, None
            reader.resolve(None)

    def take_while(self, fits: Callable[[T], bool]) -> list[T]:
        """Remove and return the first items, up to the first one that does not fit, without waiting."""
        taken = []
        while self._items and fits(self._items[0]):
            taken.append(self._items.popleft())
        return taken

    async def take(self) -> T:
        while not self._items:
            self._reader = Pending()
            await self._reader
        return self._items.popleft()
