"""The verdict of a case from its runs: a failure is repeated with exclusive use of the target."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Protocol, TypeVar

import msgspec

from highwater.conformance.client.broker import advertised_versions
from highwater.conformance.client.connection import access_to
from highwater.conformance.failures import TargetFailure
from highwater.conformance.running.verdicts import BROKEN, CaseResult, CaseVerdict
from highwater.conformance.targets.base import REPEATABLE, Target
from highwater.errors import UsageError

ALIVE_TIMEOUT_S: Final = 3.0
T = TypeVar("T")
RunOutcome = tuple[CaseResult, T]
"""A result, and data of the run that is returned with it."""


class AcquireTarget(Protocol):
    """Acquires the target for one run of a case."""

    def __call__(self, *, exclusive: bool) -> AbstractContextManager[int | None]:
        """Yield how often the target was restarted so far; None if no other worker uses it."""
        ...


class TargetGone(Exception):
    """The target died and cannot be restarted."""

    def __init__(self, result: CaseResult) -> None:
        super().__init__(f"{result.message} (after {result.case}, or a case in parallel)")
        self.result = result


def judge(
    target: Target,
    acquire: AcquireTarget,
    run: Callable[[], RunOutcome[T]],
    *,
    exclusive: bool = False,
    repeat: int = 1,
    is_known: Callable[[CaseResult], bool] = lambda result: False,
) -> RunOutcome[T]:
    """Run a case `repeat` times, after a failure once more with exclusive use of the target.

    One failure decides on a repeatable target, where no case disturbs another one, and where `is_known` says that it
    was expected: to run several hundred known failures alone would take most of the time.

    Differing verdicts give `flaky`. A case that kills the target during its exclusive run fails. If the target died
    before that run, another case may have killed it, so the second run alone decides. Raises TargetGone.
    """
    with acquire(exclusive=exclusive) as revivals:
        first_run = run()
    if first_run[0].verdict in BROKEN and REPEATABLE not in target.capabilities:
        if is_known(first_run[0]) and not find_dead_broker(target):
            return first_run
        return _judge_again(target, acquire, run, first_run, revivals)
    for _ in range(repeat - 1):
        with acquire(exclusive=exclusive):
            other = run()
        if other[0].verdict != first_run[0].verdict:
            return _flaky(first_run, other[0])
    return first_run


def _judge_again(
    target: Target,
    acquire: AcquireTarget,
    run: Callable[[], RunOutcome[T]],
    first_run: RunOutcome[T],
    revivals: int | None,
) -> RunOutcome[T]:
    """Run the case exclusively; the first failure does not count if the target died or was restarted meanwhile."""
    with acquire(exclusive=True) as revivals_now:
        dead_before = find_dead_broker(target)
        if dead_before:
            _revive(target, _charge_death(first_run[0], dead_before))
        second_run = run()
        dead_after = find_dead_broker(target)
        if dead_after:
            result = _charge_death(second_run[0], dead_after)
            _revive(target, result)
            return result, second_run[1]
    was_disturbed = dead_before or revivals != revivals_now
    is_reproduced = second_run[0].verdict == first_run[0].verdict
    return second_run if was_disturbed or is_reproduced else _flaky(first_run, second_run[0])


def _flaky(first_run: RunOutcome[T], second_run: CaseResult) -> RunOutcome[T]:
    result = first_run[0]
    message = f"{result.verdict}, then {second_run.verdict}: {result.message or second_run.message}"
    return msgspec.structs.replace(result, verdict=CaseVerdict.FLAKY, message=message), first_run[1]


def _charge_death(result: CaseResult, dead: str) -> CaseResult:
    verdict = result.verdict if result.verdict in BROKEN else CaseVerdict.FAIL
    return msgspec.structs.replace(result, verdict=verdict, message=f"{dead}; {result.message}".rstrip("; "))


def _revive(target: Target, result: CaseResult) -> None:
    try:
        is_back = target.revive()
    except (UsageError, RuntimeError) as error:
        raise TargetGone(msgspec.structs.replace(result, message=f"{result.message}; {error}")) from error
    if not is_back:
        raise TargetGone(result)


def find_dead_broker(target: Target) -> str:
    """Return why a broker counts as dead; empty if all brokers answer ApiVersions."""
    for address in target.addresses.values():
        try:
            advertised_versions(address, ALIVE_TIMEOUT_S, access_to(target))
        except TargetFailure as error:
            return f"the target died or hangs ({error})"
    return ""
