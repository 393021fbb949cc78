"""Procedures whose steps the source documents list are lists here too: run, tested and shown from the same data."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Actor = TypeVar("Actor")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Step(Generic[Actor, Result]):
    sentence: str
    take: Callable[[Actor], Coroutine[Any, Any, Result]]
