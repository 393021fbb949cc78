"""Members of a classic group whose every reply is compared with the model, in versions of one age."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from highwater.conformance.cases.support.committed_offsets import OFFSETS_TOPIC, java_hash
from highwater.conformance.cases.support.members import (
    LEAVE_IN_BATCHES,
    MEMBER_ID_SINCE,
    PROTOCOL_SINCE,
    PROTOCOL_TYPE,
    GroupDriver,
    Member,
)
from highwater.conformance.cases.support.polling import spread
from highwater.conformance.client.broker import Broker
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.expectations import expect, only
from highwater.conformance.models.comparison import TEXT, compare, one_of
from highwater.conformance.models.groups import COMPLETING, PREPARING, STABLE, ClassicModel, GroupClient, ModelMember
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

AGES: Final = ("oldest", "middle", "newest")
SESSION_MS: Final = 30_000
INSTANCES_SINCE: Final = 5
HEARTBEAT_INSTANCES_SINCE: Final = 3
SKIP_ASSIGNMENT_SINCE: Final = 9
Offers = Sequence[tuple[str, bytes]]


def same_coordinator(cluster: Cluster, count: int) -> list[str]:
    """Return the ids of new groups that one broker coordinates, also after a failover: they have one partition."""
    first = cluster.group()
    address = cluster.coordinator(first).address
    topic = cluster.describe(OFFSETS_TOPIC)
    partitions = len(topic.partitions) if topic else 0

    def is_beside(name: str) -> bool:
        if partitions:
            return java_hash(name) % partitions == java_hash(first) % partitions
        return cluster.coordinator(name).address == address

    found = [first]
    while len(found) < count:
        name = cluster.group()
        if is_beside(name):
            found.append(name)
        else:
            cluster.forget_group(name)
    return found


def await_coordinator(cluster: Cluster, group: str, address: str) -> Broker:
    """Wait until this broker coordinates the group, and return a connection to it."""

    def poll() -> Broker | None:
        found = cluster.coordinator(group)
        return found if found.address == address else None

    return cluster.eventually(f"{address} to coordinate {group}", poll, 15.0)


def await_resignation(cluster: Cluster, broker: Broker, group: str) -> None:
    """Wait until a former coordinator knows that it is one: brokers learn of a new leader one after another."""
    request = DescribeGroupsRequest(groups=(group,))
    cluster.eventually(
        "NOT_COORDINATOR at the former coordinator",
        lambda: only(broker.call(request).groups).error_code == ErrorCode.NOT_COORDINATOR,
    )


class ClassicWalk(GroupDriver):
    """Sends requests about one classic group in the oldest, middle or newest versions, and compares the replies."""

    def __init__(self, cluster: Cluster, broker: Broker, model: ClassicModel, age: str) -> None:
        super().__init__(cluster, model.group)
        self.broker, self.model, self.age = broker, model, AGES.index(age)
        self.usual_ms = super().session_ms(SESSION_MS)

    def session_ms(self, wanted: int | None = None) -> int:
        return wanted or self.usual_ms

    def version(self, request: type[Any], first: int = 0) -> int:
        found = spread(self.broker, request, first)
        return found[min(self.age, len(found) - 1)]

    # -- what is described -----------------------------------------------------------------------------

    def check(self) -> None:
        """Compare the description of the group, and its entry in the list of groups."""
        model, version = self.model, self.version(DescribeGroupsRequest)
        reply = self.broker.call(DescribeGroupsRequest(groups=(model.group,)), version)
        expected = DescribeGroupsResponse(groups=(model.described(version),))
        compare(f"DescribeGroups {version} in {model.state}", expected, reply, version)
        version = self.version(ListGroupsRequest)
        reply = self.broker.call(ListGroupsRequest(), version)
        own = tuple(group for group in reply.groups if group.group_id == model.group)
        what = f"ListGroups {version} in {model.state}"
        compare(what, ListGroupsResponse(groups=model.listed()), replace(reply, groups=own), version)

    def await_members(self, count: int) -> None:
        """Wait until the group has so many members, of which some wait with their JoinGroup."""
        self.cluster.eventually(f"{count} members", lambda: len(self.describe().members) == count)

    # -- requests that change nothing ------------------------------------------------------------------

    def check_heartbeats(self, *clients: GroupClient) -> None:
        """Compare the replies to heartbeats; clients with instance ids are left out of versions without them."""
        version = self.version(HeartbeatRequest)
        for client in clients:
            if client.instance is None or version >= HEARTBEAT_INSTANCES_SINCE:
                expected = HeartbeatResponse(error_code=self.model.heartbeat_error(client))
                what = f"Heartbeat {version} of {client} in {self.model.state}"
                compare(what, expected, self.broker.call(self.heartbeat_request(client), version), version)

    def check_syncs(self, *clients: GroupClient) -> None:
        """Compare the replies to SyncGroup with and without the protocol, except those that would wait."""
        version = self.version(SyncGroupRequest)
        model = self.model
        names: list[tuple[str | None, str | None]] = [(None, None)]
        if version >= PROTOCOL_SINCE:
            names += [("other", model.protocol), (PROTOCOL_TYPE, "other"), (PROTOCOL_TYPE, model.protocol)]
            names += [(PROTOCOL_TYPE, None), (None, model.protocol), (PROTOCOL_TYPE, "")]
        for client in clients:
            for protocol_type, protocol in names:
                error = model.sync_error(client, protocol_type, protocol)
                if version >= PROTOCOL_SINCE and None in {protocol_type, protocol}:
                    error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # both are mandatory (KIP-559)
                if client.instance is not None or (not error and model.state != STABLE):
                    continue
                request = self.sync_request(
                    client, {client.member_id: b"ignored"}, protocol_type=protocol_type, protocol_name=protocol
                )
                what = f"SyncGroup {version} of {client} for {protocol_type}, {protocol} in {model.state}"
                compare(what, self.synced(client, error), self.broker.call(request, version), version)

    def synced(self, client: GroupClient, error: int = 0) -> SyncGroupResponse:
        if error:
            return SyncGroupResponse(error_code=error)
        return SyncGroupResponse(
            protocol_type=self.model.protocol_type, protocol_name=self.model.protocol,
            assignment=self.model.members[client.member_id].assignment,
        )  # fmt: skip

    def check_refused_joins(self, *refused: tuple[GroupClient, str, Offers, int, int]) -> None:
        """Compare the replies to JoinGroup with this protocol type, offers, session timeout and error."""
        for client, protocol_type, offers, session_ms, error in refused:
            version = self.version(JoinGroupRequest, INSTANCES_SINCE if client.instance else 0)
            request = self.join_request(
                client.member_id, instance=client.instance, protocols=offers, protocol_type=protocol_type,
                session_timeout_ms=session_ms or None,
            )  # fmt: skip
            what = f"JoinGroup {version} of {client} with {protocol_type}, {offers}, {session_ms} in {self.model.state}"
            compare(what, refused_join(error, client.member_id), self.broker.call(request, version), version)

    def await_rebalance(self, member: "WalkMember") -> None:
        """Wait until a heartbeat of the member reports the rebalance."""
        version, request = self.version(HeartbeatRequest), self.heartbeat_request(replace(member.client, instance=None))
        self.cluster.eventually(
            "REBALANCE_IN_PROGRESS",
            lambda: self.broker.call(request, version).error_code == ErrorCode.REBALANCE_IN_PROGRESS,
        )

    # -- leaving ---------------------------------------------------------------------------------------

    def leave(self, *leaving: tuple[str, str | None]) -> None:
        """Let members leave, together from version 3 on, and compare the reply; the model loses those that may."""
        version = self.version(LeaveGroupRequest)
        groups = [leaving] if version >= LEAVE_IN_BATCHES else [(each,) for each in leaving if each[1] is None]
        for together in groups:
            errors = [self._left(member, name) for member, name in together]
            members = tuple(
                MemberResponse(member_id=member, group_instance_id=name, error_code=error)
                for (member, name), error in zip(together, errors, strict=True)
            )
            request = self.leave_request(version, *together)
            expected = LeaveGroupResponse(error_code=0 if version >= LEAVE_IN_BATCHES else errors[0], members=members)
            compare(f"LeaveGroup {version} of {together}", expected, self.broker.call(request, version), version)

    def _left(self, member_id: str, instance: str | None) -> int:
        error = self.model.leave_error(member_id, instance)
        if not error:
            self.model.remove(member_id, instance)
        return error


def refused_join(error: int, member_id: str) -> JoinGroupResponse:
    no_protocol: Any = one_of(None, "")  # GRP-68 requires null, as a SHOULD
    return JoinGroupResponse(
        error_code=error, generation_id=-1, protocol_type=None, protocol_name=no_protocol, member_id=member_id
    )


class WalkMember(Member):
    """A member whose replies are compared with the model, in the versions of a walk."""

    def __init__(
        self, walk: ClassicWalk, offers: Offers, instance: str | None = None, session_ms: int | None = None
    ) -> None:
        self.walk, self.offers, self.instance = walk, tuple(offers), instance
        fields = {"instance": instance, "session_timeout_ms": session_ms}
        super().__init__(walk, walk.connect(), "", instance=instance, fields=fields)
        self.version = self.version_of(JoinGroupRequest)

    @property
    def client(self) -> GroupClient:
        """Return the member as it names itself in the current generation."""
        return GroupClient(self.member_id, self.walk.model.generation, self.instance)

    def version_of(self, request: type[Any], at_least: int = 0) -> int:
        named = INSTANCES_SINCE if request is JoinGroupRequest and self.instance else 0
        return self.walk.version(request, max(at_least, named))

    def reconnect(self) -> None:
        """Connect to the coordinator that the walk now uses."""
        self.broker = self.walk.cluster.connect(self.walk.broker.address)

    def send_join(self) -> None:
        """Send JoinGroup; from version 4 on a dynamic member first gets its id (KIP-394)."""
        self._fields["protocols"] = self.offers
        if not self.member_id and not self.instance and self.version >= MEMBER_ID_SINCE:
            reply = self.broker.call(self.walk.join_request(**self._fields), self.version)
            expected = refused_join(ErrorCode.MEMBER_ID_REQUIRED, "")
            named: Any = TEXT
            compare(f"JoinGroup {self.version} without id", replace(expected, member_id=named), reply, self.version)
            self.member_id = reply.member_id
        self.send_rejoin()

    def receive_join(self) -> JoinGroupResponse:
        """Return the reply to JoinGroup; its fields are compared when all members have theirs."""
        reply: JoinGroupResponse = self.receive()
        expect("error code of JoinGroup", 0, reply.error_code)
        self.member_id = self.member_id or reply.member_id
        return reply

    def receive_refused_join(self, error: int) -> None:
        """Compare the reply to a JoinGroup that waits with a refusal."""
        compare(
            f"JoinGroup {self.version} that waits", refused_join(error, self.member_id), self.receive(), self.version
        )

    def receive_refused_sync(self, error: int) -> None:
        """Compare the reply to a SyncGroup that waits with a refusal."""
        version = self.version_of(SyncGroupRequest)
        compare(f"SyncGroup {version} that waits", SyncGroupResponse(error_code=error), self.receive(), version)

    def send_sync(self, assignments: Mapping[str, bytes] | None = None, **fields: Any) -> None:
        """Send SyncGroup without the instance, from version 5 on with the protocol of the model."""
        model = self.walk.model
        named = {"protocol_type": model.protocol_type, "protocol_name": model.protocol, **fields}
        chosen = named if self.version_of(SyncGroupRequest) >= PROTOCOL_SINCE else {}
        self.send(self.walk.sync_request(replace(self.client, instance=None), assignments, **chosen))

    def receive_sync(self) -> None:
        version = self.version_of(SyncGroupRequest)
        compare(f"SyncGroup {version}", self.walk.synced(self.client), self.receive(), version)


def rebalance(
    walk: ClassicWalk, members: Sequence[WalkMember], protocol: str | frozenset[str], new: Sequence[WalkMember] = ()
) -> None:  # fmt: skip
    """Let all members join, compare their replies with the next generation of this protocol, and check the group.

    `protocol`: the one that the group chooses, or those with equal votes. New members start the rebalance of a group
    with members, or else its leader. A member that leads the group and joins again
    goes on to lead it; otherwise the broker chooses the leader.
    """
    model = walk.model
    is_settled = model.state in {STABLE, COMPLETING}
    first = new or [each for each in members if is_settled and each.member_id == model.leader]
    others = [each for each in members if each not in first]
    for member in first:
        member.send_join()
    if is_settled:
        model.state = PREPARING
    elif others and first and first[0].member_id not in model.members:
        walk.await_members(len(model.members) + len(first))  # else the others may begin the generation without it
    if is_settled and others:
        walk.await_rebalance(others[0])
    for member in others:
        member.send_join()
    replies = [member.receive_join() for member in members]
    chosen = str(replies[0].protocol_name)
    expect("protocol", protocol, chosen)
    model.generation, model.protocol_type, model.protocol = model.generation + 1, PROTOCOL_TYPE, chosen
    before = {each.member_id: each.assignment for each in model.members.values()}
    model.members = {
        member.member_id: ModelMember(
            member.member_id, member.instance, dict(member.offers)[chosen], before.get(member.member_id, b"")
        )
        for member in members
    }
    model.leader = model.leader if model.leader in model.members else replies[0].leader
    model.state = COMPLETING
    expect("the leader is a member", True, model.leader in model.members)
    for member, reply in zip(members, replies, strict=True):
        compare(f"JoinGroup {member.version} of {member.member_id}", joined(model, member), reply, member.version)
    walk.check()


def joined(model: ClassicModel, member: WalkMember) -> JoinGroupResponse:
    """Return the reply to a member of the current generation; only the leader's lists the members."""
    listed = tuple(
        JoinGroupResponseMember(member_id=each.member_id, group_instance_id=each.instance, metadata=each.metadata)
        for each in model.members.values()
    )
    return JoinGroupResponse(
        generation_id=model.generation, protocol_type=model.protocol_type, protocol_name=model.protocol,
        leader=model.leader, member_id=member.member_id, members=listed if model.leader == member.member_id else (),
    )  # fmt: skip


