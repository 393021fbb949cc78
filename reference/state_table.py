"""State tables as data: the code moves along them, tests read them, the diagrams in the docs are drawn from them."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
S = TypeVar("S", bound=StrEnum)


class InvalidTransitionError(Exception):
    """A step that the table does not know: an error of ours, never of a peer."""


@dataclass(frozen=True, slots=True)
class StateTable(Generic[S]):
    """`steps` holds every (from, to) that is legal, with what is done on the way."""

    name: str
    source: str
    initial: S
    steps: Mapping[tuple[S, S], str]

    def check(self, before: S, after: S) -> None:
        if (before, after) not in self.steps:
            raise InvalidTransitionError(f"{self.name}: {before} -> {after}")


class States(Generic[K, S]):
    """Where each of many things stands in one table; whatever is not named is in the initial state."""

    def __init__(self, table: StateTable[S]) -> None:
        self._table = table
        self._states: dict[K, S] = {}

    def __getitem__(self, key: K) -> S:
        return self._states.get(key, self._table.initial)

    def assume(self, key: K, state: S) -> None:
        """What is found, as opposed to done."""
        self._states[key] = state

    def move(self, key: K, *path: S) -> None:
        """Along the table; InvalidTransitionError where it has no such step."""
        for state in path:
            self._table.check(self[key], state)
            self._states[key] = state
        if self[key] == self._table.initial:
            self._states.pop(key, None)

    def forget(self, key: K) -> None:
        self._states.pop(key, None)
