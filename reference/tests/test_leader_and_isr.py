"""A broker handles LeaderAndIsr and StopReplica of the controller (kafka-0.8-principles; KIP-380, KIP-570)."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from highwater.reference.controller.cluster import Key
from highwater.reference.controller.context import Decision
from highwater.reference.replication.partition import Role
from highwater.reference.tests.simulated import Simulated
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.controller import (
    ControlledShutdownRequest,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)

EPOCH = 9  # newer than the epoch of the running controller


def make(*, guards_off: tuple[str, ...] = ()) -> Simulated:
    simulated = Simulated(1, guards_off=guards_off, auto_leader_rebalance_enable=False)
    simulated.create("t")
    return simulated


def send_leader_and_isr(
    simulated: Simulated, leader_epoch: int, *, leader: int = 1, replicas: tuple[int, ...] = (1, 2),
    controller_epoch: int = EPOCH, broker_epoch: int = -1,
) -> Any:  # fmt: skip
    """Send LeaderAndIsr for partition 7 and return (top-level error, errors of partitions)."""
    state = LeaderAndIsrPartitionState(
        partition_index=7, controller_epoch=controller_epoch, leader=leader, leader_epoch=leader_epoch,
        isr=replicas, partition_epoch=0, replicas=replicas,
    )  # fmt: skip
    request = LeaderAndIsrRequest(
        controller_id=1, controller_epoch=controller_epoch, broker_epoch=broker_epoch,
        topic_states=(LeaderAndIsrTopicState(topic_name="t", partition_states=(state,)),),
    )  # fmt: skip
    reply = simulated.ask(request, 4)
    return ErrorCode(reply.error_code), [ErrorCode(each.error_code) for each in reply.partition_errors]


def role(simulated: Simulated) -> tuple[Role, int]:
    partition = simulated.broker().replicas.partitions["t", 7]
    return partition.role, partition.leader_epoch


def stop(simulated: Simulated, leader_epoch: int) -> ErrorCode:
    state = StopReplicaPartitionState(partition_index=7, leader_epoch=leader_epoch, delete_partition=True)
    topics = (StopReplicaTopicState(topic_name="t", partition_states=(state,)),)
    request = StopReplicaRequest(controller_id=1, controller_epoch=EPOCH, broker_epoch=-1, topic_states=topics)
    return ErrorCode(simulated.ask(request, 3).partition_errors[0].error_code)


def test_leader_and_isr_makes_leaders_and_followers() -> None:
    simulated = make()
    assert send_leader_and_isr(simulated, 3) == (ErrorCode.NONE, [ErrorCode.NONE])
    assert role(simulated) == (Role.LEADER, 3)
    assert send_leader_and_isr(simulated, 4, leader=2) == (ErrorCode.NONE, [ErrorCode.NONE])
    assert role(simulated) == (Role.FOLLOWER, 4)


def test_a_partition_not_assigned_to_this_broker_is_not_created() -> None:
    simulated = make()
    assert send_leader_and_isr(simulated, 3, replicas=(2, 3)) == (
        ErrorCode.NONE,
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    )
    assert ("t", 7) not in simulated.broker().replicas.partitions


@pytest.mark.parametrize("guard", ["", "FenceStaleController"])
def test_a_stale_controller_epoch_fails_the_whole_request(guard: str) -> None:
    simulated = make(guards_off=(guard,) if guard else ())
    send_leader_and_isr(simulated, 3)
    refused = send_leader_and_isr(simulated, 4, leader=2, controller_epoch=EPOCH - 1)
    assert refused == ((ErrorCode.NONE, [ErrorCode.NONE]) if guard else (ErrorCode.STALE_CONTROLLER_EPOCH, []))
    assert role(simulated) == ((Role.FOLLOWER, 4) if guard else (Role.LEADER, 3))


@pytest.mark.parametrize("guard", ["", "FenceStaleLeaderAndIsr"])
@pytest.mark.parametrize("leader_epoch", [2, 3])
def test_a_stale_leader_epoch_fails_only_its_partition(guard: str, leader_epoch: int) -> None:
    simulated = make(guards_off=(guard,) if guard else ())
    send_leader_and_isr(simulated, 3)
    error, (refused,) = send_leader_and_isr(simulated, leader_epoch, leader=2)
    assert error is ErrorCode.NONE
    assert refused is (ErrorCode.NONE if guard else ErrorCode.STALE_CONTROLLER_EPOCH)
    assert role(simulated) == ((Role.FOLLOWER, leader_epoch) if guard else (Role.LEADER, 3))


@pytest.mark.parametrize("guard", ["", "FenceOldBrokerEpoch"])
def test_a_stale_broker_epoch_is_refused(guard: str) -> None:
    simulated = make(guards_off=(guard,) if guard else ())
    error, _ = send_leader_and_isr(simulated, 3, broker_epoch=0)
    assert error is (ErrorCode.NONE if guard else ErrorCode.STALE_BROKER_EPOCH)


@pytest.mark.parametrize("guard", ["", "FenceStaleStopReplica"])
def test_a_stale_stop_replica_does_not_delete_a_reassigned_replica(guard: str) -> None:
    simulated = make(guards_off=(guard,) if guard else ())
    send_leader_and_isr(simulated, 5)
    assert stop(simulated, 4) is (ErrorCode.NONE if guard else ErrorCode.FENCED_LEADER_EPOCH)
    assert (("t", 7) in simulated.broker().replicas.partitions) is (not guard)
    assert stop(simulated, 5) is ErrorCode.NONE
    assert ("t", 7) not in simulated.broker().replicas.partitions


def test_a_stale_leader_and_isr_does_not_recreate_a_deleted_replica() -> None:
    simulated = make()
    send_leader_and_isr(simulated, 5)
    stop(simulated, 6)
    assert send_leader_and_isr(simulated, 6)[1] == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert ("t", 7) not in simulated.broker().replicas.partitions
    assert send_leader_and_isr(simulated, 7)[1] == [ErrorCode.NONE]


@pytest.mark.parametrize("guards_off", [(), ("UncleanRestartLeavesIsr",)], ids=["guard on", "guard off"])
def test_a_shutdown_trusts_no_broker_whose_unclean_restart_is_not_handled(guards_off: tuple[str, ...]) -> None:
    simulated = Simulated(3, guards_off=guards_off, auto_leader_rebalance_enable=False)
    simulated.create("t")
    (term,) = (term for each in simulated.broker_ids if (term := simulated.broker(each).controller.term) is not None)
    controller_id, cluster = term.controller_context.broker_context.broker_id, term.controller_context.cluster
    leaving, unclean = (each for each in simulated.broker_ids if each != controller_id)
    cluster.brokers[unclean] = replace(cluster.brokers[unclean], unclean=True)
    answer = simulated.ask(ControlledShutdownRequest(broker_id=leaving), 3, controller_id)
    assert (answer.error_code, answer.remaining_partitions) == (ErrorCode.NONE, ())
    assert set(cluster.states["t", 0].isr) == ({controller_id, unclean} if guards_off else {controller_id})


def test_a_shutdown_goes_on_if_a_topic_is_deleted_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = Simulated(3, auto_leader_rebalance_enable=False)
    for topic in ("gone", "stays"):
        simulated.create(topic)
    (term,) = (term for each in simulated.broker_ids if (term := simulated.broker(each).controller.term) is not None)
    controller_id, cluster = term.controller_context.broker_context.broker_id, term.controller_context.cluster
    leaving = next(each for each in simulated.broker_ids if each != controller_id)
    update = term.controller_context.update_partitions

    async def delete_and_update(keys: Iterable[Key], decide: Decision) -> list[Key]:
        changed = await update(keys, decide)
        cluster.states.pop(("gone", 0), None)  # as the last step of a deletion does
        return changed

    monkeypatch.setattr(term.controller_context, "update_partitions", delete_and_update)
    answer = simulated.ask(ControlledShutdownRequest(broker_id=leaving), 3, controller_id)
    assert (answer.error_code, answer.remaining_partitions) == (ErrorCode.NONE, ())
    assert leaving not in cluster.states["stays", 0].isr
