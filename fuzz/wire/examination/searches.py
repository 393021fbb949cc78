"""What is searched for on a target of its own: slow answers, long requests that stall others, leaking reads."""

import time
from collections.abc import Iterable
from itertools import zip_longest

from highwater.fuzz.wire.engine import SLOW_S
from highwater.fuzz.wire.examination.triage import (
    CRASH_DEADLINE_S,
    PARKED_AGAIN_S,
    RunEndedError,
    Triage,
    decode_error_of,
)
from highwater.fuzz.wire.findings import Finding, api_name
from highwater.fuzz.wire.generate.cases import Case
from highwater.fuzz.wire.oracles.responses import Failure, Oracle
from highwater.fuzz.wire.replay import Replay, prepare

LONG_BATCH_S, LONG_DEADLINE_S = 5.0, 20.0
"""Deadlines of a request with thousands of elements, among others and alone: it may take long, as long as others are
served meanwhile.
"""


def examine_slow(triage: Triage, case: Case, deadline_s: float, number: int) -> Finding | None:
    """Send a case alone that seemed slow. If it is slow again, `fatal_cases` has it; it may be a finding, too:
    late, or a stall of other clients.

    The whole deadline is only waited for while it can become a finding: a busy target costs a processor meanwhile.
    """
    started = time.monotonic()
    is_alike = triage.has_enough(Oracle.DEADLINE, decode_error_of(case) or api_name(case.key))
    failure = Replay(triage.target, SLOW_S if is_alike else deadline_s, PARKED_AGAIN_S).run([case])
    is_slow = time.monotonic() - started >= SLOW_S
    failure = None if is_alike else failure
    if failure is None and is_slow and triage.breaks([case], Oracle.STALL):
        failure = triage.last_failure  # it is answered in time, but nothing else is meanwhile
    triage.fatal_cases = []
    finding = triage.confirm(failure, [case], number) if failure is not None else None
    if is_slow:
        triage.fatal_cases = [case]
        triage.target.restart()  # it may still be busy with the request
        triage.ensure_alive()
    return finding


def send_long(triage: Triage, cases: list[Case]) -> Failure | None:
    """Send long requests; return a failure if one stalls other clients, or fails in another way."""
    triage.ensure_alive()
    return Replay(triage.target, LONG_BATCH_S, PARKED_AGAIN_S).run(cases, Oracle.STALL)


def search_long(triage: Triage, cases: list[Case], number: int) -> Finding | None:
    """Send long requests of which one fails, each alone; write a finding for the first that fails again."""
    for case in cases:
        triage.ensure_alive()
        if not triage.is_reported(Failure(Oracle.STALL, ""), case) and triage.breaks([case], Oracle.STALL):
            assert triage.last_failure is not None
            return triage.confirm(triage.last_failure, [case], number)
    for case in cases:
        triage.ensure_alive()
        failure = Replay(triage.target, LONG_DEADLINE_S, PARKED_AGAIN_S).run([case])
        finding = triage.confirm(failure, [case], number) if failure is not None else None
        if finding is not None:
            return finding
    return None


def search_leak(triage: Triage, kinds: list[list[Case]], number: int) -> Finding | None:
    """Send cases of several kinds together; if the memory grows, write a finding for the kind that is the cause."""
    triage.ensure_alive()
    mixed = [case for cases in zip_longest(*kinds) for case in cases if case is not None]
    replay = Replay(triage.target, min(triage.deadline_s, CRASH_DEADLINE_S), PARKED_AGAIN_S)
    if replay.kept_memory(mixed, len(kinds)) is None:
        return None
    suspected = Failure(Oracle.LEAK, "the memory grew")
    leaking = next((cases for cases in kinds if triage.breaks(cases, Oracle.LEAK)), None)
    return None if leaking is None else triage.confirm(suspected, leaking, number)


def search_leaking_read(triage: Triage, cases: Iterable[Case], number: int) -> Finding | None:
    """Repeat each of the cases, which only read, alone; write a finding for the first that keeps memory.

    The target is restarted before, and uses the memory that it has freed, which would hide what is kept.
    """
    if not triage.target.restart():
        return None
    prepare(triage.target.address)
    Replay(triage.target).use_freed_memory()
    suspected = Failure(Oracle.LEAK, "the memory grew")
    for case in cases:
        if triage.ended.is_set():
            raise RunEndedError
        if not triage.is_reported(suspected, case) and Replay(triage.target).seems_to_keep(case):
            finding = triage.confirm(suspected, [case], number)
            if finding is not None:
                return finding
    return None
