"""The controller validates AlterPartition proposals; each guard has a test (KIP-497, KIP-841, KIP-903, KIP-966)."""

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
    """Broker 3 is alive and has restarted once; broker 4 is assigned and down."""
    brokers = {broker: BrokerInfo("h", 9092, epoch=10 * broker, unclean=False) for broker in (1, 2, 3)}
    topics = {"t": TopicInfo(bytes(16), {0: (1, 2, 3, 4)})}
    return Cluster(brokers, topics, {KEY: STATE})


def proposal_of(
    *isr: int, epochs: Mapping[int, int] | None = None, **fields: Any
) -> AlterPartitionRequestPartitionData:
    members = tuple(
        BrokerState(broker_id=member, broker_epoch=(epochs or {}).get(member, 10 * member)) for member in isr
    )
    values = {"leader_epoch": 4, "partition_epoch": 7, **fields}
    return AlterPartitionRequestPartitionData(partition_index=0, new_isr_with_epochs=members, **values)


def validate(proposal: AlterPartitionRequestPartitionData, leader: int = 1, guards: Guards | None = None) -> Any:
    error, state = validate_proposal(cluster(), guards or Guards(), KEY, leader, proposal)
    return error, state.isr if state else None


def test_a_leader_may_add_and_remove_isr_members() -> None:
    assert validate(proposal_of(1, 2, 3)) == (ErrorCode.NONE, (1, 2, 3))
    assert validate(proposal_of(1)) == (ErrorCode.NONE, (1,))
    without_epochs = AlterPartitionRequestPartitionData(
        partition_index=0, new_isr=(3, 1), leader_epoch=4, partition_epoch=7
    )
    assert validate(without_epochs) == (ErrorCode.NONE, (1, 3))


def test_a_repeated_proposal_is_accepted_with_any_partition_epoch() -> None:
    assert validate(proposal_of(1, 2, partition_epoch=6)) == (ErrorCode.NONE, None)


@pytest.mark.parametrize("isr", [(), (2, 3), (1, 9)], ids=["empty", "not the leader", "not assigned"])
def test_an_isr_without_the_leader_or_with_an_unassigned_broker_is_refused(isr: tuple[int, ...]) -> None:
    assert validate(proposal_of(*isr)) == (ErrorCode.INVALID_REQUEST, None)


@pytest.mark.parametrize(
    ("guard", "proposal", "leader", "refused"),
    [
        ("FenceOldLeader", proposal_of(1, 2, 3, leader_epoch=3), 1, ErrorCode.FENCED_LEADER_EPOCH),
        ("IsrCas", proposal_of(1, 2, 3, partition_epoch=6), 1, ErrorCode.INVALID_UPDATE_VERSION),
        ("RefuseFenced", proposal_of(1, 2, 4), 1, ErrorCode.INELIGIBLE_REPLICA),
        ("RefuseFormerLife", proposal_of(1, 2, 3, epochs={3: 29}), 1, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_each_guard_refuses_a_proposal_that_is_accepted_without_it(
    guard: str, proposal: AlterPartitionRequestPartitionData, leader: int, refused: ErrorCode
) -> None:
    assert validate(proposal, leader) == (refused, None)
    error, isr = validate(proposal, leader, Guards().without(guard))
    assert error is ErrorCode.NONE
    assert isr is not None


def test_a_controller_behind_the_leader_answers_not_controller() -> None:
    """KAFKA-14154: otherwise the leader considers itself fenced and waits for a state that never arrives."""
    newer = proposal_of(1, 2, 3, leader_epoch=5)
    assert validate(newer)[0] is ErrorCode.NOT_CONTROLLER
    assert validate(newer, guards=Guards().without("DeferToNewerLeader"))[0] is ErrorCode.FENCED_LEADER_EPOCH
    assert validate(proposal_of(1, 2, 3, partition_epoch=8))[0] is ErrorCode.NOT_CONTROLLER


def test_a_removed_isr_member_stays_in_the_elr_until_the_isr_reaches_min_isr() -> None:
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
def test_each_eligibility_guard_changes_the_elr(
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
def test_a_replica_restarted_uncleanly_leaves_the_isr_unless_no_other_is_complete(
    isr: tuple[int, ...], elr: tuple[int, ...], unclean: set[int], trusted: tuple[int, ...]
) -> None:
    assert trusted_isr(PartitionState(1, 4, isr, 1, 7, elr), unclean) == trusted
