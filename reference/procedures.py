"""Procedures: protocol steps that wait for an answer, written as coroutines and run by hand.

No event loop: a procedure runs until it awaits a `Pending`, and goes on inside the entrance of the node
that resolves it.  So the order of steps is the order of messages, and nothing else decides it.

Who runs another procedure is given the function and calls it, never a coroutine: when nobody is left who could answer,
the garbage collector closes what was made first, and an inner one that it closes before the outer drags that along
("coroutine already executing").
"""

from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, ParamSpec, TypeVar

T = TypeVar("T")
Given = ParamSpec("Given")


class Pending(Generic[T]):
    """A value that is still to come; at most one procedure waits for it."""

    __slots__ = ("_then", "_value", "_waiter", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._waiter: Coroutine[Any, Any, None] | None = None
        self._then: Callable[[], None] | None = None

    def resolve(self, value: T) -> None:
        """Give the value and run the waiting procedure on; a second value is ignored (a late reply)."""
        if self.done:
            return
        self.done, self._value = True, value
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            _advance(waiter)
        if self._then is not None:
            self._then()

    def also(self, then: "Callable[[], None]") -> None:
        """Call this, too, once the value is there."""
        if self.done:
            then()
        self._then = then

    def __await__(self) -> "Generator[Pending[T], None, T]":
        if not self.done:
            yield self
        return self._value  # type: ignore[return-value]  # resolved, so it is a T

    def waited_by(self, procedure: Coroutine[Any, Any, None]) -> None:
        self._waiter = procedure


def resolved() -> Pending[None]:
    """Nothing to wait for."""
    pending: Pending[None] = Pending()
    pending.resolve(None)
    return pending


def spawn(procedure: Coroutine[Any, Any, None]) -> None:
    """Start a procedure; it runs at once, up to its first unresolved wait."""
    _advance(procedure)


def begun(procedure: Callable[Given, Coroutine[Any, Any, T]], *given: Given.args, **named: Given.kwargs) -> Pending[T]:
    """Start a procedure, and wait for its result where that is wanted."""
    pending: Pending[T] = Pending()

    async def run() -> None:
        pending.resolve(await procedure(*given, **named))

    spawn(run())
    return pending


def _advance(procedure: Coroutine[Any, Any, None]) -> None:
    try:
        pending = procedure.send(None)
    except StopIteration:
        return
    pending.waited_by(procedure)


class Gathered:
    """Resolves when all of a known number of parts arrived."""

    __slots__ = ("_missing", "pending")

    def __init__(self, parts: int) -> None:
        self._missing = parts
        self.pending: Pending[None] = Pending()
        if parts == 0:
            self.pending.resolve(None)

    def arrived(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            self.pending.resolve(None)


class Inbox(Generic[T]):
    """A queue with one reader."""

    __slots__ = ("_items", "_reader")

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._reader: Pending[None] | None = None

    def put(self, item: T) -> None:
        self._items.append(item)
        if self._reader is not None:
            reader, self._reader = self._reader, None
            reader.resolve(None)

    async def take(self) -> T:
        while not self._items:
            self._reader = Pending()
            await self._reader
        return self._items.popleft()
