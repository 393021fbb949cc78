"""Fields of requests of members: JoinGroup, SyncGroup, Heartbeat, LeaveGroup and ConsumerGroupHeartbeat."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import pytest

from highwater.conformance.broker import Broker, expect
from highwater.conformance.cases.fields.partitions import INT32_MAX, INT32_MIN
from highwater.conformance.cases.fields.table import Call, calls, changed, check_all, no_items, shared
from highwater.conformance.cases.support.consumer_members import REBALANCE_TIMEOUT_MS, ConsumerGroup, ConsumerMember
from highwater.conformance.cases.support.members import NOT_READY, GroupDriver, Member
from highwater.conformance.clause import clause, era
from highwater.conformance.cluster import Cluster
from highwater.conformance.defects import Reply, defect, increment
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.consumer_groups import ConsumerGroupHeartbeatRequest, HeartbeatTopicPartitions
from highwater.reference.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

NO_MEMBER, ILLEGAL, INCONSISTENT, SESSION, INVALID, FENCED, NO_GROUP, NO_GROUP_NAME, ID_REQUIRED = (
    ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.INVALID_SESSION_TIMEOUT, ErrorCode.INVALID_REQUEST, ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID, ErrorCode.MEMBER_ID_REQUIRED,
)  # fmt: skip
LONG: Final = "x" * 1000


@dataclass
class World:
    """A cluster, and the only member of a stable group, which is created for the first row that needs it."""

    cluster: Cluster

    @cached_property
    def member(self) -> Member:
        return self.stable_member()

    def stable_member(self) -> Member:
        """Return the only member of a new group."""
        return GroupDriver(self.cluster, self.cluster.group()).stable_member()

    def joined_member(self) -> Member:
        """Return the only member of a new group, which has no assignment yet."""
        member, reply = GroupDriver(self.cluster, self.cluster.group()).join()
        expect("error code of the join", 0, reply.error_code)
        return member

    def call(self, request: Any, version: int) -> Any:
        """Send a request to the coordinator of its group, until that is ready, and return the reply."""
        broker = self.cluster.coordinator(request.group_id) if request.group_id else self.cluster.connect()
        with broker:
            return self.patiently(broker, request, version)

    def patiently(self, broker: Broker, request: Any, version: int) -> Any:
        def once() -> Any:
            reply = broker.call(request, version)
            return None if reply.error_code in NOT_READY else reply

        return self.cluster.eventually("the coordinator to be ready", once, 15.0)

    def join(self, request: Any, version: int) -> Any:
        """Send JoinGroup, and again with the member id that the broker gives to a new member (KIP-394).

        If that id is unknown, begin again: Apache Kafka deletes an empty group without offsets at its next check.
        """
        with self.cluster.coordinator(request.group_id) if request.group_id else self.cluster.connect() as broker:

            def once() -> Any:
                reply = self.patiently(broker, request, version)
                if reply.error_code != ID_REQUIRED or request.member_id:
                    return reply
                reply = broker.call(replace(request, member_id=reply.member_id), version)
                return None if reply.error_code == NO_MEMBER else reply

            return self.cluster.eventually("the new member to be known", once)


def send_call(world: World, request: Any, version: int) -> Any:
    return world.call(request, version)


def send_join(world: World, request: Any, version: int) -> Any:
    return world.join(request, version)


@pytest.fixture
def world(cluster: Cluster) -> World:
    return World(cluster)


def read_error(reply: Any) -> int:
    return int(reply.error_code)


# -- JoinGroup ---------------------------------------------------------------------------------------------


def join(**fields: Any) -> Callable[[World], Any]:
    """Return a builder of the request of a new member of a new group."""

    def build(world: World) -> JoinGroupRequest:
        driver = GroupDriver(world.cluster, world.cluster.group())
        usual: dict[str, Any] = {
            "group_id": driver.group, "session_timeout_ms": driver.session_ms(), "rebalance_timeout_ms": 1000,
            "protocol_type": "consumer", "protocols": offered("range"),
        }  # fmt: skip
        return JoinGroupRequest(**changed(usual, fields))

    return build


def offered(*names: str, metadata: bytes = b"m") -> tuple[JoinGroupRequestProtocol, ...]:
    return tuple(JoinGroupRequestProtocol(name=name, metadata=metadata) for name in names)


def join_again(**fields: Any) -> Callable[[World], Any]:
    """Return a builder of the request of a member of a stable group."""

    def build(world: World) -> Any:
        member = world.member
        named = {"group_id": member.group, "member_id": member.member_id}
        return join(**changed(named, fields))(world)

    return build


def read_join(reply: Any) -> tuple[Any, ...]:
    """Return the error code; without an error also generation, protocol, and the number of members."""
    if reply.error_code:
        return (reply.error_code,)
    return 0, reply.generation_id, reply.protocol_name, len(reply.members)


def remains(world: World, request: Any) -> None:
    """Check that the member of the stable group is still in it."""
    expect("error code of the heartbeat of the member", 0, world.member.heartbeat_error())


FIRST: Final = (0, 1, "range", 1)
UNKNOWN: Final = (NO_MEMBER,)
STATIC: Final = (5, None)
NAMELESS: Final = frozenset({(0, 1, None, 1), (0, 1, "", 1)})
# Apache Kafka 4.3.1 never answers a member that offers one protocol twice.
JOINED: Final = [
    Call("protocol_type of another kind", join(protocol_type="connect"), FIRST, read_join),
    Call("protocol_type with a blank", join(protocol_type=" "), FIRST, read_join),
    Call("protocol_type empty", join(protocol_type=""), (INCONSISTENT,), read_join),
    Call("protocols empty", join(protocols=()), (INCONSISTENT,), read_join),
    Call("protocol without a name", join(protocols=offered("")), (0, 1, "", 1), read_join, (0, 6)),
    Call("protocol without a name, null", join(protocols=offered("")), NAMELESS, read_join, (7, None)),
    Call("protocol in two cases", join(protocols=offered("RANGE", "range")), (0, 1, "RANGE", 1), read_join),
    Call("protocol with a long name", join(protocols=offered(LONG)), (0, 1, LONG, 1), read_join),
    Call("metadata empty", join(protocols=offered("range", metadata=b"")), FIRST, read_join),
    Call("session_timeout 0", join(session_timeout_ms=0), (SESSION,), read_join),
    Call("session_timeout negative", join(session_timeout_ms=-1), (SESSION,), read_join),
    Call("session_timeout smallest", join(session_timeout_ms=INT32_MIN), (SESSION,), read_join),
    Call("session_timeout largest", join(session_timeout_ms=INT32_MAX), (SESSION,), read_join),
    Call("rebalance_timeout 0", join(rebalance_timeout_ms=0), FIRST, read_join, (1, None)),
    Call("rebalance_timeout negative", join(rebalance_timeout_ms=-1), FIRST, read_join, (1, None)),
    Call("rebalance_timeout largest", join(rebalance_timeout_ms=INT32_MAX), FIRST, read_join, (1, None)),
    Call("group_id empty", join(group_id=""), (NO_GROUP_NAME,), read_join),
    Call("group_id with a blank", join(group_id=lambda name: name + " "), FIRST, read_join),
    Call("member_id of no member", join(member_id="m"), (NO_MEMBER,), read_join),
    Call("member_id with a blank", join(member_id=" "), (NO_MEMBER,), read_join),
    Call("group_instance_id empty", join(group_instance_id=""), FIRST, read_join, STATIC),
    Call("group_instance_id with a blank", join(group_instance_id=" "), FIRST, read_join, STATIC),
    Call(
        "group_instance_id and member_id", join(group_instance_id="i", member_id="m"), (NO_MEMBER,), read_join, STATIC
    ),
    Call("reason empty", join(reason=""), FIRST, read_join, (8, None)),
    Call("reason long", join(reason=LONG), FIRST, read_join, (8, None)),
]
JOINED_AGAIN: Final = [
    *calls(
        join_again, read_error, stored=remains, rows=[
            ("member_id of no member of the group", {"member_id": "m"}, NO_MEMBER),
            ("member_id in upper case", {"member_id": str.upper}, NO_MEMBER),
            ("protocol_type of others", {"protocol_type": "connect"}, INCONSISTENT),
            ("protocol_type empty", {"protocol_type": ""}, INCONSISTENT),
            ("protocol_type in upper case", {"protocol_type": "CONSUMER"}, INCONSISTENT),
            ("protocols empty", {"protocols": ()}, INCONSISTENT),
            ("protocol unknown", {"protocols": offered("RANGE")}, INCONSISTENT),
            ("session_timeout 0", {"session_timeout_ms": 0}, SESSION),
            ("new member without common protocol", {"member_id": "", "protocols": offered("RANGE")}, INCONSISTENT),
            ("new member of another type", {"member_id": "", "protocol_type": "connect"}, INCONSISTENT),
        ],
    ),
    Call("group_instance_id unknown", join_again(group_instance_id="i"), UNKNOWN, read_join, STATIC, stored=remains),
]  # fmt: skip


@clause("FLD-9", "JoinGroup")
@defect(Reply(JoinGroupRequest, "error_code", increment))
@pytest.mark.parametrize("rows", shared(*JOINED))
def test_fields_of_the_join_of_a_new_member(world: World, rows: Sequence[Call]) -> None:
    check_all(no_items(JoinGroupRequest, send_join), rows, world, world.cluster.connect())


@clause("FLD-9", "JoinGroup of a stable group")
@defect(Reply(JoinGroupRequest, "error_code", increment))
@pytest.mark.parametrize("rows", shared(*JOINED_AGAIN))
def test_fields_of_a_join_of_a_stable_group(world: World, rows: Sequence[Call]) -> None:
    check_all(no_items(JoinGroupRequest, send_join), rows, world, world.cluster.connect())


# -- SyncGroup and Heartbeat -------------------------------------------------------------------------------


def of_member(request: type[Any], **fields: Any) -> Callable[[World], Any]:
    """Return a builder of a request of the member of the stable group, with changed fields."""

    def build(world: World) -> Any:
        member = world.member
        usual = {"group_id": member.group, "generation_id": member.generation, "member_id": member.member_id}
        return request(**changed(usual, fields))

    return build


def sync(**fields: Any) -> Callable[[World], Any]:
    return of_member(SyncGroupRequest, **{"protocol_type": "consumer", "protocol_name": "range", **fields})


def assign(*members: tuple[str, bytes]) -> Callable[[World], Any]:
    """Return a builder of the request of the leader of a new generation; a member without id is the leader."""

    def build(world: World) -> SyncGroupRequest:
        leader = world.joined_member()
        return SyncGroupRequest(
            group_id=leader.group, generation_id=leader.generation, member_id=leader.member_id,
            protocol_type="consumer", protocol_name="range",
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=member or leader.member_id, assignment=data)
                for member, data in members
            ),
        )  # fmt: skip

    return build


def read_assignment(reply: Any) -> tuple[int, bytes]:
    return reply.error_code, reply.assignment


NAMED: Final = (5, None)
WRONG: Final[list[tuple[str, dict[str, Any], ErrorCode, tuple[int, int | None]]]] = [
    ("generation_id one too small", {"generation_id": lambda known: known - 1}, ILLEGAL, (0, None)),
    ("generation_id one too large", {"generation_id": increment}, ILLEGAL, (0, None)),
    ("generation_id largest", {"generation_id": INT32_MAX}, ILLEGAL, (0, None)),
    ("generation_id -1", {"generation_id": -1}, ILLEGAL, (0, None)),
    ("generation_id smallest", {"generation_id": INT32_MIN}, ILLEGAL, (0, None)),
    ("member_id in upper case", {"member_id": str.upper}, NO_MEMBER, (0, None)),
    ("member_id with a blank", {"member_id": lambda name: name + " "}, NO_MEMBER, (0, None)),
    ("member_id empty", {"member_id": ""}, NO_MEMBER, (0, None)),
    ("member_id and generation unknown", {"member_id": "m", "generation_id": 9}, NO_MEMBER, (0, None)),
    ("group_instance_id unknown", {"group_instance_id": "i"}, NO_MEMBER, (3, None)),
    ("group_instance_id empty", {"group_instance_id": ""}, NO_MEMBER, (3, None)),
    ("group_id empty", {"group_id": ""}, NO_GROUP_NAME, (0, None)),
    ("group_id of no group", {"group_id": lambda name: name + " "}, NO_MEMBER, (0, None)),
]
"""Name of a row, changed fields, the error of the group coordinator, and the versions."""
INSTANCES_CHECKED: Final = "3.9"
"""The first release that was seen to reject an unknown instance id beside a known member id; 2.8 does not."""


def _since(fields: Mapping[str, Any]) -> str:
    return INSTANCES_CHECKED if "group_instance_id" in fields else ""


SYNCED: Final = [
    *(
        Call(name, sync(**fields), error, read_error, spans, _since(fields), remains)
        for name, fields, error, spans in WRONG
    ),
    Call("without changes", sync(), (0, b"a"), read_assignment),
    *calls(
        sync, read_error, versions=NAMED, stored=remains, rows=[
            ("protocol_type null", {"protocol_type": None}, INCONSISTENT),
            ("protocol_type empty", {"protocol_type": ""}, INCONSISTENT),
            ("protocol_type in upper case", {"protocol_type": "CONSUMER"}, INCONSISTENT),
            ("protocol_name null", {"protocol_name": None}, INCONSISTENT),
            ("protocol_name empty", {"protocol_name": ""}, INCONSISTENT),
            ("protocol_name in upper case", {"protocol_name": "RANGE"}, INCONSISTENT),
        ],
    ),
    Call("assignments empty", assign(), (0, b""), read_assignment),
    Call("assignments of no member", assign(("m", b"m")), (0, b""), read_assignment),
    Call("assignments of no member too", assign(("m", b"m"), ("", b"x")), (0, b"x"), read_assignment),
    Call("assignments of a member twice", assign(("", b"x"), ("", b"y")), (0, b"y"), read_assignment),
    Call("assignment empty", assign(("", b"")), (0, b""), read_assignment),
]  # fmt: skip
BEATS: Final = [
    *(
        Call(name, of_member(HeartbeatRequest, **fields), error, read_error, spans, _since(fields), remains)
        for name, fields, error, spans in WRONG
    ),
    Call("without changes", of_member(HeartbeatRequest), 0, read_error),
]


@clause("FLD-9", "SyncGroup")
@defect(Reply(SyncGroupRequest, "error_code", increment))
@pytest.mark.parametrize("rows", shared(*SYNCED))
def test_fields_of_a_request_for_an_assignment(world: World, rows: Sequence[Call]) -> None:
    check_all(no_items(SyncGroupRequest, send_call), rows, world, world.cluster.connect())


@clause("FLD-9", "Heartbeat")
@defect(Reply(HeartbeatRequest, "error_code", increment))
@pytest.mark.parametrize("rows", shared(*BEATS))
def test_fields_of_a_heartbeat(world: World, rows: Sequence[Call]) -> None:
    check_all(no_items(HeartbeatRequest, send_call), rows, world, world.cluster.connect())


# -- LeaveGroup --------------------------------------------------------------------------------------------

OWN: Final = "own"
"""In a row, the id of the member of the group."""


def leave(*members: tuple[str, str | None], **fields: Any) -> Callable[[World], Any]:
    """Return a builder of a request for members of a new group, each with its id and its instance id."""

    def build(world: World) -> LeaveGroupRequest:
        member = world.stable_member()
        listed = tuple(
            MemberIdentity(member_id=member.member_id if each == OWN else each, group_instance_id=instance)
            for each, instance in members
        )
        return LeaveGroupRequest(**changed({"group_id": member.group, "members": listed}, fields))

    return build


def leave_alone(**fields: Any) -> Callable[[World], Any]:
    """Return a builder of a request in a version for one member."""
    return lambda world: LeaveGroupRequest(
        **changed({"group_id": world.member.group, "member_id": world.member.member_id}, fields)
    )


def read_left(reply: Any) -> tuple[int, ...]:
    """Return the error code of the request, then those of the members in their order."""
    return reply.error_code, *(each.error_code for each in reply.members)


MANY: Final = (3, None)
LEAVING: Final[list[tuple[str, list[tuple[str, str | None]], tuple[int, ...]]]] = [
    ("members unknown before and after", [("m", None), (OWN, None), ("", None)], (NO_MEMBER, 0, NO_MEMBER)),
    ("member twice among others", [(OWN, None), ("m", None), (OWN, None)], (0, NO_MEMBER, NO_MEMBER)),
    ("group_instance_id unknown", [(OWN, "i"), (OWN, None)], (NO_MEMBER, 0)),
    ("group_instance_id empty", [(OWN, ""), (OWN, None)], (NO_MEMBER, 0)),
    ("group_instance_id unknown without member_id", [("", "i"), (OWN, None)], (NO_MEMBER, 0)),
]
"""Name of a row, member id and instance id of each member, and its error code."""
LEFT: Final = [
    Call("member_id in upper case", leave_alone(member_id=str.upper), NO_MEMBER, read_error, (0, 2), stored=remains),
    Call("member_id empty", leave_alone(member_id=""), NO_MEMBER, read_error, (0, 2), stored=remains),
    Call("group_id of no group", leave_alone(group_id=str.upper), NO_MEMBER, read_error, (0, 2), stored=remains),
    *(
        Call(name, leave(*members), (0, *errors), read_left, MANY, "" if members[0][1] is None else INSTANCES_CHECKED)
        for name, members, errors in LEAVING
    ),
    Call(
        "group_id of no group, with members", leave((OWN, None), group_id=str.upper),
        frozenset({(0, NO_MEMBER), (NO_MEMBER,)}), read_left, MANY,
    ),
]  # fmt: skip


@clause("FLD-9", "LeaveGroup")
@defect(Reply(LeaveGroupRequest, "error_code", increment), Reply(LeaveGroupRequest, "members.error_code", increment))
@pytest.mark.parametrize("rows", shared(*LEFT))
def test_fields_of_a_request_to_leave(world: World, rows: Sequence[Call]) -> None:
    check_all(no_items(LeaveGroupRequest, send_call), rows, world, world.cluster.connect())


# -- ConsumerGroupHeartbeat --------------------------------------------------------------------------------


@dataclass
class ConsumerWorld(World):
    """Also the only member of a consumer group, which is subscribed to a topic."""

    @cached_property
    def consumer(self) -> ConsumerMember:
        return ConsumerGroup(self.cluster, self.cluster.create_topic()).joined_member()


@pytest.fixture
def consumer_world(cluster: Cluster) -> ConsumerWorld:
    return ConsumerWorld(cluster)


def consumer_join(**fields: Any) -> Callable[[ConsumerWorld], Any]:
    """Return a builder of the first heartbeat of a member of a new group."""

    def build(world: ConsumerWorld) -> ConsumerGroupHeartbeatRequest:
        usual: dict[str, Any] = {
            "group_id": world.cluster.group(), "member_id": "m", "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
            "subscribed_topic_names": ("none",), "topic_partitions": (),
        }  # fmt: skip
        return ConsumerGroupHeartbeatRequest(**changed(usual, fields))

    return build


def beat(**fields: Any) -> Callable[[ConsumerWorld], Any]:
    """Return a builder of a heartbeat of the member of the consumer group."""

    def build(world: ConsumerWorld) -> ConsumerGroupHeartbeatRequest:
        member = world.consumer
        usual = {"group_id": member.group.name, "member_id": member.member_id, "member_epoch": member.epoch}
        return ConsumerGroupHeartbeatRequest(**changed(usual, fields))

    return build


def owned(*partitions: int) -> tuple[HeartbeatTopicPartitions, ...]:
    """Return partitions of a topic that does not exist."""
    return (HeartbeatTopicPartitions(topic_id=b"\1" * 16, partitions=partitions),)


def stays(world: ConsumerWorld, request: Any) -> None:
    """Check that the member of the consumer group is still in it, with its epoch."""
    epoch = world.consumer.epoch
    reply = world.consumer.heartbeat()
    expect("error code and epoch of the member", (0, epoch), (reply.error_code, reply.member_epoch))


JOINS: Final = [
    *calls(
        consumer_join, read_error, rows=[
            ("subscribed_topic_names empty", {"subscribed_topic_names": ()}, 0),
            ("topic twice", {"subscribed_topic_names": ("none", "none")}, 0),
            ("topic invalid", {"subscribed_topic_names": ("a b",)}, 0),
            ("topic without a name", {"subscribed_topic_names": ("",)}, 0),
            ("rebalance_timeout 0", {"rebalance_timeout_ms": 0}, 0),
            ("rebalance_timeout -2", {"rebalance_timeout_ms": -2}, 0),
            ("rebalance_timeout largest", {"rebalance_timeout_ms": INT32_MAX}, 0),
            ("rack_id of no broker", {"rack_id": "no such"}, 0),
            ("instance_id", {"instance_id": "i"}, 0),
            ("group_id with a blank", {"group_id": " "}, INVALID),
            ("instance_id with a blank", {"instance_id": " "}, INVALID),
            ("rack_id with a blank", {"rack_id": " "}, INVALID),
            ("topic_partitions of a new member", {"topic_partitions": owned(0)}, INVALID),
            ("server_assignor empty", {"server_assignor": ""}, ErrorCode.UNSUPPORTED_ASSIGNOR),
            ("server_assignor in upper case", {"server_assignor": "RANGE"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
            ("member_epoch -3", {"member_epoch": -3}, INVALID),
            ("member_epoch smallest", {"member_epoch": INT32_MIN}, INVALID),
            ("member_epoch -2 without instance_id", {"member_epoch": -2}, INVALID),
            ("member_epoch -1 of no group", {"member_epoch": -1}, NO_GROUP),
            ("member_epoch -2 of no group", {"member_epoch": -2, "instance_id": "i"}, NO_GROUP),
            ("member_epoch 1 of no group", {"member_epoch": 1}, NO_GROUP),
        ],
    ),
    Call(
        "subscribed_topic_regex empty", consumer_join(subscribed_topic_regex="", subscribed_topic_names=None),
        0, read_error, (1, None),
    ),
    Call("member_id with a blank", consumer_join(member_id=" "), INVALID, read_error, (1, None)),
]  # fmt: skip
BEATEN: Final = [
    *calls(
        beat, read_error, stored=stays, rows=[
            ("without changes", {}, 0),
            ("member_epoch one too large", {"member_epoch": increment}, FENCED),
            ("member_epoch largest", {"member_epoch": INT32_MAX}, FENCED),
            ("member_epoch -3", {"member_epoch": -3}, INVALID),
            ("member_epoch -2 without instance_id", {"member_epoch": -2}, INVALID),
            ("member_epoch -2 with unknown instance_id", {"member_epoch": -2, "instance_id": "i"}, NO_MEMBER),
            ("member_id unknown", {"member_id": "m"}, NO_MEMBER),
            ("member_id in upper case", {"member_id": str.upper}, NO_MEMBER),
            ("member_id unknown, member_epoch -1", {"member_id": "m", "member_epoch": -1}, NO_MEMBER),
            ("instance_id unknown", {"instance_id": "i"}, NO_MEMBER),
            ("instance_id with a blank", {"instance_id": " "}, INVALID),
            ("rack_id with a blank", {"rack_id": " "}, INVALID),
            ("server_assignor unknown", {"server_assignor": "no such"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
            ("group_id in upper case", {"group_id": str.upper}, NO_GROUP),
            ("topic_partitions empty", {"topic_partitions": ()}, 0),
            ("topic_partitions unknown", {"topic_partitions": owned(0, 0, -1)}, 0),
        ],
    ),
]  # fmt: skip


@clause("FLD-9", "ConsumerGroupHeartbeat of a new group")
@era("4.0")
@defect(Reply(ConsumerGroupHeartbeatRequest, "error_code", increment))
@pytest.mark.parametrize("rows", shared(*JOINS))
def test_fields_of_the_first_heartbeat_of_a_consumer(consumer_world: ConsumerWorld, rows: Sequence[Call]) -> None:
    check_all(
        no_items(ConsumerGroupHeartbeatRequest, send_call), rows, consumer_world, consumer_world.cluster.connect()
    )


@clause("FLD-9", "ConsumerGroupHeartbeat")
@era("4.0")
@defect(Reply(ConsumerGroupHeartbeatRequest, "error_code", increment))
@pytest.mark.parametrize("rows", shared(*BEATEN))
def test_fields_of_a_heartbeat_of_a_consumer(consumer_world: ConsumerWorld, rows: Sequence[Call]) -> None:
    check_all(
        no_items(ConsumerGroupHeartbeatRequest, send_call), rows, consumer_world, consumer_world.cluster.connect()
    )
