"""Members of a classic group; each has a connection, because a delayed JoinGroup or SyncGroup blocks it."""

from collections.abc import Mapping, Sequence
from typing import Any

from highwater.conformance.client.broker import Broker
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.client.requests import request
from highwater.conformance.expectations import expect, only
from highwater.conformance.models.groups import GroupClient
from highwater.reference.wire.errors import COORDINATOR_NOT_READY, ErrorCode
from highwater.reference.wire.messages.groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from highwater.reference.wire.registry import api_of

RANGE = ("range",)
PROTOCOL_TYPE = "consumer"
SESSION_MS = 10_000
JOIN_TIMEOUT_S = 15.0
MEMBER_ID_SINCE, LEAVE_IN_BATCHES, PROTOCOL_SINCE = 4, 3, 5


class GroupDriver:
    """Builds the requests of one group, and creates its members; its state comes from replies only."""

    usual_ms = SESSION_MS

    def __init__(self, cluster: Cluster, group: str) -> None:
        self.cluster, self.group = cluster, group

    def connect(self) -> Broker:
        return self.cluster.coordinator(self.group)

    def session_ms(self, wanted: int | None = None) -> int:
        """Return a session time-out that the broker allows."""
        return self.cluster.within(
            wanted or self.usual_ms, at_least="group_min_session_timeout_ms", at_most="group_max_session_timeout_ms"
        )

    # -- requests ------------------------------------------------------------------------------------

    def join_request(
        self, member_id: str = "", *, protocols: Sequence[str | tuple[str, bytes]] = RANGE,
        session_timeout_ms: int | None = None, rebalance_timeout_ms: int | None = None, instance: str | None = None,
        metadata: bytes = b"m", protocol_type: str = PROTOCOL_TYPE,
    ) -> JoinGroupRequest:  # fmt: skip
        """Return JoinGroup with these protocols; `metadata` is for those without their own."""
        found: JoinGroupRequest = request(
            "JoinGroup", group_id=self.group, member_id=member_id, group_instance_id=instance,
            session_timeout_ms=self.session_ms() if session_timeout_ms is None else session_timeout_ms,
            rebalance_timeout_ms=self.usual_ms if rebalance_timeout_ms is None else rebalance_timeout_ms,
            protocol_type=protocol_type,
            protocols=[(each, metadata) if isinstance(each, str) else each for each in protocols],
        )  # fmt: skip
        return found

    def sync_request(self, client: GroupClient, assignments: Mapping[str, bytes] | None = None, **fields: Any) -> Any:
        return self._of_client("SyncGroup", client, assignments=list((assignments or {}).items()), **fields)

    def heartbeat_request(self, client: GroupClient) -> Any:
        return self._of_client("Heartbeat", client)

    def _of_client(self, name: str, client: GroupClient, **fields: Any) -> Any:
        return request(
            name, group_id=self.group, generation_id=client.generation, member_id=client.member_id,
            group_instance_id=client.instance, **fields,
        )  # fmt: skip

    def leave_request(self, version: int, *leaving: tuple[str, str | None]) -> Any:
        """Return LeaveGroup for member ids with their instances, one of them in a version below 3."""
        if version >= LEAVE_IN_BATCHES:
            return request("LeaveGroup", group_id=self.group, members=leaving)
        ((member_id, _),) = leaving
        return request("LeaveGroup", group_id=self.group, member_id=member_id)

    # -- members -------------------------------------------------------------------------------------

    def send_join(self, member_id: str = "", broker: Broker | None = None, **fields: Any) -> "Member":
        """Send JoinGroup without waiting for the reply; from version 4 on, get a member id first."""
        broker = broker or self.connect()
        version = broker.version_of(JoinGroupRequest)
        new = not member_id and not fields.get("instance") and version >= MEMBER_ID_SINCE
        member_id = self.new_id(broker, **fields) if new else member_id
        member = Member(self, broker, member_id, instance=fields.get("instance"), fields=fields, new=new)
        member.send_rejoin()
        return member

    def new_id(self, broker: Broker, **fields: Any) -> str:
        """Return the member id that the broker gives to a new member (KIP-394)."""
        first = broker.call(self.join_request(**fields), broker.version_of(JoinGroupRequest))
        expect("error code of the first join", {ErrorCode.MEMBER_ID_REQUIRED, 23}, first.error_code)
        return str(first.member_id)

    def join(self, **fields: Any) -> "tuple[Member, Any]":
        member = self.send_join(**fields)
        return member, member.receive_join()

    def stable_member(self, **fields: Any) -> "Member":
        """Create the only member of a stable group, as soon as its coordinator is ready."""

        def join() -> "tuple[Member, Any] | None":
            joined, reply = self.join(**fields)
            return None if reply.error_code in COORDINATOR_NOT_READY else (joined, reply)

        member, reply = self.cluster.eventually("the coordinator to be ready for a join", join, JOIN_TIMEOUT_S)
        expect("error code of the join", 0, reply.error_code)
        expect("error code of the sync", 0, member.sync({member.member_id: b"a"}).error_code)
        return member

    def joined_pair(
        self, first_protocols: tuple[str, ...] = RANGE, second_protocols: tuple[str, ...] = RANGE, **fields: Any
    ) -> "tuple[Member, Member]":
        """Create two members of a generation that has no assignment yet."""
        first = self.stable_member(protocols=first_protocols, **fields)
        second = self.send_join(protocols=second_protocols, **fields)
        first.await_rebalance()
        first.rejoin()
        expect("error code of the second join", 0, second.receive_join().error_code)
        expect("generation of both", first.generation, second.generation)
        return first, second

    def stable_pair(self, **fields: Any) -> "tuple[Member, Member]":
        """Create leader and follower of a stable group, each with its role as assignment."""
        first, second = self.joined_pair(**fields)
        leader, follower = (first, second) if first.is_leader else (second, first)
        leader.sync({leader.member_id: b"leader", follower.member_id: b"follower"})
        expect("assignment of the follower", b"follower", follower.sync().assignment)
        return leader, follower

    def describe(self) -> DescribedGroup:
        with self.connect() as broker:
            found: DescribedGroup = only(broker.call(DescribeGroupsRequest(groups=(self.group,))).groups)
        return found

    def state(self) -> str:
        return self.describe().group_state


