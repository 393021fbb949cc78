"""State tables as data, read by the code, the tests and the generated diagrams."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
S = TypeVar("S", bound=StrEnum)


class InvalidTransitionError(Exception):
    """A transition that the table does not allow: a bug in this code, never an error of a peer."""


@dataclass(frozen=True, slots=True)
class StateTable(Generic[S]):
    """`steps` maps every legal (from, to) to a text with its cause or actions; `source` is the document."""

    name: str
    source: str
    initial: S
    steps: Mapping[tuple[S, S], str]

    def check(self, before: S, after: S) -> None:
        """Raise InvalidTransitionError if the table does not have this transition."""
        if (before, after) not in self.steps:
            raise InvalidTransitionError(f"{self.name}: {before} -> {after}")


class States(Generic[K, S]):
    """The current states of many objects, by key, in one table; an unknown key is in the initial state."""

    def __init__(self, table: StateTable[S]) -> None:
        self._table = table
        self._states: dict[K, S] = {}

    def __getitem__(self, key: K) -> S:
        return self._states.get(key, self._table.initial)

    def initialize(self, key: K, state: S) -> None:
        """Set the state without checking a transition; for state that was read, e.g. after a failover."""
        self._states[key] = state

    def move(self, key: K, *path: S) -> None:
        """Move through these states in order; raise InvalidTransitionError if the table lacks a transition."""
        for state in path:
            self._table.check(self[key], state)
            self._states[key] = state
        if self[key] == self._table.initial:
            self._states.pop(key, None)

    def forget(self, key: K) -> None:
        self._states.pop(key, None)
