"""Run one sequence by seed: the same seed sends the same requests, as long as the responses are the same.

A sequence is a program of the suite (`conformance/cases/programs.py`) with drawn choices, of which steps can be left
out, or `relation`. Each exchange is also judged by the oracles for single responses.
"""

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, NamedTuple

from highwater.conformance.cases import programs
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.connection import WaitLimit
from highwater.conformance.client.draws import Drawn
from highwater.conformance.client.exchange import ExchangeLog
from highwater.conformance.failures import Disconnected, Disturbed, NoReply, NotApplicable, TargetFailure, Unsupported
from highwater.conformance.targets.external import ExternalTarget
from highwater.errors import UsageError
from highwater.fuzz.wire.connection import advertised, connect
from highwater.fuzz.wire.oracles.exchanges import api_and_version, misread, transcript
from highwater.fuzz.wire.oracles.responses import API_VERSIONS, Failure, Oracle
from highwater.fuzz.wire.sequences import relations
from highwater.fuzz.wire.sequences.violation import SequenceAbandoned, SequenceViolation
from highwater.reference.wire.registry import APIS, Api

RELATION: Final = "relation"
SEQUENCES: Final = (*(name for name in programs.PROGRAMS if not programs.is_slow(name)), RELATION)
"""Programs that wait for nothing, since a turn has little time."""
ANSWER_S, POLLING_S = 5.0, 4.0
VersionRanges = Mapping[int, tuple[int, int]]
"""First and last version by API key."""


def version_ranges(served: list[tuple[Api, int, int]]) -> VersionRanges:
    return {api.key: (first, last) for api, first, last in served}


class SequenceResult(NamedTuple):
    """The violation, if any, whether the sequence completed, how many steps were begun, and why it does not fit."""

    violation: SequenceViolation | None
    finished: bool
    steps: int
    unfit: str = ""


def run_sequence(name: str, address: str, served: VersionRanges, without: Collection[int] = ()) -> SequenceResult:
    """Run `name`, which is SEQUENCE:SEED, without these steps; OSError if the target accepts no connection."""
    kind = _check_name(name)
    draws = Drawn(name, frozenset(without))
    run = _run_relation if kind == RELATION else _run_program
    violation, finished, unfit = None, False, ""
    try:
        run(kind, address, served, draws)
        finished = True
    except SequenceViolation as found:
        violation = found
    except SequenceAbandoned:
        pass
    except (Unsupported, NotApplicable) as error:
        unfit = str(error)
    return SequenceResult(violation, finished, draws.begun, unfit)


def _check_name(name: str) -> str:
    """Return the kind of a sequence; UsageError if there is none, or no seed."""
    kind, _, seed = name.partition(":")
    if kind not in SEQUENCES or not seed:
        hint = f"use one of {', '.join(SEQUENCES)}, followed by :SEED; sequences of earlier versions are gone"
        raise UsageError(f"no such sequence: {name}", hint=hint)
    return kind


def _run_relation(kind: str, address: str, served: VersionRanges, draws: Drawn) -> None:
    with relations.Relations(address, served, draws) as sequence:
        sequence.run()


def _run_program(kind: str, address: str, served: VersionRanges, draws: Drawn) -> None:
    try:
        target = ExternalTarget(address)
    except (UsageError, TargetFailure) as error:
        raise _gone(address) from error
    limit = WaitLimit(ANSWER_S, POLLING_S)
    cluster = Cluster(target, served, timeout_s=ANSWER_S, wait_limit=limit, whole_log=True, draws=draws)
    try:
        programs.run(kind, cluster)
        found = _misread(cluster.log)
    except Disconnected as error:
        raise _gone(address) from error
    except TargetFailure as error:
        found = _misread(cluster.log) or _violation(error, cluster.log)
    except (AssertionError, LookupError, TypeError, ValueError) as error:  # no traceback for what no program foresaw
        raise SequenceAbandoned(f"{kind} does not understand a reply ({error!r})") from error
    finally:
        with suppress(TargetFailure):
            cluster.close()
    if found:
        raise found


def _gone(address: str) -> SequenceAbandoned:
    """Return why a sequence ends after a closed connection; OSError if the target accepts no other one."""
    connect(address).close()
    return SequenceAbandoned("the connection was closed")


def _misread(log: ExchangeLog) -> SequenceViolation | None:
    found = misread(log)
    return found and SequenceViolation(found.failure, found.api, found.version, transcript(log))


def _violation(failed: TargetFailure, log: ExchangeLog) -> SequenceViolation:
    """Return what a program found; SequenceAbandoned for an error after which a client tries again."""
    if isinstance(failed, Disturbed):
        raise SequenceAbandoned(str(failed))
    asked = [event for event in log if event.api is None and len(event.data) >= 8]
    oracle = Oracle.DEADLINE if isinstance(failed, NoReply) else Oracle.INVARIANT
    key, version = api_and_version(asked[-1].data) if asked else (API_VERSIONS, 0)
    return SequenceViolation(Failure(oracle, str(failed)), APIS[key], version, transcript(log))


def replay_sequence(name: str, address: str, without: Collection[int] = ()) -> SequenceViolation | None:
    """Run a sequence again; return its violation. UsageError if there is no such sequence."""
    _check_name(name)
    try:
        return run_sequence(name, address, version_ranges(advertised(address)), without).violation
    except (OSError, UsageError) as error:
        failure = Failure(Oracle.ALIVE, f"the target refuses connections ({error})")
        return SequenceViolation(failure, APIS[API_VERSIONS], 0)


# --------------------------------------------------------------------------------------------------
# Sequences run in parallel, because each mostly waits for responses.


PARALLEL_RUNS: Final = 4


class ParallelRunner:
    """Runs sequences in parallel against one address."""

    def __init__(self, served: VersionRanges, draw: Callable[[], str]) -> None:
        self._served, self._draw = served, draw

    def run(self, address: str, end: float) -> list[tuple[str, SequenceResult]]:
        """Run random sequences until the time `end`, and return their names and results."""
        results: list[tuple[str, SequenceResult]] = []

        def worker() -> None:
            with suppress(OSError):  # no connection is accepted; the session's next check reports the crash
                while time.monotonic() < end:
                    name = self._draw()
                    results.append((name, run_sequence(name, address, self._served)))

        with ThreadPoolExecutor(PARALLEL_RUNS) as pool:
            for future in [pool.submit(worker) for _ in range(PARALLEL_RUNS)]:
                future.result()
        return results
