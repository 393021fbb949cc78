"""What a broker may get wrong, said beside the case that sees it; `highwater conform --self-test` plants each.

    @clause("PRD-7")
    @defect(Reply(ProduceRequest, "responses.partition_responses.error_code", 0))
    def test_a_batch_with_a_bad_checksum_is_refused(...)

A case with several defects must see each of them. A path goes through every element of the tuples on its way.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

F = TypeVar("F", bound=Callable[..., None])


@dataclass(frozen=True, slots=True)
class Reply:
    """The broker says something else: `value`, or what it makes of the true one, in a field of the reply."""

    request: type[Any]
    path: str
    value: Any


@dataclass(frozen=True, slots=True)
class Request:
    """The broker acts as if it had been asked something else: it ignores or misreads a field."""

    request: type[Any]
    path: str
    value: Any


@dataclass(frozen=True, slots=True)
class Silence:
    """The broker takes this request and never answers it."""

    request: type[Any]


@dataclass(frozen=True, slots=True)
class HangUp:
    """The broker closes the connection instead of answering this request."""

    request: type[Any]


@dataclass(frozen=True, slots=True)
class StaysOpen:
    """Where the broker had to close the connection it sends a few bytes and leaves it open."""


@dataclass(frozen=True, slots=True)
class GuardOff:
    """The reference broker without one rule of `spec/guards.toml`."""

    guard: str


@dataclass(frozen=True, slots=True)
class Setting:
    """The reference broker with a setting that it hides: the target goes on to claim the usual value."""

    name: str
    value: Any


Defect = Reply | Request | Silence | HangUp | StaysOpen | GuardOff | Setting


def defect(*planted: Defect) -> Callable[[F], F]:
    """Mark a case with the defects that it sees."""
    return pytest.mark.defect(*planted)
