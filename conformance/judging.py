"""From runs of a case to its verdict: a failure is looked at once more, alone with the target."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Protocol, TypeVar

import msgspec

from highwater.conformance.broker import advertised_by
from highwater.conformance.connection import access_of
from highwater.conformance.failures import TargetFailure
from highwater.conformance.targets.base import Target
from highwater.conformance.verdicts import BROKEN, CaseResult, CaseVerdict
from highwater.errors import UsageError

ALIVE_TIMEOUT_S: Final = 3.0
T = TypeVar("T")
Ended = tuple[CaseResult, T]
"""A result and what else the run left, which is handed back with it."""


class Turn(Protocol):
    def __call__(self, *, alone: bool) -> AbstractContextManager[int | None]:
        """How often the target was brought back until now; None where nobody else uses it."""
        ...


class TargetGone(Exception):
    """It died, and is not ours to bring back, or does not come back."""

    def __init__(self, result: CaseResult) -> None:
        super().__init__(f"{result.message} (after {result.case}, or a case beside it)")
        self.result = result


def judge(target: Target, turn: Turn, run: Callable[[], Ended[T]], *, alone: bool = False, repeat: int = 1) -> Ended[T]:
    """Run a case `repeat` times; a failure once more, `alone` with the target.

    A verdict that changes is `flaky`. Whoever leaves the target dead when nobody else is there is charged with it; who
    was only beside is judged by the second run. Raises TargetGone.
    """
    with turn(alone=alone) as revivals:
        first = run()
    if first[0].verdict in BROKEN:
        return _judge_again(target, turn, run, first, revivals)
    for _ in range(repeat - 1):
        with turn(alone=alone):
            other = run()
        if other[0].verdict != first[0].verdict:
            return _flaky(first, other[0])
    return first


def _judge_again(
    target: Target, turn: Turn, run: Callable[[], Ended[T]], first: Ended[T], revivals: int | None
) -> Ended[T]:
    """What failed beside a death, whoever found it dead first, says nothing."""
    with turn(alone=True) as revivals_now:
        was_dead = who_is_dead(target)
        if was_dead:
            _revive(target, _charged(first[0], was_dead))
        second = run()
        is_dead = who_is_dead(target)
        if is_dead:
            charged = _charged(second[0], is_dead)
            _revive(target, charged)
            return charged, second[1]
    was_beside = was_dead or revivals != revivals_now
    return second if was_beside or second[0].verdict == first[0].verdict else _flaky(first, second[0])


def _flaky(first: Ended[T], second: CaseResult) -> Ended[T]:
    result = first[0]
    message = f"{result.verdict}, then {second.verdict}: {result.message or second.message}"
    return msgspec.structs.replace(result, verdict=CaseVerdict.FLAKY, message=message), first[1]


def _charged(result: CaseResult, dead: str) -> CaseResult:
    verdict = result.verdict if result.verdict in BROKEN else CaseVerdict.FAIL
    return msgspec.structs.replace(result, verdict=verdict, message=f"{dead}; {result.message}".rstrip("; "))


def _revive(target: Target, charged: CaseResult) -> None:
    try:
        is_back = target.revive()
    except (UsageError, RuntimeError) as error:
        raise TargetGone(msgspec.structs.replace(charged, message=f"{charged.message}; {error}")) from error
    if not is_back:
        raise TargetGone(charged)


def who_is_dead(target: Target) -> str:
    """Empty when all brokers answer."""
    for address in target.addresses.values():
        try:
            advertised_by(address, ALIVE_TIMEOUT_S, access_of(target.command_config))
        except TargetFailure as error:
            return f"the target died or hangs ({error})"
    return ""
