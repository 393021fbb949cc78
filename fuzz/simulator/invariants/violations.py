"""Violations, and the situations that a sweep wants to have seen."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

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
    "TransactionsAreAtomic": "no module: KIP-98, KIP-890",
    "LastStableOffset": "no module: KIP-98",
    "WrittenOnce": "no module: KIP-98",
    "NodeGoesOn": "no module: no message and no disk may break a node",
}
"""Of each invariant: the modules whose operator bears its name."""


@dataclass(frozen=True, slots=True)
class Violation:
    """`node` is the host that moved last."""

    invariant: str
    at_ms: int
    event: int
    node: str
    message: str

    @property
    def operator(self) -> str:
        return f"{self.invariant} ({OPERATORS[self.invariant]})"

    def __str__(self) -> str:
        return f"{self.invariant} at {self.at_ms} ms, event {self.event}, {self.node}: {self.message}"


class ViolationError(Exception):
    def __init__(self, violation: Violation) -> None:
        super().__init__(str(violation))
        self.violation = violation


class Seen(Counter[str]):
    """How often each interesting situation came up; a sweep tells what it never saw."""

    def add(self, situation: str) -> None:
        self[situation] += 1
