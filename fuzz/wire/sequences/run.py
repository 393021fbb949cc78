"""One play of a seed, against an address: the same seed asks the same, as long as it is answered the same."""

import random
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, NamedTuple

from highwater.errors import UsageError
from highwater.fuzz.wire.connection import advertised
from highwater.fuzz.wire.oracles import API_VERSIONS, Broken, Oracle
from highwater.fuzz.wire.sequences import groups, logs, relations, transaction_states, transactions, txn_offsets, walks
from highwater.fuzz.wire.sequences import partitions as places
from highwater.fuzz.wire.sequences.behaviours import COOPERATIVE, EAGER, Bounds, behaviours
from highwater.fuzz.wire.sequences.context import Abandoned, Stage, Violation
from highwater.reference.wire.registry import APIS, Api

WALKS: Final[Mapping[str, tuple[Bounds, ...]]] = {"walk": EAGER, "cooperative": COOPERATIVE}
OF_A_GROUP: Final = (8, 9, 10, 11, 12, 13, 14)
PLAYS: Final[Mapping[str, tuple[Callable[[Stage], None], tuple[int, ...]]]] = {
    "log": (logs.play, (0, 1, 2, 19)),
    "place": (places.play, (0, 1, 2, 3, 19)),
    "group": (groups.play, OF_A_GROUP),
    "relation": (relations.play, (3, 18)),
    "transaction": (transactions.play, (0, 1, 2, 19, 22, 24, 26)),
    "offsets": (txn_offsets.play, (9, 10, 19, 22, 25, 26, 28)),
    "states": (transaction_states.play, (2, 10, 19, 22, 24, 26, 65)),
    "walk": (walks.play_eager, (*OF_A_GROUP, 15)),
    "cooperative": (walks.play_cooperative, (*OF_A_GROUP, 15)),
}
"""By name; each with the keys that it cannot do without."""
Spoken = Mapping[int, tuple[int, int]]
"""First and last version by key."""


def spoken(served: list[tuple[Api, int, int]]) -> Spoken:
    return {api.key: (first, last) for api, first, last in served}


def possible(served: Spoken) -> list[str]:
    """The plays for which the target speaks enough, and this machine has what they need."""
    missing = skipped()
    return [name for name, (_, keys) in PLAYS.items() if name not in missing and all(key in served for key in keys)]


def skipped() -> dict[str, str]:
    """Why a play cannot be had on this machine, by its name; what walks need is made ready meanwhile."""
    return {name: why for name, several in WALKS.items() if (why := _why_not(several))}


def _why_not(several: tuple[Bounds, ...]) -> str:
    try:
        for bounds in several:
            behaviours(bounds)
    except UsageError as error:
        return str(error)
    return ""


class Played(NamedTuple):
    """What a play violated, whether it came to its end, and how many steps it had begun."""

    violation: Violation | None
    finished: bool
    steps: int


def perform(
    name: str, address: str, served: Spoken, without: Collection[int] = (), claims: dict[str, Stage] | None = None
) -> Played:
    """`name` is PLAY:SEED; steps of these numbers are left out. OSError when the target takes no connections.

    Plays that are on at the same time share their `claims`.
    """
    play, _, seed = name.partition(":")
    if play not in PLAYS or not seed:
        raise UsageError(f"no such sequence: {name}", hint=f"known: {', '.join(PLAYS)}, each with :SEED")
    stage = Stage(address, served, random.Random(name), frozenset(without), claims={} if claims is None else claims)
    violation, finished = None, False
    try:
        PLAYS[play][0](stage)
        finished = True
    except Violation as found:
        violation = found
        violation.said = stage.told()
    except Abandoned:
        pass
    finally:
        stage.close()
    return Played(violation, finished, stage.steps_begun)


def replay_sequence(name: str, address: str, without: Collection[int] = ()) -> Violation | None:
    """What breaks now."""
    try:
        return perform(name, address, spoken(advertised(address)), without).violation
    except OSError as error:
        broken = Broken(Oracle.ALIVE, f"the target refuses connections ({error.strerror or error})")
        return Violation(broken, APIS[API_VERSIONS], 0)


# --------------------------------------------------------------------------------------------------
# Several plays at a time, for each waits for answers most of its time.


LANES: Final = 4


class Lanes:
    """Against one address; what a play must have to itself, the others do not touch meanwhile."""

    def __init__(self, served: Spoken, draw: Callable[[], str]) -> None:
        self._served, self._draw = served, draw
        self._claims: dict[str, Stage] = {}

    def play(self, address: str, end: float) -> list[tuple[str, Played]]:
        """Until that time, and until the last one has ended: name, and what became of it."""
        played: list[tuple[str, Played]] = []

        def lane() -> None:
            with suppress(OSError):  # it takes no connections: the next turn will find it dead
                while time.monotonic() < end:
                    name = self._draw()
                    played.append((name, perform(name, address, self._served, claims=self._claims)))

        with ThreadPoolExecutor(LANES) as pool:
            for lane_run in [pool.submit(lane) for _ in range(LANES)]:
                lane_run.result()
        return played
