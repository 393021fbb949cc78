"""The kinds of clients that a run may have."""

from collections.abc import Callable
from typing import Final

from highwater.fuzz.simulator.cluster import CLASSIC, Load

OF_0_7: Final = "consumers as in 0.7"
LOADS: Final[dict[str, Callable[[Load], object]]] = {
    "idempotent producers": lambda load: load.idempotent,
    "transactions": lambda load: load.transactional,
    "a group": lambda load: load.members,
    "transactions and a group": lambda load: load.transactional and load.members,
    "assigned readers": lambda load: load.readers,
    "readers in a group": lambda load: load.group_readers,
    "classic transform": lambda load: load.transforms == CLASSIC,
    "transform as in KIP-890": lambda load: load.transforms not in {"", CLASSIC},
    "an administrator": lambda load: load.administrator,
    "topic deletions": lambda load: load.deletes or load.moves_side,
    "an intruder": lambda load: load.intruder,
    OF_0_7: lambda load: load.old_consumers,
}
"""Kinds of clients that a run may have, counted like situations."""


def loads_of(load: Load) -> list[str]:
    """Return the kinds of clients of a run."""
    return [kind for kind, met in LOADS.items() if met(load)]
