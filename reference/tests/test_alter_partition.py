"""Which proposals for the ISR the controller takes, and what each rule is for (KIP-497, KIP-841, KIP-903, KIP-966)."""

from collections.abc import Mapping
from typing import Any

import pytest

from highwater.reference.controller.alter_partition import validate_proposal
from highwater.reference.controller.cluster import BrokerInfo, Cluster, TopicInfo
from highwater.reference.controller.election import next_elr, trusted_isr
from highwater.reference.guards import Guards
from highwater.reference.replication.states import PartitionState
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.controller import AlterPartitionRequestPartitionData, BrokerState

KEY = ("t", 0)
STATE = PartitionState(leader=1, leader_epoch=4, isr=(1, 2), controller_epoch=1, partition_epoch=7)


def cluster() -> Cluster:
    """Broker 3 is alive, in its second life; broker 4 is assigned, and down."""
    brokers = {broker: BrokerInfo("h", 9092, epoch=10 * broker, unclean=False) for broker in (1, 2, 3)}
    topics = {"t": TopicInfo(bytes(16), {0: (1, 2, 3, 4)})}
    return Cluster(brokers, topics, {KEY: STATE})


def asked(*isr: int, epochs: Mapping[int, int] | None = None, **given: Any) -> AlterPartitionRequestPartitionData:
    members = tuple(
        BrokerState(broker_id=member, broker_epoch=(epochs or {}).get(member, 10 * member)) for member in isr
    )
    values = {"leader_epoch": 4, "partition_epoch": 7, **given}
    return AlterPartitionRequestPartitionData(partition_index=0, new_isr_with_epochs=members, **values)


def verdict(proposal: AlterPartitionRequestPartitionData, leader: int = 1, guards: Guards | None = None) -> Any:
    error, state = validate_proposal(cluster(), guards or Guards(), KEY, leader, proposal)
    return error, state.isr if state else None


def test_a_leader_may_take_members_in_and_out() -> None:
    assert verdict(asked(1, 2, 3)) == (ErrorCode.NONE, (1, 2, 3))
    assert verdict(asked(1)) == (ErrorCode.NONE, (1,))
    without_epochs = AlterPartitionRequestPartitionData(
        partition_index=0, new_isr=(3, 1), leader_epoch=4, partition_epoch=7
    )
    assert verdict(without_epochs) == (ErrorCode.NONE, (1, 3))


def test_the_same_again_is_taken_again_whatever_its_partition_epoch() -> None:
    assert verdict(asked(1, 2, partition_epoch=6)) == (ErrorCode.NONE, None)


@pytest.mark.parametrize("isr", [(), (2, 3), (1, 9)], ids=["nobody", "not the leader", "not assigned"])
def test_nonsense_is_refused(isr: tuple[int, ...]) -> None:
    assert verdict(asked(*isr)) == (ErrorCode.INVALID_REQUEST, None)


@pytest.mark.parametrize(
    ("guard", "proposal", "leader", "refused"),
    [
        ("FenceOldLeader", asked(1, 2, 3, leader_epoch=3), 1, ErrorCode.FENCED_LEADER_EPOCH),
        ("IsrCas", asked(1, 2, 3, partition_epoch=6), 1, ErrorCode.INVALID_UPDATE_VERSION),
        ("RefuseFenced", asked(1, 2, 4), 1, ErrorCode.INELIGIBLE_REPLICA),
        ("RefuseFormerLife", asked(1, 2, 3, epochs={3: 29}), 1, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_off_the_rule_lets_it_through(
    guard: str, proposal: AlterPartitionRequestPartitionData, leader: int, refused: ErrorCode
) -> None:
    assert verdict(proposal, leader) == (refused, None)
    error, isr = verdict(proposal, leader, Guards().without(guard))
    assert error is ErrorCode.NONE
    assert isr is not None


def test_a_controller_that_is_behind_says_that_it_is_none() -> None:
    """KAFKA-14154: otherwise the leader takes itself for fenced, and waits for a state that never comes."""
    newer = asked(1, 2, 3, leader_epoch=5)
    assert verdict(newer)[0] is ErrorCode.NOT_CONTROLLER
    assert verdict(newer, guards=Guards().without("DeferToNewerLeader"))[0] is ErrorCode.FENCED_LEADER_EPOCH
    assert verdict(asked(1, 2, 3, partition_epoch=8))[0] is ErrorCode.NOT_CONTROLLER


def test_who_leaves_an_isr_that_is_too_small_stays_eligible_until_it_is_large_enough() -> None:
    small = PartitionState(1, 4, (1, 2), 1, 7)
    assert next_elr(small, (1,), (), 2, Guards()) == (2,)
    assert next_elr(small, (1,), (), 1, Guards()) == ()
    alone = PartitionState(1, 5, (1,), 1, 8, elr=(2, 3))
    assert next_elr(alone, (1, 2), (), 2, Guards()) == ()
    assert next_elr(alone, (1,), (3,), 2, Guards()) == (2,)


@pytest.mark.parametrize(
    ("guard", "isr", "unclean", "elr"),
    [
        ("KeepEligible", (1,), (), ()),
        ("EmptyEligibleAtMinIsr", (1, 2), (), (3,)),
        ("UncleanLeavesEligible", (1,), (3,), (2, 3)),
    ],
)
def test_without_a_rule_of_eligibility(
    guard: str, isr: tuple[int, ...], unclean: tuple[int, ...], elr: tuple[int, ...]
) -> None:
    alone = PartitionState(1, 5, (1,), 1, 8, elr=(2, 3))
    assert next_elr(alone, isr, unclean, 2, Guards().without(guard)) == elr
    assert next_elr(alone, isr, unclean, 2, Guards()) != elr


@pytest.mark.parametrize(
    ("isr", "elr", "unclean", "trusted"),
    [
        ((1, 2), (), {1}, (2,)),
        ((1,), (2,), {1}, ()),
        ((1,), (2,), {2}, (1,)),
        ((1,), (), {1}, (1,)),
        ((1,), (2,), {1, 2}, (1,)),
        ((), (2,), {2}, (2,)),
    ],
)
def test_who_restarted_uncleanly_stays_in_the_isr_only_if_nobody_else_has_everything(
    isr: tuple[int, ...], elr: tuple[int, ...], unclean: set[int], trusted: tuple[int, ...]
) -> None:
    assert trusted_isr(PartitionState(1, 4, isr, 1, 7, elr), unclean) == trusted