def assign(walk: ClassicWalk, members: Sequence[WalkMember], **unknown: bytes) -> None:
    """Let the leader assign bytes to each member but the last, and to ids that are no members; followers sync first."""
    model = walk.model
    for number, each in enumerate(members):
        last = number == len(members) - 1 and number > 0
        model.members[each.member_id].assignment = b"" if last else b"%d to %d" % (model.generation, number)
    leader = next(each for each in members if each.member_id == model.leader)
    followers = [each for each in members if each is not leader]
    for follower in followers:
        follower.send_sync({follower.member_id: b"from a follower"})
    given = {each.member_id: each.assignment for each in model.members.values() if each.assignment}
    leader.send_sync(given | unknown)
    for each in (leader, *followers):
        each.receive_sync()
    model.state = STABLE
    walk.check()


def restart(walk: ClassicWalk, member: WalkMember) -> WalkMember:
    """Let a static member of a stable group join again without its member id, and compare the reply (KIP-345).

    It gets another id, keeps generation and assignment, and a leader assigns nothing: from version 9 on the reply says
    so, and before it names the old id as the leader.
    """
    model, again = walk.model, WalkMember(walk, member.offers, member.instance)
    was_leader = model.leader == member.member_id
    again.send_join()
    reply = again.receive_join()
    expect("the member id has changed", True, again.member_id != member.member_id)
    old = model.members.pop(member.member_id)
    metadata = dict(member.offers)[model.protocol]
    model.members[again.member_id] = ModelMember(again.member_id, old.instance, metadata, old.assignment)
    model.leader = again.member_id if was_leader else model.leader
    expected = joined(model, again)
    if was_leader and again.version < SKIP_ASSIGNMENT_SINCE:
        expected = replace(expected, leader=member.member_id, members=())
    expected = replace(expected, skip_assignment=was_leader and again.version >= SKIP_ASSIGNMENT_SINCE)
    compare(f"JoinGroup {again.version} of a static member that restarts", expected, reply, again.version)
    walk.check()
    return again
