"""Groups whose coordinator moves to another broker and back, while all brokers are up: they go on as in the model."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any, Final

import pytest

from highwater.conformance.cases.support.committed_offsets import offsets_partition
from highwater.conformance.cases.support.group_walks.members import (
    AGES,
    ClassicWalk,
    WalkMember,
    assign,
    await_coordinator,
    await_resignation,
    rebalance,
    restart,
    same_coordinator,
)
from highwater.conformance.cases.support.group_walks.offset_walk import OffsetWalk
from highwater.conformance.cases.support.group_walks.refusals import FIRST, check_refusals
from highwater.conformance.cases.support.members import PROTOCOL_TYPE
from highwater.conformance.cases.support.polling import eventually_passes
from highwater.conformance.cases.support.reassignments import move_leader, replicas_of
from highwater.conformance.cases.support.replicas import await_isr
from highwater.conformance.clause import clause, era
from highwater.conformance.client.broker import Broker
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.requests import message
from highwater.conformance.defects import Reply, Request, defect, increment, without_error
from highwater.conformance.expectations import expect, only
from highwater.conformance.failures import Unsupported
from highwater.conformance.models.comparison import compare
from highwater.conformance.models.groups import DEAD, EMPTY, PREPARING, ClassicModel, GroupClient
from highwater.conformance.models.offsets import Commit, commit_topics, delete_topics, fetch_request
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from highwater.reference.wire.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
)

SEED: Final = 69
BRIEF_MS: Final = 1_500
BRIEFLY_KEPT: Final = 4
"""Newest version of OffsetCommit that states how long its offsets are kept."""
LONGEST_INTERVAL_MS: Final = 1_000
UNSTABLE: Final = ("preparing", "completing")
LISTS: Final = ("groups", "results", "topics", "partitions")
"""Fields of replies whose elements have error codes."""


class MovingGroups:
    """Groups of one partition of __consumer_offsets, whose leader is their coordinator, each with its model."""

    def __init__(self, cluster: Cluster, *names: str, age: str = AGES[-1]) -> None:
        cluster.need_brokers(2)
        ids = same_coordinator(cluster, len(names))
        self.cluster, self.chance = cluster, random.Random(SEED)
        self.partition = offsets_partition(cluster, ids[0])
        replicas = replicas_of(cluster, self.partition)
        await_isr(cluster, self.partition, len(replicas))
        self.nodes = [self.partition.leader_id, next(node for node in replicas if node != self.partition.leader_id)]
        broker = cluster.connect(self.partition.leader)
        self.models = {name: ClassicModel(group, EMPTY) for name, group in zip(names, ids, strict=True)}
        self.walks = {name: ClassicWalk(cluster, broker, model, age) for name, model in self.models.items()}
        self.offsets = OffsetWalk(cluster, broker, *self.models.values())
        keys = [key for key in self.offsets.keys if self.offsets.existing.has(*key)]
        for number, model in enumerate(self.models.values()):
            commits = [Commit(*key, number, leader_epoch=number, metadata=f"of {number}") for key in keys]
            self.offsets.commit(model, commits, GroupClient(), self.offsets.commit_versions[-1])

    def stable(self, name: str, *members: WalkMember) -> list[WalkMember]:
        """Let members join one after another, the first of which leads, until the group is stable."""
        walk = self.walks[name]
        for count in range(1, len(members) + 1):
            rebalance(walk, members[:count], "range", new=[members[count - 1]])
            assign(walk, members[:count])
        return list(members)

    def commit(self, name: str, *clients: GroupClient) -> None:
        """Commit as each client, in the versions in turn."""
        for client in clients:
            versions = self.offsets.commit_versions
            version = versions[self.offsets.steps % len(versions)] if client.instance is None else versions[-1]
            self.offsets.commit(self.models[name], self.offsets.random_commits(self.chance), client, version)

    def commit_for(self, retention_ms: int, name: str, *partitions: int) -> None:
        """Commit offsets of the first topic that are kept for some time."""
        parts = [[index, 5] for index in partitions]
        request = message(
            OffsetCommitRequest, group_id=self.models[name].group, retention_time_ms=retention_ms,
            topics=[{"name": self.offsets.topics[0], "partitions": parts}],
        )  # fmt: skip
        reply = self.offsets.broker.call(request, BRIEFLY_KEPT)
        for part in only(reply.topics).partitions:
            expect("error code of OffsetCommit", 0, part.error_code)

    def await_expiry(self, name: str, *partitions: int) -> None:
        """Wait until the offsets of these partitions have expired, and no others."""
        model = self.models[name]
        model.offsets.delete([(self.offsets.topics[0], index) for index in partitions])
        eventually_passes(self.cluster, "offsets to expire", lambda: self.offsets.check(model))

    def move(self) -> None:
        """Let the other of two replicas lead the partition, and check that the former coordinator knows no group."""
        former, node = self.offsets.broker, next(each for each in self.nodes if each != self.partition.leader_id)
        self.partition = move_leader(self.cluster, self.partition, node)
        group = next(iter(self.models.values())).group
        broker = await_coordinator(self.cluster, group, self.partition.leader)
        self.offsets.broker = broker
        for walk in self.walks.values():
            walk.broker = broker
        await_resignation(self.cluster, former, group)
        for walk in self.walks.values():
            check_former_coordinator(former, walk, self.offsets)

    def check(self) -> None:
        """Compare all offsets and all groups; a new coordinator may show older ones for a moment (OFF-22)."""
        eventually_passes(self.cluster, "what the former coordinator knew", self._check)

    def _check(self) -> None:
        self.offsets.check_all()
        for walk in self.walks.values():
            walk.check()

    @contextmanager
    def lost_at_the_move(self, name: str) -> Iterator[None]:
        """Forget afterwards what the group has become meanwhile: only a stable or empty group is stored."""
        model = self.models[name]
        stored = {each.name: deepcopy(getattr(model, each.name)) for each in fields(model)}
        yield
        for key, value in stored.items():
            setattr(model, key, value)

    def delete(self, *names: str) -> None:
        """Delete groups in one request, and compare the reply with their states."""
        models = [self.models[name] for name in names]
        errors = {EMPTY: 0, DEAD: ErrorCode.GROUP_ID_NOT_FOUND}
        results = [[model.group, errors.get(model.state, ErrorCode.NON_EMPTY_GROUP)] for model in models]
        request = DeleteGroupsRequest(groups_names=tuple(model.group for model in models))
        version = self.offsets.broker.version_of(DeleteGroupsRequest)
        reply = self.offsets.broker.call(request, version)
        compare(f"DeleteGroups {version}", message(DeleteGroupsResponse, results=results), reply, version)
        for model in models:
            if model.state == EMPTY:
                model.state, model.protocol_type, model.offsets.stored = DEAD, "", {}


def check_former_coordinator(broker: Broker, walk: ClassicWalk, offsets: OffsetWalk) -> None:
    """Expect NOT_COORDINATOR for each request of a member, and that the group is not listed."""
    model, member_id = walk.model, next(iter(walk.model.members), "unknown")
    member: dict[str, Any] = {
        "group_id": model.group, "member_id": member_id, "generation_id": model.generation,
    }  # fmt: skip
    key, identity = offsets.keys[0], MemberIdentity(member_id=member_id)
    commits, fetches = offsets.commit_versions[-1], offsets.fetch_versions[-1]
    protocol: dict[str, Any] = {"protocol_type": PROTOCOL_TYPE, "protocol_name": model.protocol}
    requests: list[tuple[Any, int | None]] = [
        (HeartbeatRequest(**member), None),
        (SyncGroupRequest(**member, **protocol), broker.version_of(SyncGroupRequest, 5)),
        (walk.join_request(member_id, protocols=FIRST), broker.version_of(JoinGroupRequest, 4)),
        (LeaveGroupRequest(group_id=model.group, members=(identity,)), broker.version_of(LeaveGroupRequest, 3)),
        (DescribeGroupsRequest(groups=(model.group,)), None),
        (DeleteGroupsRequest(groups_names=(model.group,)), None),
        (OffsetDeleteRequest(group_id=model.group, topics=delete_topics([key])), None),
        (
            OffsetCommitRequest(
                group_id=model.group, topics=commit_topics([Commit(*key, 1)], offsets.existing, commits)
            ),
            commits,
        ),
        (fetch_request({model.group: [key]}, offsets.existing, fetches), fetches),
    ]
    for request, version in requests:
        what = f"error code of {type(request).__name__} at the former coordinator"
        expect(what, ErrorCode.NOT_COORDINATOR, error_of(broker.call(request, version)))
    listed = {each.group_id for each in broker.call(ListGroupsRequest()).groups}
    expect("the former coordinator lists the group", False, model.group in listed)


def error_of(reply: Any) -> int:
    """Return the error code of a reply, or of the only element of its first list."""
    while not getattr(reply, "error_code", 0):
        inner = next((each for name in LISTS if (each := getattr(reply, name, ()))), ())
        if not inner:
            return 0
        reply = only(inner)
    return int(reply.error_code)


@clause("GRP-69", "moved coordinator")
@era("3.9")  # 2.8.2 ignores an unknown instance id in Heartbeat and LeaveGroup
@pytest.mark.cluster_fault
@pytest.mark.slow
@defect(
    Reply(DescribeGroupsRequest, "groups.members.group_instance_id", None),
    Reply(HeartbeatRequest, "error_code", without_error(ErrorCode.NOT_COORDINATOR)),
    Reply(JoinGroupRequest, "generation_id", increment),
    Reply(OffsetFetchRequest, "groups.topics.partitions.committed_leader_epoch", increment),
)
def test_groups_follow_the_model_while_their_coordinator_moves(cluster: Cluster) -> None:
    """What a group has that is not stable is lost: pending joins, ids that have not joined, a rebalance."""
    groups = MovingGroups(cluster, *("dynamic", "static", "preparing", "completing", "emptied", "simple", "deleted"))
    walks, models = groups.walks, groups.models
    dynamic = groups.stable("dynamic", WalkMember(walks["dynamic"], FIRST), WalkMember(walks["dynamic"], FIRST))
    static = groups.stable(
        "static",
        WalkMember(walks["static"], FIRST, "first"),
        WalkMember(walks["static"], FIRST),
        WalkMember(walks["static"], FIRST, "last"),
    )
    (gone,) = groups.stable("emptied", WalkMember(walks["emptied"], FIRST, "gone"))
    walks["emptied"].leave(("", "gone"))
    groups.delete("deleted")
    replaced, static[0] = static[0], restart(walks["static"], static[0])
    pair = [groups.stable(name, *(WalkMember(walks[name], FIRST) for _ in range(2))) for name in UNSTABLE]
    waiting = WalkMember(walks["preparing"], FIRST)
    with groups.lost_at_the_move("preparing"):
        waiting.send_join()
        walks["preparing"].await_rebalance(pair[0][0])
        pair[0][0].send_join()
    with groups.lost_at_the_move("completing"):
        rebalance(walks["completing"], pair[1], "range")
        follower = next(each for each in pair[1] if each.member_id != models["completing"].leader)
        follower.send_sync()
    groups.move()
    for member in (waiting, pair[0][0]):
        member.receive_refused_join(ErrorCode.NOT_COORDINATOR)
    follower.receive_refused_sync(ErrorCode.NOT_COORDINATOR)
    groups.check()
    for member in (*dynamic, *static, *pair[0], *pair[1], waiting):
        member.reconnect()
    _go_on(groups, dynamic, static, pair, waiting, replaced, gone.client)
    groups.move()
    groups.check()
    for member in (*dynamic, *static):
        member.reconnect()
    _end(groups, dynamic, static, replaced, gone.client)
    groups.move()
    groups.check()


def _go_on(
    groups: MovingGroups, dynamic: list[WalkMember], static: list[WalkMember], pair: list[list[WalkMember]],
    waiting: WalkMember, replaced: WalkMember, gone: GroupClient,
) -> None:  # fmt: skip
    """Let members that the next coordinator has loaded join, sync, commit and leave, with refused requests between."""
    walks, models = groups.walks, groups.models
    check_refusals(walks["dynamic"], *dynamic, stranger=gone)
    dynamic.append(WalkMember(walks["dynamic"], FIRST))
    rebalance(walks["dynamic"], dynamic, "range", new=dynamic[-1:])
    assign(walks["dynamic"], dynamic)
    walk, generation = walks["static"], models["static"].generation
    old = [GroupClient(replaced.member_id, generation, name) for name in (None, "first", "last", "none")]
    walk.check_heartbeats(*old, *(each.client for each in static))
    groups.commit("static", *old, *(each.client for each in static), GroupClient(static[0].member_id, generation - 1))
    walk.leave((replaced.member_id, "first"), (replaced.member_id, None), (static[2].member_id, "first"))
    again = restart(walk, static[0])
    walk.check_heartbeats(static[0].client, again.client, replaced.client)
    walk.leave(("", "last"), ("", "last"), ("", "none"))
    static[:] = [again, static[1]]
    rebalance(walk, static, "range")
    assign(walk, static)
    walk = walks["preparing"]
    walk.check_refused_joins((GroupClient(waiting.member_id), PROTOCOL_TYPE, FIRST, 0, ErrorCode.UNKNOWN_MEMBER_ID))
    walk.check_heartbeats(*_each_generation(models["preparing"], *pair[0], waiting), gone)
    waiting.member_id = ""
    rebalance(walk, [*pair[0], waiting], "range", new=[waiting])
    groups.commit("preparing", pair[0][0].client, waiting.client)
    assign(walk, [waiting, *pair[0]])
    walk = walks["completing"]
    walk.check_heartbeats(*_each_generation(models["completing"], *pair[1]), gone)
    walk.check_syncs(*_each_generation(models["completing"], *pair[1]))
    rebalance(walk, pair[1], "range")
    assign(walk, pair[1])
    walk.leave(*((each.member_id, None) for each in pair[1]))
    comer = WalkMember(walks["emptied"], FIRST)
    walks["emptied"].check_heartbeats(gone, replace(gone, instance=None))
    rebalance(walks["emptied"], [comer], "range", new=[comer])
    assign(walks["emptied"], [comer])
    groups.commit("simple", GroupClient(), GroupClient("unknown", 1), GroupClient())
    groups.commit("deleted", GroupClient("unknown", 1))


def _end(
    groups: MovingGroups, dynamic: list[WalkMember], static: list[WalkMember], replaced: WalkMember, gone: GroupClient
) -> None:
    """Let the members of some groups leave at the first coordinator, which knew older generations, and delete these."""
    walks = groups.walks
    walks["dynamic"].check_heartbeats(*_each_generation(groups.models["dynamic"], *dynamic), gone)
    walks["dynamic"].leave(*((each.member_id, None) for each in dynamic))
    walk, generation = walks["static"], groups.models["static"].generation
    walk.check_heartbeats(*(GroupClient(replaced.member_id, generation + step, "first") for step in (-1, 0)))
    walk.check_heartbeats(
        *(GroupClient(each.member_id, generation, "last") for each in static), *(m.client for m in static)
    )
    restarted = restart(walk, static[0])
    walk.leave((restarted.member_id, None), (static[0].member_id, "first"), ("", "first"), (static[1].member_id, None))
    groups.commit("deleted", GroupClient(), GroupClient("unknown", 1))
    groups.commit("simple", GroupClient(), GroupClient("unknown", 1))
    groups.delete(*walks)
    # Kafka 3.9.1 does not wait until a deletion is replicated; a commit in the same partition is after it.
    groups.commit("simple", GroupClient())


def _each_generation(model: ClassicModel, *members: WalkMember) -> list[GroupClient]:
    """Return the members as clients of the generation before, of this one and of the next."""
    return [GroupClient(each.member_id, model.generation + step) for each in members for step in (-1, 0, 1)]


@clause("GRP-69", "expired after a move")
@era("3.9")
@pytest.mark.cluster_fault
@pytest.mark.slow
@defect(
    Reply(HeartbeatRequest, "error_code", without_error(ErrorCode.UNKNOWN_MEMBER_ID)),
    Reply(DescribeGroupsRequest, "groups.members", lambda members: (*members, *members)),
    Request(OffsetCommitRequest, "retention_time_ms", -1),
)
def test_sessions_and_offsets_expire_at_the_next_coordinator(cluster: Cluster) -> None:
    """Of one group a member stays, of one some offsets, and one is removed with its last offset."""
    interval_ms = cluster.setting("offsets_retention_check_interval_ms")
    if interval_ms > LONGEST_INTERVAL_MS:
        raise Unsupported(f"the target's offsets.retention.check.interval.ms is {interval_ms}, above 1 s")
    groups = MovingGroups(cluster, "members", "some", "all")
    walk, models = groups.walks["members"], groups.models
    brief_ms = cluster.within(BRIEF_MS, at_least="group_min_session_timeout_ms")
    stays, dynamic = WalkMember(walk, FIRST), WalkMember(walk, FIRST, session_ms=brief_ms)
    static = WalkMember(walk, FIRST, "static", session_ms=brief_ms)
    groups.stable("members", stays)
    groups.commit_for(1, "some", 0)
    groups.await_expiry("some", 0)
    groups.offsets.delete(models["all"], [(groups.offsets.topics[1], 0)])
    rebalance(walk, [stays, dynamic, static], "range", new=[dynamic, static])
    assign(walk, [stays, dynamic, static])
    groups.commit_for(BRIEF_MS, "some", 1)
    groups.commit_for(BRIEF_MS, "all", 0, 1, 2)
    groups.move()
    stays.reconnect()
    walk.await_rebalance(stays)
    models["members"].state = PREPARING
    rebalance(walk, [stays], "range")
    generation = models["members"].generation
    walk.check_heartbeats(*(GroupClient(each.member_id, generation, each.instance) for each in (dynamic, static)))
    assign(walk, [stays])
    groups.await_expiry("some", 1)
    groups.await_expiry("all", 0, 1, 2)
    models["all"].state = DEAD
    groups.check()
    groups.move()
    groups.check()
