"""Run one sequence by seed: the same seed sends the same requests, as long as the responses are the same."""

import random
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, NamedTuple

from highwater.errors import UsageError
from highwater.fuzz.wire.connection import advertised
from highwater.fuzz.wire.oracles.responses import API_VERSIONS, Failure, Oracle
from highwater.fuzz.wire.sequences import (
    deletions,
    fetch_sessions,
    groups,
    logs,
    partitions,
    rebalances,
    refusals,
    relations,
    topics,
    transaction_states,
    transactions,
    txn_offsets,
    walks,
)
from highwater.fuzz.wire.sequences.behaviours import COOPERATIVE, EAGER, Bounds, behaviours
from highwater.fuzz.wire.sequences.context import SequenceAbandoned, SequenceContext, Violation
from highwater.reference.wire.registry import APIS, Api

WALKS: Final[Mapping[str, tuple[Bounds, ...]]] = {"walk": EAGER, "cooperative": COOPERATIVE}
OF_A_GROUP: Final = (8, 9, 10, 11, 12, 13, 14)
SEQUENCES: Final[Mapping[str, tuple[Callable[[SequenceContext], None], tuple[int, ...]]]] = {
    "log": (logs.run, (0, 1, 2, 19)),
    "place": (partitions.run, (0, 1, 2, 3, 19)),
    "group": (groups.run, OF_A_GROUP),
    "rebalance": (rebalances.run, (10, 11, 12, 13, 14, 15)),
    "refused": (refusals.run, (3, 9, 10, 15, 16, 65, 66)),
    "relation": (relations.run, (3, 18)),
    "topic": (topics.run, (0, 1, 3, 19, 20)),
    "session": (fetch_sessions.run, (0, 1, 2, 18, 19)),
    "transaction": (transactions.run, (0, 1, 2, 19, 22, 24, 26)),
    "offsets": (txn_offsets.run, (9, 10, 19, 22, 25, 26, 28)),
    "states": (transaction_states.run, (2, 10, 19, 22, 24, 26, 65)),
    "deletion": (deletions.run, (0, 1, 2, 3, 10, 19, 20, 22, 24, 26)),
    "walk": (walks.run_eager, (*OF_A_GROUP, 15)),
    "cooperative": (walks.run_cooperative, (*OF_A_GROUP, 15)),
}
"""By name: the function, and the API keys that it requires."""
VersionRanges = Mapping[int, tuple[int, int]]
"""First and last version by API key."""


def version_ranges(served: list[tuple[Api, int, int]]) -> VersionRanges:
    return {api.key: (first, last) for api, first, last in served}


def runnable(served: VersionRanges) -> list[str]:
    """Return the sequences for which the target supports the APIs and this machine has the tools."""
    missing = skipped_sequences()
    return [name for name, (_, keys) in SEQUENCES.items() if name not in missing and all(key in served for key in keys)]


def skipped_sequences() -> dict[str, str]:
    """Return by name why a sequence cannot run on this machine. Also generates the behaviours for walks."""
    return {name: why for name, alternatives in WALKS.items() if (why := _reason_missing(alternatives))}


def _reason_missing(alternatives: tuple[Bounds, ...]) -> str:
    try:
        for bounds in alternatives:
            behaviours(bounds)
    except UsageError as error:
        return str(error)
    return ""


class SequenceResult(NamedTuple):
    """The violation, if any, whether the sequence completed, and how many steps were begun."""

    violation: Violation | None
    finished: bool
    steps: int


def run_sequence(
    name: str,
    address: str,
    served: VersionRanges,
    without: Collection[int] = (),
    claims: dict[str, SequenceContext] | None = None,
) -> SequenceResult:
    """Run `name`, which is SEQUENCE:SEED, without these steps; OSError if the target accepts no connection.

    Sequences that run in parallel share their `claims`.
    """
    kind, _, seed = name.partition(":")
    if kind not in SEQUENCES or not seed:
        raise UsageError(f"no such sequence: {name}", hint=f"use one of {', '.join(SEQUENCES)}, followed by :SEED")
    context = SequenceContext(
        address, served, random.Random(name), frozenset(without), claims={} if claims is None else claims
    )
    violation, finished = None, False
    try:
        SEQUENCES[kind][0](context)
        finished = True
    except Violation as found:
        violation = found
        violation.transcript = context.transcript()
    except SequenceAbandoned:
        pass
    finally:
        context.close()
    return SequenceResult(violation, finished, context.steps_begun)


def replay_sequence(name: str, address: str, without: Collection[int] = ()) -> Violation | None:
    """Run a sequence again; return its violation."""
    try:
        return run_sequence(name, address, version_ranges(advertised(address)), without).violation
    except (OSError, UsageError) as error:
        failure = Failure(Oracle.ALIVE, f"the target refuses connections ({error})")
        return Violation(failure, APIS[API_VERSIONS], 0)


# --------------------------------------------------------------------------------------------------
# Sequences run in parallel, because each mostly waits for responses.


PARALLEL_RUNS: Final = 4


class ParallelRunner:
    """Runs sequences in parallel against one address; claims keep them from using the same topic."""

    def __init__(self, served: VersionRanges, draw: Callable[[], str]) -> None:
        self._served, self._draw = served, draw
        self._claims: dict[str, SequenceContext] = {}

    def run(self, address: str, end: float) -> list[tuple[str, SequenceResult]]:
        """Run random sequences until the time `end`, and return their names and results."""
        results: list[tuple[str, SequenceResult]] = []

        def worker() -> None:
            with suppress(OSError):  # no connection is accepted; the session's next check reports the crash
                while time.monotonic() < end:
                    name = self._draw()
                    results.append((name, run_sequence(name, address, self._served, claims=self._claims)))

        with ThreadPoolExecutor(PARALLEL_RUNS) as pool:
            for future in [pool.submit(worker) for _ in range(PARALLEL_RUNS)]:
                future.result()
        return results
