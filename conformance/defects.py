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
class Crash:
    """Where the broker had to close one connection it takes none any more (CVE-2022-34917)."""


@dataclass(frozen=True, slots=True)
class Garbled:
    """The broker writes other bytes: `change` makes them of the whole frame of its reply, size included."""

    request: type[Any]
    change: Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class OutOfTurn:
    """The broker answers this request after the next one on its connection."""

    request: type[Any]


@dataclass(frozen=True, slots=True)
class OneSegment:
    """The broker takes each TCP segment for whole frames, and hangs up when one is not."""


@dataclass(frozen=True, slots=True)
class GuardOff:
    """The reference broker without one rule of `spec/guards.toml`."""

    guard: str


@dataclass(frozen=True, slots=True)
class Setting:
    """The reference broker with a setting that it hides: the target goes on to claim the usual value."""

    name: str
    value: Any


OnTheWire = Reply | Request | Silence | HangUp | StaysOpen | Crash | Garbled | OutOfTurn | OneSegment
OfTheBroker = GuardOff | Setting
Defect = OnTheWire | OfTheBroker


def defect(*planted: Defect) -> Callable[[F], F]:
    """Mark a case with the defects that it sees."""
    return pytest.mark.defect(*planted)


def one_more(value: int) -> int:
    return value + 1


def one_less(value: int) -> int:
    return value - 1


def forgives(error: int) -> Callable[[int], int]:
    """The value of a `Reply` that leaves out one error and tells every other."""

    def without(code: int) -> int:
        return 0 if code == error else code

    without.__name__ = f"without {error}"
    return without