class Member:
    """A member of a classic group with a connection to the coordinator."""

    def __init__(
        self, driver: GroupDriver, broker: Broker, member_id: str, generation: int = -1, *,
        instance: str | None = None, fields: Mapping[str, Any] | None = None, new: bool = False,
    ) -> None:  # fmt: skip
        self._new = new
        self._driver, self.broker, self.member_id, self.generation = driver, broker, member_id, generation
        self._instance, self._fields = instance, dict(fields or {})
        self._pending = (api_of(JoinGroupRequest), 0, 0)
        self.reply: Any = None

    @property
    def group(self) -> str:
        return self._driver.group

    @property
    def client(self) -> GroupClient:
        """Return the member as it names itself."""
        return GroupClient(self.member_id, self.generation, self._instance)

    def version_of(self, request: type[Any], at_least: int = 0) -> int:
        """Return the version in which the member sends a request."""
        return self.broker.version_of(request, at_least)

    def send(self, request: Any) -> None:
        """Send a request that the coordinator may delay, without waiting for the reply."""
        version = self.version_of(type(request))
        self._pending = (api_of(type(request)), version, self.broker.send(request, version))

    def receive(self) -> Any:
        """Return the reply to the request that was sent."""
        return self.broker.receive(*self._pending, JOIN_TIMEOUT_S)

    @property
    def is_leader(self) -> bool:
        return bool(self.reply.leader == self.member_id)

    def receive_join(self) -> Any:
        """Return the reply to the pending JoinGroup, and take its generation and member id.

        A new member whose id is unknown begins again once: Apache Kafka deletes an empty group without offsets at the
        next check (offsets.retention.check.interval.ms), and forgets the ids that it has given out.
        """
        self.reply = self.receive()
        if self._new and self.reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = self._driver.new_id(self.broker, **self._fields)
            self.send_rejoin()
            self.reply = self.receive()
        self._new = False
        self.generation = self.reply.generation_id
        self.member_id = self.reply.member_id or self.member_id
        return self.reply

    def send_rejoin(self, **changed: Any) -> None:
        """Send JoinGroup again, with changed fields, without waiting for the reply."""
        self._fields.update(changed)
        self.send(self._driver.join_request(self.member_id, **self._fields))

    def rejoin(self, **changed: Any) -> None:
        self.send_rejoin(**changed)
        expect("error code of the next join", 0, self.receive_join().error_code)

    def send_sync(self, assignments: Mapping[str, bytes] | None = None, **fields: Any) -> None:
        """Send SyncGroup without waiting for the reply, from version 5 on with the protocol or other `fields`."""
        named = {"protocol_type": PROTOCOL_TYPE, "protocol_name": self.reply.protocol_name if self.reply else "range"}
        chosen = {**named, **fields} if self.version_of(SyncGroupRequest) >= PROTOCOL_SINCE else {}
        self.send(self._driver.sync_request(self.client, assignments, **chosen))

    def sync(self, assignments: Mapping[str, bytes] | None = None, **fields: Any) -> Any:
        self.version_of(SyncGroupRequest, PROTOCOL_SINCE if fields else 0)
        self.send_sync(assignments, **fields)
        return self.receive()

    def sync_error(self) -> int:
        return int(self.sync().error_code)

    def join_error(self) -> int:
        return int(self.broker.call(self._driver.join_request(self.member_id)).error_code)

    def heartbeat_error(self) -> int:
        return int(self.broker.call(self._driver.heartbeat_request(self.client)).error_code)

    def await_rebalance(self) -> None:
        """Wait until a heartbeat reports the rebalance, which a request on another connection has started."""
        self._driver.cluster.eventually(
            "REBALANCE_IN_PROGRESS", lambda: self.heartbeat_error() == ErrorCode.REBALANCE_IN_PROGRESS
        )

    def leave_error(self) -> int:
        version = self.version_of(LeaveGroupRequest)
        reply = self.broker.call(self._driver.leave_request(version, (self.member_id, self._instance)), version)
        return int(reply.error_code or (only(reply.members).error_code if version >= LEAVE_IN_BATCHES else 0))
