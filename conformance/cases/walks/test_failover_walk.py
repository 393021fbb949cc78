"""A group after its coordinator has changed, and has changed back: everything is compared with the model again."""

import pytest

from highwater.conformance.cases.support.committed_offsets import offsets_partition
from highwater.conformance.cases.support.group_walks.members import (
    INSTANCES_SINCE,
    ClassicWalk,
    WalkMember,
    assign,
    rebalance,
    restart,
    same_coordinator,
)
from highwater.conformance.cases.support.group_walks.offset_walk import OffsetWalk
from highwater.conformance.cases.support.polling import eventually_passes, spread
from highwater.conformance.cases.support.replicas import await_isr
from highwater.conformance.clause import clause, era
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, defect, increment
from highwater.conformance.expectations import expect, only
from highwater.conformance.models.groups import DEAD, EMPTY, ClassicModel, GroupClient
from highwater.conformance.models.offsets import Commit
from highwater.conformance.targets.base import STOP_NODE
from highwater.reference.wire.messages.committed_offsets import OffsetFetchRequest
from highwater.reference.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)

OFFERS = (("range", b"m"), ("sticky", b"n"))


@clause("GRP-69", "next coordinator")
@era("3.9")  # 2.8.2 ignores an unknown instance id in Heartbeat and LeaveGroup
@pytest.mark.cluster_fault
@pytest.mark.slow
@defect(
    Reply(DescribeGroupsRequest, "groups.members.group_instance_id", None),
    Reply(SyncGroupRequest, "assignment", b""),
    Reply(OffsetFetchRequest, "groups.topics.partitions.committed_leader_epoch", increment),
)
def test_the_next_coordinator_follows_the_model(cluster: Cluster) -> None:
    """One group has members, one only offsets, one had members that have left, and one was deleted."""
    cluster.need(STOP_NODE)
    cluster.need_brokers(3)
    names = same_coordinator(cluster, 4)
    broker, models = cluster.coordinator(names[0]), [ClassicModel(name, EMPTY) for name in names]
    live, simple, left, deleted = models
    offsets = OffsetWalk(cluster, broker, *models)
    version, keys = offsets.commit_versions[-1], [key for key in offsets.keys if offsets.existing.has(*key)]
    for number, model in enumerate(models):
        commits = [Commit(*key, number, leader_epoch=number, metadata=f"of {number}") for key in keys]
        offsets.commit(model, commits, GroupClient(), version)
    walks = [ClassicWalk(cluster, broker, model, "newest") for model in (live, left)]
    members = _stable(walks[0], static=spread(broker, JoinGroupRequest)[-1] >= INSTANCES_SINCE)
    gone = WalkMember(walks[1], OFFERS)
    rebalance(walks[1], [gone], "range", new=[gone])
    assign(walks[1], [gone])
    walks[1].leave((gone.member_id, None))
    reply = broker.call(DeleteGroupsRequest(groups_names=(deleted.group,)))
    expect("error code of DeleteGroups", 0, only(reply.results).error_code)
    deleted.state, deleted.offsets.stored = DEAD, {}
    # Kafka 3.9.1 does not wait until the deletion is replicated (GroupMetadataManager.cleanupGroupMetadata); a commit
    # in the same partition is after it.
    offsets.commit(simple, [Commit(*keys[0], 9, metadata=None)], GroupClient(), version)
    partition = offsets_partition(cluster, live.group)
    await_isr(cluster, partition, 3)
    cluster.kill(partition.leader_id)
    cluster.topic(partition.name, partition=partition.partition, excluded_leader=partition.leader_id, timeout_s=30.0)
    offsets.broker = cluster.coordinator(live.group)
    # The next coordinator may know less for a moment (OFF-22).
    eventually_passes(cluster, "what the coordinator knew", offsets.check_all)
    for walk in walks:
        walk.broker = offsets.broker
        walk.check()
    old, new = members
    generation = live.generation
    walks[0].check_heartbeats(*(GroupClient(each.member_id, generation) for each in members), gone.client)
    walks[0].check_heartbeats(new.client, *(GroupClient(old.member_id, generation + step) for step in (-1, 1)))
    walks[0].check_syncs(*(GroupClient(each.member_id, generation) for each in members))
    walks[1].check_heartbeats(gone.client)
    walks[0].leave(("unknown", None), (old.member_id, "unknown"), (old.member_id, None))
    walks[0].check()


def _stable(walk: ClassicWalk, *, static: bool) -> list[WalkMember]:
    """Return the members of a stable group, of which a static one has restarted."""
    members = [WalkMember(walk, OFFERS), WalkMember(walk, OFFERS, "static" if static else None)]
    rebalance(walk, members[:1], "range", new=members[:1])
    assign(walk, members[:1])
    rebalance(walk, members, "range", new=members[1:])
    assign(walk, members[::-1])
    return [members[0], restart(walk, members[1])] if static else members
