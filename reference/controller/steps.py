"""A step of a multi-step procedure: its description from the source document, and the coroutine that runs it."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Actor = TypeVar("Actor")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Step(Generic[Actor, Result]):
    description: str
    run: Callable[[Actor], Coroutine[Any, Any, Result]]
