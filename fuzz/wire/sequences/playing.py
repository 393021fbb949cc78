"""One play of a seed, against an address: the same seed asks the same, as long as it is answered the same."""

import random
from collections.abc import Callable, Mapping
from typing import Final

from fuzz.wire.line import advertised
from fuzz.wire.oracles import Broken, Oracle
from fuzz.wire.sequences import groups, logs, relations, transactions
from fuzz.wire.sequences.stage import Abandoned, Stage, Violation
from reference.wire.registry import Api
from spec.formats.verdict import UsageError

PLAYS: Final[Mapping[str, tuple[Callable[[Stage], None], tuple[int, ...]]]] = {
    "log": (logs.play, (0, 1, 2, 19)),
    "group": (groups.play, (8, 9, 10, 11, 12, 13, 14)),
    "relation": (relations.play, (3, 18)),
    "transaction": (transactions.play, (0, 1, 2, 19, 22, 24, 26)),
}
"""By name; each with the keys that it cannot do without."""
Spoken = Mapping[int, tuple[int, int]]
"""First and last version by key."""


def spoken(served: list[tuple[Api, int, int]]) -> Spoken:
    return {api.key: (first, last) for api, first, last in served}


def possible(served: Spoken) -> list[str]:
    """The plays for which the target speaks enough."""
    return [name for name, (_, keys) in PLAYS.items() if all(key in served for key in keys)]


def perform(name: str, address: str, served: Spoken) -> tuple[Violation | None, bool]:
    """`name` is PLAY:SEED. What it violated, and whether it came to its end.

    OSError when the target takes no connections.
    """
    play, _, seed = name.partition(":")
    if play not in PLAYS or not seed:
        raise UsageError(f"no such sequence: {name}", mend=f"known: {', '.join(PLAYS)}, each with :SEED")
    stage = Stage(address, served, random.Random(name))
    try:
        PLAYS[play][0](stage)
    except Violation as violation:
        violation.said = stage.told()
        return violation, False
    except Abandoned:
        return None, False
    finally:
        stage.close()
    return None, True


def replay_sequence(name: str, address: str) -> Broken | None:
    """What breaks now."""
    try:
        violation, _ = perform(name, address, spoken(advertised(address)))
    except OSError as error:
        return Broken(Oracle.ALIVE, f"the target refuses connections ({error.strerror or error})")
    return violation.broken if violation is not None else None
