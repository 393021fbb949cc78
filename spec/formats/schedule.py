"""A fault schedule with absolute times, so that removing one fault does not move the others.

The simulator runs it in virtual time, the process injector in real time.
"""

from pathlib import Path
from typing import Literal

import msgspec

from highwater.errors import UsageError

Verb = Literal["kill", "restart", "pause", "resume"]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault. `target` is a node id (`"2"`, `"store"`), or a role, resolved when the fault is injected.

    Roles: `leader(topic,0)`, `followers(topic,0)`, `controller`, `killed` and `paused` (nodes in that state).
    """

    at_ms: int
    verb: Verb
    target: str


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """The faults of a run, which lasts `duration_ms`."""

    faults: tuple[Fault, ...] = ()
    duration_ms: int

    def in_order(self) -> tuple[Fault, ...]:
        return tuple(sorted(self.faults, key=lambda fault: fault.at_ms))


def write_schedule(path: Path, schedule: Schedule) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(schedule)))


def read_schedule(path: Path) -> Schedule:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Schedule)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"not a fault schedule: {error}", where=str(path)) from error
