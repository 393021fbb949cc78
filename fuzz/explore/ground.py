"""One walk: a program on a target along a path, and what it found."""

import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, cast

from highwater.conformance.cases import programs
from highwater.conformance.client.broker import advertised_versions
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.connection import WaitLimit, access_to
from highwater.conformance.client.draws import Followed, Path
from highwater.conformance.client.exchange import Event, ExchangeLog
from highwater.conformance.failures import Disconnected, NoReply, NotApplicable, TargetFailure, Unsupported
from highwater.conformance.targets.base import REPEATABLE, RepeatableTarget, Target
from highwater.fuzz.wire.oracles.exchanges import misread
from highwater.fuzz.wire.oracles.responses import error_codes
from highwater.reference.wire.errors import WireError
from highwater.reference.wire.framing import decode_response

ANSWER_S, POLLING_S = 5.0, 8.0
VARIES: Final = re.compile(r"hw-[\w-]+|\bunknown(?=/)|\bv?-?\d+\b")
"""What differs between two walks with the same difference: names, versions, partitions and offsets."""


class Kind(StrEnum):
    """What a walk may find."""

    DIFFERENCE = "difference"
    CLOSED = "closed connection"
    SILENCE = "silence"
    RESPONSE = "wrong response"
    UNREADABLE = "unreadable reply"
    DEAD = "dead broker"


class Transition(NamedTuple):
    """What a model did: a request of an API that was answered with an error code, or with 0."""

    api: str
    error: int


@dataclass(frozen=True)
class Walked:
    """The end of a walk: `failure` is empty if each reply was as a model expects, `unfit` if the program fits."""

    program: str
    path: Path
    taken: Path = field(repr=False)
    log: ExchangeLog = field(repr=False)
    failure: str = ""
    kind: Kind = Kind.DIFFERENCE
    unfit: str = ""

    @property
    def key(self) -> str:
        """Return the failure without what varies: two walks with the same key found the same difference."""
        return key_of(self.program, self.kind, self.failure)

    @property
    def is_fixed(self) -> bool:
        """Return whether the program chose nothing on a path with steps, so that another path is the same walk."""
        return len(self.path) > 0 and not len(self.taken) and not any(step.choices for step in self.taken.outside)

    @property
    def replies(self) -> list[Event]:
        return [event for event in self.log if event.api is not None]

    @property
    def size(self) -> tuple[int, int, int]:
        """Return steps, replies and the sum of choices: the smallest walk is read first."""
        chosen = (step for loop in self.path.loops for step in loop)
        return len(self.path), len(self.replies), sum(step.number + step.seed + sum(step.choices) for step in chosen)

    def transitions(self) -> Counter[Transition]:
        """Count the replies by API and error code; a reply with several codes counts for each."""
        found = Counter[Transition]()
        for event in self.replies:
            assert event.api is not None
            try:
                _, message = decode_response(event.api, event.version, event.data[4:])
            except WireError:
                continue
            codes = set(error_codes(event.api, event.version, message)) or {0}
            found.update(Transition(event.api.name, code) for code in codes)
        return found


def key_of(program: str, kind: Kind, failure: str) -> str:
    """Return a failure without what varies."""
    return f"{program}, {kind}: {VARIES.sub('…', failure)}"


class Ground:
    """A target on which walks run, each with fresh names, or in virtual time in a fresh world."""

    def __init__(self, target: Target) -> None:
        """Raises TargetFailure if the target does not say what it serves."""
        self.target, self.is_repeatable = target, REPEATABLE in target.capabilities
        self._address = next(iter(target.addresses.values()))
        self._served = advertised_versions(self._address, access=access_to(target))

    def walk(self, program: str, path: Path) -> Walked:
        """Walk along a path. Never raises for what a target does."""
        if self.is_repeatable:
            cast("RepeatableTarget", self.target).begin_case(program)
        draws = Followed(path)
        cluster = Cluster(
            self.target, self._served, timeout_s=ANSWER_S, wait_limit=WaitLimit(ANSWER_S, POLLING_S), whole_log=True,
            draws=draws, keep=self.is_repeatable, prefix="walk" if self.is_repeatable else "",
        )  # fmt: skip
        failure, kind, unfit = self._run(program, cluster)
        return Walked(program, path, draws.taken(), cluster.log, failure, kind, unfit)

    def _run(self, program: str, cluster: Cluster) -> tuple[str, Kind, str]:
        """Return the failure, its kind, and why the program does not fit."""
        failure, kind, unfit = "", Kind.DIFFERENCE, ""
        try:
            programs.run(program, cluster)
        except (Unsupported, NotApplicable) as error:
            unfit = str(error)
        except (TargetFailure, OSError) as error:
            failure, kind = str(error), _kind(error)
        except (AssertionError, LookupError, TypeError, ValueError) as error:  # no program foresaw this reply
            failure, kind = f"the program does not understand a reply: {error!r}", Kind.UNREADABLE
        if (wrong := misread(cluster.log)) is not None:
            failure, kind = f"{wrong.api.name} v{wrong.version}: {wrong.failure.message}", Kind.RESPONSE
        if failure and (dead := self._why_dead()):
            failure, kind = f"{failure}; {dead}", Kind.DEAD
        self._close(cluster)
        return failure, kind, unfit

    def _why_dead(self) -> str:
        """Return what broke in the target, or empty; a launched one is started again."""
        if self.is_repeatable:
            return cast("RepeatableTarget", self.target).end_case().broken
        try:
            advertised_versions(self._address, access=access_to(self.target))
        except (TargetFailure, OSError) as error:
            self.target.revive()
            return f"the broker no longer answers ({error})"
        return ""

    def is_alive(self) -> bool:
        """Return whether the target still answers."""
        if self.is_repeatable:
            return True
        try:
            advertised_versions(self._address, access=access_to(self.target))
        except (TargetFailure, OSError):
            return False
        return True

    def _close(self, cluster: Cluster) -> None:
        with suppress(TargetFailure, Unsupported, OSError):  # what the clean-up meets is for other programs to judge
            cluster.close()


def _kind(error: Exception) -> Kind:
    if isinstance(error, Disconnected | OSError):
        return Kind.CLOSED
    return Kind.SILENCE if isinstance(error, NoReply) else Kind.DIFFERENCE
