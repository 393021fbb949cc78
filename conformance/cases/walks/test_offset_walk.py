"""Walks over committed offsets: each reply and what is stored afterwards are compared with a model of the group."""

from typing import Final

from highwater.conformance.cases.support.group_walks.members import same_coordinator
from highwater.conformance.cases.support.group_walks.offset_walk import OffsetWalk
from highwater.conformance.cases.support.members import GroupDriver, Member
from highwater.conformance.cases.support.polling import spread
from highwater.conformance.clause import clause, era
from highwater.conformance.client.broker import Broker
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect, increment, without_error
from highwater.conformance.expectations import expect
from highwater.conformance.models.comparison import compare
from highwater.conformance.models.groups import STABLE, ClassicModel, GroupClient, ModelMember
from highwater.conformance.models.offsets import Commit, delete_topics
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
)
from highwater.reference.wire.messages.consumer_groups import ConsumerProtocolSubscription, encode_subscription

ERROR: Final = "topics.partitions.error_code"
LARGEST: Final = (1 << 63) - 1
INSTANCES_SINCE: Final = 7
ALL_TOPICS_SINCE: Final = 2
TOPIC_IDS_SINCE: Final = 10
NOT_FOUND: Final = ErrorCode.GROUP_ID_NOT_FOUND
UNKNOWN_ID: Final = b"\x01" * 16
NOT_A_MEMBER: Final = GroupClient()


@clause("OFF-23", "without members")
@defect(
    Request(OffsetCommitRequest, "topics.partitions.committed_offset", increment),
    Reply(OffsetFetchRequest, "groups.topics.partitions.committed_leader_epoch", 0),
)
def test_offsets_of_groups_without_members_follow_the_model(cluster: Cluster) -> None:
    broker, (first, second, unused) = _groups(cluster, 3)
    walk, chance = OffsetWalk(cluster, broker, first, second), cluster.draws.generator(1)
    walk.check_all()
    for version in walk.commit_versions:
        walk.commit(unused, walk.random_commits(chance), GroupClient("x", 0), version)
    for number in cluster.draws.steps(18, chance):
        version = walk.commit_versions[number % len(walk.commit_versions)]
        client = chance.choice((NOT_A_MEMBER, NOT_A_MEMBER, GroupClient(member_id="x")))
        walk.commit(chance.choice((first, second)), walk.random_commits(chance), client, version)
    topic = walk.topics[0]
    again = [Commit(topic, 1, 3, metadata="a"), Commit(topic, 0, 4), Commit(topic, 1, 2, metadata="b")]
    walk.commit(first, again, NOT_A_MEMBER, walk.commit_versions[-1])
    walk.commit(first, again[::2], NOT_A_MEMBER, walk.commit_versions[0])
    for version in walk.commit_versions:
        walk.commit(first, again, GroupClient("x", 0), version)
        walk.commit(first, again, GroupClient("x", 1), version)
    walk.check_all()


@clause("OFF-23", "of members")
@era("3.9")  # 2.8.2 accepts an unknown instance id in commits
@defect(
    Reply(OffsetCommitRequest, ERROR, without_error(ErrorCode.FENCED_INSTANCE_ID)),
    Request(OffsetCommitRequest, "generation_id_or_member_epoch", 1),
)
def test_offsets_of_a_group_with_members_follow_the_model(cluster: Cluster) -> None:
    """The members are a static and a dynamic one, and there are clients of another group and of older generations."""
    broker, (group, other) = _groups(cluster)
    walk, chance = OffsetWalk(cluster, broker, group, other), cluster.draws.generator(2)
    before = walk.random_commits(chance)
    walk.commit(group, before, NOT_A_MEMBER, walk.commit_versions[0])
    dynamic, static = _stable_members(cluster, group)
    stranger = GroupDriver(cluster, other.group).stable_member()
    other.state, other.generation = STABLE, stranger.generation
    other.members = {stranger.member_id: ModelMember(stranger.member_id)}
    generation, instances = group.generation, spread(broker, OffsetCommitRequest, INSTANCES_SINCE)
    dynamic_id, static_id = dynamic.member_id, static.member_id
    clients = [
        (version, GroupClient(member_id, generation + step))
        for version in walk.commit_versions
        for member_id in (dynamic_id, static_id, stranger.member_id, "", "unknown")
        for step in (-1, 0, 1, -1 - generation)
    ]
    clients += [
        (version, GroupClient(member_id, generation, instance))
        for version in instances
        for member_id in (dynamic_id, static_id, "")
        for instance in ("static", "unknown", "")
    ]
    for version, client in cluster.draws.some(clients):
        walk.commit(group, walk.random_commits(chance), client, version)
    walk.check_all()


@clause("OFF-23", "deletions")
@defect(
    Reply(OffsetDeleteRequest, ERROR, without_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
    Request(OffsetDeleteRequest, "topics", lambda topics: topics[:1]),
)
def test_deleted_offsets_follow_the_model(cluster: Cluster) -> None:
    broker, (group, other) = _groups(cluster)
    broker.version_of(OffsetDeleteRequest)
    walk, chance = OffsetWalk(cluster, broker, group, other), cluster.draws.generator(3)
    version = walk.commit_versions[-1]
    everything = [
        Commit(topic, number, 5, metadata="m") for topic, number in walk.keys if walk.existing.has(topic, number)
    ]
    for model in (group, other):
        walk.commit(model, everything, NOT_A_MEMBER, version)
    for _ in cluster.draws.steps(6, chance):
        walk.delete(group, chance.sample(walk.keys, 4))
        walk.commit(group, chance.sample(everything, 2), NOT_A_MEMBER, version)
    walk.delete(group, walk.keys[:1] * 2)
    walk.delete(group, ())
    unknown = cluster.name("g")
    reply = broker.call(OffsetDeleteRequest(group_id=unknown, topics=delete_topics(walk.keys)))
    compare("OffsetDelete of an unknown group", OffsetDeleteResponse(error_code=NOT_FOUND), reply, 0)
    dynamic, static = _stable_members(cluster, group, walk.topics[1])
    for member in (dynamic, static):
        walk.commit(group, everything, GroupClient(member.member_id, group.generation), version)
        walk.delete(group, chance.sample(walk.keys, 8), subscribed=walk.topics[1])
    walk.check_all()


def _groups(cluster: Cluster, count: int = 2) -> tuple[Broker, list[ClassicModel]]:
    """Return models of groups of one coordinator, and a connection to it."""
    names = same_coordinator(cluster, count)
    return cluster.coordinator(names[0]), [ClassicModel(name) for name in names]


def _stable_members(cluster: Cluster, model: ClassicModel, *topics: str) -> tuple[Member, Member]:
    """Create a dynamic and a static member, which are subscribed to the topics."""
    driver = GroupDriver(cluster, model.group)
    metadata = encode_subscription(ConsumerProtocolSubscription(topics=topics))
    dynamic = driver.stable_member(metadata=metadata)
    static = driver.send_join(instance="static", metadata=metadata)
    dynamic.await_rebalance()
    dynamic.rejoin()
    expect("error code of the join", 0, static.receive_join().error_code)
    dynamic.sync({})
    expect("error code of the sync", 0, static.sync_error())
    model.state, model.generation = STABLE, dynamic.generation
    model.members = {
        dynamic.member_id: ModelMember(dynamic.member_id),
        static.member_id: ModelMember(static.member_id, "static"),
    }
    return dynamic, static
