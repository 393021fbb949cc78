"""The states of a group member (Apache Kafka's AbstractCoordinator), and every step between them."""

from enum import StrEnum
from typing import Final

from reference.state_table import StateTable


class MemberState(StrEnum):
    UNJOINED = "Unjoined"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    CLOSED = "Closed"


S = MemberState
_GAVE_UP: Final = "refused, or no answer in time: asks again at the next poll"
_ENDED: Final = "left, or fenced by a process with the same group.instance.id"

MEMBER_TABLE: Final = StateTable(
    "member",
    "kafka-2.4-rebalance; KIP-429; Apache Kafka AbstractCoordinator",
    S.UNJOINED,
    {
        (S.UNJOINED, S.PREPARING_REBALANCE): "poll: an eager member revokes all; JoinGroup with claims",
        (S.STABLE, S.PREPARING_REBALANCE): "poll, after REBALANCE_IN_PROGRESS or a revocation; the same",
        (S.PREPARING_REBALANCE, S.COMPLETING_REBALANCE): "JoinGroup answered; the leader assigns; SyncGroup",
        (S.COMPLETING_REBALANCE, S.STABLE): "SyncGroup answered; what is new is added, what is gone revoked at a poll",
        (S.PREPARING_REBALANCE, S.UNJOINED): _GAVE_UP,
        (S.COMPLETING_REBALANCE, S.UNJOINED): _GAVE_UP,
        (S.STABLE, S.UNJOINED): "a member no more, or not of this generation: what it had is lost",
        (S.UNJOINED, S.CLOSED): _ENDED,
        (S.PREPARING_REBALANCE, S.CLOSED): _ENDED,
        (S.COMPLETING_REBALANCE, S.CLOSED): _ENDED,
        (S.STABLE, S.CLOSED): _ENDED,
    },
)
