"""Violations of invariants, and counts of the situations that occurred in a run."""

from collections import Counter
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol


class About(NamedTuple):
    """What a violation concerns, so that its report can follow that; empty fields are not known.

    `partition` as `t-0`, `offset` the first one that is wrong or missing; `node` a client or broker whose own messages
    are to be shown; `entity` one of the trace whose steps are to be shown.
    """

    partition: str = ""
    offset: int = -1
    group: str = ""
    node: str = ""
    entity: str = ""


NOTHING: Final = About()
CONTROLLER_ENTITY: Final = "controller"
"""The entity of a violation that concerns the controller and its epoch."""


class Violated(Protocol):
    """Reports a violation: the name of the invariant, a message, and what it concerns."""

    def __call__(self, invariant: str, message: str, about: About = NOTHING) -> None: ...


OPERATORS: Final = {
    "AckedSurvives": "IsrCommit, HwTruncation",
    "CommittedOnEligible": "IsrCommit; CommittedOnIsr of HwTruncation",
    "LogMatching": "HwTruncation",
    "EpochsAscend": "HwTruncation",
    "HwWithinLog": "HwTruncation",
    "LeadersAgree": "IsrCommit, HwTruncation",
    "ReadersAgree": "HwTruncation",
    "HwNeverFalls": "IsrCommit",
    "EnoughHold": "IsrCommit",
    "LeaderCountsIsr": "IsrCommit",
    "NoFencedMember": "IsrCommit",
    "LeaderCommits": "IsrCommit, liveness",
    "FollowersConverge": "HwTruncation, liveness",
    "NothingInvalidStored": "none: clause PRD-36",
    "OneControllerPerEpoch": "ControllerFailover",
    "OneLeaderPerEpoch": "ControllerFailover",
    "BrokersNotAhead": "ControllerFailover",
    "BrokersGoForward": "ControllerFailover",
    "ZombiesWriteNothing": "ControllerFailover",
    "LeaderIsAssigned": "ControllerFailover",
    "NoOrphans": "ControllerFailover",
    "NothingLeft": "ControllerFailover",
    "MovedInTheEnd": "ControllerFailover, liveness",
    "DeletedInTheEnd": "ControllerFailover, liveness",
    "OneOwner": "EagerRebalance, CooperativeRebalance",
    "OwnershipKept": "EagerRebalance, CooperativeRebalance: GroupOwnership!Spec",
    "Barrier": "EagerRebalance",
    "AllAssigned": "EagerRebalance",
    "NoGhosts": "EagerRebalance",
    "ClaimsAgree": "CooperativeRebalance",
    "Undisturbed": "CooperativeRebalance",
    "OneFetcher": "ZkRebalance",
    "OwnRangeOnly": "ZkRebalance",
    "EventuallyAllClaimed": "ZkRebalance, liveness",
    "EventuallySettled": "EagerRebalance, CooperativeRebalance, liveness",
    "TransactionsAreAtomic": "AllOrNothing of Transactions",
    "CommitsAreAsked": "Transactions",
    "NoneHangs": "Transactions",
    "EveryMarkerIsWritten": "Transactions, liveness",
    "LastStableOffset": "no module: KIP-98",
    "InOrderOnce": "SequenceWindow",
    "RepeatsAreAnswered": "SequenceWindow",
    "WrittenOnce": "no module: KIP-98",
    "AckedAreWhatWasSent": "no module: the content behind AckedSurvives",
    "ReadersGoOn": "no module: liveness",
    "ReadIsCommitted": "no module: no dirty read",
    "ReadIsWhatWasSent": "no module: no gap and no other value in what a consumer delivers",
    "AbortedStaysHidden": "no module: KIP-98",
    "ReadableStays": "no module: a later leader has what a consumer has read",
    "EndNeverFalls": "no module: KIP-207",
    "CommittedOffsetStays": "no module: OffsetFetch returns the newest commit",
    "TransformedOnce": "no module: KIP-447",
    "AnswersFitModel": "no module: the clauses of the suite's programs",
    "HistoryIsValid": "no module: the rules of the auditor",
    "FilesMatchLog": "no module: indexes and snapshots are derived from the log",
    "DamageIsRemoved": "no module: recovery checks the CRC of each batch",
    "NodeGoesOn": "no module: a node must not raise, whatever it receives or reads",
}
"""For each invariant the TLA+ modules with an operator of its name."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated invariant; `node` is the host that handled event number `event`."""

    invariant: str
    at_ms: int
    event: int
    node: str
    message: str
    about: About = NOTHING

    @property
    def operator(self) -> str:
        """Return the invariant with its TLA+ modules."""
        return f"{self.invariant} ({OPERATORS[self.invariant]})"

    def __str__(self) -> str:
        return f"{self.invariant} at {self.at_ms} ms, event {self.event}, {self.node}: {self.message}"


class ViolationError(Exception):
    """Ends a run at its first violation."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(str(violation))
        self.violation = violation


class SituationCounts(Counter[str]):
    """How often each situation occurred in a run; a sweep reports those that never did."""

    def add(self, situation: str) -> None:
        """Count one occurrence."""
        self[situation] += 1
