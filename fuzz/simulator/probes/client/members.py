"""Groups and their members, as a probe uses them: requests, and a model of their generations."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from highwater.fuzz.simulator.probes.client.node import Unexpected
from highwater.fuzz.simulator.probes.client.requests import request
from highwater.fuzz.simulator.probes.client.session import MOVED, E, Session
from highwater.reference.procedures import Pending
from highwater.reference.wire.codec import encode
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.consumer_groups import ConsumerProtocolSubscription

REBALANCE_MS: Final = 1_500
ARRIVAL_MS: Final = 60
"""Longer than a message takes."""
PATIENCE_MS: Final = 8_000


def subscription(*topics: str) -> bytes:
    """Return the metadata of a consumer that subscribes to topics."""
    return (0).to_bytes(2, "big") + encode(ConsumerProtocolSubscription(topics=topics), 0)


class Group:
    """A group, and requests to its coordinator."""

    def __init__(self, session: Session, name: str) -> None:
        self.session, self.name, self.coordinator = session, name, -1

    @classmethod
    async def found(cls, session: Session, suffix: str = "group") -> "Group":
        """Return a group whose coordinator answers."""
        group = cls(session, f"{session.name}-{suffix}")
        await group.find()
        return group

    async def find(self) -> None:
        """Look for the coordinator, until it has loaded the group."""

        async def answers() -> bool:
            self.coordinator = await self.session.coordinator(self.name)
            return (await self.describe()).error_code not in MOVED

        await self.session.until(answers, True, f"whether the coordinator of {self.name} answers")

    async def ask(self, api: str, version: int = -1, **fields: Any) -> Any:
        """Return the answer of the coordinator to a request with the id of the group."""
        return await self.session.ask(self.coordinator, request(api, group_id=self.name, **fields), version)

    async def describe(self) -> Any:
        """Return what DescribeGroups says of the group."""
        answer = await self.session.ask(self.coordinator, request("DescribeGroups", groups=[self.name]))
        return answer.groups[0]

    async def state(self, expected: str) -> None:
        """Expect a state in DescribeGroups and in ListGroups (GRP-20, GRP-42)."""
        found = await self.describe()
        self.session.equal(found.group_state, expected, f"the state of {self.name}")
        listed = await self.session.ask(self.coordinator, request("ListGroups", states_filter=[expected]))
        self.session.expect(any(g.group_id == self.name for g in listed.groups), f"ListGroups lacks {self.name}")

    async def delete(self) -> int:
        """Return the error of DeleteGroups."""
        answer = await self.session.ask(self.coordinator, request("DeleteGroups", groups_names=[self.name]))
        return int(answer.results[0].error_code)

    def member(self, *topics: str, **options: Any) -> "Member":
        """Return a member that has not joined."""
        return Member(self, topics, **options)

    async def leave(self, *members: "Member") -> list[int]:
        """Let members leave with one request; return the error of each."""
        gone = [{"member_id": m.id, "group_instance_id": m.instance} for m in members]
        answer = await self.ask("LeaveGroup", members=gone)
        self.session.ok(answer.error_code, "LeaveGroup")
        return [each.error_code for each in answer.members]


class Member:
    """A member: its id and generation, and what the coordinator answered."""

    def __init__(
        self, group: Group, topics: Sequence[str] = (), *, instance: str | None = None, session_ms: int = 6_000,
        rebalance_ms: int = REBALANCE_MS, protocols: Sequence[str] = ("range",), protocol_type: str = "consumer",
    ) -> None:  # fmt: skip
        self.group, self.session = group, group.session
        self.instance, self.session_ms, self.rebalance_ms = instance, session_ms, rebalance_ms
        self.protocol_type = protocol_type
        self.protocols, self.metadata = tuple(protocols), subscription(*topics)
        self.id, self.generation, self.leader = "", -1, ""
        self.listed: list[str] = []
        self.joined: Any = None

    def begin_join(self, version: int = -1) -> Pending[Any]:
        """Send JoinGroup."""
        body = request(
            "JoinGroup", group_id=self.group.name, session_timeout_ms=self.session_ms, member_id=self.id,
            rebalance_timeout_ms=self.rebalance_ms, group_instance_id=self.instance, protocol_type=self.protocol_type,
            protocols=[{"name": name, "metadata": self.metadata} for name in self.protocols],
        )  # fmt: skip
        return self.session.send(self.group.coordinator, body, version, PATIENCE_MS)

    async def take_id(self) -> None:
        """Receive a member id (GRP-2)."""
        answer = await self.begin_join()
        self.session.error(answer.error_code, E.MEMBER_ID_REQUIRED, "JoinGroup of a new member")
        self.session.expect(answer.member_id, "MEMBER_ID_REQUIRED has no member id")
        self.id = answer.member_id

    async def end_join(self, pending: Pending[Any], error: ErrorCode = E.NONE) -> None:
        """Take the answer to JoinGroup."""
        answer = self.joined = await pending
        self.session.error(answer.error_code, error, f"JoinGroup of {self.group.name}")
        if error is E.NONE:
            self.id, self.generation, self.leader = answer.member_id, answer.generation_id, answer.leader
            self.listed = sorted(each.member_id for each in answer.members)

    async def refused(self, error: ErrorCode, what: str) -> None:
        """Join as a new member, which must be refused with or without a member id."""
        answer = await self.begin_join()
        if answer.error_code == E.MEMBER_ID_REQUIRED:
            self.id = answer.member_id
            answer = await self.begin_join()
        self.session.error(answer.error_code, error, what)

    @property
    def leads(self) -> bool:
        """Return whether the member leads the group."""
        return self.id == self.leader

    def begin_sync(
        self, assignments: dict[str, bytes] | None = None, version: int = -1, **changes: Any
    ) -> Pending[Any]:
        """Send SyncGroup, with assignments if there are any."""
        given = [{"member_id": m, "assignment": a} for m, a in (assignments or {}).items()]
        body = request("SyncGroup", **{
            "group_id": self.group.name, "generation_id": self.generation, "member_id": self.id,
            "group_instance_id": self.instance, "assignments": given, **changes,
        })  # fmt: skip
        return self.session.send(self.group.coordinator, body, version, PATIENCE_MS)

    async def synced(self, expected: bytes, **changes: Any) -> None:
        """Send SyncGroup, which must return an assignment."""
        answer = await self.begin_sync(**changes)
        self.session.equal((answer.error_code, answer.assignment), (0, expected), "error and assignment of SyncGroup")

    async def heartbeat(self, **changes: Any) -> int:
        """Return the error of a heartbeat."""
        fields = {"generation_id": self.generation, "member_id": self.id, "group_instance_id": self.instance, **changes}
        return int((await self.group.ask("Heartbeat", **fields)).error_code)


def leader_of(members: Iterable[Member]) -> Member:
    """Return the member that leads; raises Unexpected if none does."""
    for member in members:
        if member.leads:
            return member
    raise Unexpected("no member leads the group")


async def take_ids(members: Iterable[Member]) -> None:
    """Let dynamic members that have none take a member id."""
    for member in members:
        if not member.id and not member.instance:
            await member.take_id()


async def rejoin(*members: Member) -> None:
    """Let members join; the first one begins the rebalance.

    A JoinGroup of a follower that arrives before it is answered at once (GRP-35).
    """
    waiting = [(members[0], members[0].begin_join())]
    await members[0].session.sleep(ARRIVAL_MS)
    waiting += [(member, member.begin_join()) for member in members[1:]]
    for member, pending in waiting:
        await member.end_join(pending)


async def join_all(members: Sequence[Member]) -> None:
    """Let members join one generation together; those without an id take one first."""
    if all(member.generation < 0 for member in members):
        await take_ids(members[:1])  # an id that another member takes would delay this rebalance (KIP-394)
        await members[0].end_join(members[0].begin_join())
    await take_ids(members)
    await rejoin(*sorted(members, key=lambda m: (m.generation >= 0, not m.leads)))


async def sync_all(members: Sequence[Member], assignments: dict[str, bytes] | None = None) -> dict[str, bytes]:
    """Let all members sync; the leader assigns, by default its own bytes to each. Return the assignments."""
    session, given = members[0].session, assignments
    if given is None:
        given = {m.id: b"for %s in %d" % (m.id.encode(), m.generation) for m in members}
    waiting = [(m, m.begin_sync(given if m.leads else None)) for m in members]
    for member, pending in waiting:
        answer = await pending
        found = answer.error_code, answer.assignment
        session.equal(found, (0, given.get(member.id, b"")), "error and assignment of SyncGroup")
    return given


async def stable(group: Group, *members: Member) -> dict[str, bytes]:
    """Let members join until all are in one generation, then sync."""
    session = group.session
    await join_all(members)
    session.equal(len({member.generation for member in members}), 1, f"the number of generations in {group.name}")
    leader = leader_of(members)
    session.equal({m.leader for m in members}, {leader.id}, "the leader of the group")
    session.equal(leader.listed, sorted(m.id for m in members), "the members that the leader receives")
    session.equal([bool(m.listed) for m in members], [m.leads for m in members], "who receives the list of members")
    given = await sync_all(members)
    await group.state("Stable")
    return given


async def beat(members: Iterable[Member], error: ErrorCode = E.NONE) -> None:
    """Heartbeats of the members are answered with `error`."""
    for member in members:
        member.session.error(await member.heartbeat(), error, "a heartbeat")


rebalancing = partial(beat, error=E.REBALANCE_IN_PROGRESS)
