"""Broker defects that a case declares to detect; `highwater conform --self-test` plants each of them.

    @clause("PRD-7")
    @defect(Reply(ProduceRequest, "responses.partition_responses.error_code", 0))
    def test_a_batch_with_a_bad_checksum_is_refused(...)

A case must detect each of its defects. A path visits every element of the tuples along it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

F = TypeVar("F", bound=Callable[..., None])


@dataclass(frozen=True, slots=True)
class Reply:
    """The broker returns another value in a field: `value`, or its result for the true value if it is callable."""

    request: type[Any]
    path: str
    value: Any


@dataclass(frozen=True, slots=True)
class Request:
    """The broker ignores or misreads a field: the request is changed before it arrives."""

    request: type[Any]
    path: str
    value: Any


@dataclass(frozen=True, slots=True)
class Silence:
    """The broker never replies to this request, nor to later ones on the connection."""

    request: type[Any]


@dataclass(frozen=True, slots=True)
class HangUp:
    """The broker closes the connection instead of answering this request."""

    request: type[Any]


@dataclass(frozen=True, slots=True)
class StaysOpen:
    """Instead of closing the connection, the broker sends a few bytes and leaves it open."""


@dataclass(frozen=True, slots=True)
class Crash:
    """When it closes one connection, the broker stops accepting others (CVE-2022-34917)."""


@dataclass(frozen=True, slots=True)
class Garbled:
    """The broker sends other bytes: `change` maps the reply's frame, size included."""

    request: type[Any]
    change: Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class OutOfTurn:
    """The broker replies to this request after the next one on its connection."""

    request: type[Any]


@dataclass(frozen=True, slots=True)
class OneSegment:
    """The broker expects complete frames in each TCP segment, and else closes the connection."""


@dataclass(frozen=True, slots=True)
class GuardOff:
    """The reference broker with one guard of `spec/guards.toml` switched off."""

    guard: str


@dataclass(frozen=True, slots=True)
class Setting:
    """The reference broker with another value of a setting, while the target still reports the usual value."""

    name: str
    value: Any


WireDefect = Reply | Request | Silence | HangUp | StaysOpen | Crash | Garbled | OutOfTurn | OneSegment
BrokerDefect = GuardOff | Setting
Defect = WireDefect | BrokerDefect


def defect(*planted: Defect) -> Callable[[F], F]:
    """Mark a case with the defects that it detects."""
    return pytest.mark.defect(*planted)


def increment(value: int) -> int:
    return value + 1


def decrement(value: int) -> int:
    return value - 1


def without_error(error: int) -> Callable[[int], int]:
    """Return a value for `Reply` that replaces one error code by 0 and keeps all others."""

    def without(code: int) -> int:
        return 0 if code == error else code

    without.__name__ = f"without {error}"
    return without
